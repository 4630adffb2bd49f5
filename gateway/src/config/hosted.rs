//! The settings of hosted mode: the issuer of the accounts that devices use.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use url::{Host, Url};

use super::{Config, ConfigError, Origin};
use crate::networks::destinations::AddressRules;

/// Settings of hosted mode: devices connect over the public listener, with access tokens of one issuer.
#[derive(Clone, Debug)]
pub struct HostedSettings {
    /// The issuer of the tokens, exactly as it names itself (RFC 8414, `issuer`).
    pub issuer: Url,
    /// The issuer as it is written in its tokens.
    pub issuer_text: String,
    /// The audience that tokens must have (`aud`). Empty: the address that backends use.
    pub audience: String,
    /// The desktops' client identifier: a public client that may use the device grant.
    pub client_id: String,
    /// The scopes that desktops request.
    pub scopes: Vec<String>,
    /// The signature algorithms that are accepted.
    pub algorithms: Vec<Algorithm>,
    /// Whether a token's type may be `JWT`, or absent, instead of `at+jwt` (RFC 9068).
    pub plain_tokens: bool,
    /// The most devices of one account.
    pub devices_per_account: u32,
    /// Authorities to trust for the issuer beside the system's, PEM.
    pub ca_file: Option<PathBuf>,
    /// Where the issuer's documents may be fetched from.
    pub addresses: AddressRules,
}

/// A signature by a private key (RFC 7518, RFC 8037). Shared secrets and unsigned tokens are excluded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Algorithm {
    /// RSASSA-PKCS1-v1_5 with SHA-256.
    Rs256,
    /// RSASSA-PKCS1-v1_5 with SHA-384.
    Rs384,
    /// RSASSA-PKCS1-v1_5 with SHA-512.
    Rs512,
    /// RSASSA-PSS with SHA-256.
    Ps256,
    /// RSASSA-PSS with SHA-384.
    Ps384,
    /// RSASSA-PSS with SHA-512.
    Ps512,
    /// ECDSA over P-256 with SHA-256.
    Es256,
    /// ECDSA over P-384 with SHA-384.
    Es384,
    /// Ed25519.
    EdDsa,
}

impl Algorithm {
    /// Every algorithm, with its name in tokens.
    pub const ALL: [(Self, &'static str); 9] = [
        (Self::Rs256, "RS256"),
        (Self::Rs384, "RS384"),
        (Self::Rs512, "RS512"),
        (Self::Ps256, "PS256"),
        (Self::Ps384, "PS384"),
        (Self::Ps512, "PS512"),
        (Self::Es256, "ES256"),
        (Self::Es384, "ES384"),
        (Self::EdDsa, "EdDSA"),
    ];
}

/// The name of an algorithm that is not accepted.
#[derive(Debug)]
pub struct UnknownAlgorithm;

impl FromStr for Algorithm {
    type Err = UnknownAlgorithm;

    fn from_str(text: &str) -> Result<Self, UnknownAlgorithm> {
        Self::ALL.iter().find(|(_, name)| *name == text).map(|(algorithm, _)| *algorithm).ok_or(UnknownAlgorithm)
    }
}

impl fmt::Display for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let row = Self::ALL.iter().find(|(algorithm, _)| algorithm == self);
        f.write_str(row.map_or("", |(_, name)| name))
    }
}

/// Whether the URL is HTTPS, or plain HTTP on this machine itself, whose traffic never leaves it.
pub fn is_guarded(url: &Url) -> bool {
    let here = match url.host() {
        Some(Host::Domain(name)) => name == "localhost",
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => address.is_loopback(),
        None => false,
    };
    url.scheme() == "https" || (url.scheme() == "http" && here)
}

const HOSTED_KEYS: [&str; 8] = [
    "hosted.audience",
    "hosted.client_id",
    "hosted.scopes",
    "hosted.algorithms",
    "hosted.plain_tokens",
    "hosted.devices_per_account",
    "hosted.ca_file",
    "hosted.allowed_networks",
];

impl Config {
    /// The settings of hosted mode, if it is on.
    ///
    /// # Errors
    /// [`ConfigError::Value`]: another setting of hosted mode is set without `hosted.issuer`; the issuer or
    /// `server.public_url` is not an `https://` address without query and user (`http://` on loopback only); the public
    /// address is missing beyond loopback; the client identifier is missing; or an algorithm, the number of devices or
    /// `hosted.plain_tokens` is not a valid value; or `hosted.allowed_networks` has no ranges. With no public address also an error of [`Config::listen`].
    pub fn hosted(&self) -> Result<Option<HostedSettings>, ConfigError> {
        let issuer_text = self.text("hosted.issuer").to_owned();
        if issuer_text.is_empty() {
            let set = HOSTED_KEYS.into_iter().find(|key| self.entry(key).1 != Origin::Default && !self.is_default(key));
            return match set {
                Some(key) => Err(self.refused(key, "hosted.issuer is not set, so hosted mode is off")),
                None => Ok(None),
            };
        }
        let issuer = self.address("hosted.issuer", &issuer_text)?;
        if self.text("hosted.client_id").is_empty() {
            return Err(self.needed("hosted.client_id", "the identifier that the issuer gave to desktops"));
        }
        self.hosted_public_url()?;
        let scopes = self.text("hosted.scopes").split_whitespace().map(str::to_owned).collect();
        let devices_per_account = self.parse("hosted.devices_per_account", "a whole number from 1")?;
        if devices_per_account == 0 {
            return Err(self.needed("hosted.devices_per_account", "a whole number from 1"));
        }
        Ok(Some(HostedSettings {
            issuer,
            issuer_text,
            audience: self.text("hosted.audience").to_owned(),
            client_id: self.text("hosted.client_id").to_owned(),
            scopes,
            algorithms: self.algorithms()?,
            plain_tokens: self.parse("hosted.plain_tokens", "true or false")?,
            devices_per_account,
            ca_file: self.path("hosted.ca_file"),
            addresses: AddressRules {
                allowed: self.networks("hosted.allowed_networks")?,
                ..self.callback_addresses()?
            },
        }))
    }

    fn is_default(&self, key: &'static str) -> bool {
        super::SETTINGS.iter().any(|setting| setting.key == key && setting.default == self.text(key))
    }

    fn algorithms(&self) -> Result<Vec<Algorithm>, ConfigError> {
        let key = "hosted.algorithms";
        let names = self.text(key).split(',').map(str::trim);
        let algorithms: Result<Vec<Algorithm>, _> = names.map(str::parse).collect();
        algorithms.map_err(|_| {
            let known: Vec<_> = Algorithm::ALL.iter().map(|(_, name)| *name).collect();
            self.needed(key, &format!("a list of {}", known.join(", ")))
        })
    }

    /// Checks the address by which tokens and devices name this gateway.
    fn hosted_public_url(&self) -> Result<(), ConfigError> {
        match self.text("server.public_url") {
            "" if self.listen()?.ip().is_loopback() => Ok(()),
            "" => Err(self.needed("server.public_url", "the address that devices use: hosted mode is on, so it")),
            text => self.address("server.public_url", text).map(drop),
        }
    }

    fn address(&self, key: &'static str, text: &str) -> Result<Url, ConfigError> {
        let url = Url::parse(text).ok().filter(|url| url.query().is_none() && url.fragment().is_none());
        let url = url.filter(|url| is_guarded(url) && url.username().is_empty() && url.password().is_none());
        url.ok_or_else(|| {
            self.needed(
                key,
                "an address that begins with https:// and has neither query nor user (http:// on loopback only)",
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::load;
    use super::*;

    const ISSUER_TOML: &str = "[hosted]\nissuer = \"https://id.example.com/realm\"\nclient_id = \"deskgate\"\n";

    fn hosted(lines: &str) -> Result<Option<HostedSettings>, String> {
        let file = format!("{ISSUER_TOML}{lines}\n[server]\npublic_url = \"https://gateway.example.com\"\n");
        load(&file, &[], &[]).map_err(|error| error.to_string())?.hosted().map_err(|error| error.to_string())
    }

    #[test]
    fn without_an_issuer_it_is_off_and_a_setting_that_would_do_nothing_is_refused() {
        assert!(load("", &[], &[]).unwrap().hosted().unwrap().is_none());
        let error = load("[hosted]\nclient_id = \"x\"", &[], &[]).unwrap().check().unwrap_err().to_string();
        assert!(error.contains("hosted.client_id") && error.contains("hosted.issuer"), "{error}");
    }

    #[test]
    fn what_is_not_said_is_strict() {
        let hosted = hosted("").unwrap().unwrap();
        assert_eq!((hosted.issuer_text.as_str(), hosted.plain_tokens), ("https://id.example.com/realm", false));
        assert_eq!(hosted.scopes, ["openid", "offline_access"]);
        assert_eq!(hosted.algorithms, [Algorithm::Rs256, Algorithm::Ps256, Algorithm::Es256, Algorithm::EdDsa]);
    }

    #[test]
    fn neither_none_nor_a_shared_secret_can_be_allowed() {
        for name in ["none", "HS256", "RS256,none", "rs256", ""] {
            assert!(hosted(&format!("algorithms = \"{name}\"")).unwrap_err().contains("hosted.algorithms"), "{name}");
        }
        assert_eq!(hosted("algorithms = [\"ES384\"]").unwrap().unwrap().algorithms, [Algorithm::Es384]);
    }

    #[test]
    fn an_issuer_is_asked_over_https_or_on_this_machine() {
        let issuer = |text: &str| {
            load(&format!("[hosted]\nclient_id = \"x\"\nissuer = \"{text}\""), &[], &[]).unwrap().hosted().is_ok()
        };
        for good in ["https://id.example.com", "http://127.0.0.1:3000/oidc", "http://localhost:1", "http://[::1]:1"] {
            assert!(issuer(good), "{good}");
        }
        for bad in ["http://id.example.com", "http://127.0.0.1.example.com", "id", "https://a/?b", "https://u:p@a/"] {
            assert!(!issuer(bad), "{bad}");
        }
    }

    #[test]
    fn a_client_and_an_address_for_devices_are_needed() {
        let error = |file: &str| load(file, &[], &[]).unwrap().check().unwrap_err().to_string();
        assert!(error("[hosted]\nissuer = \"https://id.example.com\"").contains("hosted.client_id"));
        let beyond = "[server]\nlisten = \"0.0.0.0:80\"\ntrusted_proxies = \"10.0.0.1\"\n";
        assert!(error(&format!("{ISSUER_TOML}{beyond}")).contains("server.public_url"));
        let plain = "[server]\npublic_url = \"http://gateway.example.com\"\n";
        assert!(error(&format!("{ISSUER_TOML}{plain}")).contains("server.public_url"));
    }
}
