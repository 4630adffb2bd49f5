//! Services of this device: definitions, stages, capability checks, publication.

pub mod definition;

pub use definition::{Definition, Limits, Provider, ToolName};
