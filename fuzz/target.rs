//! A router without load limits, on a store in which every resource exists. Shared by the fuzz target and by
//! `gateway/tests/api/arbitrary.rs`, so that both keep compiling.

use std::num::NonZeroU32;
use std::time::Duration;

use axum::Router;
use deskgate_gateway::domain;
use deskgate_gateway::domain::access::Access;
use deskgate_gateway::domain::admission::AdmissionService;
use deskgate_gateway::domain::artifacts::ArtifactService;
use deskgate_gateway::domain::body_quota::BodyQuota;
use deskgate_gateway::domain::deliveries::PayloadBuilder;
use deskgate_gateway::domain::desktop::{CallbackContext, Desktop};
use deskgate_gateway::domain::events::EventStreams;
use deskgate_gateway::domain::files::FileService;
use deskgate_gateway::domain::mcp_calls::McpCalls;
use deskgate_gateway::domain::rates::Rate;
use deskgate_gateway::domain::trial::TrialTickets;
use deskgate_gateway::domain::unkeyed_requests::UnkeyedRequests;
use deskgate_gateway::domain::webhooks::reception::Reception;
use deskgate_gateway::encryption::DataCipher;
use deskgate_gateway::http::{self, Api, server};
use deskgate_gateway::storage::ObjectStorage;
use deskgate_gateway::store::Store;
use deskgate_gateway::store::admissions::Admissions;
use deskgate_gateway::store::commit_limit::CommitLimit;
use deskgate_program::tasks::Tasks;
use deskgate_protocol::EndpointId;
use deskgate_protocol::canonical::Sha256Digest;
use deskgate_protocol::identity::PublicKey;
use deskgate_protocol::management::{CreateApplication, PublishEndpoint, SetAccess};
use tokio_util::sync::CancellationToken;

use super::request::Names;

/// Makes an application with a service and the other resources, and the router.
pub(crate) async fn furnish(store: &Store, seal: DataCipher, storage: ObjectStorage) -> (Router, Names) {
    let seed: [u8; 32] = std::array::from_fn(|_| rand::random());
    let key = PublicKey::of(&ed25519_dalek::SigningKey::from_bytes(&seed));
    let device = store.pair_device("a laptop", &key).await.expect("paired").device_id;
    let tasks = Tasks::new(CancellationToken::new());
    let plenty = NonZeroU32::new(1_000_000).expect("not zero");
    let limits = domain::CallerLimits {
        waiting_runs_per_application: u32::MAX,
        rate: Rate { per_second: plenty, burst: plenty },
        ..Default::default()
    };
    let admission = AdmissionService::new(
        store.clone(),
        Admissions::start(store, &tasks, &CommitLimit::fixed(1)),
        &limits,
        Default::default(),
    );
    let callbacks =
        CallbackContext { scribe: PayloadBuilder::new(store.clone(), seal.clone()), allowlist_is_yours: true };
    let (url, kept) = ("http://gateway".to_owned(), Duration::from_secs(3600));
    let desktop = Desktop::new(store.clone(), device, admission.clone(), seal.clone(), url, kept, callbacks);
    let created = desktop.create_application(CreateApplication { name: "shop".to_owned() }).await.expect("created");
    let service = PublishEndpoint {
        app_id: created.application.app_id,
        endpoint_id: EndpointId::new(),
        version: 1,
        name: "invoices".to_owned(),
        description: "Answers questions.".to_owned(),
        definition_sha256: Sha256Digest::of(b"invoices"),
        data: Default::default(),
    };
    let endpoint = desktop.publish(service).await.expect("published").endpoint_id;
    desktop.set_access(SetAccess { enabled: true }).await.expect("set");

    let access = Access::new(store.clone(), &limits);
    let draining = CancellationToken::new();
    let (streams, streaming) = EventStreams::new(store.clone(), &limits, draining.clone(), tasks.stopping());
    tasks.spawn("streams", streaming);
    let (unkeyed, noting) = UnkeyedRequests::new(store.clone(), tasks.stopping());
    tasks.spawn("unkeyed requests", noting);
    let (mcp_calls, closing) = McpCalls::new(store.clone(), limits.retention, tasks.stopping());
    tasks.spawn("closed calls", closing);
    let (reception, noting) = Reception::new(store.clone(), seal.clone(), admission.clone());
    tasks.spawn("receipts", noting);
    let (bodies, listener) = (BodyQuota::new(&limits), server::ListenerLimits::default());
    let store = store.clone();
    let router = http::router(Api {
        files: FileService::new(store.clone(), storage.clone(), limits.storage, limits.uploads_per_key),
        artifacts: ArtifactService::new(store.clone(), storage),
        store,
        access,
        bodies,
        reception,
        streams,
        unkeyed,
        mcp_calls,
        admission,
        draining,
        limits,
        listener,
        trials: TrialTickets::new(seal),
        hosted: None,
    });
    let names = Names::made_at(&router, created.key.text, endpoint.to_string()).await;
    (router, names)
}
