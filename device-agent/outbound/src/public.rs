//! Requests to hosts that somebody else chose: public addresses only, by the rules of the gateway's callbacks.

use std::sync::Arc;

use deskgate_program::public_hosts::HostName;
use deskgate_program::public_hosts::lookup::PublicLookup;
use reqwest::ClientBuilder;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};

/// A client that speaks HTTPS to addresses that this resolver names, without the proxies of the environment, and keeps no
/// connection for another request.
pub fn public_builder(resolver: impl Resolve + 'static) -> ClientBuilder {
    crate::builder()
        .no_proxy()
        .https_only(true)
        .referer(false)
        .pool_max_idle_per_host(0)
        .dns_resolver(Arc::new(resolver))
}

/// Resolves names of public hosts to public addresses. The client connects to these addresses, and asks no second time.
///
/// An address instead of a name is resolved by nobody: do not ask for a URL that has one.
#[derive(Clone, Debug)]
pub struct PublicResolver(PublicLookup);

impl PublicResolver {
    /// A resolver by this look-up.
    pub fn new(lookup: PublicLookup) -> Self {
        Self(lookup)
    }
}

impl Resolve for PublicResolver {
    fn resolve(&self, name: Name) -> Resolving {
        let lookup = self.0.clone();
        Box::pin(async move {
            let found = lookup.addresses(&HostName::parse(name.as_str())?).await?;
            Ok(Box::new(found.into_iter()) as Addrs)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use deskgate_program::public_hosts::lookup::LookupError;

    async fn resolved(name: &str, addresses: &'static [&'static str]) -> Result<usize, String> {
        let lookup = PublicLookup::asking(move |_| {
            Ok(addresses
                .iter()
                .map(|text| (text.parse::<std::net::IpAddr>().expect("an address"), 443).into())
                .collect())
        });
        let found = PublicResolver::new(lookup).resolve(name.parse().expect("a name")).await;
        found.map(Iterator::count).map_err(|error| error.to_string())
    }

    #[tokio::test]
    async fn a_name_is_resolved_if_all_its_addresses_are_public() {
        assert_eq!(resolved("a.example", &["8.8.8.8", "2001:4860:4860::8888"]).await, Ok(2));
        let refused = Err(LookupError::NotPublic.to_string());
        for addresses in [&["127.0.0.1"][..], &["8.8.8.8", "10.0.0.1"], &["::ffff:8.8.8.8"], &["64:ff9b::808:808"]] {
            assert_eq!(resolved("a.example", addresses).await, refused, "{addresses:?}");
        }
        assert_eq!(resolved("a.example", &[]).await, Err(LookupError::NoAddress.to_string()));
        assert!(resolved("localhost", &["8.8.8.8"]).await.is_err(), "a name that is not public is not looked up");
    }
}
