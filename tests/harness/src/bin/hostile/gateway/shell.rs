//! The hostile gateway's SSH server: it has the paired host key, and lets the desktop in.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use russh::keys::PrivateKey;
use russh::server::{Auth, ChannelOpenHandle, Config, Handle, Handler, Msg, Session, VerifiedPublicKey, run_stream};
use russh::{Channel, ChannelId, ChannelOpenFailure, ChannelStream, SshId};
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::time::timeout;
use tokio_tungstenite::WebSocketStream;
use tokio_util::task::AbortOnDropHandle;

use super::greetings::ESCAPES;

/// How long the desktop may take for each stage.
const STAGE_TIMEOUT: Duration = Duration::from_secs(15);

/// Settings of a server with this host key.
pub(super) fn config(key: &PrivateKey) -> Config {
    Config {
        server_id: SshId::Standard("SSH-2.0-Deskgate".into()),
        auth_rejection_time: Duration::ZERO,
        keys: vec![key.clone()],
        inactivity_timeout: None,
        ..Config::default()
    }
}

/// How the server treats who comes in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Manner {
    /// As an honest one.
    Admits,
    /// Shows a banner of escapes before.
    Banner,
    /// Never answers the sign-in.
    NeverAdmits,
    /// Refuses every channel, with escapes as the reason.
    RefusesChannels,
}

/// One desktop that came in and opened its channel.
pub(super) struct Shell {
    /// Opens channels and sends requests of the server's own.
    pub(super) ssh: Handle,
    /// The control channel, and its byte stream.
    pub(super) channel: ChannelId,
    pub(super) stream: ChannelStream<Msg>,
    pub(super) serving: AbortOnDropHandle<()>,
}

impl Shell {
    /// Lets the desktop in.
    pub(super) async fn open(socket: TcpStream, config: Config) -> anyhow::Result<Self> {
        Self::open_as(socket, config, Manner::Admits).await
    }

    /// As [`Shell::open`], in another manner.
    pub(super) async fn open_as(socket: TcpStream, config: Config, manner: Manner) -> anyhow::Result<Self> {
        let (opened, channel) = oneshot::channel();
        let handler = Doorman { opened: Some(opened), manner };
        let session =
            timeout(STAGE_TIMEOUT, run_stream(Arc::new(config), socket, handler)).await.context("greeting")??;
        let ssh = session.handle();
        let serving = AbortOnDropHandle::new(tokio::spawn(async move { drop(session.await) }));
        let channel = timeout(STAGE_TIMEOUT, channel).await.context("no channel is opened")?;
        let channel = channel.context("the desktop left before its channel")?;
        Ok(Self { ssh, channel: channel.id(), stream: channel.into_stream(), serving })
    }

    /// Begins in a manner that ends in no channel. The task ends with the connection.
    pub(super) async fn begin(
        socket: TcpStream,
        config: Config,
        manner: Manner,
    ) -> anyhow::Result<AbortOnDropHandle<()>> {
        let handler = Doorman { opened: None, manner };
        let session =
            timeout(STAGE_TIMEOUT, run_stream(Arc::new(config), socket, handler)).await.context("greeting")??;
        Ok(AbortOnDropHandle::new(tokio::spawn(async move { drop(session.await) })))
    }

    /// Answers the upgrade to a WebSocket.
    pub(super) async fn upgrade(self) -> anyhow::Result<(Handle, Upgraded, AbortOnDropHandle<()>)> {
        let socket =
            timeout(STAGE_TIMEOUT, tokio_tungstenite::accept_async(self.stream)).await.context("upgrade")??;
        Ok((self.ssh, socket, self.serving))
    }
}

/// The control channel as a WebSocket.
pub(super) type Upgraded = WebSocketStream<ChannelStream<Msg>>;

struct Doorman {
    opened: Option<oneshot::Sender<Channel<Msg>>>,
    manner: Manner,
}

impl Handler for Doorman {
    type Error = russh::Error;

    async fn authentication_banner(&mut self) -> Result<Option<String>, russh::Error> {
        Ok((self.manner == Manner::Banner).then(|| ESCAPES.repeat(100)))
    }

    async fn auth_publickey(&mut self, _: &str, _: VerifiedPublicKey<'_>) -> Result<Auth, russh::Error> {
        if self.manner == Manner::NeverAdmits {
            std::future::pending::<()>().await;
        }
        Ok(Auth::Accept)
    }

    async fn channel_open_direct_streamlocal(
        &mut self,
        channel: Channel<Msg>,
        _: &str,
        reply: ChannelOpenHandle,
        _: &mut Session,
    ) -> Result<(), russh::Error> {
        if self.manner == Manner::RefusesChannels {
            reply.reject(ChannelOpenFailure::Other { code: 7, reason: ESCAPES.to_owned() }).await;
            return Ok(());
        }
        reply.accept().await;
        if let Some(opened) = self.opened.take() {
            let _ = opened.send(channel);
        }
        Ok(())
    }
}
