//! The public API and the store, against a real gateway on a real PostgreSQL.

mod acme;
mod arbitrary;
mod bodies;
mod conversations;
mod credentials;
mod database;
mod document;
mod events;
mod hostile;
mod idempotency;
mod keys;
mod lists;
mod operations;
mod ops;
mod order;
mod pages;
mod proxies;
mod rates;
mod refusals;
mod retention;
mod slow;
pub(crate) mod store;
mod success;
mod support;
mod tls;
mod wait;
