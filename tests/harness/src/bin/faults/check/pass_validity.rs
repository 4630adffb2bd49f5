//! Whether a pass counts: a pass without work or without faults shows nothing.

use super::{Observations, budgets, calls, run_files};
use crate::injection::crash_points::{self, AGENT_POINTS, CrashPoint, GATEWAY_POINTS};
use crate::plan::FaultKind;

/// The minimum numbers of a valid pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PassRequirements {
    /// Faults that were planned.
    pub(crate) faults: usize,
    /// Runs that ended.
    pub(crate) runs: usize,
    /// Programs that died at each point.
    pub(crate) deaths: usize,
}

/// The percentage of operations that must have succeeded after their repetitions.
const MIN_SUCCESS_PERCENT: usize = 90;

/// Why a pass does not count; empty if it does.
pub(crate) fn shortfalls(witnesses: &Observations, wanted: PassRequirements) -> Vec<String> {
    let mut reasons = Vec::new();
    let ended = ended(witnesses);
    if ended < wanted.runs {
        reasons.push(format!("{ended} runs ended; {} are needed", wanted.runs));
    }
    let (succeeded, all) = succeeded(witnesses);
    if succeeded * 100 < all * MIN_SUCCESS_PERCENT || all == 0 {
        reasons.push(format!("{succeeded} of {all} operations succeeded; {MIN_SUCCESS_PERCENT} of 100 are needed"));
    }
    if witnesses.strikes.len() < wanted.faults {
        reasons.push(format!("{} of {} faults were struck", witnesses.strikes.len(), wanted.faults));
    }
    if !witnesses.probed.iter().any(|probed| probed.status == 404) {
        reasons.push("nobody asked for what is not theirs and was answered".to_owned());
    }
    if witnesses.stale.is_empty() {
        reasons.push("no device said anything too late".to_owned());
    }
    if budgets::refused(witnesses) == 0 {
        reasons.push("no run reached the budget of its service".to_owned());
    }
    if calls::beside(witnesses) == 0 {
        reasons.push("no two reads of one answer ran beside each other".to_owned());
    }
    if run_files::seen(witnesses) == 0 {
        reasons.push("no run was seen with its files".to_owned());
    }
    if witnesses.fetched.is_empty() {
        reasons.push("nothing that a run handed out was downloaded".to_owned());
    }
    for strike in &witnesses.strikes {
        if let Err(why) = &strike.proof {
            let (number, kind) = (strike.planned.number, strike.kind());
            reasons.push(format!("fault {number}, {kind}, cannot be shown to have struck: {why}"));
        }
    }
    reasons.extend(unpassed(witnesses));
    let spared = points_to_die_at(witnesses).filter(|point| point.struck < wanted.deaths);
    reasons.extend(
        spared.map(|CrashPoint { name, struck, .. }| {
            format!("{struck} programs died {name}; {} are needed", wanted.deaths)
        }),
    );
    reasons
}

/// The crash points of the kinds that were armed.
fn points_to_die_at(witnesses: &Observations) -> impl Iterator<Item = &CrashPoint> {
    let is_struck = |kind| witnesses.strikes.iter().any(|strike| strike.kind() == kind);
    let (gateways, agents) = (is_struck(FaultKind::CrashGateway), is_struck(FaultKind::CrashAgent));
    let is_one = move |point: &&CrashPoint| {
        gateways && crash_points::is_of(&point.name, &GATEWAY_POINTS)
            || agents && crash_points::is_of(&point.name, &AGENT_POINTS)
    };
    witnesses.evidence.points.iter().filter(is_one)
}

/// The crash points that no program passed.
fn unpassed(witnesses: &Observations) -> Option<String> {
    let missing = points_to_die_at(witnesses).filter(|point| point.passed == 0);
    let missing: Vec<_> = missing.map(|point| &point.name[..]).collect();
    (!missing.is_empty()).then(|| format!("no program came by {}", missing.join(", ")))
}

/// How many runs ended.
pub(crate) fn ended(witnesses: &Observations) -> usize {
    let seen = witnesses.seen_of_runs();
    seen.values().filter(|sights| sights.iter().any(|sight| sight.phase == "final")).count()
}

/// How many operations succeeded, and how many there were.
pub(crate) fn succeeded(witnesses: &Observations) -> (usize, usize) {
    (witnesses.done.iter().filter(|done| done.succeeded).count(), witnesses.done.len())
}

#[cfg(test)]
mod tests {
    use super::super::samples::{call, calls, done, read, run};
    use super::*;
    use crate::callers::spender::BUDGET_ERROR;
    use crate::history::{FetchedRecord, GivenRecord, ProbeRecord, StaleFinishRecord};
    use crate::injection::InjectedFault;
    use crate::plan::{FaultKind, PlannedFault};
    use crate::testbed::carry::ShownFiles;
    use crate::testbed::fake_model::ModelTurn;
    use crate::testbed::shelf::CallSpan;

    fn told() -> Observations {
        let page = |index| CallSpan { index, begun: index, ended: Some(2 + index), ..CallSpan::default() };
        let files = ShownFiles { first_line: Some(String::new()), ..ShownFiles::default() };
        let mut refused = call("a", 0, read("b"), run("b", "failed"));
        refused.error = BUDGET_ERROR.to_owned();
        let planned =
            PlannedFault { number: 0, kind: FaultKind::KillGateway, pause_ms: 0, lasts_ms: 0, target: 0, manner: 0 };
        Observations {
            done: vec![done("run", 1, "r")],
            probed: vec![ProbeRecord { status: 404, ..ProbeRecord::default() }],
            stale: vec![StaleFinishRecord::default()],
            spans: vec![page(0), page(1)],
            given: vec![GivenRecord::default()],
            turns: vec![ModelTurn { files, ..ModelTurn::default() }],
            fetched: vec![FetchedRecord::default()],
            strikes: vec![InjectedFault {
                planned,
                begun: 1,
                healed: 2,
                proof: Ok("killed".to_owned()),
                noticed_ms: Vec::new(),
            }],
            ..calls(&[call("a", 0, read("r"), run("r", "succeeded")), refused])
        }
    }

    #[test]
    fn a_pass_counts_only_with_enough_runs_successes_and_faults_that_struck() {
        let wanted = PassRequirements { faults: 1, runs: 1, deaths: 0 };
        assert_eq!(shortfalls(&told(), wanted), Vec::<String>::new());
        let one = |witnesses: &Observations, wanted| shortfalls(witnesses, wanted).join("\n");
        assert_eq!(one(&told(), PassRequirements { runs: 3, ..wanted }), "2 runs ended; 3 are needed");
        assert_eq!(one(&told(), PassRequirements { faults: 2, ..wanted }), "1 of 2 faults were struck");
        let mut failed = told();
        failed.done[0].succeeded = false;
        assert_eq!(one(&failed, wanted), "0 of 1 operations succeeded; 90 of 100 are needed");
        let mut unasked = told();
        (unasked.probed, unasked.stale, unasked.spans) = (Vec::new(), Vec::new(), Vec::new());
        (unasked.given, unasked.fetched) = (Vec::new(), Vec::new());
        unasked.calls.pop();
        assert_eq!(shortfalls(&unasked, wanted).len(), 6);
        let mut missed = told();
        missed.strikes[0].proof = Err("nobody came".to_owned());
        assert_eq!(one(&missed, wanted), "fault 0, F1, cannot be shown to have struck: nobody came");
    }

    #[test]
    fn a_pass_counts_only_if_programs_came_by_every_point_at_which_they_may_die() {
        let mut told = told();
        told.strikes[0].planned.kind = FaultKind::CrashGateway;
        let name = "before attempts::claim".to_owned();
        told.evidence.points.push(CrashPoint { name, passed: 1, ..CrashPoint::default() });
        let wanted = PassRequirements { faults: 1, runs: 1, deaths: 0 };
        assert_eq!(shortfalls(&told, wanted), Vec::<String>::new());
        told.evidence.points[0].passed = 0;
        assert_eq!(shortfalls(&told, wanted), ["no program came by before attempts::claim"]);
        told.strikes[0].planned.kind = FaultKind::CrashAgent;
        assert_eq!(shortfalls(&told, wanted), Vec::<String>::new(), "agents were to die");
        told.evidence.points[0].struck = 2;
        let thrice = PassRequirements { deaths: 3, ..wanted };
        assert_eq!(shortfalls(&told, thrice), Vec::<String>::new(), "agents were to die");
        told.strikes[0].planned.kind = FaultKind::CrashGateway;
        told.evidence.points[0].passed = 1;
        assert_eq!(shortfalls(&told, thrice), ["2 programs died before attempts::claim; 3 are needed"]);
    }
}
