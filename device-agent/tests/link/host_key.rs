//! The server's key decides, before anything is said.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use deskgate::link::{HostKeyError, HostPin, LinkError};
use deskgate_gateway::tunnel::HostKey;
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use crate::support::server::Server;
use crate::support::{connect, pinned, ssh};

const OTHER: &str = "SHA256:5TYAUnj1p7hSySxwLSzuo2ncngeS76sPafw9EyRvV6g";

#[tokio::test]
async fn a_changed_host_key_blocks_and_both_fingerprints_stand_side_by_side() {
    let mut server = Server::start().await;
    let error = connect(ssh(server.port, pinned(OTHER)), &server.credentials()).await.expect_err("refused");
    assert!(error.is_blocked());
    let LinkError::HostKey(HostKeyError::Changed { pinned, presented, .. }) = &error else { panic!("{error}") };
    assert_eq!((pinned.as_slice(), presented), (&[OTHER.to_owned()][..], &server.host_key.fingerprint()));
    let text = error.to_string();
    assert!(text.contains(OTHER) && text.contains(&server.host_key.fingerprint()), "{text}");
    assert!(server.arrivals.try_recv().is_err());
}

#[tokio::test]
async fn without_a_pin_nothing_is_trusted_and_the_presented_fingerprint_is_shown() {
    let server = Server::start().await;
    let error = connect(ssh(server.port, HostPin::Missing), &server.credentials()).await.expect_err("refused");
    assert!(error.is_blocked());
    assert!(error.to_string().contains(&server.host_key.fingerprint()), "{error}");
}

#[tokio::test]
async fn a_known_hosts_file_lets_in_whom_it_names_and_no_one_else() {
    let mut server = Server::start().await;
    server.echo();
    let file = server.folder.path().join("known_hosts");
    let pin = HostPin::KnownHosts(file.clone());
    let entry = format!("[127.0.0.1]:{} {}\n", server.port, server.host_key.public_key());
    let other = HostKey::load_or_create(&server.folder.path().join("other")).expect("made");

    for (content, welcome) in [
        (entry.clone(), true),
        (entry.replace(&server.host_key.public_key(), &other.public_key()), false),
        (format!("{entry}@revoked * {}\n", server.host_key.public_key()), false),
        (String::new(), false),
    ] {
        std::fs::write(&file, &content).expect("written");
        match connect(ssh(server.port, pin.clone()), &server.credentials()).await {
            Ok(_) => assert!(welcome, "{content}"),
            Err(error) => assert!(!welcome && error.is_blocked(), "{content}: {error}"),
        }
    }
}

/// What a server that fails the check hears after the key exchange must be nothing: it counts the
/// bytes that come after its own proof was sent.
#[tokio::test]
async fn an_unverified_server_hears_no_byte_after_the_key_exchange() {
    let mut server = Server::start().await;
    server.echo();
    let trusting = bytes_until_closed(&server, pinned(&server.host_key.fingerprint())).await;
    let refusing = bytes_until_closed(&server, pinned(OTHER)).await;
    // The greeting, KEXINIT and the exchange's first half; NEWKEYS and all that follows stay unsent.
    assert!(refusing.plain_after_exchange == 0, "{refusing:?}");
    assert!(trusting.plain_after_exchange > 0, "the measure works: {trusting:?}");
}

#[derive(Debug)]
struct Heard {
    plain_after_exchange: usize,
}

/// Goes between device and server, and counts what the device says after the server's ECDH reply.
async fn bytes_until_closed(server: &Server, pin: HostPin) -> Heard {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let port = listener.local_addr().expect("bound").port();
    let after = Arc::new(AtomicUsize::new(0));
    let (counted, upstream) = (Arc::clone(&after), server.port);
    let mut tasks = JoinSet::new();
    tasks.spawn(async move {
        let (device, _) = listener.accept().await.expect("the device dials");
        let server = TcpStream::connect(("127.0.0.1", upstream)).await.expect("the server is there");
        relay(device, server, &counted).await;
    });
    let attempt = connect(ssh(port, pin), &server.credentials()).await;
    drop(attempt);
    crate::support::soon("the relay ends", tasks.join_next()).await;
    Heard { plain_after_exchange: after.load(Ordering::SeqCst) }
}

async fn relay(device: TcpStream, server: TcpStream, after: &AtomicUsize) {
    use tokio::io::AsyncReadExt;
    let (mut from_device, mut to_device) = device.into_split();
    let (mut from_server, mut to_server) = server.into_split();
    let replied = std::sync::atomic::AtomicBool::new(false);
    let up = async {
        let mut buffer = [0; 16 * 1024];
        while let Ok(n @ 1..) = from_device.read(&mut buffer).await {
            if replied.load(Ordering::SeqCst) {
                after.fetch_add(n, Ordering::SeqCst);
            }
            if to_server.write_all(&buffer[..n]).await.is_err() {
                break;
            }
        }
        let _ = to_server.shutdown().await;
    };
    let down = async {
        let mut buffer = [0; 16 * 1024];
        let mut seen = Vec::new();
        while let Ok(n @ 1..) = from_server.read(&mut buffer).await {
            seen.extend_from_slice(&buffer[..n]);
            if exchange_replied(&seen) {
                replied.store(true, Ordering::SeqCst);
            }
            if to_device.write_all(&buffer[..n]).await.is_err() {
                break;
            }
        }
        let _ = to_device.shutdown().await;
    };
    tokio::join!(up, down);
}

/// Whether the plain packets of the server include SSH_MSG_KEX_ECDH_REPLY (31).
fn exchange_replied(bytes: &[u8]) -> bool {
    let Some(mut at) = bytes.windows(2).position(|pair| pair == b"\r\n").map(|end| end + 2) else { return false };
    while let Some(length) = bytes.get(at..at + 4) {
        let length = u32::from_be_bytes(length.try_into().expect("four bytes")) as usize;
        match bytes.get(at + 5) {
            Some(31) => return true,
            Some(20) => at += 4 + length,
            _ => return false,
        }
    }
    false
}
