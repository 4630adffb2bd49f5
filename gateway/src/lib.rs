//! The always-on half of Deskgate: accepts, queues, hands out, reports.
//!
//! This file and `root` are the composition root: the only ones that know all modules. A [`Gateway`] takes its
//! listeners, timings and limits as arguments, so the server, the built-in mode inside the desktop's process and every
//! test run the same code.

#![warn(clippy::print_stdout, clippy::print_stderr)]

#[cfg(feature = "acme")]
pub mod acme;
pub mod addresses;
pub mod admin;
pub mod callbacks;
pub mod config;
pub mod control;
pub mod descriptors;
pub mod domain;
pub mod encryption;
pub mod heartbeat;
pub mod help;
pub mod hosted;
pub mod http;
pub mod log;
pub mod metrics;
pub mod networks;
pub mod notify;
pub mod ops;
pub mod proxy_protocol;
mod root;
pub mod sd_notify;
pub mod signals;
pub mod signing;
pub mod storage;
pub mod store;
pub mod tls;
pub mod tunnel;
pub mod upkeep;

pub use root::{DatabaseSettings, Gateway, Pipes, Settings, StartError};
