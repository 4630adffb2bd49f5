//! Callbacks by the real programs: over TLS to a name, with crashes at every step.

use std::collections::BTreeSet;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::http::StatusCode;
use axum::response::IntoResponse;
use deskgate_gateway::signing::{SigningSecret, is_signed};
use deskgate_tests::netns::{self, DnsServer};
use deskgate_tests::receiver::{ReceivedRequest, Receiver};
use deskgate_tests::wait::{until, until_within};
use deskgate_tests::{Backend, Folder, GatewayProcess, Postgres, TestDevice, third_party};
use rustix::process::Signal;
use serde_json::Value;
use tokio::sync::{Notify, mpsc};

/// A name, and an address that is public everywhere but on the island.
const CALLBACK_HOST: &str = "hooks.example.com";
const CALLBACK_ADDRESS: &str = "93.184.216.34";

/// The lease of an attempt, plus what a busy machine needs.
const LEASE_TIMEOUT: Duration = Duration::from_secs(75);

/// The receiver's behaviour.
#[derive(Clone, Default)]
enum ReceiverBehaviour {
    /// It confirms each callback.
    #[default]
    Confirms,
    /// It never answers.
    Hangs,
    /// It confirms once this is notified.
    Waits(Arc<Notify>),
}

/// A receiver with changeable behaviour, and the identifiers of the events that it confirmed.
struct CallbackReceiver {
    receiver: Receiver,
    manner: Arc<Mutex<ReceiverBehaviour>>,
    confirmed: Arc<Mutex<BTreeSet<String>>>,
}

impl CallbackReceiver {
    async fn start() -> Self {
        let (manner, confirmed) =
            (Arc::<Mutex<ReceiverBehaviour>>::default(), Arc::<Mutex<BTreeSet<String>>>::default());
        let (now, done) = (manner.clone(), confirmed.clone());
        let answer = move |got: ReceivedRequest| {
            let (manner, done) = (lock(&now).clone(), done.clone());
            async move {
                match manner {
                    ReceiverBehaviour::Confirms => {}
                    ReceiverBehaviour::Hangs => std::future::pending().await,
                    ReceiverBehaviour::Waits(until) => until.notified().await,
                }
                lock(&done).insert(got.header("webhook-id").to_owned());
                StatusCode::NO_CONTENT.into_response()
            }
        };
        Self { receiver: Receiver::start(&[CALLBACK_HOST], answer).await, manner, confirmed }
    }

    fn behaves(&self, manner: ReceiverBehaviour) {
        *lock(&self.manner) = manner;
    }

    async fn receives(&self, count: usize) -> Vec<ReceivedRequest> {
        until(&format!("{count} callbacks"), async || {
            let got = self.receiver.requests();
            if got.len() >= count { Ok(got) } else { Err(format!("{} came", got.len())) }
        })
        .await
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn json(got: &ReceivedRequest) -> Value {
    serde_json::from_slice(&got.body).expect("a callback is JSON")
}

fn is_signed_by(secret: &str, got: &ReceivedRequest) -> bool {
    let secret = SigningSecret::parse(secret).expect("a secret");
    let [signature, id, at] = ["webhook-signature", "webhook-id", "webhook-timestamp"].map(|name| got.header(name));
    is_signed(signature, &[&secret], id, at, &got.body)
}

/// A gateway whose application has a callback, on an island.
struct CallbackFixture {
    office: CallbackReceiver,
    postgres: Postgres,
    gateway: GatewayProcess,
    device: TestDevice,
    backend: Backend,
    secret: String,
    _names: DnsServer,
    _folder: Folder,
}

impl CallbackFixture {
    async fn new() -> Self {
        let names = DnsServer::start().await;
        names.set_addresses(CALLBACK_HOST, &[CALLBACK_ADDRESS]);
        let office = CallbackReceiver::start().await;
        let postgres = Postgres::shared().await;
        let roots = format!("callbacks.ca_file={}", office.receiver.ca_file().display());
        let gateway = GatewayProcess::start(&postgres, &[&roots]).await;
        let (device, folder) = (TestDevice::paired_with(&gateway).await, Folder::new());
        let backend = device.publish(&gateway, "shop", &folder, &[]).await;
        gateway.admin(&["allowlist", "add", CALLBACK_HOST]).await.ok();
        let url = format!("https://{CALLBACK_HOST}/deskgate");
        let set = device.cli(&["callback", "set", "shop", "--url", &url, "--event", "run.succeeded"]).await.ok();
        let secret = set["secret"].as_str().expect("shown once").to_owned();
        Self { office, postgres, gateway, device, backend, secret, _names: names, _folder: folder }
    }

    async fn states(&self) -> Vec<String> {
        let rows =
            self.postgres.rows("SELECT state, count(*) AS n FROM deliveries GROUP BY state ORDER BY state").await;
        rows.iter().map(|row| format!("{} {}", row["n"], row["state"].as_str().unwrap_or_default())).collect()
    }

    /// Waits until no delivery is pending.
    async fn settled(&self) {
        until_within(LEASE_TIMEOUT, "nothing to be pending", async || {
            let states = self.states().await;
            if states.iter().any(|state| state.contains("pending")) { Err(states.join(", ")) } else { Ok(()) }
        })
        .await;
    }

    /// Kills the gateway with SIGKILL, and starts it again.
    async fn killed(&mut self) {
        self.gateway.kill_9();
        self.gateway.restart().await;
        self.device.wait_until_connected().await;
    }
}

#[test]
fn a_callback_arrives_over_tls_and_every_attempt_can_be_read_afterwards() {
    netns::run_test("callbacks::a_callback_arrives_over_tls_and_every_attempt_can_be_read_afterwards", async || {
        let site = CallbackFixture::new().await;
        let tested = site.device.cli(&["callback", "test", "shop"]).await.ok();
        assert_eq!(tested["delivery"]["state"], "delivered", "{tested}");
        let run_id = site.backend.submit("What does order 4711 say?").await;
        let run = site.backend.wait_for_end(&run_id).await;
        let got = site.office.receives(2).await.swap_remove(1);
        assert!(is_signed_by(&site.secret, &got), "{got:?}");
        assert_eq!((got.host.as_str(), got.line.as_str()), (CALLBACK_HOST, "POST /deskgate"));
        let body = json(&got);
        assert_eq!((&body["type"], &body["data"]["run"]), (&"run.succeeded".into(), &run));
        site.settled().await;
        let request = site.backend.request(reqwest::Method::GET, "/deliveries");
        let answer = site.backend.send(request).await.expect("answered");
        let delivery = &answer.body["data"][0];
        assert_eq!((&delivery["state"], &delivery["status_code"]), (&"delivered".into(), &204.into()), "{answer:?}");
        assert_eq!(delivery["event_id"], got.header("webhook-id"));
        let id = delivery["delivery_id"].as_str().expect("a text");
        let shown = site.gateway.admin(&["delivery", "show", id]).await.ok();
        assert_eq!(shown["attempts"].as_array().map(Vec::len), Some(1), "{shown}");

        // The allowlist belongs to the administrator.
        let refused = site.device.cli(&["allowlist", "set", "evil.example.com"]).await;
        assert!(refused.exit == 6 && refused.stderr.contains("administrator"), "{}", refused.stderr);
        assert_eq!(site.device.cli(&["allowlist", "show"]).await.ok()["hosts"], serde_json::json!([CALLBACK_HOST]));
        site.gateway.admin(&["allowlist", "remove", CALLBACK_HOST]).await.ok();
        let blocked = site.device.cli(&["callback", "test", "shop"]).await;
        assert_eq!(blocked.exit, 1, "{}", blocked.stderr);
        assert_eq!(blocked.value["delivery"]["error_code"], "host_not_allowed");
        assert_eq!(site.office.receiver.requests().len(), 2);
    });
}

#[test]
fn a_callback_that_is_sent_again_has_no_content_that_was_deleted() {
    netns::run_test("callbacks::a_callback_that_is_sent_again_has_no_content_that_was_deleted", async || {
        let site = CallbackFixture::new().await;
        let run_id = site.backend.submit("What does order 4711 say?").await;
        site.backend.wait_for_end(&run_id).await;
        let got = site.office.receives(1).await.swap_remove(0);
        assert_eq!(json(&got)["data"]["run"]["input"]["text"], "What does order 4711 say?");
        site.settled().await;
        let deleted = site.backend.request(reqwest::Method::DELETE, &format!("/runs/{run_id}/content"));
        assert_eq!(site.backend.send(deleted).await.expect("answered").status.as_u16(), 204);
        let listed = site.gateway.admin(&["delivery", "list"]).await.ok();
        let delivery_id = listed["deliveries"][0]["delivery_id"].as_str().expect("a text");
        site.gateway.admin(&["delivery", "resend", delivery_id]).await.ok();
        let got = site.office.receives(2).await.swap_remove(1);
        assert!(is_signed_by(&site.secret, &got), "{got:?}");
        let run = &json(&got)["data"]["run"];
        assert!(run["content_deleted_at"].is_string() && run["input"].is_null() && run["result"].is_null(), "{run}");
    });
}

/// The verdict of a third-party library on a callback: the event's type, or `None` if it is not genuine.
fn verified(mut library: Command, secret: &str, got: &ReceivedRequest, body: &str) -> Option<String> {
    let names = ["webhook-id", "webhook-timestamp", "webhook-signature"];
    let headers: serde_json::Map<_, _> =
        names.into_iter().map(|name| (name.to_owned(), got.header(name).into())).collect();
    library.env("SECRET", secret).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = library.spawn().expect("it starts");
    let told = serde_json::json!({ "headers": headers, "body": body }).to_string();
    child.stdin.take().expect("piped").write_all(told.as_bytes()).expect("it reads");
    let output = child.wait_with_output().expect("it ends");
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}

#[test]
fn openais_sdk_unwraps_a_callback_in_its_form() {
    netns::run_test("callbacks::openais_sdk_unwraps_a_callback_in_its_form", async || {
        let site = CallbackFixture::new().await;
        site.device.cli(&["callback", "set", "shop", "--format", "openai"]).await.ok();
        let shown = site.device.plain_cli(&["callback", "show", "shop"]).await.stdout;
        assert!(shown.contains("openai"), "{shown}");
        let run_id = site.backend.submit("What does order 4711 say?").await;
        site.backend.wait_for_end(&run_id).await;
        let got = site.office.receives(1).await.swap_remove(0);
        let body = String::from_utf8(got.body.to_vec()).expect("a callback is UTF-8");
        let unwrapped = |body: &str| {
            let mut sdk = Command::new(third_party::python_tool("python"));
            sdk.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("clients/unwrap.py"));
            verified(sdk, &site.secret, &got, body)
        };
        let response = run_id.replace("run_", "resp_");
        assert_eq!(unwrapped(&body), Some(format!("response.completed {response}")), "{body}");
        assert_eq!(unwrapped(&body.replace("completed", "cancelled")), None, "it was changed on its way");
    });
}

#[test]
fn a_callback_is_genuine_to_the_libraries_of_others_also_while_two_secrets_are_good() {
    // The island has no network to install them from.
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let Some(place) = runtime.block_on(third_party::install_dir()) else { return };
    drop(runtime);
    netns::run_test(
        "callbacks::a_callback_is_genuine_to_the_libraries_of_others_also_while_two_secrets_are_good",
        async || {
            let site = CallbackFixture::new().await;
            let clients = Path::new(env!("CARGO_MANIFEST_DIR")).join("clients");
            let npm = || {
                let mut command = Command::new("node");
                command.arg(clients.join("verify.mjs")).arg(&place);
                command
            };
            let pypi = || {
                let mut command = Command::new(place.join("python/bin/python"));
                command.arg(clients.join("verify.py"));
                command
            };
            let run_id = site.backend.submit("Wie heißt Frau Grün? ☺").await;
            site.backend.wait_for_end(&run_id).await;
            let first = site.office.receives(1).await.swap_remove(0);
            let rolled = site.device.cli(&["callback", "roll-secret", "shop"]).await.ok();
            let newer = rolled["secret"].as_str().expect("shown once");
            site.device.cli(&["callback", "test", "shop"]).await.ok();
            let second = site.office.receives(2).await.swap_remove(1);
            let text = |got: &ReceivedRequest| String::from_utf8(got.body.to_vec()).expect("a callback is UTF-8");
            for library in [&npm as &dyn Fn() -> Command, &pypi] {
                let genuine = verified(library(), &site.secret, &first, &text(&first));
                assert_eq!(genuine.as_deref(), Some("run.succeeded"));
                for secret in [&site.secret, newer] {
                    let genuine = verified(library(), secret, &second, &text(&second));
                    assert_eq!(genuine.as_deref(), Some("webhook.test"), "the old and the new secret are good");
                }
                assert_eq!(
                    verified(library(), newer, &first, &text(&first)),
                    None,
                    "it was not signed with the new one"
                );
                let changed = text(&first).replace("succeeded", "cancelled");
                assert_eq!(verified(library(), &site.secret, &first, &changed), None, "it was changed on its way");
            }
        },
    );
}

#[test]
fn whenever_the_gateway_is_killed_every_event_arrives_and_is_known_by_its_identifier() {
    netns::run_test(
        "callbacks::whenever_the_gateway_is_killed_every_event_arrives_and_is_known_by_its_identifier",
        async || {
            let mut site = CallbackFixture::new().await;
            let mut runs = Vec::new();

            // Confirmed but not recorded: the gateway is frozen before the answer, and killed after it.
            let answer = Arc::new(Notify::new());
            site.office.behaves(ReceiverBehaviour::Waits(answer.clone()));
            runs.push(site.backend.submit("one").await);
            site.office.receives(1).await;
            site.gateway.process().signal(Signal::STOP);
            answer.notify_one();
            until("the answer", async || {
                if lock(&site.office.confirmed).len() == 1 { Ok(()) } else { Err("not yet".to_owned()) }
            })
            .await;
            site.killed().await;

            // Claimed and sent, never answered.
            site.office.behaves(ReceiverBehaviour::Hangs);
            let second = site.backend.submit("two").await;
            until("the second to be sent", async || {
                let came =
                    site.office.receiver.requests().iter().any(|got| json(got)["data"]["run"]["run_id"] == *second);
                if came { Ok(()) } else { Err("not yet".to_owned()) }
            })
            .await;
            runs.push(second);
            site.killed().await;

            // Queued, and killed at a random moment.
            site.office.behaves(ReceiverBehaviour::Confirms);
            for text in ["three", "four", "five"] {
                let run_id = site.backend.submit(text).await;
                site.backend.wait_for_end(&run_id).await;
                site.killed().await;
                runs.push(run_id);
            }

            site.settled().await;
            assert_eq!(site.states().await, ["5 delivered"]);
            let got = site.office.receiver.requests();
            assert!(got.len() >= 7, "two of them were sent again: {}", got.len());
            assert!(got.iter().all(|got| is_signed_by(&site.secret, got)));
            for run_id in &runs {
                let mine: Vec<_> = got.iter().filter(|got| json(got)["data"]["run"]["run_id"] == **run_id).collect();
                let ids: BTreeSet<_> = mine.iter().map(|got| got.header("webhook-id").to_owned()).collect();
                assert_eq!(ids.len(), 1, "one event has one identifier");
                assert!(ids.is_subset(&lock(&site.office.confirmed)), "{run_id} never arrived");
                let attempts: BTreeSet<_> = mine.iter().map(|got| got.header("x-deskgate-attempt")).collect();
                assert_eq!(attempts.len(), mine.len(), "no attempt was made twice");
            }
        },
    );
}

#[tokio::test]
async fn an_administrator_sends_again_one_delivery_or_all_that_failed() {
    let postgres = Postgres::shared().await;
    let gateway = GatewayProcess::start(&postgres, &[]).await;
    let device = TestDevice::paired_with(&gateway).await;
    let made = device.cli(&["app", "create", "shop"]).await.ok();
    let app_id = made["application"]["app_id"].as_str().expect("a text");
    // No host is allowed, so no callback is sent.
    device
        .cli(&["callback", "set", "shop", "--url", "https://hooks.invalid/in", "--event", "run.succeeded"])
        .await
        .ok();
    device.cli(&["delivery", "trigger", "run.succeeded", "--app", "shop"]).await.ok();
    let listed = async |state: &str| {
        let list = gateway.admin(&["delivery", "list", "--state", state, "--app", app_id]).await.ok();
        list["deliveries"].as_array().expect("a list").clone()
    };
    let attempted = async |times: u64| {
        until(&format!("attempt {times} to have failed"), async || {
            let pending = listed("pending").await;
            let failed =
                pending.first().filter(|own| own["error_code"] == "host_not_allowed" && own["attempt"] == times);
            failed.map(|own| own["delivery_id"].as_str().expect("a text").to_owned()).ok_or(format!("{pending:?}"))
        })
        .await
    };
    let give_up =
        "UPDATE deliveries SET state = 'exhausted', due_at = NULL, finished_at = now(), purge_at = now() + '1 hour'";
    let delivery_id = attempted(1).await;
    assert_eq!(postgres.change(give_up).await, 1);

    let recover = ["delivery", "recover", "--app", app_id, "--since", "2026-01-01T00:00:00Z"];
    assert_eq!(gateway.admin(&[&recover[..], &["--count"]].concat()).await.ok()["deliveries"], 1);
    assert_eq!(listed("exhausted").await.len(), 1, "counting changes nothing");
    assert_eq!(gateway.admin(&recover).await.ok()["deliveries"], 1);
    assert_eq!(attempted(2).await, delivery_id);

    assert_eq!(postgres.change(give_up).await, 1);
    let resent = gateway.admin(&["delivery", "resend", &delivery_id]).await.ok();
    assert_eq!(resent["delivery"]["delivery_id"], *delivery_id);
    attempted(3).await;
    let said = gateway.plain_admin(&["delivery", "show", &delivery_id]).await.stdout;
    assert_eq!(said.matches("host_not_allowed").count(), 3, "{said}");
    device.cli(&["callback", "disable", "shop"]).await.ok();
    let refused = gateway.admin(&["delivery", "resend", &delivery_id]).await;
    assert!(refused.exit != 0 && refused.stderr.contains("its owner must enable it first"), "{}", refused.stderr);
    let unknown = gateway.admin(&["delivery", "resend", "dlv_0192f1c047117000800000000000000a"]).await;
    assert!(unknown.exit != 0 && unknown.stderr.contains("there is no delivery"), "{}", unknown.stderr);
}

#[tokio::test]
async fn whoever_listens_on_this_computer_gets_what_a_callback_would() {
    let postgres = Postgres::shared().await;
    let gateway = GatewayProcess::start(&postgres, &[]).await;
    let (device, folder) = (TestDevice::paired_with(&gateway).await, Folder::new());
    let backend = device.publish(&gateway, "shop", &folder, &[]).await;
    let (tell, mut told) = mpsc::unbounded_channel();
    let receive = move |headers: axum::http::HeaderMap, body: axum::body::Bytes| {
        let _ = tell.send((headers, body));
        async { StatusCode::OK }
    };
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let to = format!("http://{}/hook", listener.local_addr().expect("bound"));
    let router = axum::Router::new().route("/hook", axum::routing::post(receive));
    let _serving = tokio_util::task::AbortOnDropHandle::new(tokio::spawn(async move {
        axum::serve(listener, router).await.expect("it serves for ever");
    }));
    let elsewhere = device.cli(&["listen", "--app", "shop", "--forward-to", "http://192.0.2.1/"]).await;
    assert_eq!(elsewhere.exit, 2, "{}", elsewhere.stderr);
    let arguments = ["--json", "listen", "--app", "shop", "--forward-to", &to, "--event", "run.succeeded"];
    let listening = device.begin_cli(&arguments);
    let opened: Value = serde_json::from_str(&listening.log.line(&["listening/1"]).await).expect("JSON");
    let secret = opened["secret"].as_str().expect("shown once");
    let run_id = backend.submit("What does order 4711 say?").await;
    let (headers, body) = told.recv().await.expect("it serves");
    let header = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned();
    let [signature, id, at] = ["webhook-signature", "webhook-id", "webhook-timestamp"].map(header);
    let secret = SigningSecret::parse(secret).expect("a secret");
    assert!(is_signed(&signature, &[&secret], &id, &at, &body));
    let said: Value = serde_json::from_slice(&body).expect("JSON");
    assert_eq!(said["data"]["run"]["run_id"], run_id.as_str());
    listening.log.line(&["forwarded/1", "200"]).await;
    until("the delivery to be confirmed", async || {
        let list = device.cli(&["delivery", "list", "--app", "shop"]).await.ok();
        let delivery = &list["deliveries"][0];
        if delivery["state"] == "delivered" && delivery["to"] == "listener" { Ok(()) } else { Err(list.to_string()) }
    })
    .await;
    let callbacks = backend.send(backend.request(reqwest::Method::GET, "/deliveries")).await.expect("answered");
    assert_eq!(callbacks.body["data"], serde_json::json!([]), "callers do not see who listens");
}
