//! Runs wait for their own device, and never go to another.

use deskgate_tests::backend::fresh_key;
use deskgate_tests::{Folder, GatewayProcess, Postgres, TestDevice};
use rustix::process::Signal;

use crate::{everything_accepted_ended_once, text};

#[tokio::test]
async fn a_run_accepted_while_the_device_is_away_finishes_after_it_connects() {
    let postgres = Postgres::shared().await;
    let gateway = GatewayProcess::start(&postgres, &[]).await;
    let mut device = TestDevice::paired_with(&gateway).await;
    let device_id = device.device_id().await;
    let folder = Folder::new();
    let backend = device.publish(&gateway, "shop", &folder, &[]).await;
    assert!(device.stop(Signal::TERM).await.success());
    gateway.wait_for_device_state(&device_id, "offline").await;

    let run_id = backend.submit("What does order 4711 say?").await;
    let run = backend.run(&run_id).await;
    assert_eq!((text(&run, "/phase"), text(&run, "/state")), ("accepted", "waiting_for_device"), "{run}");
    assert_eq!(text(&run, "/state_reason/code"), "device_offline", "{run}");

    device.start().await;
    let run = backend.wait_for_end(&run_id).await;
    assert!(text(&run, "/result/text").contains("three green lamps"), "{run}");
    everything_accepted_ended_once(&backend, &device).await;
}

#[tokio::test]
async fn a_full_queue_refuses_with_429_and_drains_when_the_device_is_back() {
    let postgres = Postgres::shared().await;
    let gateway = GatewayProcess::start(&postgres, &["limits.waiting_runs_per_application=5"]).await;
    let mut device = TestDevice::paired_with(&gateway).await;
    let device_id = device.device_id().await;
    let folder = Folder::new();
    let backend = device.publish(&gateway, "shop", &folder, &[]).await;
    device.stop(Signal::TERM).await;
    gateway.wait_for_device_state(&device_id, "offline").await;

    for _ in 0..5 {
        backend.submit("something").await;
    }
    let key = fresh_key();
    let refused = backend.try_submit(&key, "one too many").await.unwrap();
    assert_eq!((refused.status.as_u16(), refused.code()), (429, "queue_full"), "{}", refused.body);
    assert!(refused.headers.contains_key("retry-after"), "{:?}", refused.headers);
    assert_eq!(backend.accepted().len(), 5);

    device.start().await;
    backend.submit_until_accepted(&key, "one too many").await;
    assert_eq!(backend.accepted().len(), 6);
    everything_accepted_ended_once(&backend, &device).await;
}

#[tokio::test]
async fn work_goes_only_to_its_designated_device() {
    let postgres = Postgres::shared().await;
    let gateway = GatewayProcess::start(&postgres, &[]).await;
    let (one, other) = tokio::join!(TestDevice::paired_with(&gateway), TestDevice::paired_with(&gateway));
    let (folder_of_one, folder_of_other) = (Folder::new(), Folder::new());
    folder_of_one.write("orders.txt", "This stands on the first computer.");
    folder_of_other.write("orders.txt", "This stands on the second computer.");
    let for_one = one.publish(&gateway, "shop", &folder_of_one, &[]).await;
    let for_other = other.publish(&gateway, "shop", &folder_of_other, &[]).await;

    for _ in 0..8 {
        tokio::join!(for_one.submit("What stands in orders.txt?"), for_other.submit("What stands in orders.txt?"));
    }
    for (backend, here, elsewhere, word) in [(&for_one, &one, &other, "first"), (&for_other, &other, &one, "second")] {
        everything_accepted_ended_once(backend, here).await;
        for run_id in backend.accepted() {
            let run = backend.run(&run_id).await;
            assert!(text(&run, "/result/text").contains(&format!("on the {word} computer")), "{run}");
            assert_eq!(elsewhere.executions(&run_id), 0, "the other device executed {run_id}");
        }
    }
    // And no caller reads another application's run.
    let foreign = for_other.accepted().into_iter().next().unwrap();
    assert_eq!(for_one.read(&foreign, 0).await.unwrap().status.as_u16(), 404);
    // While a device is away, the other one does not take its work.
    let mut one = one;
    let device_id = one.device_id().await;
    one.stop(Signal::TERM).await;
    gateway.wait_for_device_state(&device_id, "offline").await;
    let waits = for_one.submit("What stands in orders.txt?").await;
    let passes = for_other.submit("What stands in orders.txt?").await;
    for_other.wait_for_end(&passes).await;
    assert_eq!(for_one.run(&waits).await["state"], "waiting_for_device");
}
