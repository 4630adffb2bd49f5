//! Getting through to the gateway: retry around one fallible connection.
//!
//! The contract with the dispatcher:
//!
//! ```text
//! let mut link = Link::new(connector, identity);       // connector: ssh, builtin
//! let mut session = link.connect(|| journal.in_flight()).await;   // retries until it is welcomed
//! session.sender().send(DeviceFrame::Ready { slots }).await
//! while let Some(frame) = session.next().await { … }   // None: the line is lost; connect again
//! ```
