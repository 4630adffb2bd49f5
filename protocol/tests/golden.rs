//! Golden files: everything the two halves say to each other, as it stands on the wire.
//!
//! Each file in `golden/` is one JSON object with a sample a line, in canonical JSON (RFC 8785). A
//! sample must read back as the value it was made from, and the value must be written byte for byte
//! as it stands there. So a renamed member, a lost variant or a changed default shows as a difference
//! that somebody has to look at: an older half sends exactly these texts.
//!
//! A new variant does not compile until a sample is listed for it. Then `DESKGATE_REWRITE_GOLDEN=1
//! cargo test -p deskgate-protocol --test golden` writes the files anew; read the difference before
//! committing it. A changed line breaks halves of other versions, an added line does not.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::path::PathBuf;

use deskgate_protocol::canonical::Sha256Digest;
use deskgate_protocol::control::*;
use deskgate_protocol::frame::{decode, encode};
use deskgate_protocol::identity::{IdentityFile, PublicKey};
use deskgate_protocol::management::*;
use deskgate_protocol::run::*;
use deskgate_protocol::service::{Endpoint, EndpointDevice};
use deskgate_protocol::*;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::json;
use serde_json::value::RawValue;
use uuid::Uuid;

/// Lists samples for every variant of an enum; a variant without one does not compile.
macro_rules! every {
    ($file:ident, $kind:ident { $($variant:ident: $($sample:expr),+;)* }) => {{
        fn _is_listed(value: &$kind) {
            match value {
                $($kind::$variant { .. } => {})*
            }
        }
        $(for (number, sample) in [$($sample),+].into_iter().enumerate() {
            assert!(matches!(sample, $kind::$variant { .. }), "a sample of {} stands elsewhere", stringify!($variant));
            let number = if number == 0 { String::new() } else { format!(" {}", number + 1) };
            $file.sample(concat!(stringify!($kind), " ", stringify!($variant)).to_owned() + &number, sample);
        })*
    }};
}

#[test]
fn every_frame_of_a_gateway_is_written_and_read_as_ever() {
    let mut file = Golden::open("gateway_frames");
    let (run_id, attempt) = (run_id(), 2);
    every!(file, GatewayFrame {
        Challenge: GatewayFrame::Challenge(challenge());
        Welcome: GatewayFrame::Welcome(welcome());
        Refused: GatewayFrame::Refused(refused()), GatewayFrame::Refused(refused_in_short());
        Offer: GatewayFrame::Offer(offer()), GatewayFrame::Offer(Offer { traceparent: None, ..offer() });
        Start: GatewayFrame::Start { run_id, attempt };
        Revoke: GatewayFrame::Revoke { run_id, attempt, code: RevokeCode::StaleAttempt };
        Ack: GatewayFrame::Ack { run_id, attempt, through: 17 };
        Reply: GatewayFrame::Reply { request_id: 9, result: ManagementResult::Ok(json!({ "enabled": true })) },
            GatewayFrame::Reply { request_id: 10, result: ManagementResult::Error(management_error()) };
        Ping: GatewayFrame::Ping;
        Drain: GatewayFrame::Drain;
        Bye: GatewayFrame::Bye { code: ByeCode::Replaced, message: "a newer session took over".to_owned() };
    });
    file.close();
}

fn delta() -> MessageDelta {
    MessageDelta { message_id: "msg_1".to_owned(), offset: 12, text: "Größe: 3\n".to_owned() }
}

#[test]
fn every_frame_of_a_device_is_written_and_read_as_ever() {
    let mut file = Golden::open("device_frames");
    let (run_id, attempt) = (run_id(), 2);
    let event = |event| DeviceFrame::Event { run_id, attempt, seq: 3, event };
    let finish = |outcome| DeviceFrame::Finish { run_id, attempt, seq: 4, outcome };
    every!(file, DeviceFrame {
        Hello: DeviceFrame::Hello(hello());
        Ready: DeviceFrame::Ready { slots: 4 };
        Accept: DeviceFrame::Accept { run_id, attempt };
        Refuse: DeviceFrame::Refuse { run_id, attempt, code: RefuseCode::Busy };
        Event: event(DeviceEvent::UsageUpdated { usage: usage() });
        Delta: DeviceFrame::Delta { run_id, attempt, delta: delta() };
        Finish: finish(Outcome::Cancelled { effects: Effects::None, usage: Usage::default() });
        Request: DeviceFrame::Request { request_id: 9, request: GetAccess {}.into() };
        Pong: DeviceFrame::Pong;
    });
    let (call_id, tool) = ("call_1".to_owned(), "Read".to_owned());
    every!(file, DeviceEvent {
        ToolStarted: DeviceEvent::ToolStarted { call_id: call_id.clone(), tool: tool.clone(), kind: ToolKind::Read };
        ToolCompleted: DeviceEvent::ToolCompleted { call_id, tool, kind: ToolKind::Read, status: ToolStatus::Ok };
        MessageCompleted: DeviceEvent::MessageCompleted { message_id: "msg_1".to_owned(), text: "Größe: 3\n".to_owned() };
        UsageUpdated: DeviceEvent::UsageUpdated { usage: usage() };
    });
    every!(file, Outcome {
        Succeeded: Outcome::Succeeded { result: result(), usage: usage() };
        Failed: Outcome::Failed { error: run_error(), usage: usage() };
        Cancelled: Outcome::Cancelled { effects: Effects::Possible, usage: usage() };
    });
    file.close();
}

/// Lists a request and its reply for every call; a call without them does not compile.
macro_rules! every_call {
    ($file:ident, { $($name:ident: $request:expr => $reply:expr;)* }) => {{
        fn _is_listed(request: &ManagementRequest) {
            match request {
                $(ManagementRequest::$name(_) => {})*
            }
        }
        $(
            let request: ManagementRequest = $request.into();
            assert!(matches!(request, ManagementRequest::$name(_)));
            $file.sample(stringify!($name).to_owned(), request);
            let reply: <$name as Call>::Reply = $reply;
            $file.sample(concat!(stringify!($name), " reply").to_owned(), reply);
        )*
    }};
}

#[test]
fn every_management_call_and_its_reply_are_written_and_read_as_ever() {
    let mut file = Golden::open("management");
    let (app_id, name) = (app_id(), "invoices".to_owned());
    let created_key = || CreatedKey { key: key(), text: "dgk_only_shown_once".to_owned() };
    let publish = PublishEndpoint {
        app_id,
        endpoint_id: endpoint_id(),
        version: 3,
        name: name.clone(),
        description: "Answers questions about invoices.".to_owned(),
        definition_sha256: digest(),
    };
    let create_key = CreateKey {
        app_id,
        name: "nightly".to_owned(),
        scopes: Scope::ALL.to_vec(),
        endpoints: vec![endpoint_id()],
        fixed_subject: Some("anna".to_owned()),
        expires_at: Some(moment()),
    };
    every_call!(file, {
        CreateApplication: CreateApplication { name: name.clone() }
            => CreatedApplication { application: application(), key: created_key() };
        ListApplications: ListApplications {} => vec![application()];
        CreateKey: create_key => created_key();
        ListKeys: ListKeys { app_id } => vec![key(), short_key()];
        RevokeKey: RevokeKey { key_id: key_id() } => key();
        PublishEndpoint: publish => published();
        ListEndpoints: ListEndpoints {} => vec![published()];
        SetAccess: SetAccess { enabled: true } => access();
        GetAccess: GetAccess {} => Access { changed_at: None, ..access() };
        ListRuns: ListRuns { limit: 20, before: Some(run_id()) } => RunPage { runs: vec![young_run()], has_more: true };
        ShowRun: ShowRun { run_id: run_id(), after: 5, wait_s: 30 }
            => RunDetail { run: old_run(), events: vec![run_event()] };
    });
    file.close();
}

#[test]
fn records_are_written_and_read_as_ever() {
    let mut file = Golden::open("records");
    file.sample("Run, just accepted".to_owned(), young_run());
    file.sample("Run, with everything".to_owned(), old_run());
    file.sample("RunEvent".to_owned(), run_event());
    file.sample("Endpoint".to_owned(), endpoint());
    let never_seen = EndpointDevice { connected: false, last_seen_at: None };
    file.sample("Endpoint, never seen".to_owned(), Endpoint { device: never_seen, ..endpoint() });
    let identity = IdentityFile::sign(&signing_key(), "anna's laptop", moment());
    file.sample("IdentityFile".to_owned(), identity.clone());
    file.sample("Refused".to_owned(), refused());
    file.sample("Refused, in short".to_owned(), refused_in_short());
    file.sample("ManagementError".to_owned(), management_error());
    let text = file.text_of("IdentityFile");
    file.close();
    assert_eq!(IdentityFile::read(&text), Ok(identity), "the signature of the golden file holds");
}

#[test]
fn every_word_is_written_and_read_as_ever() {
    let mut file = Golden::open("words");
    macro_rules! words {
        ($($kind:ident { $($word:ident)* })*) => {
            $(every!(file, $kind { $($word: $kind::$word;)* });)*
        };
    }
    words! {
        RefusedCode { VersionMismatch UnknownDevice RevokedDevice BadProof BadHello Unavailable }
        RefuseCode { DefinitionMismatch Busy }
        RevokeCode { StaleAttempt AlreadyFinal UnknownRun }
        ByeCode { Replaced Revoked Unresponsive ProtocolViolation Unavailable }
        InFlightStatus { Taken Running Interrupted Finished }
        ToolKind { Read Write }
        ToolStatus { Ok Error }
        Half { Gateway Device }
        ManagementErrorCode { Invalid NotFound Conflict Unavailable }
        Scope { EndpointsRead RunsWrite RunsRead }
        Phase { Accepted Started Final }
        RunState { Queued WaitingForDevice Running AwaitingApproval AwaitingReconciliation Cancelling Succeeded Failed
            Cancelled Expired }
        StateReasonCode { DeviceOffline DeviceAsleep DevicePaused DeviceIncompatible DeviceBusy ApprovalPending
            OutcomeUnknown StopRequested }
        FinishReason { Completed Length }
        RunErrorCode { ModelError ModelAuth ToolError MaxDurationExceeded MaxTurnsExceeded DeviceRemoved
            DefinitionMismatch Internal }
        Effects { None Possible Known }
        EventType { RunAccepted RunStarted RunAwaitingReconciliation RunReconciled RunRestarted ToolStarted
            ToolCompleted MessageCompleted UsageUpdated RunSucceeded RunFailed RunCancelled RunExpired }
    }
    file.close();
}

#[test]
fn what_is_no_frame_is_refused() {
    for text in ["", "null", "[]", "{}", r#"{"frame":"unknown"}"#, r#"{"frame":"ack","run_id":"ep_0"}"#] {
        assert!(decode::<GatewayFrame>(text).is_err(), "{text}");
        assert!(decode::<DeviceFrame>(text).is_err(), "{text}");
    }
}

/// One golden file: what stands in it, and what ought to.
struct Golden {
    path: PathBuf,
    stored: BTreeMap<String, Box<RawValue>>,
    seen: Vec<(String, String)>,
    rewrite: bool,
}

impl Golden {
    fn open(name: &str) -> Self {
        let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(format!("tests/golden/{name}.json"));
        let rewrite = std::env::var("DESKGATE_REWRITE_GOLDEN").is_ok_and(|value| value == "1");
        let stored = match rewrite {
            true => BTreeMap::new(),
            false => serde_json::from_str(&std::fs::read_to_string(&path).expect("the file is there")).expect("JSON"),
        };
        Self { path, stored, seen: Vec::new(), rewrite }
    }

    /// Compares a sample both ways.
    fn sample<T: Serialize + DeserializeOwned + PartialEq + Debug>(&mut self, name: String, value: T) {
        let written = serde_json_canonicalizer::to_string(&value).expect("JSON can hold it");
        if !self.rewrite {
            let stored = self.stored.remove(&name).unwrap_or_else(|| panic!("no golden sample {name:?}"));
            assert_eq!(written, stored.get(), "{name} is written otherwise");
            let read: T = serde_json::from_str(stored.get()).unwrap_or_else(|error| panic!("{name}: {error}"));
            assert_eq!(read, value, "{name} is read otherwise");
            let sent = encode(&value).expect("within the limit");
            assert_eq!(decode::<T>(&sent).expect("reads back"), value, "{name} on the wire");
        }
        self.seen.push((name, written));
    }

    fn text_of(&self, name: &str) -> String {
        self.seen.iter().find(|(known, _)| known == name).expect("listed").1.clone()
    }

    /// Nothing may be left over: a sample nobody lists says that a variant disappeared.
    fn close(self) {
        if self.rewrite {
            let lines: Vec<_> = self.seen.iter().map(|(name, text)| format!("  {name:?}: {text}")).collect();
            std::fs::write(&self.path, format!("{{\n{}\n}}\n", lines.join(",\n"))).expect("writable");
        }
        let left: Vec<_> = self.stored.keys().collect();
        assert!(left.is_empty(), "samples of nothing: {left:?}");
    }
}

fn id<T: From<Uuid>>(number: u128) -> T {
    Uuid::from_u128(0x0192_0000_0000_7000_8000_0000_0000_0000 + number).into()
}

fn app_id() -> ApplicationId {
    id(1)
}

fn key_id() -> KeyId {
    id(2)
}

fn endpoint_id() -> EndpointId {
    id(3)
}

fn run_id() -> RunId {
    id(4)
}

fn moment() -> Timestamp {
    "2026-11-21T09:14:50.123Z".parse().expect("valid")
}

fn digest() -> Sha256Digest {
    Sha256Digest::of(b"a definition")
}

fn signing_key() -> ed25519_dalek::SigningKey {
    ed25519_dalek::SigningKey::from_bytes(&[7; 32])
}

fn usage() -> Usage {
    Usage { input_tokens: 1200, output_tokens: 80, model_calls: 2, tool_calls: 1, active_seconds: 1.5 }
}

fn result() -> RunResult {
    RunResult { text: "Drei Dateien.".to_owned(), finish_reason: FinishReason::Completed }
}

fn run_error() -> RunError {
    let message = "The model failed.".to_owned();
    RunError { code: RunErrorCode::ModelError, message, retryable: true, effects: Effects::None }
}

fn input() -> Input {
    let more = json!({ "order": 7, "nested": { "list": [1, null, true, "é\u{0}"] } });
    Input { text: "What stands in the folder?".to_owned(), more: more.as_object().expect("an object").clone() }
}

fn challenge() -> Challenge {
    Challenge {
        nonce: "n0nce".to_owned(),
        gateway_id: id(5),
        gateway_version: "0.1.0".to_owned(),
        protocol: ProtocolRange { min: 1, max: 1 },
    }
}

fn hello() -> Hello {
    Hello {
        public_key: PublicKey::of(&signing_key()),
        device_version: "0.1.0".to_owned(),
        protocol: ProtocolRange { min: 1, max: 1 },
        signature: "c2lnbmF0dXJl".to_owned(),
        in_flight: vec![InFlight { run_id: run_id(), attempt: 2, status: InFlightStatus::Running }],
    }
}

fn welcome() -> Welcome {
    let policy = Policy { heartbeat_ms: 15_000, lease_ms: 45_000, offer_ms: 15_000, unacknowledged_events: 256 };
    Welcome { device_id: id(6), epoch: 12, protocol: 1, policy }
}

fn refused() -> Refused {
    Refused {
        code: RefusedCode::VersionMismatch,
        message: "Upgrade the device.".to_owned(),
        should_retry: true,
        retry_after_s: Some(30),
        gateway_version: "0.2.0".to_owned(),
        device_version: Some("0.1.0".to_owned()),
        upgrade: Some(Half::Device),
    }
}

fn refused_in_short() -> Refused {
    Refused { should_retry: false, retry_after_s: None, device_version: None, upgrade: None, ..refused() }
}

fn offer() -> Offer {
    Offer {
        run_id: run_id(),
        attempt: 2,
        endpoint_id: endpoint_id(),
        endpoint_version: 3,
        definition_sha256: digest(),
        input: input(),
        max_duration_s: 3600,
        traceparent: Some("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01".to_owned()),
    }
}

fn management_error() -> ManagementError {
    ManagementError { code: ManagementErrorCode::Conflict, message: "choose another name".to_owned() }
}

fn application() -> Application {
    Application { app_id: app_id(), name: "invoices".to_owned(), created_at: moment(), live_keys: 2 }
}

fn key() -> Key {
    Key {
        key_id: key_id(),
        app_id: app_id(),
        name: "nightly".to_owned(),
        last4: "3f9a".to_owned(),
        scopes: Scope::ALL.to_vec(),
        endpoints: vec![endpoint_id()],
        fixed_subject: Some("anna".to_owned()),
        created_at: moment(),
        expires_at: Some(moment()),
        revoked_at: Some(moment()),
    }
}

fn short_key() -> Key {
    Key { endpoints: Vec::new(), fixed_subject: None, expires_at: None, revoked_at: None, ..key() }
}

fn published() -> PublishedEndpoint {
    PublishedEndpoint {
        endpoint_id: endpoint_id(),
        app_id: app_id(),
        name: "invoices".to_owned(),
        description: "Answers questions about invoices.".to_owned(),
        version: 3,
        definition_sha256: digest(),
        published_at: moment(),
    }
}

fn access() -> Access {
    let address = "https://gateway.example.com/api/v1".to_owned();
    Access { enabled: true, changed_at: Some(moment()), address }
}

fn endpoint() -> Endpoint {
    Endpoint {
        id: endpoint_id(),
        name: "invoices".to_owned(),
        description: "Answers questions about invoices.".to_owned(),
        version: 3,
        device: EndpointDevice { connected: true, last_seen_at: Some(moment()) },
    }
}

fn run_event() -> RunEvent {
    RunEvent {
        event_id: id(7),
        run_id: run_id(),
        sequence: 2,
        kind: EventType::RunStarted,
        created_at: moment(),
        data: json!({ "attempt": 1 }),
    }
}

/// Only the members that every run has.
fn young_run() -> Run {
    Run {
        run_id: run_id(),
        endpoint_id: endpoint_id(),
        endpoint_version: 3,
        conversation_id: None,
        generation: None,
        phase: Phase::Accepted,
        state: RunState::Queued,
        state_reason: None,
        attempt: 0,
        input: None,
        result: None,
        error: None,
        usage: None,
        metadata: BTreeMap::new(),
        queue_position: None,
        last_sequence: 1,
        created_at: moment(),
        queue_expires_at: moment(),
        started_at: None,
        finished_at: None,
        purge_at: None,
        links: RunLinks::of(run_id()),
    }
}

/// Every member at once, which no real run has.
fn old_run() -> Run {
    Run {
        conversation_id: Some(id(8)),
        generation: Some(4),
        phase: Phase::Final,
        state: RunState::Succeeded,
        state_reason: Some(StateReasonCode::DeviceBusy.reason()),
        attempt: 2,
        input: Some(input()),
        result: Some(result()),
        error: Some(run_error()),
        usage: Some(usage()),
        metadata: [("customer".to_owned(), "7".to_owned())].into(),
        queue_position: Some(3),
        last_sequence: 17,
        started_at: Some(moment()),
        finished_at: Some(moment()),
        purge_at: Some(moment()),
        ..young_run()
    }
}
