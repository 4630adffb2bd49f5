//! Callbacks: what is sent to businesses' own systems.
//!
//! | file | what it does |
//! |---|---|
//! | [`worker`] | takes what is due, sends it, writes down what came of it |
//! | `lanes` | how much of one destination is under way at once |
//! | `attempt` | one attempt, from the letter to what came of it |
//! | [`guard`] | where a host name leads, and only if all of that is public |
//! | [`send`] | one request to one destination: to an address that was checked, within its time |
//! | `kept` | connections that are kept a moment for the next callback to the same host |
//!
//! Every replica makes the rounds; a delivery belongs to the one whose claim was first, until the claim's lease is over.

mod attempt;
mod concurrency;
mod connection_pool;
pub mod guard;
pub mod send;
pub mod worker;
