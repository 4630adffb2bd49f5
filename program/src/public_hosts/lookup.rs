//! Looks names up, and refuses a name unless all its addresses are public.
//!
//! The name is looked up once for each connection, and the checked addresses are the ones that are connected to, so
//! nothing can change in between. One address that is not public refuses the whole name: an attacker who answers with
//! two would only have to be lucky.

use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::sync::Arc;

use tokio::sync::Semaphore;

use super::HostName;
use super::address::is_public;

/// The only allowed port.
const HTTPS_PORT: u16 = 443;
/// Concurrent look-ups. Each has a thread, and the system's resolver may keep it long after the caller gave up.
const MAX_CONCURRENT_LOOKUPS: usize = 32;
/// The most addresses of one name that are tried.
const MAX_ADDRESSES: usize = 8;

/// Why a name may not be connected to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LookupError {
    /// It has no address, or nobody could be asked for one.
    #[error("the name of the host has no address")]
    NoAddress,
    /// One of its addresses is not public.
    #[error("the name of the host leads to an address that is not public")]
    NotPublic,
}

/// The addresses of a host that may be connected to, in the resolver's order.
///
/// # Errors
/// There is none, or one of them is not public.
pub fn public_addresses(found: impl IntoIterator<Item = SocketAddr>) -> Result<Vec<SocketAddr>, LookupError> {
    allowed_addresses(found, &is_public)
}

fn allowed_addresses(
    found: impl IntoIterator<Item = SocketAddr>,
    is_allowed: &AddressJudge,
) -> Result<Vec<SocketAddr>, LookupError> {
    let found: Vec<_> = found.into_iter().collect();
    if found.is_empty() {
        return Err(LookupError::NoAddress);
    }
    if !found.iter().all(|address| is_allowed(address.ip())) {
        return Err(LookupError::NotPublic);
    }
    Ok(found.into_iter().take(MAX_ADDRESSES).collect())
}

/// Asks for the addresses of a name, and may block.
type AddressSource = dyn Fn(&str) -> io::Result<Vec<SocketAddr>> + Send + Sync;

/// Says whether an address may be connected to.
type AddressJudge = dyn Fn(IpAddr) -> bool + Send + Sync;

/// Looks names up. Clones share the limit.
#[derive(Clone)]
pub struct PublicLookup {
    places: Arc<Semaphore>,
    source: Arc<AddressSource>,
    judge: Arc<AddressJudge>,
}

impl PublicLookup {
    /// Asks the system's resolver.
    pub fn of_the_system() -> Self {
        Self::asking(|name| Ok((name, HTTPS_PORT).to_socket_addrs()?.collect()))
    }

    /// Asks this source, on a thread that may block.
    pub fn asking(source: impl Fn(&str) -> io::Result<Vec<SocketAddr>> + Send + Sync + 'static) -> Self {
        Self {
            places: Arc::new(Semaphore::new(MAX_CONCURRENT_LOOKUPS)),
            source: Arc::new(source),
            judge: Arc::new(is_public),
        }
    }

    /// Allows these addresses and no others, instead of the public ones.
    pub fn allowing(self, is_allowed: impl Fn(IpAddr) -> bool + Send + Sync + 'static) -> Self {
        Self { judge: Arc::new(is_allowed), ..self }
    }

    /// The addresses that a host may be connected at. The caller limits the time.
    ///
    /// # Errors
    /// It has no address, or one that is not public.
    pub async fn addresses(&self, host: &HostName) -> Result<Vec<SocketAddr>, LookupError> {
        self.addresses_at(host.as_str(), HTTPS_PORT).await
    }

    /// The same for a name or an address that an administrator wrote, at a port.
    ///
    /// # Errors
    /// It has no address, or one that is not allowed.
    pub async fn addresses_at(&self, host: &str, port: u16) -> Result<Vec<SocketAddr>, LookupError> {
        let place = Arc::clone(&self.places).acquire_owned().await.map_err(|_| LookupError::NoAddress)?;
        let (name, source) = (host.to_owned(), Arc::clone(&self.source));
        let looking_up = tokio::task::spawn_blocking(move || {
            let found = source(&name);
            // Released with the thread, not when the caller gives up.
            drop(place);
            found
        });
        match looking_up.await {
            Ok(Ok(found)) => {
                let at_port = found.into_iter().map(|address| SocketAddr::new(address.ip(), port));
                allowed_addresses(at_port, &*self.judge)
            }
            _ => Err(LookupError::NoAddress),
        }
    }
}

impl fmt::Debug for PublicLookup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PublicLookup").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_address_that_is_not_public_refuses_the_name() {
        let at = |texts: &[&str]| {
            public_addresses(texts.iter().map(|text| SocketAddr::new(text.parse().expect("an address"), HTTPS_PORT)))
        };
        assert_eq!(at(&[]), Err(LookupError::NoAddress));
        assert_eq!(at(&["8.8.8.8", "127.0.0.1"]), Err(LookupError::NotPublic));
        assert_eq!(at(&["2001:4860:4860::8888", "8.8.8.8", "fe80::1"]), Err(LookupError::NotPublic));
        assert_eq!(at(&["8.8.8.8", "2001:4860:4860::8888"]).expect("public").len(), 2);
        let many: Vec<_> = (0..20).map(|n| format!("8.8.8.{n}")).collect();
        let mut many: Vec<_> = many.iter().map(String::as_str).collect();
        assert_eq!(at(&many).expect("public").len(), MAX_ADDRESSES);
        many.push("10.0.0.1");
        assert_eq!(at(&many), Err(LookupError::NotPublic), "also one that would not be tried");
    }

    #[tokio::test]
    async fn a_name_that_leads_to_this_machine_is_refused() {
        let lookup = PublicLookup::of_the_system();
        // The system's own name leads to loopback, through its resolver.
        let found = ("localhost", HTTPS_PORT).to_socket_addrs().expect("found");
        assert_eq!(public_addresses(found), Err(LookupError::NotPublic));
        let nowhere = HostName::parse("nothing.invalid").expect("a name");
        assert_eq!(lookup.addresses(&nowhere).await, Err(LookupError::NoAddress));
    }
}
