//! The management pages over HTTP, with a real store behind them and no gateway.

mod connection;
mod mcp;
mod room;
mod settings;
mod without_gateway;
