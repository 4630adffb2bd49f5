//! HTTP requests that leave the agent: to model providers, MCP servers, a hosted gateway and its issuer.
//!
//! They carry keys and tokens, so no redirect is followed, and plain HTTP stays on this computer.

use std::sync::OnceLock;

use reqwest::redirect::Policy;
use reqwest::{Client, ClientBuilder, Url};

/// Two clients with the same settings: one for this computer, one for others.
///
/// The proxies of the environment are for other computers. A request to this one goes directly, so that plain HTTP never
/// leaves it. Each client is built on first use, because that reads the certificates that this computer trusts.
#[derive(Debug)]
pub struct Clients {
    settings: fn(ClientBuilder) -> ClientBuilder,
    here: OnceLock<Client>,
    elsewhere: OnceLock<Client>,
}

impl Clients {
    /// Clients with these settings. They are constants of the program: if they cannot be used, the first request panics.
    pub const fn new(settings: fn(ClientBuilder) -> ClientBuilder) -> Self {
        Self { settings, here: OnceLock::new(), elsewhere: OnceLock::new() }
    }

    /// The client for an address.
    pub fn for_url(&self, url: &Url) -> &Client {
        let (client, fresh): (_, fn() -> ClientBuilder) = match is_here(url) {
            true => (&self.here, || builder().no_proxy()),
            false => (&self.elsewhere, builder),
        };
        client.get_or_init(|| {
            let client = (self.settings)(fresh()).build();
            client.expect("the settings are constants, and the provider of cryptography is installed")
        })
    }
}

impl From<Client> for Clients {
    /// This client for every address.
    fn from(client: Client) -> Self {
        Self { settings: |builder| builder, here: client.clone().into(), elsewhere: client.into() }
    }
}

/// A client that follows no redirect and says which program it is. Without a provider of cryptography there is none, not
/// even for plain HTTP, so it is installed.
pub fn builder() -> ClientBuilder {
    // Fails if another part of the program has installed a provider, which is as good.
    let _ = rustls::crypto::ring::default_provider().install_default();
    Client::builder().redirect(Policy::none()).user_agent(concat!("deskgate/", env!("CARGO_PKG_VERSION")))
}

/// Whether an address is this computer's own: requests to it do not leave the computer.
pub fn is_here(url: &Url) -> bool {
    matches!(url.host_str(), Some("localhost" | "127.0.0.1" | "[::1]"))
}

/// HTTPS, or plain HTTP on this computer.
pub fn is_guarded(url: &Url) -> bool {
    url.host_str().is_some() && (url.scheme() == "https" || (url.scheme() == "http" && is_here(url)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_http_is_for_this_computer_only() {
        let guarded = |text: &str| is_guarded(&Url::parse(text).expect("a URL"));
        for good in ["https://a.example", "http://localhost:1", "http://127.0.0.1:1", "http://[::1]:1/x"] {
            assert!(guarded(good), "{good}");
        }
        for bad in
            ["http://a.example", "http://127.0.0.1.example.com", "http://localhost.example.com", "ftp://localhost"]
        {
            assert!(!guarded(bad), "{bad}");
        }
    }
}
