//! The device door: sessions with devices over any byte stream.
//!
//! | file | what it does |
//! |---|---|
//! | [`service`] | takes a stream, checks the control token, becomes a WebSocket |
//! | `handshake` | challenge, hello, welcome or refused |
//! | `session` | one device, from welcome to goodbye |
//! | `pass` | how long an account's line is good |
//! | `wire` | frames in and out of the WebSocket |
//! | `claims` | offers, as many as the device has room for |
//! | `orders` | control operations on their way to the device |
//! | `events` | what a device reports of a run, as it is stored |
//! | `recorder` | what the device reports, written in its order and acknowledged |
//! | `reported` | how much of each run that is |
//! | `management` | the desktop's own requests |
//! | [`socket`] | the private Unix socket |
//!
//! A session never waits on anything slow in the loop that reads: frames that change runs go to
//! the recorder, requests to tasks of their own, so the line is always drained and a ping is
//! answered by the same loop that takes offers.

mod claims;
mod credential;
mod events;
mod handshake;
mod management;
mod orders;
mod progress;
mod recorder;
pub mod service;
mod session;
pub mod socket;
mod wire;
