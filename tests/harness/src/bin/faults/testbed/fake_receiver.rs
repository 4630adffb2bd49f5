//! A business's receiver of callbacks: checks each signature by itself, can be made faulty, and records a journal of
//! callbacks and answers.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use deskgate_tests::receiver::{ReceivedRequest, Receiver};
use deskgate_tests::signing::{bytes, signature};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::sync::watch;

use crate::history::{Clock, digest};

/// Its name.
pub(crate) const RECEIVER_HOST: &str = "hooks.example.com";
/// An address that is public everywhere but on the island.
pub(crate) const RECEIVER_ADDRESS: &str = "93.184.216.34";

/// Its behaviour.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum ReceiverBehaviour {
    #[default]
    Confirms,
    /// It answers 503.
    Fails,
    /// It stays silent until it is healed, and then confirms.
    Hangs,
    /// It redirects to another address.
    Redirects,
    /// It reads everything, and closes the connection before it confirms.
    Dies,
}

impl ReceiverBehaviour {
    /// The faulty behaviours.
    pub(crate) const FAULTS: [Self; 4] = [Self::Fails, Self::Hangs, Self::Redirects, Self::Dies];
}

/// One callback as it arrived.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct ReceivedCallback {
    pub(crate) at: u64,
    /// When it was answered; 0 if it was not.
    pub(crate) answered_at: u64,
    /// The status it answered, if it did.
    pub(crate) answered: Option<u16>,
    pub(crate) path: String,
    pub(crate) event_id: String,
    pub(crate) kind: String,
    pub(crate) run_id: String,
    pub(crate) is_genuine: bool,
    /// The digest of the whole body.
    pub(crate) digest: u64,
    /// Its behaviour.
    pub(crate) manner: String,
}

#[derive(Clone)]
struct ReceiverState {
    clock: Clock,
    manner: watch::Sender<ReceiverBehaviour>,
    journal: Arc<Mutex<Vec<ReceivedCallback>>>,
    secrets: Arc<Mutex<BTreeMap<String, Vec<u8>>>>,
}

/// The running receiver.
pub(crate) struct FakeReceiver {
    desktop: ReceiverState,
    receiver: Receiver,
}

impl FakeReceiver {
    /// Starts it.
    pub(crate) async fn start(clock: Clock) -> Self {
        let manner = watch::Sender::new(ReceiverBehaviour::default());
        let desktop = ReceiverState { clock, manner, journal: Arc::default(), secrets: Arc::default() };
        let answering = desktop.clone();
        let receiver = Receiver::start(&[RECEIVER_HOST], move |got| answer(answering.clone(), got)).await;
        Self { desktop, receiver }
    }

    /// The root certificate of its name.
    pub(crate) fn ca_file(&self) -> PathBuf {
        self.receiver.ca_file()
    }

    /// Sets the secret that signs the callbacks to a path.
    pub(crate) fn expects(&self, path: &str, secret: &str) {
        lock(&self.desktop.secrets).insert(path.to_owned(), bytes(secret));
    }

    /// Sets its behaviour from now on.
    pub(crate) fn set_behaviour(&self, manner: ReceiverBehaviour) {
        self.desktop.manner.send_replace(manner);
    }

    /// The callbacks so far.
    pub(crate) fn journal(&self) -> Vec<ReceivedCallback> {
        lock(&self.desktop.journal).clone()
    }

    /// How many callbacks it answered in a faulty way.
    pub(crate) fn disturbed(&self) -> usize {
        lock(&self.desktop.journal).iter().filter(|receipt| receipt.manner != "Confirms").count()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn answer(desktop: ReceiverState, got: ReceivedRequest) -> Response {
    let mut manner = desktop.manner.subscribe();
    let now = *manner.borrow();
    let place = {
        let mut journal = lock(&desktop.journal);
        journal.push(receipt(&desktop, &got, now));
        journal.len() - 1
    };
    let response = match now {
        ReceiverBehaviour::Confirms => StatusCode::NO_CONTENT.into_response(),
        ReceiverBehaviour::Fails => StatusCode::SERVICE_UNAVAILABLE.into_response(),
        ReceiverBehaviour::Redirects => {
            let elsewhere = format!("https://{RECEIVER_HOST}/elsewhere");
            (StatusCode::TEMPORARY_REDIRECT, [(header::LOCATION, elsewhere)]).into_response()
        }
        ReceiverBehaviour::Hangs => {
            let _ = manner.wait_for(|manner| *manner != ReceiverBehaviour::Hangs).await;
            StatusCode::NO_CONTENT.into_response()
        }
        // Ends the connection's task without a panic message.
        ReceiverBehaviour::Dies => std::panic::resume_unwind(Box::new("closed on purpose")),
    };
    let receipt = &mut lock(&desktop.journal)[place];
    (receipt.answered, receipt.answered_at) = (Some(response.status().as_u16()), desktop.clock.now());
    drop(got);
    response
}

fn receipt(desktop: &ReceiverState, got: &ReceivedRequest, manner: ReceiverBehaviour) -> ReceivedCallback {
    let body: Value = serde_json::from_slice(&got.body).unwrap_or_default();
    let path = got.line.split(' ').nth(1).unwrap_or_default().to_owned();
    let is_genuine = lock(&desktop.secrets).get(&path).is_some_and(|secret| is_signed(secret, got));
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    ReceivedCallback {
        at: desktop.clock.now(),
        answered_at: 0,
        answered: None,
        event_id: got.header("webhook-id").to_owned(),
        kind: text(&body["type"]),
        run_id: text(&body["data"]["run"]["run_id"]),
        is_genuine,
        digest: digest(&body),
        manner: format!("{manner:?}"),
        path,
    }
}

/// Whether the Standard Webhooks signature is valid and its time is near.
fn is_signed(secret: &[u8], got: &ReceivedRequest) -> bool {
    let [id, at, signatures] = ["webhook-id", "webhook-timestamp", "webhook-signature"].map(|name| got.header(name));
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("after 1970").as_secs();
    let is_near = at.parse::<u64>().is_ok_and(|at| at.abs_diff(now) <= 300);
    is_near && signatures.split(' ').any(|one| one == signature(secret, id, at, &got.body))
}
