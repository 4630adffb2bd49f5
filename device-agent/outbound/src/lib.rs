//! HTTP requests that leave the agent: to model providers, MCP servers, a hosted gateway and its issuer.
//!
//! They carry keys and tokens, so no redirect is followed, and plain HTTP stays on this computer. Pages that an assistant
//! asks for are in [`public`]: without keys, and to public addresses only.

pub mod public;

use std::error::Error;
use std::net::IpAddr;
use std::sync::{Arc, OnceLock};

use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use reqwest::redirect::Policy;
use reqwest::{Client, ClientBuilder, Url};

/// Where plain HTTP may go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// To this computer only.
    Guarded,
    /// To addresses of the own network too: the owner said so. Everybody in that network can read what is sent.
    OwnNetwork,
}

/// Clients with the same settings: for this computer, for the own network, and for others.
///
/// The proxies of the environment are for other computers. A request to this one goes directly, so that plain HTTP never
/// leaves it. Each client is built on first use, because that reads the certificates that this computer trusts.
#[derive(Debug)]
pub struct Clients {
    settings: fn(ClientBuilder) -> ClientBuilder,
    here: OnceLock<Client>,
    own_network: OnceLock<Client>,
    elsewhere: OnceLock<Client>,
}

impl Clients {
    /// Clients with these settings. They are constants of the program: if they cannot be used, the first request panics.
    pub const fn new(settings: fn(ClientBuilder) -> ClientBuilder) -> Self {
        Self { settings, here: OnceLock::new(), own_network: OnceLock::new(), elsewhere: OnceLock::new() }
    }

    /// The client for an address, with plain HTTP to this computer only.
    pub fn for_url(&self, url: &Url) -> &Client {
        self.reaching(url, Reach::Guarded)
    }

    /// The client for an address. Plain HTTP to the own network connects to nothing else, whatever a name resolves to.
    pub fn reaching(&self, url: &Url, reach: Reach) -> &Client {
        let (client, fresh): (_, fn() -> ClientBuilder) = match () {
            () if is_here(url) => (&self.here, || builder().no_proxy()),
            () if reach == Reach::OwnNetwork && url.scheme() == "http" => {
                (&self.own_network, || builder().no_proxy().dns_resolver(Arc::new(OwnNetworkResolver)))
            }
            () => (&self.elsewhere, builder),
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
        let cell = || client.clone().into();
        Self { settings: |builder| builder, here: cell(), own_network: cell(), elsewhere: cell() }
    }
}

/// A client that follows no redirect and says which program it is. Without a provider of cryptography there is none, not
/// even for plain HTTP, so it is installed.
pub fn builder() -> ClientBuilder {
    // Fails if another part of the program has installed a provider, which is as good.
    let _ = rustls::crypto::ring::default_provider().install_default();
    Client::builder().redirect(Policy::none()).user_agent(concat!("deskgate/", env!("CARGO_PKG_VERSION")))
}

/// Whether a request failed because the other side's certificate is not trusted here.
pub fn is_distrusted(error: &reqwest::Error) -> bool {
    certificate_problem(error).is_some()
}

/// What is wrong with the other side's certificate, as the end of a sentence, if a request failed because of it. The HTTP client
/// says it only in the chain of its errors' sources.
pub fn certificate_problem(error: &reqwest::Error) -> Option<&'static str> {
    use rustls::CertificateError::*;
    Some(match invalid_certificate(error)? {
        Expired | ExpiredContext { .. } => "it has expired, or this computer's clock is ahead",
        NotValidYet | NotValidYetContext { .. } => "it is not valid yet, or this computer's clock is behind",
        NotValidForName | NotValidForNameContext { .. } => "it is for another name than this address",
        UnknownIssuer => "nobody whom this computer trusts vouches for it",
        Revoked => "it was revoked",
        _ => "it is not valid",
    })
}

fn invalid_certificate(error: &reqwest::Error) -> Option<&rustls::CertificateError> {
    let mut cause = error.source();
    while let Some(error) = cause {
        if let Some(tls) = error.downcast_ref() {
            return match tls {
                rustls::Error::InvalidCertificate(why) => Some(why),
                _ => None,
            };
        }
        // An I/O error does not name the error that it holds among its sources.
        cause = match error.downcast_ref::<std::io::Error>().and_then(std::io::Error::get_ref) {
            Some(held) => Some(held),
            None => error.source(),
        };
    }
    None
}

/// Whether an address is this computer's own: requests to it do not leave the computer.
pub fn is_here(url: &Url) -> bool {
    matches!(url.host_str(), Some("localhost" | "127.0.0.1" | "[::1]"))
}

/// HTTPS, or plain HTTP to where it may go. A name in plain HTTP is resolved for each connection, and only then its
/// address is known.
pub fn is_allowed(url: &Url, reach: Reach) -> bool {
    let own = || match url.host() {
        Some(url::Host::Ipv4(address)) => is_own_network(address.into()),
        Some(url::Host::Ipv6(address)) => is_own_network(address.into()),
        Some(url::Host::Domain(_)) => true,
        None => false,
    };
    match url.scheme() {
        "https" => url.host_str().is_some(),
        "http" => is_here(url) || (reach == Reach::OwnNetwork && own()),
        _ => false,
    }
}

/// HTTPS, or plain HTTP on this computer.
pub fn is_guarded(url: &Url) -> bool {
    is_allowed(url, Reach::Guarded)
}

/// Whether an address belongs to a private network: this computer, a local network (RFC 1918, RFC 4193), its link, or
/// the shared space that virtual private networks use (RFC 6598).
pub fn is_own_network(address: IpAddr) -> bool {
    match address.to_canonical() {
        IpAddr::V4(address) => {
            let [first, second, ..] = address.octets();
            let is_shared = first == 100 && (64..128).contains(&second);
            address.is_private() || address.is_loopback() || address.is_link_local() || is_shared
        }
        IpAddr::V6(address) => address.is_loopback() || address.is_unique_local() || address.is_unicast_link_local(),
    }
}

/// Resolves names to addresses of the own network, and to no others.
#[derive(Debug)]
struct OwnNetworkResolver;

impl Resolve for OwnNetworkResolver {
    fn resolve(&self, name: Name) -> Resolving {
        Box::pin(async move {
            let found = tokio::net::lookup_host((name.as_str(), 0)).await?;
            let own: Vec<_> = found.filter(|address| is_own_network(address.ip())).collect();
            if own.is_empty() {
                return Err("the name has no address in the own network, and plain HTTP goes nowhere else".into());
            }
            Ok(Box::new(own.into_iter()) as Addrs)
        })
    }
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

    #[test]
    fn plain_http_in_the_own_network_reaches_private_addresses_only() {
        let allowed = |text: &str| is_allowed(&Url::parse(text).expect("a URL"), Reach::OwnNetwork);
        for good in [
            "http://192.168.1.7:11434/v1",
            "http://10.0.0.1",
            "http://100.64.3.4",
            "http://[fd00::1]:1",
            "http://box.lan",
        ] {
            assert!(allowed(good), "{good}");
        }
        for bad in
            ["http://8.8.8.8", "http://[2001:db8::1]", "http://100.128.0.1", "http://172.32.0.1", "ftp://10.0.0.1"]
        {
            assert!(!allowed(bad), "{bad}");
        }
    }

    #[tokio::test]
    async fn a_name_that_leads_out_of_the_own_network_is_not_connected_to() {
        let url = Url::parse("http://127.0.0.1.nip.test:1/").expect("a URL");
        static CLIENTS: Clients = Clients::new(|builder| builder);
        assert!(CLIENTS.reaching(&url, Reach::OwnNetwork).get(url.clone()).send().await.is_err());
        let resolved = OwnNetworkResolver.resolve("localhost".parse().expect("a name")).await.expect("own");
        assert!(resolved.into_iter().all(|address| address.ip().is_loopback()));
    }
}
