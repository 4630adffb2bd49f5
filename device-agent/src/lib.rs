//! The desktop half of Deskgate: pairs, pulls runs, executes them under its owner's rules.

pub mod assistant;
pub mod dispatcher;
pub mod executor;
pub mod identity;
pub mod link;
pub mod services;
pub mod store;
pub mod tools;
