//! The device service: sessions with devices over any byte stream.
//!
//! | file | what it does |
//! |---|---|
//! | `upgrade` | takes a stream, checks the control token, becomes a WebSocket |
//! | [`service`] | what every session needs |
//! | [`invited`] | a device with an invitation waits for the administrator |
//! | `handshake` | challenge, hello, welcome or refused |
//! | `session` | one device, from welcome to goodbye |
//! | `credential` | the lifetime of an account's connection |
//! | `wire` | frames in and out of the WebSocket |
//! | `capacity` | what the device declared, and what is left of it |
//! | `claims` | offers, as many as the device has capacity for |
//! | [`looks`] | one look a second for what waits for any device |
//! | [`renewals`] | the leases of all sessions, renewed together |
//! | `orders` | control operations on their way to the device |
//! | `events` | a device's events of a run, as they are stored |
//! | `recorder` | the device's reports, written in their order and acknowledged |
//! | `transfers` | one stream with the bytes of files and artifacts |
//! | `progress` | how much of each run the device has reported |
//! | `recalls` | after a restore: which runs the device never had |
//! | `management` | the desktop's own requests |
//! | [`socket`] | the private Unix socket |
//!
//! The loop that reads never waits on anything slow: frames that change runs go to the recorder, requests to tasks of
//! their own. So the answers to pings are seen in time. Only while the recorder's queue is full is no frame read.

mod capacity;
mod claims;
mod credential;
mod events;
mod handshake;
pub mod invited;
pub mod looks;
mod management;
mod orders;
mod progress;
mod recalls;
mod recorder;
pub mod renewals;
pub mod service;
mod session;
pub mod socket;
mod transfers;
mod upgrade;
mod wire;
