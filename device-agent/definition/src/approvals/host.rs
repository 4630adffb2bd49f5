//! The hosts that a rule's pattern covers.
//!
//! `docs.example.com` is that host alone, `*.example.com` every host below it and not `example.com` itself. Nothing
//! of a path's pattern holds here: no folder, no other wildcard. Names are compared in the form in which they are looked
//! up, so upper and lower case are the same, and letters outside ASCII are those of their `xn--` form.

use deskgate_program::public_hosts::{HostName, InvalidHostName};

/// The hosts that a rule is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HostPattern {
    /// This host.
    Exact(HostName),
    /// Every host below this name.
    Below(HostName),
}

impl HostPattern {
    /// Reads a pattern.
    ///
    /// # Errors
    /// The text is no host and no `*.` before one; the error says what to write instead.
    pub fn new(text: &str) -> Result<Self, String> {
        let (name, pattern): (_, fn(HostName) -> Self) = match text.strip_prefix("*.") {
            Some(name) => (name, Self::Below),
            None => (text, Self::Exact),
        };
        HostName::parse(name).map(pattern).map_err(|problem| match problem {
            InvalidHostName::Wildcard => "a host is exact, or has *. before it for every host below".to_owned(),
            other => format!("{text:?} is no host such as docs.example.com or *.example.com: {other}"),
        })
    }

    /// Whether the pattern covers a host, in the form that a [`HostName`] has.
    pub fn covers(&self, host: &str) -> bool {
        match self {
            Self::Exact(name) => name.as_str() == host,
            Self::Below(name) => host.strip_suffix(name.as_str()).is_some_and(|below| below.ends_with('.')),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn covers(pattern: &str, host: &str) -> bool {
        HostPattern::new(pattern).expect("a pattern").covers(host)
    }

    #[test]
    fn a_host_is_exact_and_a_wildcard_is_for_what_lies_below() {
        assert!(covers("docs.example.com", "docs.example.com"));
        for other in ["example.com", "a.docs.example.com", "xdocs.example.com", "docs.example.com.evil.org", "docs"] {
            assert!(!covers("docs.example.com", other), "{other}");
        }
        assert!(covers("*.example.com", "docs.example.com") && covers("*.example.com", "a.b.example.com"));
        for other in ["example.com", "badexample.com", "docs.example.com.evil.org", ".com"] {
            assert!(!covers("*.example.com", other), "{other}");
        }
    }

    #[test]
    fn names_are_compared_as_they_are_looked_up() {
        assert!(covers("Docs.EXAMPLE.com", "docs.example.com") && covers("*.Example.COM", "docs.example.com"));
        assert!(covers("bücher.example", "xn--bcher-kva.example"));
        assert!(covers("*.bücher.example", "neu.xn--bcher-kva.example"));
        assert!(covers("xn--bcher-kva.example", "xn--bcher-kva.example"));
        assert!(!covers("exаmple.com", "example.com"), "with a Cyrillic а it is another name");
    }

    #[test]
    fn what_is_no_host_is_refused_and_says_what_to_write() {
        for (pattern, why) in [
            ("", "missing"),
            ("*", "exact"),
            ("*.", "missing"),
            ("**.example.com", "exact"),
            ("docs.*.com", "exact"),
            ("*.*.example.com", "exact"),
            ("*example.com", "exact"),
            ("docs.example.com.", "dot at the end"),
            ("docs.example.com:443", "no port"),
            ("docs.example.com:8443", "no port"),
            ("https://docs.example.com", "URL"),
            ("docs.example.com/help", "URL"),
            ("user@docs.example.com", "no user"),
            ("127.0.0.1", "address"),
            ("8.8.8.8", "address"),
            ("[::1]", "address"),
            ("localhost", "machine or network"),
            ("printer.local", "machine or network"),
            ("*.com", "machine or network"),
            ("docs example.com", "no host name"),
        ] {
            let refused = HostPattern::new(pattern).expect_err(pattern);
            assert!(refused.contains(why), "{pattern}: {refused}");
        }
    }
}
