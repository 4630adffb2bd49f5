//! An MCP server as a definition names it.

use deskgate_protocol::canonical::Sha256Digest;
use serde::{Deserialize, Serialize};
use url::Url;

use crate::names::is_short_name;

/// At most this many servers for each service.
pub const MAX_MCP_SERVERS: usize = 8;
/// The length limit of a server's name, which is a part of the names of its tools, in characters.
const MAX_NAME_CHARS: usize = 24;
/// The size limit of an address, in bytes.
const MAX_URL_BYTES: usize = 2000;

/// An MCP server, by its name on this device. Its key is kept on the device, never in a definition.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct McpServer {
    /// Its name.
    pub name: String,
    /// Where it was when the service was saved.
    pub url: String,
    /// The digest of its tool list as the last check found it: names, descriptions and schemas. With another list no
    /// run starts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tools_sha256: Option<Sha256Digest>,
}

/// Why a server's name or address is not valid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum McpServerError {
    /// The name is not valid.
    #[error("an MCP server's name has 1 to 24 characters from a-z, 0-9 and -")]
    Name,
    /// The address is not valid, and why. A part that may be a secret is not repeated.
    #[error("the address {0:?} cannot be used: {1}")]
    Url(String, &'static str),
}

/// Checks a server's name, which is a part of a file's name and of the names of tools.
///
/// # Errors
/// The name is not valid.
pub fn check_name(name: &str) -> Result<(), McpServerError> {
    if is_short_name(name, MAX_NAME_CHARS) { Ok(()) } else { Err(McpServerError::Name) }
}

/// Checks that an address is HTTPS, also on this computer, and returns it in the form that is used.
///
/// # Errors
/// The address is not valid.
pub fn check_url(text: &str) -> Result<String, McpServerError> {
    let wrong = |why| McpServerError::Url(text.chars().take(200).collect(), why);
    let url = Url::parse(text).map_err(|_| wrong("it is no URL, such as https://tools.example.com/mcp"))?;
    if !url.username().is_empty() || url.password().is_some() {
        // The address is not repeated: it may hold a password.
        return Err(McpServerError::Url("…".to_owned(), "it holds a user name or a password; a key is given apart"));
    }
    if url.query().is_some() || url.fragment().is_some() {
        // The address is not repeated here either: keys are often put there.
        let why = "it has a query or a fragment; a key is given apart";
        return Err(McpServerError::Url("…".to_owned(), why));
    }
    if url.scheme() != "https" || url.host_str().is_none() {
        return Err(wrong("only MCP servers over https:// can be published; programs (stdio) and plain http cannot"));
    }
    if text.len() > MAX_URL_BYTES { Err(wrong("it is too long")) } else { Ok(url.to_string()) }
}
