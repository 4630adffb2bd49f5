//! Invitations: an administrator invites, a device comes, the administrator confirms it.

use std::time::Duration;

use deskgate_protocol::InvitationId;
use deskgate_protocol::control::{Hello, RefusedCode, SessionRefusal};
use deskgate_protocol::identity::PublicKey;
use deskgate_protocol::secret::ControlToken;
use deskgate_protocol::service::check_name;
use zeroize::Zeroizing;

use super::devices::{PairError, refuse_for_now};
use crate::encryption::{DataCipher, EncryptionError};
use crate::store::devices::Device;
use crate::store::invitations::{Invitation, InvitationState, InvitedDevice};
use crate::store::{self, Store};

/// How long an invitation lasts unless it says otherwise.
pub const INVITATION_LASTS: Duration = Duration::from_secs(3600);
/// The longest that it may last.
pub const MAX_INVITATION_LASTS: Duration = Duration::from_secs(7 * 24 * 3600);

/// Why an invitation was not answered.
#[derive(Debug, thiserror::Error)]
pub enum AnswerError {
    /// There is none with this identifier.
    #[error("there is no invitation {0}; see: deskgate-gateway admin device invitations")]
    Unknown(InvitationId),
    /// No device came with it.
    #[error(
        "no device has come with this invitation yet: its user pastes the line into `deskgate pair`, or on the page Connection"
    )]
    NobodyCame,
    /// Another device came last than the one that is confirmed.
    #[error(
        "the device that came with this invitation has the short code {came}, not {given}. Confirm nothing that its user did not read out to you"
    )]
    OtherDevice {
        /// The short code of the device that came.
        came: String,
        /// The short code that was given.
        given: String,
    },
    /// It was answered, or has ended.
    #[error("this invitation is {0} already; make another one: deskgate-gateway admin device invite")]
    Over(InvitationState),
    /// The device cannot be paired.
    #[error(transparent)]
    Pair(#[from] PairError),
}

impl From<store::Error> for AnswerError {
    fn from(error: store::Error) -> Self {
        Self::Pair(PairError::Store(error))
    }
}

/// Confirms the device that came with an invitation, whose key has this short code, and pairs it.
///
/// # Errors
/// See [`AnswerError`].
pub async fn confirm(store: &Store, invitation_id: InvitationId, short_code: &str) -> Result<Device, AnswerError> {
    let invitation = store.invitation(invitation_id).await?.ok_or(AnswerError::Unknown(invitation_id))?;
    let came = match (invitation.state, invitation.device) {
        (InvitationState::Waiting, Some(came)) => came,
        (InvitationState::Open, _) | (_, None) => return Err(AnswerError::NobodyCame),
        (state, _) => return Err(AnswerError::Over(state)),
    };
    let other = |came: &InvitedDevice| AnswerError::OtherDevice {
        came: came.public_key.short_code(),
        given: short_code.to_uppercase(),
    };
    if !is_short_code_of(short_code, &came.public_key) {
        return Err(other(&came));
    }
    match store.device_by_key(&came.public_key).await? {
        Some(Device { revoked_at: Some(_), .. }) => return Err(PairError::Revoked.into()),
        Some(Device { account: Some(account), .. }) => return Err(PairError::Account(account).into()),
        _ => {}
    }
    if store.confirm_invited(invitation_id, &came.public_key, &came.name).await?.is_none() {
        let now = store.invitation(invitation_id).await?.ok_or(AnswerError::Unknown(invitation_id))?;
        return Err(match (now.state, now.device) {
            (InvitationState::Waiting, Some(came)) => other(&came),
            (state, _) => AnswerError::Over(state),
        });
    }
    let device = store.device_by_key(&came.public_key).await?;
    device.ok_or_else(|| store::Error::Data("a paired device is missing".to_owned()).into())
}

/// The control token of a confirmed device: the same one each time that it comes, until it came with it. So an answer that
/// got lost costs nothing, and no number of visits makes a second secret. `None`: see [`refusal`].
///
/// # Errors
/// The database failed, or another gateway sealed the token with another key.
pub async fn give_token(
    store: &Store,
    cipher: &DataCipher,
    invitation_id: InvitationId,
    public_key: &PublicKey,
) -> Result<Option<ControlToken>, GiveTokenError> {
    let place = format!("control token of {invitation_id}");
    let fresh = ControlToken::generate();
    let sealed = cipher.encrypt(fresh.reveal().as_bytes(), &place);
    let Some(kept) = store.give_invited_token(invitation_id, public_key, &sealed, fresh.digest()).await? else {
        return Ok(None);
    };
    let text = Zeroizing::new(cipher.decrypt(&kept, &place)?);
    let token = std::str::from_utf8(&text).ok().and_then(|text| text.parse().ok());
    token.map(Some).ok_or(GiveTokenError::Encryption(EncryptionError::OtherKey))
}

/// Why a confirmed device was not given its token.
#[derive(Debug, thiserror::Error)]
pub enum GiveTokenError {
    /// The database failed.
    #[error(transparent)]
    Store(#[from] store::Error),
    /// The token was sealed with another key.
    #[error(transparent)]
    Encryption(#[from] EncryptionError),
}

/// Whether a typed short code is this key's: groups may be written together, and small.
fn is_short_code_of(typed: &str, key: &PublicKey) -> bool {
    let plain = |code: &str| code.chars().filter(char::is_ascii_alphanumeric).collect::<String>().to_uppercase();
    plain(typed) == plain(&key.short_code())
}

/// Refuses an invitation, whether or not a device came with it.
///
/// # Errors
/// There is no such invitation, it was answered or has ended, or the database failed.
pub async fn refuse(store: &Store, invitation_id: InvitationId) -> Result<Invitation, AnswerError> {
    if let Some(refused) = store.refuse_invited(invitation_id).await? {
        return Ok(refused);
    }
    let invitation = store.invitation(invitation_id).await?.ok_or(AnswerError::Unknown(invitation_id))?;
    Err(AnswerError::Over(invitation.state))
}

/// The name under which an invited device is shown and paired.
///
/// # Errors
/// It names none, or one that cannot be used.
pub fn device_name(hello: &Hello) -> Result<&str, Box<SessionRefusal>> {
    let name = hello.device_name.as_deref().unwrap_or_default();
    check_name(name).map(|()| name).map_err(|why| {
        let message =
            format!("The device's name cannot be used: {why}. Choose another one on the desktop and pair again.");
        over(&message, RefusedCode::BadHello)
    })
}

/// Tells an invited device that its invitation is of no use any more; `None`: it is good for this device.
pub fn refusal(invitation: &Invitation, public_key: &PublicKey) -> Option<Box<SessionRefusal>> {
    let is_its = invitation.device.as_ref().is_some_and(|device| device.public_key == *public_key);
    let why = match invitation.state {
        InvitationState::Open => return None,
        InvitationState::Waiting | InvitationState::Confirmed if is_its => return None,
        InvitationState::Waiting | InvitationState::Confirmed => "Another device came with this invitation.",
        InvitationState::Paired if is_its => {
            "This invitation has paired this device, and is used up. If the device cannot connect, it needs a new one."
        }
        InvitationState::Paired => "Another device came with this invitation.",
        InvitationState::Refused => "The gateway's administrator refused this invitation.",
        InvitationState::Expired => "This invitation has expired.",
    };
    let next = "Ask the administrator for another one: deskgate-gateway admin device invite";
    Some(over(&format!("{why} {next}"), RefusedCode::InvitationOver))
}

/// Tells a confirmed device that it came too late for its control token.
pub fn expired() -> Box<SessionRefusal> {
    let message =
        "This invitation has expired. Ask the administrator for another one: deskgate-gateway admin device invite";
    over(message, RefusedCode::InvitationOver)
}

/// Tells a stranger with a secret that no invitation has.
pub fn unknown() -> Box<SessionRefusal> {
    let message =
        "There is no such invitation here. Ask the administrator for another one: deskgate-gateway admin device invite";
    over(message, RefusedCode::InvitationOver)
}

fn over(message: &str, code: RefusedCode) -> Box<SessionRefusal> {
    Box::new(SessionRefusal { code, should_retry: false, retry_after_s: None, ..refuse_for_now(message) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_code_may_be_typed_without_its_lines_and_small() {
        let key = PublicKey::from_bytes([7; 32]);
        let code = key.short_code();
        assert!(is_short_code_of(&code, &key) && is_short_code_of(&code.to_lowercase().replace('-', " "), &key));
        assert!(!is_short_code_of(&code[..4], &key) && !is_short_code_of("", &key));
    }
}
