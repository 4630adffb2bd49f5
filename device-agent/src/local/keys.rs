//! The place of providers' and servers' keys: moves them, and reports when they cannot be read.

use std::time::Duration;

use deskgate_definition::KeyPlace;
use deskgate_secrets::keyring;

use super::error_reply::{failed, refused};
use super::handler::RequestHandler;
use super::reply::ErrorReply;
use crate::health::{Finding, ProblemCode};

impl RequestHandler {
    /// Changes the place of keys, and moves the existing ones.
    pub(super) async fn move_keys(&self, to: KeyPlace) -> Result<(), ErrorReply> {
        let handler = self.clone();
        // In its own task, so that it completes even if the caller hangs up.
        let moved = tokio::spawn(async move {
            let _one_at_a_time = handler.key_preference.lock_moves().await;
            let before = handler.key_preference.set(to);
            let moved = handler.move_each(to).await;
            if moved.is_err() {
                handler.key_preference.set(before);
            }
            handler.ask_keyring(Duration::ZERO).await;
            moved
        });
        moved.await.map_err(|_| failed("the agent failed while it moved keys".to_owned()))?
    }

    /// Each key is moved by itself: a failure loses none, and the move can be repeated. The choice takes effect once
    /// all keys are moved.
    async fn move_each(&self, to: KeyPlace) -> Result<(), ErrorReply> {
        if to.is_keyring() {
            let unusable = |error: keyring::KeyringError| refused(format!("secrets: {error}\nNothing was moved."));
            blocking(keyring::usable).await?.map_err(unusable)?;
        }
        let (accounts, servers) = (self.providers.clone(), self.mcp_servers.connections.clone());
        let token_manager = self.token_manager.clone();
        let moved = blocking(move || -> Result<(), ErrorReply> {
            accounts.move_keys()?;
            servers.move_keys()?;
            Ok(token_manager.move_keys()?)
        });
        moved.await?.map_err(|no| ErrorReply {
            message: format!(
                "{}\nKeys that were not moved are where they were. Mend that and repeat this.",
                no.message
            ),
            ..no
        })?;
        self.store.settings().set(&to).await?;
        tracing::info!(place = to.as_str(), "keys were moved");
        Ok(())
    }

    /// The problem of keys in the keyring that cannot be read now.
    pub(super) async fn keyring_problem(&self) -> Option<Finding> {
        let (accounts, servers) = (self.providers.clone(), self.mcp_servers.connections.clone());
        let token_manager = self.token_manager.clone();
        let entries = move || [accounts.entries(), servers.entries(), token_manager.entries()].concat();
        let looked = blocking(move || keyring::readable(entries()));
        let error = looked.await.ok()?.err()?;
        let next = "Unlock it, or start its service. To have keys in files again after that: deskgate settings set \
                    secrets file";
        let text = format!("Keys are kept there, and it cannot be read: {error}. Runs that need no key go on.");
        Some(Finding::new(ProblemCode::KeyringShut, text, next))
    }
}

/// The keyring is another program, and files may block too.
pub(super) async fn blocking<R: Send + 'static>(work: impl FnOnce() -> R + Send + 'static) -> Result<R, ErrorReply> {
    tokio::task::spawn_blocking(work).await.map_err(|_| failed("the agent failed while it looked for keys".to_owned()))
}
