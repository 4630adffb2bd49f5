//! Bad networks: slow, narrow, lossy, silent, gone and back. Device and gateway are in two networks, and the kernel
//! drops or delays packets between them.
//!
//! Whatever the network does, each accepted run finishes once and takes effect once: each appends its own line to an
//! effect log, which is the witness. When the network is back, the device reconnects within two seconds.

use std::collections::BTreeMap;
use std::time::Duration;

use deskgate_tests::gateway::Address;
use deskgate_tests::network_link::{self, BOTH_DIRECTIONS, Direction, NetworkLink};
use deskgate_tests::wait::until_within;
use deskgate_tests::{Backend, Folder, GatewayProcess, Postgres, Proxy, TestDevice, until};
use serde_json::json;
use tokio::time::Instant;

use crate::everything_accepted_ended_once;

/// The longest time from the network's return to the device's: twice what is promised, as a busy computer is no failure, and
/// less than the next pause between two dials would take.
const RECONNECT_TIMEOUT: Duration = Duration::from_secs(4);
/// Short heartbeats: a silent connection is noticed within three of them.
const QUICK_SETTINGS: [&str; 2] = ["control.heartbeat_ms=1000", "control.lease_ms=3000"];
/// Long heartbeats, for slow but live connections.
const PATIENT_SETTINGS: [&str; 2] = ["control.heartbeat_ms=5000", "control.lease_ms=15000"];

/// A device with a service that appends its input to an effect log.
struct BadNetworkFixture {
    wire: NetworkLink,
    _postgres: Postgres,
    gateway: GatewayProcess,
    device: TestDevice,
    device_id: String,
    folder: Folder,
    backend: Backend,
    submitted: u32,
}

impl BadNetworkFixture {
    /// Sets it up over a link without faults yet.
    async fn on(wire: NetworkLink, clocks: &[&str]) -> Self {
        let postgres = Postgres::shared().await;
        let listen = format!("ssh.listen={}", NetworkLink::listen());
        let gateway = GatewayProcess::start(&postgres, &[&[listen.as_str()], clocks].concat()).await;
        let mut device = TestDevice::for_remote().await;
        device.start_through(&wire.through());
        device.stop(rustix::process::Signal::TERM).await;
        device.start().await;
        let invitation = device.pair(&gateway, &[]).await;
        let token = gateway.control_token_file();
        device.connect_straight(gateway.ssh().get(), &invitation, &token).await.ok();
        let device_id = device.device_id().await;
        let folder = Folder::new();
        let note = json!({ "tool": "Bash", "arguments": { "command": "echo {{input}} >>ledger" } });
        // Its reports are more than a narrow link passes at once.
        let report = "All of it was written down, and this is the account of it. ".repeat(60);
        let steps = json!([{ "delay_ms": 700 }, note, { "delay_ms": 700 }, { "text": report }]);
        let model = folder.script("ledger", steps);
        let service = ["--model", &model, "--tools", "Bash", "--allow", "Bash", "--concurrency", "2"];
        let backend = device.publish(&gateway, "shop", &folder, &service).await;
        Self { wire, _postgres: postgres, gateway, device, device_id, folder, backend, submitted: 0 }
    }

    async fn submit(&mut self, runs: u32) {
        for _ in 0..runs {
            self.submitted += 1;
            self.backend.submit(&format!("run-{}", self.submitted)).await;
        }
    }

    /// Submits runs: some execute when this returns, and more wait.
    async fn begin(&mut self) {
        self.submit(5).await;
        self.executions(1).await;
    }

    async fn executions(&self, begun: usize) {
        until("runs to be executed", async || match self.device.log().count(&["execution began"]) {
            now if now >= begun => Ok(()),
            now => Err(format!("{now} of {begun} began")),
        })
        .await;
    }

    /// How often a text is in the device's log.
    fn said(&self, words: &str) -> usize {
        self.device.log().count(&[words])
    }

    /// Waits until the device has lost its connection once more than `before`, and submits more meanwhile.
    async fn line_is_lost(&mut self, before: usize) {
        self.submit(3).await;
        until("the device to notice", async || match self.said(LOST_MESSAGE) {
            now if now > before => Ok(()),
            _ => Err(self.device.log().tail(2)),
        })
        .await;
        self.submit(2).await;
    }

    /// The device reconnects soon after the network's return, and the gateway reports it.
    async fn is_back(&self, connected_before: usize) {
        let since = Instant::now();
        until_within(RECONNECT_TIMEOUT, "the device to be connected again", async || {
            match self.said(CONNECTED_MESSAGE) {
                now if now > connected_before => Ok(()),
                _ => Err(self.device.log().tail(3)),
            }
        })
        .await;
        println!("connected again {} ms after the line's return", since.elapsed().as_millis());
        self.gateway.wait_for_device_state(&self.device_id, "connected").await;
    }

    /// Every submitted run finished once, and its line is in the effect log once.
    async fn nothing_was_lost_or_doubled(&self) {
        everything_accepted_ended_once(&self.backend, &self.device).await;
        assert_eq!(self.backend.accepted().len(), self.submitted as usize);
        let ledger = std::fs::read_to_string(self.folder.path().join("ledger")).expect("runs wrote it");
        let mut entries = BTreeMap::new();
        for line in ledger.lines() {
            *entries.entry(line.to_owned()).or_insert(0) += 1;
        }
        let expected: BTreeMap<String, i32> = (1..=self.submitted).map(|run| (format!("run-{run}"), 1)).collect();
        assert_eq!(entries, expected);
    }

    /// Waits until this connection attempt of the device has failed.
    async fn attempt_failed(&self, attempt: u32) {
        let address = format!("address={}", self.gateway.ssh().get());
        self.device.log().line(&[FAILED_MESSAGE, &address, &format!("attempt={attempt} ")]).await;
    }

    /// The link drops these directions until the device has lost its connection and one whole attempt has failed. It
    /// returns in the middle of the next attempt, when a kernel alone would not retry for seconds.
    async fn swallowed(mut self, ways: &[Direction]) {
        self.begin().await;
        let (lost, connected) = (self.said(LOST_MESSAGE), self.said(CONNECTED_MESSAGE));
        self.wire.drop_packets(ways);
        self.line_is_lost(lost).await;
        self.gateway.wait_for_device_state(&self.device_id, "offline").await;
        self.attempt_failed(1).await;
        let before = self.wire.dials();
        until("the next attempt to be under way for a while", async || match self.wire.dials() - before {
            7.. => Ok(()),
            packets => Err(format!("it is at its packet {packets}")),
        })
        .await;
        assert!(self.wire.lost() > 0, "something was swallowed");
        assert_eq!(self.said(CONNECTED_MESSAGE), connected, "nothing got through");
        self.wire.calm();
        self.is_back(connected).await;
        self.nothing_was_lost_or_doubled().await;
    }
}

const CONNECTED_MESSAGE: &str = "connected to the gateway";
const LOST_MESSAGE: &str = "the connection to the gateway was lost";
const FAILED_MESSAGE: &str = "the gateway was not reached";

#[test]
fn a_line_that_is_slow_and_narrow_carries_everything_and_is_not_taken_for_dead() {
    network_link::run_test(
        "bad_networks::a_line_that_is_slow_and_narrow_carries_everything_and_is_not_taken_for_dead",
        async |wire| {
            let mut site = BadNetworkFixture::on(wire, &PATIENT_SETTINGS).await;
            let lag = Duration::from_millis(150);
            let long_way = Proxy::long_way(NetworkLink::listen(), Address::new(site.gateway.ssh().get()), lag).await;
            let connected = site.said(CONNECTED_MESSAGE);
            site.wire.narrow(64);
            site.device.save(&["--ssh-address", &long_way.address().to_string()]).await.ok();
            until("the device to go the long way", async || match site.said(CONNECTED_MESSAGE) {
                now if now > connected => Ok(()),
                _ => Err(site.device.log().tail(2)),
            })
            .await;
            let lost = site.said(LOST_MESSAGE);
            let began = Instant::now();
            site.submit(8).await;
            site.nothing_was_lost_or_doubled().await;
            println!("8 runs took {} ms", began.elapsed().as_millis());
            assert_eq!(
                (site.said(LOST_MESSAGE), site.said(CONNECTED_MESSAGE)),
                (lost, connected + 1),
                "the line stood all the time"
            );
        },
    );
}

#[test]
fn lost_packets_cost_time_and_no_run() {
    network_link::run_test("bad_networks::lost_packets_cost_time_and_no_run", async |wire| {
        let mut site = BadNetworkFixture::on(wire, &PATIENT_SETTINGS).await;
        for of_a_hundred in [5, 20] {
            let connected = site.said(CONNECTED_MESSAGE);
            site.wire.lose(of_a_hundred);
            // The connection setup is lossy too.
            site.device.save(&["--ssh-user", &format!("lossy-{of_a_hundred}")]).await.ok();
            site.submit(6).await;
            until("the device to get through", async || match site.said(CONNECTED_MESSAGE) {
                now if now > connected => Ok(()),
                _ => Err(site.device.log().tail(2)),
            })
            .await;
            let began = Instant::now();
            for run_id in site.backend.accepted() {
                site.backend.wait_for_end(&run_id).await;
            }
            let lost = site.wire.lost();
            // A command of the owner's may fail on such a line, and says so.
            site.wire.calm();
            site.nothing_was_lost_or_doubled().await;
            println!("{of_a_hundred} %: {lost} packets lost, {} ms", began.elapsed().as_millis());
            assert!(lost > 0, "nothing was lost");
        }
    });
}

#[test]
fn a_line_that_swallows_everything_is_given_up_and_used_again_when_it_is_back() {
    network_link::run_test(
        "bad_networks::a_line_that_swallows_everything_is_given_up_and_used_again_when_it_is_back",
        async |wire| {
            BadNetworkFixture::on(wire, &QUICK_SETTINGS).await.swallowed(&BOTH_DIRECTIONS).await;
        },
    );
}

#[test]
fn a_line_that_swallows_what_the_device_says_is_given_up_and_used_again_when_it_is_back() {
    network_link::run_test(
        "bad_networks::a_line_that_swallows_what_the_device_says_is_given_up_and_used_again_when_it_is_back",
        async |wire| {
            BadNetworkFixture::on(wire, &QUICK_SETTINGS).await.swallowed(&[Direction::Up]).await;
        },
    );
}

#[test]
fn a_line_that_swallows_what_the_device_is_told_is_given_up_and_used_again_when_it_is_back() {
    network_link::run_test(
        "bad_networks::a_line_that_swallows_what_the_device_is_told_is_given_up_and_used_again_when_it_is_back",
        async |wire| {
            BadNetworkFixture::on(wire, &QUICK_SETTINGS).await.swallowed(&[Direction::Down]).await;
        },
    );
}

#[test]
fn a_device_whose_address_changes_under_an_open_line_dials_anew_from_the_new_one() {
    network_link::run_test(
        "bad_networks::a_device_whose_address_changes_under_an_open_line_dials_anew_from_the_new_one",
        async |wire| {
            // Heartbeats alone would need almost a minute to notice.
            let mut site = BadNetworkFixture::on(wire, &[]).await;
            site.begin().await;
            // There is no address for a while, as when a desktop moves from one network to another.
            let (lost, connected) = (site.said(LOST_MESSAGE), site.said(CONNECTED_MESSAGE));
            site.wire.remove_address(network_link::DEVICE_IP);
            site.line_is_lost(lost).await;
            site.wire.add_address(network_link::SECOND_DEVICE_IP);
            site.is_back(connected).await;

            // One address replaces the other at once.
            let connected = site.said(CONNECTED_MESSAGE);
            site.wire.remove_address(network_link::SECOND_DEVICE_IP);
            site.wire.add_address(network_link::DEVICE_IP);
            site.is_back(connected).await;
            assert_eq!(site.said("this computer's address changed"), 2);
            site.nothing_was_lost_or_doubled().await;
        },
    );
}

#[test]
fn a_gateway_whose_cable_was_out_has_its_device_back_at_once() {
    network_link::run_test("bad_networks::a_gateway_whose_cable_was_out_has_its_device_back_at_once", async |wire| {
        let mut site = BadNetworkFixture::on(wire, &QUICK_SETTINGS).await;
        site.begin().await;
        let (lost, connected) = (site.said(LOST_MESSAGE), site.said(CONNECTED_MESSAGE));
        site.wire.unplug();
        site.line_is_lost(lost).await;
        site.gateway.wait_for_device_state(&site.device_id, "offline").await;
        // So often that a plain back-off would wait for long by now.
        site.attempt_failed(4).await;
        site.wire.plug();
        site.is_back(connected).await;
        site.nothing_was_lost_or_doubled().await;
    });
}
