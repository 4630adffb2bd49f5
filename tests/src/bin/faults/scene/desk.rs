//! A device at its desk: an agent behind a line of its own, a folder, one service, and a callback.

use std::path::PathBuf;

use deskgate_tests::gateway::Address;
use deskgate_tests::{Device, Folder, GatewayProcess};
use serde_json::Value;
use tokio::sync::RwLock;

use super::office::{HOST, Office};
use crate::callers::SUBJECT;

/// Runs that a device executes at once.
const AT_ONCE: &str = "8";

/// One device with its service.
pub(crate) struct Desk {
    /// Whoever kills the agent holds it alone; whoever asks it something shares it.
    pub(crate) device: RwLock<Device>,
    device_id: String,
    folder: Folder,
    service: Service,
}

/// How a service is called.
#[derive(Clone, Debug)]
pub(crate) struct Service {
    pub(crate) key: String,
    pub(crate) endpoint_id: String,
    /// Its webhook, and what its events are signed with.
    pub(crate) hook_id: String,
    pub(crate) hook_secret: String,
}

impl Desk {
    /// Pairs a device and publishes its service, whose model is at `model`.
    pub(crate) async fn open(
        name: &str,
        gateway: &GatewayProcess,
        ways: &[Address],
        model: &str,
        office: &Office,
    ) -> Self {
        let mut device = Device::for_remote().await;
        let invitation = device.pair(gateway, &[]).await;
        device.connect_to_one_of(ways.to_vec(), &invitation, &gateway.control_token_file()).await.ok();
        let device_id = device.device_id().await;
        let set = ["provider", "set", "work", "--kind", "openai", "--base-url", model, "--no-key"];
        device.cli(&set).await.ok();
        let folder = Folder::new();
        let service = ["--provider", "work", "--model", "m-1", "--tools", "Bash,Write", "--allow", "Bash"];
        let backend =
            device.publish(gateway, name, &folder, &[&service[..], &["--concurrency", AT_ONCE]].concat()).await;
        let path = format!("/{name}");
        let url = format!("https://{HOST}{path}");
        let events = ["run.succeeded", "run.failed", "run.cancelled", "run.expired"];
        let chosen = events.iter().flat_map(|event| ["--event", event]);
        let set: Vec<_> = ["callback", "set", name, "--url", &url].into_iter().chain(chosen).collect();
        let set: Value = device.cli(&set).await.ok();
        office.expects(&path, set["secret"].as_str().expect("it is shown once"));
        let create =
            ["hook", "create", name, "--app", name, "--service", backend.endpoint_id(), "--scheme", "standard"];
        let mapping = ["--text", "{{ $.text }}", "--subject", SUBJECT, "--rate", "1000"];
        let hook: Value = device.cli(&[&create[..], &mapping].concat()).await.ok();
        let service = Service {
            key: backend.key().to_owned(),
            endpoint_id: backend.endpoint_id().to_owned(),
            hook_id: hook["webhook"]["hook_id"].as_str().expect("made").to_owned(),
            hook_secret: hook["secret"].as_str().expect("it is shown once").to_owned(),
        };
        Self { device: RwLock::new(device), device_id, folder, service }
    }

    /// Its identifier at the gateways.
    pub(crate) fn device_id(&self) -> &str {
        &self.device_id
    }

    /// How its service is called.
    pub(crate) fn service(&self) -> &Service {
        &self.service
    }

    /// Where its tools work.
    pub(crate) fn folder(&self) -> PathBuf {
        self.folder.path()
    }
}
