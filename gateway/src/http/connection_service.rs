//! The client of a connection: the peer itself, or the client that a trusted proxy names.

use std::any::Any;
use std::convert::Infallible;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::http::{HeaderValue, Version, header};
use axum::response::Response;
use tower::Service;

use super::active_requests::ActiveRequests;
use super::forwarded::client_address;
use super::response_body::ResponseBody;
use super::sources::SourceQuota;
use super::unread_body::lend;
use crate::networks::{ForwardedHeader, Networks};

/// The caller's address, if it is known. In every request's extensions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientAddress(pub IpAddr);

/// The caller has the most requests under way through proxies. In a request's extensions.
#[derive(Clone, Copy, Debug)]
pub(super) struct OverLimit;

/// What a connection holds as long as it lasts, also when it continues as another protocol than HTTP. In the extensions
/// of a request that asks for an upgrade.
#[derive(Clone)]
pub(super) struct ConnectionPermit(
    #[allow(dead_code, reason = "it is there to be dropped")] pub(super) Arc<dyn Any + Send + Sync>,
);

/// Serves the requests of one connection.
#[derive(Clone)]
pub(super) struct ConnectionService {
    pub(super) router: Router,
    pub(super) peer: IpAddr,
    /// Its permit for one of the listener's connections.
    pub(super) permit: ConnectionPermit,
    /// Its requests under way.
    pub(super) active: ActiveRequests,
    /// `None` when the peer is the client itself.
    pub(super) proxied: Option<ProxyContext>,
}

/// The context of a connection from a trusted proxy.
#[derive(Clone)]
pub(super) struct ProxyContext {
    pub(super) proxies: Networks,
    /// The header in which the proxies name the client.
    pub(super) header: ForwardedHeader,
    /// One connection carries many callers, so each of their requests is counted by itself.
    pub(super) sources: SourceQuota,
}

impl<B> Service<Request<B>> for ConnectionService
where
    B: axum::body::HttpBody<Data = bytes::Bytes> + Send + Unpin + 'static,
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
        // A stream of HTTP/2 ends alone, and other requests of its connection go on.
        let connection = (request.version() < Version::HTTP_2).then(|| self.active.clone());
        let is_awaited = request.headers().contains_key(header::EXPECT);
        let (parts, body) = request.into_parts();
        let (body, lender) = lend(body);
        let answer = self.router.call(Request::from_parts(parts, body));
        // The request counts until its answer has been sent, which takes long for a stream.
        Box::pin(async move {
            let mut response = answer.await?;
            if !lender.discard(is_awaited).await
                && let Some(connection) = connection
            {
                response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
                connection.leave_unread();
            }
            Ok(response.map(|body| Body::new(ResponseBody::new(body, (visit, one_more)))))
        })
    }
}
