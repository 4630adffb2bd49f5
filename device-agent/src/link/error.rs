//! Why the gateway was not reached, in words that say what to do next.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use deskgate_protocol::control::{ByeCode, RefusedCode, SessionRefusal};
use serde::{Deserialize, Serialize};

use crate::account::AccountError;

/// Why one attempt to reach the gateway failed.
#[derive(Debug, thiserror::Error)]
pub enum LinkError {
    /// The host name has no address, or the network says no.
    #[error("cannot reach {address}: {source}. Check the address and this machine's network")]
    Unreachable {
        /// Host and port as configured.
        address: String,
        /// What the system says.
        source: io::Error,
    },
    /// Nothing listens there.
    #[error(
        "{address} refuses the connection: nothing listens there. Check the port, and whether the gateway \
             (or the server's sshd) runs"
    )]
    ConnectionRefused {
        /// Host and port as configured.
        address: String,
    },
    /// No answer in time.
    #[error("{address} did not answer within {} s while {stage}. Check the address, and firewalls in between",
            limit.as_secs_f32())]
    Timeout {
        /// Host and port as configured.
        address: String,
        /// What was under way.
        stage: &'static str,
        /// How long it may take.
        limit: Duration,
    },
    /// The server could not be verified. Nothing was sent to it.
    #[error(transparent)]
    HostKey(#[from] HostKeyError),
    /// The server knows no current SSH algorithm, or breaks the protocol.
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
             Pair it: export it here with `deskgate identity export FILE`, then run \
             `deskgate-gateway admin device add FILE` on the server \
             (for the server's own sshd: `… admin device add --print-authorized-keys FILE`)"
    )]
    KeyNotAccepted {
        /// Host and port as configured.
        address: String,
        /// Whom the device presented itself as.
        user: String,
        /// The device key's fingerprint.
        fingerprint: String,
    },
    /// The server lets the device in but not to the control socket.
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
        /// What the server said.
        reason: String,
    },
    /// The built-in gateway does not answer.
    #[error("the built-in gateway gives no connection: {0}. It may still be starting, or stopping")]
    BuiltIn(#[source] io::Error),
    /// The control token is not the gateway's.
    #[error(
        "the gateway does not accept the control token. Ask its administrator for the current one \
             and enter it with `deskgate connection save --mode remote --token-file FILE`"
    )]
    WrongToken,
    /// Nobody is signed in at the hosted gateway, or its issuer gives no token.
    #[error(transparent)]
    Account(#[from] AccountError),
    /// The hosted gateway's address leads nowhere.
    #[error("cannot reach {address}: {why}. Check the address and this machine's network")]
    Web {
        /// As configured.
        address: String,
        /// What the system or TLS says.
        why: String,
    },
    /// The hosted gateway does not take the account's token.
    #[error(
        "{address} does not accept the account's access token: {why}. A newer one is tried; if that does not help, \
             sign in again with `deskgate connection sign-in`"
    )]
    AccessTokenRefused {
        /// As configured.
        address: String,
        /// What it says.
        why: String,
    },
    /// Whatever answers at the hosted gateway's address has no control line.
    #[error(
        "what answers at {address} is no Deskgate gateway, or lets no WebSocket through ({why}). Check the address, \
             and proxies in between"
    )]
    NoLine {
        /// As configured.
        address: String,
        /// What it did.
        why: String,
    },
    /// Whatever answers is no gateway of this product.
    #[error("what answers there is no Deskgate gateway ({0}). Check the control socket's path")]
    NotAGateway(String),
    /// The line was lost before the gateway had decided.
    #[error("the connection was lost during the handshake ({0}). The gateway may be restarting")]
    Lost(String),
    /// The gateway said no, and why.
    #[error("{}", RefusedText(.0))]
    Refused(Box<SessionRefusal>),
}

/// The fingerprints of a server that is not trusted, for a person to compare.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostKeys {
    /// Those that are trusted for it; none: nothing is pinned yet.
    pub pinned: Vec<String>,
    /// The one that it showed.
    pub presented: String,
}

/// What one attempt goes through, in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ConnectStage {
    /// Somebody is signed in.
    Account,
    /// The issuer of accounts gives a token.
    Issuer,
    /// Something answers at the address.
    Address,
    /// It is the server that was pinned.
    HostKey,
    /// It lets this device's key in.
    DeviceKey,
    /// A gateway answers at the control socket.
    Socket,
    /// It accepts the control token.
    Token,
    /// It accepts the account's access token.
    AccessToken,
    /// Its version matches.
    Version,
    /// It knows this device.
    Device,
}

impl ConnectStage {
    /// Those of a gateway that is reached over SSH, in their order.
    pub const REMOTE: [Self; 7] =
        [Self::Address, Self::HostKey, Self::DeviceKey, Self::Socket, Self::Token, Self::Version, Self::Device];
    /// Those of a hosted gateway.
    pub const HOSTED: [Self; 7] =
        [Self::Account, Self::Issuer, Self::Address, Self::Socket, Self::AccessToken, Self::Version, Self::Device];

    /// Of a refusal by the gateway itself.
    pub fn of_refusal(code: RefusedCode) -> Option<Self> {
        match code {
            RefusedCode::VersionMismatch => Some(Self::Version),
            RefusedCode::Unavailable => None,
            _ => Some(Self::Device),
        }
    }
}

impl LinkError {
    /// What the attempt failed at; everything before it went well. `None`: that cannot be told.
    pub fn failed_at(&self) -> Option<ConnectStage> {
        match self {
            Self::Unreachable { .. } | Self::ConnectionRefused { .. } => Some(ConnectStage::Address),
            Self::HostKey(_) => Some(ConnectStage::HostKey),
            Self::KeyNotAccepted { .. } => Some(ConnectStage::DeviceKey),
            Self::ChannelRefused { .. } | Self::NotAGateway(_) => Some(ConnectStage::Socket),
            Self::WrongToken => Some(ConnectStage::Token),
            Self::AccessTokenRefused { .. } => Some(ConnectStage::AccessToken),
            Self::Account(AccountError::Away { .. }) => Some(ConnectStage::Issuer),
            Self::Account(AccountError::NotHosted(_)) | Self::NoLine { .. } => Some(ConnectStage::Socket),
            Self::Account(_) => Some(ConnectStage::Account),
            Self::Web { .. } => Some(ConnectStage::Address),
            Self::Refused(refused) => ConnectStage::of_refusal(refused.code),
            Self::Timeout { .. } | Self::Ssh { .. } | Self::BuiltIn(_) | Self::Lost(_) => None,
        }
    }

    /// The address that the attempt stood on was taken away meanwhile.
    pub(super) fn address_lost() -> Self {
        Self::Lost("this computer's address changed".to_owned())
    }

    /// Whether the way to the gateway is what failed, or nobody was at its end: what mends by itself at any moment.
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

    /// The fingerprints to compare, where the server's key is unknown or another one than before.
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

    /// Whether only a person can help, so that trying again by itself is wrong: the server is not
    /// the one that was pinned, or the gateway said that trying again does not help.
    pub fn is_blocked(&self) -> bool {
        match self {
            Self::HostKey(_) => true,
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

/// Why a server's host key is not trusted. Nothing was sent to the server but the key exchange.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HostKeyError {
    /// Nothing is pinned for this server.
    #[error(
        "the host key of {address} is not known yet.\n  pinned:    (none)\n  presented: {presented}\n\
             Compare the presented fingerprint with the one that `deskgate-gateway admin host-key` (for the server's \
             own sshd: `ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub`) prints on the server. Only if they are \
             equal, pin it with `deskgate connection save --mode remote --host-key SHA256:…`"
    )]
    Unknown {
        /// Host and port as configured.
        address: String,
        /// The fingerprint that the server showed.
        presented: String,
    },
    /// Another key than the pinned one.
    #[error("the host key of {address} is not the pinned one: somebody may be in between.\n  pinned:    {}\n  \
             presented: {presented}\nThe connection is blocked. Ask the server's administrator whether the key was \
             changed on purpose, and compare the presented fingerprint with the one that `deskgate-gateway admin host-key` \
             prints on the server; only then pin the new fingerprint with `deskgate connection save --mode remote --host-key SHA256:…`", pinned.join(", "))]
    Changed {
        /// Host and port as configured.
        address: String,
        /// The fingerprints that are trusted.
        pinned: Vec<String>,
        /// The fingerprint that the server showed.
        presented: String,
    },
    /// The known-hosts file says that this key must not be trusted any more.
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
    /// The server showed a certificate, whose authority nobody pinned.
    #[error("{0} presents a host certificate instead of a host key; only plain Ed25519 host keys are supported")]
    Certificate(String),
    /// The server leaves the key exchange open to tampering (CVE-2023-48795).
    #[error(
        "{0} does not support strict key exchange, so the connection could be tampered with. \
             Update the server's SSH software"
    )]
    NotStrict(String),
}

/// Why a session that was open ended.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DisconnectReason {
    /// The gateway or the network closed the line.
    #[error("the line was closed ({0})")]
    Closed(String),
    /// The gateway ended the session for a reason that the next one would share, such as another device with the same key.
    #[error("the line was closed ({0})")]
    Dismissed(String),
    /// Nothing came for three heartbeats.
    #[error("nothing was heard from the gateway for {} s", .0.as_secs_f32())]
    Silent(Duration),
    /// The gateway took nothing for two heartbeats.
    #[error("the gateway took nothing for {} s", .0.as_secs_f32())]
    Stuck(Duration),
    /// A frame beyond the size limit.
    #[error("a frame beyond the size limit: {0}")]
    TooLarge(String),
    /// This device made a frame beyond the size limit.
    #[error("this device made a frame beyond the size limit, which is a fault of its own: {0}")]
    OwnTooLarge(String),
    /// Something that is no frame of this protocol.
    #[error("the gateway sent what is no frame: {0}")]
    Malformed(String),
    /// This side dropped the session.
    #[error("this device ended the session")]
    Dropped,
    /// Another way to the gateway was put in force.
    #[error("the connection was changed here")]
    Redirected,
    /// The computer slept longer than a line lasts.
    #[error("this computer slept")]
    Slept,
    /// The address that the line stood on is not this computer's any more.
    #[error("this computer's address changed")]
    Moved,
}

impl DisconnectReason {
    /// Whether nobody ended the session, so that the line may be back at any moment.
    pub(super) fn is_of_the_line(&self) -> bool {
        matches!(self, Self::Silent(_) | Self::Stuck(_) | Self::Moved)
    }

    /// The gateway said why it ends the session.
    pub(super) fn from_bye(code: ByeCode, message: &str) -> Self {
        let word = serde_json::to_value(code).ok().and_then(|word| word.as_str().map(str::to_owned));
        let why = format!("by the gateway, {}: {message}", word.unwrap_or_default());
        if code == ByeCode::Unavailable { Self::Closed(why) } else { Self::Dismissed(why) }
    }

    /// Whether it says nothing of the next session: the line or the gateway broke.
    pub(super) fn is_breakage(&self) -> bool {
        self.is_of_the_line() || matches!(self, Self::Closed(_))
    }
}
