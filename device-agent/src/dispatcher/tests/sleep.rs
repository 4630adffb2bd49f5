//! The announcement before the computer sleeps, and the frames held back until it is awake.

use deskgate_protocol::control::{ManagementResult, RefuseCode};
use deskgate_protocol::management::Access;

use super::*;

/// Answers the request that follows an announcement.
async fn heard(peer: &mut Peer) {
    let DeviceFrame::Request { request_id, .. } = peer.frame().await else { panic!("no question follows") };
    let access = Access { enabled: true, changed_at: None, address: String::new() };
    let access = serde_json::to_value(access).expect("plain data");
    peer.send(GatewayFrame::Reply { request_id, result: ManagementResult::Ok(access) }).await;
}

#[tokio::test]
async fn sleep_waits_until_the_gateway_has_heard_of_it() {
    let mut device = TestDevice::new().await;
    let (mut peer, _) = device.connect().await;
    let handle = device.handle();
    let announcing = tokio::spawn(async move { handle.suspend().await });
    assert_eq!(peer.frame().await, DeviceFrame::Suspend);
    assert!(!announcing.is_finished(), "nobody answered yet");
    heard(&mut peer).await;
    soon("sleep may begin", announcing).await.expect("no panic");
}

#[tokio::test]
async fn sleep_does_not_wait_for_a_gateway_that_is_away() {
    let mut device = TestDevice::new().await;
    let handle = device.handle();
    soon("sleep may begin", handle.suspend()).await;
    // If it connects before it sleeps, it announces again: the gateway takes a new session for an awake device.
    let (mut peer, _) = device.connect().await;
    assert_eq!(peer.frame().await, DeviceFrame::Suspend);
    // The connection is cut during the request.
    let announcing = tokio::spawn(async move { handle.suspend().await });
    assert_eq!(peer.frame().await, DeviceFrame::Suspend);
    drop(peer);
    soon("sleep may begin", announcing).await.expect("no panic");
}

#[tokio::test]
async fn nothing_is_taken_between_announcement_and_wake_and_then_everything_again() {
    let mut device = TestDevice::new().await;
    let service = device.publish(4).await;
    let (mut peer, _) = device.connect().await;
    assert_eq!(peer.ready().await, 2);
    let handle = device.handle();
    let announcing = tokio::spawn(async move { handle.suspend().await });
    assert_eq!(peer.frame().await, DeviceFrame::Suspend);
    heard(&mut peer).await;
    soon("sleep may begin", announcing).await.expect("no panic");

    // Sent before the gateway read the announcement.
    let offer = service.offer("say 1");
    let (run_id, attempt) = (offer.run_id, offer.attempt);
    peer.send(GatewayFrame::Offer(offer)).await;
    assert_eq!(peer.frame().await, DeviceFrame::Refuse { run_id, attempt, code: RefuseCode::Busy });

    device.handle().resume().await;
    assert_eq!(soon("a frame", peer.from.recv()).await, Some(DeviceFrame::Resume));
    assert_eq!(peer.ready().await, 1, "the slot that the refused offer used up");
    peer.start(&service.offer("say 1")).await;
    peer.finish().await;
    // It is awake already: there is nothing to send.
    device.handle().resume().await;
    peer.send(GatewayFrame::Ping).await;
    assert_eq!(peer.frame().await, DeviceFrame::Pong);
}
