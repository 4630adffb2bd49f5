//! Who is at the other end of a connection: the peer itself, or whoever a trusted proxy speaks for.

use std::convert::Infallible;
use std::net::IpAddr;
use std::pin::Pin;
use std::task::{Context, Poll};

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::http::{HeaderMap, HeaderName, header};
use axum::response::Response;
use http_body_util::BodyExt;
use tower::Service;

use super::sources::Sources;
use crate::networks::Networks;

const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

/// Where a caller is, as far as that is known. In every request's extensions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientAddress(pub IpAddr);

/// The caller has as many requests under way through proxies as it may. In a request's extensions.
#[derive(Clone, Copy, Debug)]
pub(super) struct Crowded;

/// Serves the requests of one connection.
#[derive(Clone)]
pub(super) struct Guest {
    pub(super) router: Router,
    pub(super) peer: IpAddr,
    /// `None` when the peer speaks for itself.
    pub(super) proxied: Option<Proxied>,
}

/// What is known of a connection that comes from a trusted proxy.
#[derive(Clone)]
pub(super) struct Proxied {
    pub(super) proxies: Networks,
    /// Through one connection come many callers, so each of their requests is counted by itself.
    pub(super) sources: Sources,
}

impl<B> Service<Request<B>> for Guest
where
    B: axum::body::HttpBody<Data = bytes::Bytes> + Send + 'static,
    B::Error: Into<axum::BoxError>,
{
    type Response = Response;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        // A router is always ready.
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, mut request: Request<B>) -> Self::Future {
        let Some(Proxied { proxies, sources }) = &self.proxied else {
            request.extensions_mut().insert(ClientAddress(self.peer));
            return Box::pin(self.router.call(request));
        };
        let address = behind(self.peer, request.headers(), proxies);
        let visit = sources.enter(address);
        if visit.is_none() {
            request.extensions_mut().insert(Crowded);
        }
        request.extensions_mut().insert(ClientAddress(address));
        let answer = self.router.call(request);
        Box::pin(async move {
            // The caller is here until its answer has gone out, which takes long for a stream.
            let holding = |body: Body| {
                Body::new(body.map_frame(move |frame| {
                    let _until_the_end = &visit;
                    frame
                }))
            };
            answer.await.map(|response| response.map(holding))
        })
    }
}

/// The nearest address, seen from here, that is no trusted proxy. A proxy adds at the right; what
/// stands further to the left anybody may have written.
fn behind(peer: IpAddr, headers: &HeaderMap, proxies: &Networks) -> IpAddr {
    let mut nearest = peer;
    for hop in hops(headers).rev() {
        // A hop that hides its address, or that cannot be read, is as far as one can see.
        let Some(address) = hop else { break };
        nearest = address;
        if !proxies.contain(address) {
            break;
        }
    }
    nearest
}

/// The hops of X-Forwarded-For, or else of Forwarded (RFC 7239), farthest first. A proxy that sets
/// one of them lets through what the caller wrote into the other; most set the former.
fn hops(headers: &HeaderMap) -> impl DoubleEndedIterator<Item = Option<IpAddr>> {
    let parts = |name: &HeaderName| {
        let values = headers.get_all(name).iter();
        let texts = values.flat_map(|value| value.to_str().unwrap_or("unreadable").split(','));
        texts.map(|part| part.trim().to_owned()).collect::<Vec<_>>()
    };
    let hops: Vec<_> = if headers.contains_key(&X_FORWARDED_FOR) {
        parts(&X_FORWARDED_FOR).iter().map(|part| node(part)).collect()
    } else {
        parts(&header::FORWARDED).iter().map(|part| node(forwarded_for(part)?)).collect()
    };
    hops.into_iter()
}

/// The value of `for` in one element of Forwarded.
fn forwarded_for(element: &str) -> Option<&str> {
    let named = |pair: &&str| pair.split_once('=').is_some_and(|(name, _)| name.trim().eq_ignore_ascii_case("for"));
    element.split(';').find(named)?.split_once('=').map(|(_, value)| value.trim().trim_matches('"'))
}

/// An address, perhaps with brackets and port.
fn node(text: &str) -> Option<IpAddr> {
    let bare = match text.strip_prefix('[') {
        Some(rest) => rest.split(']').next()?,
        None if text.matches(':').count() == 1 => text.split(':').next()?,
        None => text,
    };
    bare.parse().ok().map(|address: IpAddr| address.to_canonical())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(headers: &[(&str, &str)]) -> String {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(name.parse::<HeaderName>().unwrap(), value.parse().unwrap());
        }
        behind([10, 0, 0, 1].into(), &map, &"10.0.0.0/8".parse().unwrap()).to_string()
    }

    #[test]
    fn the_rightmost_address_that_is_no_trusted_proxy_is_the_callers() {
        assert_eq!(seen(&[]), "10.0.0.1");
        assert_eq!(seen(&[("x-forwarded-for", "203.0.113.9")]), "203.0.113.9");
        assert_eq!(seen(&[("x-forwarded-for", "1.1.1.1, 203.0.113.9, 10.0.0.7")]), "203.0.113.9");
        assert_eq!(seen(&[("x-forwarded-for", "1.1.1.1"), ("x-forwarded-for", "203.0.113.9")]), "203.0.113.9");
        assert_eq!(seen(&[("x-forwarded-for", "10.0.0.8, 10.0.0.9")]), "10.0.0.8");
        assert_eq!(seen(&[("x-forwarded-for", "[2001:db8::1]:443")]), "2001:db8::1");
        assert_eq!(seen(&[("x-forwarded-for", "::ffff:203.0.113.9")]), "203.0.113.9");
        assert_eq!(
            seen(&[("forwarded", "for=1.1.1.1, For=\"203.0.113.9:80\";proto=https;by=10.0.0.1")]),
            "203.0.113.9"
        );
    }

    #[test]
    fn what_a_caller_writes_itself_does_not_move_it() {
        assert_eq!(seen(&[("x-forwarded-for", "unknown, 203.0.113.9")]), "203.0.113.9");
        assert_eq!(seen(&[("x-forwarded-for", "203.0.113.9, garbage")]), "10.0.0.1");
        assert_eq!(seen(&[("forwarded", "for=1.1.1.1"), ("x-forwarded-for", "203.0.113.9")]), "203.0.113.9");
        assert_eq!(seen(&[("forwarded", "for=_hidden")]), "10.0.0.1");
        assert_eq!(seen(&[("forwarded", "proto=https")]), "10.0.0.1");
    }
}
