//! Allowed destinations of callbacks: the form of a callback's URL and of a name on the allowlist.
//!
//! Both are parsed once, by the rules of browsers (WHATWG URL, UTS 46), and only the parsed form is used. Where a name
//! leads is another question, asked at each attempt (`callbacks::guard`).

use std::fmt;

use url::{Host, Url};

/// The scheme of a URL.
const HTTPS_PREFIX: &str = "https://";
/// Characters of a URL, also in its stored form, with `%` for characters outside ASCII.
const MAX_URL_CHARS: usize = 2048;
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
    #[error("a host name has no port; callbacks always go to port 443")]
    Port,
    /// With `*`.
    #[error("wildcards are not possible; give each host name exactly")]
    Wildcard,
    /// An address, however it is written.
    #[error("this is an address; callbacks go to host names only")]
    Address,
    /// With a user before `@`.
    #[error("a host name has no user before it")]
    UserInfo,
    /// With a dot at the end.
    #[error("a host name is written without a dot at the end")]
    FinalDot,
    /// A name of one label, or one that never leads out of a machine or a network.
    #[error("this name belongs to one machine or network; callbacks go to public systems only")]
    NotPublic,
    /// The text is not a name.
    #[error("this is no host name")]
    Malformed,
}

impl HostName {
    /// Parses a name as it stands on the allowlist.
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

    fn of(host: Host<impl AsRef<str>>) -> Result<Self, InvalidHostName> {
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

/// The URL of a callback: HTTPS, to a host name, at port 443.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Destination {
    url: String,
    host: HostName,
    target: String,
}

/// Why a URL cannot be a callback's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidDestination {
    /// Not a URL.
    #[error("this is no URL; a callback's starts with https:// and a host name")]
    Malformed,
    /// Blanks, control characters or backslashes, which parsers read in different ways.
    #[error("a URL has no blanks, control characters or backslashes; write them with %")]
    Characters,
    /// Too long.
    #[error("a callback's URL has at most {MAX_URL_CHARS} characters")]
    Long,
    /// Not HTTPS.
    #[error("callbacks go over HTTPS only; the URL must start with https://")]
    NotHttps,
    /// With a user or a password.
    #[error("a callback's URL has no user and no password before its host; the signature says who sends")]
    UserInfo,
    /// With another port.
    #[error("callbacks go to port 443 only")]
    Port,
    /// With a fragment, which is never sent.
    #[error("a callback's URL has no part after #, because that is never sent")]
    Fragment,
    /// The host is not allowed.
    #[error(transparent)]
    Host(#[from] InvalidHostName),
}

impl Destination {
    /// Parses a callback's URL.
    ///
    /// # Errors
    /// See [`InvalidDestination`].
    pub fn parse(text: &str) -> Result<Self, InvalidDestination> {
        if text.len() > MAX_URL_CHARS {
            return Err(InvalidDestination::Long);
        }
        // The parser would drop some and turn others into slashes.
        if text.contains(|c: char| c.is_whitespace() || c.is_control() || c == '\\') {
            return Err(InvalidDestination::Characters);
        }
        let url = Url::parse(text).map_err(|_| InvalidDestination::Malformed)?;
        if url.scheme() != "https" {
            return Err(InvalidDestination::NotHttps);
        }
        // Browsers' rules accept missing and superfluous slashes; a callback's URL must be exact.
        let begins = text.get(..HTTPS_PREFIX.len()).is_some_and(|begin| begin.eq_ignore_ascii_case(HTTPS_PREFIX));
        let rest = text.get(HTTPS_PREFIX.len()..).filter(|_| begins).ok_or(InvalidDestination::Malformed)?;
        let authority = rest.split(['/', '?', '#']).next().filter(|authority| !authority.is_empty());
        if authority.ok_or(InvalidDestination::Malformed)?.contains('@') {
            return Err(InvalidDestination::UserInfo);
        }
        if url.port().is_some() {
            return Err(InvalidDestination::Port);
        }
        if url.fragment().is_some() {
            return Err(InvalidDestination::Fragment);
        }
        let host = HostName::of(url.host().ok_or(InvalidDestination::Malformed)?)?;
        if url.as_str().len() > MAX_URL_CHARS {
            return Err(InvalidDestination::Long);
        }
        let target = url[url::Position::BeforePath..url::Position::AfterQuery].to_owned();
        Ok(Self { url: url.into(), host, target })
    }

    /// The whole URL in its parsed form.
    pub fn as_str(&self) -> &str {
        &self.url
    }

    /// Its host.
    pub fn host(&self) -> &HostName {
        &self.host
    }

    /// Path and query: the request's target.
    pub fn target(&self) -> &str {
        &self.target
    }
}

impl fmt::Display for Destination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.url)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(text: &str) -> InvalidDestination {
        Destination::parse(text).map(|read| read.url).expect_err(text)
    }

    #[test]
    fn a_url_is_taken_as_the_parser_understands_it() {
        for (text, host, target) in [
            ("https://hooks.example.com", "hooks.example.com", "/"),
            ("https://HOOKS.Example.COM:443/in?x=1&y=%20", "hooks.example.com", "/in?x=1&y=%20"),
            ("HTTPS://hooks.example.com/a/../b", "hooks.example.com", "/b"),
            ("https://bücher.example/ü", "xn--bcher-kva.example", "/%C3%BC"),
            ("https://hooks。example。com/", "hooks.example.com", "/"),
            ("https://hooks.example.com/@user:8443", "hooks.example.com", "/@user:8443"),
        ] {
            let read = Destination::parse(text).expect(text);
            assert_eq!((read.host().as_str(), read.target()), (host, target), "{text}");
            assert_eq!(Destination::parse(read.as_str()).as_ref(), Ok(&read), "read again it is the same");
        }
    }

    #[test]
    fn a_url_that_only_browsers_complete_is_refused_and_hides_no_user() {
        for text in [
            "https:hooks.example.com/://x",
            "https:/hooks.example.com/://x",
            "https:user:password@hooks.example.com/://x",
            "https:////hooks.example.com/",
            "https:",
        ] {
            assert_eq!(refused(text), InvalidDestination::Malformed, "{text}");
        }
    }

    #[test]
    fn look_alikes_are_other_names() {
        // A Cyrillic а, and letters that are another form of the same.
        assert_ne!(Destination::parse("https://exаmple.com").unwrap().host().as_str(), "example.com");
        assert_eq!(Destination::parse("https://ｅｘａｍｐｌｅ.com").unwrap().host().as_str(), "example.com");
    }

    #[test]
    fn what_is_not_https_to_a_public_name_at_port_443_is_refused_and_says_why() {
        use InvalidDestination::{Characters, Fragment, Host, Malformed, NotHttps, Port, UserInfo};
        for (text, why) in [
            ("", Malformed),
            ("hooks.example.com", Malformed),
            ("//hooks.example.com", Malformed),
            ("http://hooks.example.com", NotHttps),
            ("ftp://hooks.example.com", NotHttps),
            ("file:///etc/passwd", NotHttps),
            ("javascript:alert(1)", NotHttps),
            ("https:hooks.example.com", Malformed),
            ("https:/hooks.example.com", Malformed),
            ("https:///hooks.example.com", Malformed),
            ("https:\\\\hooks.example.com", Characters),
            ("https://hooks.example.com\\@127.0.0.1/", Characters),
            (" https://hooks.example.com", Characters),
            ("https://hooks.exa\nmple.com", Characters),
            ("https://hooks.example.com/\r\nX: y", Characters),
            ("https://hooks\u{a0}.example.com/", Characters),
            ("https://hooks.example.com:8443/", Port),
            ("https://hooks.example.com:80/", Port),
            ("https://user@hooks.example.com/", UserInfo),
            ("https://user:pass@hooks.example.com/", UserInfo),
            ("https://@hooks.example.com/", UserInfo),
            ("https://:@hooks.example.com/", UserInfo),
            ("https://good.example.com@127.0.0.1/", UserInfo),
            ("https://hooks.example.com/#part", Fragment),
            ("https://127.0.0.1/", Host(InvalidHostName::Address)),
            ("https://127.1/", Host(InvalidHostName::Address)),
            ("https://2130706433/", Host(InvalidHostName::Address)),
            ("https://0x7f.1/", Host(InvalidHostName::Address)),
            ("https://0177.0.0.1/", Host(InvalidHostName::Address)),
            ("https://0/", Host(InvalidHostName::Address)),
            ("https://１２７.0.0.1/", Host(InvalidHostName::Address)),
            ("https://[::1]/", Host(InvalidHostName::Address)),
            ("https://[::ffff:10.0.0.1]/", Host(InvalidHostName::Address)),
            ("https://8.8.8.8/", Host(InvalidHostName::Address)),
            ("https://[fe80::1%25eth0]/", Malformed),
            ("https://localhost/", Host(InvalidHostName::NotPublic)),
            ("https://LOCALHOST/", Host(InvalidHostName::NotPublic)),
            ("https://a.localhost/", Host(InvalidHostName::NotPublic)),
            ("https://printer.local/", Host(InvalidHostName::NotPublic)),
            ("https://metadata.google.internal/", Host(InvalidHostName::NotPublic)),
            ("https://nas.home.arpa/", Host(InvalidHostName::NotPublic)),
            ("https://intranet/", Host(InvalidHostName::NotPublic)),
            ("https://localhost./", Host(InvalidHostName::FinalDot)),
            ("https://hooks.example.com./", Host(InvalidHostName::FinalDot)),
            ("https://hooks..example.com/", Host(InvalidHostName::Malformed)),
            ("https://-a.example.com/", Host(InvalidHostName::Malformed)),
            ("https://a_b.example.com/", Host(InvalidHostName::Malformed)),
            ("https://*.example.com/", Host(InvalidHostName::Malformed)),
            ("https://256.256.256.256/", Malformed),
            ("https://1.2.3.4.5/", Malformed),
            ("https://exa%00mple.com/", Malformed),
            ("https://", Malformed),
        ] {
            assert_eq!(refused(text), why, "{text}");
        }
        assert_eq!(refused(&format!("https://example.com/{}", "a".repeat(MAX_URL_CHARS))), InvalidDestination::Long);
        let grows = format!("https://example.com/{}", "ü".repeat(400));
        assert!(grows.len() < MAX_URL_CHARS, "each becomes six characters");
        assert_eq!(refused(&grows), InvalidDestination::Long);
    }

    #[test]
    fn the_allowlist_takes_exact_names_only() {
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
