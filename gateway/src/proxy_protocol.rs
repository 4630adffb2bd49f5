//! The header in which a balancer says for whom it connects: the PROXY protocol, version 2, and no other.
//!
//! haproxy's `proxy-protocol.txt`, section 2.2. From a balancer that is configured the header is required; from nobody
//! else is it read. What is read of it is bounded before it comes: no length that the other side sends is allocated.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::sync::Semaphore;
use tokio::time::timeout;

use crate::networks::Networks;

/// The largest header: its fixed part, the addresses of the largest family (216 bytes), and 304 bytes of extensions.
/// The specification asks for room for 536.
pub const MAX_HEADER_BYTES: usize = 536;
/// How long a balancer may take to send its header. It sends it with its first packet.
const HEADER_TIMEOUT: Duration = Duration::from_secs(5);
/// Connections of balancers whose headers are awaited at a time.
const MAX_AWAITED_HEADERS: usize = 256;

const SIGNATURE: [u8; 12] = *b"\r\n\r\n\0\r\nQUIT\n";
/// The signature, version and command, family, length.
const FIXED_BYTES: usize = 16;
/// The extension with the header's CRC-32C.
const CHECKSUM: u8 = 0x03;

/// For whom a balancer connects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProxySource {
    /// For a client at this address.
    Client(SocketAddr),
    /// For itself, to look whether somebody is there.
    Itself,
}

/// Why a header is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidHeader {
    /// It begins as version 1 does.
    #[error("it is version 1 of the PROXY protocol; set the balancer to version 2 (haproxy: `send-proxy-v2`)")]
    Version1,
    /// It has another signature.
    #[error(
        "it does not begin with a PROXY header; set the balancer to version 2 of the PROXY protocol (haproxy: \
             `send-proxy-v2`), or take its address out of the settings"
    )]
    Signature,
    /// The version is not 2.
    #[error("version {0} of the PROXY protocol is not known; set the balancer to version 2")]
    Version(u8),
    /// The command is neither LOCAL nor PROXY.
    #[error("command {0} of the PROXY protocol is not known")]
    Command(u8),
    /// The connection is not TCP over IPv4 or IPv6.
    #[error("family {0:#04x} is neither TCP over IPv4 nor TCP over IPv6")]
    Family(u8),
    /// It is larger than [`MAX_HEADER_BYTES`].
    #[error("the header has {0} bytes, and at most {MAX_HEADER_BYTES} are read")]
    TooLarge(usize),
    /// It has no room for the addresses.
    #[error("the header is too short for its addresses")]
    TooShort,
    /// An extension reaches beyond its end.
    #[error("an extension of the header reaches beyond its end")]
    Extension,
    /// Its checksum does not hold.
    #[error("the header's checksum does not hold")]
    Checksum,
}

/// Reads a header at the beginning of some bytes: its meaning and its length. `None`: more bytes are needed.
///
/// # Errors
/// See [`InvalidHeader`]: what came so far can be the beginning of no header that is taken.
pub fn parse(bytes: &[u8]) -> Result<Option<(ProxySource, usize)>, InvalidHeader> {
    let begun = &bytes[..bytes.len().min(SIGNATURE.len())];
    if !SIGNATURE.starts_with(begun) {
        let is_first = begun.starts_with(b"PROXY") || b"PROXY".starts_with(begun);
        return Err(if is_first { InvalidHeader::Version1 } else { InvalidHeader::Signature });
    }
    if let Some(&version) = bytes.get(12)
        && version >> 4 != 2
    {
        return Err(InvalidHeader::Version(version >> 4));
    }
    let Some((fixed, rest)) = bytes.split_first_chunk::<FIXED_BYTES>() else { return Ok(None) };
    let (command, family) = (fixed[12] & 0x0f, fixed[13]);
    let length = usize::from(u16::from_be_bytes([fixed[14], fixed[15]]));
    if FIXED_BYTES + length > MAX_HEADER_BYTES {
        return Err(InvalidHeader::TooLarge(FIXED_BYTES + length));
    }
    let address_bytes = match (command, family) {
        // A balancer's own connection has whatever addresses, which mean nothing.
        (0, _) => 0,
        (1, 0x11) => 12,
        (1, 0x21) => 36,
        (1, family) => return Err(InvalidHeader::Family(family)),
        (command, _) => return Err(InvalidHeader::Command(command)),
    };
    if length < address_bytes {
        return Err(InvalidHeader::TooShort);
    }
    let Some(block) = rest.get(..length) else { return Ok(None) };
    let source = match address_bytes {
        12 => client::<4>(block, 8),
        36 => client::<16>(block, 32),
        _ => return Ok(Some((ProxySource::Itself, FIXED_BYTES + length))),
    };
    check_extensions(&bytes[..FIXED_BYTES + length], FIXED_BYTES + address_bytes)?;
    Ok(Some((ProxySource::Client(source), FIXED_BYTES + length)))
}

/// The first address of the block, and the port of the client.
fn client<const BYTES: usize>(block: &[u8], port: usize) -> SocketAddr
where
    IpAddr: From<[u8; BYTES]>,
{
    let address: [u8; BYTES] = block[..BYTES].try_into().expect("its length was checked");
    SocketAddr::new(IpAddr::from(address).to_canonical(), u16::from_be_bytes([block[port], block[port + 1]]))
}

/// Passes over the extensions, each a kind, a length and that many bytes.
fn check_extensions(header: &[u8], mut at: usize) -> Result<(), InvalidHeader> {
    while at < header.len() {
        let Some(&[kind, high, low]) = header[at..].first_chunk::<3>() else { return Err(InvalidHeader::Extension) };
        let (value, length) = (at + 3, usize::from(u16::from_be_bytes([high, low])));
        let Some(bytes) = header.get(value..value + length) else { return Err(InvalidHeader::Extension) };
        if kind == CHECKSUM {
            let told = bytes.try_into().map(u32::from_be_bytes).map_err(|_| InvalidHeader::Checksum)?;
            // It is computed with zeros in its own place.
            let own = header.iter().enumerate().map(
                |(place, byte)| {
                    if (value..value + length).contains(&place) { 0 } else { *byte }
                },
            );
            if crc32c(own) != told {
                return Err(InvalidHeader::Checksum);
            }
        }
        at = value + length;
    }
    Ok(())
}

/// CRC-32C (RFC 3309), bit by bit: headers are short.
fn crc32c(bytes: impl Iterator<Item = u8>) -> u32 {
    !bytes.fold(!0, |sum, byte| {
        (0..8).fold(sum ^ u32::from(byte), |sum, _| (sum >> 1) ^ (0x82f6_3b78 & 0u32.wrapping_sub(sum & 1)))
    })
}

/// Why no client is known behind a balancer's connection.
#[derive(Debug, thiserror::Error)]
enum HeaderError {
    #[error("it closed the connection without one")]
    Nothing,
    #[error("it broke off in the header")]
    BrokenOff,
    #[error(transparent)]
    Invalid(#[from] InvalidHeader),
}

/// Reads the header off a stream, and not a byte of what follows.
async fn read(stream: &mut (impl AsyncRead + Unpin)) -> Result<ProxySource, HeaderError> {
    let mut header = [0; MAX_HEADER_BYTES];
    let (mut filled, mut wanted) = (0, FIXED_BYTES);
    loop {
        match stream.read(&mut header[filled..wanted]).await {
            Ok(0) | Err(_) if filled == 0 => return Err(HeaderError::Nothing),
            Ok(0) | Err(_) => return Err(HeaderError::BrokenOff),
            Ok(bytes) => filled += bytes,
        }
        if let Some((source, _)) = parse(&header[..filled])? {
            return Ok(source);
        }
        if filled >= FIXED_BYTES {
            // `parse` has checked that it fits.
            wanted = FIXED_BYTES + usize::from(u16::from_be_bytes([header[14], header[15]]));
        }
    }
}

/// The balancers before one listener. Clones share the bound on connections without a header.
#[derive(Clone, Debug)]
pub struct Balancers {
    networks: Networks,
    listener: &'static str,
    awaited: Arc<Semaphore>,
    patience: Duration,
}

impl Balancers {
    /// Balancers at these addresses, before the listener with this name.
    pub fn new(networks: Networks, listener: &'static str) -> Self {
        let awaited = Arc::new(Semaphore::new(MAX_AWAITED_HEADERS));
        Self { networks, listener, awaited, patience: HEADER_TIMEOUT }
    }

    /// Whether a connection from here begins with a header.
    pub fn contain(&self, peer: SocketAddr) -> bool {
        self.networks.contain(peer.ip())
    }

    /// The client for whom a balancer connects, from the header that it must send; the balancer itself, if it says so.
    /// `None`: it sent no header that counts, and the reason is in the log.
    pub async fn client(&self, stream: &mut (impl AsyncRead + Unpin), balancer: SocketAddr) -> Option<SocketAddr> {
        let listener = self.listener;
        let Ok(_awaited) = self.awaited.try_acquire() else {
            tracing::warn!(%balancer, listener, most = MAX_AWAITED_HEADERS,
                "a balancer's connection was closed: too many of them have sent no PROXY header yet");
            return None;
        };
        match timeout(self.patience, read(stream)).await {
            Ok(Ok(ProxySource::Client(client))) => Some(client),
            Ok(Ok(ProxySource::Itself)) => Some(balancer),
            // What looks whether the port is open does this every few seconds.
            Ok(Err(HeaderError::Nothing)) => {
                tracing::debug!(%balancer, listener, "a balancer's connection was closed without a PROXY header");
                None
            }
            Ok(Err(error)) => {
                tracing::warn!(%balancer, listener, %error, "a balancer's connection was closed: its PROXY header does not count");
                None
            }
            Err(_) => {
                tracing::warn!(%balancer, listener, waited = ?self.patience, "a balancer's connection was closed: it sent no PROXY header in time");
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(command: u8, family: u8, block: &[u8]) -> Vec<u8> {
        let mut bytes = SIGNATURE.to_vec();
        bytes.extend([command, family]);
        bytes.extend((block.len() as u16).to_be_bytes());
        bytes.extend(block);
        bytes
    }

    /// From 203.0.113.9:40000 to 192.0.2.1:7822.
    const V4: [u8; 12] = [203, 0, 113, 9, 192, 0, 2, 1, 0x9c, 0x40, 0x1e, 0x8e];

    fn client(text: &str) -> ProxySource {
        ProxySource::Client(text.parse().expect("an address"))
    }

    fn v4(extensions: &[u8]) -> Vec<u8> {
        header(0x21, 0x11, &[&V4, extensions].concat())
    }

    #[test]
    fn the_client_is_read_from_both_families_and_what_follows_is_not_counted() {
        let bytes = [v4(&[]), b"SSH-2.0-x".to_vec()].concat();
        assert_eq!(parse(&bytes), Ok(Some((client("203.0.113.9:40000"), 28))));
        let mut block = [0; 36];
        block[..16].copy_from_slice(&"2001:db8::9".parse::<std::net::Ipv6Addr>().expect("an address").octets());
        block[32..34].copy_from_slice(&443u16.to_be_bytes());
        assert_eq!(parse(&header(0x21, 0x21, &block)), Ok(Some((client("[2001:db8::9]:443"), 52))));
        block[..16].copy_from_slice(&"::ffff:203.0.113.9".parse::<std::net::Ipv6Addr>().expect("an address").octets());
        assert_eq!(parse(&header(0x21, 0x21, &block)), Ok(Some((client("203.0.113.9:443"), 52))));
    }

    #[test]
    fn a_balancers_own_look_is_its_own_whatever_it_adds() {
        for (family, block) in [(0x00, &[][..]), (0x11, &V4[..]), (0x31, &[7; 216]), (0x11, &[1])] {
            let bytes = header(0x20, family, block);
            assert_eq!(parse(&bytes), Ok(Some((ProxySource::Itself, bytes.len()))));
        }
    }

    #[test]
    fn every_beginning_of_a_header_is_waited_for() {
        let bytes = v4(&[0x04, 0, 2, 1, 2]);
        for end in 0..bytes.len() {
            assert_eq!(parse(&bytes[..end]), Ok(None), "{end}");
        }
        assert!(matches!(parse(&bytes), Ok(Some(_))));
    }

    #[test]
    fn what_is_no_header_for_tcp_is_refused_by_what_is_wrong() {
        use InvalidHeader::*;
        assert_eq!(parse(b"PROXY TCP4 203.0.113.9 192.0.2.1 40000 7822\r\n"), Err(Version1));
        assert_eq!(parse(b"P"), Err(Version1));
        for other in [&b"SSH-2.0-OpenSSH_9.2"[..], b"GET / HTTP/1.1", b"\x16\x03\x01", b"\r\n\r\n\0\r\nQUIX"] {
            assert_eq!(parse(other), Err(Signature));
        }
        assert_eq!(parse(&header(0x11, 0x11, &V4)), Err(Version(1)));
        assert_eq!(parse(&header(0x22, 0x11, &V4)), Err(Command(2)));
        for family in [0x00, 0x01, 0x10, 0x12, 0x22, 0x31, 0x32, 0xff] {
            assert_eq!(parse(&header(0x21, family, &[0; 216])), Err(Family(family)));
        }
        assert_eq!(parse(&header(0x21, 0x11, &V4[..11])), Err(TooShort));
        assert_eq!(parse(&header(0x21, 0x11, &[0; 521])), Err(TooLarge(537)));
        // Refused by its fixed part alone.
        assert_eq!(parse(&[&SIGNATURE[..], &[0x20, 0, 0xff, 0xff]].concat()), Err(TooLarge(16 + 0xffff)));
        for extension in [&[4][..], &[4, 0], &[4, 0, 1], &[4, 0, 0, 5], &[4, 0xff, 0xff, 1]] {
            assert_eq!(parse(&v4(extension)), Err(Extension), "{extension:?}");
        }
    }

    #[test]
    fn a_checksum_is_held_against_the_header_if_there_is_one() {
        assert_eq!(crc32c(b"123456789".iter().copied()), 0xe306_9283, "the standard's own example");
        let mut bytes = v4(&[CHECKSUM, 0, 4, 0, 0, 0, 0]);
        let sum = crc32c(bytes.iter().copied());
        let at = bytes.len() - 4;
        bytes[at..].copy_from_slice(&sum.to_be_bytes());
        assert!(matches!(parse(&bytes), Ok(Some(_))));
        bytes[17] ^= 1;
        assert_eq!(parse(&bytes), Err(InvalidHeader::Checksum));
        assert_eq!(parse(&v4(&[CHECKSUM, 0, 3, 0, 0, 0])), Err(InvalidHeader::Checksum));
    }

    #[tokio::test]
    async fn a_header_that_comes_byte_by_byte_is_read_and_nothing_after_it() {
        use tokio::io::AsyncWriteExt;
        let (mut near, mut far) = tokio::io::duplex(1);
        let sending = async {
            far.write_all(&v4(&[4, 0, 1, 9])).await.expect("sent");
            far.write_all(b"rest").await.expect("sent");
            drop(far);
        };
        let reading = async {
            assert_eq!(read(&mut near).await.expect("a header"), client("203.0.113.9:40000"));
            let mut rest = String::new();
            near.read_to_string(&mut rest).await.expect("text");
            assert_eq!(rest, "rest");
        };
        tokio::join!(sending, reading);
        for end in [0, 3, 20] {
            let bytes = v4(&[]);
            let error = read(&mut &bytes[..end]).await.expect_err("broken off");
            assert_eq!(matches!(error, HeaderError::Nothing), end == 0);
        }
    }

    #[tokio::test]
    async fn a_balancer_that_sends_nothing_is_waited_for_briefly_and_beside_few() {
        let mut balancers = Balancers::new("10.0.0.0/8".parse().expect("a range"), "ssh.listen");
        balancers.patience = Duration::from_millis(300);
        let peer: SocketAddr = "10.0.0.1:1".parse().expect("an address");
        assert!(balancers.contain(peer) && !balancers.contain("192.0.2.1:1".parse().expect("an address")));
        let silent = || async {
            let (mut near, _far) = tokio::io::duplex(1);
            balancers.client(&mut near, peer).await
        };
        let all = futures_util::future::join_all((0..MAX_AWAITED_HEADERS).map(|_| silent()));
        let beyond = async {
            tokio::task::yield_now().await;
            let bytes = v4(&[]);
            assert_eq!(balancers.client(&mut &bytes[..], peer).await, None);
        };
        let (all, ()) = tokio::join!(all, beyond);
        assert!(all.iter().all(Option::is_none));
        let bytes = v4(&[]);
        assert_eq!(balancers.client(&mut &bytes[..], peer).await, Some("203.0.113.9:40000".parse().expect("one")));
    }
}
