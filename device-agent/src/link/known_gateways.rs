//! The gateways that this device was welcomed by, each with its address: another one there is not taken for the same.
//!
//! A gateway's identifier is in its database and stays when a backup of that is restored. So another identifier at the
//! same address, behind the same host key, is another gateway: it knows none of the device's applications and services.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use deskgate_protocol::GatewayId;
use deskgate_secrets::write_private;

use super::error::LinkError;

/// The most addresses that are remembered.
const MAX_ADDRESSES: usize = 32;

/// The file with the gateways that are known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KnownGateways(PathBuf);

impl KnownGateways {
    /// In this file, which need not exist.
    pub fn new(file: PathBuf) -> Self {
        Self(file)
    }

    /// Checks that the gateway at an address is the known one, if one is known.
    pub(super) fn check(&self, address: &str, presented: GatewayId) -> Result<(), LinkError> {
        match read(&self.0).get(address) {
            Some(known) if *known != presented => {
                Err(LinkError::OtherGateway { address: address.to_owned(), known: *known, presented })
            }
            _ => Ok(()),
        }
    }

    /// Takes this gateway for the one at an address from now on.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn remember(&self, address: &str, gateway: GatewayId) -> io::Result<()> {
        let mut known = read(&self.0);
        if known.insert(address.to_owned(), gateway) == Some(gateway) {
            return Ok(());
        }
        while known.len() > MAX_ADDRESSES {
            let other = known.keys().find(|other| *other != address).cloned();
            known.remove(&other.unwrap_or_default());
        }
        let text = serde_json::to_vec_pretty(&known).map_err(io::Error::other)?;
        write_private(&self.0, &text).map_err(io::Error::other)
    }
}

/// What is known; a file that cannot be read counts as none.
fn read(file: &Path) -> BTreeMap<String, GatewayId> {
    let text = match std::fs::read_to_string(file) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return BTreeMap::new(),
        read => read.map_err(|error| error.to_string()),
    };
    text.and_then(|text| serde_json::from_str(&text).map_err(|error| error.to_string())).unwrap_or_else(|error| {
        tracing::warn!(file = %file.display(), error, "which gateways this device knows cannot be read, so none is known");
        BTreeMap::new()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_gateway_at_the_same_address_is_told_from_the_known_one_until_it_is_accepted() {
        let folder = tempfile::tempdir().expect("a folder");
        let known = KnownGateways::new(folder.path().join("known"));
        let (one, other) = (GatewayId::new(), GatewayId::new());
        assert!(known.check("a:22", one).is_ok(), "nobody is known yet");
        known.remember("a:22", one).expect("written");
        assert!(known.check("a:22", one).is_ok() && known.check("b:22", other).is_ok());
        let error = known.check("a:22", other).expect_err("another one").to_string();
        assert!(error.contains(&one.to_string()) && error.contains(&format!("accept-gateway {other}")), "{error}");
        known.remember("a:22", other).expect("written");
        assert!(known.check("a:22", other).is_ok() && known.check("a:22", one).is_err());
        for number in 0..2 * MAX_ADDRESSES {
            known.remember(&format!("c:{number}"), one).expect("written");
        }
        assert_eq!(read(&known.0).len(), MAX_ADDRESSES);
    }
}
