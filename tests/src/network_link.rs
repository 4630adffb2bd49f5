//! Two isolated networks with a link that can fail in every way. The gateway's network is the test's own (a [`netns`]);
//! the device's is a second one, in which programs are started.
//!
//! The kernel's own filter drops packets and its queue delays them, so programs see what they would see on a bad
//! connection: nothing.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::process::{Child, Command, Stdio};

use crate::netns;
use crate::wait::until;

/// The gateway's address.
pub const GATEWAY_IP: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 213, 0, 1));
/// The device's first address.
pub const DEVICE_IP: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 213, 0, 2));
/// A second address for the device.
pub const SECOND_DEVICE_IP: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 213, 0, 3));

/// The interfaces at the two ends of the link.
const GATEWAY_INTERFACE: &str = "near";
const DEVICE_INTERFACE: &str = "far";

/// The direction of packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From the device to the gateway.
    Up,
    /// From the gateway to the device.
    Down,
}

/// Both ways.
pub const BOTH_DIRECTIONS: [Direction; 2] = [Direction::Up, Direction::Down];

/// The link, and the device's network.
#[derive(Debug)]
pub struct NetworkLink {
    /// A process that keeps that network alive. It ends with this one, when its input closes.
    holder: Child,
}

/// Runs a test, by its name in the test program, in the gateway's network. If networks cannot be made, a message is
/// printed.
pub fn run_test(test: &str, work: impl AsyncFnOnce(NetworkLink)) {
    if netns::is_supported() {
        netns::run_test_unconfigured(test, async || work(NetworkLink::lay().await).await);
    }
}

impl NetworkLink {
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
        here(&format!("ip link add name {GATEWAY_INTERFACE} type veth peer name {DEVICE_INTERFACE} netns {there}"));
        for (end, address) in [(GATEWAY_INTERFACE, GATEWAY_IP), (DEVICE_INTERFACE, DEVICE_IP)] {
            let setting_up = [
                "ip link set lo up".to_owned(),
                format!("ip addr add {address}/24 dev {end}"),
                format!("ip link set {end} up"),
            ];
            for command in setting_up {
                wire.at_end(if end == GATEWAY_INTERFACE { Direction::Up } else { Direction::Down }, &command);
            }
        }
        // Packets that arrive at either end pass this chain first.
        for command in [
            "nft add table inet weather",
            "nft add chain inet weather arriving { type filter hook input priority 0 ; }",
        ] {
            here(command);
            wire.there(command);
        }
        // It also counts packets that are dropped afterwards.
        here("nft add chain inet weather dialled { type filter hook prerouting priority 0 ; }");
        here(&format!(
            "nft add rule inet weather dialled iifname {GATEWAY_INTERFACE} tcp flags & (syn | ack) == syn counter"
        ));
        wire
    }

    /// How many connection attempts have reached the gateway's network.
    pub fn dials(&self) -> u64 {
        packets(&here("nft list chain inet weather dialled"))
    }

    /// The command that starts a program in the device's network.
    pub fn through(&self) -> Vec<String> {
        ["nsenter", "--target", &self.holder.id().to_string(), "--net", "--"].map(str::to_owned).to_vec()
    }

    /// The gateway's address with any port.
    pub fn listen() -> SocketAddr {
        SocketAddr::new(GATEWAY_IP, 0)
    }

    /// Loses this percentage of packets, in both directions.
    pub fn lose(&self, of_a_hundred: u32) {
        for way in BOTH_DIRECTIONS {
            self.rule(way, &format!("numgen random mod 100 < {of_a_hundred} counter drop"));
        }
    }

    /// Silently drops all packets in these directions.
    pub fn drop_packets(&self, ways: &[Direction]) {
        for way in ways {
            self.rule(*way, "counter drop");
        }
    }

    /// How many packets were lost since the last [`Self::calm`].
    pub fn lost(&self) -> u64 {
        BOTH_DIRECTIONS.iter().map(|way| packets(&self.at_end(*way, "nft list chain inet weather arriving"))).sum()
    }

    /// Lets all packets arrive again.
    pub fn calm(&self) {
        for way in BOTH_DIRECTIONS {
            self.at_end(way, "nft flush chain inet weather arriving");
        }
    }

    /// Limits each direction to this many kilobits per second; packets that would wait longer than a second are
    /// dropped.
    pub fn narrow(&self, kilobits: u32) {
        for (way, end) in [(Direction::Up, GATEWAY_INTERFACE), (Direction::Down, DEVICE_INTERFACE)] {
            self.at_end(way, &format!("tc qdisc add dev {end} root tbf rate {kilobits}kbit burst 2kb latency 1s"));
        }
    }

    /// Takes the gateway's end down, so that its interface has no carrier.
    pub fn unplug(&self) {
        here(&format!("ip link set {GATEWAY_INTERFACE} down"));
    }

    /// Brings it up again.
    pub fn plug(&self) {
        here(&format!("ip link set {GATEWAY_INTERFACE} up"));
    }

    /// The device loses an address.
    pub fn remove_address(&self, address: IpAddr) {
        self.there(&format!("ip addr del {address}/24 dev {DEVICE_INTERFACE}"));
    }

    /// The device gets an address.
    pub fn add_address(&self, address: IpAddr) {
        self.there(&format!("ip addr add {address}/24 dev {DEVICE_INTERFACE}"));
    }

    fn rule(&self, way: Direction, rule: &str) {
        let end = if way == Direction::Up { GATEWAY_INTERFACE } else { DEVICE_INTERFACE };
        self.at_end(way, &format!("nft add rule inet weather arriving iifname {end} {rule}"));
    }

    /// Runs a command at the end where packets of this direction arrive.
    fn at_end(&self, way: Direction, command: &str) -> String {
        if way == Direction::Up { here(command) } else { self.there(command) }
    }

    fn there(&self, command: &str) -> String {
        let (program, arguments) =
            self.through().split_first().map(|(p, a)| (p.clone(), a.to_vec())).expect("it has a name");
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).chain(command.split(' ')).collect();
        netns::run(&program, &arguments)
    }
}

impl Drop for NetworkLink {
    fn drop(&mut self) {
        let _ = self.holder.kill();
        let _ = self.holder.wait();
    }
}

fn here(command: &str) -> String {
    let (program, arguments) = command.split_once(' ').expect("it has arguments");
    netns::run(program, &arguments.split(' ').collect::<Vec<_>>())
}

/// The packet count of a chain's rules.
fn packets(chain: &str) -> u64 {
    let counts = chain.split("counter packets ").skip(1);
    counts.filter_map(|rest| rest.split(' ').next()?.parse::<u64>().ok()).sum()
}
