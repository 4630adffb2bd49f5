//! A device: its process, its durable journal, and recorded executions.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use deskgate::dispatcher::{Dispatcher, DispatcherConfig, DispatcherHandle, ExecuteFn};
use deskgate::executor::Progress;
use deskgate::link::{Link, RetryPolicy};
use deskgate_protocol::RunId;
use deskgate_protocol::control::DeviceEvent;
use deskgate_protocol::receipt::jws::ReceiptSigner;
use deskgate_protocol::run::{Effects, Outcome, RunResult, Usage};
use deskgate_store::Store;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::site::LineSite;

/// Records the executions, whichever process of the device they belong to.
#[derive(Clone)]
pub(crate) struct TestExecutor {
    executed: Arc<Mutex<Vec<(RunId, u32)>>>,
    holds: watch::Sender<bool>,
    held: watch::Sender<Option<RunId>>,
}

impl TestExecutor {
    pub(crate) fn new() -> Self {
        Self { executed: Arc::default(), holds: watch::Sender::new(false), held: watch::Sender::new(None) }
    }

    /// With `true`, later executions begin and do not end.
    pub(crate) fn hold(&self, hold: bool) {
        self.holds.send_replace(hold);
    }

    /// Waits until an execution of this run is held.
    pub(crate) async fn held(&self, run_id: RunId) {
        let mut held = self.held.subscribe();
        let _ = held.wait_for(|held| *held == Some(run_id)).await;
    }

    /// The attempts of a run that were executed, in order.
    pub(crate) fn of(&self, run_id: RunId) -> Vec<u32> {
        let executed = self.executed.lock().unwrap_or_else(PoisonError::into_inner);
        executed.iter().filter(|(id, _)| *id == run_id).map(|(_, attempt)| *attempt).collect()
    }

    fn execute(&self) -> ExecuteFn {
        let stage = self.clone();
        Arc::new(move |job, reports, stop| {
            let stage = stage.clone();
            Box::pin(async move {
                let run_id = job.offer.run_id;
                stage.executed.lock().unwrap_or_else(PoisonError::into_inner).push((run_id, job.offer.attempt));
                for n in 1..=3 {
                    let event = DeviceEvent::MessageCompleted {
                        message_id: format!("m{n}"),
                        text: "said".to_owned(),
                        reasoning_summary: None,
                    };
                    // A stopped dispatcher needs no events.
                    let _ = reports.send(Progress::Event(event)).await;
                }
                if *stage.holds.borrow() {
                    stage.held.send_replace(Some(run_id));
                    stop.cancelled().await;
                    return Outcome::Cancelled { effects: Effects::None, usage: Usage::default() };
                }
                let result = RunResult::completed("done");
                Outcome::Succeeded { result, usage: Usage::default() }
            })
        })
    }
}

/// A running device.
pub(crate) struct LineDevice {
    pub(crate) handle: DispatcherHandle,
    pub(crate) store: Store,
    task: JoinHandle<()>,
}

impl LineDevice {
    pub(crate) async fn boot(site: &LineSite) -> Self {
        let store = Store::open(site.home.path().join("device/deskgate.db"))
            .await
            .expect("opens")
            .signing_with(ReceiptSigner::from_seed([7; 32]));
        // A cut connection is dialled again at once, however often.
        let pace =
            RetryPolicy { initial: Duration::from_millis(1), max: Duration::from_millis(5), ..RetryPolicy::default() };
        let link = Link::new(site.connector(), site.credentials()).with_retry_policy(pace);
        let made = Dispatcher::new(&store, link, site.stage.execute(), DispatcherConfig::default()).await;
        let (dispatcher, handle) = made.expect("the journal is readable");
        Self { handle, store, task: tokio::spawn(dispatcher.run()) }
    }

    /// As by kill -9: nothing is sent and nothing is flushed.
    pub(crate) async fn kill_and_boot(self, site: &LineSite) -> Self {
        let Self { handle, store, task } = self;
        task.abort();
        let _ = task.await;
        drop((handle, store));
        Self::boot(site).await
    }

    pub(crate) async fn end(self) {
        self.handle.stop(true).await;
        self.task.await.expect("it ends by itself");
    }
}
