//! The management pages over HTTP, with a real store behind them and no gateway.

mod connection;
mod fixture;
mod live;
mod mcp;
mod sessions;
mod settings;
mod without_gateway;
