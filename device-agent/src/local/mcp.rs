//! Requests about MCP servers: their addresses, their sign-ins, their tools, and the pinned lists.

use std::time::Duration;

use deskgate_assistant::mcp::connections::{
    ConnectionError, Connections, McpServerChange, McpServerConfig as ConfiguredServer, McpServerConfig,
};
use deskgate_assistant::mcp::sign_in::{McpSignInPrompt, McpSignInStatus, McpSignOut};
use deskgate_protocol::canonical::Sha256Digest;
use serde::{Deserialize, Serialize};

use super::error_reply::failed;
use super::handler::{RequestHandler, key_change};
use super::reply::{ErrorReply, Requester};
use super::request::TypedRequest;
use super::{KeyPlace, NewKey};
use crate::services::tool_pins::{self, ServerView};

/// Lists MCP servers.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct ListMcpServers {}

impl TypedRequest for ListMcpServers {
    type Response = Vec<ConfiguredServer>;

    async fn answer(self, handler: &RequestHandler, _: Requester) -> Result<Vec<ConfiguredServer>, ErrorReply> {
        handler.with_servers(Connections::list).await
    }
}

/// Adds or changes an MCP server.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SetMcpServer {
    /// The server's name in services.
    pub name: String,
    /// The address; absent keeps it.
    pub url: Option<String>,
    /// The header for a new key; absent is `Authorization` with the prefix `Bearer`.
    pub header: Option<String>,
    /// What happens to its key.
    pub key: NewKey,
    /// Where its key is kept; absent leaves it where it is, and keeps a first one at the preferred place.
    #[serde(default)]
    pub key_place: Option<KeyPlace>,
}

/// A server after a change.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ChangedMcpServer {
    /// The server.
    #[serde(flatten)]
    pub server: ConfiguredServer,
    /// What became of its sign-in, if the change ended one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sign_out: Option<McpSignOut>,
}

impl TypedRequest for SetMcpServer {
    type Response = ChangedMcpServer;

    async fn answer(self, handler: &RequestHandler, _: Requester) -> Result<ChangedMcpServer, ErrorReply> {
        handler.set_server(self).await
    }
}

/// Removes an MCP server.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RemoveMcpServer {
    /// The server's name.
    pub name: String,
}

/// A server that is gone.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RemovedMcpServer {
    /// The server's name.
    pub name: String,
    /// What became of its sign-in, if there was one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sign_out: Option<McpSignOut>,
}

impl TypedRequest for RemoveMcpServer {
    type Response = RemovedMcpServer;

    async fn answer(self, handler: &RequestHandler, _: Requester) -> Result<RemovedMcpServer, ErrorReply> {
        handler.remove_server(self).await
    }
}

/// Begins a sign-in for an MCP server.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SignInMcpServer {
    /// The server's name.
    pub name: String,
    /// This program's client identifier at the authorization server; absent registers it there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_id: Option<String>,
}

impl TypedRequest for SignInMcpServer {
    type Response = McpSignInPrompt;

    async fn answer(self, handler: &RequestHandler, _: Requester) -> Result<McpSignInPrompt, ErrorReply> {
        Ok(handler.mcp_servers.sign_ins.begin(&self.name, self.client_id).await?)
    }
}

/// Gets the status of an MCP server's sign-in.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct GetMcpSignIn {
    /// The server's name.
    pub name: String,
}

impl TypedRequest for GetMcpSignIn {
    type Response = McpSignInStatus;

    async fn answer(self, handler: &RequestHandler, _: Requester) -> Result<McpSignInStatus, ErrorReply> {
        Ok(handler.mcp_servers.sign_ins.status(&self.name).await?)
    }
}

/// Cancels an MCP server's waiting sign-in.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct CancelMcpSignIn {
    /// The server's name.
    pub name: String,
}

impl TypedRequest for CancelMcpSignIn {
    type Response = ();

    async fn answer(self, handler: &RequestHandler, _: Requester) -> Result<(), ErrorReply> {
        handler.mcp_servers.sign_ins.cancel(&self.name);
        Ok(())
    }
}

/// Signs out of an MCP server.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SignOutMcpServer {
    /// The server's name.
    pub name: String,
}

impl TypedRequest for SignOutMcpServer {
    type Response = McpSignOut;

    async fn answer(self, handler: &RequestHandler, _: Requester) -> Result<McpSignOut, ErrorReply> {
        let not_told = handler.mcp_servers.sign_ins.sign_out(&self.name).await?;
        Ok(McpSignOut { name: self.name, not_told })
    }
}

/// Gets the servers' state, without a connection to them.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct ReviewMcpServers {}

impl TypedRequest for ReviewMcpServers {
    type Response = Vec<ServerView>;

    async fn answer(self, handler: &RequestHandler, _: Requester) -> Result<Vec<ServerView>, ErrorReply> {
        handler.review_servers().await
    }
}

/// Gets a server's current tools.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct LookAtMcpServer {
    /// The server's name.
    pub name: String,
}

impl TypedRequest for LookAtMcpServer {
    type Response = ServerView;

    async fn answer(self, handler: &RequestHandler, _: Requester) -> Result<ServerView, ErrorReply> {
        handler.look_at_server(self).await
    }
}

/// Accepts a server's newest list, in place of the lists that drafts were pinned to.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct AcceptMcpTools {
    /// The server's name.
    pub name: String,
    /// The list that was reviewed. Another one is refused.
    pub tools_sha256: Sha256Digest,
}

impl TypedRequest for AcceptMcpTools {
    type Response = ServerView;

    async fn answer(self, handler: &RequestHandler, _: Requester) -> Result<ServerView, ErrorReply> {
        handler.accept_tools(self).await
    }
}

impl RequestHandler {
    pub(super) async fn set_server(&self, ask: SetMcpServer) -> Result<ChangedMcpServer, ErrorReply> {
        let SetMcpServer { name, url, header, key, key_place } = ask;
        let key = key_change(&key).map_err(ConnectionError::from)?;
        let change = McpServerChange { url, header, key, key_place };
        let changed = self.mcp_servers.sign_ins.set(&name, change).await;
        self.ask_keyring(Duration::ZERO).await;
        let (server, sign_out) = changed?;
        Ok(ChangedMcpServer { server, sign_out })
    }

    pub(super) async fn remove_server(&self, ask: RemoveMcpServer) -> Result<RemovedMcpServer, ErrorReply> {
        let (sign_ins, services) = (self.mcp_servers.sign_ins.clone(), self.store.services());
        // To the end, also when nobody waits for the authorization server any longer.
        let remove = async move {
            let sign_out = sign_ins.remove(&ask.name).await?;
            services.forget_tools(&ask.name).await?;
            Ok::<_, ErrorReply>(RemovedMcpServer { name: ask.name, sign_out })
        };
        tokio::spawn(remove).await.map_err(|error| failed(error.to_string()))?
    }

    pub(super) async fn review_servers(&self) -> Result<Vec<ServerView>, ErrorReply> {
        let servers = self.with_servers(Connections::list).await?;
        Ok(tool_pins::review(&self.store.services(), servers).await?)
    }

    pub(super) async fn look_at_server(&self, ask: LookAtMcpServer) -> Result<ServerView, ErrorReply> {
        let server = self.server(ask.name).await?;
        Ok(tool_pins::look(&self.store.services(), &self.mcp_servers, server).await?)
    }

    pub(super) async fn accept_tools(&self, ask: AcceptMcpTools) -> Result<ServerView, ErrorReply> {
        let (server, store) = (self.server(ask.name).await?, self.store.services());
        tool_pins::accept(&store, &server, ask.tools_sha256).await?;
        let mut views = tool_pins::review(&store, vec![server]).await?;
        views.pop().ok_or_else(|| failed("the agent lost a server while it looked at it".to_owned()))
    }

    async fn server(&self, name: String) -> Result<McpServerConfig, ErrorReply> {
        let find = move |servers: &Connections| {
            let found = servers.list()?.into_iter().find(|server| server.name == name);
            found.ok_or(ConnectionError::Unknown(name))
        };
        self.with_servers(find).await
    }

    /// Server settings are files, and files may block.
    pub(super) async fn with_servers<R: Send + 'static>(
        &self,
        work: impl FnOnce(&Connections) -> Result<R, ConnectionError> + Send + 'static,
    ) -> Result<R, ErrorReply> {
        let connections = self.mcp_servers.connections.clone();
        let worked = tokio::task::spawn_blocking(move || work(&connections)).await;
        worked
            .map_err(|_| failed("the agent failed while it handled its MCP servers".to_owned()))?
            .map_err(ErrorReply::from)
    }
}
