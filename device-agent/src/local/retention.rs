//! Retention: how long ended work is kept on this computer, and what shorter times would delete.

use std::time::Duration;

use deskgate_protocol::Timestamp;
use deskgate_store::RetentionSettings;
use serde::{Deserialize, Serialize};
use tokio::time::MissedTickBehavior;

use super::ended_runs::SharedEndedRuns;
use super::error_reply::{failed, invalid};
use super::handler::RequestHandler;
use super::keys::blocking;
use super::reply::{ErrorReply, Requester};
use super::request::TypedRequest;
use crate::config::Home;
use crate::health::log;

/// The interval between two deletions of old data.
const SWEEP_INTERVAL: Duration = Duration::from_secs(3600);

/// Reports how much other retention times would delete now. Deletes nothing.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct ReviewRetention {
    /// The retention times; absent: the current ones.
    pub keep: Option<RetentionSettings>,
}

impl TypedRequest for ReviewRetention {
    type Response = Retention;

    async fn answer(self, handler: &RequestHandler, _: Requester) -> Result<Retention, ErrorReply> {
        handler.review_retention(self).await
    }
}

/// Sets the retention times, and deletes older data.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct SetRetention {
    /// The retention times.
    pub keep: RetentionSettings,
}

impl TypedRequest for SetRetention {
    type Response = Retention;

    async fn answer(self, handler: &RequestHandler, _: Requester) -> Result<Retention, ErrorReply> {
        handler.set_retention(self).await
    }
}

/// How much is kept, and for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Retention {
    /// The current retention times.
    pub keep: RetentionSettings,
    /// Ended runs in the built-in gateway; absent if the gateway is on a server, or does not answer.
    pub runs: Option<Amount>,
    /// Conversations with a transcript.
    pub conversations: Amount,
    /// Answers in the journal.
    pub journal: Amount,
    /// Tool calls of runs, kept for their owner.
    pub calls: Amount,
    /// Lines of the log.
    pub log: Amount,
}

/// The amount of one kind of data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Amount {
    /// How much is kept now.
    pub kept: u64,
    /// How much of it would be deleted.
    pub going: u64,
}

impl From<(u64, u64)> for Amount {
    fn from((kept, going): (u64, u64)) -> Self {
        Self { kept, going }
    }
}

impl Retention {
    /// Whether anything would be deleted.
    pub fn takes(&self) -> bool {
        let runs = self.runs.unwrap_or_default();
        [runs, self.conversations, self.journal, self.calls, self.log].iter().any(|amount| amount.going > 0)
    }
}

/// Days as a duration.
pub fn days(days: u32) -> Duration {
    Duration::from_secs(u64::from(days) * 24 * 3600)
}

/// Deletes old data until the agent ends. (The dispatcher deletes transcripts, with their own clock.)
pub async fn follow(handler: RequestHandler) {
    let mut looks = tokio::time::interval(SWEEP_INTERVAL);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut active_connections = handler.active_connection.clone();
    loop {
        if let Err(no) = handler.forget_old().await {
            tracing::warn!(error = no.message, "what is too old could not be deleted; trying again later");
        }
        tokio::select! {
            _ = looks.tick() => {}
            changed = active_connections.changed() => if changed.is_err() {
                return;
            },
        }
    }
}

impl RequestHandler {
    pub(super) async fn review_retention(&self, ask: ReviewRetention) -> Result<Retention, ErrorReply> {
        let now = self.store.settings().get::<RetentionSettings>().await?;
        let keep = ask.keep.unwrap_or(now);
        keep.check().map_err(|wrong| invalid(wrong.join("\n")))?;
        let runs = match self.ended_runs() {
            Some(runs) => runs.count(days(keep.runs)).await.ok().map(Amount::from),
            None => None,
        };
        let (log, before) = (Home::at(self.own_folder.clone()).log(), ago(keep.log));
        let (kept, going, _) = blocking(move || log::lines_before(&log, before)).await?;
        Ok(Retention {
            keep: now,
            runs,
            conversations: self.store.transcripts().silent_for(keep.conversations).await?.into(),
            journal: self.store.journal().answers_older_than(keep.journal).await?.into(),
            calls: self.store.calls_older_than(keep.calls).await?.into(),
            log: Amount { kept, going },
        })
    }

    pub(super) async fn set_retention(&self, ask: SetRetention) -> Result<Retention, ErrorReply> {
        ask.keep.check().map_err(|wrong| invalid(wrong.join("\n")))?;
        self.store.settings().set(&ask.keep).await?;
        self.store.transcripts().forget_now().await?;
        self.forget_old().await?;
        self.review_retention(ReviewRetention { keep: None }).await
    }

    fn ended_runs(&self) -> Option<SharedEndedRuns> {
        self.active_connection.borrow().as_ref().and_then(|active| active.ended_runs.clone())
    }

    async fn forget_old(&self) -> Result<(), ErrorReply> {
        let keep = self.store.settings().get::<RetentionSettings>().await?;
        self.store.journal().forget_old_answers().await?;
        self.store.forget_old_calls().await?;
        let (log, before) = (Home::at(self.own_folder.clone()).log(), ago(keep.log));
        let shortened = blocking(move || log::forget_before(&log, before)).await?;
        shortened.map_err(|error| failed(format!("the log: {error}")))?;
        match self.ended_runs() {
            Some(runs) => runs.keep(days(keep.runs)).await.map_err(failed),
            None => Ok(()),
        }
    }
}

/// The time `count` days ago.
fn ago(count: u32) -> Timestamp {
    let now = Timestamp::now();
    Timestamp(now.0.checked_sub(days(count)).unwrap_or(now.0))
}
