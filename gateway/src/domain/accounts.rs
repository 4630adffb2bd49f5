//! Devices that come with an account: which key is whose.
//!
//! A key that nobody paired belongs from then on to the account that it first comes with. It never changes hands: not to
//! another account, not from the administrator who paired it to an account, and not the other way round.

use deskgate_protocol::control::{Hello, RefusedCode, SessionRefusal};
use deskgate_protocol::service::check_name;
use deskgate_protocol::{Timestamp, VERSION};

pub use crate::store::accounts::Account;
use crate::store::devices::Device;
use crate::store::{self, Store};

/// What a device is called whose user gave it no name that can be used.
const DEFAULT_DEVICE_NAME: &str = "desktop";

/// What an access token is good for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    /// Whose it is.
    pub account: Account,
    /// When it is over.
    pub until: Timestamp,
}

/// Pairs the key of a hello whose proof was checked, if it is nobody's yet and its account has room for it.
pub async fn pair(store: &Store, account: &Account, hello: &Hello, most: u32) -> Result<(), store::Error> {
    let name = hello.device_name.as_deref().filter(|name| check_name(name).is_ok()).unwrap_or(DEFAULT_DEVICE_NAME);
    store.pair_with_account(name, &hello.public_key, account, most).await
}

/// Refuses a key that is not the account's. `known`: whoever has it.
pub fn refuse_key(known: Option<&Device>, hello: &Hello, most: u32) -> SessionRefusal {
    let fingerprint = hello.public_key.fingerprint();
    let (code, message) = match known {
        None => (
            RefusedCode::TooManyDevices,
            format!(
                "The account has {most} devices on this gateway, which is as many as it may. Ask the gateway's \
                 administrator to revoke one of them."
            ),
        ),
        Some(device) if device.revoked_at.is_some() => (
            RefusedCode::RevokedDevice,
            format!("This device ({fingerprint}) was removed from the gateway. Make a new identity to bring it again."),
        ),
        Some(_) => (
            RefusedCode::OtherAccount,
            format!(
                "This device ({fingerprint}) belongs to another account, or was paired by the gateway's administrator. \
                 Sign in with the account that brought it, or make a new identity."
            ),
        ),
    };
    SessionRefusal {
        code,
        message,
        should_retry: false,
        retry_after_s: None,
        gateway_version: VERSION.to_owned(),
        device_version: Some(hello.device_version.clone()),
        upgrade: None,
    }
}
