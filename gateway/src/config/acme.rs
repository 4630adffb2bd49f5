//! The settings of certificates from a certificate authority.

use std::path::PathBuf;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use super::{Config, ConfigError, read_secret};

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
    /// The account that its operator has at the authority, for authorities that ask for one.
    pub external_account: Option<ExternalAccount>,
    /// The timings of orders.
    pub clocks: AcmeTimings,
}

/// An account at the authority that is bound to the one that the gateway makes (RFC 8555, section 7.3.4). `Debug` shows
/// its identifier only.
#[derive(Clone)]
pub struct ExternalAccount {
    /// The identifier of its key.
    pub key_id: String,
    /// Its HMAC key.
    pub key: Vec<u8>,
}

impl std::fmt::Debug for ExternalAccount {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ExternalAccount({:?})", self.key_id)
    }
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
    /// are not accepted, the directory does not begin with `https://`, the contact is not an e-mail address, a domain is
    /// a wildcard or not a domain name, or of the external account one part is missing or its key cannot be read.
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
        let (external_account, clocks) = (self.external_account()?, AcmeTimings::default());
        Ok(Some(AcmeSettings { domains, contact, directory_url, ca_file, external_account, clocks }))
    }

    fn external_account(&self) -> Result<Option<ExternalAccount>, ConfigError> {
        let (id, file) = ("server.acme.eab_key_id", "server.acme.eab_key_file");
        let path = match (self.text(id), self.path(file)) {
            ("", None) => return Ok(None),
            ("", Some(_)) => return Err(self.needed(id, "the identifier that the authority gave with the key")),
            (_, None) => {
                return Err(self.needed(file, "a file with the key that the authority gave with the identifier"));
            }
            (_, Some(path)) => path,
        };
        let text = read_secret(&path)?;
        // Authorities give it in base64url; some with padding.
        let key = URL_SAFE_NO_PAD.decode(text.trim_end_matches('='));
        let wrong = "the file holds no key in base64url, as the authority shows it";
        let key = key.ok().filter(|key| !key.is_empty()).ok_or_else(|| self.refused(file, wrong))?;
        Ok(Some(ExternalAccount { key_id: self.text(id).to_owned(), key }))
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
    fn an_external_account_needs_identifier_and_key_and_its_key_is_shown_nowhere() {
        let folder = tempfile::tempdir().unwrap();
        let (good, bad) = (folder.path().join("good"), folder.path().join("bad"));
        std::fs::write(&good, "c2VjcmV0LWtleQ==\n").unwrap();
        std::fs::write(&bad, "not base64url!").unwrap();
        let of = |id: &str, file: &std::path::Path| {
            acme(&format!("domains = \"a.b\"\neab_key_id = \"{id}\"\neab_key_file = \"{}\"", file.display()))
        };
        let nowhere = std::path::Path::new("");
        let account = of("kid-1", &good).unwrap().unwrap().external_account.unwrap();
        assert_eq!((account.key_id.as_str(), account.key.as_slice()), ("kid-1", &b"secret-key"[..]));
        assert_eq!(format!("{account:?}"), "ExternalAccount(\"kid-1\")");
        assert!(of("", nowhere).unwrap().unwrap().external_account.is_none());
        assert!(of("kid-1", nowhere).unwrap_err().contains("server.acme.eab_key_file"));
        assert!(of("", &good).unwrap_err().contains("server.acme.eab_key_id"));
        assert!(of("kid-1", &bad).unwrap_err().contains("base64url"));
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
