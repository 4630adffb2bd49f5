//! Whether a pass counts: one in which nothing worked, or nothing was broken, shows nothing.

use super::Witnesses;
use crate::plan::Kind;
use crate::strikes::points::{self, AGENTS, GATEWAYS, Point};

/// What a pass must have had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Wanted {
    /// Faults that were planned.
    pub(crate) faults: usize,
    /// Runs that ended.
    pub(crate) runs: usize,
    /// Programs that died at each point.
    pub(crate) deaths: usize,
}

/// Of a hundred operations, those that must have succeeded after their repetitions.
const SUCCEEDED: usize = 90;

/// Why a pass does not count; nothing if it does.
pub(crate) fn why_not(witnesses: &Witnesses, wanted: Wanted) -> Vec<String> {
    let mut reasons = Vec::new();
    let ended = ended(witnesses);
    if ended < wanted.runs {
        reasons.push(format!("{ended} runs ended; {} are needed", wanted.runs));
    }
    let (succeeded, all) = succeeded(witnesses);
    if succeeded * 100 < all * SUCCEEDED || all == 0 {
        reasons.push(format!("{succeeded} of {all} operations succeeded; {SUCCEEDED} of 100 are needed"));
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
    for strike in &witnesses.strikes {
        if let Err(why) = &strike.proof {
            let (number, kind) = (strike.planned.number, strike.kind());
            reasons.push(format!("fault {number}, {kind}, cannot be shown to have struck: {why}"));
        }
    }
    reasons.extend(unpassed(witnesses));
    let spared = points_to_die_at(witnesses).filter(|point| point.struck < wanted.deaths);
    reasons.extend(
        spared.map(|Point { name, struck, .. }| format!("{struck} programs died {name}; {} are needed", wanted.deaths)),
    );
    reasons
}

/// The points at which a program may die, where any of its kind was to.
fn points_to_die_at(witnesses: &Witnesses) -> impl Iterator<Item = &Point> {
    let is_struck = |kind| witnesses.strikes.iter().any(|strike| strike.kind() == kind);
    let (gateways, agents) = (is_struck(Kind::F2), is_struck(Kind::F6));
    let is_one = move |point: &&Point| {
        gateways && points::is_of(&point.name, &GATEWAYS) || agents && points::is_of(&point.name, &AGENTS)
    };
    witnesses.evidence.points.iter().filter(is_one)
}

/// Those by which none came.
fn unpassed(witnesses: &Witnesses) -> Option<String> {
    let missing = points_to_die_at(witnesses).filter(|point| point.passed == 0);
    let missing: Vec<_> = missing.map(|point| &point.name[..]).collect();
    (!missing.is_empty()).then(|| format!("no program came by {}", missing.join(", ")))
}

/// How many runs ended.
pub(crate) fn ended(witnesses: &Witnesses) -> usize {
    let seen = witnesses.seen_of_runs();
    seen.values().filter(|sights| sights.iter().any(|sight| sight.phase == "final")).count()
}

/// How many operations succeeded, of how many.
pub(crate) fn succeeded(witnesses: &Witnesses) -> (usize, usize) {
    (witnesses.done.iter().filter(|done| done.succeeded).count(), witnesses.done.len())
}

#[cfg(test)]
mod tests {
    use super::super::told::{call, calls, done, read, run};
    use super::*;
    use crate::history::{Probed, Stale};
    use crate::plan::{Kind, Planned};
    use crate::strikes::Strike;

    fn told() -> Witnesses {
        let planned = Planned { number: 0, kind: Kind::F1, pause_ms: 0, lasts_ms: 0, target: 0, manner: 0 };
        Witnesses {
            done: vec![done("run", 1, "r")],
            probed: vec![Probed { status: 404, ..Probed::default() }],
            stale: vec![Stale::default()],
            strikes: vec![Strike {
                planned,
                begun: 1,
                healed: 2,
                proof: Ok("killed".to_owned()),
                noticed_ms: Vec::new(),
            }],
            ..calls(&[call("a", 0, read("r"), run("r", "succeeded"))])
        }
    }

    #[test]
    fn a_pass_counts_only_with_enough_runs_successes_and_faults_that_struck() {
        let wanted = Wanted { faults: 1, runs: 1, deaths: 0 };
        assert_eq!(why_not(&told(), wanted), Vec::<String>::new());
        let one = |witnesses: &Witnesses, wanted| why_not(witnesses, wanted).join("\n");
        assert_eq!(one(&told(), Wanted { runs: 2, ..wanted }), "1 runs ended; 2 are needed");
        assert_eq!(one(&told(), Wanted { faults: 2, ..wanted }), "1 of 2 faults were struck");
        let mut failed = told();
        failed.done[0].succeeded = false;
        assert_eq!(one(&failed, wanted), "0 of 1 operations succeeded; 90 of 100 are needed");
        let mut unasked = told();
        (unasked.probed, unasked.stale) = (Vec::new(), Vec::new());
        assert_eq!(why_not(&unasked, wanted).len(), 2);
        let mut missed = told();
        missed.strikes[0].proof = Err("nobody came".to_owned());
        assert_eq!(one(&missed, wanted), "fault 0, F1, cannot be shown to have struck: nobody came");
    }

    #[test]
    fn a_pass_counts_only_if_programs_came_by_every_point_at_which_they_may_die() {
        let mut told = told();
        told.strikes[0].planned.kind = Kind::F2;
        let name = "before attempts::claim".to_owned();
        told.evidence.points.push(Point { name, passed: 1, ..Point::default() });
        let wanted = Wanted { faults: 1, runs: 1, deaths: 0 };
        assert_eq!(why_not(&told, wanted), Vec::<String>::new());
        told.evidence.points[0].passed = 0;
        assert_eq!(why_not(&told, wanted), ["no program came by before attempts::claim"]);
        told.strikes[0].planned.kind = Kind::F6;
        assert_eq!(why_not(&told, wanted), Vec::<String>::new(), "agents were to die");
        told.evidence.points[0].struck = 2;
        let thrice = Wanted { deaths: 3, ..wanted };
        assert_eq!(why_not(&told, thrice), Vec::<String>::new(), "agents were to die");
        told.strikes[0].planned.kind = Kind::F2;
        told.evidence.points[0].passed = 1;
        assert_eq!(why_not(&told, thrice), ["2 programs died before attempts::claim; 3 are needed"]);
    }
}
