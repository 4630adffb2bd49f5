//! Allowed destinations of callbacks: the form of a callback's URL. A name on the allowlist is a [`HostName`].
//!
//! Where a name leads is another question, asked at each attempt (`callbacks::send`).

use std::fmt;

pub use deskgate_program::public_hosts::{HostName, InvalidHostName};
use deskgate_program::public_hosts::{HttpsUrl, InvalidUrl};

/// The URL of a callback: HTTPS, to a host name, at port 443.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Destination(HttpsUrl);

/// Why a URL cannot be a callback's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidDestination {
    /// It leads to no public host.
    #[error(transparent)]
    Url(#[from] InvalidUrl),
    /// With a fragment, which is never sent.
    #[error("a callback's URL has no part after #, because that is never sent")]
    Fragment,
}

impl Destination {
    /// Parses a callback's URL.
    ///
    /// # Errors
    /// See [`InvalidDestination`].
    pub fn parse(text: &str) -> Result<Self, InvalidDestination> {
        let url = HttpsUrl::parse(text)?;
        if url.as_url().fragment().is_some() { Err(InvalidDestination::Fragment) } else { Ok(Self(url)) }
    }

    /// The whole URL in its parsed form.
    pub fn as_str(&self) -> &str {
        self.0.as_str()
    }

    /// Its host.
    pub fn host(&self) -> &HostName {
        self.0.host()
    }

    /// Path and query: the request's target.
    pub fn target(&self) -> &str {
        &self.0.as_url()[url::Position::BeforePath..url::Position::AfterQuery]
    }
}

impl fmt::Display for Destination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
    fn what_leads_to_no_public_host_and_what_is_never_sent_is_refused() {
        for (text, why) in [
            ("http://hooks.example.com/", InvalidDestination::Url(InvalidUrl::NotHttps)),
            ("https://127.0.0.1/#part", InvalidDestination::Url(InvalidHostName::Address.into())),
            ("https://hooks.example.com/#part", InvalidDestination::Fragment),
            ("https://hooks.example.com/#", InvalidDestination::Fragment),
        ] {
            assert_eq!(Destination::parse(text), Err(why), "{text}");
        }
    }
}
