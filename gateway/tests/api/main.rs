//! The public API and the store, against a real gateway on a real PostgreSQL.

mod arbitrary;
mod bodies;
mod credentials;
mod database;
mod hostile;
mod idempotency;
mod keys;
mod lists;
mod order;
mod pages;
mod rates;
mod refusals;
mod retention;
mod slow;
mod store;
mod success;
mod support;
mod wait;
