//! Announced sleep, waking, and what is kept in between.

use std::io::{ErrorKind, Read};

use deskgate_protocol::control::{DeviceFrame, GatewayFrame, InFlightRun, InFlightStatus};
use deskgate_tests::backend::client;
use deskgate_tests::raw::{RawConnection, RawIdentity};
use deskgate_tests::{Backend, Folder, GatewayProcess, Logind, Postgres, TestDevice, until};
use rustix::process::Signal;

use crate::frames::{next_offer, publish, run_id};
use crate::{everything_accepted_ended_once, text};

/// A raw device that executes one run and has another one waiting in the queue.
struct SleepFixture {
    persona: RawIdentity,
    line: RawConnection,
    device_id: String,
    backend: Backend,
    started: String,
    waiting: String,
}

impl SleepFixture {
    async fn at(gateway: &GatewayProcess) -> Self {
        let persona = RawIdentity::new(41);
        let device_id = text(&persona.pair(gateway, "desk").await.ok(), "/device/device_id").to_owned();
        let (mut line, _) = persona.connect(gateway, Vec::new()).await;
        let backend = publish(&mut line, gateway).await;
        let started = line.answering_pings(backend.submit("the first")).await;
        line.send(&DeviceFrame::ready(1)).await;
        let attempt = next_offer(&mut line).await.attempt;
        line.send(&DeviceFrame::Accept { run_id: run_id(&started), attempt }).await;
        assert!(matches!(line.next_answering_pings().await, Some(GatewayFrame::Start { .. })));
        let waiting = line.answering_pings(backend.submit("the second")).await;
        Self { persona, line, device_id, backend, started, waiting }
    }

    async fn falls_asleep(&mut self, gateway: &GatewayProcess) {
        self.line.send(&DeviceFrame::Suspend).await;
        self.line.answering_pings(gateway.wait_for_device_state(&self.device_id, "asleep")).await;
    }

    async fn reason(&self) -> (String, String) {
        let run = self.backend.run(&self.waiting).await;
        (text(&run, "/state").to_owned(), text(&run, "/state_reason/code").to_owned())
    }

    /// The runs that the device reports when it comes back.
    fn in_flight(&self) -> Vec<InFlightRun> {
        vec![InFlightRun { run_id: run_id(&self.started), attempt: 1, status: InFlightStatus::Running }]
    }
}

fn asleep() -> (String, String) {
    ("waiting_for_device".to_owned(), "device_asleep".to_owned())
}

#[tokio::test]
async fn runs_wait_for_a_device_that_announced_its_sleep_and_none_is_offered_before_it_is_awake() {
    let postgres = Postgres::shared().await;
    let gateway = GatewayProcess::start(&postgres, &[]).await;
    let mut sleeper = SleepFixture::at(&gateway).await;
    sleeper.falls_asleep(&gateway).await;
    assert_eq!(sleeper.reason().await, asleep());
    assert!(text(&gateway.device(&sleeper.device_id).await, "/note").starts_with("asleep since 2"));
    // Slots that were declared just before are not used.
    sleeper.line.send(&DeviceFrame::ready(1)).await;
    sleeper.line.send(&DeviceFrame::Resume).await;
    let offer = next_offer(&mut sleeper.line).await;
    assert_eq!(offer.run_id, run_id(&sleeper.waiting));
    gateway.wait_for_device_state(&sleeper.device_id, "connected").await;
}

#[tokio::test]
async fn a_run_survives_the_sleep_of_its_device_beyond_the_lease_and_a_killed_gateway() {
    let postgres = Postgres::shared().await;
    let clocks = ["control.heartbeat_ms=1000", "control.lease_ms=3000"];
    let mut gateway = GatewayProcess::start(&postgres, &clocks).await;
    let mut sleeper = SleepFixture::at(&gateway).await;
    sleeper.falls_asleep(&gateway).await;
    // It answers no ping; the gateway closes the connection, and its session's lease runs out.
    while sleeper.line.next().await.is_some() {}
    gateway.kill_9();
    gateway.restart().await;
    let lost = "SELECT 1 AS lost FROM devices WHERE lease_expires_at < now() - interval '2 seconds'";
    deskgate_tests::wait::until("two rounds of upkeep", async || match postgres.rows(lost).await.len() {
        1 => Ok(()),
        _ => Err("the lease is young".to_owned()),
    })
    .await;
    gateway.wait_for_device_state(&sleeper.device_id, "asleep").await;
    assert_eq!(sleeper.reason().await, asleep());
    assert_eq!(text(&sleeper.backend.run(&sleeper.started).await, "/state"), "running");

    let (mut line, _) = sleeper.persona.connect(&gateway, sleeper.in_flight()).await;
    assert!(matches!(line.next_answering_pings().await, Some(GatewayFrame::Ack { through: 0, .. })));
    line.answering_pings(gateway.wait_for_device_state(&sleeper.device_id, "connected")).await;
    let run = sleeper.backend.run(&sleeper.started).await;
    assert_eq!((text(&run, "/state"), run["last_sequence"].as_u64()), ("running", Some(2)), "nothing happened: {run}");
}

#[tokio::test]
async fn a_device_that_announces_sleep_and_goes_on_answering_is_awake_after_a_lease() {
    let postgres = Postgres::shared().await;
    let gateway = GatewayProcess::start(&postgres, &["control.heartbeat_ms=1000", "control.lease_ms=5000"]).await;
    let mut sleeper = SleepFixture::at(&gateway).await;
    sleeper.falls_asleep(&gateway).await;
    sleeper.line.send(&DeviceFrame::ready(1)).await;
    assert_eq!(next_offer(&mut sleeper.line).await.run_id, run_id(&sleeper.waiting));
}

#[tokio::test]
async fn a_sleeping_device_is_counted_as_asleep_and_can_be_removed() {
    let postgres = Postgres::shared().await;
    let gateway = GatewayProcess::start(&postgres, &[]).await;
    let mut sleeper = SleepFixture::at(&gateway).await;
    sleeper.falls_asleep(&gateway).await;
    let page = format!("http://{}/metrics", gateway.ops().get());
    let metrics =
        client().build().expect("a client").get(page).send().await.expect("answers").text().await.expect("text");
    assert!(metrics.contains("deskgate_devices_asleep 1"), "{metrics}");
    assert!(metrics.contains("deskgate_queue_depth{state=\"waiting_for_device\"} 1"), "{metrics}");

    gateway.admin(&["device", "revoke", "desk", "--accept-risk", "interrupt-runs"]).await.ok();
    assert_eq!(text(&sleeper.backend.wait_for_end(&sleeper.started).await, "/error/code"), "device_removed");
    assert_eq!(text(&sleeper.backend.wait_for_end(&sleeper.waiting).await, "/error/code"), "device_removed");
    gateway.wait_for_device_state(&sleeper.device_id, "revoked").await;
}

/// A device whose computer has a login service, paired over SSH, with a service whose answers take a while.
async fn desktop(gateway: &GatewayProcess, folder: &Folder, delay_ms: u64) -> (TestDevice, Logind, Backend) {
    let mut device = TestDevice::paired_with(gateway).await;
    device.stop(Signal::TERM).await;
    let logind = Logind::start(&device).await;
    device.start().await;
    device.wait_until_connected().await;
    let slow = folder.slow_answer(delay_ms, "awake again");
    let backend = device.publish(gateway, "shop", folder, &["--model", &slow]).await;
    (device, logind, backend)
}

const SLEEP_DELAY_INHIBITOR: (&str, &str) = ("sleep", "delay");
const IDLE_BLOCK_INHIBITOR: (&str, &str) = ("idle", "block");

#[tokio::test]
async fn a_desktop_announces_its_sleep_before_it_sleeps_and_works_on_when_it_wakes() {
    let postgres = Postgres::shared().await;
    let gateway = GatewayProcess::start(&postgres, &[]).await;
    let folder = Folder::new();
    let (device, logind, backend) = desktop(&gateway, &folder, 100).await;
    let device_id = device.device_id().await;
    logind.wait_for_inhibitors(&[SLEEP_DELAY_INHIBITOR]).await;
    logind.announce_sleep().await;
    // From now on the computer may sleep at any moment; it is already known as asleep.
    logind.wait_for_inhibitors(&[]).await;
    gateway.wait_for_device_state(&device_id, "asleep").await;
    let run_id = backend.submit("Are you there?").await;
    let run = backend.wait_for_state(&run_id, "waiting_for_device").await;
    assert_eq!(text(&run, "/state_reason/code"), "device_asleep", "{run}");

    logind.announce_wake().await;
    backend.wait_for_end(&run_id).await;
    everything_accepted_ended_once(&backend, &device).await;
    // Ready for the next sleep.
    logind.wait_for_inhibitors(&[SLEEP_DELAY_INHIBITOR]).await;
}

#[tokio::test]
async fn a_run_keeps_the_computer_awake_and_lets_it_go_when_it_ends() {
    let postgres = Postgres::shared().await;
    let gateway = GatewayProcess::start(&postgres, &[]).await;
    let folder = Folder::new();
    let (device, logind, backend) = desktop(&gateway, &folder, 3000).await;
    assert_eq!(device.status().await["kept_awake"]["state"], "not_needed");
    let run_id = backend.submit("Take your time.").await;
    logind.wait_for_inhibitors(&[IDLE_BLOCK_INHIBITOR, SLEEP_DELAY_INHIBITOR]).await;
    assert_eq!(device.status().await["kept_awake"]["state"], "yes");
    backend.wait_for_end(&run_id).await;
    logind.wait_for_inhibitors(&[SLEEP_DELAY_INHIBITOR]).await;
    assert_eq!(device.status().await["kept_awake"]["state"], "not_needed");
}

#[tokio::test]
async fn a_run_that_is_executing_when_the_computer_sleeps_finishes_after_it_wakes() {
    let postgres = Postgres::shared().await;
    let clocks = ["control.heartbeat_ms=1000", "control.lease_ms=3000"];
    let gateway = GatewayProcess::start(&postgres, &clocks).await;
    let folder = Folder::new();
    let (device, logind, backend) = desktop(&gateway, &folder, 10_000).await;
    let device_id = device.device_id().await;
    let run_id = backend.submit("Take your time.").await;
    backend.wait_for_state(&run_id, "running").await;
    logind.announce_sleep().await;
    gateway.wait_for_device_state(&device_id, "asleep").await;
    // From here on the computer is silent, for longer than its lease.
    device.proxy().freeze();
    let lost = "SELECT 1 AS lost FROM devices WHERE lease_expires_at < now() - interval '2 seconds'";
    deskgate_tests::until("two rounds of upkeep", async || match postgres.rows(lost).await.len() {
        1 => Ok(()),
        _ => Err("the lease is young".to_owned()),
    })
    .await;
    assert_eq!(text(&backend.run(&run_id).await, "/state"), "running");

    device.proxy().cut();
    device.proxy().heal();
    logind.announce_wake().await;
    assert_eq!(text(&backend.wait_for_end(&run_id).await, "/result/text"), "awake again");
    let events = device.events(&run_id).await;
    assert!(!events.iter().any(|event| event.contains("reconcil")), "{events:?}");
    everything_accepted_ended_once(&backend, &device).await;
}

#[tokio::test]
async fn a_wake_is_not_lost_when_the_line_is_cut_while_the_login_service_stalls() {
    let postgres = Postgres::shared().await;
    let gateway = GatewayProcess::start(&postgres, &[]).await;
    let folder = Folder::new();
    let (device, logind, backend) = desktop(&gateway, &folder, 100).await;
    let device_id = device.device_id().await;
    logind.announce_sleep().await;
    gateway.wait_for_device_state(&device_id, "asleep").await;
    logind.stalls_at_inhibitors().await;
    logind.announce_wake().await;
    logind.wait_for_inhibitor_request().await;
    device.proxy().cut();
    device.proxy().heal();
    gateway.wait_for_device_state(&device_id, "connected").await;
    backend.wait_for_end(&backend.submit("Are you there?").await).await;
    everything_accepted_ended_once(&backend, &device).await;
    // Ready for the next sleep, although the preparation was interrupted.
    logind.answers_again();
    logind.wait_for_inhibitors(&[SLEEP_DELAY_INHIBITOR]).await;
}

#[tokio::test]
async fn an_agent_does_not_wait_for_a_login_service_that_says_nothing() {
    let mut device = TestDevice::for_remote().await;
    device.stop(Signal::TERM).await;
    let bus = tokio::net::UnixListener::bind(device.system_bus()).expect("a fresh folder");
    let asking = tokio::spawn(async move { bus.accept().await.expect("the agent looks for it").0 });
    device.start().await;
    // It has answered already, and still waits for the other.
    let mut asking = asking.await.expect("no panic").into_std().expect("an open socket");
    let found = asking.read_to_end(&mut Vec::new()).expect_err("it gave the login service up first");
    assert_eq!(found.kind(), ErrorKind::WouldBlock, "the end of what it said so far");
    device.stop(Signal::TERM).await;
}

#[tokio::test]
async fn a_desktop_without_a_login_service_works_and_says_that_sleep_can_interrupt_it() {
    let postgres = Postgres::shared().await;
    let gateway = GatewayProcess::start(&postgres, &[]).await;
    let device = TestDevice::paired_with(&gateway).await;
    let folder = Folder::new();
    let slow = folder.slow_answer(3000, "done");
    let backend = device.publish(&gateway, "shop", &folder, &["--model", &slow]).await;
    let run_id = backend.submit("Take your time.").await;
    device.wait_for_standing(&run_id, "running").await;
    let said = device.plain_cli(&["status"]).await;
    assert!(said.stdout.contains("sleep      can interrupt runs: "), "{}", said.stdout);
    backend.wait_for_end(&run_id).await;
    let run_id = backend.submit("Once more.").await;
    device.wait_for_standing(&run_id, "running").await;
    backend.wait_for_end(&run_id).await;
    let log = device.log().all();
    assert_eq!(log.matches("this computer may fall asleep during a run").count(), 1, "one reason, said once: {log}");
    everything_accepted_ended_once(&backend, &device).await;
}

#[tokio::test]
async fn a_desktop_whose_system_bus_dies_in_its_sleep_is_awake() {
    let postgres = Postgres::shared().await;
    let gateway = GatewayProcess::start(&postgres, &[]).await;
    let folder = Folder::new();
    let (device, logind, backend) = desktop(&gateway, &folder, 100).await;
    let device_id = device.device_id().await;
    logind.announce_sleep().await;
    gateway.wait_for_device_state(&device_id, "asleep").await;
    logind.kill_9();
    gateway.wait_for_device_state(&device_id, "connected").await;
    backend.wait_for_end(&backend.submit("Are you there?").await).await;
    everything_accepted_ended_once(&backend, &device).await;
}

#[tokio::test]
async fn a_desktop_that_was_killed_in_its_sleep_is_awake_when_it_starts_again() {
    let postgres = Postgres::shared().await;
    let gateway = GatewayProcess::start(&postgres, &[]).await;
    let folder = Folder::new();
    let (mut device, logind, backend) = desktop(&gateway, &folder, 100).await;
    let device_id = device.device_id().await;
    logind.announce_sleep().await;
    gateway.wait_for_device_state(&device_id, "asleep").await;
    let run_id = backend.submit("Are you there?").await;
    device.kill_9();
    device.start().await;
    backend.wait_for_end(&run_id).await;
    everything_accepted_ended_once(&backend, &device).await;
    gateway.wait_for_device_state(&device_id, "connected").await;
}

#[tokio::test]
async fn a_computer_is_kept_awake_only_when_its_owner_wants_it_also_in_the_middle_of_a_run() {
    let mut device = TestDevice::new();
    let logind = Logind::start(&device).await;
    device.start().await;
    device.wait_until_connected().await;
    let folder = Folder::new();
    let slow = folder.slow_answer(60_000, "late");
    let backend = device.publish_here("shop", &folder, &["--model", &slow]).await;
    let choose = async |wish: &str| {
        let chosen = device.cli(&["settings", "set", "keep-awake", wish]).await.ok();
        assert_eq!(chosen["keep_awake"], wish, "{chosen}");
    };
    let kept_awake = async |wanted: &str| {
        until(&format!("to be kept awake: {wanted}"), async || {
            let status = device.status().await;
            if status["kept_awake"].to_string().contains(wanted) {
                Ok(())
            } else {
                Err(status["kept_awake"].to_string())
            }
        })
        .await;
    };
    let run_id = backend.submit("Take your time").await;
    backend.wait_for_state(&run_id, "running").await;
    logind.wait_for_inhibitors(&[IDLE_BLOCK_INHIBITOR, SLEEP_DELAY_INHIBITOR]).await;
    choose("never").await;
    logind.wait_for_inhibitors(&[SLEEP_DELAY_INHIBITOR]).await;
    kept_awake("not_wanted").await;
    assert!(!device.status().await["problems"].to_string().contains("sleep"), "what was chosen is no problem");
    // A login service that does not report mains power: the status says so.
    choose("on-ac").await;
    kept_awake("is not known").await;
    logind.wait_for_inhibitors(&[SLEEP_DELAY_INHIBITOR]).await;
    logind.is_on_mains(true).await;
    logind.wait_for_inhibitors(&[IDLE_BLOCK_INHIBITOR, SLEEP_DELAY_INHIBITOR]).await;
    // The computer goes on battery.
    logind.is_on_mains(false).await;
    kept_awake("it runs on battery").await;
    logind.wait_for_inhibitors(&[SLEEP_DELAY_INHIBITOR]).await;
    let wrong = device.cli(&["settings", "set", "keep-awake", "at-noon"]).await;
    assert!(wrong.exit != 0 && wrong.stderr.contains("always, on-ac, never"), "{}", wrong.stderr);
    choose("always").await;
    logind.wait_for_inhibitors(&[IDLE_BLOCK_INHIBITOR, SLEEP_DELAY_INHIBITOR]).await;
    // The setting outlives the agent.
    choose("never").await;
    device.kill_9();
    device.start().await;
    assert_eq!(device.cli(&["settings", "show"]).await.ok()["keep_awake"], "never");
}

#[tokio::test]
async fn a_built_in_gateway_lets_runs_wait_until_its_computer_is_awake() {
    let mut device = TestDevice::new();
    let logind = Logind::start(&device).await;
    device.start().await;
    device.wait_until_connected().await;
    let folder = Folder::new();
    let backend = device.publish_here("shop", &folder, &[]).await;
    logind.announce_sleep().await;
    logind.wait_for_inhibitors(&[]).await;
    let run_id = backend.submit("Are you there?").await;
    let run = backend.wait_for_state(&run_id, "waiting_for_device").await;
    assert_eq!(text(&run, "/state_reason/code"), "device_asleep", "{run}");
    logind.announce_wake().await;
    backend.wait_for_end(&run_id).await;
    everything_accepted_ended_once(&backend, &device).await;
}
