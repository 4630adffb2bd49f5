//! Which addresses callbacks and the issuer's documents may come to lead to.

use super::{Config, ConfigError};
use crate::networks::Networks;
use crate::networks::destinations::AddressRules;

impl Config {
    /// Where callbacks may go, beside the list of hosts.
    ///
    /// # Errors
    /// [`ConfigError::Value`]: an entry is no range of addresses, or no NAT64 prefix.
    pub fn callback_addresses(&self) -> Result<AddressRules, ConfigError> {
        let prefixes =
            "a list of NAT64 prefixes, IPv6 ranges with /32, /40, /48, /56, /64 or /96, such as 64:ff9b::/96,";
        Ok(AddressRules {
            refused: self.networks("callbacks.refused_networks")?,
            nat64: self.parse("callbacks.nat64_prefixes", prefixes)?,
            allowed: Networks::default(),
        })
    }

    pub(super) fn networks(&self, key: &'static str) -> Result<Networks, ConfigError> {
        self.parse(key, "a list of addresses or ranges, such as 10.0.0.0/8,")
    }

    /// The rules for destinations as a sentence.
    pub(crate) fn describe_destinations(&self) -> Result<String, ConfigError> {
        self.callback_addresses()?;
        let mut parts = vec!["public addresses".to_owned()];
        for (key, what) in [
            ("callbacks.refused_networks", "except"),
            ("callbacks.nat64_prefixes", "by the embedded address inside"),
            ("hosted.allowed_networks", "and for the issuer of accounts also"),
        ] {
            let set = self.text(key);
            if !set.is_empty() {
                parts.push(format!("{what} {set}"));
            }
        }
        Ok(parts.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::load;

    #[test]
    fn further_ranges_are_refused_and_a_mistake_in_them_is_named() {
        let rules = |flags: &[&str]| load("", &[], flags).unwrap().callback_addresses();
        let of_file = load("[callbacks]\nrefused_networks = [\"198.100.0.0/16\"]", &[], &[]).unwrap();
        assert!(!of_file.callback_addresses().unwrap().allow([198, 100, 1, 1].into()));
        assert!(rules(&[]).unwrap().allow([198, 100, 1, 1].into()));
        let wrong = rules(&["callbacks.refused_networks=198.100.0.0/33"]).unwrap_err().to_string();
        assert!(wrong.contains("callbacks.refused_networks"), "{wrong}");
        let wrong = rules(&["callbacks.nat64_prefixes=10.0.0.0/8"]).unwrap_err().to_string();
        assert!(wrong.contains("callbacks.nat64_prefixes") && wrong.contains("/96"), "{wrong}");
        assert!(load("", &[], &["callbacks.nat64_prefixes=::/0"]).unwrap().check().is_err());
    }
}
