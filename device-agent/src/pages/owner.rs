//! Whose program is at the other end of a connection: on Linux the kernel says to whom its socket belongs.
//!
//! Loopback is open to every user of a computer; the pages are its owner's alone. Root is let in: it can do everything
//! anyway, and what it runs to relay connections (as for a Windows browser of a Linux subsystem) would be shut out.
//! Other systems have no such table; there the sessions alone decide.

use std::io::{BufRead, BufReader};
use std::net::{IpAddr, SocketAddr};
use std::sync::Once;
use std::time::Duration;

use askama::Template;

/// The kernel's tables. A socket of IPv6 reaches an address of IPv4 too.
const TABLES: [&str; 2] = ["/proc/net/tcp", "/proc/net/tcp6"];
/// How often a socket is looked for: entries move while the table is read.
const MAX_LOOKS: usize = 3;
/// The time between two looks.
const LOOK_INTERVAL: Duration = Duration::from_millis(20);

#[derive(Template)]
#[template(path = "not-yours.html")]
struct NotYoursPage;

/// What other users' programs are answered: a whole response of HTTP/1.1.
pub fn refusal() -> String {
    let page = NotYoursPage.render().unwrap_or_default();
    format!(
        "HTTP/1.1 403 Forbidden\r\nContent-Type: text/html; charset=utf-8\r\nContent-Length: {}\r\n\
         Content-Security-Policy: default-src 'none'\r\nX-Content-Type-Options: nosniff\r\nCache-Control: no-store\r\n\
         Connection: close\r\n\r\n{page}",
        page.len()
    )
}

/// Whether the peer of a connection is a program of the agent's own user, or of root. What cannot be found out is not.
pub fn is_owner(peer: SocketAddr, own: SocketAddr) -> bool {
    if !cfg!(target_os = "linux") {
        return true;
    }
    let me = rustix::process::geteuid().as_raw();
    for look in 0..MAX_LOOKS {
        if look > 0 {
            std::thread::sleep(LOOK_INTERVAL);
        }
        if let Some(uid) = TABLES.iter().find_map(|table| uid_in(table, peer, own)) {
            let admitted = uid == me || uid == 0;
            if !admitted {
                // Whoever comes again and again does not fill the log.
                static TOLD: Once = Once::new();
                TOLD.call_once(|| tracing::warn!(uid, "a program of another user is kept out of the management pages"));
            }
            return admitted;
        }
    }
    static TOLD: Once = Once::new();
    TOLD.call_once(|| {
        tracing::warn!("a connection to the management pages was refused: /proc/net/tcp does not say whose it is")
    });
    false
}

fn uid_in(table: &str, peer: SocketAddr, own: SocketAddr) -> Option<u32> {
    let lines = BufReader::new(std::fs::File::open(table).ok()?).lines();
    uid_of(lines.map_while(Result::ok), peer, own)
}

/// The user of the socket that has these two addresses. One that its program has closed has no inode, and root as its
/// user whoever made it, so it does not count.
fn uid_of(lines: impl Iterator<Item = String>, peer: SocketAddr, own: SocketAddr) -> Option<u32> {
    let both = [peer, own].map(written);
    lines.skip(1).find_map(|line| {
        let fields: Vec<_> = line.split_whitespace().collect();
        let [_, local, remote, _, _, _, _, uid, _, inode, ..] = fields[..] else { return None };
        let is_it = [local, remote].iter().zip(&both).all(|(field, names)| names.iter().any(|name| name == field));
        (is_it && inode != "0").then(|| uid.parse().ok()).flatten()
    })
}

/// An address as the two tables write it: the words of the IP address as this machine's memory has them, in hexadecimal.
fn written(address: SocketAddr) -> Vec<String> {
    let words = |bytes: &[u8]| -> String {
        let words = bytes.chunks_exact(4).map(|word| u32::from_ne_bytes([word[0], word[1], word[2], word[3]]));
        words.map(|word| format!("{word:08X}")).collect()
    };
    let hosts = match address.ip() {
        IpAddr::V4(ip) => vec![words(&ip.octets()), words(&ip.to_ipv6_mapped().octets())],
        IpAddr::V6(ip) => vec![words(&ip.octets())],
    };
    hosts.iter().map(|host| format!("{host}:{:04X}", address.port())).collect()
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    const PEER: SocketAddr = SocketAddr::new(IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 40000);
    const OWN: SocketAddr = SocketAddr::new(IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 7420);

    /// A table with one socket.
    fn table(local: &str, remote: &str, uid: u32, inode: u32) -> impl Iterator<Item = String> {
        let head = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode";
        let line =
            format!("   0: {local} {remote} 01 00000000:00000000 00:00000000 00000000  {uid}        0 {inode} 1 x");
        [head.to_owned(), line].into_iter()
    }

    #[test]
    fn a_connection_is_its_own_users_and_of_one_that_was_closed_again_nothing_is_known() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let own = listener.local_addr().expect("bound");
        let client = TcpStream::connect(own).expect("it listens");
        let peer = client.local_addr().expect("bound");
        let me = rustix::process::geteuid().as_raw();
        assert_eq!(uid_in(TABLES[0], peer, own), Some(me));
        assert!(is_owner(peer, own));
        // The accepted side has the same two addresses, the other way round, and is nobody's word for the peer.
        let _accepted = listener.accept().expect("accepted");
        drop(client);
        assert_eq!(uid_in(TABLES[0], peer, own), None, "whoever sent something and went is not taken for root");
        assert!(!is_owner(peer, own));
    }

    #[test]
    fn both_addresses_decide_in_either_table() {
        let [v4, mapped] = ["0100007F", "0000000000000000FFFF00000100007F"];
        for host in [v4, mapped] {
            let [peer, own] = [format!("{host}:9C40"), format!("{host}:1CFC")];
            assert_eq!(uid_of(table(&peer, &own, 65534, 7), PEER, OWN), Some(65534), "{host}");
            assert_eq!(uid_of(table(&own, &peer, 65534, 7), PEER, OWN), None, "our own side");
            assert_eq!(uid_of(table(&peer, &format!("{host}:1CFD"), 65534, 7), PEER, OWN), None, "another port");
            assert_eq!(uid_of(table(&peer, &own, 0, 0), PEER, OWN), None, "nobody holds it");
        }
    }

    #[test]
    fn a_socket_of_ipv6_that_reaches_ipv4_is_found_too() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let own = listener.local_addr().expect("bound");
        let mapped = SocketAddr::new(std::net::Ipv4Addr::LOCALHOST.to_ipv6_mapped().into(), own.port());
        let client = TcpStream::connect(mapped).expect("it listens");
        let peer = SocketAddr::new(std::net::Ipv4Addr::LOCALHOST.into(), client.local_addr().expect("bound").port());
        assert!(is_owner(peer, own));
    }
}
