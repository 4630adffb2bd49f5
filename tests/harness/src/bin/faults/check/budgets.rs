//! I22: what a device counts as used up is what its model said, answer for answer, through every crash; no model is
//! called for a run once the budget of its service is used up; and no run is refused before.
//!
//! An answer that was under way when the agent died, or that its run did not go on from, may be counted or not. One that
//! broke off, or that nobody can read, is counted as the device estimates it: its provider may bill it.

use std::collections::BTreeMap;

use super::{Observations, Violation};
use crate::callers::spender::{BUDGET_ERROR, desktop_of};
use crate::history::BudgetRecord;
use crate::plan::FaultKind;
use crate::testbed::fake_model::ModelTurn;
use crate::testbed::model_behaviour::ModelBehaviour;

/// Microseconds from an answer that is counted to the calls that must heed it: those that were under way are allowed.
const UNDER_WAY_US: u64 = 2_000_000;
/// The least room for an answer, in tokens; more than the device itself leaves is none of a judge's business.
const MIN_ROOM_TOKENS: u64 = 256;
/// The most that a run of this kind expects of its next call: what it read so far, and its answer.
const MAX_EXPECTED_TOKENS: u64 = 8000;
/// Faults by which an agent may stand still between its look at the budget and the call.
const STANDSTILLS: [FaultKind; 3] = [FaultKind::FreezeAgent, FaultKind::StopAndResumeAll, FaultKind::OverlapTwo];
/// Faults by which amounts go to another month, or cannot be written: what is said of a month is not judged then.
const UNJUDGED: [FaultKind; 2] = [FaultKind::SkewDeviceClock, FaultKind::FillDeviceDisk];
/// The most that a device estimates for an answer of which its model says no count.
const MAX_ESTIMATED_TOKENS: u64 = 8000;

pub(super) fn check(witnesses: &Observations) -> Vec<Violation> {
    let answers = answers(witnesses);
    let (mut violations, of_desktops) = counted(witnesses, &answers);
    if witnesses.strikes.iter().any(|strike| UNJUDGED.contains(&strike.kind())) {
        return violations;
    }
    violations.extend(missing_in_months(witnesses, &of_desktops));
    violations.extend(called_behind_it(witnesses, &answers));
    violations.extend(refused_before_it(witnesses, &answers));
    violations
}

/// How many runs were refused for a budget: without any, nothing was tried.
pub(super) fn refused(witnesses: &Observations) -> usize {
    let refused = witnesses.calls.iter().filter(|call| call.error == BUDGET_ERROR);
    refused.filter_map(|call| call.seen.run_id()).collect::<std::collections::BTreeSet<_>>().len()
}

/// An answer of a model to one of these jobs: whole, broken off, or unreadable.
struct Answer<'a> {
    turn: &'a ModelTurn,
    desktop: usize,
    /// When its run was seen to have gone on from it; `None`: it was not.
    went_on: Option<u64>,
}

impl Answer<'_> {
    /// The most that is counted for it.
    fn most_tokens(&self) -> u64 {
        if is_whole(self.turn) { self.turn.tokens } else { MAX_ESTIMATED_TOKENS }
    }
}

fn is_whole(turn: &ModelTurn) -> bool {
    turn.served == "whole"
}

/// Whether an answer came of which something is counted.
fn is_answer(turn: &ModelTurn) -> bool {
    is_whole(turn) || [ModelBehaviour::BreaksOff, ModelBehaviour::Babbles].iter().any(|way| turn.served == way.name())
}

/// The answers of each job.
fn answers(witnesses: &Observations) -> BTreeMap<&str, Vec<Answer<'_>>> {
    let mut turns: BTreeMap<&str, Vec<&ModelTurn>> = BTreeMap::new();
    for turn in &witnesses.turns {
        turns.entry(&turn.job).or_default().push(turn);
    }
    let (runs, seen) = (witnesses.runs_of_jobs(), witnesses.seen_of_runs());
    let succeeded = |job: &str| {
        let sights = runs.get(job).into_iter().flatten().filter_map(|run_id| seen.get(run_id)).flatten();
        sights.filter(|sight| sight.state == "succeeded").map(|sight| sight.call.ended).min()
    };
    let mut answers = BTreeMap::new();
    for (job, mut turns) in turns {
        let Some(desktop) = desktop_of(job) else { continue };
        turns.sort_by_key(|turn| turn.begun);
        let went_on = |place: usize| match turns.get(place + 1) {
            Some(next) => (next.place > turns[place].place).then_some(next.begun),
            None => succeeded(job),
        };
        let came = (0..turns.len()).filter(|place| is_answer(turns[*place]));
        let came = came.map(|place| Answer { turn: turns[place], desktop, went_on: went_on(place) });
        answers.insert(job, came.collect::<Vec<_>>());
    }
    answers
}

/// Runs of which the device counted less or more than the model said, and what the runs of each device used up.
fn counted(
    witnesses: &Observations,
    answers: &BTreeMap<&str, Vec<Answer<'_>>>,
) -> (Vec<Violation>, BTreeMap<usize, u64>) {
    let runs = witnesses.runs_of_jobs();
    let mut violations = Vec::new();
    let mut of_desktops: BTreeMap<usize, u64> = BTreeMap::new();
    for (job, answers) in answers {
        let sure = answers.iter().filter(|answer| is_whole(answer.turn) && answer.went_on.is_some());
        let least: u64 = sure.map(|answer| answer.turn.tokens).sum();
        let most: u64 = answers.iter().map(Answer::most_tokens).sum();
        let of_job = runs.get(job).into_iter().flatten();
        let counted: Vec<u64> = of_job.filter_map(|run_id| witnesses.evidence.spent.get(*run_id).copied()).collect();
        // Whoever could not be asked shows nothing.
        let [counted] = counted[..] else { continue };
        let from = answers.iter().map(|answer| answer.turn.begun).min().unwrap_or_default();
        let to = answers.iter().map(|answer| answer.turn.ended.max(answer.turn.begun)).max().unwrap_or_default();
        // What cannot be written is not counted either.
        if witnesses.was_disturbed(&[FaultKind::FillDeviceDisk], from, to) {
            continue;
        }
        if counted < least || counted > most {
            let text = format!("{counted} tokens of {job} are counted; its model reported {least} to {most}");
            violations.push(Violation::of("I22", answers.last().map(|answer| answer.turn.begun), text));
        }
        if let Some(answer) = answers.first() {
            *of_desktops.entry(answer.desktop).or_default() += counted;
        }
    }
    (violations, of_desktops)
}

/// Devices that counted less in the month than in their runs.
fn missing_in_months(witnesses: &Observations, of_desktops: &BTreeMap<usize, u64>) -> Vec<Violation> {
    let mut violations = Vec::new();
    for (desktop, of_runs) in of_desktops {
        let month = witnesses.evidence.month_spent.get(desktop).copied();
        if month.is_some_and(|month| month < *of_runs) {
            let text = format!("device {desktop} counts {month:?} tokens in this month, and {of_runs} of its runs");
            violations.push(Violation::of("I22", None, text));
        }
    }
    violations
}

/// Model calls for runs of a service whose budget was used up when they began.
fn called_behind_it(witnesses: &Observations, answers: &BTreeMap<&str, Vec<Answer<'_>>>) -> Vec<Violation> {
    let mut violations = Vec::new();
    for turn in &witnesses.turns {
        let Some(desktop) = desktop_of(&turn.job) else { continue };
        let since = turn.begun.saturating_sub(UNDER_WAY_US);
        if witnesses.was_disturbed(&STANDSTILLS, since, turn.begun) {
            continue;
        }
        let known = answers.values().flatten().filter(|answer| answer.desktop == desktop);
        let known = known.filter(|answer| is_whole(answer.turn) && answer.went_on.is_some_and(|at| at < since));
        let spent: u64 = known.map(|answer| answer.turn.tokens).sum();
        // A budget whose setting failed may hold all the same.
        let set = budgets(witnesses, desktop).filter(|budget| budget.begun < turn.begun);
        let Some(most) = set.map(|budget| budget.tokens).max() else { continue };
        if spent + MIN_ROOM_TOKENS > most {
            let text = format!("the model was called for {} with {spent} of {most} tokens used up", turn.job);
            violations.push(Violation::of("I22", turn.begun, text));
        }
    }
    violations
}

/// Runs that were refused for a budget that had room for their next call, or that called their model after that.
fn refused_before_it(witnesses: &Observations, answers: &BTreeMap<&str, Vec<Answer<'_>>>) -> Vec<Violation> {
    let jobs = witnesses.jobs_of_runs();
    let mut violations = Vec::new();
    for (run_id, sights) in witnesses.seen_of_runs() {
        let Some(end) = sights.iter().find(|sight| sight.call.error == BUDGET_ERROR) else { continue };
        let (at, begun) = (end.call.ended, sights[0].call.begun);
        let Some((job, desktop)) = jobs.get(run_id).and_then(|job| Some((*job, desktop_of(job)?))) else {
            violations.push(Violation::of("I22", at, format!("{run_id} has no budget, and was refused for one")));
            continue;
        };
        if end.state != "failed" {
            let text = format!("{job} is {} and was refused for its budget", end.state);
            violations.push(Violation::of("I22", at, text));
        }
        let before = |answer: &&Answer<'_>| answer.desktop == desktop && answer.turn.begun < at;
        let spent: u64 = answers.values().flatten().filter(before).map(Answer::most_tokens).sum();
        let sure = budgets(witnesses, desktop).filter(|budget| budget.is_taken && budget.ended < begun);
        let least = sure.map(|budget| budget.tokens).max().unwrap_or_default();
        if spent + MAX_EXPECTED_TOKENS < least {
            let text = format!("{job} was refused with at most {spent} of {least} tokens used up");
            violations.push(Violation::of("I22", at, text));
        }
        if let Some(turn) = witnesses.turns.iter().find(|turn| turn.job == job && turn.begun > at) {
            let text = format!("the model was called for {job} after it was refused for its budget");
            violations.push(Violation::of("I22", turn.begun, text));
        }
    }
    violations
}

fn budgets(witnesses: &Observations, desktop: usize) -> impl Iterator<Item = &BudgetRecord> {
    witnesses.budgets.iter().filter(move |budget| budget.desktop == desktop)
}

#[cfg(test)]
mod tests {
    use super::super::samples::{call, calls, read, run, strike, submit, texts};
    use super::*;

    const JOB: &str = "spend-0-j";

    /// A run of two answers of 4000 tokens each, of which the device counted so many, and that ended in a state.
    fn told(counted: u64, state: &str) -> Observations {
        let mut witnesses =
            calls(&[call("a", 10, submit(JOB), run("r", "queued")), call("a", 9_000_000, read("r"), run("r", state))]);
        let turn = |place, begun| ModelTurn {
            job: JOB.to_owned(),
            place,
            begun,
            served: "whole".to_owned(),
            tokens: 4000,
            ..ModelTurn::default()
        };
        witnesses.turns = vec![turn(0, 20), turn(2, 4_000_000)];
        witnesses.evidence.spent.insert("r".to_owned(), counted);
        witnesses.evidence.month_spent.insert(0, 8000);
        witnesses.budgets = vec![BudgetRecord { desktop: 0, begun: 1, ended: 2, tokens: 10_000, is_taken: true }];
        witnesses
    }

    fn refused_run(tokens: u64) -> Observations {
        let mut witnesses = told(8000, "failed");
        witnesses.calls[1].error = BUDGET_ERROR.to_owned();
        witnesses.budgets[0].tokens = tokens;
        witnesses
    }

    #[test]
    fn what_the_model_said_is_counted_and_nothing_else() {
        assert_eq!(check(&told(8000, "succeeded")), []);
        assert!(texts(&check(&told(4000, "succeeded"))).contains("4000 tokens of spend-0-j are counted"));
        assert_eq!(check(&told(4000, "failed")), [], "its last answer was under way");
        assert!(texts(&check(&told(8001, "succeeded"))).contains("reported 8000 to 8000"));
        let mut restarted = told(4000, "succeeded");
        restarted.turns[1].place = 0;
        assert_eq!(check(&restarted), [], "the first answer was lost with the agent");
        for way in [ModelBehaviour::BreaksOff, ModelBehaviour::Babbles] {
            let mut broken = told(9000, "succeeded");
            let begun = 3_000_000;
            broken.turns.push(ModelTurn { begun, served: way.name(), tokens: 0, ..broken.turns[1].clone() });
            broken.evidence.month_spent.insert(0, 9000);
            assert_eq!(check(&broken), [], "one had no count, and was estimated: {way:?}");
            broken.evidence.spent.insert("r".to_owned(), 16_001);
            assert!(texts(&check(&broken)).contains("reported 8000 to 16000"), "{way:?}");
        }
        let mut refused = told(9000, "succeeded");
        refused.turns.push(ModelTurn { begun: 3_000_000, served: "Refuses".to_owned(), ..refused.turns[1].clone() });
        refused.evidence.month_spent.insert(0, 9000);
        assert!(texts(&check(&refused)).contains("reported 8000 to 8000"), "a refusal costs nothing");
        let mut less = told(8000, "succeeded");
        less.evidence.month_spent.insert(0, 7999);
        assert!(texts(&check(&less)).contains("counts Some(7999) tokens in this month, and 8000 of its runs"));
    }

    #[test]
    fn a_month_is_not_judged_by_a_wrong_clock_and_a_run_is() {
        let mut skewed = told(4000, "succeeded");
        skewed.evidence.month_spent.insert(0, 0);
        skewed.strikes.push(strike(FaultKind::SkewDeviceClock, 15, "skewed"));
        assert_eq!(texts(&check(&skewed)).matches("I22").count(), 1, "{:?}", check(&skewed));
        skewed.evidence.spent.insert("r".to_owned(), 8000);
        assert_eq!(check(&skewed), []);
        let mut full = told(4000, "succeeded");
        full.strikes.push(strike(FaultKind::FillDeviceDisk, 30, "filled"));
        assert_eq!(check(&full), [], "it could not be written");
    }

    #[test]
    fn a_call_behind_the_budget_is_found_but_not_one_that_was_under_way() {
        let third = |begun| {
            let mut witnesses = told(12_000, "succeeded");
            witnesses.budgets[0].tokens = 8000;
            witnesses.turns.push(ModelTurn { begun, place: 4, ..witnesses.turns[1].clone() });
            witnesses.turns.push(ModelTurn { begun: begun + 1, place: 6, tokens: 0, ..witnesses.turns[1].clone() });
            witnesses.evidence.month_spent.insert(0, 12_000);
            witnesses
        };
        assert_eq!(check(&third(4_100_000)), []);
        let mut late = third(4_100_000);
        late.turns.push(ModelTurn { begun: 6_200_000, place: 8, tokens: 0, ..late.turns[1].clone() });
        assert!(texts(&check(&late)).contains("with 12000 of 8000 tokens used up"));
        late.budgets.push(BudgetRecord {
            begun: 6_000_000,
            tokens: 20_000,
            is_taken: false,
            ..late.budgets[0].clone()
        });
        assert_eq!(check(&late), [], "it was raised");
    }

    #[test]
    fn a_run_that_is_refused_too_early_or_goes_on_after_it_is_found() {
        assert_eq!((check(&refused_run(8500)), refused(&refused_run(8500))), (Vec::new(), 1));
        assert!(texts(&check(&refused_run(100_000))).contains("refused with at most 8000 of 100000"));
        let mut on = refused_run(8500);
        on.turns[1].begun = 9_500_000;
        assert!(texts(&check(&on)).contains("called for spend-0-j after it was refused"));
        let mut other = refused_run(8500);
        (other.calls[0].asked, other.turns, other.evidence) = (submit("j"), Vec::new(), Default::default());
        assert!(texts(&check(&other)).contains("r has no budget"));
        let mut done = refused_run(8500);
        done.calls[1].seen = run("r", "succeeded");
        assert!(texts(&check(&done)).contains("is succeeded and was refused"));
    }
}
