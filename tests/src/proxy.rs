//! A network in between: it can be cut, frozen, muted, deafened and healed, and it can be a long way.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

use crate::gateway::Address;

/// What the network does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Weather {
    /// Connections stay open and nothing passes, in either direction: a network that drops packets.
    is_frozen: bool,
    /// What comes from the side that dialled is held back; the other direction passes.
    is_mute: bool,
    /// What the side that dialled is told is held back; the other direction passes.
    is_deaf: bool,
    /// New connections are reset at once.
    is_cut: bool,
    /// How often it was cut. Connections of before are reset, even if it was healed again already.
    cuts: u64,
}

/// A listener on loopback that passes everything on to a target.
#[derive(Debug)]
pub struct Proxy {
    address: SocketAddr,
    target: Address,
    weather: watch::Sender<Weather>,
    _tasks: JoinSet<()>,
}

impl Proxy {
    /// Listens, and passes on to wherever the target is at the time of each connection.
    pub async fn to(target: Address) -> Self {
        Self::long_way(SocketAddr::from(([127, 0, 0, 1], 0)), target, Duration::ZERO).await
    }

    /// As [`Proxy::to`], listening somewhere else, and everything is under way for so long in either direction.
    pub async fn long_way(listen: SocketAddr, target: Address, lag: Duration) -> Self {
        let listener = TcpListener::bind(listen).await.expect("ports are left");
        let address = listener.local_addr().expect("it is bound");
        let (weather, forecast) = watch::channel(Weather::default());
        let mut tasks = JoinSet::new();
        tasks.spawn(accept(listener, target.clone(), forecast, lag));
        Self { address, target, weather, _tasks: tasks }
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Passes new connections on to another target.
    pub fn lead_to(&self, target: SocketAddr) {
        self.target.set(target);
    }

    /// Lets nothing pass; what was sent meanwhile arrives after [`Proxy::heal`].
    pub fn freeze(&self) {
        self.weather.send_modify(|weather| weather.is_frozen = true);
    }

    /// Lets pass what the side that dialled is told, and holds back what it says until [`Proxy::heal`].
    pub fn mute(&self) {
        self.weather.send_modify(|weather| weather.is_mute = true);
    }

    /// Lets pass what the side that dialled says, and holds back what it is told until [`Proxy::heal`].
    pub fn deafen(&self) {
        self.weather.send_modify(|weather| weather.is_deaf = true);
    }

    /// Resets all connections and every new one. What was under way is lost.
    pub fn cut(&self) {
        self.weather.send_modify(|weather| {
            weather.is_cut = true;
            weather.cuts += 1;
        });
    }

    /// Everything passes again.
    pub fn heal(&self) {
        self.weather.send_modify(|weather| *weather = Weather { cuts: weather.cuts, ..Weather::default() });
    }
}

async fn accept(listener: TcpListener, target: Address, weather: watch::Receiver<Weather>, lag: Duration) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => if let Ok((stream, _)) = accepted {
                connections.spawn(pass(stream, target.get(), weather.clone(), lag));
            },
            Some(_) = connections.join_next() => {}
        }
    }
}

async fn pass(near: TcpStream, target: SocketAddr, weather: watch::Receiver<Weather>, lag: Duration) {
    let mut until_cut = weather.clone();
    let cuts = until_cut.borrow().cuts;
    let passing = async {
        let far = TcpStream::connect(target).await?;
        near.set_nodelay(true)?;
        far.set_nodelay(true)?;
        let (near_in, near_out) = near.into_split();
        let (far_in, far_out) = far.into_split();
        if !lag.is_zero() {
            return tokio::try_join!(carry(near_in, far_out, lag), carry(far_in, near_out, lag));
        }
        let said = copy(near_in, far_out, weather.clone(), |weather| weather.is_frozen || weather.is_mute);
        let told = copy(far_in, near_out, weather, |weather| weather.is_frozen || weather.is_deaf);
        tokio::try_join!(said, told)
    };
    tokio::select! {
        _ = until_cut.wait_for(|weather| weather.is_cut || weather.cuts != cuts) => {}
        // Either side may end; then both are dropped.
        _ = passing => {}
    }
}

/// Pieces that are under way at once, at most.
const UNDER_WAY: usize = 256;

/// Passes on what it reads, each piece so much later.
async fn carry(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, lag: Duration) -> std::io::Result<()> {
    let (leaving, mut arriving) = mpsc::channel::<(Instant, Vec<u8>)>(UNDER_WAY);
    let read = async {
        let mut buffer = vec![0; 16 * 1024];
        loop {
            let length = from.read(&mut buffer).await?;
            let is_over = leaving.send((Instant::now() + lag, buffer[..length].to_vec())).await.is_err();
            if length == 0 || is_over {
                return Ok::<(), std::io::Error>(());
            }
        }
    };
    let write = async {
        while let Some((due, piece)) = arriving.recv().await {
            sleep_until(due).await;
            if piece.is_empty() {
                return Err(std::io::ErrorKind::UnexpectedEof.into());
            }
            to.write_all(&piece).await?;
        }
        Ok(())
    };
    tokio::try_join!(read, write).map(drop)
}

async fn copy(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    mut weather: watch::Receiver<Weather>,
    holds_back: fn(&Weather) -> bool,
) -> std::io::Result<()> {
    let mut buffer = vec![0; 64 * 1024];
    loop {
        let length = from.read(&mut buffer).await?;
        // What was read while nothing passes is held back until it does.
        let _ = weather.wait_for(|weather| !holds_back(weather)).await;
        if length == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        to.write_all(&buffer[..length]).await?;
    }
}
