//! I20: a refusal is 409, or 429 or 503 with a retry time, or a closed connection; never 500.

use super::{Observations, Violation};
use crate::history::{CallAction, CallRecord};

pub(super) fn check(witnesses: &Observations) -> Vec<Violation> {
    let told = |call: &CallRecord| {
        let status = call.status.unwrap_or_default();
        let how = if call.retry_after { "with" } else { "without" };
        let text =
            format!("{} {:?} was refused with {status} {} {how} Retry-After", call.caller, call.asked, call.code);
        Violation::of("I20", call.begun, text)
    };
    witnesses.calls.iter().filter(|call| !is_honest(call)).map(told).collect()
}

fn is_honest(call: &CallRecord) -> bool {
    match call.status {
        None | Some(200..=299 | 409) => true,
        Some(429 | 503) => call.retry_after,
        // Whether a file may be gone is judged by I24.
        Some(404) => matches!(call.asked, CallAction::DeleteFile { .. } | CallAction::FindFile { .. }),
        Some(401) => matches!(call.asked, CallAction::Event { forged: true, .. } | CallAction::Guest { .. }),
        // The key of a disabled application.
        Some(403) => matches!(call.asked, CallAction::Guest { .. }),
        Some(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::super::samples::{calls, texts};
    use super::*;

    #[test]
    fn a_500_and_a_503_that_says_nothing_are_found() {
        let call = |status, retry_after| CallRecord { status, retry_after, ..CallRecord::default() };
        let good = [call(None, false), call(Some(202), false), call(Some(503), true), call(Some(409), false)];
        assert_eq!(check(&calls(&good)), []);
        let forged =
            CallRecord { asked: CallAction::Event { job: "j".to_owned(), forged: true }, ..call(Some(401), false) };
        assert_eq!(check(&calls(&[forged])), []);
        let guest = CallRecord { asked: CallAction::Guest { name: "g".to_owned() }, ..call(Some(403), false) };
        assert_eq!(check(&calls(&[guest])), []);
        for bad in [
            call(Some(403), false),
            call(Some(401), false),
            call(Some(500), true),
            call(Some(503), false),
            call(Some(404), false),
        ] {
            assert!(texts(&check(&calls(&[bad]))).contains("was refused with"));
        }
    }
}
