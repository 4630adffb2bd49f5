//! The answers to a peer's requests; nearly all are refused.

use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use deskgate_protocol::identity::PublicKey;
use russh::keys::ssh_key;
use russh::server::{Auth, ChannelOpenHandle, Handler, Msg, PublicKeyOffer, Session, VerifiedPublicKey};
use russh::{Channel, ChannelId, ChannelOpenFailure, Pty};

use super::cancellable_stream::CancellableStream;
use super::channel::ChannelEnd;
use super::connection::{ConnectionSignals, TunnelContext};
use super::limiter::PendingPermit;
use super::{Arrival, KeyStatus};

/// Keys that one connection may have looked up. A paired key costs two, and russh does not count offers that it
/// accepts.
const MAX_KEY_LOOKUPS: u32 = 6;

/// Why a connection ends.
#[derive(Debug, thiserror::Error)]
pub(super) enum HandlerError {
    #[error(transparent)]
    Ssh(#[from] russh::Error),
    #[error("the connection was cut")]
    Cut,
    #[error("nobody can say at the moment which keys are paired")]
    Unavailable,
    #[error("the peer offered too many keys")]
    TooManyKeys,
}

/// The answers to one peer.
pub(super) struct ConnectionHandler {
    house: Arc<TunnelContext>,
    peer: SocketAddr,
    /// What was shown to the peer.
    host_key: PublicKey,
    /// Held until a key is proved.
    ticket: Option<PendingPermit>,
    signals: ConnectionSignals,
    lookups: u32,
    proved: Option<PublicKey>,
    granted: bool,
}

impl ConnectionHandler {
    pub(super) fn new(
        house: Arc<TunnelContext>,
        peer: SocketAddr,
        host_key: PublicKey,
        ticket: PendingPermit,
        signals: ConnectionSignals,
    ) -> Self {
        Self { house, peer, host_key, ticket: Some(ticket), signals, lookups: 0, proved: None, granted: false }
    }

    /// The connection's loop is blocked during an answer, and so would not notice a cut.
    async fn unless_cut<T>(&self, answer: impl Future<Output = T>) -> Result<T, HandlerError> {
        tokio::select! {
            () = self.signals.cut.cancelled() => Err(HandlerError::Cut),
            answer = answer => Ok(answer),
        }
    }

    async fn look_up(&mut self, key: &ssh_key::PublicKey) -> Result<Option<PublicKey>, HandlerError> {
        self.lookups += 1;
        if self.lookups > MAX_KEY_LOOKUPS {
            return Err(HandlerError::TooManyKeys);
        }
        let Some(key) = key.key_data().ed25519().map(|key| PublicKey::from_bytes(key.0)) else { return Ok(None) };
        let verdict = self.unless_cut(self.house.admission.admit(&key)).await?;
        match verdict {
            KeyStatus::Admit => return Ok(Some(key)),
            KeyStatus::Unavailable => return Err(HandlerError::Unavailable),
            KeyStatus::Unknown | KeyStatus::Revoked => {}
        }
        tracing::info!(peer = %self.peer, fingerprint = key.fingerprint(), ?verdict, "device key refused");
        Ok(None)
    }
}

fn answer(admitted: bool) -> Auth {
    if admitted { Auth::Accept } else { Auth::reject() }
}

impl Handler for ConnectionHandler {
    type Error = HandlerError;

    async fn auth_publickey_offered(&mut self, _user: &str, offer: PublicKeyOffer<'_>) -> Result<Auth, HandlerError> {
        Ok(answer(self.look_up(offer.public_key).await?.is_some()))
    }

    async fn auth_publickey(&mut self, _user: &str, key: VerifiedPublicKey<'_>) -> Result<Auth, HandlerError> {
        self.proved = self.look_up(key.public_key).await?;
        if let Some(key) = self.proved
            && let Some(ticket) = self.ticket.take()
        {
            ticket.proved(key, Instant::now());
        }
        Ok(answer(self.proved.is_some()))
    }

    async fn channel_open_direct_streamlocal(
        &mut self,
        channel: Channel<Msg>,
        socket_path: &str,
        reply: ChannelOpenHandle,
        _session: &mut Session,
    ) -> Result<(), HandlerError> {
        let Some(public_key) = self.proved else { return Ok(()) };
        if self.granted || socket_path != self.house.config.control_path {
            tracing::debug!(peer = %self.peer, second = self.granted, "channel refused");
            reply.reject(ChannelOpenFailure::AdministrativelyProhibited).await;
            return Ok(());
        }
        self.granted = true;
        let house = Arc::clone(&self.house);
        let Ok(permit) = self.unless_cut(house.arrivals.reserve()).await? else {
            reply.reject(ChannelOpenFailure::ConnectFailed).await;
            return Ok(());
        };
        self.signals.slot.fill(channel.into_stream());
        let end = ChannelEnd { slot: self.signals.slot.clone(), dropped: self.signals.dropped.clone() };
        let stream = Box::new(CancellableStream::new(end, &self.signals.cut));
        reply.accept().await;
        self.signals.opened.cancel();
        permit.send(Arrival { public_key, host_key: self.host_key, peer: self.peer, stream });
        Ok(())
    }

    async fn channel_close(&mut self, _channel: ChannelId, _session: &mut Session) -> Result<(), HandlerError> {
        self.signals.closed.cancel();
        Ok(())
    }

    // russh itself refuses other kinds of channel, and forwarding from here. The following requests could only come on
    // the one existing channel, where they would get no answer.

    async fn pty_request(
        &mut self,
        channel: ChannelId,
        _term: &str,
        _columns: u32,
        _rows: u32,
        _width: u32,
        _height: u32,
        _modes: &[(Pty, u32)],
        session: &mut Session,
    ) -> Result<(), HandlerError> {
        Ok(session.channel_failure(channel)?)
    }

    async fn x11_request(
        &mut self,
        channel: ChannelId,
        _single: bool,
        _protocol: &str,
        _cookie: &str,
        _screen: u32,
        session: &mut Session,
    ) -> Result<(), HandlerError> {
        Ok(session.channel_failure(channel)?)
    }

    async fn env_request(
        &mut self,
        channel: ChannelId,
        _name: &str,
        _value: &str,
        session: &mut Session,
    ) -> Result<(), HandlerError> {
        Ok(session.channel_failure(channel)?)
    }

    async fn shell_request(&mut self, channel: ChannelId, session: &mut Session) -> Result<(), HandlerError> {
        Ok(session.channel_failure(channel)?)
    }

    async fn exec_request(&mut self, channel: ChannelId, _: &[u8], session: &mut Session) -> Result<(), HandlerError> {
        Ok(session.channel_failure(channel)?)
    }

    async fn subsystem_request(
        &mut self,
        channel: ChannelId,
        _: &str,
        session: &mut Session,
    ) -> Result<(), HandlerError> {
        Ok(session.channel_failure(channel)?)
    }
}
