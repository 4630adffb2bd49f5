//! What a request is: one type that names its answer and says how the agent finds it.
//!
//! Asked on the private socket it is JSON, and so is what comes back; a page asks it within the process.

use deskgate_program::socket;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::net::UnixListener;
use tokio_util::sync::CancellationToken;

use super::Request;
use super::desk::Desk;
use super::reply::{Asker, No, Reply};

/// A request, the answer that belongs to it, and how the agent comes by it.
pub trait Ask: Serialize + Into<Request> + Send {
    /// What comes back when it works.
    type Answer: Serialize + DeserializeOwned;

    /// Answers, inside the agent.
    fn answer(self, desk: &Desk, asker: Asker) -> impl Future<Output = Result<Self::Answer, No>> + Send;
}

/// Makes [`Request`] of the requests there are: each type once, with what it is for.
macro_rules! requests {
    ($($(#[$doc:meta])* $name:ident;)*) => {
        /// Everything that may be asked.
        #[derive(Clone, Debug, Serialize, Deserialize)]
        #[serde(tag = "ask", rename_all = "snake_case")]
        pub enum Request {
            $($(#[$doc])* $name($name),)*
            /// One of the gateway's own requests, passed on.
            Manage {
                /// The request.
                request: ManagementRequest,
            },
        }

        impl Request {
            /// The answer as the private socket sends it.
            pub(super) async fn answer(self, desk: &Desk, asker: Asker) -> Result<Value, No> {
                match self {
                    $(Self::$name(ask) => to_json(ask.answer(desk, asker).await?),)*
                    Self::Manage { request } => desk.pass_on(request, asker).await,
                }
            }
        }

        $(
            impl From<$name> for Request {
                fn from(request: $name) -> Self {
                    Self::$name(request)
                }
            }
        )*
    };
}
pub(super) use requests;

/// Answers until `stop`.
pub async fn serve(listener: UnixListener, desk: Desk, stop: CancellationToken) {
    socket::serve(listener, false, stop, move |request: Request, peer| {
        let desk = desk.clone();
        async move {
            match request.answer(&desk, Asker::Socket(peer)).await {
                Ok(value) => Reply::Ok(value),
                Err(no) => Reply::No(no),
            }
        }
    })
    .await;
}

impl Desk {
    /// Answers a page, as the private socket answers the command line.
    pub async fn ask<A: Ask>(&self, ask: A) -> Result<A::Answer, No> {
        // Boxed: every page would hold the whole of every answer otherwise.
        Box::pin(ask.answer(self, Asker::Page)).await
    }
}
