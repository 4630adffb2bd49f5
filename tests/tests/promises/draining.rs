//! A gateway that is asked to stop first reports that it drains, and loses nothing.

use deskgate_gateway::ops::health_check::send_request;
use deskgate_tests::backend::fresh_key;
use deskgate_tests::gateway::RELATIVE_SOCKET_SETTING;
use deskgate_tests::{Folder, GatewayProcess, Postgres, TestDevice, until};
use rustix::process::Signal;
use tokio::task::JoinSet;

use crate::{everything_accepted_ended_once, text};

#[tokio::test]
async fn a_draining_gateway_refuses_new_work_answers_whoever_waits_and_a_second_signal_ends_it_at_once() {
    let postgres = Postgres::shared().await;
    let mut gateway = GatewayProcess::start(&postgres, &["server.drain_ms=60000"]).await;
    let device = TestDevice::paired_with(&gateway).await;
    let folder = Folder::new();
    let slow = folder.slow_answer(3000, "done");
    let backend = device.publish(&gateway, "shop", &folder, &["--model", &slow]).await;
    let run_id = backend.submit("Take your time.").await;
    backend.wait_for_state(&run_id, "running").await;
    let waiting = tokio::spawn({
        let (backend, run_id) = (backend.clone(), run_id.clone());
        async move { backend.read(&run_id, 60).await }
    });
    // The order of two requests on one connection shows that the wait is in progress.
    backend.run(&run_id).await;

    gateway.process().signal(Signal::TERM);
    until("readiness to end", async || match send_request(gateway.ops().get(), "/readyz?verbose").await {
        Err(said) if said.contains("[-] admission: this gateway is stopping") => Ok(()),
        other => Err(format!("{other:?}")),
    })
    .await;
    assert_eq!(send_request(gateway.ops().get(), "/livez").await.as_deref(), Ok("ok"), "it lives until it has ended");
    let refused = backend.try_submit(&fresh_key(), "More.").await.expect("the gateway answers");
    assert_eq!((refused.status.as_u16(), refused.code()), (503, "draining"), "{}", refused.body);
    assert_eq!(refused.headers["retry-after"], "1");
    let waiting = waiting.await.expect("no panic").expect("a whole answer");
    assert_eq!((waiting.status.as_u16(), text(&waiting.body, "/state")), (200, "running"), "{}", waiting.body);
    device.log().line(&["the connection to the gateway was lost"]).await;
    assert_eq!(backend.run(&run_id).await["run_id"], run_id.as_str(), "reading goes on");

    gateway.process().signal(Signal::TERM);
    assert_eq!(gateway.wait_for_exit().await.code(), Some(130), "not everything was finished");
    gateway.restart().await;
    everything_accepted_ended_once(&backend, &device).await;
    assert_eq!(device.executions(&run_id), 1, "the device went on with what it had");
}

#[tokio::test]
async fn while_one_of_two_gateways_is_replaced_no_submission_fails_that_is_tried_twice() {
    let postgres = Postgres::shared().await;
    let mut one = GatewayProcess::start(&postgres, &[RELATIVE_SOCKET_SETTING, "server.drain_ms=300"]).await;
    let other = one.replica().await;
    let device = TestDevice::paired_with(&other).await;
    let folder = Folder::new();
    let backend = device.publish(&other, "shop", &folder, &["--concurrency", "4"]).await;
    let (first, second) = (backend.through(one.http()), backend.through(other.http()));
    let mut callers = JoinSet::new();
    for _ in 0..4 {
        let (first, second) = (first.clone(), second.clone());
        callers.spawn(async move {
            let mut refused = 0;
            for _ in 0..40 {
                let key = fresh_key();
                match first.try_submit(&key, "Work.").await {
                    Ok(answer) if answer.status == 202 => continue,
                    Ok(answer) => assert_eq!(answer.code(), "draining", "{} {}", answer.status, answer.body),
                    // Between the end of listening and the next start there is no answer.
                    Err(error) => assert!(error.is_connect() || error.is_request(), "{error:?}"),
                }
                refused += 1;
                let again = second.try_submit(&key, "Work.").await.expect("the other one is there");
                assert_eq!(again.status.as_u16(), 202, "{}", again.body);
            }
            refused
        });
    }
    until("work to be under way", async || match backend.accepted().len() {
        20.. => Ok(()),
        accepted => Err(format!("{accepted} accepted")),
    })
    .await;
    assert!(one.stop(Signal::TERM).await.success(), "in good order");
    one.restart().await;
    let refused: usize = callers.join_all().await.into_iter().sum();
    assert!(refused > 0, "the stop was noticed by somebody, or nothing was tested");
    assert_eq!(backend.accepted().len(), 160);
    everything_accepted_ended_once(&backend, &device).await;
}
