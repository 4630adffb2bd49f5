//! A gateway with a paired device, an application and a published service.

use std::num::NonZeroU32;
use std::sync::LazyLock;
use std::time::Duration;

use deskgate_gateway::domain::Limits;
use deskgate_gateway::domain::admission::AdmissionDesk;
use deskgate_gateway::domain::deliveries::Scribe;
use deskgate_gateway::domain::desktop::{Callbacks, Desktop};
use deskgate_gateway::domain::rates::Rate;
use deskgate_gateway::seal::Seal;
use deskgate_gateway::store::Store;
use deskgate_gateway::store::admissions::Admissions;
use deskgate_gateway::store::devices::{HeldRun, SessionKey};
use deskgate_gateway::{DatabaseSettings, Gateway, Settings};
use deskgate_program::tasks::Tasks;
use deskgate_protocol::canonical::Sha256Digest;
use deskgate_protocol::control::Offer;
use deskgate_protocol::identity::PublicKey;
use deskgate_protocol::management::{
    CreateApplication, CreateKey, CreatedKey, PublishEndpoint, RevokeKey, Scope, SetAccess,
};
use deskgate_protocol::{ApplicationId, DeviceId, EndpointId, KeyId, RunId, VERSION};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

use super::call::{Call, Reply};
use super::cluster::Database;

/// A device that runs stay with for as long as a test may take.
pub(crate) const LEASE: Duration = Duration::from_secs(600);

/// An application with its first key.
pub(crate) struct App {
    pub(crate) id: ApplicationId,
    pub(crate) key: String,
}

/// A device and what it published.
pub(crate) struct Desk {
    pub(crate) store: Store,
    pub(crate) key: PublicKey,
    pub(crate) device_id: DeviceId,
    pub(crate) desktop: Desktop,
    pub(crate) app: App,
    pub(crate) endpoint: EndpointId,
}

impl Desk {
    /// Pairs a new device; it has one application with one service, and access is enabled.
    pub(crate) async fn pair(store: &Store) -> Self {
        let seed: [u8; 32] = std::array::from_fn(|_| rand::random());
        let key = PublicKey::of(&ed25519_dalek::SigningKey::from_bytes(&seed));
        let device_id = store.pair_device("a laptop", &key).await.expect("paired").device_id;
        let tasks = Tasks::new(CancellationToken::new());
        let admission = AdmissionDesk::new(store.clone(), Admissions::start(store, &tasks, 1), &Limits::default());
        let url = "http://gateway".to_owned();
        let callbacks = Callbacks { scribe: Scribe::new(store.clone(), seal()), allowlist_is_yours: true };
        let kept = Duration::from_secs(3600);
        let desktop = Desktop::new(store.clone(), device_id, admission, seal(), url, kept, callbacks);
        let app = new_application(&desktop, "billing").await;
        let endpoint = publish(&desktop, &app, "invoices", 1, EndpointId::new()).await;
        let desk = Self { store: store.clone(), key, device_id, desktop, app, endpoint };
        desk.allow(true).await;
        desk
    }

    pub(crate) async fn application(&self, name: &str) -> App {
        new_application(&self.desktop, name).await
    }

    pub(crate) async fn service(&self, app: &App, name: &str) -> EndpointId {
        publish(&self.desktop, app, name, 1, EndpointId::new()).await
    }

    pub(crate) async fn allow(&self, enabled: bool) {
        self.desktop.set_access(SetAccess { enabled }).await.expect("set");
    }

    pub(crate) async fn restricted_key(&self, change: impl FnOnce(&mut CreateKey)) -> CreatedKey {
        let mut request = CreateKey {
            app_id: self.app.id,
            name: "restricted".to_owned(),
            scopes: Scope::ALL.to_vec(),
            endpoints: Vec::new(),
            fixed_subject: None,
            expires_at: None,
            allowed_cidrs: Vec::new(),
        };
        change(&mut request);
        self.desktop.create_key(request).await.expect("created")
    }

    pub(crate) async fn revoke(&self, key_id: KeyId) {
        self.desktop.revoke_key(RevokeKey { key_id }).await.expect("revoked");
    }

    /// Begins a session, as the device does when it dials.
    pub(crate) async fn connect(&self) -> (SessionKey, Vec<HeldRun>) {
        self.store.begin_session(&self.key, None, VERSION, LEASE).await.expect("stored").expect("paired")
    }

    pub(crate) async fn claim(&self, session: SessionKey, limit: u32) -> Vec<Offer> {
        self.store.claim(session, limit, &[], LEASE).await.expect("claimed")
    }
}

async fn new_application(desktop: &Desktop, name: &str) -> App {
    let created = desktop.create_application(CreateApplication { name: name.to_owned() }).await.expect("created");
    App { id: created.application.app_id, key: created.key.text }
}

async fn publish(desktop: &Desktop, app: &App, name: &str, version: u32, endpoint_id: EndpointId) -> EndpointId {
    let request = PublishEndpoint {
        app_id: app.id,
        endpoint_id,
        version,
        name: name.to_owned(),
        description: "Answers questions.".to_owned(),
        definition_sha256: Sha256Digest::of(name.as_bytes()),
    };
    desktop.publish(request).await.expect("published").endpoint_id
}

/// A gateway with a desk. Stopped by [`World::stop`].
pub(crate) struct World {
    pub(crate) gateway: Gateway,
    pub(crate) desk: Desk,
    pub(crate) database: Database,
    _dir: TempDir,
}

impl World {
    pub(crate) async fn new() -> Self {
        Self::with(patient()).await
    }

    pub(crate) async fn with(limits: Limits) -> Self {
        let database = Database::new().await;
        let dir = tempfile::tempdir().expect("a temporary directory");
        let gateway = start(&dir, database.url(), limits).await;
        let desk = Desk::pair(gateway.store()).await;
        Self { gateway, desk, database, _dir: dir }
    }

    /// One more gateway on the same database.
    pub(crate) async fn replica(&self) -> (Gateway, TempDir) {
        let dir = tempfile::tempdir().expect("a temporary directory");
        (start(&dir, self.database.url(), patient()).await, dir)
    }

    pub(crate) fn store(&self) -> &Store {
        self.gateway.store()
    }

    /// A call to this gateway without any header.
    pub(crate) fn call(&self, method: &str, path: &str) -> Call {
        Call::new(self.gateway.addresses().http, method, path)
    }

    /// A call of the desk's application for `anna`.
    pub(crate) fn ask(&self, method: &str, path: &str) -> Call {
        self.call(method, path).key(&self.desk.app.key).subject("anna")
    }

    pub(crate) fn runs_of(&self, endpoint: EndpointId) -> String {
        format!("/api/v1/agent-endpoints/{endpoint}/runs")
    }

    /// A submission to the desk's service, with everything that belongs to one.
    pub(crate) fn submission(&self, idempotency_key: &str) -> Call {
        let path = self.runs_of(self.desk.endpoint);
        self.ask("POST", &path).header("Idempotency-Key", idempotency_key).json(&work("hello"))
    }

    /// Submits and expects to be accepted.
    pub(crate) async fn submit(&self, idempotency_key: &str) -> RunId {
        self.submission(idempotency_key).send().await.run_id()
    }

    pub(crate) async fn read(&self, run_id: RunId) -> Reply {
        self.ask("GET", &format!("/api/v1/runs/{run_id}")).send().await
    }

    pub(crate) async fn stop(self) {
        self.gateway.stop().await;
    }
}

/// Limits for callers that ask more often than a backend does.
pub(crate) fn patient() -> Limits {
    let often = NonZeroU32::new(1_000_000).expect("not zero");
    let rate = Rate { per_second: often, burst: often };
    Limits { rate, ..Limits::default() }
}

/// The smallest body of a submission.
pub(crate) fn work(text: &str) -> Value {
    json!({ "input": { "text": text } })
}

/// One key for every gateway and desk of a test.
pub(crate) fn seal() -> Seal {
    static SEAL: LazyLock<Seal> = LazyLock::new(|| Seal::load_or_create(&SEAL_DIR.path().join("seal")).expect("made"));
    SEAL.clone()
}

static SEAL_DIR: LazyLock<TempDir> = LazyLock::new(|| tempfile::tempdir().expect("a temporary directory"));

async fn start(dir: &TempDir, url: String, limits: Limits) -> Gateway {
    let mut settings = Settings::built_in(dir.path().to_owned(), ([127, 0, 0, 1], 0).into());
    settings.database = Some(DatabaseSettings { url, listen_url: None, ca_file: None, migrate: true });
    settings.limits = limits;
    seal();
    settings.seal_file = SEAL_DIR.path().join("seal");
    settings.ops_listen = Some(([127, 0, 0, 1], 0).into());
    Gateway::start(settings).await.expect("the gateway starts")
}
