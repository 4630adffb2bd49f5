//! Turns findings into a report: short failures are left out, and a cause hides its consequences.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use deskgate_protocol::Timestamp;

use super::{Finding, HealthProblem, HealthReport, IgnoredProblem, ProblemCode};

/// Keeps since when each problem exists.
#[derive(Debug, Default)]
pub struct ProblemTracker {
    seen: BTreeMap<(ProblemCode, Option<String>), (Instant, Timestamp)>,
}

impl ProblemTracker {
    /// The report of one check. `not_asked`: the skipped checks. Time is measured by `now` and shown as `at`.
    pub fn report(
        &mut self,
        mut findings: Vec<Finding>,
        not_asked: &BTreeSet<ProblemCode>,
        ignored: &[IgnoredProblem],
        now: Instant,
        at: Timestamp,
    ) -> HealthReport {
        findings.sort_by(|a, b| (a.code, &a.about).cmp(&(b.code, &b.about)));
        let key = |finding: &Finding| (finding.code, finding.about.clone());
        findings.dedup_by(|a, b| key(a) == key(b));
        let found: BTreeSet<_> = findings.iter().map(key).collect();
        self.seen.retain(|key, _| found.contains(key));
        let mut lasting = Vec::new();
        for finding in findings {
            let (first, since) = *self.seen.entry(key(&finding)).or_insert((now, at));
            if now.duration_since(first) >= finding.code.entry().delay {
                lasting.push((finding, since));
            }
        }
        let mut problems: Vec<HealthProblem> =
            lasting.iter().filter(|(finding, _)| root(finding, &lasting).is_none()).map(shown).collect();
        for (finding, _) in &lasting {
            let Some(root) = root(finding, &lasting) else { continue };
            let hides = |problem: &&mut HealthProblem| problem.code == root.code && problem.about == root.about;
            if let Some(problem) = problems.iter_mut().find(hides) {
                problem.hides.push(titled(finding));
            }
        }
        for problem in &mut problems {
            let still = |ignored: &IgnoredProblem| ignored.until.is_none_or(|until| until > at);
            problem.ignored = ignored.iter().any(|ignored| ignored.code == problem.code && still(ignored));
        }
        let absent = |code: &ProblemCode| !found.iter().any(|(found, _)| found == code);
        let codes = || ProblemCode::ENTRIES.iter().filter(|entry| absent(&entry.code));
        HealthReport {
            problems,
            fine: codes().filter(|entry| !not_asked.contains(&entry.code)).map(|entry| entry.fine.to_owned()).collect(),
            not_asked: codes().filter(|e| not_asked.contains(&e.code)).map(|entry| entry.fine.to_owned()).collect(),
        }
    }
}

/// The shown problem that caused a finding: about the same thing, or about everything.
fn root<'a>(finding: &Finding, all: &'a [(Finding, Timestamp)]) -> Option<&'a Finding> {
    let same = |other: &Finding| other.about.is_none() || finding.about.is_none() || other.about == finding.about;
    let follows = finding.code.entry().follows;
    let found = all.iter().map(|(other, _)| other).find(|other| follows.contains(&other.code) && same(other))?;
    // The consequence of a consequence belongs to the first cause.
    Some(root(found, all).unwrap_or(found))
}

fn titled(finding: &Finding) -> String {
    let title = finding.code.entry().title;
    finding.about.as_ref().map_or_else(|| title.to_owned(), |about| format!("{title}: {about}"))
}

fn shown((finding, since): &(Finding, Timestamp)) -> HealthProblem {
    let entry = finding.code.entry();
    HealthProblem {
        code: finding.code,
        severity: entry.severity,
        title: entry.title.to_owned(),
        about: finding.about.clone(),
        text: finding.text.clone(),
        next: finding.next.clone(),
        since: *since,
        hides: Vec::new(),
        ignored: false,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::health::Severity;

    fn found(code: ProblemCode, about: &str) -> Finding {
        Finding::about(code, about, "found", "do something")
    }

    fn look(board: &mut ProblemTracker, findings: &[Finding], now: Instant) -> HealthReport {
        board.report(findings.to_vec(), &BTreeSet::new(), &[], now, Timestamp::now())
    }

    fn codes(report: &HealthReport) -> Vec<ProblemCode> {
        report.problems.iter().map(|problem| problem.code).collect()
    }

    #[test]
    fn a_flap_is_no_alarm_and_what_lasts_keeps_its_beginning() {
        let (mut board, begin) = (ProblemTracker::default(), Instant::now());
        let away = [Finding::new(ProblemCode::GatewayUnreachable, "gone", "look")];
        let at = |seconds| begin + Duration::from_secs(seconds);
        assert_eq!(codes(&look(&mut board, &away, at(0))), []);
        assert_eq!(codes(&look(&mut board, &[], at(8))), []);
        assert_eq!(codes(&look(&mut board, &away, at(9))), [], "it begins anew");
        assert_eq!(codes(&look(&mut board, &away, at(18))), []);
        let shown = look(&mut board, &away, at(19));
        assert_eq!(codes(&shown), [ProblemCode::GatewayUnreachable]);
        assert!(shown.fails() && !shown.fine.contains(&"The gateway is reached".to_owned()));
        assert_eq!(look(&mut board, &away, at(60)), shown, "since the same moment");
    }

    #[test]
    fn a_cause_hides_its_consequences_about_the_same_thing_only() {
        let (mut board, now) = (ProblemTracker::default(), Instant::now());
        let findings = [
            found(ProblemCode::ServicePaused, "Reader"),
            found(ProblemCode::SandboxMissing, "Reader"),
            found(ProblemCode::ServicePaused, "Writer"),
            found(ProblemCode::FolderGone, "Reader"),
        ];
        assert_eq!(look(&mut board, &findings, now).problems.len(), 3, "the cause may pass by itself");
        let report = look(&mut board, &findings, now + Duration::from_secs(10));
        assert_eq!(codes(&report), [ProblemCode::FolderGone, ProblemCode::ServicePaused]);
        assert_eq!(report.problems[0].hides, ["Commands cannot be kept in: Reader", "A service is paused: Reader"]);
        assert_eq!(report.problems[1].about.as_deref(), Some("Writer"));
    }

    #[test]
    fn the_worst_is_first_and_what_is_ignored_counts_no_more_until_its_time_is_over() {
        let (mut board, now, at) = (ProblemTracker::default(), Instant::now(), Timestamp::now());
        let later = Timestamp::from(at.0.checked_add(Duration::from_secs(60)).expect("a minute on"));
        let findings = vec![found(ProblemCode::ApprovalExpires, "apr_1"), found(ProblemCode::FileLoose, "key")];
        let ignored = [IgnoredProblem { code: ProblemCode::FileLoose, until: Some(later) }];
        let mut report =
            |at| board.report(findings.clone(), &BTreeSet::from([ProblemCode::SandboxMissing]), &ignored, now, at);
        let before = report(at);
        assert_eq!(
            before.problems.iter().map(|problem| problem.severity).collect::<Vec<_>>(),
            [Severity::Fail, Severity::Warn]
        );
        assert!(before.problems[0].ignored && !before.fails() && before.open().count() == 1);
        assert_eq!(before.not_asked, ["Commands are kept in"]);
        assert!(report(later).fails());
    }
}
