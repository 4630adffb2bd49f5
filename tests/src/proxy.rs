//! A network between device and gateway: it can be cut, reset, frozen, muted, deafened, narrowed, delayed and healed.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rustix::net::sockopt::set_socket_linger;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until};

use crate::gateway::Address;

/// The conditions of the network.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct NetworkConditions {
    /// Connections stay open and no bytes pass in either direction, as in a network that drops packets.
    is_frozen: bool,
    /// Bytes from the dialling side are held back; the other direction passes.
    is_mute: bool,
    /// Bytes to the dialling side are held back; the other direction passes.
    is_deaf: bool,
    /// New connections are closed at once.
    is_cut: bool,
    /// How often it was cut. Connections from before a cut are closed, even if it is healed by then.
    cuts: u64,
    /// Connections are reset instead of closed.
    resets: bool,
    /// Kilobits per second in each direction; 0 means unlimited.
    kilobits: u32,
}

/// Counts of what was done to connections.
#[derive(Debug)]
struct ProxyCounters {
    resets: AtomicU64,
    held_back: AtomicU64,
    slowed: AtomicU64,
    /// Bytes that passed, in both directions together.
    passed: AtomicU64,
    /// How many bytes have passed when all connections are closed; none: `u64::MAX`.
    cut_at: AtomicU64,
}

impl Default for ProxyCounters {
    fn default() -> Self {
        let zero = || AtomicU64::new(0);
        Self { resets: zero(), held_back: zero(), slowed: zero(), passed: zero(), cut_at: AtomicU64::new(u64::MAX) }
    }
}

/// A listener on loopback that forwards everything to a target.
#[derive(Debug)]
pub struct Proxy {
    address: SocketAddr,
    targets: Vec<Address>,
    weather: watch::Sender<NetworkConditions>,
    counts: Arc<ProxyCounters>,
    _tasks: JoinSet<()>,
}

impl Proxy {
    /// Listens, and forwards each connection to the target's address at that time.
    pub async fn to(target: Address) -> Self {
        Self::to_one_of(vec![target]).await
    }

    /// As [`Proxy::to`], on another address, with a delay in either direction.
    pub async fn long_way(listen: SocketAddr, target: Address, lag: Duration) -> Self {
        Self::between(listen, vec![target], lag).await
    }

    /// As [`Proxy::to`], for several targets in turn, like a load balancer in front of replicas: each connection goes
    /// to the next target that accepts it.
    pub async fn to_one_of(targets: Vec<Address>) -> Self {
        Self::between(SocketAddr::from(([127, 0, 0, 1], 0)), targets, Duration::ZERO).await
    }

    async fn between(listen: SocketAddr, targets: Vec<Address>, lag: Duration) -> Self {
        let listener = TcpListener::bind(listen).await.expect("ports are left");
        let address = listener.local_addr().expect("it is bound");
        let weather = watch::Sender::new(NetworkConditions::default());
        let (mut tasks, counts) = (JoinSet::new(), Arc::<ProxyCounters>::default());
        let way = ConnectionContext { targets: targets.clone(), weather: weather.clone(), counts: counts.clone(), lag };
        tasks.spawn(accept(listener, way));
        Self { address, targets, weather, counts, _tasks: tasks }
    }

    /// The address it listens on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Forwards new connections to another target.
    pub fn lead_to(&self, target: SocketAddr) {
        self.targets.iter().for_each(|known| known.set(target));
    }

    /// How many connections it has reset.
    pub fn resets(&self) -> u64 {
        self.counts.resets.load(Ordering::SeqCst)
    }

    /// How many bytes were held back.
    pub fn held_back(&self) -> u64 {
        self.counts.held_back.load(Ordering::SeqCst)
    }

    /// How many bytes passed while it was narrow.
    pub fn slowed(&self) -> u64 {
        self.counts.slowed.load(Ordering::SeqCst)
    }

    /// Limits each direction to this many kilobits per second.
    pub fn narrow(&self, kilobits: u32) {
        self.weather.send_modify(|weather| weather.kilobits = kilobits);
    }

    /// Lets no bytes pass; bytes sent meanwhile arrive after [`Proxy::heal`].
    pub fn freeze(&self) {
        self.weather.send_modify(|weather| weather.is_frozen = true);
    }

    /// Passes bytes to the dialling side, and holds back bytes from it until [`Proxy::heal`].
    pub fn mute(&self) {
        self.weather.send_modify(|weather| weather.is_mute = true);
    }

    /// Passes bytes from the dialling side, and holds back bytes to it until [`Proxy::heal`].
    pub fn deafen(&self) {
        self.weather.send_modify(|weather| weather.is_deaf = true);
    }

    /// Closes all connections and every new one. Bytes in transit are lost.
    pub fn cut(&self) {
        self.weather.send_modify(|weather| {
            weather.is_cut = true;
            weather.cuts += 1;
            weather.resets = false;
        });
    }

    /// Resets all connections at both ends. New ones pass.
    pub fn reset(&self) {
        self.weather.send_modify(|weather| {
            weather.cuts += 1;
            weather.resets = true;
        });
    }

    /// Closes all connections once so many more bytes have passed, in both directions together. New ones pass. Returns when that
    /// has happened.
    pub async fn cut_after(&self, bytes: u64) {
        let mut weather = self.weather.subscribe();
        let cuts = weather.borrow().cuts;
        // At least one, so that there is a last one.
        self.counts.cut_at.store(self.passed() + bytes.max(1), Ordering::SeqCst);
        // It ends with the proxy, which is borrowed here.
        let _ = weather.wait_for(|weather| weather.cuts != cuts).await;
    }

    /// How many bytes have passed, in both directions together, without a delay.
    pub fn passed(&self) -> u64 {
        self.counts.passed.load(Ordering::SeqCst)
    }

    /// Everything passes again.
    pub fn heal(&self) {
        self.weather
            .send_modify(|weather| *weather = NetworkConditions { cuts: weather.cuts, ..NetworkConditions::default() });
    }
}

/// The state that all connections share.
#[derive(Clone)]
struct ConnectionContext {
    targets: Vec<Address>,
    weather: watch::Sender<NetworkConditions>,
    counts: Arc<ProxyCounters>,
    lag: Duration,
}

async fn accept(listener: TcpListener, way: ConnectionContext) {
    let mut connections = JoinSet::new();
    let targets = &way.targets;
    for turn in 0.. {
        tokio::select! {
            accepted = listener.accept() => if let Ok((stream, _)) = accepted {
                let in_turn = (0..targets.len()).map(|place| targets[(turn + place) % targets.len()].get()).collect();
                connections.spawn(pass(stream, in_turn, way.clone()));
            },
            Some(_) = connections.join_next() => {}
        }
    }
}

async fn pass(mut near: TcpStream, targets: Vec<SocketAddr>, way: ConnectionContext) {
    let ConnectionContext { weather, counts, lag, .. } = way;
    let mut until_cut = weather.subscribe();
    let cuts = until_cut.borrow().cuts;
    let mut far = None;
    let passing = async {
        let far = far.insert(first_of(&targets).await?);
        near.set_nodelay(true)?;
        far.set_nodelay(true)?;
        let ((near_in, near_out), (far_in, far_out)) = (near.split(), far.split());
        if !lag.is_zero() {
            return tokio::try_join!(carry(near_in, far_out, lag), carry(far_in, near_out, lag));
        }
        let said = copy(near_in, far_out, &weather, &counts, |weather| weather.is_frozen || weather.is_mute);
        let told = copy(far_in, near_out, &weather, &counts, |weather| weather.is_frozen || weather.is_deaf);
        tokio::try_join!(said, told)
    };
    let is_reset = tokio::select! {
        weather = until_cut.wait_for(|weather| weather.is_cut || weather.cuts != cuts) => {
            weather.is_ok_and(|weather| weather.resets)
        }
        // Either side may end; then both are dropped.
        _ = passing => false,
    };
    if is_reset {
        counts.resets.fetch_add(1, Ordering::SeqCst);
        for stream in std::iter::once(&near).chain(&far) {
            // Closing without lingering resets the connection.
            let _ = set_socket_linger(stream, Some(Duration::ZERO));
        }
    }
}

/// Bytes that a narrow connection passes at once.
const NARROW_CHUNK_BYTES: usize = 512;
/// The most delayed chunks in transit.
const MAX_CHUNKS_IN_FLIGHT: usize = 256;

/// Forwards what it reads, each chunk after a delay.
async fn carry(mut from: ReadHalf<'_>, mut to: WriteHalf<'_>, lag: Duration) -> std::io::Result<()> {
    let (leaving, mut arriving) = mpsc::channel::<(Instant, Vec<u8>)>(MAX_CHUNKS_IN_FLIGHT);
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

/// Connects to the first target that accepts.
async fn first_of(targets: &[SocketAddr]) -> std::io::Result<TcpStream> {
    let mut refusal = std::io::ErrorKind::NotFound.into();
    for target in targets {
        match TcpStream::connect(target).await {
            Ok(stream) => return Ok(stream),
            Err(error) => refusal = error,
        }
    }
    Err(refusal)
}

async fn copy(
    mut from: ReadHalf<'_>,
    mut to: WriteHalf<'_>,
    changes: &watch::Sender<NetworkConditions>,
    counts: &ProxyCounters,
    holds_back: fn(&NetworkConditions) -> bool,
) -> std::io::Result<()> {
    let (mut buffer, mut weather) = (vec![0; 64 * 1024], changes.subscribe());
    loop {
        let length = from.read(&mut buffer).await?;
        if holds_back(&weather.borrow()) {
            counts.held_back.fetch_add(length as u64, Ordering::SeqCst);
        }
        // Bytes read while the direction is closed are held back until it opens.
        let _ = weather.wait_for(|weather| !holds_back(weather)).await;
        if length == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        let mut rest = &buffer[..length];
        while !rest.is_empty() {
            let kilobits = weather.borrow().kilobits;
            let piece = rest.len().min(if kilobits == 0 { rest.len() } else { NARROW_CHUNK_BYTES });
            let until_cut = counts.cut_at.load(Ordering::SeqCst).saturating_sub(counts.passed.load(Ordering::SeqCst));
            let piece = piece.min(usize::try_from(until_cut).unwrap_or(usize::MAX));
            if kilobits > 0 {
                sleep(Duration::from_micros(piece as u64 * 8000 / u64::from(kilobits))).await;
                counts.slowed.fetch_add(piece as u64, Ordering::SeqCst);
            }
            to.write_all(&rest[..piece]).await?;
            rest = &rest[piece..];
            let passed = counts.passed.fetch_add(piece as u64, Ordering::SeqCst) + piece as u64;
            let cut_at = counts.cut_at.load(Ordering::SeqCst);
            // Whoever passes the last byte.
            if passed >= cut_at
                && counts.cut_at.compare_exchange(cut_at, u64::MAX, Ordering::SeqCst, Ordering::SeqCst).is_ok()
            {
                changes.send_modify(|weather| weather.cuts += 1);
                return Err(std::io::ErrorKind::ConnectionAborted.into());
            }
        }
    }
}
