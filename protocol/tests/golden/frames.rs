//! The frames of both directions.

use deskgate_protocol::control::*;
use deskgate_protocol::frame::decode;
use deskgate_protocol::identity::{PublicKey, RecognisedServer};
use deskgate_protocol::management::{AskedBy, GetAccess};
use deskgate_protocol::operation::OutcomeCode;
use deskgate_protocol::run::*;
use deskgate_protocol::secret::AccessToken;
use deskgate_protocol::transfer::*;
use deskgate_protocol::*;
use serde_json::json;

use crate::file::Golden;
use crate::samples::*;

#[test]
fn every_frame_of_a_gateway_is_written_and_read_as_ever() {
    let mut file = Golden::open("gateway_frames");
    let (run_id, attempt) = (run_id(), 2);
    every!(file, GatewayFrame {
        Challenge: GatewayFrame::Challenge(challenge());
        Welcome: GatewayFrame::Welcome(welcome()),
            GatewayFrame::Welcome(Welcome { host_keys: vec![host_key()], ..welcome() });
        Refused: GatewayFrame::Refused(refused()), GatewayFrame::Refused(refused_in_short());
        Invited: GatewayFrame::Invited { expires_at: moment() };
        Paired: GatewayFrame::Paired { device_id: id(12), control_token: "dgt_000000000000000000000000000000000000000000000000_2ceef853".parse().expect("a token") };
        Offer: GatewayFrame::Offer(offer()), GatewayFrame::Offer(Offer { traceparent: None, output: Some(output().into()), ..offer() }),
            GatewayFrame::Offer(Offer { conversation: Some(id(8)), generation: Some(4), ..offer() }),
            GatewayFrame::Offer(Offer { subject: None, ..offer() }),
            GatewayFrame::Offer(Offer { depth: 3, ..offer() });
        Start: GatewayFrame::Start { run_id, attempt };
        Control: GatewayFrame::Control { operation_id: id(9), order: Order::Stop { run_id } },
            GatewayFrame::Control { operation_id: id(9), order: Order::Reset { conversation: id(8), generation: 4 } };
        Revoke: GatewayFrame::Revoke { run_id, attempt, code: RevokeCode::StaleAttempt };
        Ack: GatewayFrame::Ack { run_id, attempt, through: 17 };
        Recall: GatewayFrame::Recall { runs: vec![run_id] };
        Reply: GatewayFrame::Reply { request_id: 9, result: ManagementResult::Ok(json!({ "enabled": true })) },
            GatewayFrame::Reply { request_id: 10, result: ManagementResult::Error(management_error()) };
        Ticket: GatewayFrame::Ticket { run_id, attempt, ticket: ticket() };
        Ping: GatewayFrame::Ping;
        Drain: GatewayFrame::Drain;
        Bye: GatewayFrame::Bye { code: ByeCode::Replaced, message: "a newer session took over".to_owned() };
    });
    file.close();
}

#[test]
fn every_frame_of_a_transfer_is_written_and_read_as_ever() {
    let mut file = Golden::open("transfer_frames");
    every!(file, TransferRequest {
        Get: TransferRequest::Get { ticket: ticket(), file_id: id(20), offset: 65_536 };
        Put: TransferRequest::Put { ticket: ticket(), artifact: artifact() };
        Missing: TransferRequest::Missing { ticket: ticket(), artifact: artifact() };
        Upload: TransferRequest::Upload {
            ticket: ticket(),
            app_id: app_id(),
            name: "invoice-17.pdf".to_owned(),
            media_type: "application/pdf".to_owned(),
            size: 15_698,
            sha256: input_file().sha256
        };
        GetArtifact: TransferRequest::GetArtifact { ticket: ticket(), run_id: run_id(), artifact_id: id(21), offset: 0 };
    });
    every!(file, TransferReply {
        Sending: TransferReply::Sending { bytes: 15_698 };
        SendFrom: TransferReply::SendFrom { offset: 4_194_304 };
        Done: TransferReply::Done;
        Stored: TransferReply::Stored { file: uploaded_file() };
        Refused: TransferReply::Refused { code: TransferRefusalCode::Stale, message: "the run has ended".to_owned() };
    });
    file.close();
}

#[test]
fn every_frame_of_a_device_is_written_and_read_as_ever() {
    let mut file = Golden::open("device_frames");
    let (run_id, attempt) = (run_id(), 2);
    let event = |event| DeviceFrame::Event { run_id, attempt, seq: 3, event };
    let finish = |outcome| DeviceFrame::Finish { run_id, attempt, seq: 4, outcome, receipt: None };
    let signed =
        |outcome| DeviceFrame::Finish { run_id, attempt, seq: 4, outcome, receipt: Some("e30.e30.AA".to_owned()) };
    every!(file, DeviceFrame {
        Hello: DeviceFrame::Hello(hello()),
            DeviceFrame::Hello(Hello { device_name: Some("Laptop".to_owned()), ..hello() }),
            DeviceFrame::Hello(Hello { nonce: Some("00ff".to_owned()), ..hello() }),
            DeviceFrame::Hello(Hello { journal_id: Some(id(11)), ..hello() });
        Ready: DeviceFrame::ready(4),
            DeviceFrame::Ready { slots: 0, places: Vec::new(), full: vec![endpoint_id()] },
            DeviceFrame::Ready { slots: 2, places: vec![ServicePlaces { endpoint_id: endpoint_id(), places: 1 }], full: Vec::new() };
        Accept: DeviceFrame::Accept { run_id, attempt };
        Refuse: DeviceFrame::Refuse { run_id, attempt, code: RefuseCode::Busy };
        Event: event(DeviceEvent::UsageUpdated { usage: usage(), model_unavailable: true });
        Delta: DeviceFrame::Delta { run_id, attempt, delta: delta() };
        Finish: finish(Outcome::Cancelled { effects: Effects::None, usage: Usage::default() }),
            signed(Outcome::Cancelled { effects: Effects::None, usage: Usage::default() });
        Reconciled: DeviceFrame::Reconciled { run_id, attempt };
        ControlDone: DeviceFrame::ControlDone { operation_id: id(9), outcome: OutcomeCode::Stopped };
        Recalled: DeviceFrame::Recalled { never_had: vec![run_id] };
        Suspend: DeviceFrame::Suspend;
        Resume: DeviceFrame::Resume;
        Request: DeviceFrame::Request { request_id: 9, by: AskedBy::Page, request: GetAccess {}.into() };
        RequestTicket: DeviceFrame::RequestTicket { run_id, attempt };
        Pong: DeviceFrame::Pong;
        Token: DeviceFrame::Token { access_token: AccessToken::new("eyJ.eyJ.sig") };
    });
    let (call_id, tool, approval_id) = ("call_1".to_owned(), "Read".to_owned(), id(10));
    let requested = DeviceEvent::ApprovalRequested {
        approval_id,
        call_id: call_id.clone(),
        tool: "Bash".to_owned(),
        kind: ToolKind::Write,
        expires_at: moment(),
    };
    let resolution = ApprovalResolution::Approved;
    every!(file, DeviceEvent {
        ToolStarted: DeviceEvent::ToolStarted { call_id: call_id.clone(), tool: tool.clone(), kind: ToolKind::Read };
        ToolCompleted: DeviceEvent::ToolCompleted { call_id, tool, kind: ToolKind::Read, status: ToolStatus::Ok };
        MessageCompleted: DeviceEvent::MessageCompleted { message_id: "msg_1".to_owned(), text: "Größe: 3\n".to_owned(), reasoning_summary: None };
        UsageUpdated: DeviceEvent::UsageUpdated { usage: usage(), model_unavailable: false };
        ApprovalRequested: requested;
        ApprovalResolved: DeviceEvent::ApprovalResolved { approval_id, resolution };
    });
    every!(file, Outcome {
        Succeeded: Outcome::Succeeded { result: result(), usage: usage() },
            Outcome::Succeeded { result: typed_result(), usage: usage() };
        Failed: Outcome::Failed { error: run_error(), usage: usage() };
        Cancelled: Outcome::Cancelled { effects: Effects::Possible, usage: usage() };
    });
    file.close();
}

#[test]
fn what_is_no_frame_is_refused() {
    for text in ["", "null", "[]", "{}", r#"{"frame":"unknown"}"#, r#"{"frame":"ack","run_id":"ep_0"}"#] {
        assert!(decode::<GatewayFrame>(text).is_err(), "{text}");
        assert!(decode::<DeviceFrame>(text).is_err(), "{text}");
    }
}

fn delta() -> MessageDelta {
    MessageDelta { message_id: "msg_1".to_owned(), offset: 12, text: "Größe: 3\n".to_owned() }
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
        server: Some(RecognisedServer::HostKey(PublicKey::of(&signing_key()))),
        device_name: None,
        nonce: None,
        journal_id: None,
        in_flight: vec![InFlightRun { run_id: run_id(), attempt: 2, status: InFlightStatus::Running }],
    }
}

fn welcome() -> Welcome {
    let policy = Policy {
        heartbeat_ms: 15_000,
        lease_ms: 45_000,
        offer_ms: 15_000,
        unacknowledged_events: 256,
        retention_s: Some(2_592_000),
    };
    Welcome { device_id: id(6), epoch: 12, protocol: 1, policy, host_keys: Vec::new() }
}

fn host_key() -> ProvenHostKey {
    ProvenHostKey { public_key: PublicKey::of(&signing_key()), signature: "c2lnbmF0dXJl".to_owned() }
}

fn offer() -> Offer {
    Offer {
        run_id: run_id(),
        attempt: 2,
        endpoint_id: endpoint_id(),
        endpoint_version: 3,
        definition_sha256: digest(),
        subject: Some("customer-91".to_owned()),
        input: input(),
        output: None,
        conversation: None,
        generation: None,
        max_duration_s: 3600,
        traceparent: Some("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01".to_owned()),
        depth: 0,
    }
}
