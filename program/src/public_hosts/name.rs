//! The name of a public host.

use std::fmt;

use url::Host;

/// Characters of a name (RFC 1035, section 2.3.4).
const MAX_HOST_NAME_CHARS: usize = 253;
/// Suffixes of names that are never public: of one machine or one network (RFC 6761, RFC 6762, RFC 8375, RFC 9476).
const PRIVATE_SUFFIXES: [&str; 6] = ["localhost", "local", "internal", "home.arpa", "onion", "alt"];

/// The name of a host, in lower case and in its ASCII form, without a final dot.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct HostName(String);

/// Why a text is not the exact name of a public host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidHostName {
    /// The text is empty.
    #[error("a host name is missing")]
    Empty,
    /// A whole URL, or a name with a path.
    #[error("this is a URL; give its host name alone, such as hooks.example.com")]
    Url,
    /// With a port.
    #[error("a host name has no port; it is always port 443")]
    Port,
    /// With `*`.
    #[error("wildcards are not possible; give each host name exactly")]
    Wildcard,
    /// An address, however it is written.
    #[error("this is an address; only names of hosts are possible")]
    Address,
    /// With a user before `@`.
    #[error("a host name has no user before it")]
    UserInfo,
    /// With a dot at the end.
    #[error("a host name is written without a dot at the end")]
    FinalDot,
    /// A name of one label, or one that never leads out of a machine or a network.
    #[error("this name belongs to one machine or network; only names of public hosts are possible")]
    NotPublic,
    /// The text is not a name.
    #[error("this is no host name")]
    Malformed,
}

impl HostName {
    /// Parses a name as a person writes it.
    ///
    /// # Errors
    /// See [`InvalidHostName`].
    pub fn parse(text: &str) -> Result<Self, InvalidHostName> {
        let text = text.trim_matches([' ', '\t']);
        if text.is_empty() {
            return Err(InvalidHostName::Empty);
        }
        if text.contains('*') {
            return Err(InvalidHostName::Wildcard);
        }
        if text.trim_matches(['[', ']']).split('%').next().is_some_and(|text| text.parse::<std::net::IpAddr>().is_ok())
        {
            return Err(InvalidHostName::Address);
        }
        if text.contains(['/', '\\', '?', '#']) {
            return Err(InvalidHostName::Url);
        }
        if text.contains('@') {
            return Err(InvalidHostName::UserInfo);
        }
        if text.contains(':') {
            return Err(InvalidHostName::Port);
        }
        match Host::parse(text) {
            Ok(host) => Self::of(host),
            Err(_) => Err(InvalidHostName::Malformed),
        }
    }

    pub(super) fn of(host: Host<impl AsRef<str>>) -> Result<Self, InvalidHostName> {
        let Host::Domain(name) = host else { return Err(InvalidHostName::Address) };
        let name = name.as_ref();
        if name.ends_with('.') {
            return Err(InvalidHostName::FinalDot);
        }
        let ldh = |label: &str| label.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-');
        let is_label = |label: &str| {
            (1..=63).contains(&label.len()) && ldh(label) && !label.starts_with('-') && !label.ends_with('-')
        };
        if name.len() > MAX_HOST_NAME_CHARS || !name.split('.').all(is_label) {
            return Err(InvalidHostName::Malformed);
        }
        let below = |zone: &&str| name.strip_suffix(*zone).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'));
        if !name.contains('.') || PRIVATE_SUFFIXES.iter().any(below) {
            return Err(InvalidHostName::NotPublic);
        }
        Ok(Self(name.to_owned()))
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for HostName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_exact_names_of_public_hosts_are_taken() {
        for (text, name) in [
            ("hooks.example.com", "hooks.example.com"),
            (" Hooks.Example.COM ", "hooks.example.com"),
            ("bücher.example", "xn--bcher-kva.example"),
            ("xn--bcher-kva.example", "xn--bcher-kva.example"),
        ] {
            assert_eq!(HostName::parse(text).expect(text).as_str(), name);
        }
        for (text, why) in [
            ("", InvalidHostName::Empty),
            ("  ", InvalidHostName::Empty),
            ("https://hooks.example.com", InvalidHostName::Url),
            ("hooks.example.com/in", InvalidHostName::Url),
            ("hooks.example.com:443", InvalidHostName::Port),
            ("*.example.com", InvalidHostName::Wildcard),
            ("*", InvalidHostName::Wildcard),
            ("192.0.2.1", InvalidHostName::Address),
            ("2130706433", InvalidHostName::Address),
            ("0x7f.1", InvalidHostName::Address),
            ("::1", InvalidHostName::Address),
            ("[::1]", InvalidHostName::Address),
            ("fe80::1%eth0", InvalidHostName::Address),
            ("10.0.0.0/8", InvalidHostName::Url),
            ("user@hooks.example.com", InvalidHostName::UserInfo),
            ("hooks.example.com.", InvalidHostName::FinalDot),
            ("localhost", InvalidHostName::NotPublic),
            ("intranet", InvalidHostName::NotPublic),
            ("two names.example.com", InvalidHostName::Malformed),
            ("a,b.example.com", InvalidHostName::Malformed),
            ("a..example.com", InvalidHostName::Malformed),
        ] {
            assert_eq!(HostName::parse(text), Err(why), "{text}");
        }
    }
}
