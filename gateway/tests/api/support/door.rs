//! The public door alone, with limits and a stop of a test's choosing, on a gateway's store.

use std::net::SocketAddr;

use deskgate_gateway::domain;
use deskgate_gateway::domain::access::Access;
use deskgate_gateway::domain::admission::AdmissionDesk;
use deskgate_gateway::domain::bodies::Bodies;
use deskgate_gateway::domain::events::Streams;
use deskgate_gateway::domain::trial::Trials;
use deskgate_gateway::domain::webhooks::reception::Reception;
use deskgate_gateway::http::server::{Entrance, Limits, serve};
use deskgate_gateway::http::{Api, router};
use deskgate_gateway::store::Store;
use deskgate_gateway::store::admissions::Admissions;
use deskgate_program::tasks::Tasks;
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::world::{patient, seal};

/// A door that is closed when it is dropped.
pub(crate) struct Door {
    pub(crate) address: SocketAddr,
    /// Cancelled: nothing more is admitted, but the door stays open.
    pub(crate) draining: CancellationToken,
    _serving: JoinSet<()>,
}

impl Door {
    pub(crate) async fn open(store: &Store, limits: Limits) -> Self {
        Self::with(store, Entrance::default(), limits, Default::default()).await
    }

    pub(crate) async fn guarded(store: &Store, entrance: Entrance, limits: Limits) -> Self {
        Self::with(store, entrance, limits, Default::default()).await
    }

    pub(crate) async fn with(store: &Store, entrance: Entrance, limits: Limits, callers: domain::Limits) -> Self {
        let draining = CancellationToken::new();
        let api = api(store, limits, callers, draining.clone());
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a port");
        let address = listener.local_addr().expect("bound");
        let mut serving = JoinSet::new();
        serving.spawn(serve(listener, entrance, router(api), limits, CancellationToken::new()));
        Self { address, draining, _serving: serving }
    }
}

/// What the handlers need, on a store.
pub(crate) fn api(store: &Store, limits: Limits, callers: domain::Limits, draining: CancellationToken) -> Api {
    let tasks = Tasks::new(CancellationToken::new());
    let admissions = Admissions::start(store, &tasks, 1);
    let access = Access::new(store.clone(), &domain::Limits { rate: patient().rate, ..callers });
    let (streams, streaming) = Streams::new(store.clone(), &callers, draining.clone(), tasks.stopping());
    tasks.spawn("streams", streaming);
    let desk = AdmissionDesk::new(store.clone(), admissions, &Default::default());
    let (reception, noting) = Reception::new(store.clone(), seal(), desk.clone());
    tasks.spawn("receipts", noting);
    Api {
        store: store.clone(),
        access,
        bodies: Bodies::new(&callers),
        reception,
        trials: Trials::new(seal()),
        streams,
        desk,
        draining,
        limits: callers,
        listener: limits,
        hosted: None,
    }
}
