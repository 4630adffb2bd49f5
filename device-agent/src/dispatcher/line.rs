//! The dispatcher's side of the link: what it needs of one, and the frames that wait to be sent.

use std::collections::VecDeque;
use std::pin::Pin;

use deskgate_protocol::control::{DeviceFrame, GatewayFrame, InFlight, Welcome};
use tokio::sync::{mpsc, watch};

/// Frames that wait for the session. At this many the dispatcher reads no more frames, so that a
/// gateway which does not read cannot make this device remember without bound.
const OUTBOX: usize = 256;

/// Gets through to the gateway. The real one is [`crate::link`]; tests bring channels.
pub trait Link: Send + 'static {
    /// One line to the gateway.
    type Session: Session;

    /// Dials until a gateway lets the device in, however long that takes. Asks `in_flight` for
    /// every `hello` anew. Dropping the future ends the dialling.
    fn connect(&mut self, in_flight: InFlightNow) -> impl Future<Output = Self::Session> + Send;
}

/// A session after its handshake. Dropping it hangs up.
pub trait Session: Send + 'static {
    /// What the gateway said when it let the device in.
    fn welcome(&self) -> &Welcome;

    /// The bounded queue towards the gateway.
    fn sender(&self) -> mpsc::Sender<DeviceFrame>;

    /// The next frame, or `None` when the line is lost. Must be cancel-safe.
    fn next(&mut self) -> impl Future<Output = Option<GatewayFrame>> + Send;
}

impl Link for crate::link::Link {
    type Session = crate::link::Session;

    async fn connect(&mut self, in_flight: InFlightNow) -> Self::Session {
        crate::link::Link::connect(self, || std::future::ready(in_flight.get())).await
    }
}

impl Session for crate::link::Session {
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

/// What is in flight at the moment of asking.
#[derive(Clone, Debug)]
pub struct InFlightNow(pub(super) watch::Receiver<Vec<InFlight>>);

impl InFlightNow {
    /// Every run in the journal that the gateway has not settled.
    pub fn get(&self) -> Vec<InFlight> {
        self.0.borrow().clone()
    }
}

/// What happened on the line.
#[derive(Debug)]
pub(super) enum LineNews {
    Up(Welcome),
    Frame(GatewayFrame),
    Lost,
    /// Frames that waited went out; there is room for more.
    Room,
}

type Dialling<L> = Pin<Box<dyn Future<Output = (L, <L as Link>::Session)> + Send>>;

enum State<L: Link> {
    Dialling(Dialling<L>),
    Up {
        link: L,
        session: L::Session,
        sender: mpsc::Sender<DeviceFrame>,
    },
    /// Only while the state is being changed.
    Changing,
}

pub(super) struct Line<L: Link> {
    state: State<L>,
    in_flight: InFlightNow,
    outbox: VecDeque<DeviceFrame>,
}

impl<L: Link> Line<L> {
    pub(super) fn new(link: L, in_flight: InFlightNow) -> Self {
        Self { state: State::Dialling(dial(link, in_flight.clone())), in_flight, outbox: VecDeque::new() }
    }

    pub(super) fn is_up(&self) -> bool {
        matches!(self.state, State::Up { .. })
    }

    pub(super) fn has_room(&self) -> bool {
        self.is_up() && self.outbox.len() < OUTBOX
    }

    /// Puts a frame on its way. Without a session it is dropped: whatever must arrive is sent
    /// again from the dispatcher's own state when there is one.
    pub(super) fn send(&mut self, frame: DeviceFrame) {
        let State::Up { sender, .. } = &self.state else { return };
        if !self.outbox.is_empty() {
            self.outbox.push_back(frame);
        } else if let Err(mpsc::error::TrySendError::Full(frame)) = sender.try_send(frame) {
            self.outbox.push_back(frame);
        }
    }

    /// Sends a frame that nobody needs if it cannot go at once.
    pub(super) fn send_if_free(&self, frame: DeviceFrame) {
        if let State::Up { sender, .. } = &self.state
            && self.outbox.is_empty()
        {
            let _ = sender.try_send(frame);
        }
    }

    /// Waits for news. Cancel-safe.
    pub(super) async fn next(&mut self) -> LineNews {
        let news = match &mut self.state {
            State::Dialling(dialling) => {
                let (link, session) = dialling.await;
                let welcome = session.welcome().clone();
                let sender = session.sender();
                self.state = State::Up { link, session, sender };
                LineNews::Up(welcome)
            }
            State::Up { session, sender, .. } => {
                let blocked = !self.outbox.is_empty();
                tokio::select! {
                    permit = sender.reserve(), if blocked => match permit {
                        Ok(permit) => {
                            if let Some(frame) = self.outbox.pop_front() {
                                permit.send(frame);
                            }
                            LineNews::Room
                        }
                        Err(_) => LineNews::Lost,
                    },
                    frame = session.next(), if self.outbox.len() < OUTBOX => {
                        frame.map_or(LineNews::Lost, LineNews::Frame)
                    }
                }
            }
            State::Changing => LineNews::Lost,
        };
        if matches!(news, LineNews::Lost) {
            self.redial();
        }
        news
    }

    fn redial(&mut self) {
        self.outbox.clear();
        if let State::Up { link, .. } = std::mem::replace(&mut self.state, State::Changing) {
            self.state = State::Dialling(dial(link, self.in_flight.clone()));
        }
    }
}

fn dial<L: Link>(mut link: L, in_flight: InFlightNow) -> Dialling<L> {
    Box::pin(async move {
        let session = link.connect(in_flight).await;
        (link, session)
    })
}
