//! Opening a session in the era that its server belongs to.
//!
//! From revision 2026-07-28 on there is no handshake: `server/discover` asks for the versions, and each request names its
//! own. Servers of before are asked with `initialize`. A server's era shows in its answer to the discovery; what is no
//! sign of the newer one counts as the older, as the specification has it. The handshake then goes over a transport of
//! its own: an answer that is still under way to the discovery must not be taken for one to the handshake.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use reqwest::Client;
use reqwest::header::{HeaderName, HeaderValue};
use rmcp::model::{ClientCapabilities, ClientConfig, Implementation, ProtocolVersion};
use rmcp::service::{
    ClientInitializeError, ClientLifecycleMode, ClientServiceExt, RoleClient, RunningService, ServiceExt,
};
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::transport::common::client_side_sse::NeverRetry;
use rmcp::transport::streamable_http_client::StreamableHttpClientTransportConfig;
use tokio::time::timeout;

use super::connections::ServerConnection;
use super::error::McpServerError;
use super::exchange::CheckedClient;
use super::session::SessionSecrets;
use super::sign_in::SessionToken;

/// Tells a gateway whose service is asked how many assistants stand before it, so that none ask each other in a circle.
const DEPTH_HEADER: HeaderName = HeaderName::from_static("deskgate-depth");
/// The version that is asked for by discovery.
const DISCOVERED_VERSION: ProtocolVersion = ProtocolVersion::V_2026_07_28;
/// The version that a handshake announces.
const ANNOUNCED_VERSION: ProtocolVersion = ProtocolVersion::V_2025_11_25;
/// The versions that a server may answer a handshake with.
const HANDSHAKE_VERSIONS: [ProtocolVersion; 4] = [
    ProtocolVersion::V_2024_11_05,
    ProtocolVersion::V_2025_03_26,
    ProtocolVersion::V_2025_06_18,
    ProtocolVersion::V_2025_11_25,
];
/// The size limit of one message of a server, in bytes: more than any result that is passed on.
pub(super) const MAX_SERVER_MESSAGE_BYTES: usize = 4 * 1024 * 1024;

/// A session as the SDK runs it.
pub(super) type RunningSession = RunningService<RoleClient, ClientConfig>;

/// The addresses at which servers of the older era were met, for as long as the agent runs.
#[derive(Debug, Default)]
pub(super) struct OlderServers(Mutex<BTreeSet<String>>);

impl OlderServers {
    fn contains(&self, url: &str) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).contains(url)
    }

    fn remember(&self, url: &str) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(url.to_owned());
    }

    fn forget(&self, url: &str) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(url);
    }
}

/// What it takes to open a session with one server.
pub(super) struct Opening<'a> {
    pub(super) client: &'a Client,
    pub(super) connection: &'a ServerConnection,
    /// The token that requests carry, if the owner has signed in.
    pub(super) token: Option<Arc<SessionToken>>,
    pub(super) older: &'a OlderServers,
    /// How many assistants stand before the run that it is for.
    pub(super) depth: Option<u8>,
    /// The timeout for the discovery, without the time for a token.
    pub(super) discovery: Duration,
}

impl Opening<'_> {
    /// Opens it. A server that was met as one of the older era is asked for its era again only when it answers otherwise.
    pub(super) async fn open(&self) -> Result<RunningSession, McpServerError> {
        let url = self.connection.url.as_str();
        if self.older.contains(url) {
            match self.shake_hands().await {
                Err(error) if error.is_of_no_era() || error.is_of_newer_era() => self.older.forget(url),
                opened => return opened,
            }
        }
        if let Some(session) = self.discover().await? {
            return Ok(session);
        }
        let session = self.shake_hands().await?;
        self.older.remember(url);
        Ok(session)
    }

    /// The secrets of the session.
    pub(super) fn secrets(&self) -> SessionSecrets {
        let key = self.connection.header.as_ref().map(|(_, value)| value.clone());
        SessionSecrets { key, token: self.token.clone() }
    }

    /// A session of the newer era; `None` when the server shows no sign of it.
    async fn discover(&self) -> Result<Option<RunningSession>, McpServerError> {
        if let Some(token) = &self.token {
            token.get().await.map_err(|error| McpServerError::NoToken(error.to_string()))?;
        }
        let lifecycle = ClientLifecycleMode::Discover { preferred_versions: vec![DISCOVERED_VERSION] };
        let opening = announcing(DISCOVERED_VERSION).serve_with_lifecycle(self.transport(), lifecycle);
        match self.in_time(Box::pin(opening)).await {
            Some(Ok(session)) => Ok(Some(session)),
            Some(Err(error)) if offers_handshake(&error) => Ok(None),
            Some(Err(error)) => {
                let error = McpServerError::from(error);
                if error.is_of_no_era() { Ok(None) } else { Err(error) }
            }
            None => Ok(None),
        }
    }

    /// What comes of a discovery, if it comes in time. A time in which a request waited for another token, because the
    /// server refused the one it had, says nothing of the server's era: it begins anew.
    async fn in_time<T>(&self, mut discovery: impl Future<Output = T> + Unpin) -> Option<T> {
        let waits = || self.token.as_ref().map_or(0, |token| token.waits());
        loop {
            let before = waits();
            match timeout(self.discovery, &mut discovery).await {
                Ok(done) => return Some(done),
                Err(_) if waits() == before && before.is_multiple_of(2) => return None,
                Err(_) => {}
            }
        }
    }

    /// A session of the older era.
    async fn shake_hands(&self) -> Result<RunningSession, McpServerError> {
        let session = announcing(ANNOUNCED_VERSION).serve(self.transport()).await?;
        let version = session.peer_info().map(|server| server.protocol_version.clone());
        match version.ok_or(McpServerError::Senseless)? {
            version if HANDSHAKE_VERSIONS.contains(&version) => Ok(session),
            version => Err(McpServerError::of_versions(&[version])),
        }
    }

    fn transport(&self) -> StreamableHttpClientTransport<CheckedClient> {
        let own = self.depth.map(|depth| (DEPTH_HEADER, HeaderValue::from(u16::from(depth) + 1)));
        let mut config = StreamableHttpClientTransportConfig::with_uri(self.connection.url.as_str())
            .max_sse_event_size(MAX_SERVER_MESSAGE_BYTES)
            .max_json_response_size(MAX_SERVER_MESSAGE_BYTES)
            .custom_headers(self.connection.header.clone().into_iter().chain(own).collect())
            // It would send a call a second time.
            .reinit_on_expired_session(false);
        config.retry_config = Arc::new(NeverRetry::default());
        let client = CheckedClient { client: self.client.clone(), token: self.token.clone() };
        StreamableHttpClientTransport::with_client(client, config)
    }
}

fn announcing(version: ProtocolVersion) -> ClientConfig {
    let this = Implementation::new("deskgate", env!("CARGO_PKG_VERSION"));
    ClientConfig::new(ClientCapabilities::default(), this).with_protocol_version(version)
}

/// Whether a server refused the discovered version and speaks one that has a handshake, or does not say which it speaks.
fn offers_handshake(error: &ClientInitializeError) -> bool {
    match error {
        ClientInitializeError::NoCompatibleProtocolVersion { server_supported: offered, .. } => {
            offered.is_empty() || offered.iter().any(|version| HANDSHAKE_VERSIONS.contains(version))
        }
        _ => false,
    }
}
