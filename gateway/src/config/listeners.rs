//! The settings of the listeners: addresses, TLS, and trusted proxies.

use std::net::SocketAddr;
use std::time::Duration;

use super::{Config, ConfigError};
use crate::networks::{ForwardedHeader, Networks};
use crate::tls;

/// The service manager's timeout, less the time that closing takes.
const MAX_DRAIN_MS: u64 = 60_000;

impl Config {
    /// The public listener. Beyond loopback it needs TLS of its own, or proxies that do it.
    ///
    /// # Errors
    /// [`ConfigError::Value`]: the value is not an address with a port; or it is beyond loopback, and there is neither
    /// TLS nor a trusted proxy, or their settings cannot be used.
    pub fn listen(&self) -> Result<SocketAddr, ConfigError> {
        let address: SocketAddr = self.parse("server.listen", "an address and a port, such as 127.0.0.1:8484,")?;
        let guarded = address.ip().is_loopback()
            || self.tls_files()?.is_some()
            || self.acme()?.is_some()
            || !self.trusted_proxies()?.is_empty();
        if guarded {
            return Ok(address);
        }
        Err(self.refused(
            "server.listen",
            "plain HTTP is served on loopback only. Name a certificate in server.tls.cert_file and server.tls.key_file, \
             have one issued for server.acme.domains, or name the proxies that do TLS before this gateway in server.trusted_proxies",
        ))
    }

    /// Certificate and key of the public listener, if it does TLS itself.
    ///
    /// # Errors
    /// [`ConfigError::Value`]: a certificate is set without its key, or a key without its certificate.
    pub fn tls_files(&self) -> Result<Option<tls::CertificateFiles>, ConfigError> {
        match (self.path("server.tls.cert_file"), self.path("server.tls.key_file")) {
            (Some(certificate), Some(key)) => Ok(Some(tls::CertificateFiles { certificate, key })),
            (None, None) => Ok(None),
            (Some(_), None) => Err(self.refused("server.tls.key_file", "the key of server.tls.cert_file is needed")),
            (None, Some(_)) => {
                Err(self.refused("server.tls.cert_file", "the certificate of server.tls.key_file is needed"))
            }
        }
    }

    /// The proxies that are trusted to name the client's address.
    ///
    /// # Errors
    /// [`ConfigError::Value`]: an entry is neither an address nor a range of addresses.
    pub fn trusted_proxies(&self) -> Result<Networks, ConfigError> {
        self.parse("server.trusted_proxies", "a list of addresses or ranges, such as 10.0.0.0/8,")
    }

    /// The header in which the proxies name it.
    ///
    /// # Errors
    /// [`ConfigError::Value`]: the value is neither `x-forwarded-for` nor `forwarded`.
    pub fn forwarded_header(&self) -> Result<ForwardedHeader, ConfigError> {
        self.parse("server.forwarded_header", "x-forwarded-for or forwarded")
    }

    /// The operations listener, if there is to be one.
    ///
    /// # Errors
    /// [`ConfigError::Value`]: the value is neither empty nor an address with a port.
    pub fn ops_listen(&self) -> Result<Option<SocketAddr>, ConfigError> {
        match self.text("ops.listen") {
            "" => Ok(None),
            _ => self.parse("ops.listen", "an address and a port, such as 127.0.0.1:8485,").map(Some),
        }
    }

    /// The number of the group that may administer, beside root and the gateway's own user.
    ///
    /// # Errors
    /// [`ConfigError::Value`]: the value is not a number, and `/etc/group` has no such group or cannot be read.
    pub fn admin_group(&self) -> Result<Option<u32>, ConfigError> {
        let group = self.text("admin.group");
        if group.is_empty() {
            return Ok(None);
        }
        let groups = std::fs::read_to_string(GROUP_FILE).unwrap_or_default();
        let number = group.parse().ok().or_else(|| number_of(group, &groups));
        let unknown =
            || self.refused("admin.group", &format!("{GROUP_FILE} has no such group; its number can be given"));
        number.ok_or_else(unknown).map(Some)
    }

    /// How long the public listener keeps accepting when the gateway stops.
    ///
    /// # Errors
    /// [`ConfigError::Value`]: the value is not a whole number of milliseconds up to 60,000.
    pub fn drain(&self) -> Result<Duration, ConfigError> {
        let wanted = format!("a whole number of milliseconds up to {MAX_DRAIN_MS}");
        match self.parse::<u64>("server.drain_ms", &wanted)? {
            milliseconds if milliseconds <= MAX_DRAIN_MS => Ok(Duration::from_millis(milliseconds)),
            _ => Err(self.needed("server.drain_ms", &wanted)),
        }
    }

    /// The SSH listener, if there is to be one.
    ///
    /// # Errors
    /// [`ConfigError::Value`]: the value is neither empty nor an address with a port.
    pub fn ssh_listen(&self) -> Result<Option<SocketAddr>, ConfigError> {
        match self.text("ssh.listen") {
            "" => Ok(None),
            _ => self.parse("ssh.listen", "an address and a port, such as 0.0.0.0:7822,").map(Some),
        }
    }
}

/// Groups with their numbers (group(5)).
const GROUP_FILE: &str = "/etc/group";

fn number_of(group: &str, groups: &str) -> Option<u32> {
    let line = groups.lines().find(|line| line.split(':').next() == Some(group))?;
    line.split(':').nth(2)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::super::tests::load;

    #[test]
    fn a_group_is_found_by_name_or_number_and_an_unknown_one_is_refused() {
        let group = |text: &str| load("", &[], &[&format!("admin.group={text}")]).unwrap().admin_group();
        assert_eq!((group("").unwrap(), group("root").unwrap(), group("4711").unwrap()), (None, Some(0), Some(4711)));
        assert!(group("nobody-is-in-this-one").unwrap_err().to_string().contains("admin.group"));
    }

    #[test]
    fn plain_http_beyond_loopback_needs_proxies_and_the_refusal_names_both_ways() {
        let plain = "[server]\nlisten = \"0.0.0.0:80\"\n";
        let error = load(plain, &[], &[]).unwrap().listen().unwrap_err().to_string();
        assert!(error.contains("server.tls.cert_file") && error.contains("server.trusted_proxies"), "{error}");
        let behind = format!("{plain}trusted_proxies = [\"10.0.0.0/8\", \"::1\"]\n");
        let config = load(&behind, &[], &[]).unwrap();
        assert!(config.listen().is_ok() && config.trusted_proxies().unwrap().contain([10, 1, 2, 3].into()));
        let with_tls = format!("{plain}[server.tls]\ncert_file = \"/a\"\nkey_file = \"/b\"\n");
        assert!(load(&with_tls, &[], &[]).unwrap().listen().is_ok());
        let half = format!("{plain}[server.tls]\ncert_file = \"/a\"\n");
        assert!(load(&half, &[], &[]).unwrap().listen().unwrap_err().to_string().contains("server.tls.key_file"));
        let forwarded =
            |name: &str| load("", &[], &[&format!("server.forwarded_header={name}")]).unwrap().check().is_ok();
        assert!(forwarded("X-Forwarded-For") && forwarded("forwarded") && !forwarded("x-real-ip"));
        assert!(load("[server]\ntrusted_proxies = \"10.0.0.0/99\"", &[], &[]).unwrap().check().is_err());
    }
}
