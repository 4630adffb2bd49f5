//! A gateway with a paired device, an application and a published service.

use std::num::NonZeroU32;
use std::sync::LazyLock;
use std::time::Duration;

use deskgate_gateway::domain::CallerLimits;
use deskgate_gateway::domain::admission::AdmissionService;
use deskgate_gateway::domain::deliveries::PayloadBuilder;
use deskgate_gateway::domain::desktop::{CallbackContext, Desktop};
use deskgate_gateway::domain::rates::Rate;
use deskgate_gateway::encryption::DataCipher;
use deskgate_gateway::storage::Precedence;
use deskgate_gateway::store::Store;
use deskgate_gateway::store::admissions::Admissions;
use deskgate_gateway::store::attempts::ServiceRoom;
use deskgate_gateway::store::commit_limit::CommitLimit;
use deskgate_gateway::store::leases::{HeldRun, SessionKey};
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

use super::call::{TestRequest, TestResponse};
use super::cluster::TestDatabase;

/// A lease that is longer than any test.
pub(crate) const LONG_LEASE: Duration = Duration::from_secs(600);

/// An application with its first key.
pub(crate) struct TestApplication {
    pub(crate) id: ApplicationId,
    pub(crate) key: String,
}

/// A device and what it published.
pub(crate) struct DeviceFixture {
    pub(crate) store: Store,
    pub(crate) key: PublicKey,
    pub(crate) device_id: DeviceId,
    pub(crate) desktop: Desktop,
    pub(crate) app: TestApplication,
    pub(crate) endpoint: EndpointId,
}

impl DeviceFixture {
    /// Pairs a new device; it has one application with one service, and access is enabled.
    pub(crate) async fn pair(store: &Store) -> Self {
        let seed: [u8; 32] = std::array::from_fn(|_| rand::random());
        let key = PublicKey::of(&ed25519_dalek::SigningKey::from_bytes(&seed));
        let device_id = store.pair_device("a laptop", &key).await.expect("paired").device_id;
        let desktop = Self::desktop(store, device_id);
        let app = new_application(&desktop, "billing").await;
        let endpoint = publish(&desktop, &app, "invoices", 1, EndpointId::new()).await;
        let device = Self { store: store.clone(), key, device_id, desktop, app, endpoint };
        device.allow(true).await;
        device
    }

    /// The management service of a device, at the gateway that has this store.
    pub(crate) fn desktop(store: &Store, device_id: DeviceId) -> Desktop {
        let tasks = Tasks::new(CancellationToken::new());
        let admission = AdmissionService::new(
            store.clone(),
            Admissions::start(store, &tasks, &CommitLimit::fixed(1)),
            &CallerLimits::default(),
            Precedence::default(),
        );
        let url = "http://gateway".to_owned();
        let callbacks =
            CallbackContext { scribe: PayloadBuilder::new(store.clone(), cipher()), allowlist_is_yours: true };
        let kept = Duration::from_secs(3600);
        Desktop::new(store.clone(), device_id, admission, cipher(), url, kept, callbacks)
    }

    pub(crate) async fn application(&self, name: &str) -> TestApplication {
        new_application(&self.desktop, name).await
    }

    pub(crate) async fn service(&self, app: &TestApplication, name: &str) -> EndpointId {
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

    /// Begins a session, as the device does when it connects.
    pub(crate) async fn connect(&self) -> (SessionKey, Vec<HeldRun>) {
        self.store.begin_session(&self.key, None, VERSION, LONG_LEASE).await.expect("stored").expect("paired")
    }

    pub(crate) async fn claim(&self, session: SessionKey, limit: u32) -> Vec<Offer> {
        self.store.claim(session, limit, &ServiceRoom::default(), LONG_LEASE).await.expect("claimed")
    }
}

async fn new_application(desktop: &Desktop, name: &str) -> TestApplication {
    let created = desktop.create_application(CreateApplication { name: name.to_owned() }).await.expect("created");
    TestApplication { id: created.application.app_id, key: created.key.text }
}

async fn publish(
    desktop: &Desktop,
    app: &TestApplication,
    name: &str,
    version: u32,
    endpoint_id: EndpointId,
) -> EndpointId {
    let request = PublishEndpoint {
        app_id: app.id,
        endpoint_id,
        version,
        name: name.to_owned(),
        description: "Answers questions.".to_owned(),
        definition_sha256: Sha256Digest::of(name.as_bytes()),
        data: Default::default(),
    };
    desktop.publish(request).await.expect("published").endpoint_id
}

/// A gateway with a device. Stopped by `TestGateway::stop`.
pub(crate) struct TestGateway {
    pub(crate) gateway: Gateway,
    pub(crate) device: DeviceFixture,
    pub(crate) database: TestDatabase,
    dir: TempDir,
}

impl TestGateway {
    pub(crate) async fn new() -> Self {
        Self::with(patient()).await
    }

    pub(crate) async fn with(limits: CallerLimits) -> Self {
        let database = TestDatabase::new().await;
        let dir = tempfile::tempdir().expect("a temporary directory");
        let gateway = start(&dir, database.url(), limits).await;
        let device = DeviceFixture::pair(gateway.store()).await;
        Self { gateway, device, database, dir }
    }

    /// One more gateway on the same database.
    pub(crate) async fn replica(&self) -> (Gateway, TempDir) {
        self.replica_with(patient()).await
    }

    /// One more with these limits.
    pub(crate) async fn replica_with(&self, limits: CallerLimits) -> (Gateway, TempDir) {
        let dir = tempfile::tempdir().expect("a temporary directory");
        (start(&dir, self.database.url(), limits).await, dir)
    }

    pub(crate) fn store(&self) -> &Store {
        self.gateway.store()
    }

    /// A call to this gateway without any header.
    pub(crate) fn call(&self, method: &str, path: &str) -> TestRequest {
        TestRequest::new(self.gateway.addresses().http, method, path)
    }

    /// A call of the desk's application for `anna`.
    pub(crate) fn ask(&self, method: &str, path: &str) -> TestRequest {
        self.call(method, path).key(&self.device.app.key).subject("anna")
    }

    pub(crate) fn runs_of(&self, endpoint: EndpointId) -> String {
        format!("/api/v1/agent-endpoints/{endpoint}/runs")
    }

    /// A submission to the desk's service, with everything that belongs to one.
    pub(crate) fn submission(&self, idempotency_key: &str) -> TestRequest {
        let path = self.runs_of(self.device.endpoint);
        self.ask("POST", &path).header("Idempotency-Key", idempotency_key).json(&work("hello"))
    }

    /// Submits and expects to be accepted.
    pub(crate) async fn submit(&self, idempotency_key: &str) -> RunId {
        self.submission(idempotency_key).send().await.run_id()
    }

    pub(crate) async fn read(&self, run_id: RunId) -> TestResponse {
        self.ask("GET", &format!("/api/v1/runs/{run_id}")).send().await
    }

    /// The folder of its state.
    pub(crate) fn dir(&self) -> &std::path::Path {
        self.dir.path()
    }

    pub(crate) async fn stop(self) {
        Box::pin(self.gateway.stop()).await;
    }
}

/// Limits for callers that ask more often than a backend does.
pub(crate) fn patient() -> CallerLimits {
    let often = NonZeroU32::new(1_000_000).expect("not zero");
    let rate = Rate { per_second: often, burst: often };
    CallerLimits { rate, ..CallerLimits::default() }
}

/// The smallest body of a submission.
pub(crate) fn work(text: &str) -> Value {
    json!({ "input": { "text": text } })
}

/// One encryption key for every gateway of a test.
pub(crate) fn cipher() -> DataCipher {
    static CIPHER: LazyLock<DataCipher> =
        LazyLock::new(|| DataCipher::load_or_create(&CIPHER_DIR.path().join("seal")).expect("made"));
    CIPHER.clone()
}

static CIPHER_DIR: LazyLock<TempDir> = LazyLock::new(|| tempfile::tempdir().expect("a temporary directory"));

async fn start(dir: &TempDir, url: String, limits: CallerLimits) -> Gateway {
    let mut settings = Settings::built_in(dir.path().to_owned(), ([127, 0, 0, 1], 0).into());
    settings.database = Some(DatabaseSettings { url, listen_url: None, ca_file: None, migrate: true });
    settings.limits = limits;
    cipher();
    settings.seal_file = CIPHER_DIR.path().join("seal");
    settings.ops_listen = Some(([127, 0, 0, 1], 0).into());
    Gateway::start(settings).await.expect("the gateway starts")
}
