//! Errors of the link, in words that describe what to do next.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use deskgate_protocol::GatewayId;
use deskgate_protocol::control::{ByeCode, RefusedCode, SessionRefusal};
use serde::{Deserialize, Serialize};

use super::conduct::MAX_REFUSED_CHANNELS;
use crate::account::AccountError;

/// Why one attempt to reach the gateway failed.
#[derive(Debug, thiserror::Error)]
pub enum LinkError {
    /// The host name has no address, or the network refuses.
    #[error("cannot reach {address}: {source}. Check the address and this machine's network")]
    Unreachable {
        /// Host and port as configured.
        address: String,
        /// The system's error.
        source: io::Error,
    },
    /// The port is closed.
    #[error(
        "{address} refuses the connection: nothing listens there. Check the port, and whether the gateway \
             (or the server's sshd) runs"
    )]
    ConnectionRefused {
        /// Host and port as configured.
        address: String,
    },
    /// There was no answer in time.
    #[error("{address} did not answer within {} s while {stage}. Check the address, and firewalls in between",
            limit.as_secs_f32())]
    Timeout {
        /// Host and port as configured.
        address: String,
        /// The step under way.
        stage: &'static str,
        /// The timeout.
        limit: Duration,
    },
    /// The server could not be verified. No data was sent to it.
    #[error(transparent)]
    HostKey(#[from] HostKeyError),
    /// The server closed the connection before its first byte.
    #[error(
        "{address} hung up before it greeted. A gateway does that to an address from which too many connections come; \
             a port that belongs to something else than SSH may too. The next attempt comes by itself"
    )]
    HungUp {
        /// Host and port as configured.
        address: String,
    },
    /// The server opened channels towards this device, which asks for none.
    #[error(
        "{address} opened more than {MAX_REFUSED_CHANNELS} channels towards this device, which no gateway does; all were \
             refused. Somebody else may have taken the server over, or the address leads to another service. Ask its \
             administrator, and check the address; `deskgate connection test` dials again at once"
    )]
    Hostile {
        /// Host and port as configured.
        address: String,
    },
    /// The server supports no current SSH algorithm, or violates the protocol.
    #[error("no SSH connection with {address}: {why}")]
    Ssh {
        /// Host and port as configured.
        address: String,
        /// What went wrong.
        why: String,
    },
    /// The device is not paired, or was revoked.
    #[error(
        "{address} does not accept this device's key {fingerprint} for the user {user:?}. \
             Pair it by an invitation of the server's administrator: `deskgate pair`. If it was paired and removed there, it \
             needs a new identity first: `deskgate identity renew --accept-risk=lose-pairing`"
    )]
    KeyNotAccepted {
        /// Host and port as configured.
        address: String,
        /// The user name that the device presented.
        user: String,
        /// The device key's fingerprint.
        fingerprint: String,
    },
    /// The server accepts the device but refuses the control socket.
    #[error(
        "{address} refuses the control channel {path:?} ({reason}). Check that this is the gateway's control \
             socket and that the gateway runs. If the server is OpenSSH, its sshd also needs \
             `AllowStreamLocalForwarding` and `AllowTcpForwarding` set to `local` or `yes`, and no `PermitOpen` or \
             `permitopen`, for this account"
    )]
    ChannelRefused {
        /// Host and port as configured.
        address: String,
        /// The socket's path as configured.
        path: String,
        /// The server's reason.
        reason: String,
    },
    /// The built-in gateway does not answer.
    #[error("the built-in gateway gives no connection: {0}. It may still be starting, or stopping")]
    BuiltIn(#[source] io::Error),
    /// The gateway refuses the control token.
    #[error(
        "the gateway does not accept the control token. Ask its administrator for the current one \
             and enter it with `deskgate connection set --mode remote --token-file FILE`"
    )]
    WrongToken,
    /// There is no sign-in at the hosted gateway, or its issuer sends no token.
    #[error(transparent)]
    Account(#[from] AccountError),
    /// The hosted gateway's address cannot be reached.
    #[error("cannot reach {address}: {why}. Check the address and this machine's network")]
    Web {
        /// The address as configured.
        address: String,
        /// The error of the system or of TLS.
        why: String,
    },
    /// The certificate of the hosted gateway's address is not trusted. Nothing was sent to it.
    #[error(
        "the certificate at {address} is not trusted: {why}. Ask its operator, and check this computer's clock; for a gateway of \
             your own, add its authority to those that this computer trusts"
    )]
    Certificate {
        /// The address as configured.
        address: String,
        /// What is wrong with it, as the end of a sentence.
        why: &'static str,
    },
    /// The hosted gateway refuses the account's token.
    #[error(
        "{address} does not accept the account's access token: {why}. A newer one is tried; if that does not help, \
             sign in again with `deskgate connection sign-in`"
    )]
    AccessTokenRefused {
        /// The address as configured.
        address: String,
        /// The gateway's reason.
        why: String,
    },
    /// The server at the hosted gateway's address has no control channel.
    #[error(
        "what answers at {address} is no Deskgate gateway, or lets no WebSocket through ({why}). Check the address, \
             and proxies in between"
    )]
    NoLine {
        /// The address as configured.
        address: String,
        /// What it answered.
        why: String,
    },
    /// The server is no gateway of this product.
    #[error("what answers there is no Deskgate gateway ({0}). Check the control socket's path")]
    NotAGateway(String),
    /// It is not the gateway that this device knows at this address.
    #[error(
        "{address} is another gateway than the one that this device was connected to there: that was {known}, this is \
             {presented}. Its database was replaced, or somebody else answers in its place. It knows none of this \
             device's applications and services, and no run is taken from it. Ask its administrator; if that is meant, \
             accept it with `deskgate connection accept-gateway {presented}`"
    )]
    OtherGateway {
        /// Host and port, or the address, as configured.
        address: String,
        /// The one that is known.
        known: GatewayId,
        /// The one that answered.
        presented: GatewayId,
    },
    /// The connection was lost before the gateway had decided.
    #[error("the connection was lost during the handshake ({0}). The gateway may be restarting")]
    Lost(String),
    /// The gateway refused, and why.
    #[error("{}", RefusedText(.0))]
    Refused(Box<SessionRefusal>),
}

/// The fingerprints of a server that is not trusted, for a person to compare.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostKeys {
    /// The trusted ones; empty: no key is pinned yet.
    pub pinned: Vec<String>,
    /// The one that the server showed.
    pub presented: String,
}

/// The stages of one attempt, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ConnectStage {
    /// A user is signed in.
    Account,
    /// The issuer sends a token.
    Issuer,
    /// A server answers at the address.
    Address,
    /// Its certificate is trusted.
    Certificate,
    /// It is the pinned server.
    HostKey,
    /// It accepts this device's key.
    DeviceKey,
    /// It does nothing that no gateway does.
    Conduct,
    /// A gateway answers at the control socket.
    Socket,
    /// It accepts the control token.
    Token,
    /// It accepts the account's access token.
    AccessToken,
    /// It is the gateway that this device knows there.
    Gateway,
    /// Its version matches.
    Version,
    /// It knows this device.
    Device,
}

impl ConnectStage {
    /// The stages for a gateway that is reached over SSH, in order.
    pub const REMOTE: &[Self] = &[
        Self::Address,
        Self::HostKey,
        Self::DeviceKey,
        Self::Conduct,
        Self::Socket,
        Self::Token,
        Self::Gateway,
        Self::Version,
        Self::Device,
    ];
    /// The stages for a hosted gateway.
    pub const HOSTED: &[Self] = &[
        Self::Account,
        Self::Issuer,
        Self::Address,
        Self::Certificate,
        Self::Socket,
        Self::AccessToken,
        Self::Gateway,
        Self::Version,
        Self::Device,
    ];

    /// The stage of a refusal by the gateway itself.
    pub fn of_refusal(code: RefusedCode) -> Option<Self> {
        match code {
            RefusedCode::VersionMismatch => Some(Self::Version),
            RefusedCode::Unavailable => None,
            RefusedCode::OtherServer => Some(Self::HostKey),
            _ => Some(Self::Device),
        }
    }
}

impl LinkError {
    /// The stage that failed; earlier ones succeeded. `None`: it is unknown.
    pub fn failed_at(&self) -> Option<ConnectStage> {
        match self {
            Self::Unreachable { .. } | Self::ConnectionRefused { .. } => Some(ConnectStage::Address),
            Self::HostKey(_) => Some(ConnectStage::HostKey),
            Self::KeyNotAccepted { .. } => Some(ConnectStage::DeviceKey),
            Self::Hostile { .. } => Some(ConnectStage::Conduct),
            Self::OtherGateway { .. } => Some(ConnectStage::Gateway),
            Self::ChannelRefused { .. } | Self::NotAGateway(_) => Some(ConnectStage::Socket),
            Self::WrongToken => Some(ConnectStage::Token),
            Self::AccessTokenRefused { .. } => Some(ConnectStage::AccessToken),
            Self::Account(AccountError::Away { .. }) => Some(ConnectStage::Issuer),
            Self::Account(AccountError::NotHosted(_)) | Self::NoLine { .. } => Some(ConnectStage::Socket),
            Self::Account(_) => Some(ConnectStage::Account),
            Self::Web { .. } => Some(ConnectStage::Address),
            Self::Certificate { .. } => Some(ConnectStage::Certificate),
            Self::Refused(refused) => ConnectStage::of_refusal(refused.code),
            Self::Timeout { .. } | Self::HungUp { .. } | Self::Ssh { .. } | Self::BuiltIn(_) | Self::Lost(_) => None,
        }
    }

    /// The local address of the attempt was removed meanwhile.
    pub(super) fn address_lost() -> Self {
        Self::Lost("this computer's address changed".to_owned())
    }

    /// Whether the network failed, or no server answered: this may pass at any moment.
    pub(super) fn is_of_the_line(&self) -> bool {
        matches!(
            self,
            Self::Unreachable { .. }
                | Self::ConnectionRefused { .. }
                | Self::Timeout { .. }
                | Self::Lost(_)
                | Self::Web { .. }
        )
    }

    /// The fingerprints to compare, if the server's key is unknown or has changed.
    pub fn host_keys(&self) -> Option<HostKeys> {
        match self {
            Self::HostKey(HostKeyError::Unknown { presented, .. }) => {
                Some(HostKeys { pinned: Vec::new(), presented: presented.clone() })
            }
            Self::HostKey(HostKeyError::Changed { pinned, presented, .. }) => {
                Some(HostKeys { pinned: pinned.clone(), presented: presented.clone() })
            }
            _ => None,
        }
    }

    /// Whether only a person can help, so that automatic retries are wrong: the server is not the pinned one, or the
    /// gateway reported that retries do not help.
    pub fn is_blocked(&self) -> bool {
        match self {
            Self::HostKey(_) | Self::OtherGateway { .. } => true,
            Self::Account(AccountError::SignedOut(_) | AccountError::Refused { .. }) => true,
            Self::Refused(refused) => !refused.should_retry,
            _ => false,
        }
    }
}

struct RefusedText<'a>(&'a SessionRefusal);

impl fmt::Display for RefusedText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let SessionRefusal { message, gateway_version, device_version, .. } = self.0;
        write!(f, "the gateway refuses this device: {message} (gateway {gateway_version}")?;
        match device_version {
            Some(version) => write!(f, ", device {version})"),
            None => f.write_str(")"),
        }
    }
}

/// Why a server's host key is not trusted. Only the key exchange was sent to the server.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HostKeyError {
    /// No key is pinned for this server.
    #[error(
        "the host key of {address} is not known yet.\n  pinned:    (none)\n  presented: {presented}\n\
             Compare the presented fingerprint with the one that `deskgate-gateway admin host-key` (for the server's \
             own sshd: `ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub`) prints on the server. Only if they are \
             equal, pin it with `deskgate connection set --mode remote --host-key SHA256:…`"
    )]
    Unknown {
        /// Host and port as configured.
        address: String,
        /// The fingerprint that the server showed.
        presented: String,
    },
    /// The key is not the pinned one.
    #[error("the host key of {address} is not the pinned one: somebody may be in between.\n  pinned:    {}\n  \
             presented: {presented}\nThe connection is blocked. Ask the server's administrator whether the key was \
             changed on purpose, and compare the presented fingerprint with the one that `deskgate-gateway admin host-key` \
             prints on the server; only then pin the new fingerprint with `deskgate connection set --mode remote --host-key SHA256:…`", pinned.join(", "))]
    Changed {
        /// Host and port as configured.
        address: String,
        /// The trusted fingerprints.
        pinned: Vec<String>,
        /// The fingerprint that the server showed.
        presented: String,
    },
    /// The known-hosts file marks this key as revoked.
    #[error(
        "the host key {presented} of {address} is marked @revoked in {file}. The connection is blocked: \
             ask the server's administrator for its new key"
    )]
    Revoked {
        /// Host and port as configured.
        address: String,
        /// The fingerprint that the server showed.
        presented: String,
        /// The known-hosts file.
        file: PathBuf,
    },
    /// The known-hosts file cannot be used.
    #[error("cannot check the host key {presented} of {address}: {file} {why}")]
    File {
        /// Host and port as configured.
        address: String,
        /// The fingerprint that the server showed.
        presented: String,
        /// The known-hosts file.
        file: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// The server showed a certificate; certificate authorities cannot be pinned.
    #[error("{0} presents a host certificate instead of a host key; only plain Ed25519 host keys are supported")]
    Certificate(String),
    /// The server leaves the key exchange open to tampering (CVE-2023-48795).
    #[error(
        "{0} does not support strict key exchange, so the connection could be tampered with. \
             Update the server's SSH software"
    )]
    NotStrict(String),
}

/// Why an open session ended.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DisconnectReason {
    /// The gateway or the network closed the connection.
    #[error("the connection was closed ({0})")]
    Closed(String),
    /// The gateway ended the session for a reason that also applies to the next one, such as another device with the
    /// same key.
    #[error("the connection was closed ({0})")]
    Dismissed(String),
    /// No message came for three heartbeats.
    #[error("nothing was heard from the gateway for {} s", .0.as_secs_f32())]
    Silent(Duration),
    /// The gateway read no data for two heartbeats.
    #[error("the gateway took nothing for {} s", .0.as_secs_f32())]
    Stuck(Duration),
    /// The gateway sent a frame beyond the size limit.
    #[error("a frame beyond the size limit: {0}")]
    TooLarge(String),
    /// This device made a frame beyond the size limit.
    #[error("this device made a frame beyond the size limit, which is a fault of its own: {0}")]
    OwnTooLarge(String),
    /// The gateway sent a message that is no frame of this protocol.
    #[error("the gateway sent what is no frame: {0}")]
    Malformed(String),
    /// This side dropped the session.
    #[error("this device ended the session")]
    Dropped,
    /// The session was redirected to another connector.
    #[error("the connection was changed here")]
    Redirected,
    /// The server opened channels towards this device.
    #[error(
        "the server opened more than {MAX_REFUSED_CHANNELS} channels towards this device, which no gateway does; all were \
             refused. Somebody else may have taken it over: ask its administrator"
    )]
    Hostile,
    /// The computer slept longer than a connection lasts.
    #[error("this computer slept")]
    Slept,
    /// This computer lost the local address of the connection.
    #[error("this computer's address changed")]
    Moved,
}

impl DisconnectReason {
    /// Whether neither side ended the session, so that the connection may be restored at any moment.
    pub(super) fn is_of_the_line(&self) -> bool {
        matches!(self, Self::Silent(_) | Self::Stuck(_) | Self::Moved)
    }

    /// The stage of an attempt that would fail for the same reason.
    pub(super) fn failed_at(&self) -> Option<ConnectStage> {
        (*self == Self::Hostile).then_some(ConnectStage::Conduct)
    }

    /// The gateway's reason for ending the session.
    pub(super) fn from_bye(code: ByeCode, message: &str) -> Self {
        let word = serde_json::to_value(code).ok().and_then(|word| word.as_str().map(str::to_owned));
        let why = format!("by the gateway, {}: {message}", word.unwrap_or_default());
        if code == ByeCode::Unavailable { Self::Closed(why) } else { Self::Dismissed(why) }
    }

    /// Whether the cause is unlikely to affect the next session: the connection or the gateway broke.
    pub(super) fn is_breakage(&self) -> bool {
        self.is_of_the_line() || matches!(self, Self::Closed(_))
    }
}
