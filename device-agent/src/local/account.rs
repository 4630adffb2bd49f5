//! Requests about the account of a hosted gateway: status, signing in and out.

use serde::{Deserialize, Serialize};

use super::error_reply::invalid;
use super::handler::RequestHandler;
use super::reply::{ErrorReply, Requester};
use super::request::TypedRequest;
use crate::account::{AccountStatus, GatewayAddress, SignInPrompt};
use crate::settings::{ConnectionSettings, Mode};

/// Gets the status of the account at the hosted draft's gateway, or at the saved one.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct GetAccount {}

impl TypedRequest for GetAccount {
    type Response = AccountView;

    async fn answer(self, handler: &RequestHandler, _: Requester) -> Result<AccountView, ErrorReply> {
        handler.account().await
    }
}

/// Begins a sign-in at that gateway.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct SignIn {}

impl TypedRequest for SignIn {
    type Response = SignInPrompt;

    async fn answer(self, handler: &RequestHandler, _: Requester) -> Result<SignInPrompt, ErrorReply> {
        handler.sign_in().await
    }
}

/// Cancels a waiting sign-in.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct CancelSignIn {}

impl TypedRequest for CancelSignIn {
    type Response = AccountView;

    async fn answer(self, handler: &RequestHandler, _: Requester) -> Result<AccountView, ErrorReply> {
        handler.cancel_sign_in().await
    }
}

/// Signs out at that gateway.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct SignOut {}

impl TypedRequest for SignOut {
    type Response = AccountView;

    async fn answer(self, handler: &RequestHandler, _: Requester) -> Result<AccountView, ErrorReply> {
        handler.sign_out().await
    }
}

/// The status of an account.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct AccountView {
    /// The gateway; absent when no usable address is known.
    pub gateway: Option<GatewayAddress>,
    /// The account's status.
    #[serde(flatten)]
    pub standing: AccountStatus,
    /// Why the newest sign-in failed, whatever was before it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sign_in_failed: Option<String>,
    /// Why the issuer could not be notified of the sign-out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_told: Option<String>,
}

impl RequestHandler {
    /// The account's status. Without an address there is no sign-in.
    pub(super) async fn account(&self) -> Result<AccountView, ErrorReply> {
        let connection = self.connection().await?;
        let (gateway, standing, sign_in_failed) = match wanted(&connection) {
            Ok(gateway) => {
                let standing = self.token_manager.standing(&gateway).await?;
                let failed = self.token_manager.last_failure(&gateway);
                (Some(gateway), standing, failed)
            }
            Err(_) => (None, AccountStatus::SignedOut { why: None }, None),
        };
        Ok(AccountView { gateway, standing, sign_in_failed, not_told: None })
    }

    pub(super) async fn sign_in(&self) -> Result<SignInPrompt, ErrorReply> {
        Ok(self.token_manager.sign_in(&wanted(&self.connection().await?)?).await?)
    }

    pub(super) async fn cancel_sign_in(&self) -> Result<AccountView, ErrorReply> {
        self.token_manager.cancel(&wanted(&self.connection().await?)?);
        self.account().await
    }

    pub(super) async fn sign_out(&self) -> Result<AccountView, ErrorReply> {
        let connection = self.connection().await?;
        let gateway = wanted(&connection)?;
        let not_told = self.token_manager.sign_out(&gateway).await?;
        if in_force(&connection).is_some_and(|in_force| in_force == gateway)
            && let Ok(active) = self.active()
        {
            // The connection was opened by a token that was just discarded.
            active.link.redial();
        }
        Ok(AccountView { not_told, ..self.account().await? })
    }
}

/// The gateway that is being edited, or the saved one.
fn wanted(connection: &ConnectionSettings) -> Result<GatewayAddress, ErrorReply> {
    let fields = connection.hosted_draft.as_ref().unwrap_or(&connection.saved.hosted);
    fields.address().map_err(|unusable| invalid(unusable.to_string()))
}

/// The gateway in force, if it takes accounts.
pub(super) fn in_force(connection: &ConnectionSettings) -> Option<GatewayAddress> {
    (connection.mode == Mode::Hosted).then(|| connection.saved.hosted.address().ok()).flatten()
}
