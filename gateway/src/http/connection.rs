//! One connection: TLS if configured, then HTTP/1.1 or HTTP/2, with a timeout for every step.

use std::io;
use std::pin::pin;
use std::time::Duration;

use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::service::TowerToHyperService;
use rustls::server::Acceptor;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::LazyConfigAcceptor;
use tokio_rustls::server::TlsStream;
use tokio_util::sync::CancellationToken;

use super::automatic_answer::SpeakingStream;
use super::connection_service::ConnectionService;
use super::half_close::HalfClosingStream;
use super::header_timeout::HeaderTimeoutStream;
use super::server::ListenerLimits;
use super::stream_timeout::StreamExecutor;
use super::write_timeout::WriteTimeoutStream;
use crate::tls::{ClientIntent, ServerTls};

/// Heads longer than this are answered by the HTTP stack: over HTTP/1.1 as [`SpeakingStream`] says, over HTTP/2, where the
/// peer is told the limit before, without a problem document.
const HEAD_MARGIN_BYTES: usize = 8 * 1024;

/// The settings of a listener's connections.
pub(super) struct ConnectionSettings {
    http: auto::Builder<StreamExecutor>,
    tls: Option<ServerTls>,
    time_for_handshake: Duration,
    time_for_head: Duration,
    time_for_body: Duration,
    time_unread: Duration,
    time_idle: Duration,
}

impl ConnectionSettings {
    pub(super) fn new(limits: &ListenerLimits, tls: Option<ServerTls>) -> Self {
        let mut http = auto::Builder::new(StreamExecutor { patience: limits.unread });
        let head_bytes = limits.head_bytes + HEAD_MARGIN_BYTES;
        // See [`HeaderTimeoutStream`].
        http.http1().timer(TokioTimer::new()).header_read_timeout(None).max_buf_size(head_bytes);
        http.http2()
            .timer(TokioTimer::new())
            .max_concurrent_streams(limits.streams)
            .max_header_list_size(u32::try_from(head_bytes).unwrap_or(u32::MAX))
            .max_pending_accept_reset_streams(Some(MAX_RESETS))
            .max_local_error_reset_streams(Some(MAX_RESETS))
            .keep_alive_interval(Some(limits.head / 2))
            .keep_alive_timeout(limits.head);
        let (time_for_handshake, time_for_head, time_for_body) = (limits.handshake, limits.head, limits.body);
        let (time_unread, time_idle) = (limits.unread, limits.idle);
        Self { http, tls, time_for_handshake, time_for_head, time_for_body, time_unread, time_idle }
    }

    /// Serves a connection to its end. When stopped, it finishes what is under way.
    pub(super) async fn serve(&self, stream: TcpStream, service: ConnectionService, stop: CancellationToken) {
        let Some(tls) = &self.tls else { return self.speak(stream, service, stop).await };
        let handshake = tokio::time::timeout(self.time_for_handshake, shake_hands(tls, stream));
        match stop.run_until_cancelled(handshake).await {
            Some(Ok(Ok(Some(stream)))) => self.speak(stream, service, stop).await,
            Some(Ok(Ok(None))) => tracing::info!("a certificate authority asked for a proof, and saw it"),
            Some(Ok(Err(error))) => tracing::debug!(%error, "a TLS handshake failed"),
            Some(Err(_)) => tracing::debug!("a TLS handshake took too long"),
            None => {}
        }
    }

    async fn speak(
        &self,
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
        service: ConnectionService,
        stop: CancellationToken,
    ) {
        let under_way = service.active.clone();
        let stream = HalfClosingStream::new(stream, under_way.clone(), self.time_for_body);
        let stream = SpeakingStream::new(stream, under_way.clone());
        let stream = WriteTimeoutStream::new(
            HeaderTimeoutStream::new(stream, under_way.clone(), self.time_for_head),
            self.time_unread,
        );
        let connection =
            self.http.serve_connection_with_upgrades(TokioIo::new(stream), TowerToHyperService::new(service));
        let mut connection = pin!(connection);
        let ended = tokio::select! {
            // First of all: requests that have arrived by now are answered, also when the time is up.
            biased;
            ended = connection.as_mut() => ended,
            () = stop.cancelled() => {
                connection.as_mut().graceful_shutdown();
                connection.await
            }
            () = under_way.idle(self.time_idle) => {
                connection.as_mut().graceful_shutdown();
                tokio::select! {
                    ended = connection => ended,
                    // The peer may not have read its answers; that does not hold the connection for ever. Requests that
                    // were sent before the peer noticed the end are answered.
                    () = under_way.idle(self.time_unread) => Ok(()),
                }
            }
        };
        under_way.end();
        if let Err(error) = ended {
            tracing::debug!(%error, "a connection ended");
        }
    }
}

/// A stream that a caller is served on. `None`: a certificate authority fetched its challenge.
async fn shake_hands(tls: &ServerTls, stream: TcpStream) -> io::Result<Option<TlsStream<TcpStream>>> {
    let start = LazyConfigAcceptor::new(Acceptor::default(), stream).await?;
    let wish = tls.client_intent(&start.client_hello());
    match wish {
        ClientIntent::Served(Some(config)) => start.into_stream(config).await.map(Some),
        ClientIntent::Served(None) => Err(io::Error::other("no certificate was issued yet")),
        ClientIntent::Proof(domain) => {
            let config = tls.proof(domain).await;
            let config = config.ok_or_else(|| io::Error::other("somebody asks for a proof that nobody ordered"))?;
            start.into_stream(config).await?.shutdown().await?;
            Ok(None)
        }
    }
}

/// Streams that a client may have reset before they were looked at, and that it may make us reset.
/// One that resets more is closed (CVE-2023-44487).
const MAX_RESETS: usize = 20;
