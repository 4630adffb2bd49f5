//! The public side of a service: what a caller and the gateway may know of it.
//!
//! The working directory, model, instructions, capabilities and rules stay on the device.

use serde::{Deserialize, Serialize};

use crate::ids::EndpointId;
use crate::time::Timestamp;

/// A published service as a business backend lists it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Endpoint {
    /// What runs are submitted to.
    pub id: EndpointId,
    /// Its name within the application.
    pub name: String,
    /// What it does, in its owner's words.
    pub description: String,
    /// The published version, counted from 1.
    pub version: u32,
    /// The device that executes it.
    pub device: EndpointDevice,
}

/// What a caller may know of the device behind a service.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct EndpointDevice {
    /// Whether it takes work at this moment.
    pub connected: bool,
    /// When it was last heard of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_seen_at: Option<Timestamp>,
}

/// The length limits of names and descriptions, in characters.
pub const MAX_NAME_CHARS: usize = 100;
/// See [`MAX_NAME_CHARS`].
pub const MAX_DESCRIPTION_CHARS: usize = 1000;

/// Checks a name from a person: not blank, within the limit, no control characters.
///
/// # Errors
/// What is wrong with the name, for people.
pub fn check_name(name: &str) -> Result<(), String> {
    let length = name.chars().count();
    if name.trim().is_empty() || name.trim() != name {
        Err("a name must not be blank or begin or end with a space".to_owned())
    } else if length > MAX_NAME_CHARS {
        Err(format!("a name has at most {MAX_NAME_CHARS} characters; this one has {length}"))
    } else if name.chars().any(char::is_control) {
        Err("a name must not contain control characters".to_owned())
    } else {
        Ok(())
    }
}
