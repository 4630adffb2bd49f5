//! Receipts: only what a device signed is read, as exactly the bytes it signed; no record and no order of receipts makes
//! the checks fail otherwise than by naming what does not hold.

use std::sync::LazyLock;

use deskgate_protocol::Timestamp;
use deskgate_protocol::canonical::Sha256Digest;
use deskgate_protocol::receipt::chain::ChainCheck;
use deskgate_protocol::receipt::check::{Expected, check_record};
use deskgate_protocol::receipt::jws::{ReceiptSigner, SignedReceipt, looks_like_receipt};
use deskgate_protocol::receipt::{
    OfferAnswer, OfferFacts, OutcomeDecider, OutcomeFacts, RECEIPT_VERSION, Receipt, ReceiptEntry, RunFacts,
};
use deskgate_protocol::run::{Effects, Outcome, RunResult, Usage};
use serde_json::Value;

/// Judges a text as a receipt, as a record of a run, and line by line as a chain. `{offer}` and `{outcome}` stand for two
/// receipts of one device, `{record}` for the record that the second belongs to.
pub fn judge(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let text = text.replace("{offer}", &MADE[0]).replace("{outcome}", &MADE[1]).replace("{record}", &RECORD);
    receipt(text.trim());
    let fingerprints = [SIGNER.public_key().fingerprint()];
    if let Ok(record) = serde_json::from_str::<Value>(&text) {
        let expected = Expected { fingerprints: &fingerprints, ..Expected::default() };
        if check_record(&record, expected).is_empty() {
            let result = record.get("result").and_then(|result| Sha256Digest::of_json(result).ok());
            assert_eq!(result, Some(Sha256Digest::of(RESULT.as_bytes())), "another result holds: {record}");
            assert_eq!(record.get("state").and_then(Value::as_str), Some("succeeded"), "{record}");
        }
    }
    let mut chains = [ChainCheck::whole(), ChainCheck::some()];
    for line in text.lines() {
        if let Ok(signed) = SignedReceipt::read(line) {
            let found = chains.each_mut().map(|chain| chain.next(&signed));
            assert!(found[1].iter().all(|violation| found[0].contains(violation)), "{found:?}");
        }
    }
}

fn receipt(text: &str) {
    let Ok(signed) = SignedReceipt::read(text) else { return };
    assert!(looks_like_receipt(text), "what is read is also kept");
    if signed.key == SIGNER.public_key() {
        assert!(MADE.iter().any(|made| made == text), "a forged receipt, or a second text of one: {text}");
        assert_eq!(SIGNER.sign(&signed.receipt), text);
    }
}

const RESULT: &str = r#"{"finish_reason":"completed","text":"Two are open."}"#;

static SIGNER: LazyLock<ReceiptSigner> = LazyLock::new(|| ReceiptSigner::from_seed([7; 32]));

fn run() -> RunFacts {
    RunFacts {
        run_id: "run_018f3b6e0000700080000000000000a1".parse().expect("an identifier"),
        attempt: 1,
        endpoint_id: "ep_018f3b6e0000700080000000000000e1".parse().expect("an identifier"),
        endpoint_version: 1,
        definition_sha256: Sha256Digest::of(b"definition"),
        input_sha256: Sha256Digest::of(br#"{"text":"work"}"#),
        app_id: None,
        subject_tag: None,
        conversation_id: None,
        generation: None,
    }
}

/// An offer that was taken, and its outcome.
static MADE: LazyLock<[String; 2]> = LazyLock::new(|| {
    let at: Timestamp = "2026-11-21T09:14:50.123Z".parse().expect("a time");
    let offer = OfferFacts { offered_at: at, answer: OfferAnswer::Taken, unlisted: 0 };
    let first =
        Receipt { v: RECEIPT_VERSION, device_seq: 1, prev: None, run: run(), entry: ReceiptEntry::Offer(offer) };
    let first = SIGNER.sign(&first);
    let result = RunResult::completed("Two are open.");
    let outcome = Outcome::Succeeded { result, usage: Usage::default() };
    let facts = OutcomeFacts::of(&outcome, Effects::None, OutcomeDecider::Device, Vec::new(), Some(at), at);
    let entry = ReceiptEntry::Outcome(facts.expect("canonical JSON"));
    let prev = Some(Sha256Digest::of(first.as_bytes()));
    let second = Receipt { v: RECEIPT_VERSION, device_seq: 2, prev, run: run(), entry };
    [first, SIGNER.sign(&second)]
});

static RECORD: LazyLock<String> = LazyLock::new(|| {
    let RunFacts { run_id, endpoint_id, .. } = run();
    format!(
        r#"{{"run_id":"{run_id}","endpoint_id":"{endpoint_id}","endpoint_version":1,"phase":"final","state":"succeeded","attempt":1,"input":{{"text":"work"}},"result":{RESULT},"receipt":"{}"}}"#,
        MADE[1]
    )
});
