//! The settings of certificates from a certificate authority.

use std::path::PathBuf;
use std::time::Duration;

use super::{Config, ConfigError};

/// Settings of the public listener's certificates from a certificate authority (ACME, RFC 8555).
#[derive(Clone, Debug)]
pub struct AcmeSettings {
    /// The names that callers use, in lower case, sorted, each once.
    pub domains: Vec<String>,
    /// The contact address for the authority, such as `mailto:ops@example.com`; empty for none.
    pub contact: String,
    /// The address of the authority's directory.
    pub directory_url: String,
    /// The root to trust for the authority, PEM, instead of the system's.
    pub ca_file: Option<PathBuf>,
    /// The timings of orders.
    pub clocks: AcmeTimings,
}

/// The timings of a certificate's renewal.
#[derive(Clone, Copy, Debug)]
pub struct AcmeTimings {
    /// Between two polls of the database.
    pub look: Duration,
    /// The pause after a failure; doubled with each more in a row.
    pub first_pause: Duration,
    /// The longest pause.
    pub longest_pause: Duration,
}

impl Default for AcmeTimings {
    fn default() -> Self {
        Self {
            look: Duration::from_secs(10),
            // Let's Encrypt allows five failures an hour for each name.
            first_pause: Duration::from_secs(5 * 60),
            longest_pause: Duration::from_secs(6 * 3600),
        }
    }
}

impl AcmeTimings {
    /// The pause after a failure, by the number of failures before it.
    pub fn pause(&self, failures: u32) -> Duration {
        self.first_pause.saturating_mul(1 << failures.min(16)).min(self.longest_pause)
    }
}

impl Config {
    /// The settings of the authority, if one is configured.
    ///
    /// # Errors
    /// [`ConfigError::Value`]: domains are set, and this program has no ACME, certificate files are set too, the terms
    /// are not accepted, the directory does not begin with `https://`, the contact is not an e-mail address, or a
    /// domain is a wildcard or not a domain name.
    pub fn acme(&self) -> Result<Option<AcmeSettings>, ConfigError> {
        if self.text("server.acme.domains").is_empty() {
            return Ok(None);
        }
        if cfg!(not(feature = "acme")) {
            return Err(self.refused("server.acme.domains", "this program was built without the feature acme"));
        }
        if self.path("server.tls.cert_file").is_some() || self.path("server.tls.key_file").is_some() {
            let both = "server.tls.cert_file and server.tls.key_file are set too: take the certificate from files or \
                        from an authority, not from both";
            return Err(self.refused("server.acme.domains", both));
        }
        if self.text("server.acme.accept_terms") != "true" {
            let terms = "the authority's terms of service must be accepted, with true, before it issues anything; \
                         its directory names them";
            return Err(self.refused("server.acme.accept_terms", terms));
        }
        let directory_url = self.text("server.acme.directory_url").to_owned();
        if !directory_url.starts_with("https://") {
            return Err(self.needed("server.acme.directory_url", "an address that begins with https://"));
        }
        let contact = match self.text("server.acme.contact") {
            "" => String::new(),
            address if address.contains('@') && !address.contains(':') => format!("mailto:{address}"),
            _ => return Err(self.needed("server.acme.contact", "an e-mail address")),
        };
        let (domains, ca_file) = (self.domains()?, self.path("server.acme.ca_file"));
        Ok(Some(AcmeSettings { domains, contact, directory_url, ca_file, clocks: AcmeTimings::default() }))
    }

    fn domains(&self) -> Result<Vec<String>, ConfigError> {
        let key = "server.acme.domains";
        let mut domains: Vec<_> = self.text(key).split(',').map(|name| name.trim().to_lowercase()).collect();
        domains.sort();
        domains.dedup();
        for domain in &domains {
            if domain.starts_with("*.") {
                let wildcard = "an authority issues wildcards only to who can write into the DNS. Name each domain, \
                                or take the certificate from files";
                return Err(self.refused(key, wildcard));
            }
            if !is_name(domain) {
                return Err(self.needed(key, "a list of domain names, such as gateway.example.com,"));
            }
        }
        Ok(domains)
    }
}

/// Whether a text is a host name of at least two labels (RFC 1123); international ones in their ASCII form.
fn is_name(domain: &str) -> bool {
    let label = |label: &str| {
        let inner = |c: char| c.is_ascii_alphanumeric() || c == '-';
        (1..=63).contains(&label.len()) && label.chars().all(inner) && !label.starts_with('-') && !label.ends_with('-')
    };
    let is_address = domain.parse::<std::net::IpAddr>().is_ok();
    domain.len() <= 253 && domain.contains('.') && !is_address && domain.split('.').all(label)
}

#[cfg(all(test, feature = "acme"))]
mod tests {
    use super::super::tests::load;
    use super::*;

    fn acme(lines: &str) -> Result<Option<AcmeSettings>, String> {
        let file = format!("[server.acme]\naccept_terms = true\n{lines}\n");
        load(&file, &[], &[]).map_err(|error| error.to_string())?.acme().map_err(|error| error.to_string())
    }

    #[test]
    fn domains_are_sorted_and_each_is_taken_once() {
        let acme = acme("domains = [\"b.example.com\", \"A.example.com\", \"b.example.com\"]\ncontact = \"a@b.c\"");
        let acme = acme.unwrap().unwrap();
        assert_eq!(acme.domains, ["a.example.com", "b.example.com"]);
        assert_eq!(acme.contact, "mailto:a@b.c");
        assert!(acme.directory_url.starts_with("https://acme-v02.api.letsencrypt.org/"));
    }

    #[test]
    fn what_no_authority_could_issue_this_way_is_refused_and_the_reason_told() {
        assert!(acme("domains = \"*.example.com\"").unwrap_err().contains("wildcards"));
        for name in ["localhost", "192.0.2.1", "a b.example.com", "-a.example.com", "a..b", "a.example.com,"] {
            let error = acme(&format!("domains = \"{name}\"")).unwrap_err();
            assert!(error.contains("domain names"), "{name}: {error}");
        }
        assert!(acme("domains = \"a.b\"\ndirectory_url = \"http://ca/\"").unwrap_err().contains("https://"));
        assert!(acme("domains = \"a.b\"\ncontact = \"somebody\"").unwrap_err().contains("e-mail"));
    }

    #[test]
    fn the_terms_are_accepted_by_a_setting_and_files_exclude_an_authority() {
        let refused = |text: &str| load(text, &[], &[]).unwrap().check().unwrap_err().to_string();
        let error = refused("[server.acme]\ndomains = \"a.example.com\"");
        assert!(error.contains("server.acme.accept_terms"), "{error}");
        let files = "[server.tls]\ncert_file = \"/a\"\nkey_file = \"/b\"\n";
        let error = refused(&format!("{files}[server.acme]\ndomains = \"a.example.com\"\naccept_terms = true"));
        assert!(error.contains("server.tls.cert_file") && error.contains("server.acme.domains"), "{error}");
        assert!(acme("").unwrap().is_none());
    }

    #[test]
    fn an_authority_is_tls_enough_to_listen_beyond_loopback() {
        let file = "[server]\nlisten = \"0.0.0.0:443\"\n[server.acme]\ndomains = \"a.b\"\naccept_terms = true";
        assert!(load(file, &[], &[]).unwrap().listen().is_ok());
    }
}
