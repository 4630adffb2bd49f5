//! Invitations: one line that an administrator hands to a desktop's owner, and from which both know the rest.
//!
//! A line names the server (address, host key, account, control socket) and has a one-time token. From the token an SSH key
//! is derived, by which the invited device gets through the tunnel, and the secret that it shows at the control channel. The
//! gateway keeps the key's public half and the secret's digest, so that its tables make nobody a device.

use std::fmt;
use std::str::FromStr;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD};
use ed25519_dalek::SigningKey;
use sha2::{Digest, Sha256};
use zeroize::Zeroizing;

use crate::canonical::Sha256Digest;
use crate::secret::SecretKind;
use crate::time::Timestamp;

/// The word before an invitation's secret at the control channel.
pub const INVITATION_SCHEME: &str = "Invitation";

const PREFIX: &str = "dgi_";
const VERSION: u8 = 1;
const TOKEN_BYTES: usize = 24;
const CHECKSUM_BYTES: usize = 4;
const FINGERPRINT_BYTES: usize = 32;
const FINGERPRINT_PREFIX: &str = "SHA256:";
const TUNNEL_CONTEXT: &[u8] = b"deskgate invitation tunnel key v1";
const SECRET_CONTEXT: &[u8] = b"deskgate invitation secret v1";

/// What only an invitation's line has: 192 random bits, wiped from memory on drop.
#[derive(Clone)]
pub struct InvitationToken(Zeroizing<[u8; TOKEN_BYTES]>);

impl InvitationToken {
    /// A fresh token.
    pub fn generate() -> Self {
        use rand::TryRng;
        let mut bytes = Zeroizing::new([0u8; TOKEN_BYTES]);
        rand::rngs::SysRng
            .try_fill_bytes(&mut *bytes)
            .expect("the operating system gives random bytes; without them nothing here is safe");
        Self(bytes)
    }

    fn derive(&self, context: &[u8]) -> Zeroizing<[u8; 32]> {
        Zeroizing::new(Sha256::new().chain_update(context).chain_update(*self.0).finalize().into())
    }

    /// The SSH key that opens the tunnel for the invited device.
    pub fn tunnel_key(&self) -> SigningKey {
        SigningKey::from_bytes(&self.derive(TUNNEL_CONTEXT))
    }

    /// What the invited device shows at the control channel, as hexadecimal digits.
    pub fn secret(&self) -> Zeroizing<String> {
        let bytes = self.derive(SECRET_CONTEXT);
        Zeroizing::new(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
    }

    /// What the gateway keeps of the secret.
    pub fn digest(&self) -> Sha256Digest {
        Self::digest_of(&self.secret())
    }

    /// The digest of a secret that somebody shows.
    pub fn digest_of(secret: &str) -> Sha256Digest {
        Sha256Digest::of(secret.as_bytes())
    }
}

impl fmt::Debug for InvitationToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("InvitationToken(…)")
    }
}

/// An invitation as its line has it.
#[derive(Clone, Debug)]
pub struct Invitation {
    /// The one-time token.
    pub token: InvitationToken,
    /// When it ends, in whole seconds.
    pub expires_at: Timestamp,
    /// The SSH address, `host` or `host:port`.
    pub ssh_address: String,
    /// The fingerprint of the server's host key, `SHA256:…`.
    pub host_key: String,
    /// The account on the server.
    pub ssh_user: String,
    /// The control socket's path on the server.
    pub control_socket: String,
}

/// Why a text is no invitation. It never repeats the text.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidInvitation {
    /// It is another secret of ours, or somebody's key.
    #[error("this is {0}; an invitation starts with \"dgi_\"")]
    OtherKind(SecretKind),
    /// It is something else.
    #[error("this is no invitation, which is one line that starts with \"dgi_\"")]
    Unknown,
    /// A part is missing or wrong.
    #[error("this invitation is incomplete or mistyped: its checksum does not fit. Copy the whole line again")]
    Damaged,
    /// A newer program made it.
    #[error("this invitation was made by a newer gateway; upgrade Deskgate on this computer")]
    Newer,
    /// A field does not fit into a line.
    #[error("{0} is longer than an invitation can hold")]
    TooLong(&'static str),
    /// The host key's fingerprint is none.
    #[error("the host key's fingerprint is written as SHA256:… (43 characters)")]
    Fingerprint,
    /// The time is none.
    #[error("the end of the invitation is no time that it can hold")]
    Time,
}

impl Invitation {
    /// The line: a prefix, and the fields with a checksum in base64.
    ///
    /// # Errors
    /// A field is too long, or the fingerprint or the time is none.
    pub fn line(&self) -> Result<Zeroizing<String>, InvalidInvitation> {
        let seconds = u32::try_from(self.expires_at.0.as_second()).map_err(|_| InvalidInvitation::Time)?;
        let host_key = self.host_key.strip_prefix(FINGERPRINT_PREFIX);
        let host_key = host_key.and_then(|text| STANDARD_NO_PAD.decode(text).ok());
        let host_key =
            host_key.filter(|bytes| bytes.len() == FINGERPRINT_BYTES).ok_or(InvalidInvitation::Fingerprint)?;
        let mut bytes = Zeroizing::new(vec![VERSION]);
        bytes.extend_from_slice(&*self.token.0);
        bytes.extend_from_slice(&seconds.to_be_bytes());
        bytes.extend_from_slice(&host_key);
        let texts =
            [("the address", &self.ssh_address), ("the account", &self.ssh_user), ("the socket", &self.control_socket)];
        for (what, text) in texts {
            bytes.push(u8::try_from(text.len()).map_err(|_| InvalidInvitation::TooLong(what))?);
            bytes.extend_from_slice(text.as_bytes());
        }
        let sum = Sha256::digest(&*bytes);
        bytes.extend_from_slice(&sum[..CHECKSUM_BYTES]);
        Ok(Zeroizing::new(format!("{PREFIX}{}", URL_SAFE_NO_PAD.encode(&*bytes))))
    }

    /// Whether it has ended by this computer's clock.
    pub fn is_over(&self) -> bool {
        self.expires_at <= Timestamp::now()
    }
}

/// Reads fields from the front.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn take(&mut self, count: usize) -> Result<&'a [u8], InvalidInvitation> {
        let (taken, rest) = self.0.split_at_checked(count).ok_or(InvalidInvitation::Damaged)?;
        self.0 = rest;
        Ok(taken)
    }

    fn text(&mut self) -> Result<String, InvalidInvitation> {
        let length = usize::from(self.take(1)?[0]);
        let text = std::str::from_utf8(self.take(length)?).map_err(|_| InvalidInvitation::Damaged)?;
        // Nothing here may steer a terminal or a configuration.
        text.chars().all(|c| c.is_ascii_graphic()).then(|| text.to_owned()).ok_or(InvalidInvitation::Damaged)
    }
}

impl FromStr for Invitation {
    type Err = InvalidInvitation;

    fn from_str(text: &str) -> Result<Self, InvalidInvitation> {
        // A line that was broken by a mail program is still one line.
        let text: Zeroizing<String> = Zeroizing::new(text.split_whitespace().collect());
        match SecretKind::of(&text) {
            Some(SecretKind::Invitation) => {}
            Some(other) => return Err(InvalidInvitation::OtherKind(other)),
            None => return Err(InvalidInvitation::Unknown),
        }
        let bytes = URL_SAFE_NO_PAD.decode(&text[PREFIX.len()..]).map_err(|_| InvalidInvitation::Damaged)?;
        let bytes = Zeroizing::new(bytes);
        let (content, sum) =
            bytes.split_at_checked(bytes.len().saturating_sub(CHECKSUM_BYTES)).ok_or(InvalidInvitation::Damaged)?;
        if sum.len() != CHECKSUM_BYTES || Sha256::digest(content)[..CHECKSUM_BYTES] != *sum {
            return Err(InvalidInvitation::Damaged);
        }
        let mut fields = Fields(content);
        if fields.take(1)? != [VERSION] {
            return Err(InvalidInvitation::Newer);
        }
        let mut token = Zeroizing::new([0u8; TOKEN_BYTES]);
        token.copy_from_slice(fields.take(TOKEN_BYTES)?);
        let seconds = fields.take(4)?.try_into().map_err(|_| InvalidInvitation::Damaged)?;
        let moment = jiff::Timestamp::from_second(u32::from_be_bytes(seconds).into());
        let host_key = format!("{FINGERPRINT_PREFIX}{}", STANDARD_NO_PAD.encode(fields.take(FINGERPRINT_BYTES)?));
        let (ssh_address, ssh_user, control_socket) = (fields.text()?, fields.text()?, fields.text()?);
        if !fields.0.is_empty() || ssh_address.is_empty() {
            return Err(InvalidInvitation::Damaged);
        }
        let expires_at = Timestamp(moment.map_err(|_| InvalidInvitation::Damaged)?);
        Ok(Self { token: InvitationToken(token), expires_at, ssh_address, host_key, ssh_user, control_socket })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn invitation() -> Invitation {
        Invitation {
            token: InvitationToken::generate(),
            expires_at: "2026-11-21T12:00:00Z".parse().expect("a time"),
            ssh_address: "gateway.example.com:2222".to_owned(),
            host_key: "SHA256:47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU".to_owned(),
            ssh_user: "deskgate".to_owned(),
            control_socket: "/run/deskgate/control.sock".to_owned(),
        }
    }

    #[test]
    fn a_line_reads_back_as_it_was_written_and_may_have_been_broken() {
        let sent = invitation();
        let line = sent.line().expect("it fits");
        let broken = format!(" {}\n{}\r\n", &line[..60], &line[60..]);
        for text in [line.as_str(), &broken] {
            let read: Invitation = text.parse().expect("our own line");
            assert_eq!((read.token.digest(), read.expires_at), (sent.token.digest(), sent.expires_at));
            assert_eq!((&read.ssh_address, &read.host_key), (&sent.ssh_address, &sent.host_key));
            assert_eq!((&read.ssh_user, &read.control_socket), (&sent.ssh_user, &sent.control_socket));
            assert!(read.is_over());
        }
        assert!(line.len() < 250, "{} characters", line.len());
    }

    #[test]
    fn key_and_secret_are_the_tokens_alone_and_nothing_of_it_is_shown() {
        let (one, other) = (InvitationToken::generate(), InvitationToken::generate());
        assert_eq!(one.tunnel_key().to_bytes(), one.clone().tunnel_key().to_bytes());
        assert_ne!(one.tunnel_key().to_bytes(), other.tunnel_key().to_bytes());
        assert_eq!(InvitationToken::digest_of(&one.secret()), one.digest());
        assert_ne!(one.digest(), other.digest());
        assert_eq!(format!("{one:?}"), "InvitationToken(…)");
    }

    #[test]
    fn what_is_no_invitation_is_named() {
        let error = |text: &str| text.parse::<Invitation>().expect_err("no invitation");
        assert_eq!(error("hello"), InvalidInvitation::Unknown);
        let token = crate::secret::ControlToken::generate();
        assert_eq!(error(token.reveal()), InvalidInvitation::OtherKind(SecretKind::ControlToken));
        let line = invitation().line().expect("it fits");
        for cut in [4, 5, 40, line.len() - 1] {
            assert_eq!(error(&line[..cut]), InvalidInvitation::Damaged, "{cut}");
        }
        let mut bytes = URL_SAFE_NO_PAD.decode(&line[4..]).expect("base64");
        bytes.truncate(bytes.len() - CHECKSUM_BYTES);
        bytes[0] = VERSION + 1;
        let sum = Sha256::digest(&bytes);
        bytes.extend_from_slice(&sum[..CHECKSUM_BYTES]);
        assert_eq!(error(&format!("dgi_{}", URL_SAFE_NO_PAD.encode(bytes))), InvalidInvitation::Newer);
        let long = Invitation { ssh_address: "a".repeat(256), ..invitation() };
        assert_eq!(long.line().expect_err("too long"), InvalidInvitation::TooLong("the address"));
        let steering = Invitation { ssh_user: "a\u{1b}[2J".to_owned(), ..invitation() };
        assert_eq!(error(&steering.line().expect("it fits")), InvalidInvitation::Damaged);
    }

    proptest! {
        #[test]
        fn one_changed_character_is_noticed(place in 4usize..170, other in "[A-Za-z0-9_-]") {
            let line = invitation().line().expect("it fits");
            let place = place.min(line.len() - 1);
            prop_assume!(line[place..=place] != other);
            let changed = format!("{}{other}{}", &line[..place], &line[place + 1..]);
            // The last character may have bits that mean nothing, which the decoder refuses.
            prop_assert_eq!(changed.parse::<Invitation>().expect_err("changed"), InvalidInvitation::Damaged);
        }

        #[test]
        fn arbitrary_text_never_panics(text: String) {
            let _ = text.parse::<Invitation>();
            let _ = format!("dgi_{text}").parse::<Invitation>();
        }
    }
}
