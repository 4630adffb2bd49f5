//! The public API and the store, against a real gateway on a real PostgreSQL.

mod arbitrary;
mod bodies;
mod conversations;
mod credentials;
mod database;
mod hostile;
mod idempotency;
mod keys;
mod operations;
mod order;
mod refusals;
mod slow;
mod store;
mod success;
mod support;
mod wait;
