//! What a gateway asks for all its devices at once: what waits for them, and that their sessions go on.

use deskgate_gateway::notify::Topic;
use deskgate_gateway::store::attempts::AttemptUpdate;
use deskgate_gateway::store::leases::SessionKey;
use deskgate_gateway::store::operations::OrderSelection;

use super::TestStore;
use crate::support::gateway::{DeviceFixture, LONG_LEASE};

#[tokio::test]
async fn a_look_finds_what_waits_for_these_devices_and_nothing_that_is_on_its_way() {
    let test_store = TestStore::new().await;
    let (device, other) = (&test_store.device, DeviceFixture::pair(&test_store.store).await);
    let (session, _) = device.connect().await;
    let look = async || {
        let devices = [device.device_id, other.device_id];
        test_store.store.waiting_work(&devices).await.expect("read")
    };
    assert_eq!(look().await, []);
    let run_id = test_store.queue().await;
    assert_eq!(look().await, [Topic::Queue(device.device_id)]);
    assert_eq!(test_store.store.waiting_work(&[other.device_id]).await.expect("read"), []);
    device.claim(session, 1).await;
    assert_eq!(look().await, [], "it is offered");

    test_store.one(session, run_id, 1, AttemptUpdate::Start).await;
    test_store.stop_run(run_id).await;
    assert_eq!(look().await, [Topic::Control(device.device_id)]);
    test_store.store.deliver(session, OrderSelection::New).await.expect("delivered");
    assert_eq!(look().await, [], "the session has it");
    device.connect().await;
    assert_eq!(look().await, [Topic::Control(device.device_id)], "the next one does not");
}

#[tokio::test]
async fn sessions_that_are_renewed_together_are_each_judged_for_themselves() {
    let test_store = TestStore::new().await;
    let other = DeviceFixture::pair(&test_store.store).await;
    let (older, _) = test_store.device.connect().await;
    let (newer, _) = test_store.device.connect().await;
    let (there, _) = other.connect().await;
    let never = SessionKey { epoch: there.epoch + 1, ..there };
    let renewed = test_store.store.renew_sessions(&[older, there, never, newer], LONG_LEASE).await.expect("written");
    assert_eq!(renewed, [newer, there].into());
}
