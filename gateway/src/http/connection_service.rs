//! Who is at the other end of a connection: the peer itself, or whoever a trusted proxy speaks for.

use std::any::Any;
use std::convert::Infallible;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::http::header;
use axum::response::Response;
use tower::Service;

use super::active_requests::ActiveRequests;
use super::forwarded::client_address;
use super::response_body::ResponseBody;
use super::sources::SourceQuota;
use crate::networks::{ForwardedHeader, Networks};

/// Where a caller is, as far as that is known. In every request's extensions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientAddress(pub IpAddr);

/// The caller has as many requests under way through proxies as it may. In a request's extensions.
#[derive(Clone, Copy, Debug)]
pub(super) struct OverLimit;

/// What a connection holds as long as it lasts, also when it goes on as something else than HTTP. In the extensions of a
/// request that wants that.
#[derive(Clone)]
pub(super) struct ConnectionPermit(
    #[allow(dead_code, reason = "it is there to be dropped")] pub(super) Arc<dyn Any + Send + Sync>,
);

/// Serves the requests of one connection.
#[derive(Clone)]
pub(super) struct ConnectionService {
    pub(super) router: Router,
    pub(super) peer: IpAddr,
    /// Its place among the listener's connections.
    pub(super) permit: ConnectionPermit,
    /// What it asks.
    pub(super) active: ActiveRequests,
    /// `None` when the peer speaks for itself.
    pub(super) proxied: Option<ProxyContext>,
}

/// What is known of a connection that comes from a trusted proxy.
#[derive(Clone)]
pub(super) struct ProxyContext {
    pub(super) proxies: Networks,
    /// Where they say for whom they speak.
    pub(super) header: ForwardedHeader,
    /// Through one connection come many callers, so each of their requests is counted by itself.
    pub(super) sources: SourceQuota,
}

impl<B> Service<Request<B>> for ConnectionService
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
        let one_more = self.active.enter();
        let (address, visit) = match &self.proxied {
            None => (self.peer, None),
            Some(ProxyContext { proxies, header, sources }) => {
                let address = client_address(self.peer, request.headers(), *header, proxies);
                let visit = sources.acquire(address);
                if visit.is_none() {
                    request.extensions_mut().insert(OverLimit);
                }
                (address, visit)
            }
        };
        request.extensions_mut().insert(ClientAddress(address));
        if request.headers().contains_key(header::UPGRADE) {
            request.extensions_mut().insert(self.permit.clone());
        }
        let answer = self.router.call(request);
        // The caller is here until its answer has gone out, which takes long for a stream.
        Box::pin(async move {
            answer.await.map(|response| response.map(|body| Body::new(ResponseBody::new(body, (visit, one_more)))))
        })
    }
}
