//! Two networks of their own, joined by a wire that can be as bad as wires are. The gateway's is the one that the test
//! runs in (an [`island`]); the device's is another one, which programs are started in.
//!
//! Packets are dropped by the kernel's own filter and held back by its own queue, so that what the programs see is what
//! they would see of a bad line: nothing.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::process::{Child, Command, Stdio};

use crate::island;
use crate::wait::until;

/// The gateway's address.
pub const GATEWAY: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 213, 0, 1));
/// The device's first address.
pub const DEVICE: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 213, 0, 2));
/// Another one for the device.
pub const ELSEWHERE: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 213, 0, 3));

/// The wire's two ends.
const NEAR: &str = "near";
const FAR: &str = "far";

/// Which way packets go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// From the device to the gateway.
    Up,
    /// From the gateway to the device.
    Down,
}

/// Both ways.
pub const BOTH: [Way; 2] = [Way::Up, Way::Down];

/// The wire, and the device's network.
#[derive(Debug)]
pub struct Wire {
    /// A process that only is in that network, and ends with this one: when its input does.
    holder: Child,
}

/// Runs a test, with its name as the test program lists it, in the gateway's network. Where no networks can be made, a
/// word says so.
pub fn between_two(test: &str, work: impl AsyncFnOnce(Wire)) {
    if island::can_be_made() {
        island::on_bare_one(test, async || work(Wire::lay().await).await);
    }
}

impl Wire {
    async fn lay() -> Self {
        let mut command = Command::new("unshare");
        command.args(["--net", "--", "cat"]).stdin(Stdio::piped()).stdout(Stdio::null());
        let wire = Self { holder: command.spawn().expect("util-linux is there") };
        let network = |process: &str| std::fs::read_link(format!("/proc/{process}/ns/net"));
        until("the device's network", async || match (network("self"), network(&wire.holder.id().to_string())) {
            (Ok(ours), Ok(theirs)) if ours != theirs => Ok(()),
            other => Err(format!("{other:?}")),
        })
        .await;
        let there = wire.holder.id().to_string();
        here(&format!("ip link add name {NEAR} type veth peer name {FAR} netns {there}"));
        for (end, address) in [(NEAR, GATEWAY), (FAR, DEVICE)] {
            let setting_up = [
                "ip link set lo up".to_owned(),
                format!("ip addr add {address}/24 dev {end}"),
                format!("ip link set {end} up"),
            ];
            for command in setting_up {
                wire.at_end(if end == NEAR { Way::Up } else { Way::Down }, &command);
            }
        }
        // What comes to either end goes through here first.
        for command in [
            "nft add table inet weather",
            "nft add chain inet weather arriving { type filter hook input priority 0 ; }",
        ] {
            here(command);
            wire.there(command);
        }
        // It sees what is dropped afterwards, too.
        here("nft add chain inet weather dialled { type filter hook prerouting priority 0 ; }");
        here(&format!("nft add rule inet weather dialled iifname {NEAR} tcp flags & (syn | ack) == syn counter"));
        wire
    }

    /// How many packets that begin a connection have come as far as the gateway's network.
    pub fn dials(&self) -> u64 {
        packets(&here("nft list chain inet weather dialled"))
    }

    /// What starts a program in the device's network.
    pub fn through(&self) -> Vec<String> {
        ["nsenter", "--target", &self.holder.id().to_string(), "--net", "--"].map(str::to_owned).to_vec()
    }

    /// The gateway's address with any port.
    pub fn listen() -> SocketAddr {
        SocketAddr::new(GATEWAY, 0)
    }

    /// So many of a hundred packets get lost, in either direction.
    pub fn lose(&self, of_a_hundred: u32) {
        for way in BOTH {
            self.rule(way, &format!("numgen random mod 100 < {of_a_hundred} counter drop"));
        }
    }

    /// All packets that go these ways get lost, without a word to anybody.
    pub fn swallow(&self, ways: &[Way]) {
        for way in ways {
            self.rule(*way, "counter drop");
        }
    }

    /// How many packets got lost since it was last calm.
    pub fn lost(&self) -> u64 {
        BOTH.iter().map(|way| packets(&self.at_end(*way, "nft list chain inet weather arriving"))).sum()
    }

    /// Packets arrive again.
    pub fn calm(&self) {
        for way in BOTH {
            self.at_end(way, "nft flush chain inet weather arriving");
        }
    }

    /// So many kilobits pass in a second, either way; what would wait for longer than a second is dropped.
    pub fn narrow(&self, kilobits: u32) {
        for (way, end) in [(Way::Up, NEAR), (Way::Down, FAR)] {
            self.at_end(way, &format!("tc qdisc add dev {end} root tbf rate {kilobits}kbit burst 2kb latency 1s"));
        }
    }

    /// The gateway's end is pulled out, and its device sees that there is no carrier.
    pub fn unplug(&self) {
        here(&format!("ip link set {NEAR} down"));
    }

    /// It is put in again.
    pub fn plug(&self) {
        here(&format!("ip link set {NEAR} up"));
    }

    /// The device loses an address.
    pub fn take(&self, address: IpAddr) {
        self.there(&format!("ip addr del {address}/24 dev {FAR}"));
    }

    /// The device gets an address.
    pub fn give(&self, address: IpAddr) {
        self.there(&format!("ip addr add {address}/24 dev {FAR}"));
    }

    fn rule(&self, way: Way, rule: &str) {
        let end = if way == Way::Up { NEAR } else { FAR };
        self.at_end(way, &format!("nft add rule inet weather arriving iifname {end} {rule}"));
    }

    /// Runs a command where what goes this way arrives.
    fn at_end(&self, way: Way, command: &str) -> String {
        if way == Way::Up { here(command) } else { self.there(command) }
    }

    fn there(&self, command: &str) -> String {
        let (program, arguments) =
            self.through().split_first().map(|(p, a)| (p.clone(), a.to_vec())).expect("it has a name");
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).chain(command.split(' ')).collect();
        island::run(&program, &arguments)
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        let _ = self.holder.kill();
        let _ = self.holder.wait();
    }
}

fn here(command: &str) -> String {
    let (program, arguments) = command.split_once(' ').expect("it has arguments");
    island::run(program, &arguments.split(' ').collect::<Vec<_>>())
}

/// What a chain's rules counted.
fn packets(chain: &str) -> u64 {
    let counts = chain.split("counter packets ").skip(1);
    counts.filter_map(|rest| rest.split(' ').next()?.parse::<u64>().ok()).sum()
}
