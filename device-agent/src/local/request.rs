//! The request types: each names its answer and how the agent computes it.
//!
//! On the private socket, requests and answers are JSON; a page sends them within the process.

use deskgate_program::socket;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::net::UnixListener;
use tokio_util::sync::CancellationToken;

use super::AgentRequest;
use super::handler::RequestHandler;
use super::reply::{AgentReply, ErrorReply, Requester};

/// A request, the type of its answer, and how the agent computes it.
pub trait TypedRequest: Serialize + Into<AgentRequest> + Send {
    /// The answer of a request that succeeds.
    type Response: Serialize + DeserializeOwned;

    /// Computes the answer, inside the agent.
    fn answer(
        self,
        handler: &RequestHandler,
        asker: Requester,
    ) -> impl Future<Output = Result<Self::Response, ErrorReply>> + Send;
}

/// Builds [`AgentRequest`] from the request types: each type once, with its purpose.
macro_rules! requests {
    ($($(#[$doc:meta])* $name:ident;)*) => {
        /// Every request.
        #[derive(Clone, Debug, Serialize, Deserialize)]
        #[serde(tag = "ask", rename_all = "snake_case")]
        pub enum AgentRequest {
            $($(#[$doc])* $name($name),)*
            /// One of the gateway's own requests, passed on.
            Manage {
                /// The request.
                request: ManagementRequest,
            },
        }

        impl AgentRequest {
            /// The answer as the private socket sends it.
            pub(super) async fn answer(self, handler: &RequestHandler, asker: Requester) -> Result<Value, ErrorReply> {
                match self {
                    $(Self::$name(ask) => to_json(ask.answer(handler, asker).await?),)*
                    Self::Manage { request } => handler.pass_on(request, asker).await,
                }
            }
        }

        $(
            impl From<$name> for AgentRequest {
                fn from(request: $name) -> Self {
                    Self::$name(request)
                }
            }
        )*
    };
}
pub(super) use requests;

/// Answers requests until `stop`.
pub async fn serve(listener: UnixListener, handler: RequestHandler, stop: CancellationToken) {
    socket::serve(listener, false, stop, move |request: AgentRequest, peer| {
        let handler = handler.clone();
        async move {
            handler.note_person();
            match request.answer(&handler, Requester::Socket(peer)).await {
                Ok(value) => AgentReply::Ok(value),
                Err(no) => AgentReply::No(no),
            }
        }
    })
    .await;
}

impl RequestHandler {
    /// Answers a page, as the private socket answers the command line.
    ///
    /// # Errors
    /// The request failed.
    pub async fn request<A: TypedRequest>(&self, ask: A) -> Result<A::Response, ErrorReply> {
        self.note_person();
        // Boxed: otherwise every page's future would contain the largest answer's.
        Box::pin(ask.answer(self, Requester::Page)).await
    }
}
