//! The public server alone, with limits and a stop of a test's choosing, on a gateway's store.

use std::net::SocketAddr;
use std::sync::LazyLock;

use deskgate_gateway::domain;
use deskgate_gateway::domain::access::Access;
use deskgate_gateway::domain::admission::AdmissionService;
use deskgate_gateway::domain::artifacts::ArtifactService;
use deskgate_gateway::domain::body_quota::BodyQuota;
use deskgate_gateway::domain::events::EventStreams;
use deskgate_gateway::domain::files::FileService;
use deskgate_gateway::domain::mcp_calls::McpCalls;
use deskgate_gateway::domain::trial::TrialTickets;
use deskgate_gateway::domain::unkeyed_requests::UnkeyedRequests;
use deskgate_gateway::domain::webhooks::reception::Reception;
use deskgate_gateway::http::server::{ListenerAccess, ListenerLimits, serve};
use deskgate_gateway::http::{Api, router};
use deskgate_gateway::storage::{ObjectStorage, StoragePlace};
use deskgate_gateway::store::Store;
use deskgate_gateway::store::admissions::Admissions;
use deskgate_gateway::store::commit_limit::CommitLimit;
use deskgate_program::tasks::Tasks;
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::gateway::{cipher, patient};

/// A server that is closed when it is dropped.
pub(crate) struct TestServer {
    pub(crate) address: SocketAddr,
    /// Cancelled: no more work is admitted, but the server stays open.
    pub(crate) draining: CancellationToken,
    _serving: JoinSet<()>,
}

impl TestServer {
    pub(crate) async fn open(store: &Store, limits: ListenerLimits) -> Self {
        Self::with(store, ListenerAccess::default(), limits, Default::default()).await
    }

    pub(crate) async fn guarded(store: &Store, entrance: ListenerAccess, limits: ListenerLimits) -> Self {
        Self::with(store, entrance, limits, Default::default()).await
    }

    pub(crate) async fn with(
        store: &Store,
        entrance: ListenerAccess,
        limits: ListenerLimits,
        callers: domain::CallerLimits,
    ) -> Self {
        let draining = CancellationToken::new();
        let api = api(store, limits, callers, draining.clone());
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a port");
        let address = listener.local_addr().expect("bound");
        let mut serving = JoinSet::new();
        serving.spawn(serve(listener, entrance, router(api), limits, CancellationToken::new()));
        Self { address, draining, _serving: serving }
    }
}

/// A folder for the bytes of files.
pub(crate) fn storage() -> ObjectStorage {
    static FOLDER: LazyLock<TempDir> = LazyLock::new(|| tempfile::tempdir().expect("a temporary directory"));
    StoragePlace::in_state_dir(FOLDER.path()).open().expect("opened")
}

/// What the handlers need, on a store.
pub(crate) fn api(
    store: &Store,
    limits: ListenerLimits,
    callers: domain::CallerLimits,
    draining: CancellationToken,
) -> Api {
    let tasks = Tasks::new(CancellationToken::new());
    let admissions = Admissions::start(store, &tasks, &CommitLimit::fixed(1));
    let access = Access::new(store.clone(), &domain::CallerLimits { rate: patient().rate, ..callers });
    let (streams, streaming) = EventStreams::new(store.clone(), &callers, draining.clone(), tasks.stopping());
    tasks.spawn("streams", streaming);
    let (unkeyed, noting) = UnkeyedRequests::new(store.clone(), tasks.stopping());
    tasks.spawn("unkeyed requests", noting);
    let (mcp_calls, closing) = McpCalls::new(store.clone(), callers.retention, tasks.stopping());
    tasks.spawn("closed calls", closing);
    let admission = AdmissionService::new(store.clone(), admissions, &Default::default(), Default::default());
    let (reception, noting) = Reception::new(store.clone(), cipher(), admission.clone());
    tasks.spawn("receipts", noting);
    Api {
        store: store.clone(),
        access,
        bodies: BodyQuota::new(&callers),
        reception,
        files: FileService::new(store.clone(), storage(), callers.storage, callers.uploads_per_key),
        artifacts: ArtifactService::new(store.clone(), storage()),
        trials: TrialTickets::new(cipher()),
        streams,
        unkeyed,
        mcp_calls,
        admission,
        draining,
        limits: callers,
        listener: limits,
        hosted: None,
    }
}
