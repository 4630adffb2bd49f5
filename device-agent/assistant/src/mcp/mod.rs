//! Tools on other servers, over the Model Context Protocol (streamable HTTP) and HTTPS.
//!
//! | file | part |
//! |---|---|
//! | `connections` | the configured servers and their keys |
//! | `listing` | a server's list of tools: bounded, named for a model, pinned by its digest |
//! | `opening` | opens a session: by discovery, or by the handshake of older servers |
//! | `exchange` | one request over HTTP and its answer; the SDK's client, with the checks it lacks |
//! | `session` | one session with one server: its tools, and calls of them |
//! | `error` | errors, in words that say whether the call may have happened |
//! | `tool` | one tool of a server, as the executor calls it |
//! | `sign_in` | signing in where a server wants that, and the tokens that requests then carry |
//! | `project` | servers that a project's own files name, which are only shown |
//!
//! Trust: a server's descriptions and results are external content and decide nothing. Every tool counts as one that
//! writes, whatever its annotations hint. The list of tools that the owner published is pinned; with another list no
//! run starts. Calls are never sent twice: a call whose answer was lost may have happened, and the model gets that as
//! its result. The owner's own network stays reachable: a server there is a normal case.

pub mod connections;
mod error;
mod exchange;
mod listing;
mod opening;
pub mod project;
mod session;
pub mod sign_in;
#[cfg(test)]
mod tests;
mod tool;

use std::sync::Arc;
use std::time::Duration;

use deskgate_definition::tool::Tool;
use deskgate_definition::{McpServer, ModelReads};
use deskgate_outbound::Clients;
use futures_util::future::try_join_all;

use connections::{ConnectionError, Connections};
pub use error::McpServerError;
pub use exchange::AnswerFault;
pub use listing::{ListError, ListedTool, Listing};
use opening::{OlderServers, Opening};
use session::McpSession;
use sign_in::SignIns;

/// At most this many servers for each service.
pub const MAX_SERVERS: usize = 8;

/// The connections and clients for MCP servers. Cheap to clone.
#[derive(Clone, Debug)]
pub struct McpServers {
    /// The configured servers.
    pub connections: Connections,
    /// The sign-ins of servers that want one.
    pub sign_ins: SignIns,
    clients: Arc<Clients>,
    older: Arc<OlderServers>,
    patience: McpTimeouts,
}

/// The timeouts for a server.
#[derive(Clone, Copy, Debug)]
struct McpTimeouts {
    /// For opening its session and listing its tools.
    opening: Duration,
    /// For finding out by discovery to which era it belongs; a part of the opening.
    discovery: Duration,
    /// For one call.
    call: Duration,
}

const DEFAULT_TIMEOUTS: McpTimeouts =
    McpTimeouts { opening: Duration::from_secs(30), discovery: Duration::from_secs(5), call: Duration::from_secs(120) };

/// Why a run cannot have the tools of a server.
#[derive(Debug, thiserror::Error)]
pub enum ServerUnavailable {
    /// Its session could not be opened.
    #[error("the MCP server {server}: {error}")]
    Open {
        /// The server's name.
        server: String,
        /// Why it could not be opened.
        error: McpServerError,
    },
    /// Its list of tools is not the pinned one.
    #[error(
        "the MCP server {server} offers other tools than those that were published. See what has changed, and take it \
         over: deskgate mcp accept {server}; then check and publish again"
    )]
    Changed {
        /// The server's name.
        server: String,
    },
}

impl McpServers {
    /// The servers of this device.
    pub fn new(connections: Connections) -> Self {
        Self::with_clients(connections, Clients::new(session::settings))
    }

    fn with_clients(connections: Connections, clients: Clients) -> Self {
        let clients = Arc::new(clients);
        let sign_ins = SignIns::new(connections.clone(), Arc::clone(&clients));
        Self { connections, sign_ins, clients, older: Arc::default(), patience: DEFAULT_TIMEOUTS }
    }

    /// The tools of all servers, for one run, each list checked against its pin. Their results show what the model reads. `depth`: how
    /// many assistants stand before the run; a gateway that is asked by this one learns that there is one more.
    ///
    /// # Errors
    /// A server cannot be opened, or its list is not the pinned one.
    pub async fn open(
        &self,
        servers: &[McpServer],
        reads: ModelReads,
        depth: u8,
    ) -> Result<Vec<Box<dyn Tool>>, ServerUnavailable> {
        let opened = try_join_all(servers.iter().map(|server| self.open_pinned(server, reads, depth))).await?;
        Ok(opened.into_iter().flatten().collect())
    }

    async fn open_pinned(
        &self,
        server: &McpServer,
        reads: ModelReads,
        depth: u8,
    ) -> Result<Vec<Box<dyn Tool>>, ServerUnavailable> {
        let (session, listing) = self
            .open_one(server, Some(depth))
            .await
            .map_err(|error| ServerUnavailable::Open { server: server.name.clone(), error })?;
        if server.tools_sha256 != Some(listing.digest()) {
            return Err(ServerUnavailable::Changed { server: server.name.clone() });
        }
        let session = Arc::new(session);
        let tool = |listed| -> Box<dyn Tool> { Box::new(tool::McpTool::new(Arc::clone(&session), listed, reads)) };
        Ok(listing.into_tools(&server.name).map(tool).collect())
    }

    /// The current tool list of a server. Calls no tool.
    ///
    /// # Errors
    /// [`McpServerError::Connection`]: the server is not configured, has another address now, or its file or key cannot
    /// be read. [`McpServerError::NoToken`]: its sign-in is over, or cannot be renewed now. [`McpServerError::List`]: its
    /// list of tools is not usable. Any other: it cannot be reached, refused the
    /// key, or did not answer in time or as an MCP server does.
    pub async fn look(&self, server: &McpServer) -> Result<Listing, McpServerError> {
        self.open_one(server, None).await.map(|(_, listing)| listing)
    }

    async fn open_one(&self, server: &McpServer, depth: Option<u8>) -> Result<(McpSession, Listing), McpServerError> {
        let (connections, name) = (self.connections.clone(), server.name.clone());
        // Reads a file, which may block.
        let found = tokio::task::spawn_blocking(move || connections.open(&name)).await;
        let connection = found.map_err(|_| McpServerError::Broken)??;
        if connection.url != server.url {
            return Err(ConnectionError::Moved { name: server.name.clone(), saved: connection.url }.into());
        }
        let url = reqwest::Url::parse(&connection.url).map_err(|_| McpServerError::Broken)?;
        let opening = Opening {
            client: self.clients.for_url(&url),
            connection: &connection,
            token: connection.is_signed_in.then(|| Arc::new(self.sign_ins.session(&server.name, &connection.url))),
            older: &self.older,
            depth,
            discovery: self.patience.discovery,
        };
        McpSession::open(&server.name, opening, self.patience).await
    }
}
