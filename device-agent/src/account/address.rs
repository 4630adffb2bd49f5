//! A hosted gateway's address. Tokens are kept for it, and sent only to it and its issuer.

use std::fmt;

use deskgate_outbound::is_guarded;
use reqwest::Url;
use serde::{Deserialize, Serialize};

/// Such as `https://gateway.example.com`, without a trailing slash.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct GatewayAddress(String);

/// The path of its API.
const API_PATH: &str = "/api/v1";

impl GatewayAddress {
    /// Reads what a person typed: also the address of its API.
    ///
    /// # Errors
    /// Why it cannot be used, in words that continue a sentence.
    pub fn parse(text: &str) -> Result<Self, &'static str> {
        let text = text.trim();
        if text.is_empty() {
            return Err("the gateway's address is needed, such as https://gateway.example.com");
        }
        let mut url = Url::parse(text).map_err(|_| "this is no address, such as https://gateway.example.com")?;
        if !url.username().is_empty() || url.password().is_some() {
            return Err("it holds a user name or a password; you sign in elsewhere");
        }
        if url.query().is_some() || url.fragment().is_some() {
            return Err("it has a query or a fragment; write what stands before them");
        }
        if !is_guarded(&url) {
            return Err("tokens travel over https, or over http on this computer only");
        }
        let mut path = url.path().trim_end_matches('/');
        while let Some(shorter) = path.strip_suffix(API_PATH) {
            path = shorter.trim_end_matches('/');
        }
        let path = path.to_owned();
        url.set_path(&path);
        Ok(Self(url.as_str().trim_end_matches('/').to_owned()))
    }

    /// Its text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The address of a path below it.
    pub fn at(&self, path: &str) -> String {
        format!("{}{path}", self.0)
    }

    /// Scheme, host and port, as its certificate stands for them.
    pub fn origin(&self) -> String {
        Url::parse(&self.0).map_or_else(|_| self.0.clone(), |url| url.origin().ascii_serialization())
    }

    /// The address of its resource metadata, which name its issuer (RFC 9728, section 3.1).
    pub(super) fn metadata(&self) -> Option<Url> {
        let mut url = Url::parse(&self.0).ok()?;
        let path = url.path().trim_end_matches('/').to_owned();
        url.set_path(&format!("/.well-known/oauth-protected-resource{path}"));
        Some(url)
    }

    /// The address of a path below it, parsed.
    pub fn url(&self, path: &str) -> Option<Url> {
        Url::parse(&self.at(path)).ok()
    }
}

impl fmt::Display for GatewayAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_read_as_people_write_it() {
        let read = |text: &str| GatewayAddress::parse(text).map(|address| address.to_string());
        let plain = Ok("https://gateway.example.com".to_owned());
        for text in
            ["https://gateway.example.com", " https://Gateway.Example.com/ ", "https://gateway.example.com/api/v1/"]
        {
            assert_eq!(read(text), plain, "{text}");
        }
        for text in ["https://a.example/gw/", "https://a.example/gw/api/v1//api/v1/", "https://a.example/gw/api/v1/\0"]
        {
            assert_eq!(read(text), Ok("https://a.example/gw".to_owned()), "{text:?}");
        }
        assert_eq!(read("https://api/v1"), Ok("https://api/v1".to_owned()), "it is a host of that name");
        assert!(read("http://127.0.0.1:8484").is_ok() && read("http://[::1]:1").is_ok());
        for wrong in [
            "",
            "gateway.example.com",
            "http://gateway.example.com",
            "http://127.0.0.1.example.com",
            "ssh://a",
            "https://me:secret@a.example",
            "https://a.example/?x",
            "https://a.example/#x",
        ] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn what_a_gateway_says_of_itself_stands_behind_its_host() {
        let at = |text: &str| GatewayAddress::parse(text).unwrap().metadata().unwrap().to_string();
        assert_eq!(at("https://a.example"), "https://a.example/.well-known/oauth-protected-resource");
        assert_eq!(at("https://a.example/gw"), "https://a.example/.well-known/oauth-protected-resource/gw");
    }
}
