//! Raw frames on the private control socket, which the real agent would not send.

use std::time::Duration;

use deskgate_gateway::ops::health_check::send_request;
use deskgate_protocol::canonical::Sha256Digest;
use deskgate_protocol::control::{
    ByeCode, DeviceFrame, GatewayFrame, MAX_DELTA_BYTES, MAX_NAMED_SERVICES, ManagementResult, MessageDelta, Offer,
    RefusedCode, RevokeCode, ServicePlaces,
};
use deskgate_protocol::frame::MAX_FRAME_BYTES;
use deskgate_protocol::management::{AskedBy, CreateApplication, ManagementCall, PublishEndpoint, SetAccess};
use deskgate_protocol::run::{Outcome, RunResult, Usage};
use deskgate_protocol::secret::ControlToken;
use deskgate_protocol::{EndpointId, Half, ProtocolRange, RunId, VERSION};
use deskgate_tests::raw::{RawConnection, RawIdentity};
use deskgate_tests::{Backend, GatewayProcess, Postgres, until};
use tokio_tungstenite::tungstenite::Message;

use crate::text;

async fn gateway(settings: &[&str]) -> (Postgres, GatewayProcess) {
    let postgres = Postgres::shared().await;
    let gateway = GatewayProcess::start(&postgres, settings).await;
    (postgres, gateway)
}

/// Sends a management request as the desktop would; pings on the way are answered.
async fn ask<C: ManagementCall>(line: &mut RawConnection, call: C) -> C::Reply {
    line.send(&DeviceFrame::Request { request_id: 7, by: AskedBy::Agent, request: call.into() }).await;
    loop {
        match line.next_answering_pings().await.expect("the line is open") {
            GatewayFrame::Reply { request_id: 7, result: ManagementResult::Ok(value) } => {
                return serde_json::from_value(value).expect("the reply that belongs to it");
            }
            GatewayFrame::Reply { result, .. } => panic!("{result:?}"),
            _ => {}
        }
    }
}

/// Publishes a service that exists only as a digest.
pub(crate) async fn publish(line: &mut RawConnection, gateway: &GatewayProcess) -> Backend {
    publish_as(line, gateway, "made by hand").await
}

/// The same by another name, with an application of that name.
async fn publish_as(line: &mut RawConnection, gateway: &GatewayProcess, name: &str) -> Backend {
    let created = ask(line, CreateApplication { name: name.to_owned() }).await;
    let endpoint_id = EndpointId::new();
    let publication = PublishEndpoint {
        app_id: created.application.app_id,
        endpoint_id,
        version: 1,
        name: name.to_owned(),
        description: String::new(),
        definition_sha256: Sha256Digest::of(b"anything"),
        data: Default::default(),
    };
    ask(line, publication).await;
    ask(line, SetAccess { enabled: true }).await;
    Backend::new(gateway.http(), &created.key.text, &endpoint_id.to_string())
}

pub(crate) async fn next_offer(line: &mut RawConnection) -> Offer {
    match line.next_answering_pings().await {
        Some(GatewayFrame::Offer(offer)) => offer,
        other => panic!("no offer: {other:?}"),
    }
}

pub(crate) fn answer(text: &str) -> Outcome {
    let result = RunResult::completed(text);
    Outcome::Succeeded { result, usage: Usage::default() }
}

pub(crate) fn run_id(text: &str) -> RunId {
    text.parse().expect("a run")
}

#[tokio::test]
async fn a_device_of_another_version_is_refused_as_data_and_its_runs_wait_for_an_upgrade() {
    let (_postgres, gateway) = gateway(&[]).await;
    let device = RawIdentity::new(1);
    let device_id = text(&device.pair(&gateway, "desk").await.ok(), "/device/device_id").to_owned();
    let (mut line, _) = device.connect(&gateway, Vec::new()).await;
    let backend = publish(&mut line, &gateway).await;
    drop(line);
    gateway.wait_for_device_state(&device_id, "offline").await;

    let newer = RawIdentity { version: "9.0.0".to_owned(), ..device.clone() };
    let refused = newer.is_refused(&gateway).await;
    assert_eq!((refused.code, refused.upgrade), (RefusedCode::VersionMismatch, Some(Half::Gateway)), "{refused:?}");
    assert_eq!((refused.gateway_version.as_str(), refused.device_version.as_deref()), (VERSION, Some("9.0.0")));
    assert!(refused.message.contains("upgrade the package deskgate-gateway"), "{}", refused.message);
    let seen = gateway.device(&device_id).await;
    assert_eq!((text(&seen, "/state"), text(&seen, "/note")), ("incompatible", "seen, refused: 9.0.0 against 0.1.0"));
    let run = backend.run(&backend.submit("anything").await).await;
    assert_eq!(text(&run, "/state_reason/code"), "device_incompatible", "{run}");

    let other_protocol = RawIdentity { protocol: ProtocolRange { min: 7, max: 9 }, ..device.clone() };
    let refused = other_protocol.is_refused(&gateway).await;
    assert_eq!((refused.code, refused.upgrade), (RefusedCode::VersionMismatch, Some(Half::Gateway)), "{refused:?}");
    // The right version is admitted, and the refusal is forgotten.
    let (_line, _) = device.connect(&gateway, Vec::new()).await;
    gateway.wait_for_device_state(&device_id, "connected").await;
}

#[tokio::test]
async fn a_device_for_which_there_is_no_room_is_told_so_and_has_room_once_another_one_leaves() {
    let (_postgres, gateway) = gateway(&["control.connections=2"]).await;
    let token = std::fs::read_to_string(gateway.control_token_file()).expect("the gateway made it");
    let first = RawConnection::open_to_challenge(&gateway).await;
    let _second = RawConnection::open_to_challenge(&gateway).await;
    let mut third = RawConnection::open(&gateway, token.trim()).await.expect("the right token");
    match third.next().await {
        Some(GatewayFrame::Refused(refused)) => {
            assert_eq!((refused.code, refused.should_retry), (RefusedCode::Unavailable, true));
            assert!(refused.retry_after_s.is_some_and(|pause| pause > 2), "{refused:?}");
            let parts = ["as many devices connected as it takes (2)", "control.connections"];
            assert!(parts.iter().all(|part| refused.message.contains(part)), "{}", refused.message);
        }
        other => panic!("not refused: {other:?}"),
    }
    assert_eq!(third.next().await, None);
    let wrong = RawConnection::open(&gateway, "dgc_wrong").await.err();
    assert_eq!(wrong, Some(401), "who has no token learns nothing of how full it is");
    let metrics = async || send_request(gateway.ops().get(), "/metrics").await.expect("answered");
    let told = metrics().await;
    for line in ["deskgate_control_connections 2", "deskgate_control_connections_refused_total 2"] {
        assert!(told.contains(&format!("\n{line}\n")), "{line} is missing in: {told}");
    }
    drop(first);
    until("its place to be free", async || {
        let told = metrics().await;
        if told.contains("\ndeskgate_control_connections 1\n") { Ok(()) } else { Err(told) }
    })
    .await;
    RawConnection::open_to_challenge(&gateway).await;
}

#[tokio::test]
async fn whoever_cannot_prove_to_be_a_paired_device_is_refused() {
    let (_postgres, gateway) = gateway(&[]).await;
    let refused = RawIdentity::new(2).is_refused(&gateway).await;
    assert_eq!((refused.code, refused.should_retry), (RefusedCode::UnknownDevice, true), "{refused:?}");

    let (friend, thief) = (RawIdentity::new(3), RawIdentity::new(4));
    friend.pair(&gateway, "friend").await.ok();
    let (mut line, challenge) = RawConnection::open_to_challenge(&gateway).await;
    let DeviceFrame::Hello(mut forged) = thief.hello(&challenge, Vec::new()) else { unreachable!("a hello") };
    forged.public_key = friend.public_key();
    line.send(&DeviceFrame::Hello(forged)).await;
    let Some(GatewayFrame::Refused(refused)) = line.next().await else { panic!("not refused") };
    assert_eq!(refused.code, RefusedCode::BadProof, "{refused:?}");
    // A proof made for another session is invalid in this one.
    let (_, earlier) = RawConnection::open_to_challenge(&gateway).await;
    let (mut line, _) = RawConnection::open_to_challenge(&gateway).await;
    line.send(&friend.hello(&earlier, Vec::new())).await;
    let Some(GatewayFrame::Refused(refused)) = line.next().await else { panic!("not refused") };
    assert_eq!(refused.code, RefusedCode::BadProof, "{refused:?}");

    let (open, _) = friend.connect(&gateway, Vec::new()).await;
    gateway.admin(&["device", "revoke", "friend", "--accept-risk", "interrupt-runs"]).await.ok();
    let mut open = open;
    let goodbye = open.next_answering_pings().await;
    assert!(matches!(goodbye, Some(GatewayFrame::Bye { code: ByeCode::Revoked, .. })), "{goodbye:?}");
    let refused = friend.is_refused(&gateway).await;
    assert_eq!((refused.code, refused.should_retry), (RefusedCode::RevokedDevice, false), "{refused:?}");

    let other = ControlToken::generate();
    assert_eq!(RawConnection::open(&gateway, other.reveal()).await.err(), Some(401));
    assert_eq!(RawConnection::open(&gateway, "nonsense").await.err(), Some(401));
}

#[tokio::test]
async fn what_is_no_frame_ends_its_own_session_and_harms_nobody_else() {
    let (_postgres, gateway) = gateway(&[]).await;
    let (honest, odd) = (RawIdentity::new(5), RawIdentity::new(6));
    honest.pair(&gateway, "honest").await.ok();
    odd.pair(&gateway, "odd").await.ok();
    let (mut bystander, _) = honest.connect(&gateway, Vec::new()).await;

    let too_large = format!("{{\"frame\":\"pong\",\"filler\":\"{}\"}}", "x".repeat(MAX_FRAME_BYTES));
    let firsts = [
        ("not JSON", Message::text("{\"frame\":")),
        ("an unknown frame", Message::text("{\"frame\":\"please\"}")),
        ("a frame that comes later", Message::text("{\"frame\":\"ready\",\"slots\":1}")),
        ("not text", Message::binary(vec![0u8; 16])),
        ("too large", Message::text(too_large.clone())),
    ];
    for (what, message) in firsts {
        let (mut line, _) = RawConnection::open_to_challenge(&gateway).await;
        line.send_message(message).await;
        match line.next().await {
            Some(GatewayFrame::Refused(refused)) => assert_eq!(refused.code, RefusedCode::BadHello, "{what}"),
            // A client that is still sending when the gateway closes may not read the reason.
            None if what == "too large" => {}
            other => panic!("{what}: {other:?}"),
        }
    }

    let hello_again = {
        let (_, challenge) = RawConnection::open_to_challenge(&gateway).await;
        serde_json::to_string(&odd.hello(&challenge, Vec::new())).expect("plain data")
    };
    let too_long = DeviceFrame::Delta {
        run_id: RunId::new(),
        attempt: 1,
        delta: MessageDelta { message_id: "msg_1".to_owned(), offset: 0, text: "x".repeat(MAX_DELTA_BYTES + 1) },
    };
    let too_long = serde_json::to_string(&too_long).expect("plain data");
    let crowd =
        DeviceFrame::Ready { slots: 1, places: Vec::new(), full: vec![EndpointId::new(); MAX_NAMED_SERVICES + 1] };
    let crowd = serde_json::to_string(&crowd).expect("plain data");
    let place = |_| ServicePlaces { endpoint_id: EndpointId::new(), places: 1 };
    let places = (0..=MAX_NAMED_SERVICES).map(place).collect();
    let everywhere = DeviceFrame::Ready { slots: 1, places, full: Vec::new() };
    let everywhere = serde_json::to_string(&everywhere).expect("plain data");
    let later = [
        ("not JSON", Message::text("]")),
        ("an unknown frame", Message::text("{\"frame\":\"please\"}")),
        ("a member that is wrong", Message::text("{\"frame\":\"ready\",\"slots\":-1}")),
        ("more slots than anybody has", Message::text("{\"frame\":\"ready\",\"slots\":4000000000}")),
        ("more full services than anybody has", Message::text(crowd)),
        ("places for more services than anybody has", Message::text(everywhere)),
        ("a second hello", Message::text(hello_again)),
        ("a piece of a message that is too long", Message::text(too_long)),
        ("not text", Message::binary(vec![0u8; 16])),
        ("too large", Message::text(too_large)),
    ];
    for (what, message) in later {
        let (mut line, _) = odd.connect(&gateway, Vec::new()).await;
        line.send_message(message).await;
        match line.next_answering_pings().await {
            Some(GatewayFrame::Bye { code: ByeCode::ProtocolViolation, .. }) => {}
            None if what == "too large" => {}
            other => panic!("{what}: {other:?}"),
        }
    }
    // The well-behaved device is not affected.
    let backend = publish(&mut bystander, &gateway).await;
    bystander.send(&DeviceFrame::ready(1)).await;
    let submitted = backend.submit("anything").await;
    assert_eq!(next_offer(&mut bystander).await.run_id, run_id(&submitted));
}

#[tokio::test]
async fn a_frame_of_an_attempt_that_is_not_the_runs_changes_nothing() {
    let (_postgres, gateway) = gateway(&[]).await;
    let (device, other) = (RawIdentity::new(7), RawIdentity::new(8));
    device.pair(&gateway, "desk").await.ok();
    other.pair(&gateway, "other").await.ok();
    let (mut line, _) = device.connect(&gateway, Vec::new()).await;
    let backend = publish(&mut line, &gateway).await;
    let submitted = backend.submit("anything").await;
    line.send(&DeviceFrame::ready(1)).await;
    let Offer { run_id, attempt, .. } = next_offer(&mut line).await;

    // A finish before the start was durable.
    line.send(&DeviceFrame::Finish { run_id, attempt, seq: 1, outcome: answer("too early"), receipt: None }).await;
    let refused = line.next_answering_pings().await;
    assert!(matches!(refused, Some(GatewayFrame::Revoke { .. })), "{refused:?}");
    assert_eq!(text(&backend.run(&submitted).await, "/phase"), "accepted");

    line.send(&DeviceFrame::Accept { run_id, attempt }).await;
    assert_eq!(line.next_answering_pings().await, Some(GatewayFrame::Start { run_id, attempt }));
    let wrong = [
        (
            DeviceFrame::Finish {
                run_id,
                attempt: attempt + 1,
                seq: 1,
                outcome: answer("later attempt"),
                receipt: None,
            },
            run_id,
        ),
        (
            DeviceFrame::Finish {
                run_id,
                attempt: attempt - 1,
                seq: 1,
                outcome: answer("earlier attempt"),
                receipt: None,
            },
            run_id,
        ),
    ];
    for (frame, run_id) in wrong {
        line.send(&frame).await;
        match line.next_answering_pings().await {
            Some(GatewayFrame::Revoke { run_id: named, code: RevokeCode::StaleAttempt, .. }) => {
                assert_eq!(named, run_id)
            }
            other => panic!("{frame:?}: {other:?}"),
        }
    }
    let nobodys = RunId::new();
    line.send(&DeviceFrame::Finish { run_id: nobodys, attempt: 1, seq: 1, outcome: answer("invented"), receipt: None })
        .await;
    let code = RevokeCode::UnknownRun;
    assert_eq!(line.next_answering_pings().await, Some(GatewayFrame::Revoke { run_id: nobodys, attempt: 1, code }));
    // Another device cannot end it either, even with all its identifiers.
    let (mut foreign, _) = other.connect(&gateway, Vec::new()).await;
    foreign.send(&DeviceFrame::Finish { run_id, attempt, seq: 1, outcome: answer("stolen"), receipt: None }).await;
    assert_eq!(foreign.next_answering_pings().await, Some(GatewayFrame::Revoke { run_id, attempt, code }));
    assert_eq!(text(&backend.run(&submitted).await, "/state"), "running");

    // The right device can, and a repetition is acknowledged and changes nothing.
    for text in ["the answer", "another answer"] {
        line.send(&DeviceFrame::Finish { run_id, attempt, seq: 1, outcome: answer(text), receipt: None }).await;
        assert_eq!(line.next_answering_pings().await, Some(GatewayFrame::Ack { run_id, attempt, through: 1 }));
    }
    let run = backend.wait_for_end(&submitted).await;
    assert_eq!(text(&run, "/result/text"), "the answer", "{run}");
}

#[tokio::test]
async fn no_more_is_offered_than_there_is_room_for_and_what_is_not_taken_is_offered_again() {
    let (postgres, gateway) = gateway(&["control.offer_ms=1500"]).await;
    let device = RawIdentity::new(9);
    device.pair(&gateway, "desk").await.ok();
    let (mut line, _) = device.connect(&gateway, Vec::new()).await;
    let backend = publish(&mut line, &gateway).await;
    for _ in 0..4 {
        backend.submit("anything").await;
    }
    line.send(&DeviceFrame::ready(2)).await;
    let (first, second) = (next_offer(&mut line).await, next_offer(&mut line).await);
    let claimed = postgres.rows("SELECT count(*) AS runs FROM runs WHERE attempt > 0").await;
    assert_eq!(claimed[0]["runs"], 2, "two slots, two offers");
    // The first is accepted, the second never.
    line.send(&DeviceFrame::Accept { run_id: first.run_id, attempt: first.attempt }).await;
    let start = GatewayFrame::Start { run_id: first.run_id, attempt: first.attempt };
    assert_eq!(line.next_answering_pings().await, Some(start));
    deskgate_tests::until("the offer to be taken back", async || {
        let query = format!(
            "SELECT count(*) AS runs FROM runs WHERE offered_until IS NOT NULL AND run_id = '{}'",
            second.run_id.uuid()
        );
        let rows = postgres.rows(&query).await;
        if rows[0]["runs"] == 0 { Ok(()) } else { Err("it is still offered".to_owned()) }
    })
    .await;
    // Too late: the attempt is over.
    line.send(&DeviceFrame::Accept { run_id: second.run_id, attempt: second.attempt }).await;
    let late = line.next_answering_pings().await;
    assert!(matches!(late, Some(GatewayFrame::Revoke { .. })), "{late:?}");
    line.send(&DeviceFrame::ready(1)).await;
    let again = next_offer(&mut line).await;
    assert_eq!((again.run_id, again.attempt), (second.run_id, second.attempt + 1));
}

#[tokio::test]
async fn while_a_service_is_full_its_runs_wait_untried_and_those_of_others_go_on() {
    let (_postgres, gateway) = gateway(&[]).await;
    let device = RawIdentity::new(11);
    device.pair(&gateway, "desk").await.ok();
    let (mut line, _) = device.connect(&gateway, Vec::new()).await;
    let busy = publish(&mut line, &gateway).await;
    let other = publish_as(&mut line, &gateway, "another").await;
    let waiting = busy.submit("waits").await;
    let full = vec![busy.endpoint_id().parse().expect("an identifier")];
    line.send(&DeviceFrame::Ready { slots: 2, places: Vec::new(), full }).await;
    let passes = run_id(&other.submit("passes").await);
    assert_eq!(next_offer(&mut line).await.run_id, passes, "also of what comes later");
    let run = busy.run(&waiting).await;
    assert_eq!((text(&run, "/state"), &run["attempt"]), ("queued", &0.into()), "{run}");
    line.send(&DeviceFrame::ready(0)).await;
    let offer = next_offer(&mut line).await;
    assert_eq!((offer.run_id, offer.attempt), (run_id(&waiting), 1));
}

#[tokio::test]
async fn a_device_that_sends_but_does_not_read_is_away_after_two_heartbeats_and_gets_no_offers() {
    let heartbeat = Duration::from_millis(500);
    let (postgres, gateway) = gateway(&["control.heartbeat_ms=500", "control.lease_ms=60000"]).await;
    let device = RawIdentity::new(10);
    let device_id = text(&device.pair(&gateway, "desk").await.ok(), "/device/device_id").to_owned();
    let (mut line, _) = device.connect(&gateway, Vec::new()).await;
    let backend = publish(&mut line, &gateway).await;

    // From here on the device reads nothing, so it answers no ping; but it sends plenty.
    let began = std::time::Instant::now();
    deskgate_tests::until("the deaf device to be away", async || {
        line.send(&DeviceFrame::ready(0)).await;
        let state = gateway.device(&device_id).await["state"].clone();
        if state == "offline" { Ok(()) } else { Err(state.to_string()) }
    })
    .await;
    println!("away after {:.1} heartbeats", began.elapsed().as_secs_f64() / heartbeat.as_secs_f64());
    let log = gateway.log().line(&["device disconnected", &device_id]).await;
    assert!(log.contains("two pings were not answered"), "{log}");
    line.send(&DeviceFrame::ready(4)).await;
    let run = backend.run(&backend.submit("anything").await).await;
    assert_eq!(text(&run, "/state_reason/code"), "device_offline", "{run}");
    let claimed = postgres.rows("SELECT count(*) AS runs FROM runs WHERE attempt > 0").await;
    assert_eq!(claimed[0]["runs"], 0, "nothing was offered to it");
}
