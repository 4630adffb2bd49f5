//! Whatever went wrong in the agent, as the answer that the command line gets.

use deskgate_assistant::accounts::AccountError;
use deskgate_assistant::mcp::connections::ConnectionError;
use deskgate_protocol::control::RefusedCode;
use deskgate_protocol::management::ManagementErrorCode;
use deskgate_secrets::SecretError;

use super::reply::{No, NoCode};
use crate::account::AccountError as SignInError;
use crate::link::LinkError;
use crate::services::{CallError, Error as ServiceError};

pub(super) fn invalid(message: String) -> No {
    No { code: NoCode::Invalid, message }
}

pub(super) fn refused(message: String) -> No {
    No { code: NoCode::Refused, message }
}

pub(super) fn failed(message: String) -> No {
    No { code: NoCode::Failed, message }
}

impl From<deskgate_store::Error> for No {
    fn from(error: deskgate_store::Error) -> Self {
        failed(error.to_string())
    }
}

impl From<ServiceError> for No {
    fn from(error: ServiceError) -> Self {
        let message = error.to_string();
        match error {
            ServiceError::Invalid(_) => invalid(message),
            ServiceError::NotFound(_) => Self { code: NoCode::NotFound, message },
            ServiceError::NotChecked(_)
            | ServiceError::CheckFailed { .. }
            | ServiceError::Edited(_)
            | ServiceError::OtherTools(_) => refused(message),
            ServiceError::Gateway(error) => error.into(),
            ServiceError::Store(error) => error.into(),
        }
    }
}

impl From<ConnectionError> for No {
    fn from(error: ConnectionError) -> Self {
        let message = error.to_string();
        match error {
            ConnectionError::Unknown(_) => Self { code: NoCode::NotFound, message },
            ConnectionError::Secret(SecretError::Io { .. }) => failed(message),
            ConnectionError::Damaged(_)
            | ConnectionError::Secret(SecretError::Loose { .. } | SecretError::Keyring(_)) => refused(message),
            _ => invalid(message),
        }
    }
}

impl From<AccountError> for No {
    fn from(error: AccountError) -> Self {
        let message = error.to_string();
        match error {
            AccountError::Unknown(_) => Self { code: NoCode::NotFound, message },
            AccountError::Secret(SecretError::Io { .. }) => failed(message),
            AccountError::Damaged(_) | AccountError::Secret(SecretError::Loose { .. } | SecretError::Keyring(_)) => {
                refused(message)
            }
            _ => invalid(message),
        }
    }
}

impl From<SignInError> for No {
    fn from(error: SignInError) -> Self {
        let code = match &error {
            SignInError::SignedOut(_) | SignInError::Refused { .. } | SignInError::NotSignedIn(_) => {
                NoCode::NotAuthorised
            }
            SignInError::Away { .. } => NoCode::CannotReach,
            SignInError::NotHosted(_) => NoCode::Refused,
            SignInError::Kept(_) => NoCode::Failed,
        };
        Self { code, message: error.to_string() }
    }
}

impl From<CallError> for No {
    fn from(error: CallError) -> Self {
        let message = error.to_string();
        let code = match &error {
            CallError::NotConnected | CallError::LineLost | CallError::TimedOut { .. } => NoCode::CannotReach,
            CallError::Busy | CallError::Stopped => NoCode::Refused,
            CallError::Unreadable(_) => NoCode::Failed,
            CallError::Refused(no) => match no.code {
                ManagementErrorCode::Invalid => NoCode::Invalid,
                ManagementErrorCode::NotFound => NoCode::NotFound,
                ManagementErrorCode::Conflict | ManagementErrorCode::AdministratorOnly => NoCode::Refused,
                ManagementErrorCode::Unavailable => NoCode::CannotReach,
            },
        };
        Self { code, message }
    }
}

impl From<LinkError> for No {
    fn from(error: LinkError) -> Self {
        let code = match &error {
            LinkError::Refused(refused) => match refused.code {
                RefusedCode::VersionMismatch => NoCode::VersionMismatch,
                RefusedCode::Unavailable => NoCode::CannotReach,
                _ => NoCode::NotAuthorised,
            },
            error if error.is_blocked() => NoCode::NotAuthorised,
            _ => NoCode::CannotReach,
        };
        Self { code, message: error.to_string() }
    }
}
