//! Records of many runs, of one session or of several, in one commit.
//!
//! The starts, events and ends of a moment are one statement each. A run's records keep their order: they are split into
//! rounds, and no round has two steps of one run. Events that an end follows at once are part of its step.
//!
//! The statements name their runs twice, in the join and as `= ANY`: a plan that was made and kept while the table was small
//! would otherwise read all of it for the join.

use std::collections::HashMap;
use std::time::Duration;

use deadpool_postgres::GenericClient;
use deskgate_protocol::run::EventType;
use futures_util::future::try_join_all;
use futures_util::try_join;
use serde_json::Value;
use tokio_postgres::types::ToSql;
use uuid::Uuid;

use super::ends::{self, RunEnding};
use super::{AttemptRecord, AttemptUpdate, Change, events, starts, write};
use crate::store::Error;
use crate::store::leases::SessionKey;

/// A record, and the session that reports it.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReportedRecord<'a> {
    pub session: SessionKey,
    pub record: &'a AttemptRecord,
}

impl ReportedRecord<'_> {
    /// Executes the statement of one record, whose first four parameters are run, attempt, device and epoch. A row of it
    /// has the seconds that the run waited or took; without one there was nothing to change.
    pub(super) async fn one(
        self,
        client: &impl GenericClient,
        sql: &str,
        rest: &[&(dyn ToSql + Sync)],
    ) -> Result<Option<Change>, Error> {
        let statement = client.prepare_cached(sql).await?;
        let (run_id, attempt) = (self.record.run_id.uuid(), attempt_column(self.record));
        let (device_id, epoch) = (self.session.device_id.uuid(), self.session.epoch_column());
        let fence: [&(dyn ToSql + Sync); 4] = [&run_id, &attempt, &device_id, &epoch];
        let params: Vec<_> = fence.into_iter().chain(rest.iter().copied()).collect();
        let rows = client.query(&statement, &params).await?;
        rows.first().map(|row| Ok(Change { seconds: row.try_get(0)? })).transpose()
    }

    fn is_of_the_same_attempt(&self, other: &Self) -> bool {
        (self.session, self.record.run_id, self.record.attempt)
            == (other.session, other.record.run_id, other.record.attempt)
    }
}

/// The runs that a statement changed.
pub(super) type Changed = HashMap<Uuid, Change>;

/// Run, attempt, device and epoch of several records: the first four parameters of every statement that stores many.
#[derive(Default)]
pub(super) struct Fences {
    runs: Vec<Uuid>,
    attempts: Vec<i32>,
    devices: Vec<Uuid>,
    epochs: Vec<i64>,
}

impl Fences {
    pub(super) fn of<'a>(records: impl IntoIterator<Item = &'a ReportedRecord<'a>>) -> Self {
        let mut fences = Self::default();
        for ReportedRecord { session, record } in records {
            fences.runs.push(record.run_id.uuid());
            fences.attempts.push(attempt_column(record));
            fences.devices.push(session.device_id.uuid());
            fences.epochs.push(session.epoch_column());
        }
        fences
    }

    /// Executes a statement, which returns the runs that it changed and the seconds that each took.
    pub(super) async fn change(
        &self,
        client: &impl GenericClient,
        sql: &str,
        rest: &[&(dyn ToSql + Sync)],
    ) -> Result<Changed, Error> {
        let statement = client.prepare_cached(sql).await?;
        let fences: [&(dyn ToSql + Sync); 4] = [&self.runs, &self.attempts, &self.devices, &self.epochs];
        let params: Vec<_> = fences.into_iter().chain(rest.iter().copied()).collect();
        let rows = client.query(&statement, &params).await?;
        rows.iter().map(|row| Ok((row.try_get(0)?, Change { seconds: row.try_get(1)? }))).collect()
    }
}

fn attempt_column(record: &AttemptRecord) -> i32 {
    i32::try_from(record.attempt).unwrap_or(i32::MAX)
}

/// A number of the device as a column; larger ones are never valid.
pub(super) fn number(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// A record in its round, by its place among all.
#[derive(Clone, Copy, Debug)]
pub(super) struct Step {
    place: usize,
    /// The place of the events that this end follows at once.
    events: Option<usize>,
}

/// The steps of all records in as many rounds as the run with the most has.
pub(super) fn rounds(records: &[ReportedRecord<'_>]) -> Vec<Vec<Step>> {
    let mut rounds: Vec<Vec<Step>> = Vec::new();
    // For each run the round of its last step, and the index there.
    let mut last: HashMap<Uuid, (usize, usize)> = HashMap::new();
    for (place, reported) in records.iter().enumerate() {
        let run_id = reported.record.run_id.uuid();
        let before = last.get(&run_id).copied();
        if let Some((round, index)) = before
            && let step = &mut rounds[round][index]
            && follows(&records[step.place], reported)
        {
            *step = Step { place, events: Some(step.place) };
            continue;
        }
        let round = before.map_or(0, |(round, _)| round + 1);
        if round == rounds.len() {
            rounds.push(Vec::new());
        }
        last.insert(run_id, (round, rounds[round].len()));
        rounds[round].push(Step { place, events: None });
    }
    for round in &mut rounds {
        // As other statements that change several runs. Two commits never have the same run: a session has one report on its
        // way, and the fence names the session.
        round.sort_by_key(|step| records[step.place].record.run_id.uuid());
    }
    rounds
}

/// Whether this is the end of the attempt of which those are the last events.
fn follows(events: &ReportedRecord<'_>, end: &ReportedRecord<'_>) -> bool {
    match (&events.record.what, &end.record.what) {
        (AttemptUpdate::Events { first, events: before }, AttemptUpdate::End { seq, .. }) => {
            events.is_of_the_same_attempt(end) && first.checked_add(before.len() as u64) == Some(*seq)
        }
        _ => false,
    }
}

/// In how many rounds records would be executed.
pub(super) fn count_rounds<'a>(records: impl IntoIterator<Item = &'a AttemptRecord>) -> usize {
    let mut steps: HashMap<Uuid, usize> = HashMap::new();
    for record in records {
        *steps.entry(record.run_id.uuid()).or_default() += 1;
    }
    steps.into_values().max().unwrap_or(0)
}

/// Whether these rounds are one statement, which needs no transaction around it. What it leaves is executed each by itself,
/// as a record alone is.
pub(super) fn is_one_statement(records: &[ReportedRecord<'_>], rounds: &[Vec<Step>]) -> bool {
    let what = |step: &Step| &records[step.place].record.what;
    let is_batched =
        |what: &_| matches!(what, AttemptUpdate::Start | AttemptUpdate::Events { .. } | AttemptUpdate::End { .. });
    let [round] = rounds else { return false };
    let [first, others @ ..] = &round[..] else { return false };
    let is_like_the_first = |step| std::mem::discriminant(what(step)) == std::mem::discriminant(what(first));
    others.is_empty() || (is_batched(what(first)) && others.iter().all(is_like_the_first))
}

/// Executes the records in these rounds, and returns the change of each; `None` when it changed nothing.
pub(super) async fn write_all(
    client: &impl GenericClient,
    records: &[ReportedRecord<'_>],
    rounds: &[Vec<Step>],
    retention: Duration,
) -> Result<Vec<Option<Change>>, Error> {
    let mut changes = vec![None; records.len()];
    for round in rounds {
        write_round(client, records, round, retention, &mut changes).await?;
    }
    Ok(changes)
}

async fn write_round(
    client: &impl GenericClient,
    records: &[ReportedRecord<'_>],
    round: &[Step],
    retention: Duration,
    changes: &mut [Option<Change>],
) -> Result<(), Error> {
    let (mut started, mut reported, mut ended, mut others) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for step in round {
        let record = records[step.place];
        match record.record.what {
            AttemptUpdate::Start => started.push(record),
            AttemptUpdate::Events { .. } => reported.push(record),
            _ => match RunEnding::of(record, step.events.map_or(&[], |place| events_of(records[place].record))) {
                Some(ending) => ended.push(ending),
                None => others.push(step.place),
            },
        }
    }
    let others = others.into_iter().map(async |place| Ok((place, write(client, records[place], retention).await?)));
    let (started, reported, ended, others) = try_join!(
        starts::start(client, &started),
        events::store(client, &reported),
        ends::end_all(client, &ended, retention),
        try_join_all(others)
    )?;
    for (place, change) in others {
        changes[place] = change;
    }
    let mut left = Vec::new();
    for Step { place, events } in round.iter().copied() {
        let record = records[place];
        let run_id = record.record.run_id.uuid();
        let change = match record.record.what {
            AttemptUpdate::Start => started.get(&run_id),
            AttemptUpdate::Events { .. } => reported.get(&run_id),
            AttemptUpdate::End { .. } => ended.get(&run_id),
            _ => continue,
        };
        match (change, &record.record.what) {
            (Some(change), _) => {
                changes[place] = Some(*change);
                if let Some(events) = events {
                    changes[events] = Some(Change::default());
                }
            }
            (None, AttemptUpdate::Events { .. }) => {}
            (None, _) => left.push(Step { place, events }),
        }
    }
    // Each by itself: there is more to settle, or it is of no use any more.
    let left = left.into_iter().map(async |Step { place, events }| {
        let mut changed = Vec::new();
        for place in events.into_iter().chain([place]) {
            changed.push((place, write(client, records[place], retention).await?));
        }
        Ok::<_, Error>(changed)
    });
    for (place, change) in try_join_all(left).await?.into_iter().flatten() {
        changes[place] = change;
    }
    Ok(())
}

/// The events of a record.
fn events_of(record: &AttemptRecord) -> &[(EventType, Value)] {
    match &record.what {
        AttemptUpdate::Events { events, .. } => events,
        _ => &[],
    }
}
