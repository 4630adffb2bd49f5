//! A URL of a public host.
//!
//! It is parsed once, by the rules of browsers (WHATWG URL, UTS 46), and only the parsed form is used.

use std::fmt;

use url::Url;

use super::{HostName, InvalidHostName};

/// The scheme of a URL.
const HTTPS_PREFIX: &str = "https://";
/// Characters of a URL, also in its parsed form, with `%` for characters outside ASCII.
const MAX_URL_CHARS: usize = 2048;

/// A URL of a public host: HTTPS, at port 443, without a user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpsUrl {
    url: Url,
    host: HostName,
}

/// Why a text is no URL of a public host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidUrl {
    /// Not a URL.
    #[error("this is no URL; write https:// and a host name first")]
    Malformed,
    /// Blanks, control characters or backslashes, which parsers read in different ways.
    #[error("a URL has no blanks, control characters or backslashes; write them with %")]
    Characters,
    /// Too long.
    #[error("a URL has at most {MAX_URL_CHARS} characters here")]
    Long,
    /// Not HTTPS.
    #[error("only HTTPS is possible; the URL must start with https://")]
    NotHttps,
    /// With a user or a password.
    #[error("the URL must have no user and no password before its host")]
    UserInfo,
    /// With another port.
    #[error("only port 443 is possible; leave the port out")]
    Port,
    /// The host is not allowed.
    #[error(transparent)]
    Host(#[from] InvalidHostName),
}

impl HttpsUrl {
    /// Parses a URL.
    ///
    /// # Errors
    /// See [`InvalidUrl`].
    pub fn parse(text: &str) -> Result<Self, InvalidUrl> {
        if text.len() > MAX_URL_CHARS {
            return Err(InvalidUrl::Long);
        }
        // The parser would drop some and turn others into slashes.
        if text.contains(|c: char| c.is_whitespace() || c.is_control() || c == '\\') {
            return Err(InvalidUrl::Characters);
        }
        let url = Url::parse(text).map_err(|_| InvalidUrl::Malformed)?;
        if url.scheme() != "https" {
            return Err(InvalidUrl::NotHttps);
        }
        // Browsers' rules accept missing and superfluous slashes; a URL here must be exact.
        let begins = text.get(..HTTPS_PREFIX.len()).is_some_and(|begin| begin.eq_ignore_ascii_case(HTTPS_PREFIX));
        let rest = text.get(HTTPS_PREFIX.len()..).filter(|_| begins).ok_or(InvalidUrl::Malformed)?;
        let authority = rest.split(['/', '?', '#']).next().filter(|authority| !authority.is_empty());
        if authority.ok_or(InvalidUrl::Malformed)?.contains('@') {
            return Err(InvalidUrl::UserInfo);
        }
        if url.port().is_some() {
            return Err(InvalidUrl::Port);
        }
        let host = HostName::of(url.host().ok_or(InvalidUrl::Malformed)?)?;
        if url.as_str().len() > MAX_URL_CHARS {
            return Err(InvalidUrl::Long);
        }
        Ok(Self { url, host })
    }

    /// The same without the part after `#`, which is never sent.
    pub fn without_fragment(mut self) -> Self {
        self.url.set_fragment(None);
        self
    }

    /// Its parts.
    pub fn as_url(&self) -> &Url {
        &self.url
    }

    /// The whole URL in its parsed form.
    pub fn as_str(&self) -> &str {
        self.url.as_str()
    }

    /// Its host.
    pub fn host(&self) -> &HostName {
        &self.host
    }
}

impl fmt::Display for HttpsUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(text: &str) -> InvalidUrl {
        HttpsUrl::parse(text).map(|read| read.url).expect_err(text)
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
            assert_eq!(refused(text), InvalidUrl::Malformed, "{text}");
        }
    }

    #[test]
    fn look_alikes_are_other_names() {
        // A Cyrillic а, and letters that are another form of the same.
        assert_ne!(HttpsUrl::parse("https://exаmple.com").expect("a URL").host().as_str(), "example.com");
        assert_eq!(HttpsUrl::parse("https://ｅｘａｍｐｌｅ.com").expect("a URL").host().as_str(), "example.com");
    }

    #[test]
    fn what_is_not_https_to_a_public_name_at_port_443_is_refused_and_says_why() {
        use InvalidUrl::{Characters, Host, Malformed, NotHttps, Port, UserInfo};
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
        assert_eq!(refused(&format!("https://example.com/{}", "a".repeat(MAX_URL_CHARS))), InvalidUrl::Long);
        let grows = format!("https://example.com/{}", "ü".repeat(400));
        assert!(grows.len() < MAX_URL_CHARS, "each becomes six characters");
        assert_eq!(refused(&grows), InvalidUrl::Long);
    }
}
