//! The settings of the listeners: addresses, TLS, and trusted proxies.

use std::net::SocketAddr;
use std::time::Duration;

use deskgate_protocol::identity::{InvalidIdentity, PublicKey};
use url::Url;

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
        self.networks("server.trusted_proxies")
    }

    /// The balancers before a listener that name the client in a PROXY header: of `server` or of `ssh`.
    ///
    /// # Errors
    /// [`ConfigError::Value`]: an entry is neither an address nor a range of addresses.
    pub fn balancers(&self, listener: &str) -> Result<Networks, ConfigError> {
        let key = if listener == "ssh" { "ssh.balancers" } else { "server.balancers" };
        self.parse(key, "a list of addresses or ranges, such as 10.0.0.0/8,")
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

    /// The host keys of the sshd before the control socket, as far as they are known.
    ///
    /// # Errors
    /// [`ConfigError::Value`]: a file cannot be read, or holds no Ed25519 public key.
    pub fn sshd_host_keys(&self) -> Result<Vec<PublicKey>, ConfigError> {
        let key = "control.sshd_host_keys";
        let files = self.text(key).split(',').map(str::trim).filter(|file| !file.is_empty());
        files
            .map(|file| {
                let text = std::fs::read_to_string(file);
                let text = text.map_err(|error| self.refused(key, &format!("{file} cannot be read: {error}")))?;
                let wrong = |error: InvalidIdentity| {
                    let hint = "name files such as /etc/ssh/ssh_host_ed25519_key.pub";
                    self.refused(key, &format!("{file} holds no Ed25519 public key ({error}); {hint}"))
                };
                text.parse().map_err(wrong)
            })
            .collect()
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

impl Config {
    /// The public address, without `/api/v1`, if one is configured.
    ///
    /// # Errors
    /// [`ConfigError::Value`]: the value is not `https://` or `http://` with a host, or has a path, a query, a fragment
    /// or a user.
    pub fn public_url(&self) -> Result<Option<Url>, ConfigError> {
        let (key, text) = ("server.public_url", self.text("server.public_url"));
        if text.is_empty() {
            return Ok(None);
        }
        let wrong = |why: &str| self.refused(key, &format!("{why}: write it as https://gateway.example.com"));
        // Without a scheme a host with a port is read as one.
        if !text.contains("://") {
            return Err(wrong("it does not begin with https://"));
        }
        let url = Url::parse(text).map_err(|error| wrong(&format!("it is no address ({error})")))?;
        if !matches!(url.scheme(), "https" | "http") || url.host().is_none() {
            return Err(wrong("it does not begin with https:// and a host"));
        }
        if url.path() != "/" {
            return Err(wrong("it has a path, and the API is below /api/v1 of a host of its own"));
        }
        let is_bare = url.query().is_none() && url.fragment().is_none();
        if !is_bare || !url.username().is_empty() || url.password().is_some() {
            return Err(wrong("it has more than a host and a port"));
        }
        Ok(Some(url))
    }

    /// Every listener that is configured: its setting, and its address.
    ///
    /// # Errors
    /// [`ConfigError::Value`]: an address cannot be used.
    pub fn listeners(&self) -> Result<Vec<(&'static str, SocketAddr)>, ConfigError> {
        let ssh = self.ssh_listen()?.map(|address| ("ssh.listen", address));
        let ops = self.ops_listen()?.map(|address| ("ops.listen", address));
        Ok([Some(("server.listen", self.listen()?)), ssh, ops].into_iter().flatten().collect())
    }

    /// Checks that no two listeners have one address.
    pub(super) fn listeners_are_apart(&self) -> Result<(), ConfigError> {
        let listeners = self.listeners()?;
        for (place, (key, address)) in listeners.iter().enumerate() {
            let taken = listeners[..place].iter().find(|(_, other)| overlap(*address, *other));
            if let Some((other, _)) = taken {
                let problem = format!("{other} has this address too. Give each listener a port of its own");
                return Err(self.refused(key, &problem));
            }
        }
        Ok(())
    }
}

/// Whether nobody could listen on both. Port 0 is a free one.
fn overlap(one: SocketAddr, other: SocketAddr) -> bool {
    let everywhere = one.ip().is_unspecified() || other.ip().is_unspecified();
    one.port() != 0 && one.port() == other.port() && (one.ip() == other.ip() || everywhere)
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
    fn two_listeners_on_one_address_are_refused_and_both_are_named() {
        let at = |server: &str, ssh: &str, ops: &str| {
            let flags = [("server", server), ("ssh", ssh), ("ops", ops)];
            let flags = flags.map(|(name, address)| format!("{name}.listen={address}"));
            load("", &[], &flags.each_ref().map(String::as_str)).unwrap().check().map_err(|error| error.to_string())
        };
        assert!(at("127.0.0.1:8484", "0.0.0.0:7822", "127.0.0.1:8485").is_ok());
        assert!(at("127.0.0.1:0", "127.0.0.1:0", "127.0.0.1:0").is_ok());
        assert!(at("127.0.0.1:8484", "", "127.0.0.2:8484").is_ok());
        let error = at("127.0.0.1:8484", "", "127.0.0.1:8484").unwrap_err();
        assert!(error.contains("ops.listen") && error.contains("server.listen has this address too"), "{error}");
        let error = at("127.0.0.1:8484", "[::]:8484", "").unwrap_err();
        assert!(error.contains("ssh.listen"), "{error}");
        for (setting, address) in [("server", "127.0.0.1"), ("ssh", "gateway.example.com"), ("ops", ":8485")] {
            let flag = format!("{setting}.listen={address}");
            let error = load("", &[], &[&flag]).unwrap().check().unwrap_err().to_string();
            assert!(error.contains("an address and a port, such as") && error.contains(address), "{error}");
        }
    }

    #[test]
    fn a_public_address_is_a_scheme_and_a_host_and_nothing_behind() {
        let of = |text: &str| load("", &[], &[&format!("server.public_url={text}")]).unwrap().check();
        for good in ["", "https://gateway.example.com", "https://gateway.example.com:8443/", "http://127.0.0.1:8484"] {
            assert!(of(good).is_ok(), "{good}");
        }
        for (wrong, why) in [
            ("gateway.example.com", "does not begin with https://"),
            ("gateway.example.com:443", "does not begin with https://"),
            ("https://gateway.example.com/api/v1", "it has a path"),
            ("https://gateway.example.com/?a=b", "more than a host and a port"),
            ("https://me@gateway.example.com", "more than a host and a port"),
            ("ftp://gateway.example.com", "https:// and a host"),
            ("https://", "it is no address"),
        ] {
            let error = of(wrong).unwrap_err().to_string();
            assert!(error.contains(why) && error.contains("https://gateway.example.com"), "{wrong}: {error}");
        }
    }

    #[test]
    fn a_log_filter_that_says_nothing_is_refused() {
        let of = |text: &str| load("", &[], &[&format!("log.filter={text}")]).unwrap().check();
        assert!(of("info,deskgate_gateway=debug").is_ok());
        let error = of("deskgate_gateway=loud").unwrap_err().to_string();
        assert!(error.contains("log.filter") && error.contains("info,deskgate_gateway=debug"), "{error}");
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
