//! A byte stream to the gateway's control socket, over SSH to a verified server.
//!
//! Works with the gateway's own listener and with OpenSSH's sshd alike.

use std::io;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};
use std::time::Duration;

use deskgate_gateway::tunnel::algorithms;
use deskgate_gateway::tunnel::cancellable_stream::CancellableStream;
use deskgate_protocol::identity::PublicKey;
use russh::client::{AuthResult, ChannelOpenHandle, Config, Handle, Handler, Msg, Session, connect_stream};
use russh::keys::ssh_key::private::Ed25519Keypair;
use russh::keys::{PrivateKey, PrivateKeyWithHashAlg, PublicKeyOrCertificate};
use russh::{Channel, ChannelId, ChannelOpenFailure, ChannelStream, Names, SshId};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::builtin::BoxedStream;
use super::conduct::ServerConduct;
use super::dial::dial;
use super::error::{HostKeyError, LinkError};
use super::host_pin::{self};
use super::target::Ssh;
use super::{announced_keys, network};
use crate::identity::DeviceKey;

const DIAL_TIMEOUT: Duration = Duration::from_secs(10);
const SSH_HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(15);

/// A stream to the control socket of a verified server.
pub(super) struct SshStream {
    pub(super) stream: BoxedStream,
    /// The host key by which it was verified.
    pub(super) host_key: PublicKey,
    /// The local address of the connection.
    pub(super) local_address: Option<IpAddr>,
    pub(super) conduct: ServerConduct,
}

impl Ssh {
    /// Opens the stream. Dropping it closes the connection.
    ///
    /// # Errors
    /// The reason, with the address and what was expected there.
    pub async fn open(&self, key: &DeviceKey) -> Result<BoxedStream, LinkError> {
        self.reach(key).await.map(|reached| reached.stream)
    }

    pub(super) async fn reach(&self, key: &DeviceKey) -> Result<SshStream, LinkError> {
        let socket = self.within(DIAL_TIMEOUT, "connecting", self.dial()).await?;
        let options = socket.local_addr().ok().map(|address| address.ip());
        let handshake = Box::pin(self.within(SSH_HANDSHAKE_TIMEOUT, "setting up SSH", self.handshake(socket, key)));
        let reached =
            network::while_address_held(options, handshake).await.unwrap_or_else(|| Err(LinkError::address_lost()))?;
        Ok(SshStream { local_address: options, ..reached })
    }

    async fn within<T>(
        &self,
        limit: Duration,
        stage: &'static str,
        work: impl Future<Output = Result<T, LinkError>>,
    ) -> Result<T, LinkError> {
        let late = |_| LinkError::Timeout { address: self.address(), stage, limit };
        timeout(limit, work).await.map_err(late)?
    }

    async fn dial(&self) -> Result<TcpStream, LinkError> {
        let connected = async {
            let socket = dial(&self.host, self.port).await?;
            socket.set_nodelay(true)?;
            Ok(socket)
        };
        connected.await.map_err(|source: io::Error| match source.kind() {
            io::ErrorKind::ConnectionRefused => LinkError::ConnectionRefused { address: self.address() },
            _ => LinkError::Unreachable { address: self.address(), source },
        })
    }

    async fn handshake(&self, socket: TcpStream, key: &DeviceKey) -> Result<SshStream, LinkError> {
        let cut = CancellationToken::new();
        let conduct = ServerConduct::new(&cut);
        self.enter(socket, key, cut, &conduct).await.map_err(|error| conduct.error(error, &self.address()))
    }

    async fn enter(
        &self,
        socket: TcpStream,
        key: &DeviceKey,
        cut: CancellationToken,
        conduct: &ServerConduct,
    ) -> Result<SshStream, LinkError> {
        // From here on, every failure closes the socket.
        let guard = cut.clone().drop_guard();
        let config = Arc::new(Config {
            client_id: SshId::Standard("SSH-2.0-Deskgate".into()),
            preferred: algorithms::preferred(),
            keepalive_interval: Some(KEEPALIVE_INTERVAL),
            keepalive_max: 3,
            inactivity_timeout: None,
            maximum_packet_size: algorithms::PACKET_BYTES,
            ..Config::default()
        });
        let greeted = Arc::new(AtomicBool::new(false));
        let line = CancellableStream::new(GatewaySocket { socket, greeted: Arc::clone(&greeted) }, &cut);
        let said = Arc::new(ServerKeys::default());
        let verifier = ServerHandler { target: self.clone(), said: Arc::clone(&said), conduct: conduct.clone() };
        let mut handle = connect_stream(config, line, verifier)
            .await
            .map_err(|error| self.ssh_error(error, greeted.load(Ordering::Relaxed)))?;

        let private = PrivateKey::from(Ed25519Keypair::from(key.signing_key()));
        let private = PrivateKeyWithHashAlg::new(Arc::new(private), None);
        match handle.authenticate_publickey(&self.user, private).await {
            Ok(AuthResult::Success) => {}
            // russh also reports this when the connection ended without an answer about the key; a server that answers
            // names what it would accept.
            Ok(AuthResult::Failure { remaining_methods, .. }) if remaining_methods.is_empty() => {
                return Err(LinkError::Lost("before the server had judged this device's key".to_owned()));
            }
            Ok(AuthResult::Failure { .. }) => {
                return Err(LinkError::KeyNotAccepted {
                    address: self.address(),
                    user: self.user.clone(),
                    fingerprint: key.public_key().fingerprint(),
                });
            }
            Err(error) => return Err(LinkError::Lost(error.to_string())),
        }
        match handle.channel_open_direct_streamlocal(&self.socket_path).await {
            Ok(channel) => {
                let shown = *said.shown.get().expect("no key is exchanged without it");
                if let Some(announced) = said.announced.get() {
                    self.follow(&handle, &shown, announced).await;
                }
                let stream = Box::new(Tunnel { stream: channel.into_stream(), _handle: handle, _cut: guard });
                Ok(SshStream { stream, host_key: shown, local_address: None, conduct: conduct.clone() })
            }
            Err(russh::Error::ChannelOpenFailure(failure)) => Err(LinkError::ChannelRefused {
                address: self.address(),
                path: self.socket_path.clone(),
                reason: reason(failure),
            }),
            Err(error) => Err(LinkError::Lost(error.to_string())),
        }
    }

    /// The keys that OpenSSH's sshd announces right after a sign-in.
    async fn follow(&self, handle: &Handle<ServerHandler>, shown: &PublicKey, announced: &[PublicKey]) {
        let unknown = announced_keys::unknown(self, shown, announced);
        let proven = unknown.iter().filter_map(|key| key.to_string().parse().ok()).collect();
        match handle.hostkeys_prove(proven).await {
            Ok(()) => announced_keys::follow(self, shown, announced),
            Err(error) => tracing::warn!(address = self.address(), %error,
                "the server announced host keys, and did not prove that they are its own"),
        }
    }

    fn ssh_error(&self, error: VerifierError, greeted: bool) -> LinkError {
        match error {
            VerifierError::HostKey(error) => error.into(),
            VerifierError::Ssh(_) if !greeted => LinkError::HungUp { address: self.address() },
            VerifierError::Ssh(error) => LinkError::Ssh { address: self.address(), why: error.to_string() },
        }
    }
}

fn reason(failure: ChannelOpenFailure) -> String {
    match failure {
        ChannelOpenFailure::AdministrativelyProhibited => "forbidden by the server".to_owned(),
        ChannelOpenFailure::ConnectFailed => "nothing answers at this path".to_owned(),
        ChannelOpenFailure::UnknownChannelType => "the server cannot forward to Unix sockets".to_owned(),
        ChannelOpenFailure::ResourceShortage => "the server is overloaded".to_owned(),
        ChannelOpenFailure::Other { code, reason } => format!("{reason}, code {code}"),
    }
}

#[derive(Debug, thiserror::Error)]
enum VerifierError {
    #[error(transparent)]
    Ssh(#[from] russh::Error),
    #[error(transparent)]
    HostKey(#[from] HostKeyError),
}

/// Verifies the server before anything but the key exchange is sent, and refuses what it opens afterwards.
struct ServerHandler {
    target: Ssh,
    said: Arc<ServerKeys>,
    conduct: ServerConduct,
}

impl ServerHandler {
    /// russh confirms the kinds that it knows unless they are refused. Nothing is kept of one that is.
    async fn refuse(&self, reply: ChannelOpenHandle) -> Result<(), VerifierError> {
        self.refuse_as(ChannelOpenFailure::AdministrativelyProhibited, reply).await
    }

    async fn refuse_as(&self, reason: ChannelOpenFailure, reply: ChannelOpenHandle) -> Result<(), VerifierError> {
        self.conduct.count_channel();
        reply.reject(reason).await;
        Ok(())
    }
}

/// The server's shown and announced keys.
#[derive(Default)]
struct ServerKeys {
    shown: OnceLock<PublicKey>,
    announced: OnceLock<Vec<PublicKey>>,
}

impl Handler for ServerHandler {
    type Error = VerifierError;

    async fn check_server_key(&mut self, presented: &PublicKeyOrCertificate) -> Result<bool, VerifierError> {
        let PublicKeyOrCertificate::PublicKey { key, .. } = presented else {
            return Err(HostKeyError::Certificate(self.target.address()).into());
        };
        let Ssh { pin, host, port, .. } = &self.target;
        announced_keys::verify(&self.target, key).unwrap_or_else(|| host_pin::verify(pin, host, *port, key))?;
        // A later key exchange of the same connection must show the same key.
        Ok(announced_keys::ed25519(key).is_some_and(|shown| *self.said.shown.get_or_init(|| shown) == shown))
    }

    async fn openssh_ext_host_keys_announced(
        &mut self,
        keys: Vec<russh::keys::PublicKey>,
        _: &mut Session,
    ) -> Result<(), VerifierError> {
        // Only the first announcement counts; it comes before anything else can.
        let _ = self.said.announced.set(keys.iter().filter_map(announced_keys::ed25519).collect());
        Ok(())
    }

    async fn kex_done(&mut self, _: Option<&[u8]>, names: &Names, _: &mut Session) -> Result<(), VerifierError> {
        // Comes before authentication, so a server without strict key exchange learns nothing about this device.
        if names.strict_kex() { Ok(()) } else { Err(HostKeyError::NotStrict(self.target.address()).into()) }
    }

    async fn server_channel_open_session(
        &mut self,
        _: Channel<Msg>,
        reply: ChannelOpenHandle,
        _: &mut Session,
    ) -> Result<(), VerifierError> {
        self.refuse(reply).await
    }

    async fn server_channel_open_x11(
        &mut self,
        _: Channel<Msg>,
        _originator: &str,
        _port: u32,
        reply: ChannelOpenHandle,
        _: &mut Session,
    ) -> Result<(), VerifierError> {
        self.refuse(reply).await
    }

    async fn server_channel_open_agent_forward(
        &mut self,
        _: Channel<Msg>,
        reply: ChannelOpenHandle,
        _: &mut Session,
    ) -> Result<(), VerifierError> {
        self.refuse(reply).await
    }

    async fn server_channel_open_forwarded_tcpip(
        &mut self,
        _: Channel<Msg>,
        _host: &str,
        _port: u32,
        _originator: &str,
        _originator_port: u32,
        reply: ChannelOpenHandle,
        _: &mut Session,
    ) -> Result<(), VerifierError> {
        self.refuse(reply).await
    }

    async fn server_channel_open_forwarded_streamlocal(
        &mut self,
        _: Channel<Msg>,
        _path: &str,
        reply: ChannelOpenHandle,
        _: &mut Session,
    ) -> Result<(), VerifierError> {
        self.refuse(reply).await
    }

    async fn server_channel_open_direct_tcpip(
        &mut self,
        _: Channel<Msg>,
        _host: &str,
        _port: u32,
        _originator: &str,
        _originator_port: u32,
        reply: ChannelOpenHandle,
        _: &mut Session,
    ) -> Result<(), VerifierError> {
        self.refuse(reply).await
    }

    async fn server_channel_open_direct_streamlocal(
        &mut self,
        _: Channel<Msg>,
        _path: &str,
        reply: ChannelOpenHandle,
        _: &mut Session,
    ) -> Result<(), VerifierError> {
        self.refuse(reply).await
    }

    /// What russh refuses by itself it refuses twice.
    async fn should_accept_unknown_server_channel(&mut self, _: ChannelId, _kind: &str) -> bool {
        true
    }

    async fn server_channel_open_unknown(
        &mut self,
        _: Channel<Msg>,
        reply: ChannelOpenHandle,
        _: &mut Session,
    ) -> Result<(), VerifierError> {
        self.refuse_as(ChannelOpenFailure::UnknownChannelType, reply).await
    }
}

/// The stream, with all that must live as long.
struct Tunnel {
    stream: ChannelStream<Msg>,
    _handle: Handle<ServerHandler>,
    _cut: DropGuard,
}

impl AsyncRead for Tunnel {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl AsyncWrite for Tunnel {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        if buf.is_empty() {
            // russh treats an empty write as an error.
            return Poll::Ready(Ok(0));
        }
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

/// A socket that acknowledges at once, and remembers whether anything came.
///
/// sshd leaves Nagle's algorithm on for forwarded sockets: it holds back a small packet until the one before is
/// acknowledged. The kernel would delay that acknowledgement by 40 ms, to send it along with data.
struct GatewaySocket {
    socket: TcpStream,
    greeted: Arc<AtomicBool>,
}

impl AsyncRead for GatewaySocket {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let result = Pin::new(&mut self.socket).poll_read(cx, buf);
        if !buf.filled().is_empty() {
            self.greeted.store(true, Ordering::Relaxed);
        }
        #[cfg(target_os = "linux")]
        if result.is_ready() {
            // This affects only speed; the kernel resets the option by itself, so it is set after each read.
            let _ = rustix::net::sockopt::set_tcp_quickack(&self.socket, true);
        }
        result
    }
}

impl AsyncWrite for GatewaySocket {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.socket).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_shutdown(cx)
    }
}
