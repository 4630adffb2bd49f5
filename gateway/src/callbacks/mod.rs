//! Callbacks: deliveries to the systems of businesses.
//!
//! | file | what it does |
//! |---|---|
//! | [`worker`] | takes what is due, sends it, records the outcome |
//! | `concurrency` | limits on attempts under way per destination |
//! | `attempt` | one attempt, from the signed request to its outcome |
//! | [`send`] | one request to one destination: to an address that was checked (`public_hosts::lookup`), within its time |
//! | `connection_pool` | connections that are kept a moment for the next callback to the same host |
//!
//! Every replica runs a worker; a delivery belongs to the replica that claimed it first, until the claim's lease is
//! over.

mod attempt;
mod concurrency;
mod connection_pool;
pub mod send;
pub mod worker;
