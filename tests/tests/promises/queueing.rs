//! Runs wait for their own device, and never go to another.

use deskgate_protocol::control::{DeviceFrame, GatewayFrame, RefuseCode};
use deskgate_tests::backend::fresh_key;
use deskgate_tests::raw::RawIdentity;
use deskgate_tests::visitor::Visitor;
use deskgate_tests::{Folder, GatewayProcess, Postgres, TestDevice};
use rustix::process::Signal;
use serde_json::json;

use crate::frames::{next_offer, publish};
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
async fn a_run_that_waits_for_another_of_its_service_says_so_and_names_it() {
    let device = TestDevice::built_in().await;
    let folder = Folder::new();
    let model = folder.script("slow", json!([{ "delay_ms": 3_600_000 }, { "text": "never" }]));
    let backend = device.publish_here("shop", &folder, &["--model", &model, "--concurrency", "1"]).await;
    let first = backend.submit("First.").await;
    backend.wait_for_state(&first, "running").await;
    let second = backend.submit("Second.").await;
    let shown = device.cli(&["run", "show", &second]).await.ok();
    assert_eq!(shown["waits_for"], json!({ "waits_for": "service", "places": 1, "ahead": [first] }), "{shown}");
    let said = device.plain_cli(&["run", "show", &second]).await.stdout;
    assert!(said.contains("executes one at a time") && said.contains(&format!("deskgate run show {first}")), "{said}");
    let visitor = Visitor::of(&device).await;
    for path in ["/runs".to_owned(), format!("/runs/{second}")] {
        let page = visitor.page(&path).await.text;
        assert!(page.contains("It waits for another run of its service"), "{path}: {page}");
    }
    device.cli(&["run", "stop", &first, "--wait", "40s"]).await.ok();
    backend.wait_for_state(&second, "running").await;
    assert!(device.cli(&["run", "show", &second]).await.ok().get("waits_for").is_none());
    device.cli(&["run", "stop", &second, "--wait", "40s"]).await.ok();
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
async fn a_service_of_one_place_is_offered_one_run_at_a_time_and_holds_back_no_other_service() {
    let postgres = Postgres::shared().await;
    let gateway = GatewayProcess::start(&postgres, &[]).await;
    let device = TestDevice::paired_with(&gateway).await;
    let folder = Folder::new();
    let model = folder.slow_answer(50, "done");
    let one = device.publish(&gateway, "shop", &folder, &["--model", &model, "--concurrency", "1"]).await;
    let other = device.publish(&gateway, "desk", &folder, &["--model", &model, "--tools", "Read"]).await;
    let waiting = futures_util::future::join_all((0..20).map(|_| one.submit("In its turn."))).await;
    let passing = futures_util::future::join_all((0..4).map(|_| other.submit("Past them."))).await;
    let mut begun = [String::new(), String::new()];
    for (backend, run_id) in waiting.iter().map(|id| (&one, id)).chain(passing.iter().map(|id| (&other, id))) {
        let run = backend.wait_for_end(run_id).await;
        assert_eq!((text(&run, "/state"), &run["attempt"]), ("succeeded", &1.into()), "{run}");
        let newest = &mut begun[usize::from(std::ptr::eq(backend, &raw const other))];
        *newest = newest.as_str().max(text(&run, "/started_at")).to_owned();
    }
    let [of_one, of_other] = begun;
    assert!(of_other < of_one, "those of the other service did not wait for all of them: {of_other} {of_one}");
    let offers = postgres.rows("SELECT max(attempt) AS most, sum(attempt) AS all FROM runs").await;
    assert_eq!((&offers[0]["most"], &offers[0]["all"]), (&1.into(), &24.into()), "no offer was refused");
    for backend in [&one, &other] {
        everything_accepted_ended_once(backend, &device).await;
    }
}

#[tokio::test]
async fn a_refused_offer_is_no_attempt_and_no_stop_is_lost_to_the_queue() {
    let postgres = Postgres::shared().await;
    let gateway = GatewayProcess::start(&postgres, &[]).await;
    let device = RawIdentity::new(31);
    device.pair(&gateway, "desk").await.ok();
    let (mut line, _) = device.connect(&gateway, Vec::new()).await;
    let backend = publish(&mut line, &gateway).await;
    let id = backend.submit("Whenever there is room.").await;
    for refused in 1..=5 {
        line.send(&DeviceFrame::ready(1)).await;
        let offer = next_offer(&mut line).await;
        assert_eq!(offer.attempt, refused, "each offer has a number of its own: none is taken for another");
        let (run_id, attempt) = (offer.run_id, offer.attempt);
        line.send(&DeviceFrame::Refuse { run_id, attempt, code: RefuseCode::Busy }).await;
        assert_eq!(backend.run(&id).await["attempt"], 0, "it has not begun");
    }
    // An answer to an offer that was refused long ago is stale.
    line.send(&DeviceFrame::ready(1)).await;
    let offer = next_offer(&mut line).await;
    line.send(&DeviceFrame::Accept { run_id: offer.run_id, attempt: 5 }).await;
    let revoked = line.next_answering_pings().await;
    assert!(matches!(revoked, Some(GatewayFrame::Revoke { attempt: 5, .. })), "{revoked:?}");
    line.send(&DeviceFrame::Accept { run_id: offer.run_id, attempt: offer.attempt }).await;
    let run = backend.wait_for_state(&id, "running").await;
    assert_eq!(run["attempt"], 1, "six offers, and one of them began: {run}");
    let stop = |id: &str, attempt: u32| {
        let path = format!("/runs/{id}/stop");
        backend
            .request(reqwest::Method::POST, &path)
            .header("Idempotency-Key", fresh_key())
            .json(&json!({ "expected_attempt": attempt }))
    };
    let mistaken = backend.send(stop(&id, 6)).await.expect("answered");
    assert_eq!((mistaken.status.as_u16(), mistaken.code()), (409, "attempt_mismatch"), "{}", mistaken.body);
    assert_eq!(backend.send(stop(&id, 1)).await.expect("answered").status.as_u16(), 202);

    // What the caller has read of a waiting run stays true while it is offered and refused.
    let waits = backend.submit("And this?").await;
    let read = backend.run(&waits).await["attempt"].as_u64().expect("a number");
    line.send(&DeviceFrame::ready(1)).await;
    // Behind the start and the stop of the other run.
    let offer = loop {
        match line.next_answering_pings().await.expect("the line is open") {
            GatewayFrame::Offer(offer) => break offer,
            GatewayFrame::Start { .. } | GatewayFrame::Control { .. } => {}
            other => panic!("no offer: {other:?}"),
        }
    };
    line.send(&DeviceFrame::Refuse { run_id: offer.run_id, attempt: offer.attempt, code: RefuseCode::Busy }).await;
    let stopped = backend.send(stop(&waits, u32::try_from(read).expect("small"))).await.expect("answered");
    assert_eq!(stopped.status.as_u16(), 202, "{}", stopped.body);
    assert_eq!(text(&backend.wait_for_end(&waits).await, "/state"), "cancelled");
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
