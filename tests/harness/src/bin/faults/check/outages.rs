//! F24: a run whose model cannot be used waits and says so, comes back no earlier than it was asked to, says when the
//! model is back, and ends as if nothing had been. No run says so without a reason.

use std::collections::BTreeMap;

use super::{Observations, RunObservation, Violation};
use crate::plan::FaultKind;
use crate::testbed::fake_model::ModelTurn;
use crate::testbed::model_behaviour::ModelBehaviour;

/// The reason of a run's state that is judged.
const AWAY_REASON: &str = "model_unavailable";
/// How long the model must be away for some run to ask it meanwhile, in milliseconds.
const MIN_AWAY_MS: u64 = 1500;
/// Microseconds after its return in which a caller may still learn of it.
const LATE_US: u64 = 1_000_000;
/// Faults by which an agent may lose the connection to its model, or the memory of it.
const AGENT_FAULTS: [FaultKind; 10] = [
    FaultKind::KillAgent,
    FaultKind::CrashAgent,
    FaultKind::FreezeAgent,
    FaultKind::FillDeviceDisk,
    FaultKind::SkewDeviceClock,
    FaultKind::DuplicateAgent,
    FaultKind::MismatchVersion,
    FaultKind::RevokeAccess,
    FaultKind::StopAndResumeAll,
    FaultKind::OverlapTwo,
];

pub(super) fn check(witnesses: &Observations) -> Vec<Violation> {
    let mut turns: BTreeMap<&str, Vec<&ModelTurn>> = BTreeMap::new();
    for turn in &witnesses.turns {
        turns.entry(&turn.job).or_default().push(turn);
    }
    for turns in turns.values_mut() {
        turns.sort_by_key(|turn| turn.begun);
    }
    let seen = witnesses.seen_of_runs();
    let mut violations = unseen(witnesses);
    for (run_id, job) in witnesses.jobs_of_runs() {
        let turns = turns.get(job).map(Vec::as_slice).unwrap_or_default();
        let sights = seen.get(run_id).map(Vec::as_slice).unwrap_or_default();
        let run = WaitingRun { witnesses, run_id, job, turns, sights };
        violations.extend(run.came_too_early());
        violations.extend(run.says_otherwise().map(|text| Violation::of("F24", run.life().0, text)));
        violations.extend(run.failed().map(|text| Violation::of("F24", run.life().1, text)));
    }
    violations
}

/// The times at which nothing listened at the model's address, which leaves no trace there, and no caller saw a run that
/// waited.
fn unseen(witnesses: &Observations) -> Vec<Violation> {
    let away = ModelBehaviour::IsAway.name();
    let gone = witnesses.strikes.iter().filter(|strike| {
        strike.kind() == FaultKind::BreakModel
            && strike.proof.as_ref().is_ok_and(|proof| proof.starts_with(&away))
            && strike.planned.lasts_ms >= MIN_AWAY_MS
    });
    let saw = |from, to| {
        let waiting = witnesses.calls.iter().filter(|call| call.reason == AWAY_REASON);
        waiting.into_iter().any(|call| call.ended >= from && call.begun <= to + LATE_US)
    };
    let unseen = gone.filter(|strike| !saw(strike.begun, strike.healed));
    unseen
        .map(|strike| {
            let text = format!("nobody saw a run wait for its model in fault {}", strike.planned.number);
            Violation::of("F24", strike.begun, text)
        })
        .collect()
}

/// Whether the model was not to be used, as it says itself.
fn is_outage(turn: &ModelTurn) -> bool {
    ModelBehaviour::FAULTS.into_iter().any(|manner| manner.is_outage() && manner.name() == turn.served)
}

/// A run, with what its model and its callers saw of it.
struct WaitingRun<'a> {
    witnesses: &'a Observations,
    run_id: &'a str,
    job: &'a str,
    turns: &'a [&'a ModelTurn],
    sights: &'a [RunObservation<'a>],
}

impl WaitingRun<'_> {
    /// From the first answer about it to the first that shows its end.
    fn life(&self) -> (u64, u64) {
        let end = self.sights.iter().find(|sight| sight.phase == "final").or(self.sights.last());
        let from = self.sights.first().map(|sight| sight.call.begun);
        (from.unwrap_or_default(), end.map(|sight| sight.call.ended).unwrap_or_default())
    }

    /// The pairs of turns of which the second repeats the first after an outage, if the run was executed only once.
    fn repeated(&self) -> impl Iterator<Item = (&ModelTurn, &ModelTurn)> {
        let executed = self.witnesses.evidence.executions.iter().filter(|began| began.run_id == self.run_id).count();
        let pairs = self.turns.windows(2).map(|pair| (pair[0], pair[1]));
        let repeats = pairs.filter(|(first, next)| is_outage(first) && first.place == next.place);
        let is_calm = |from, to| !self.witnesses.was_disturbed(&AGENT_FAULTS, from, to);
        repeats.filter(move |(first, next)| executed == 1 && is_calm(first.begun, next.begun))
    }

    /// What its events say of its model, in their order.
    fn told(&self) -> Vec<bool> {
        let events = self.witnesses.evidence.events.get(self.run_id).into_iter().flatten();
        events.filter_map(|event| event.model_is_away).collect()
    }

    fn came_too_early(&self) -> Vec<Violation> {
        let waited =
            |(first, next): (&ModelTurn, &ModelTurn)| Some((first.pause?, next.begun - first.begun, next.begun));
        let early = self.repeated().filter_map(waited).filter(|(asked, waited, _)| waited < asked);
        let text =
            |waited| format!("{} asked its model again after {waited} µs, before the time that it named", self.job);
        early.map(|(_, waited, at)| Violation::of("F24", at, text(waited))).collect()
    }

    /// A difference between what happened and what callers and events say.
    fn says_otherwise(&self) -> Option<String> {
        let Self { run_id, job, .. } = self;
        let told = self.told();
        let is_said = told.contains(&true);
        if self.repeated().next().is_some() && !is_said {
            return Some(format!("{run_id} waited for its model, as {job} shows, and its events do not say so"));
        }
        let (from, to) = self.life();
        let may_be = self.turns.iter().any(|turn| is_outage(turn))
            || self.witnesses.was_disturbed(&[FaultKind::BreakModel], from, to)
            || self.witnesses.was_disturbed(&AGENT_FAULTS, from, to);
        if is_said && !may_be {
            return Some(format!("the events of {run_id} say that its model was away, and it was not"));
        }
        let waiting = self.sights.iter().find(|sight| sight.call.reason == AWAY_REASON);
        if let Some(sight) = waiting.filter(|sight| !is_said || sight.state != "running") {
            return Some(format!("{run_id} was {} for its model, and its events do not say so", sight.state));
        }
        let succeeded = self.sights.iter().any(|sight| sight.state == "succeeded");
        (succeeded && told.last() == Some(&true))
            .then(|| format!("{run_id} succeeded, and its events say to the end that its model is away"))
    }

    /// Whether it failed though nothing but its model was out of order.
    fn failed(&self) -> Option<String> {
        let (from, to) = self.life();
        let others = self.witnesses.strikes.iter().filter(|strike| strike.kind() != FaultKind::BreakModel);
        let is_alone = others.into_iter().all(|strike| strike.begun > to || strike.healed < from);
        // What no answer looks like is not waited out for ever.
        let is_readable = self.turns.iter().all(|turn| turn.served != ModelBehaviour::Babbles.name());
        let failed = self.sights.iter().find(|sight| sight.state == "failed" && sight.call.error == "model_error");
        let waited = self.told().contains(&true);
        let failed = failed.filter(|_| is_alone && is_readable && waited)?;
        Some(format!("{} failed as {} after an outage of its model", self.run_id, failed.call.error))
    }
}

#[cfg(test)]
mod tests {
    use super::super::samples::{call, calls, events, read, run, strike, submit, texts};
    use super::*;
    use crate::evidence::Execution;

    /// A run that asked its model again after so long, with what its events say.
    fn told(served: &str, again: u64, away: &[bool], state: &str) -> Observations {
        let mut witnesses =
            calls(&[call("a", 0, submit("j"), run("r", "queued")), call("a", 9, read("r"), run("r", state))]);
        let turn = |begun, served: &str, pause| ModelTurn {
            job: "j".to_owned(),
            begun,
            served: served.to_owned(),
            pause,
            ..ModelTurn::default()
        };
        witnesses.turns = vec![turn(1, served, Some(4)), turn(again, "whole", None)];
        let mut said = events(&vec!["usage.updated"; away.len()]);
        for (event, away) in said.iter_mut().zip(away) {
            event.model_is_away = Some(*away);
        }
        witnesses.evidence.events.insert("r".to_owned(), said);
        witnesses.evidence.executions = vec![Execution { run_id: "r".to_owned(), attempt: 1 }];
        witnesses
    }

    #[test]
    fn a_run_that_waits_says_so_and_goes_on_is_good() {
        assert_eq!(check(&told("IsBusy", 5, &[true, false], "succeeded")), []);
        assert_eq!(check(&told("whole", 5, &[false], "succeeded")), []);
    }

    #[test]
    fn only_faults_during_a_run_may_have_disturbed_it() {
        let mut silent = told("IsBusy", 5, &[false], "succeeded");
        silent.calls.push(call("auditor", 90, read("r"), run("r", "succeeded")));
        silent.strikes.push(strike(FaultKind::KillAgent, 50, "killed"));
        assert!(texts(&check(&silent)).contains("waited for its model, as j shows"));
        silent.strikes.push(strike(FaultKind::KillAgent, 4, "killed"));
        assert_eq!(check(&silent), []);
    }

    #[test]
    fn an_absence_of_which_nobody_learns_is_found() {
        let mut told = told("IsAway", 5, &[true, false], "succeeded");
        told.strikes.push(strike(FaultKind::BreakModel, 0, "IsAway: connections refused"));
        assert!(texts(&check(&told)).contains("nobody saw a run wait for its model in fault 0"));
        told.calls.push(call("a", 2, read("r"), run("r", "running")));
        told.calls[2].reason = AWAY_REASON.to_owned();
        assert_eq!(check(&told), []);
    }

    #[test]
    fn a_run_that_waits_in_silence_or_without_a_reason_is_found() {
        assert!(texts(&check(&told("IsBusy", 5, &[false], "succeeded"))).contains("waited for its model, as j shows"));
        let twice = |mut witnesses: Observations| {
            let again = Execution { run_id: "r".to_owned(), attempt: 2 };
            witnesses.evidence.executions.push(again);
            witnesses
        };
        assert_eq!(check(&twice(told("IsBusy", 5, &[false], "succeeded"))), [], "it may have begun again");
        assert!(texts(&check(&told("whole", 5, &[true, false], "succeeded"))).contains("and it was not"));
        assert!(texts(&check(&told("IsBusy", 5, &[true], "succeeded"))).contains("to the end"));
        let mut shown = told("whole", 5, &[false], "succeeded");
        shown.calls[0].reason = AWAY_REASON.to_owned();
        assert!(texts(&check(&shown)).contains("r was queued for its model"));
    }

    #[test]
    fn a_run_that_comes_too_early_or_fails_by_it_is_found() {
        assert!(texts(&check(&told("IsBusy", 4, &[true, false], "succeeded"))).contains("again after 3 µs"));
        let mut failed = told("Refuses", 5, &[true], "failed");
        assert_eq!(check(&failed), [], "by something else");
        failed.calls[1].error = "model_error".to_owned();
        assert!(texts(&check(&failed)).contains("failed as model_error"));
        failed.turns[1].served = "Babbles".to_owned();
        assert_eq!(check(&failed), []);
    }
}
