//! The checker: pure functions over the records of the witnesses. Each file is one invariant, or two that belong
//! together, and returns every violation.
//!
//! The witnesses are the callers' histories, the model's journal, the tools' effect logs, the kernel's word of the files
//! that they use, the folders with copies and objects, and the receiver's journal.
//! The product's tables are compared with them and never trusted over them.

mod acceptances;
mod approvals;
mod artifacts;
mod attempts;
mod budgets;
mod callbacks;
mod calls;
mod confinement;
mod conversations;
mod database_integrity;
mod effects;
mod events;
mod fault_expectations;
mod files;
mod generations;
mod host_key;
mod idempotency_keys;
mod isolation;
mod leftovers;
mod linearizability;
mod lists;
mod manifests;
mod outages;
mod outcomes;
pub(crate) mod pass_validity;
mod progress;
mod refusals;
mod refused_bodies;
pub(crate) mod resource_bounds;
mod revocation;
mod run_files;
#[cfg(test)]
mod samples;
mod secrets;
mod stale_finishes;
mod stops;
mod streams;

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::evidence::Evidence;
use crate::history::{
    AnswerContent, BudgetRecord, CallAction, CallRecord, DecisionRecord, DecisionTopic, FetchedRecord, FollowRecord,
    GivenRecord, HistoryRecord, MadeRecord, OperationRecord, ProbeRecord, PublicationRecord, RefusedBodyRecord,
    RevocationRecord, StaleFinishRecord,
};
use crate::injection::InjectedFault;
use crate::testbed::effect_log::Effect;
use crate::testbed::fake_model::ModelTurn;
use crate::testbed::fake_receiver::ReceivedCallback;
use crate::testbed::fake_tool_server::NoteCall;
use crate::testbed::resource_usage::UsageSample;
use crate::testbed::shelf::CallSpan;

/// All records of the witnesses.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Observations {
    pub(crate) calls: Vec<CallRecord>,
    pub(crate) done: Vec<OperationRecord>,
    pub(crate) followed: Vec<FollowRecord>,
    pub(crate) decided: Vec<DecisionRecord>,
    pub(crate) probed: Vec<ProbeRecord>,
    pub(crate) stale: Vec<StaleFinishRecord>,
    pub(crate) revoked: Vec<RevocationRecord>,
    pub(crate) published: Vec<PublicationRecord>,
    pub(crate) budgets: Vec<BudgetRecord>,
    #[serde(default)]
    pub(crate) refused_bodies: Vec<RefusedBodyRecord>,
    #[serde(default)]
    pub(crate) given: Vec<GivenRecord>,
    #[serde(default)]
    pub(crate) made: Vec<MadeRecord>,
    #[serde(default)]
    pub(crate) fetched: Vec<FetchedRecord>,
    pub(crate) turns: Vec<ModelTurn>,
    pub(crate) effects: Vec<Effect>,
    /// The calls that left marks in the shelves.
    pub(crate) spans: Vec<CallSpan>,
    /// The calls that the fake tool server received.
    pub(crate) notes: Vec<NoteCall>,
    /// The jobs whose write needed approval and happened.
    pub(crate) written: BTreeSet<String>,
    pub(crate) receipts: Vec<ReceivedCallback>,
    pub(crate) strikes: Vec<InjectedFault>,
    pub(crate) evidence: Evidence,
    /// Samples of each program's resources.
    pub(crate) levels: Vec<UsageSample>,
    /// The spans in which work went on without a fault; the last one is after all faults.
    pub(crate) calm: Vec<(u64, u64)>,
}

/// One violation of an invariant.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Violation {
    pub(crate) invariant: String,
    /// Its time, if it is known.
    pub(crate) at: Option<u64>,
    pub(crate) text: String,
}

impl Violation {
    fn of(invariant: &str, at: impl Into<Option<u64>>, text: String) -> Self {
        Self { invariant: invariant.to_owned(), at: at.into(), text }
    }
}

/// One invariant, or a part of one.
type InvariantCheck = fn(&Observations) -> Vec<Violation>;

/// The checked invariants, each with a text for people.
pub(crate) const CHECKS: [(&str, &str, InvariantCheck); 42] = [
    ("I1", "every accepted run is readable from every replica", acceptances::check),
    ("I2", "one final state, which never changes", outcomes::check),
    ("I3", "no effect twice without a decision", effects::check),
    ("I4", "one key, one run", idempotency_keys::check),
    ("I5", "one live attempt, and callers see how often a run began", attempts::check),
    ("I6", "a generation is a register with compare-and-set", generations::check),
    ("I7", "one unfinished run per conversation", conversations::check),
    ("I8", "events are dense, and each is seen once", streams::check),
    ("I9", "every selected event is delivered, signed", callbacks::check),
    ("I10", "one event, one run; forged and stale ones, none", events::check),
    ("I11", "what was revoked is of no use", revocation::check),
    ("I12", "no call begins behind a completed stop", stops::check),
    ("I13", "nobody learns of what is another application's or subject's", isolation::check),
    ("I14", "no secret is where it may not be", secrets::check),
    ("I15", "no call runs that its owner did not approve", approvals::check),
    ("I16", "a run executes only under the manifest it was accepted for", manifests::check),
    ("I17", "memory, files, threads, tasks and queues are bounded", resource_bounds::check),
    ("I18", "work goes on 10 s after the last fault", progress::check),
    ("I19", "the database is whole", database_integrity::check),
    ("I20", "refusals are honest", refusals::check),
    ("I21", "a call that writes runs alone, and results come in the order of the calls", calls::check),
    ("I22", "what models used up is counted through crashes, and a budget holds", budgets::check),
    ("I23", "no request is lost behind a refused body", refused_bodies::check),
    ("I24", "a file that was taken is there as it came until it is deleted, and one key is one file", files::check),
    ("I25", "a run works on exactly the files that it was given", run_files::check),
    ("I26", "what a run hands out is listed once, and is downloaded as it was", artifacts::check),
    ("I27", "no bytes are left that nobody knows, and all are there that somebody does", leftovers::check),
    ("folder", "no tool sees what lies beside its folder", confinement::check),
    ("host key", "no device says anything to a server that it does not know", host_key::check),
    ("F1", "the other gateways serve within a second", fault_expectations::others_serve),
    (
        "F3",
        "a first submission is accepted five seconds after all gateways started",
        fault_expectations::starts_at_once,
    ),
    (
        "F4",
        "a rolling restart fails no submission that is tried twice, and closes streams with a word",
        fault_expectations::rolls,
    ),
    ("F11", "a database that stands still is answered for within three seconds", fault_expectations::nobody_hangs),
    ("F12", "readiness says that no connection is left", fault_expectations::readiness_says_so),
    ("F15", "nothing is accepted that is not on the disk", fault_expectations::nothing_unsynced_is_accepted),
    ("F17", "both ends notice a silent line within three heartbeats", fault_expectations::silence_is_noticed),
    ("F24", "a run whose model is away says so, comes back when it may, and goes on", outages::check),
    ("F25", "a call that may have happened is told as one", fault_expectations::an_untold_call_is_told_as_one),
    ("F35", "idle connections keep no device out", fault_expectations::a_device_comes_back),
    ("F36", "a gateway that answers no request is named as such", fault_expectations::a_silent_gateway_is_named),
    (
        "F37",
        "a command that fills the disk leaves room for the journal",
        fault_expectations::a_full_disk_ends_the_command_alone,
    ),
    (
        "F40",
        "a confirmed newcomer is paired once, and nobody else by its line",
        fault_expectations::a_newcomer_is_paired_once,
    ),
];

/// Checks all invariants.
pub(crate) fn judge(witnesses: &Observations) -> Vec<Violation> {
    CHECKS.iter().flat_map(|(_, _, check)| check(witnesses)).collect()
}

impl Observations {
    /// Sorts the records of the histories.
    pub(crate) fn of_histories(records: Vec<HistoryRecord>) -> Self {
        let mut witnesses = Self::default();
        for record in records {
            match record {
                HistoryRecord::Call(call) => witnesses.calls.push(*call),
                // Auditors begin after all faults, so their success shows nothing.
                HistoryRecord::Done(done) if done.caller.starts_with("auditor") => {}
                HistoryRecord::Done(done) => witnesses.done.push(done),
                HistoryRecord::Followed(followed) => witnesses.followed.push(followed),
                HistoryRecord::Decided(decided) => witnesses.decided.push(decided),
                HistoryRecord::Probed(probed) => witnesses.probed.push(probed),
                HistoryRecord::Stale(stale) => witnesses.stale.push(stale),
                HistoryRecord::Revoked(revoked) => witnesses.revoked.push(revoked),
                HistoryRecord::Published(published) => witnesses.published.push(published),
                HistoryRecord::Budget(budget) => witnesses.budgets.push(budget),
                HistoryRecord::RefusedBody(refused) => witnesses.refused_bodies.push(refused),
                HistoryRecord::Given(given) => witnesses.given.push(given),
                HistoryRecord::Made(made) => witnesses.made.push(made),
                HistoryRecord::Fetched(fetched) => witnesses.fetched.push(fetched),
            }
        }
        witnesses
    }

    /// The accepted runs of each job.
    fn runs_of_jobs(&self) -> BTreeMap<&str, BTreeSet<&str>> {
        let mut runs: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        for call in &self.calls {
            let Some(job) = call.asked.job() else { continue };
            if let AnswerContent::Run { run_id, .. } | AnswerContent::Became { run_id } = &call.seen {
                runs.entry(job).or_default().insert(run_id);
            }
        }
        runs
    }

    /// The jobs that arrived as events.
    fn events(&self) -> BTreeSet<&str> {
        let events = self.calls.iter().filter(|call| matches!(&call.asked, CallAction::Event { .. }));
        events.filter_map(|call| call.asked.job()).collect()
    }

    /// The desktop of each run.
    fn desks_of_runs(&self) -> BTreeMap<&str, usize> {
        let mut desktops = BTreeMap::new();
        for call in &self.calls {
            if let AnswerContent::Run { run_id, .. } = &call.seen {
                desktops.insert(run_id.as_str(), call.desktop);
            }
        }
        desktops
    }

    /// The job of each accepted run.
    fn jobs_of_runs(&self) -> BTreeMap<&str, &str> {
        let runs = self.runs_of_jobs();
        runs.into_iter().flat_map(|(job, runs)| runs.into_iter().map(move |run| (run, job))).collect()
    }

    /// All observations of each run, by request time.
    fn seen_of_runs(&self) -> BTreeMap<&str, Vec<RunObservation<'_>>> {
        let mut seen: BTreeMap<&str, Vec<RunObservation<'_>>> = BTreeMap::new();
        for call in &self.calls {
            if let AnswerContent::Run { run_id, phase, state, attempt, digest } = &call.seen {
                let sight = RunObservation { call, phase, state, attempt: *attempt, digest: *digest };
                seen.entry(run_id).or_default().push(sight);
            }
        }
        for sights in seen.values_mut() {
            sights.sort_by_key(|sight| sight.call.begun);
        }
        seen
    }

    /// How often the owner decided that a run runs again. Whether the device took the decision is not always known.
    fn count_again(&self, run_id: &str) -> usize {
        let is_one = |decided: &&DecisionRecord| {
            decided.run_id == run_id && decided.matter == DecisionTopic::RunAgain && decided.is_yes
        };
        self.decided.iter().filter(is_one).count()
    }

    /// How many stored events of a kind a run has.
    fn count_events(&self, run_id: &str, kind: &str) -> usize {
        let events = self.evidence.events.get(run_id);
        events.into_iter().flatten().filter(|event| event.kind == kind).count()
    }

    /// Whether a fault of one of these kinds was active at some time in a span.
    fn was_disturbed(&self, kinds: &[crate::plan::FaultKind], from: u64, to: u64) -> bool {
        self.strikes.iter().any(|strike| kinds.contains(&strike.kind()) && strike.begun <= to && strike.healed >= from)
    }
}

/// A run as one answer showed it.
#[derive(Clone, Copy, Debug)]
struct RunObservation<'a> {
    call: &'a CallRecord,
    phase: &'a str,
    state: &'a str,
    attempt: u64,
    digest: u64,
}

/// Pairs of observations whose `rank` went back, where the first was answered before the second was requested.
fn goes_back<T>(
    sights: &[T],
    begun: impl Fn(&T) -> u64,
    ended: impl Fn(&T) -> u64,
    rank: impl Fn(&T) -> u64,
) -> Vec<(&T, &T)> {
    let mut by_begin: Vec<_> = sights.iter().collect();
    by_begin.sort_by_key(|sight| begun(sight));
    let mut by_end = by_begin.clone();
    by_end.sort_by_key(|sight| ended(sight));
    let (mut back, mut highest, mut earlier) = (Vec::new(), None::<&T>, by_end.into_iter().peekable());
    for sight in by_begin {
        while let Some(over) = earlier.next_if(|over| ended(over) < begun(sight)) {
            if highest.is_none_or(|highest| rank(over) > rank(highest)) {
                highest = Some(over);
            }
        }
        if let Some(highest) = highest.filter(|highest| rank(highest) > rank(sight)) {
            back.push((highest, sight));
        }
    }
    back
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_answered_before_can_go_back() {
        // (begun, ended, rank)
        let together = [(0, 10, 2), (5, 20, 1)];
        let after = [(0, 10, 2), (11, 20, 1)];
        let back = |sights: &[(u64, u64, u64)]| goes_back(sights, |s| s.0, |s| s.1, |s| s.2).len();
        assert_eq!((back(&together), back(&after)), (0, 1));
    }
}
