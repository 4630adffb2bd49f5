//! A server of tools elsewhere, as a definition names it.

use deskgate_protocol::canonical::Sha256Digest;
use serde::{Deserialize, Serialize};
use url::Url;

use crate::names::is_short_name;

/// The most servers of a service.
pub const MAX_MCP_SERVERS: usize = 8;
/// The most characters of a server's name, which is a part of the names of its tools.
const MAX_NAME_CHARS: usize = 24;
/// The most bytes of an address.
const MAX_URL_BYTES: usize = 2000;

/// A server elsewhere, by the name that it has on this device. Its key is kept there, and never in a definition.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct McpServer {
    /// Its name.
    pub name: String,
    /// Where it was when the service was saved.
    pub url: String,
    /// The list of its tools as the last check found it: names, descriptions and schemas. With another list nothing
    /// runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tools_sha256: Option<Sha256Digest>,
}

/// Why a server cannot be named or addressed so.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum McpServerError {
    /// Its name.
    #[error("an MCP server's name has 1 to 24 characters from a-z, 0-9 and -")]
    Name,
    /// Its address, and why. What may be a secret is not repeated.
    #[error("the address {0:?} cannot be used: {1}")]
    Url(String, &'static str),
}

/// Whether a server can be called so. A name is a part of a file's name and of the names of tools.
pub fn check_name(name: &str) -> Result<(), McpServerError> {
    if is_short_name(name, MAX_NAME_CHARS) { Ok(()) } else { Err(McpServerError::Name) }
}

/// HTTPS and nothing else, also on this computer. Returned as it is used.
pub fn check_url(text: &str) -> Result<String, McpServerError> {
    let wrong = |why| McpServerError::Url(text.chars().take(200).collect(), why);
    let url = Url::parse(text).map_err(|_| wrong("it is no URL, such as https://tools.example.com/mcp"))?;
    if !url.username().is_empty() || url.password().is_some() {
        // Not repeated: it may be a password.
        return Err(McpServerError::Url("…".to_owned(), "it holds a user name or a password; a key is given apart"));
    }
    if url.query().is_some() || url.fragment().is_some() {
        // Not repeated either: keys are often put there.
        let why = "it has a query or a fragment; a key is given apart";
        return Err(McpServerError::Url("…".to_owned(), why));
    }
    if url.scheme() != "https" || url.host_str().is_none() {
        return Err(wrong("only MCP servers over https:// can be published; programs (stdio) and plain http cannot"));
    }
    if text.len() > MAX_URL_BYTES { Err(wrong("it is too long")) } else { Ok(url.to_string()) }
}
