//! Callbacks: what is queued with events, and how it is delivered. The receiver is faked: a real one over TLS is in the
//! tests of the whole product.

mod by_hand;
mod listeners;
mod lists;
mod queued;
mod sending;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use deskgate_gateway::callbacks::send::{ReceiverResponse, SendResult};
use deskgate_gateway::callbacks::worker::{self, DeliveryTimings, DeliveryTransport};
use deskgate_gateway::domain::deliveries::PayloadBuilder;
use deskgate_gateway::domain::destinations::Destination;
use deskgate_gateway::encryption::DataCipher;
use deskgate_gateway::signing::{self, SigningSecret};
use deskgate_gateway::store::Store;
use deskgate_protocol::DeliveryId;
use deskgate_protocol::delivery::{CallbackEvent, DeliveryErrorCode, DeliveryState};
use deskgate_protocol::management::{
    CallbackWithSecret, DeliveryDetail, ListDeliveries, OwnDelivery, SetAllowlist, SetCallback, ShowDelivery,
};
use http::HeaderMap;
use serde_json::Value;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use crate::store::TestStore;
use crate::support::gateway::{DeviceFixture, cipher};
use crate::support::until;

/// A host that is allowed, and one that is not.
pub(super) const CALLBACK_HOST: &str = "hooks.example.com";
pub(super) const CALLBACK_URL: &str = "https://hooks.example.com/deskgate?key=1";

/// A request that a receiver got.
#[derive(Clone, Debug)]
pub(super) struct RecordedRequest {
    pub(super) url: String,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
}

impl RecordedRequest {
    pub(super) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().expect("text"))
    }

    pub(super) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).expect("JSON")
    }

    /// Whether this secret signed it.
    pub(super) fn is_signed_by(&self, secret: &str) -> bool {
        let secret = SigningSecret::parse(secret).expect("a secret");
        let [signature, id, at] =
            ["webhook-signature", "webhook-id", "webhook-timestamp"].map(|name| self.header(name));
        signing::is_signed(signature, &[&secret], id, at, &self.body)
    }
}

type Reaction = Arc<dyn Fn(&RecordedRequest, usize) -> Result<ReceiverResponse, DeliveryErrorCode> + Send + Sync>;

/// Fakes every receiver: records requests, and answers as configured.
#[derive(Clone)]
pub(super) struct FakeReceiver {
    got: Arc<Mutex<Vec<RecordedRequest>>>,
    reaction: Reaction,
    /// A request for `hang` gets no answer until this.
    release: Arc<Notify>,
}

impl FakeReceiver {
    /// Answers with the result of a function of the request, and of the number of earlier ones to this address.
    pub(super) fn that(
        reaction: impl Fn(&RecordedRequest, usize) -> Result<ReceiverResponse, DeliveryErrorCode> + Send + Sync + 'static,
    ) -> Self {
        Self { got: Arc::default(), reaction: Arc::new(reaction), release: Arc::default() }
    }

    pub(super) fn answering(status: u16) -> Self {
        Self::that(move |_, _| Ok(answer(status)))
    }

    pub(super) fn got(&self) -> Vec<RecordedRequest> {
        self.got.lock().expect("not poisoned").clone()
    }

    /// Waits until so many requests have arrived.
    pub(super) async fn gets(&self, count: usize) -> Vec<RecordedRequest> {
        until(&format!("{count} deliveries"), async || self.got().len() >= count).await;
        self.got()
    }
}

impl DeliveryTransport for FakeReceiver {
    async fn post(&self, to: &Destination, headers: HeaderMap, body: Bytes) -> SendResult {
        let got = RecordedRequest { url: to.to_string(), headers, body };
        let before = {
            let mut all = self.got.lock().expect("not poisoned");
            let before = all.iter().filter(|other| other.url == got.url).count();
            all.push(got.clone());
            before
        };
        let answer = (self.reaction)(&got, before);
        if answer == Err(DeliveryErrorCode::Timeout) {
            self.release.notified().await;
        }
        SendResult { answer, took: Duration::from_millis(7) }
    }
}

pub(super) fn answer(status: u16) -> ReceiverResponse {
    ReceiverResponse { status, retry_after: None, body: b"thank\0you".to_vec() }
}

/// Starts the rounds of one gateway; they end with the value.
pub(super) fn delivery_worker(store: &Store, receiver: &FakeReceiver, lease: Duration) -> AbortOnDropHandle<()> {
    delivery_worker_with_seal(store, receiver, lease, cipher())
}

/// The same for a gateway with a seal of its own.
pub(super) fn delivery_worker_with_seal(
    store: &Store,
    receiver: &FakeReceiver,
    lease: Duration,
    seal: DataCipher,
) -> AbortOnDropHandle<()> {
    let scribe = PayloadBuilder::new(store.clone(), seal);
    let clocks = DeliveryTimings { lease, retention: Duration::from_secs(3600) };
    let run = worker::run(store.clone(), scribe, receiver.clone(), clocks, CancellationToken::new());
    AbortOnDropHandle::new(tokio::spawn(run))
}

/// Allows the host, and sets the callback of the desk's application.
pub(super) async fn callback(device: &DeviceFixture, types: &[CallbackEvent]) -> CallbackWithSecret {
    device.desktop.set_allowlist(SetAllowlist { hosts: vec![CALLBACK_HOST.to_owned()] }).await.expect("set");
    set(device, |set| {
        set.url = Some(CALLBACK_URL.to_owned());
        set.types = (!types.is_empty()).then(|| types.to_vec());
    })
    .await
}

pub(super) async fn set(device: &DeviceFixture, change: impl FnOnce(&mut SetCallback)) -> CallbackWithSecret {
    let mut request =
        SetCallback { app_id: device.app.id, url: None, types: None, enabled: None, keep_answers: None, format: None };
    change(&mut request);
    device.desktop.set_callback(request).await.expect("set")
}

/// Every delivery, newest first.
pub(super) async fn deliveries(device: &DeviceFixture) -> Vec<OwnDelivery> {
    let all = ListDeliveries { limit: 100, ..ListDeliveries::default() };
    device.desktop.deliveries(all).await.expect("listed").deliveries
}

pub(super) async fn shown(device: &DeviceFixture, delivery_id: DeliveryId) -> DeliveryDetail {
    device.desktop.show_delivery(ShowDelivery { delivery_id, wait_s: 0, seen: 0 }).await.expect("shown")
}

/// Waits until every delivery is in this state.
pub(super) async fn all(device: &DeviceFixture, state: DeliveryState) {
    let reached = async || deliveries(device).await.iter().all(|own| own.delivery.state == state);
    until(&format!("all are {state}"), reached).await;
}

/// Makes waiting deliveries due now.
pub(super) async fn hurry(test_store: &TestStore) {
    test_store.database.execute("UPDATE deliveries SET due_at = now() WHERE state = 'pending'").await;
}
