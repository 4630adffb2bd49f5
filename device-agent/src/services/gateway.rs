//! The interface of services to the gateway: one typed call.

use deskgate_protocol::management::{ManagementCall, ManagementError};

/// Sends requests to the gateway over the control channel.
pub trait GatewayClient: Send + Sync {
    /// Sends a request and waits for its reply.
    fn call<C: ManagementCall + Send>(&self, request: C) -> impl Future<Output = Result<C::Reply, CallError>> + Send;
}

/// Why a call has no reply.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    /// There is no session; no request was sent.
    #[error("not connected to the gateway; look at the connection with: deskgate status")]
    NotConnected,
    /// Too many calls wait already; no request was sent.
    #[error("too many requests to the gateway are under way; try again in a moment")]
    Busy,
    /// The connection was lost before the reply came.
    #[error(
        "the connection to the gateway was lost before it answered; it may have been done: look before you repeat it"
    )]
    LineLost,
    /// The reply did not come in time.
    #[error("the gateway did not answer within {seconds} s; it may have been done: look before you repeat it")]
    TimedOut {
        /// The timeout.
        seconds: u64,
    },
    /// The gateway refused, and why.
    #[error(transparent)]
    Refused(#[from] ManagementError),
    /// The reply has the wrong form for the request.
    #[error("the gateway's answer cannot be read ({0}); compare the versions with: deskgate status")]
    Unreadable(String),
    /// The agent is stopping.
    #[error("the agent is stopping")]
    Stopped,
}
