//! Answers about the account of a hosted gateway: who is signed in, signing in and out.

use serde::{Deserialize, Serialize};

use super::desk::Desk;
use super::no::invalid;
use super::reply::{Asker, No};
use super::request::Ask;
use crate::account::{GatewayAddress, Invitation, Standing};
use crate::settings::{Connection, Mode};

/// Asks how it stands with the account of the hosted draft's gateway, or of the saved one.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct GetAccount {}

impl Ask for GetAccount {
    type Answer = AccountView;

    async fn answer(self, desk: &Desk, _: Asker) -> Result<AccountView, No> {
        desk.account().await
    }
}

/// Begins a sign-in at that gateway.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct SignIn {}

impl Ask for SignIn {
    type Answer = Invitation;

    async fn answer(self, desk: &Desk, _: Asker) -> Result<Invitation, No> {
        desk.sign_in().await
    }
}

/// Stops to wait for a sign-in.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct CancelSignIn {}

impl Ask for CancelSignIn {
    type Answer = AccountView;

    async fn answer(self, desk: &Desk, _: Asker) -> Result<AccountView, No> {
        desk.cancel_sign_in().await
    }
}

/// Signs out at that gateway.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct SignOut {}

impl Ask for SignOut {
    type Answer = AccountView;

    async fn answer(self, desk: &Desk, _: Asker) -> Result<AccountView, No> {
        desk.sign_out().await
    }
}

/// How it stands with an account.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct AccountView {
    /// Of which gateway; absent when no usable address is known.
    pub gateway: Option<GatewayAddress>,
    /// How.
    #[serde(flatten)]
    pub standing: Standing,
    /// What did not work when it was ended: the issuer was not told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_told: Option<String>,
}

impl Desk {
    /// How it stands. Without an address nobody can be signed in.
    pub(super) async fn account(&self) -> Result<AccountView, No> {
        let connection = self.connection().await?;
        let (gateway, standing) = match wanted(&connection) {
            Ok(gateway) => {
                let standing = self.keeper.standing(&gateway).await?;
                (Some(gateway), standing)
            }
            Err(_) => (None, Standing::SignedOut { why: None }),
        };
        Ok(AccountView { gateway, standing, not_told: None })
    }

    pub(super) async fn sign_in(&self) -> Result<Invitation, No> {
        Ok(self.keeper.sign_in(&wanted(&self.connection().await?)?).await?)
    }

    pub(super) async fn cancel_sign_in(&self) -> Result<AccountView, No> {
        self.keeper.cancel(&wanted(&self.connection().await?)?);
        self.account().await
    }

    pub(super) async fn sign_out(&self) -> Result<AccountView, No> {
        let connection = self.connection().await?;
        let gateway = wanted(&connection)?;
        let not_told = self.keeper.sign_out(&gateway).await?;
        if in_force(&connection).is_some_and(|in_force| in_force == gateway)
            && let Ok(engine) = self.engine()
        {
            // The line was opened by a token that nobody holds any more.
            engine.link.redial();
        }
        Ok(AccountView { not_told, ..self.account().await? })
    }
}

/// The gateway that is being edited, or the saved one.
fn wanted(connection: &Connection) -> Result<GatewayAddress, No> {
    let fields = connection.hosted_draft.as_ref().unwrap_or(&connection.saved.hosted);
    fields.address().map_err(|unusable| invalid(unusable.to_string()))
}

/// The gateway in force, if it takes accounts.
pub(super) fn in_force(connection: &Connection) -> Option<GatewayAddress> {
    (connection.mode == Mode::Hosted).then(|| connection.saved.hosted.address().ok()).flatten()
}
