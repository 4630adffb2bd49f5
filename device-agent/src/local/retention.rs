//! For how long what is over is kept on this computer, and what would go if that were shorter.

use std::time::Duration;

use deskgate_protocol::Timestamp;
use deskgate_store::Keep;
use serde::{Deserialize, Serialize};
use tokio::time::MissedTickBehavior;

use super::desk::Desk;
use super::ended_runs::Runs;
use super::keys::blocking;
use super::no::{failed, invalid};
use super::reply::{Asker, No};
use super::request::Ask;
use crate::config::Home;
use crate::health::log;

/// Between two times that what is old is looked for.
const PAUSE: Duration = Duration::from_secs(3600);

/// Asks how much would go now if things were kept for so long. Deletes nothing.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct ReviewRetention {
    /// For how long; absent: as long as now.
    pub keep: Option<Keep>,
}

impl Ask for ReviewRetention {
    type Answer = Retention;

    async fn answer(self, desk: &Desk, _: Asker) -> Result<Retention, No> {
        desk.review_retention(self).await
    }
}

/// Keeps things for so long from now on, and deletes what is older.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct SetRetention {
    /// For how long.
    pub keep: Keep,
}

impl Ask for SetRetention {
    type Answer = Retention;

    async fn answer(self, desk: &Desk, _: Asker) -> Result<Retention, No> {
        desk.set_retention(self).await
    }
}

/// How things are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Retention {
    /// For how long now.
    pub keep: Keep,
    /// Ended runs in the built-in gateway; absent where the gateway is on a server, or cannot say.
    pub runs: Option<Amount>,
    /// Conversations with a transcript.
    pub conversations: Amount,
    /// Answers in the journal.
    pub journal: Amount,
    /// Lines of the log.
    pub log: Amount,
}

/// How much there is of something.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Amount {
    /// What is kept now.
    pub kept: u64,
    /// What of it would go.
    pub going: u64,
}

impl From<(u64, u64)> for Amount {
    fn from((kept, going): (u64, u64)) -> Self {
        Self { kept, going }
    }
}

impl Retention {
    /// Whether anything would go.
    pub fn takes(&self) -> bool {
        let runs = self.runs.unwrap_or_default();
        [runs, self.conversations, self.journal, self.log].iter().any(|amount| amount.going > 0)
    }
}

/// Days as time.
pub fn days(days: u32) -> Duration {
    Duration::from_secs(u64::from(days) * 24 * 3600)
}

/// Deletes what is old until the agent ends. (Transcripts are looked after by the dispatcher, with their clock.)
pub async fn follow(desk: Desk) {
    let mut looks = tokio::time::interval(PAUSE);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut engines = desk.engine.clone();
    loop {
        if let Err(no) = desk.forget_old().await {
            tracing::warn!(error = no.message, "what is too old could not be deleted; trying again later");
        }
        tokio::select! {
            _ = looks.tick() => {}
            changed = engines.changed() => if changed.is_err() {
                return;
            },
        }
    }
}

impl Desk {
    pub(super) async fn review_retention(&self, ask: ReviewRetention) -> Result<Retention, No> {
        let now = self.store.settings().get::<Keep>().await?;
        let keep = ask.keep.unwrap_or(now);
        keep.check().map_err(|wrong| invalid(wrong.join("\n")))?;
        let runs = match self.ended_runs() {
            Some(runs) => runs.count(days(keep.runs)).await.ok().map(Amount::from),
            None => None,
        };
        let (log, before) = (Home::at(self.own.clone()).log(), ago(keep.log));
        let (kept, going, _) = blocking(move || log::lines_before(&log, before)).await?;
        Ok(Retention {
            keep: now,
            runs,
            conversations: self.store.transcripts().silent_for(keep.conversations).await?.into(),
            journal: self.store.journal().answers_older_than(keep.journal).await?.into(),
            log: Amount { kept, going },
        })
    }

    pub(super) async fn set_retention(&self, ask: SetRetention) -> Result<Retention, No> {
        ask.keep.check().map_err(|wrong| invalid(wrong.join("\n")))?;
        self.store.settings().set(&ask.keep).await?;
        self.store.transcripts().forget_now().await?;
        self.forget_old().await?;
        self.review_retention(ReviewRetention { keep: None }).await
    }

    fn ended_runs(&self) -> Option<Runs> {
        self.engine.borrow().as_ref().and_then(|engine| engine.ended_runs.clone())
    }

    async fn forget_old(&self) -> Result<(), No> {
        let keep = self.store.settings().get::<Keep>().await?;
        self.store.journal().forget_old_answers().await?;
        let (log, before) = (Home::at(self.own.clone()).log(), ago(keep.log));
        let shortened = blocking(move || log::forget_before(&log, before)).await?;
        shortened.map_err(|error| failed(format!("the log: {error}")))?;
        match self.ended_runs() {
            Some(runs) => runs.keep(days(keep.runs)).await.map_err(failed),
            None => Ok(()),
        }
    }
}

/// The moment so many days ago.
fn ago(count: u32) -> Timestamp {
    let now = Timestamp::now();
    Timestamp(now.0.checked_sub(days(count)).unwrap_or(now.0))
}
