use ed25519_dalek::SigningKey;
use proptest::prelude::*;
use serde_json::json;

use super::chain::{BrokenChain, ChainCheck};
use super::check::{Expected, Violation, check_record};
use super::jws::{InvalidReceipt, ReceiptSigner, SignedReceipt, looks_like_receipt};
use super::*;
use crate::run::{Input, RunError, RunResult, Usage};

fn key() -> SigningKey {
    SigningKey::from_bytes(&[7; 32])
}

fn signer() -> ReceiptSigner {
    ReceiptSigner::from_seed([7; 32])
}

fn offer() -> Offer {
    Offer {
        run_id: "run_01a1fdacce837753badf368b3b8b6a04".parse().expect("valid"),
        attempt: 1,
        endpoint_id: "ep_01a1fd9b2f7c7a10b5d2f0a9c3e4d5f6".parse().expect("valid"),
        endpoint_version: 3,
        definition_sha256: Sha256Digest::of(b"definition"),
        subject: Some("u-1".to_owned()),
        input: Input {
            text: "Which?".to_owned(),
            more: json!({ "customer": 4711 }).as_object().cloned().expect("one"),
        },
        output: None,
        conversation: None,
        generation: None,
        max_duration_s: 60,
        traceparent: None,
        depth: 0,
    }
}

fn app_id() -> ApplicationId {
    ApplicationId::from(uuid::Uuid::nil())
}

fn succeeded() -> Outcome {
    let result = RunResult::completed("Two.");
    Outcome::Succeeded { result, usage: Usage::default() }
}

fn at() -> Timestamp {
    "2026-11-21T09:14:50.123Z".parse().expect("valid")
}

fn call(name: &str) -> CallFacts {
    let approval =
        ApprovalFacts { id: ApprovalId::new(), decision: ApprovalDecision::ApprovedForRun, decided_at: at() };
    CallFacts {
        attempt: u32::MAX,
        name: name.to_owned(),
        args_sha256: Sha256Digest::of(b"{}"),
        status: CallStatus::NotRun,
        approval: Some(approval),
    }
}

fn receipt_of(outcome: &Outcome, seq: u64, prev: Option<Sha256Digest>) -> Receipt {
    let facts = OutcomeFacts::of(outcome, Effects::None, OutcomeDecider::Device, Vec::new(), Some(at()), at());
    Receipt {
        v: RECEIPT_VERSION,
        device_seq: seq,
        prev,
        run: RunFacts::of(&offer(), Some(app_id())).expect("canonical"),
        entry: ReceiptEntry::Outcome(facts.expect("canonical")),
    }
}

fn record(outcome: &Outcome) -> Value {
    let Outcome::Succeeded { result, .. } = outcome else { panic!("a success") };
    json!({
        "run_id": offer().run_id,
        "endpoint_id": offer().endpoint_id,
        "endpoint_version": 3,
        "phase": "final",
        "state": "succeeded",
        "attempt": 1,
        "input": offer().input,
        "result": result,
        "receipt": signer().sign(&receipt_of(outcome, 1, None)),
    })
}

fn pinned() -> Vec<String> {
    vec![crate::identity::PublicKey::of(&key()).fingerprint()]
}

fn violations(change: impl FnOnce(&mut Value)) -> Vec<Violation> {
    let mut record = record(&succeeded());
    change(&mut record);
    let input = json!({ "customer": 4711, "text": "Which?" });
    let fingerprints = pinned();
    check_record(
        &record,
        Expected { fingerprints: &fingerprints, input: Some(&input), subject: Some((app_id(), "u-1")) },
    )
}

fn member(violations: &[Violation]) -> Vec<&'static str> {
    let name = |violation: &Violation| match violation {
        Violation::Differs { member, .. } => *member,
        other => panic!("another violation: {other}"),
    };
    violations.iter().map(name).collect()
}

#[test]
fn a_record_with_its_own_receipt_holds() {
    assert_eq!(violations(|_| {}), []);
    // The record counts how often the run began, and the receipt numbers its offers.
    assert_eq!(violations(|record| record["attempt"] = 7.into()), []);
}

#[test]
fn every_member_that_a_gateway_may_change_is_found() {
    assert_eq!(member(&violations(|record| record["result"]["text"] = "Three.".into())), ["result"]);
    assert_eq!(member(&violations(|record| record["result"]["more"] = 1.into())), ["result"]);
    assert_eq!(member(&violations(|record| record["input"]["customer"] = 4712.into())), ["input"]);
    assert_eq!(member(&violations(|record| record["endpoint_version"] = 4.into())), ["endpoint_version"]);
    assert_eq!(member(&violations(|record| record["run_id"] = RunId::new().to_string().into())), ["run_id"]);
    let failed = violations(|record| {
        let error = json!({ "code": "internal", "message": "no", "retryable": true, "effects": "known" });
        record["state"] = "failed".into();
        record["error"] = error;
        record.as_object_mut().expect("an object").remove("result");
    });
    assert_eq!(member(&failed), ["state", "error.code", "error.effects", "error", "result"]);
}

#[test]
fn another_subject_another_key_and_a_missing_receipt_are_named() {
    let record = record(&succeeded());
    let fingerprints = pinned();
    let other =
        check_record(&record, Expected { fingerprints: &fingerprints, input: None, subject: Some((app_id(), "u-2")) });
    assert_eq!(member(&other), ["subject"]);
    let unpinned = check_record(&record, Expected::default());
    assert!(matches!(unpinned[..], [Violation::Key(_)]));
    assert_eq!(violations(|record| record["receipt"] = Value::Null), [Violation::NoReceipt]);
    assert_eq!(violations(|record| record["phase"] = "started".into()), [Violation::NotFinal]);
}

#[test]
fn a_receipt_is_read_only_as_it_was_written() {
    let receipt = receipt_of(&succeeded(), 1, None);
    let text = signer().sign(&receipt);
    let read = SignedReceipt::read(&text).expect("good");
    assert_eq!((read.receipt, read.key), (receipt, crate::identity::PublicKey::of(&key())));
    assert!(looks_like_receipt(&text));
    for (index, byte) in text.bytes().enumerate() {
        let other = if byte == b'A' { 'B' } else { 'A' };
        let mut changed = text.clone();
        changed.replace_range(index..=index, &other.to_string());
        assert!(SignedReceipt::read(&changed).is_err(), "character {index}");
    }
    assert_eq!(SignedReceipt::read(&format!("{text}=")), Err(InvalidReceipt::NotCompact));
    assert_eq!(SignedReceipt::read(&format!("{text}.")), Err(InvalidReceipt::NotCompact));
}

/// A JWS with this header and payload, signed by the right key.
fn signed(header: &str, payload: &str) -> String {
    use base64::Engine as _;
    use ed25519_dalek::Signer as _;
    let part = |bytes: &[u8]| base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(bytes);
    let text = format!("{}.{}", part(header.as_bytes()), part(payload.as_bytes()));
    let signature = part(&key().sign(text.as_bytes()).to_bytes());
    format!("{text}.{signature}")
}

fn parts() -> (String, String) {
    use base64::Engine as _;
    let text = signer().sign(&receipt_of(&succeeded(), 1, None));
    let mut parts = text.split('.').map(|part| {
        let bytes = base64::engine::general_purpose::URL_SAFE_NO_PAD.decode(part).expect("base64url");
        String::from_utf8_lossy(&bytes).into_owned()
    });
    (parts.next().expect("a header"), parts.next().expect("a payload"))
}

#[test]
fn a_good_signature_over_anything_else_is_refused() {
    let (header, payload) = parts();
    let read = |header: &str, payload: &str| SignedReceipt::read(&signed(header, payload)).map(|_| ());
    assert_eq!(read(&header, &payload), Ok(()));
    for (from, to, why) in [
        ("EdDSA", "none", InvalidReceipt::Algorithm),
        ("EdDSA", "HS256", InvalidReceipt::Algorithm),
        ("\"typ\"", "\"crit\":[\"exp\"],\"typ\"", InvalidReceipt::Header),
        ("\"typ\"", "\"kid\":\"1\",\"typ\"", InvalidReceipt::Header),
        ("{\"alg\":\"EdDSA\"", "{\"alg\":\"EdDSA\",\"alg\":\"EdDSA\"", InvalidReceipt::Header),
        ("{\"alg\"", "{ \"alg\"", InvalidReceipt::Header),
        ("receipt+jwt", "other+jwt", InvalidReceipt::Header),
    ] {
        assert!(header.contains(from), "{from}");
        assert_eq!(read(&header.replace(from, to), &payload), Err(why), "{to}");
    }
    for (from, to, why) in [
        ("\"v\":1", "\"v\":2", InvalidReceipt::Version(2)),
        ("\"v\":1", "\"v\":1,\"w\":1", InvalidReceipt::Payload),
        ("\"v\":1", "\"v\":1,\"v\":1", InvalidReceipt::Payload),
        ("\"attempt\":1", "\"attempt\": 1", InvalidReceipt::Payload),
        ("\"attempt\":1", "\"attempt\":1.0", InvalidReceipt::Payload),
        ("\"kind\":\"outcome\"", "\"kind\":\"wish\"", InvalidReceipt::Payload),
    ] {
        assert!(payload.contains(from), "{from}");
        assert_eq!(read(&header, &payload.replace(from, to)), Err(why), "{to}");
    }
}

#[test]
fn the_largest_receipt_fits_and_the_rest_of_its_calls_is_a_digest() {
    let name = call_name(&"\u{1F980}\"\\\n".repeat(200));
    assert_eq!((call_name("files__read"), name.as_str()), ("files__read".to_owned(), "?".repeat(64).as_str()));
    let calls: Vec<_> = (0..MAX_LISTED_CALLS + 3).map(|_| call(&name)).collect();
    let facts = OutcomeFacts::of(&succeeded(), Effects::Known, OutcomeDecider::Owner, calls.clone(), Some(at()), at())
        .expect("canonical");
    let more = facts.more_tools.expect("more than are listed");
    assert_eq!((facts.tools.len(), more.count), (MAX_LISTED_CALLS, 3));
    assert_eq!(more.sha256, Sha256Digest::of_json(&calls[MAX_LISTED_CALLS..].to_vec()).expect("canonical"));
    let mut receipt = receipt_of(&succeeded(), (1 << 53) - 1, Some(Sha256Digest::of(b"")));
    receipt.run.conversation_id = Some(ConversationId::new());
    receipt.run.generation = Some(u32::MAX);
    receipt.entry = ReceiptEntry::Outcome(facts);
    let text = signer().sign(&receipt);
    assert!(text.len() <= MAX_RECEIPT_BYTES, "{}", text.len());
    assert_eq!(SignedReceipt::read(&text).expect("good").receipt, receipt);
}

#[test]
fn an_outcome_fits_only_its_own_receipt() {
    let ReceiptEntry::Outcome(facts) = receipt_of(&succeeded(), 1, None).entry else { panic!("an outcome") };
    assert!(facts.fits(&succeeded()));
    let code = RunErrorCode::Interrupted;
    let error = RunError { code, message: String::new(), retryable: false, effects: Effects::None };
    assert!(!facts.fits(&Outcome::Failed { error, usage: Usage::default() }));
    assert!(!facts.fits(&Outcome::Cancelled { effects: Effects::None, usage: Usage::default() }));
}

#[test]
fn a_subject_tag_is_what_a_backend_computes() {
    let text = format!(r#"["deskgate subject v1","{}","u-1"]"#, app_id());
    assert_eq!(subject_tag(app_id(), "u-1"), Sha256Digest::of(text.as_bytes()));
}

/// A chain of so many receipts, each of another run.
fn chain(len: u64) -> Vec<SignedReceipt> {
    let mut prev = None;
    let made = (1..=len).map(|seq| {
        let mut receipt = receipt_of(&succeeded(), seq, prev);
        receipt.run.run_id = RunId::new();
        let signed = SignedReceipt::read(&signer().sign(&receipt)).expect("good");
        prev = Some(signed.sha256);
        signed
    });
    made.collect()
}

fn broken(mut check: ChainCheck, receipts: &[SignedReceipt]) -> Vec<BrokenChain> {
    receipts.iter().flat_map(|receipt| check.next(receipt)).collect()
}

#[test]
fn a_chain_holds_from_any_receipt_on_and_every_break_is_named() {
    let chain = chain(6);
    assert_eq!(broken(ChainCheck::whole(), &chain), []);
    assert_eq!(broken(ChainCheck::whole(), &chain[2..]), []);
    let without = |index: usize| [&chain[..index], &chain[index + 1..]].concat();
    assert_eq!(broken(ChainCheck::whole(), &without(3)), [BrokenChain::Gap { from: 4, to: 4 }]);
    assert_eq!(broken(ChainCheck::some(), &without(3)), []);
    let twice = [&chain[..3], &chain[2..]].concat();
    assert_eq!(broken(ChainCheck::whole(), &twice), [BrokenChain::Repeated(3)]);
    let mut swapped = chain.clone();
    swapped.swap(2, 3);
    let found = broken(ChainCheck::whole(), &swapped);
    assert!(found.contains(&BrokenChain::Order { seq: 3, after: 4 }), "{found:?}");
    assert_eq!(broken(ChainCheck::some(), &swapped), []);
    let mut foreign = chain.clone();
    foreign[3] = self::chain(6).remove(3);
    assert_eq!(broken(ChainCheck::whole(), &foreign), [BrokenChain::Link(4), BrokenChain::Link(5)]);
    let forked = [chain.clone(), vec![foreign.remove(3)]].concat();
    assert_eq!(broken(ChainCheck::some(), &forked), [BrokenChain::Forked(4)]);
}

#[test]
fn a_second_outcome_of_one_attempt_is_named() {
    let first = SignedReceipt::read(&signer().sign(&receipt_of(&succeeded(), 1, None))).expect("good");
    let second = signer().sign(&receipt_of(&succeeded(), 2, Some(first.sha256)));
    let second = SignedReceipt::read(&second).expect("good");
    let (run_id, attempt) = (offer().run_id, 1);
    assert_eq!(broken(ChainCheck::whole(), &[first, second]), [BrokenChain::SecondOutcome { seq: 2, run_id, attempt }]);
}

proptest! {
    #[test]
    fn no_text_makes_the_reader_fail_otherwise_than_with_an_error(text in ".{0,300}") {
        prop_assert!(SignedReceipt::read(&text).is_err());
    }
}
