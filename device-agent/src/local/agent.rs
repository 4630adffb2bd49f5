//! Requests about the agent as a whole: its identity, its stop, and the link that opens its pages.

use deskgate_protocol::Timestamp;
use deskgate_protocol::identity::IdentityFile;
use deskgate_protocol::ids::RunId;
use serde::{Deserialize, Serialize};
use tokio::sync::oneshot;

use super::commands::AgentCommand;
use super::error_reply::refused;
use super::handler::RequestHandler;
use super::launch::is_page;
use super::reply::{ErrorReply, ErrorReplyCode, Requester};
use super::request::TypedRequest;
use crate::dispatcher::ActiveRunState;

/// Stops the agent.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Stop {
    /// Whether runs in progress are cut off instead of awaited. They start again with the agent. A run that waits for a
    /// person's decision is always cut off.
    pub now: bool,
}

impl TypedRequest for Stop {
    type Response = Vec<RunId>;

    async fn answer(self, handler: &RequestHandler, _: Requester) -> Result<Vec<RunId>, ErrorReply> {
        handler.stop(self).await
    }
}

/// Asks for a link to the management pages.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct OpenPages {
    /// The path of the page it opens; absent: the overview.
    #[serde(default)]
    pub page: Option<String>,
}

impl TypedRequest for OpenPages {
    type Response = OpenedPages;

    async fn answer(self, handler: &RequestHandler, _: Requester) -> Result<OpenedPages, ErrorReply> {
        handler.open_pages(&self)
    }
}

/// A link to the management pages.
#[derive(Clone, Serialize, Deserialize)]
pub struct OpenedPages {
    /// The link, which signs one browser in.
    pub link: String,
}

impl std::fmt::Debug for OpenedPages {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("OpenedPages { link: … }")
    }
}

/// Asks for the device's identity.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct GetIdentity {}

impl TypedRequest for GetIdentity {
    type Response = IdentityFile;

    async fn answer(self, handler: &RequestHandler, _: Requester) -> Result<IdentityFile, ErrorReply> {
        handler.identity().await
    }
}

impl RequestHandler {
    pub(super) fn open_pages(&self, ask: &OpenPages) -> Result<OpenedPages, ErrorReply> {
        if let Some(page) = ask.page.as_deref().filter(|page| !is_page(page)) {
            let message = format!("{page:?} is no page. Name its path, such as /approvals.");
            return Err(ErrorReply { code: ErrorReplyCode::Invalid, message });
        }
        let link = self.launch.link(ask.page.as_deref());
        let link =
            link.ok_or_else(|| refused("the management pages are not up; the agent's log says why".to_owned()))?;
        Ok(OpenedPages { link })
    }

    async fn identity(&self) -> Result<IdentityFile, ErrorReply> {
        Ok(IdentityFile::sign(self.key.signing_key(), &self.device_name().await?, Timestamp::now()))
    }

    async fn stop(&self, ask: Stop) -> Result<Vec<RunId>, ErrorReply> {
        let runs = self.active().map(|active| active.dispatcher.status().runs).unwrap_or_default();
        let asking =
            runs.iter().filter(|run| run.standing == ActiveRunState::AwaitingApproval).map(|run| run.run_id).collect();
        let (done, ended) = oneshot::channel();
        // An agent that accepts no more commands, or ends without an answer, has ended its work.
        if self.commands.send(AgentCommand::Stop { now: ask.now, done }).await.is_ok() {
            let _ = ended.await;
        }
        Ok(asking)
    }
}
