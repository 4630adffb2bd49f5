//! Errors of MCP servers, in the agent's own words: a server's text may hold a key or a prompt. An error of a call
//! states first whether the call may have happened.

use std::borrow::Cow;

use deskgate_definition::tool::ToolOutput;
use rmcp::model::{ErrorCode, ErrorData, ProtocolVersion};
use rmcp::service::{ClientInitializeError, ServiceError};
use rmcp::transport::DynamicTransportError;
use rmcp::transport::streamable_http_client::StreamableHttpError;

use super::connections::ConnectionError;
use super::exchange::AnswerFault;
use super::listing::ListError;
use super::opening::MAX_SERVER_MESSAGE_BYTES;
use super::sign_in::SignInError;

/// The size limit of a server's own words for refusing a call, in bytes.
const MAX_REFUSAL_BYTES: usize = 2000;
/// At most this many of the versions that a server speaks are named.
const MAX_VERSIONS_SHOWN: usize = 5;
/// The longest version that is named, in characters.
const MAX_VERSION_CHARS: usize = 20;

/// Why a server cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum McpServerError {
    /// Its configuration is missing or not valid.
    #[error(transparent)]
    Connection(#[from] ConnectionError),
    /// Its list of tools is not usable.
    #[error(transparent)]
    List(#[from] ListError),
    /// The server took too long.
    #[error("it did not answer in time")]
    Slow,
    /// No connection came about.
    #[error("it cannot be reached; see that its address is right and that the server runs")]
    Unreachable,
    /// Its certificate is not valid for its address, or nobody whom this computer trusts vouches for it.
    #[error(
        "its certificate is not trusted on this computer; for a server of your own, add the authority of its certificate to \
         those that this computer trusts, otherwise ask whoever runs it"
    )]
    Distrusted,
    /// The server refused the key, or wants one.
    #[error("it refused the key; give it a new one: deskgate mcp set, or sign in: deskgate mcp sign-in")]
    Auth,
    /// There is no token for it.
    #[error("{0}")]
    NoToken(String),
    /// The server answered with an error status.
    #[error("it answered with HTTP {0}")]
    Status(u16),
    /// It speaks other versions of the protocol.
    #[error(
        "it speaks version {0} of the protocol, and this agent speaks 2026-07-28, 2025-11-25 and the three before; update \
         the older of the two"
    )]
    Version(String),
    /// It demands something of its clients that this one does not have.
    #[error("it demands an ability of its clients that this agent does not have")]
    Demanding,
    /// It got other headers than the request's body says.
    #[error("it did not get the request's headers as they were sent; see what a proxy in between does with them")]
    Headers,
    /// What came as an answer is none to what was asked.
    #[error("{}; tell whoever runs it", .0.words())]
    Answer(AnswerFault),
    /// One of its messages is too large.
    #[error("one of its answers is larger than {MAX_SERVER_MESSAGE_BYTES} bytes")]
    TooLarge,
    /// The connection broke, or it is no MCP server.
    #[error("it does not answer as an MCP server over streamable HTTP does")]
    Senseless,
    /// A fault in this program.
    #[error("the agent failed while it looked for it")]
    Broken,
}

/// Why a call has no result.
#[derive(Debug)]
pub(super) enum McpCallError {
    /// The call was certainly not carried out.
    NotDone(Cow<'static, str>),
    /// The server refused, in its own words.
    Refused(String),
    /// It is unknown whether the call was carried out.
    Unknown(&'static str),
}

/// What a transport failure means, before the step under way is considered.
enum TransportFailure {
    /// The error of a sign-in that is over, in the owner's words.
    SignIn(String),
    Unreachable,
    Distrusted,
    TooLarge,
    Auth,
    Status(u16),
    SessionOver,
    Other,
}

impl McpServerError {
    /// None of the versions that a server names is spoken here.
    pub(super) fn of_versions(versions: &[ProtocolVersion]) -> Self {
        let shown = |version: &ProtocolVersion| -> String {
            version.as_str().chars().filter(|c| c.is_ascii_graphic()).take(MAX_VERSION_CHARS).collect()
        };
        let shown: Vec<_> = versions.iter().take(MAX_VERSIONS_SHOWN).map(shown).collect();
        Self::Version(shown.join(", "))
    }

    /// Whether only servers of the newer era answer so.
    pub(super) fn is_of_newer_era(&self) -> bool {
        matches!(self, Self::Headers | Self::Demanding | Self::Version(_))
    }

    /// Whether a server of either era may answer so when it is asked in the way of the other one.
    pub(super) fn is_of_no_era(&self) -> bool {
        match self {
            Self::Status(status) => !matches!(status, 300..400 | 429),
            Self::Senseless | Self::Answer(_) => true,
            _ => false,
        }
    }

    /// A server's refusal; its own words stay unread.
    fn of_refusal(error: &ErrorData) -> Self {
        match AnswerFault::of(error) {
            Some(fault) => Self::Answer(fault),
            None if error.code == ErrorCode::MISSING_REQUIRED_CLIENT_CAPABILITY => Self::Demanding,
            None if error.code == ErrorCode::HEADER_MISMATCH => Self::Headers,
            None => Self::Senseless,
        }
    }
}

impl From<ClientInitializeError> for McpServerError {
    fn from(error: ClientInitializeError) -> Self {
        match error {
            ClientInitializeError::TransportError { error, .. } => TransportFailure::of(&error).into(),
            ClientInitializeError::JsonRpcError(error) => Self::of_refusal(&error),
            ClientInitializeError::NoCompatibleProtocolVersion { server_supported, .. } => {
                Self::of_versions(&server_supported)
            }
            _ => Self::Senseless,
        }
    }
}

impl From<ServiceError> for McpServerError {
    fn from(error: ServiceError) -> Self {
        match error {
            ServiceError::TransportSend(error) => TransportFailure::of(&error).into(),
            ServiceError::McpError(error) => Self::of_refusal(&error),
            _ => Self::Senseless,
        }
    }
}

impl From<TransportFailure> for McpServerError {
    fn from(means: TransportFailure) -> Self {
        match means {
            TransportFailure::SignIn(words) => Self::NoToken(words),
            TransportFailure::Unreachable => Self::Unreachable,
            TransportFailure::Distrusted => Self::Distrusted,
            TransportFailure::TooLarge => Self::TooLarge,
            TransportFailure::Auth => Self::Auth,
            TransportFailure::Status(status) => Self::Status(status),
            TransportFailure::SessionOver | TransportFailure::Other => Self::Senseless,
        }
    }
}

impl TransportFailure {
    fn of(error: &DynamicTransportError) -> Self {
        let Some(error) = error.error.downcast_ref::<StreamableHttpError<reqwest::Error>>() else { return Self::Other };
        match error {
            StreamableHttpError::Io(error) => words_of_sign_in(error).map_or(Self::Other, Self::SignIn),
            StreamableHttpError::Client(error) if deskgate_outbound::is_distrusted(error) => Self::Distrusted,
            StreamableHttpError::Client(error) if error.is_connect() => Self::Unreachable,
            StreamableHttpError::Client(error) => {
                error.status().map_or(Self::Other, |status| Self::Status(status.as_u16()))
            }
            StreamableHttpError::AuthRequired(_) | StreamableHttpError::InsufficientScope(_) => Self::Auth,
            StreamableHttpError::HttpStatus(error) => Self::Status(error.status),
            StreamableHttpError::SessionExpired => Self::SessionOver,
            StreamableHttpError::ResponseBodyTooLarge { .. } => Self::TooLarge,
            // The SDK gives the status only in this text; the rest is the server's and stays unread.
            StreamableHttpError::UnexpectedServerResponse(text) => {
                let status =
                    text.strip_prefix("HTTP ").and_then(|rest| rest.get(..3)).and_then(|code| code.parse().ok());
                match status {
                    Some(401 | 403) => Self::Auth,
                    Some(status) => Self::Status(status),
                    None => Self::Other,
                }
            }
            _ => Self::Other,
        }
    }
}

/// The words of a sign-in's error, which has come through the SDK as one of I/O.
fn words_of_sign_in(error: &std::io::Error) -> Option<String> {
    error.get_ref()?.downcast_ref::<SignInError>().map(ToString::to_string)
}

impl McpCallError {
    pub(super) fn of(error: ServiceError) -> Self {
        match error {
            ServiceError::McpError(error) => match AnswerFault::of(&error) {
                Some(fault) => Self::Unknown(fault.words()),
                None => Self::Refused(error.message.chars().take(MAX_REFUSAL_BYTES).collect()),
            },
            ServiceError::TransportSend(error) => match TransportFailure::of(&error) {
                TransportFailure::SignIn(words) => Self::NotDone(words.into()),
                TransportFailure::Unreachable => Self::NotDone("it could not be reached".into()),
                TransportFailure::Distrusted => Self::NotDone("its certificate is not trusted on this computer".into()),
                TransportFailure::TooLarge => Self::Unknown("its answer was too large to be read"),
                TransportFailure::Auth => Self::NotDone("it refused the owner's key".into()),
                TransportFailure::SessionOver => {
                    Self::NotDone("it has ended the session, and its tools are gone for this request".into())
                }
                TransportFailure::Status(429) => Self::NotDone("it has too many requests at the moment".into()),
                TransportFailure::Status(300..400) => {
                    Self::NotDone("it pointed to another address, which is not followed".into())
                }
                TransportFailure::Status(400..500) => Self::NotDone("it did not take the request".into()),
                TransportFailure::Status(_) => Self::Unknown("it failed while it worked on it"),
                TransportFailure::Other => Self::Unknown("the connection broke off, or what came back makes no sense"),
            },
            _ => Self::Unknown("the connection broke off"),
        }
    }

    /// The error as a result for the model.
    pub(super) fn into_output(self, server: &str) -> ToolOutput {
        match self {
            Self::NotDone(why) => {
                ToolOutput::error(format!("The MCP server {server} did not carry this call out: {why}."))
            }
            Self::Refused(words) => {
                ToolOutput::error(format!("The MCP server {server} refused this call. It says: {words}"))
            }
            Self::Unknown(why) => ToolOutput::unknown(format!(
                "Nobody knows whether the MCP server {server} has carried this call out: {why}. It may have happened, in part \
                 or as a whole. It was not sent again. Find out what was done before you call it once more, and say in your \
                 answer that this is not certain."
            )),
        }
    }
}
