//! The dispatcher's side of the link: the traits it needs, and the frames that wait to be sent.

use std::collections::VecDeque;
use std::pin::Pin;

use deskgate_protocol::control::{DeviceFrame, GatewayFrame, InFlightRun, Welcome};
use futures_util::FutureExt;
use tokio::sync::{mpsc, watch};

/// How many frames may wait for the session. Above this the dispatcher reads no more frames, so that a gateway which
/// does not read cannot fill this device's memory.
const MAX_OUTBOX_FRAMES: usize = 256;

/// Connects to the gateway. The real one is [`crate::link`]; tests use channels.
pub trait Link: Send + 'static {
    /// One connection to the gateway.
    type Session: LinkSession;

    /// Dials until a gateway accepts the device, however long that takes. Reads `in_flight` anew for every `hello`.
    /// Dropping the future ends the dialling.
    fn connect(&mut self, in_flight: InFlightReader) -> impl Future<Output = Self::Session> + Send;
}

/// A session after its handshake. Dropping it closes the connection.
pub trait LinkSession: Send + 'static {
    /// The gateway's welcome.
    fn welcome(&self) -> &Welcome;

    /// The bounded queue towards the gateway.
    fn sender(&self) -> mpsc::Sender<DeviceFrame>;

    /// The next frame, or `None` when the connection is lost, and again after that. Must be cancel-safe.
    fn next(&mut self) -> impl Future<Output = Option<GatewayFrame>> + Send;
}

impl Link for crate::link::Link {
    type Session = crate::link::Session;

    async fn connect(&mut self, in_flight: InFlightReader) -> Self::Session {
        crate::link::Link::connect(self, || std::future::ready(in_flight.get())).await
    }
}

impl LinkSession for crate::link::Session {
    fn welcome(&self) -> &Welcome {
        crate::link::Session::welcome(self)
    }

    fn sender(&self) -> mpsc::Sender<DeviceFrame> {
        crate::link::Session::sender(self)
    }

    fn next(&mut self) -> impl Future<Output = Option<GatewayFrame>> + Send {
        crate::link::Session::next(self)
    }
}

/// The runs in flight at the time of reading.
#[derive(Clone, Debug)]
pub struct InFlightReader(pub(super) watch::Receiver<Vec<InFlightRun>>);

impl InFlightReader {
    /// Every run in the journal that the gateway has not settled.
    pub fn get(&self) -> Vec<InFlightRun> {
        self.0.borrow().clone()
    }
}

/// An event of the connection.
#[derive(Debug)]
pub(super) enum LineEvent {
    Up(Welcome),
    Frame(GatewayFrame),
    Lost,
    /// Waiting frames were sent; the queue has free slots.
    Room,
}

type ConnectFuture<L> = Pin<Box<dyn Future<Output = (L, <L as Link>::Session)> + Send>>;

enum LineState<L: Link> {
    Dialling(ConnectFuture<L>),
    Up {
        link: L,
        session: L::Session,
        sender: mpsc::Sender<DeviceFrame>,
    },
    /// Only during a change of state.
    Changing,
}

pub(super) struct GatewayLine<L: Link> {
    state: LineState<L>,
    in_flight: InFlightReader,
    outbox: VecDeque<DeviceFrame>,
}

impl<L: Link> GatewayLine<L> {
    pub(super) fn new(link: L, in_flight: InFlightReader) -> Self {
        Self { state: LineState::Dialling(dial(link, in_flight.clone())), in_flight, outbox: VecDeque::new() }
    }

    pub(super) fn is_up(&self) -> bool {
        matches!(self.state, LineState::Up { .. })
    }

    pub(super) fn has_room(&self) -> bool {
        self.is_up() && self.outbox.len() < MAX_OUTBOX_FRAMES
    }

    /// Queues a frame. Without a session it is dropped: anything that must arrive is sent again from the dispatcher's
    /// own state in the next one.
    pub(super) fn send(&mut self, frame: DeviceFrame) {
        let LineState::Up { sender, .. } = &self.state else { return };
        if !self.outbox.is_empty() {
            self.outbox.push_back(frame);
        } else if let Err(mpsc::error::TrySendError::Full(frame)) = sender.try_send(frame) {
            self.outbox.push_back(frame);
        }
    }

    /// Sends an optional frame, or drops it if it cannot be sent at once.
    pub(super) fn send_if_free(&self, frame: DeviceFrame) {
        if let LineState::Up { sender, .. } = &self.state
            && self.outbox.is_empty()
        {
            let _ = sender.try_send(frame);
        }
    }

    /// Waits for the next event. Cancel-safe.
    pub(super) async fn next(&mut self) -> LineEvent {
        let news = match &mut self.state {
            LineState::Dialling(dialling) => {
                let (link, session) = dialling.await;
                let welcome = session.welcome().clone();
                let sender = session.sender();
                self.state = LineState::Up { link, session, sender };
                LineEvent::Up(welcome)
            }
            LineState::Up { session, sender, .. } => {
                let blocked = !self.outbox.is_empty();
                tokio::select! {
                    permit = sender.reserve(), if blocked => match permit {
                        Ok(permit) => {
                            if let Some(frame) = self.outbox.pop_front() {
                                permit.send(frame);
                            }
                            LineEvent::Room
                        }
                        Err(_) => LineEvent::Lost,
                    },
                    frame = session.next(), if self.outbox.len() < MAX_OUTBOX_FRAMES => {
                        frame.map_or(LineEvent::Lost, LineEvent::Frame)
                    }
                }
            }
            LineState::Changing => LineEvent::Lost,
        };
        if matches!(news, LineEvent::Lost) {
            self.redial();
        }
        news
    }

    /// Frames that have come by now, at most so many.
    pub(super) fn frames_that_are_there(&mut self, most: usize) -> Vec<GatewayFrame> {
        let mut frames = Vec::new();
        while let LineState::Up { session, .. } = &mut self.state
            && frames.len() < most
            && self.outbox.is_empty()
            && let Some(Some(frame)) = session.next().now_or_never()
        {
            frames.push(frame);
        }
        frames
    }

    fn redial(&mut self) {
        self.outbox.clear();
        if let LineState::Up { link, .. } = std::mem::replace(&mut self.state, LineState::Changing) {
            self.state = LineState::Dialling(dial(link, self.in_flight.clone()));
        }
    }
}

fn dial<L: Link>(mut link: L, in_flight: InFlightReader) -> ConnectFuture<L> {
    Box::pin(async move {
        let session = link.connect(in_flight).await;
        (link, session)
    })
}
