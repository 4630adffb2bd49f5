//! Support for the tests: a small gateway, the gateway's own tunnel on a real port, and a real sshd.

pub mod gateway;
pub mod raw_ssh;
pub mod server;
pub mod sshd;

use std::future::Future;
use std::path::Path;
use std::time::Duration;

use deskgate::identity::DeviceKey;
use deskgate::link::{
    Connector, Credentials, FollowedKeysFile, HostPin, LinkError, Session, Ssh, announced_keys, connect_once,
};
use deskgate_protocol::identity::PublicKey;
use deskgate_protocol::secret::ControlToken;

pub const CONTROL_SOCKET_PATH: &str = "/run/deskgate/control.sock";

/// Waits for a result; fails a test that would wait forever.
pub async fn soon<T>(what: &str, work: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(120), work).await.unwrap_or_else(|_| panic!("never happened: {what}"))
}

pub fn device_key(folder: &Path, name: &str) -> DeviceKey {
    DeviceKey::load_or_create(&folder.join(name)).expect("a device key")
}

pub fn ssh(port: u16, pin: HostPin) -> Ssh {
    Ssh {
        host: "127.0.0.1".to_owned(),
        port,
        user: "deskgate".to_owned(),
        socket_path: CONTROL_SOCKET_PATH.to_owned(),
        pin,
        followed: None,
    }
}

/// Where a device keeps the keys that a server announces.
pub fn followed(path: std::path::PathBuf) -> FollowedKeysFile {
    FollowedKeysFile { path, pin_count: 0, read_only: false }
}

/// The keys that are trusted in place of the pinned one.
pub fn trusted_keys(ssh: &Ssh) -> Option<Vec<PublicKey>> {
    let keys = announced_keys::trusted_keys(ssh).expect("the record is readable")?;
    Some(keys.iter().map(|followed| followed.key).collect())
}

pub fn pinned(fingerprint: &str) -> HostPin {
    HostPin::Fingerprint(fingerprint.parse().expect("a fingerprint"))
}

pub fn credentials(key: &DeviceKey, token: &ControlToken) -> Credentials {
    Credentials { key: key.clone(), token: Some(token.clone()), known_gateways: None, journal_id: None }
}

pub async fn connect(ssh: Ssh, credentials: &Credentials) -> Result<Session, LinkError> {
    soon("one attempt", connect_once(&Connector::Ssh(ssh), credentials, Vec::new())).await
}
