//! The always-on half of Deskgate: accepts, queues, hands out, reports.

pub mod store;
pub mod tunnel;
