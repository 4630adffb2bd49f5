//! What stays behind when this device goes to another gateway.

use deskgate_protocol::management::{ApplicationState, ListApplications};
use serde::{Deserialize, Serialize};

use super::handler::RequestHandler;
use super::reply::{ErrorReply, Requester};
use super::request::TypedRequest;
use crate::settings::{ConnectionEdit, ConnectionSettings, Mode};

/// Gets what stays behind at the present gateway if a mode's draft became active; `None`: it leads to the same gateway, or cannot
/// become active as it is.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PreviewLeaving {
    /// The mode.
    pub mode: Mode,
    /// The fields that are changed too.
    pub edit: ConnectionEdit,
}

impl TypedRequest for PreviewLeaving {
    type Response = Option<LeftBehind>;

    async fn answer(self, handler: &RequestHandler, _: Requester) -> Result<Option<LeftBehind>, ErrorReply> {
        let before = handler.connection().await?;
        let mut after: ConnectionSettings = before.clone();
        after.edit(self.mode, self.edit);
        if after.save(self.mode).is_err() || after.same_gateway(&before) {
            return Ok(None);
        }
        let left = handler.left_behind(before.mode).await?;
        // Another address may be the same gateway, which then knows all of it.
        Ok(Some(if before.mode == self.mode {
            LeftBehind { applications: 0, keys: 0, services: 0, ..left }
        } else {
            left
        }))
    }
}

/// Gets what belongs to the present gateway.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct GetBelongings {}

impl TypedRequest for GetBelongings {
    type Response = LeftBehind;

    async fn answer(self, handler: &RequestHandler, _: Requester) -> Result<LeftBehind, ErrorReply> {
        let mode = handler.connection().await?.mode;
        handler.left_behind(mode).await
    }
}

impl RequestHandler {
    /// What belongs to the present gateway, as far as it answers.
    pub(super) async fn left_behind(&self, mode: Mode) -> Result<LeftBehind, ErrorReply> {
        let applications = self.glance(ListApplications {}).await.unwrap_or_default();
        self.remember_applications(&applications).await?;
        let active: Vec<_> = applications.iter().filter(|app| app.state == ApplicationState::Active).collect();
        let services = self.store.services().list().await?;
        let published = services
            .iter()
            .filter(|service| service.published.is_some() && active.iter().any(|app| app.app_id == service.app_id));
        let count = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
        Ok(LeftBehind {
            mode,
            applications: count(active.len()),
            keys: active.iter().map(|app| app.live_keys).sum(),
            services: count(published.count()),
            runs: count(self.in_hand()),
        })
    }
}

/// What belongs to the present gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeftBehind {
    /// The mode of the present gateway.
    pub mode: Mode,
    /// Applications that are active there.
    pub applications: u32,
    /// Their keys that are good.
    pub keys: u32,
    /// Their services that are published.
    pub services: u32,
    /// Runs of it that are in progress here.
    pub runs: u32,
}

impl LeftBehind {
    /// Whether nothing stays behind.
    pub fn is_nothing(&self) -> bool {
        self.applications + self.runs == 0
    }

    /// What belongs to the present gateway, in a sentence.
    pub fn words(&self) -> String {
        let counted = |count: u32, noun: &str| format!("{count} {noun}{}", if count == 1 { "" } else { "s" });
        let gateway = match self.mode {
            Mode::BuiltIn => "the built-in gateway",
            Mode::Remote => "the gateway that is active now",
            Mode::Hosted => "the hosted gateway that is active now",
        };
        let what = [(self.applications, "application"), (self.keys, "key"), (self.services, "service")];
        let what: Vec<_> =
            what.iter().filter(|(count, _)| *count > 0).map(|(count, noun)| counted(*count, noun)).collect();
        let (last, before) = match what.split_last() {
            Some(split) => split,
            None => return format!("Nothing belongs to {gateway}."),
        };
        let list = if before.is_empty() { last.clone() } else { format!("{} and {last}", before.join(", ")) };
        let verb = if before.is_empty() && self.applications == 1 { "belongs" } else { "belong" };
        format!("{list} {verb} to {gateway}.")
    }

    /// What comes of them.
    pub const AFTERWARDS: &'static str = "They stay there, and work again when this device comes back to it. At the other gateway \
        an application is made again, with a new key and drafts of its services, by: deskgate app copy APP";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_stays_behind_is_told_in_numbers() {
        let left = |applications, keys, services| {
            LeftBehind { mode: Mode::BuiltIn, applications, keys, services, runs: 0 }.words()
        };
        assert_eq!(left(1, 2, 1), "1 application, 2 keys and 1 service belong to the built-in gateway.");
        assert_eq!(left(1, 0, 0), "1 application belongs to the built-in gateway.");
        assert_eq!(left(2, 1, 0), "2 applications and 1 key belong to the built-in gateway.");
        assert!(LeftBehind { mode: Mode::Remote, applications: 0, keys: 0, services: 0, runs: 0 }.is_nothing());
    }
}
