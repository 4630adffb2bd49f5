//! Compares a receipt with the record of its run, as a caller has it from the gateway.

use serde::Serialize;
use serde_json::Value;

use super::jws::{InvalidReceipt, SignedReceipt};
use super::{OutcomeFacts, ReceiptEntry, subject_tag};
use crate::canonical::Sha256Digest;
use crate::ids::ApplicationId;

/// What does not hold between a record and its receipt.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Violation {
    /// The run has ended, and there is no receipt.
    #[error(
        "the record has no receipt: the gateway ended the run alone, or it withholds the device's word. Ask the device's \
         owner what `deskgate audit export` says of this run"
    )]
    NoReceipt,
    /// The run has not ended.
    #[error("the run has not ended: read it again once its `phase` is `final`")]
    NotFinal,
    /// The receipt cannot be read, or its signature does not fit.
    #[error("the receipt is not valid: {0}")]
    Invalid(#[from] InvalidReceipt),
    /// Another key signed it.
    #[error(
        "the receipt is signed by the key {0}, which is not one of those given: compare it with the fingerprint that the \
         device's owner gave you (`deskgate identity show`)"
    )]
    Key(String),
    /// It is not about an outcome.
    #[error("the receipt is about an offer, not about how a run ended: the device has not said this outcome")]
    NotAnOutcome,
    /// A member of the record differs from what the device signed.
    #[error(
        "`{member}` is not what the device signed: the record has {record}, the receipt {receipt}. Do not rely on this \
         record; ask the device's owner"
    )]
    Differs {
        /// The member of the record.
        member: &'static str,
        /// What the record has.
        record: String,
        /// What the receipt has.
        receipt: String,
    },
}

/// What the reader of a record knows besides it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Expected<'a> {
    /// The fingerprints of the keys that are trusted, as [`crate::identity::PublicKey::fingerprint`] writes them.
    pub fingerprints: &'a [String],
    /// The `input` that was submitted.
    pub input: Option<&'a Value>,
    /// The application and the subject that submitted it.
    pub subject: Option<(ApplicationId, &'a str)>,
}

/// Whether a key is one of those that are trusted.
///
/// # Errors
/// [`Violation::Key`] if it is not.
pub fn check_key(signed: &SignedReceipt, fingerprints: &[String]) -> Result<(), Violation> {
    let fingerprint = signed.key.fingerprint();
    if fingerprints.contains(&fingerprint) { Ok(()) } else { Err(Violation::Key(fingerprint)) }
}

/// Everything that does not hold between a run's record, as the API gives it, and the receipt in it. Empty: all holds.
pub fn check_record(record: &Value, expected: Expected<'_>) -> Vec<Violation> {
    if record.get("phase").and_then(Value::as_str) != Some("final") {
        return vec![Violation::NotFinal];
    }
    let Some(text) = record.get("receipt").and_then(Value::as_str) else { return vec![Violation::NoReceipt] };
    let signed = match SignedReceipt::read(text) {
        Ok(signed) => signed,
        Err(error) => return vec![error.into()],
    };
    let mut found = Vec::from_iter(check_key(&signed, expected.fingerprints).err());
    let ReceiptEntry::Outcome(outcome) = &signed.receipt.entry else {
        found.push(Violation::NotAnOutcome);
        return found;
    };
    found.extend(differences(record, &signed, outcome, expected));
    found
}

fn differences(
    record: &Value,
    signed: &SignedReceipt,
    outcome: &OutcomeFacts,
    expected: Expected<'_>,
) -> Vec<Violation> {
    let run = &signed.receipt.run;
    let mut found = Vec::new();
    let mut same = |member: &'static str, record: &Value, receipt: Value| {
        if *record != receipt {
            let (record, receipt) = (shown(record), shown(&receipt));
            found.push(Violation::Differs { member, record, receipt });
        }
    };
    let member = |pointer: &str| record.pointer(pointer).unwrap_or(&Value::Null);
    same("run_id", member("/run_id"), json(&run.run_id));
    same("endpoint_id", member("/endpoint_id"), json(&run.endpoint_id));
    same("endpoint_version", member("/endpoint_version"), json(&run.endpoint_version));
    same("conversation_id", member("/conversation_id"), json(&run.conversation_id));
    same("generation", member("/generation"), json(&run.generation));
    same("state", member("/state"), json(&outcome.state));
    same("error.code", member("/error/code"), json(&outcome.error_code));
    if member("/error/effects") != &Value::Null {
        same("error.effects", member("/error/effects"), json(&outcome.effects));
    }
    same("error", &digest(member("/error")), json(&outcome.error_sha256));
    // What was deleted is not there to be compared.
    if member("/content_deleted_at") == &Value::Null || member("/result") != &Value::Null {
        same("result", &digest(member("/result")), json(&outcome.result_sha256));
    }
    // Without it where the record has none, as in lists.
    for input in [record.get("input"), expected.input].into_iter().flatten() {
        same("input", &digest(input), json(&run.input_sha256));
    }
    if let Some((app_id, subject)) = expected.subject {
        same("subject", &json(&subject_tag(app_id, subject)), json(&run.subject_tag));
    }
    found
}

/// The digest of a member as text; null where there is none.
fn digest(value: &Value) -> Value {
    match value {
        Value::Null => Value::Null,
        // Numbers that no other reader would write alike have no canonical JSON.
        value => Sha256Digest::of_json(value).map_or(Value::from("no canonical JSON"), |digest| json(&digest)),
    }
}

fn json(value: &impl Serialize) -> Value {
    serde_json::to_value(value).expect("identifiers, digests, words and numbers are JSON")
}

/// At most so many characters of a foreign value are shown.
const MAX_SHOWN_CHARS: usize = 80;

fn shown(value: &Value) -> String {
    match value {
        Value::Null => "none".to_owned(),
        Value::String(text) => text.chars().take(MAX_SHOWN_CHARS).collect(),
        other => other.to_string().chars().take(MAX_SHOWN_CHARS).collect(),
    }
}
