//! A desktop: an agent behind a proxy of its own, a folder with another one beside it, a service that works there and
//! one that adds notes on another server, one with a budget, one that takes files and hands some out, a callback, and an unrelated
//! application.

use std::path::PathBuf;

use deskgate_tests::gateway::Address;
use deskgate_tests::{Folder, GatewayProcess, TestDevice};
use rustix::process::Signal;
use serde_json::Value;
use tokio::sync::RwLock;

use super::carry;
use super::fake_model::FakeModel;
use super::fake_receiver::{FakeReceiver, RECEIVER_HOST};
use super::fake_tool_server::{self, FakeToolServer};
use super::leak_scan::LeakScanner;
use super::shelf;
use crate::callers::SUBJECT;

/// Runs that a device executes at once.
const CONCURRENCY: &str = "8";

/// The content of the file beside the folder, which no tool may read.
pub(crate) const CANARY_TEXT: &str = "nobody-reads-what-lies-beside";
/// The suffix of the folder beside a service's own, so that one name is a prefix of the other.
const SIBLING_SUFFIX: &str = "-beside";

fn spending_name(name: &str) -> String {
    format!("{name}-budget")
}

/// One device with its service.
pub(crate) struct Desktop {
    /// Locked exclusively to kill the agent, shared to call it.
    pub(crate) device: RwLock<TestDevice>,
    name: String,
    device_id: String,
    folder: Folder,
    carrying_folder: Folder,
    service: ServiceAccess,
}

/// How a service is called.
#[derive(Clone, Debug)]
pub(crate) struct ServiceAccess {
    pub(crate) key: String,
    pub(crate) endpoint_id: String,
    /// The other service of the same application, whose tool adds notes.
    pub(crate) noting_id: String,
    /// A third one, which has a budget.
    pub(crate) spending_id: String,
    /// A fourth one, which takes files and hands some out.
    pub(crate) carrying_id: String,
    /// Its webhook, and the secret of its events.
    pub(crate) hook_id: String,
    pub(crate) hook_secret: String,
    /// The key of another application of the same device.
    pub(crate) strangers_key: String,
}

/// The servers that a device uses.
#[derive(Clone, Copy)]
pub(super) struct FakeServers<'a> {
    pub(super) model: &'a FakeModel,
    pub(super) book: &'a FakeToolServer,
    pub(super) receiver: &'a FakeReceiver,
}

impl Desktop {
    /// Pairs a device and publishes its services.
    pub(super) async fn open(
        name: &str,
        gateway: &GatewayProcess,
        ways: &[Address],
        FakeServers { model, book, receiver }: FakeServers<'_>,
        secrets: &mut LeakScanner,
    ) -> Self {
        let mut device = TestDevice::for_remote().await;
        // The agent reads its trusted certificates at the start.
        device.stop(Signal::TERM).await;
        device.trust_certificate(&book.ca_file());
        device.start().await;
        let invitation = device.pair(gateway, &[]).await;
        device.connect_to_one_of(ways.to_vec(), &invitation, &gateway.control_token_file()).await.ok();
        let device_id = device.device_id().await;
        let (key, file) = (format!("sk-model-key-of-{name}-7hW2"), device.folder().join("model.key"));
        std::fs::write(&file, &key).expect("a file of its own");
        secrets.add(&format!("the model's key of {name}"), &key);
        let file = file.to_str().expect("a plain name");
        let set =
            ["provider", "set", "work", "--profile", "compatible", "--base-url", model.address(), "--key-file", file];
        device.cli(&set).await.ok();
        let folder = Folder::new();
        std::fs::create_dir(shelf::shelf(&folder.path())).expect("a fresh folder");
        let service = ["--provider", "work", "--model", "m-1", "--tools", "Bash,Read,Write", "--allow", "Bash"];
        let beside = folder.path().with_file_name(format!("work{SIBLING_SUFFIX}"));
        std::fs::create_dir(&beside).expect("a fresh folder");
        std::fs::write(beside.join("x"), CANARY_TEXT).expect("writable");
        let backend =
            device.publish(gateway, name, &folder, &[&service[..], &["--concurrency", CONCURRENCY]].concat()).await;
        device
            .cli(&["mcp", "set", fake_tool_server::TOOL_SERVER_NAME, "--url", fake_tool_server::TOOL_SERVER_URL])
            .await
            .ok();
        let noting = [
            "--provider",
            "work",
            "--model",
            "m-1",
            "--mcp",
            fake_tool_server::TOOL_SERVER_NAME,
            "--allow",
            fake_tool_server::TOOL_NAME,
        ];
        let noting_id = device.add_service(name, &format!("{name}-notes"), &folder, &noting).await;
        let spending = ["--provider", "work", "--model", "m-1", "--tools", "Read"];
        let spending_id = device.add_service(name, &spending_name(name), &folder, &spending).await;
        let carrying_folder = Folder::new();
        let allowed = format!("Deliver:{}", carry::FREE_FOLDER);
        let carrying = ["--provider", "work", "--model", "m-1", "--tools", "Bash,Read,Deliver", "--takes-files", "yes"];
        let carrying = [&carrying[..], &["--allow", "Bash", "--allow", &allowed]].concat();
        let carrying_id = device.add_service(name, &format!("{name}-files"), &carrying_folder, &carrying).await;
        let path = format!("/{name}");
        let url = format!("https://{RECEIVER_HOST}{path}");
        let events = ["run.succeeded", "run.failed", "run.cancelled", "run.expired"];
        let chosen = events.iter().flat_map(|event| ["--event", event]);
        let set: Vec<_> = ["callback", "set", name, "--url", &url].into_iter().chain(chosen).collect();
        let set: Value = device.cli(&set).await.ok();
        let callback_secret = set["secret"].as_str().expect("it is shown once");
        receiver.expects(&path, callback_secret);
        secrets.add(&format!("the callbacks' secret of {name}"), callback_secret);
        let create =
            ["hook", "create", name, "--app", name, "--service", backend.endpoint_id(), "--scheme", "standard"];
        let mapping = ["--text", "{{ $.text }}", "--subject", SUBJECT, "--rate", "1000"];
        let hook: Value = device.cli(&[&create[..], &mapping].concat()).await.ok();
        let stranger: Value = device.cli(&["app", "create", &format!("{name}-stranger")]).await.ok();
        let service = ServiceAccess {
            key: backend.key().to_owned(),
            endpoint_id: backend.endpoint_id().to_owned(),
            noting_id,
            spending_id,
            carrying_id,
            hook_id: hook["webhook"]["hook_id"].as_str().expect("made").to_owned(),
            hook_secret: hook["secret"].as_str().expect("it is shown once").to_owned(),
            strangers_key: stranger["key"]["text"].as_str().expect("it is shown once").to_owned(),
        };
        secrets.add(&format!("the key of {name}"), &service.key);
        secrets.add(&format!("the webhook's secret of {name}"), &service.hook_secret);
        Self { device: RwLock::new(device), name: name.to_owned(), device_id, folder, carrying_folder, service }
    }

    /// The name of its application and of its service.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// The name of its service that has a budget.
    pub(crate) fn spending_name(&self) -> String {
        spending_name(&self.name)
    }

    /// Its identifier at the gateways.
    pub(crate) fn device_id(&self) -> &str {
        &self.device_id
    }

    /// How its service is called.
    pub(crate) fn service(&self) -> &ServiceAccess {
        &self.service
    }

    /// The folder that its tools work in.
    pub(crate) fn folder(&self) -> PathBuf {
        self.folder.path()
    }

    /// The folder of its service that takes files and hands some out.
    pub(crate) fn carrying_folder(&self) -> PathBuf {
        self.carrying_folder.path()
    }

    /// Paths to the file beside that folder: a relative one, and an absolute one.
    pub(crate) fn ways_beside(&self) -> [String; 2] {
        let folder = self.folder().display().to_string();
        let name = self.folder().file_name().expect("a folder").to_string_lossy().into_owned();
        [format!("../{name}{SIBLING_SUFFIX}/x"), format!("{folder}{SIBLING_SUFFIX}/x")]
    }
}
