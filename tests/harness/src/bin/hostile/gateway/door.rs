//! The address that the desktop dials: it leads to the real gateway, or to the hostile one.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::Context;
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_util::task::AbortOnDropHandle;

/// How long a visitor may take to come after it was told to dial.
const VISIT_TIMEOUT: Duration = Duration::from_secs(20);

/// The door. Its address stays.
pub(super) struct Door {
    pub(super) address: SocketAddr,
    honest: watch::Sender<Option<SocketAddr>>,
    visitors: mpsc::UnboundedReceiver<TcpStream>,
    _accepting: AbortOnDropHandle<()>,
}

impl Door {
    /// A door that leads to the real gateway.
    pub(super) async fn to(gateway: SocketAddr) -> anyhow::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let (honest, leads) = watch::channel(Some(gateway));
        let (sender, visitors) = mpsc::unbounded_channel();
        let accepting = AbortOnDropHandle::new(tokio::spawn(accept(listener, leads, sender)));
        Ok(Self { address, honest, visitors, _accepting: accepting })
    }

    /// Leads to the real gateway from now on, or to the hostile one. Open connections of the other kind are closed.
    pub(super) fn leads_to(&mut self, gateway: Option<SocketAddr>) {
        self.honest.send_replace(gateway);
        self.turn_away();
    }

    /// Closes the connections that nobody has taken.
    pub(super) fn turn_away(&mut self) {
        while self.visitors.try_recv().is_ok() {}
    }

    /// The next connection.
    pub(super) async fn visitor(&mut self) -> anyhow::Result<TcpStream> {
        let next = timeout(VISIT_TIMEOUT, self.visitors.recv()).await.context("the desktop does not dial")?;
        let socket = next.context("the door is closed")?;
        socket.set_nodelay(true)?;
        Ok(socket)
    }
}

async fn accept(
    listener: TcpListener,
    mut leads: watch::Receiver<Option<SocketAddr>>,
    visitors: mpsc::UnboundedSender<TcpStream>,
) {
    let mut passing = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            Ok(()) = leads.changed() => {
                passing.shutdown().await;
                continue;
            }
        };
        let Ok((mut socket, _)) = accepted else { continue };
        let to = *leads.borrow();
        match to {
            Some(gateway) => drop(passing.spawn(async move {
                if let Ok(mut far) = TcpStream::connect(gateway).await {
                    let _ = copy_bidirectional(&mut socket, &mut far).await;
                }
            })),
            None => drop(visitors.send(socket)),
        }
    }
}
