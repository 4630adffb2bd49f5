//! Devices with an account: which account owns which key.
//!
//! An unpaired key belongs from its first connection on to the account that it comes with. It never changes owner: not
//! to another account, not from the administrator who paired it to an account, and not the other way round.

use deskgate_protocol::control::{Hello, RefusedCode, SessionRefusal};
use deskgate_protocol::service::check_name;
use deskgate_protocol::{Timestamp, VERSION};

pub use crate::store::accounts::Account;
use crate::store::devices::Device;
use crate::store::{self, Store};

/// The name of a device whose user gave it no usable name.
const DEFAULT_DEVICE_NAME: &str = "desktop";

/// The rights of an access token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    /// The account.
    pub account: Account,
    /// When the token expires.
    pub until: Timestamp,
}

/// Pairs the key of a hello whose proof was checked, if the key is unpaired and the account may have one more device.
///
/// # Errors
/// The database does not answer, or refuses the statement.
pub async fn pair(store: &Store, account: &Account, hello: &Hello, most: u32) -> Result<(), store::Error> {
    let name = hello.device_name.as_deref().filter(|name| check_name(name).is_ok()).unwrap_or(DEFAULT_DEVICE_NAME);
    store.pair_with_account(name, &hello.public_key, account, most).await
}

/// Refuses a key that is not the account's. `known`: the device that has it.
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
