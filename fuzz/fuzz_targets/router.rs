//! Whole requests at the router of the public door, on a real store. See `fuzz/README.md`.

#![no_main]

use std::num::NonZeroU32;
use std::sync::LazyLock;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use deskgate_gateway::domain;
use deskgate_gateway::domain::access::Access;
use deskgate_gateway::domain::admission::AdmissionDesk;
use deskgate_gateway::domain::bodies::Bodies;
use deskgate_gateway::domain::desktop::Desktop;
use deskgate_gateway::domain::events::Streams;
use deskgate_gateway::domain::rates::Rate;
use deskgate_gateway::http::{self, Api, server};
use deskgate_gateway::store::admissions::Admissions;
use deskgate_gateway::tasks::Tasks;
use deskgate_gateway::{Gateway, Settings};
use deskgate_protocol::EndpointId;
use deskgate_protocol::canonical::Sha256Digest;
use deskgate_protocol::identity::PublicKey;
use deskgate_protocol::management::{CreateApplication, PublishEndpoint, SetAccess};
use http_body_util::BodyExt;
use libfuzzer_sys::fuzz_target;
use request::{Names, judge, request};
use tokio::runtime::Runtime;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;

#[path = "../request.rs"]
mod request;

/// What every request is thrown at. It lives as long as the fuzzer.
struct Target {
    runtime: Runtime,
    router: Router,
    names: Names,
    _gateway: Gateway,
    _folder: tempfile::TempDir,
}

static TARGET: LazyLock<Target> = LazyLock::new(|| {
    let runtime = Runtime::new().expect("a runtime");
    let folder = tempfile::tempdir().expect("a temporary directory");
    let (gateway, router, names) = runtime.block_on(async {
        let settings = Settings::built_in(folder.path().to_owned(), ([127, 0, 0, 1], 0).into());
        let gateway = Gateway::start(settings).await.expect("the gateway starts");
        let (router, names) = furnish(&gateway).await;
        (gateway, router, names)
    });
    Target { runtime, router, names, _gateway: gateway, _folder: folder }
});

/// An application with a service and what can be named, and a router that is never too busy.
async fn furnish(gateway: &Gateway) -> (Router, Names) {
    let store = gateway.store().clone();
    let seed: [u8; 32] = rand::random();
    let key = PublicKey::of(&ed25519_dalek::SigningKey::from_bytes(&seed));
    let device = store.pair_device("a laptop", &key).await.expect("paired").device_id;
    let desktop = Desktop::new(store.clone(), device, "http://gateway".to_owned());
    let created = desktop.create_application(CreateApplication { name: "shop".to_owned() }).await.expect("created");
    let service = PublishEndpoint {
        app_id: created.application.app_id,
        endpoint_id: EndpointId::new(),
        version: 1,
        name: "invoices".to_owned(),
        description: "Answers questions.".to_owned(),
        definition_sha256: Sha256Digest::of(b"invoices"),
    };
    let endpoint = desktop.publish(service).await.expect("published").endpoint_id;
    desktop.set_access(SetAccess { enabled: true }).await.expect("set");

    let tasks = Tasks::new(CancellationToken::new());
    let plenty = NonZeroU32::new(1_000_000).expect("not zero");
    let limits = domain::Limits {
        waiting_runs_per_application: u32::MAX,
        rate: Rate { per_second: plenty, burst: plenty },
        ..Default::default()
    };
    let access = Access::new(store.clone(), &limits);
    let draining = CancellationToken::new();
    let (streams, streaming) = Streams::new(store.clone(), access.clone(), &limits, draining.clone(), tasks.stopping());
    tasks.spawn("streams", streaming);
    let desk = AdmissionDesk::new(store.clone(), Admissions::start(&store, &tasks, 1), &limits);
    let (bodies, listener) = (Bodies::new(&limits), server::Limits::default());
    let router = http::router(Api { store, access, bodies, streams, desk, draining, limits, listener });

    let names = Names::made_at(&router, created.key.text, endpoint.to_string()).await;
    (router, names)
}

fuzz_target!(|bytes: &[u8]| {
    let Target { runtime, router, names, .. } = &*TARGET;
    let Some(request) = request(bytes, names) else { return };
    let method = request.method().to_string();
    let answered = runtime.block_on(async {
        // Whoever asks to wait is let wait, and of a stream, which may go on for ever, the head is judged.
        let response = timeout(Duration::from_secs(1), router.clone().oneshot(request)).await.ok()?;
        let (head, body) = response.expect("it never fails").into_parts();
        let is_stream = head.headers.get("content-type").is_some_and(|form| form == "text/event-stream");
        let body = if is_stream { Body::empty() } else { body };
        Some((head, body.collect().await.expect("a body").to_bytes()))
    });
    let Some((head, body)) = answered else { return };
    judge(&method, head.status.as_u16(), &head.headers, &body).unwrap_or_else(|wrong| panic!("{wrong}"));
});
