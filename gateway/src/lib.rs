//! The always-on half of Deskgate: accepts, queues, hands out, reports.

pub mod control;
pub mod domain;
pub mod http;
pub mod socket;
pub mod store;
pub mod tasks;
pub mod tunnel;
pub mod wake;
