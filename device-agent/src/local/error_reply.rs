//! Conversion of the agent's errors into replies for the command line.

use deskgate_assistant::mcp::connections::ConnectionError;
use deskgate_assistant::mcp::sign_in::SignInError as McpSignInError;
use deskgate_assistant::providers::ProviderError;
use deskgate_protocol::control::RefusedCode;
use deskgate_protocol::management::ManagementErrorCode;
use deskgate_secrets::SecretError;

use super::reply::{ErrorReply, ErrorReplyCode};
use crate::account::AccountError as SignInError;
use crate::link::LinkError;
use crate::services::{CallError, Error as ServiceError};

pub(super) fn invalid(message: String) -> ErrorReply {
    ErrorReply { code: ErrorReplyCode::Invalid, message }
}

pub(super) fn not_found(message: String) -> ErrorReply {
    ErrorReply { code: ErrorReplyCode::NotFound, message }
}

pub(super) fn refused(message: String) -> ErrorReply {
    ErrorReply { code: ErrorReplyCode::Refused, message }
}

pub(super) fn failed(message: String) -> ErrorReply {
    ErrorReply { code: ErrorReplyCode::Failed, message }
}

impl From<deskgate_store::Error> for ErrorReply {
    fn from(error: deskgate_store::Error) -> Self {
        failed(error.to_string())
    }
}

impl From<ServiceError> for ErrorReply {
    fn from(error: ServiceError) -> Self {
        let message = error.to_string();
        match error {
            ServiceError::Invalid(_) => invalid(message),
            ServiceError::NotFound(_) => Self { code: ErrorReplyCode::NotFound, message },
            ServiceError::NotChecked(_)
            | ServiceError::CheckFailed { .. }
            | ServiceError::Edited(_)
            | ServiceError::TrialUnderWay(_)
            | ServiceError::NotPublished(_)
            | ServiceError::NotActive { .. }
            | ServiceError::OtherTools(_) => refused(message),
            ServiceError::Gateway(error) => error.into(),
            ServiceError::Store(error) => error.into(),
        }
    }
}

impl From<ConnectionError> for ErrorReply {
    fn from(error: ConnectionError) -> Self {
        let message = error.to_string();
        match error {
            ConnectionError::Unknown(_) => Self { code: ErrorReplyCode::NotFound, message },
            ConnectionError::Secret(SecretError::Io { .. }) => failed(message),
            ConnectionError::Damaged(_)
            | ConnectionError::Secret(SecretError::Loose { .. } | SecretError::Keyring(_)) => refused(message),
            _ => invalid(message),
        }
    }
}

impl From<McpSignInError> for ErrorReply {
    fn from(error: McpSignInError) -> Self {
        let message = error.to_string();
        match error {
            McpSignInError::Connection(error) => error.into(),
            McpSignInError::ClientId => invalid(message),
            McpSignInError::Away(_) => Self { code: ErrorReplyCode::CannotReach, message },
            McpSignInError::NotSignedIn(_) | McpSignInError::Over { .. } => {
                Self { code: ErrorReplyCode::NotAuthorised, message }
            }
            McpSignInError::Broken => failed(message),
            _ => refused(message),
        }
    }
}

impl From<ProviderError> for ErrorReply {
    fn from(error: ProviderError) -> Self {
        let message = error.to_string();
        match error {
            ProviderError::Unknown(_) => Self { code: ErrorReplyCode::NotFound, message },
            ProviderError::Secret(SecretError::Io { .. }) => failed(message),
            ProviderError::Damaged(_) | ProviderError::Secret(SecretError::Loose { .. } | SecretError::Keyring(_)) => {
                refused(message)
            }
            _ => invalid(message),
        }
    }
}

impl From<SignInError> for ErrorReply {
    fn from(error: SignInError) -> Self {
        let code = match &error {
            SignInError::SignedOut(_) | SignInError::Refused { .. } | SignInError::NotSignedIn(_) => {
                ErrorReplyCode::NotAuthorised
            }
            SignInError::Away { .. } => ErrorReplyCode::CannotReach,
            SignInError::NotHosted(_) => ErrorReplyCode::Refused,
            SignInError::Kept(_) => ErrorReplyCode::Failed,
        };
        Self { code, message: error.to_string() }
    }
}

impl From<CallError> for ErrorReply {
    fn from(error: CallError) -> Self {
        let message = error.to_string();
        let code = match &error {
            CallError::NotConnected | CallError::LineLost | CallError::TimedOut { .. } => ErrorReplyCode::CannotReach,
            CallError::Busy | CallError::Stopped => ErrorReplyCode::Refused,
            CallError::Unreadable(_) => ErrorReplyCode::Failed,
            CallError::Refused(no) => match no.code {
                ManagementErrorCode::Invalid => ErrorReplyCode::Invalid,
                ManagementErrorCode::NotFound => ErrorReplyCode::NotFound,
                ManagementErrorCode::Conflict
                | ManagementErrorCode::AdministratorOnly
                | ManagementErrorCode::QuotaReached => ErrorReplyCode::Refused,
                ManagementErrorCode::Unavailable => ErrorReplyCode::CannotReach,
            },
        };
        Self { code, message }
    }
}

impl From<LinkError> for ErrorReply {
    fn from(error: LinkError) -> Self {
        let code = match &error {
            LinkError::Refused(refused) => match refused.code {
                RefusedCode::VersionMismatch => ErrorReplyCode::VersionMismatch,
                RefusedCode::Unavailable => ErrorReplyCode::CannotReach,
                _ => ErrorReplyCode::NotAuthorised,
            },
            error if error.is_blocked() => ErrorReplyCode::NotAuthorised,
            _ => ErrorReplyCode::CannotReach,
        };
        Self { code, message: error.to_string() }
    }
}
