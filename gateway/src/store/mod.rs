//! All SQL of the gateway. Only this room names the Postgres crates.

pub mod cluster;
