//! Callbacks, by the real programs: over TLS to a name, and whatever dies in between.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use deskgate_gateway::signing::{SigningSecret, is_signed};
use deskgate_tests::receiver::{HOST, Manner, Received, Receiver, in_a_network_of_its_own};
use deskgate_tests::wait::{until, until_within};
use deskgate_tests::{Backend, Device, Folder, GatewayProcess, Postgres};
use rustix::process::Signal;
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::sync::Notify;

/// A lease of an attempt, and what a busy machine needs.
const LEASED: Duration = Duration::from_secs(75);

/// A gateway whose application has a callback to a receiver in this network.
struct Site {
    receiver: Receiver,
    postgres: Postgres,
    gateway: GatewayProcess,
    device: Device,
    backend: Backend,
    secret: String,
    _folder: Folder,
}

impl Site {
    async fn new() -> Self {
        let receiver = Receiver::start().await;
        let postgres = Postgres::shared().await;
        let roots = format!("callbacks.ca_file={}", receiver.ca_file().display());
        let gateway = GatewayProcess::start(&postgres, &[&roots]).await;
        let (device, folder) = (Device::paired_with(&gateway).await, Folder::new());
        let backend = device.publish(&gateway, "shop", &folder, &[]).await;
        gateway.admin(&["allowlist", "add", HOST]).await.ok();
        let url = format!("https://{HOST}/deskgate");
        let set = device.cli(&["callback", "set", "shop", "--url", &url, "--event", "run.succeeded"]).await.ok();
        let secret = set["secret"].as_str().expect("shown once").to_owned();
        Self { receiver, postgres, gateway, device, backend, secret, _folder: folder }
    }

    async fn states(&self) -> Vec<String> {
        let rows =
            self.postgres.rows("SELECT state, count(*) AS n FROM deliveries GROUP BY state ORDER BY state").await;
        rows.iter().map(|row| format!("{}: {}", row["state"], row["n"])).collect()
    }

    /// Waits until nothing is pending.
    async fn settled(&self) {
        until_within(LEASED, "nothing to be pending", async || {
            let states = self.states().await;
            if states.iter().any(|state| state.contains("pending")) { Err(states.join(", ")) } else { Ok(()) }
        })
        .await;
    }

    fn assert_signed(&self, received: &Received) {
        let secret = SigningSecret::parse(&self.secret).expect("a secret");
        let [signature, id, at] =
            ["webhook-signature", "webhook-id", "webhook-timestamp"].map(|name| received.header(name));
        assert!(is_signed(signature, &[&secret], id, at, &received.body), "{received:?}");
    }
}

#[tokio::test]
async fn a_callback_arrives_over_tls_and_every_attempt_can_be_read_afterwards() {
    if !in_a_network_of_its_own("callbacks::a_callback_arrives_over_tls_and_every_attempt_can_be_read_afterwards") {
        return;
    }
    let site = Site::new().await;
    let tested = site.device.cli(&["callback", "test", "shop"]).await.ok();
    assert_eq!(tested["delivery"]["state"], "delivered", "{tested}");
    let run_id = site.backend.submit("What does order 4711 say?").await;
    let run = site.backend.ended(&run_id).await;
    let received = site.receiver.receives(2).await.swap_remove(1);
    site.assert_signed(&received);
    let body = received.json();
    assert_eq!((&body["type"], &body["data"]["run"]), (&"run.succeeded".into(), &run));
    site.settled().await;
    let answer = site.backend.send(site.backend.request(reqwest::Method::GET, "/deliveries")).await.expect("answered");
    let delivery = &answer.body["data"][0];
    assert_eq!((&delivery["state"], &delivery["status_code"]), (&"delivered".into(), &204.into()), "{answer:?}");
    assert_eq!(delivery["event_id"], received.header("webhook-id"));
    let id = delivery["delivery_id"].as_str().expect("a text");
    assert_eq!(site.gateway.admin(&["delivery", "show", id]).await.ok()["attempts"].as_array().map(Vec::len), Some(1));
    // The list is the administrator's.
    let refused = site.device.cli(&["allowlist", "set", "evil.example.com"]).await;
    assert!(refused.exit == 6 && refused.stderr.contains("administrator"), "{}", refused.stderr);
    assert_eq!(site.device.cli(&["allowlist", "show"]).await.ok()["hosts"], serde_json::json!([HOST]));
    site.gateway.admin(&["allowlist", "remove", HOST]).await.ok();
    let blocked = site.device.cli(&["callback", "test", "shop"]).await;
    assert_eq!(blocked.exit, 1, "{}", blocked.stderr);
    assert_eq!(blocked.value["delivery"]["error_code"], "host_not_allowed");
    assert_eq!(site.receiver.received().len(), 2);
}

#[tokio::test]
async fn whenever_the_gateway_is_killed_every_event_arrives_and_is_known_by_its_identifier() {
    if !in_a_network_of_its_own(
        "callbacks::whenever_the_gateway_is_killed_every_event_arrives_and_is_known_by_its_identifier",
    ) {
        return;
    }
    let mut site = Site::new().await;
    let mut runs = Vec::new();

    // Confirmed, but nobody wrote it down: the gateway is frozen before the answer, and killed after it.
    let answer = Arc::new(Notify::new());
    site.receiver.behaves(Manner::Waits(answer.clone()));
    runs.push(site.backend.submit("one").await);
    site.receiver.receives(1).await;
    site.gateway.process().signal(Signal::STOP);
    answer.notify_one();
    until(
        "the answer",
        async || if site.receiver.received()[0].confirmed { Ok(()) } else { Err("not yet".to_owned()) },
    )
    .await;
    site.gateway.kill_9();
    site.gateway.restart().await;
    site.device.line_is("connected").await;

    // Claimed, sent, never answered.
    site.receiver.behaves(Manner::Hangs);
    runs.push(site.backend.submit("two").await);
    let of = |run_id: &str| {
        let run_id = run_id.to_owned();
        move |received: &&Received| received.json()["data"]["run"]["run_id"] == run_id.as_str()
    };
    until("the second to be sent", async || {
        if site.receiver.received().iter().any(|received| of(&runs[1])(&received)) {
            Ok(())
        } else {
            Err(String::new())
        }
    })
    .await;
    site.gateway.kill_9();
    site.gateway.restart().await;
    site.device.line_is("connected").await;

    // Queued, and nobody claims it: nobody is there when it is due.
    site.receiver.behaves(Manner::Confirms);
    let waiting = site.backend.submit("three").await;
    runs.push(waiting.clone());
    site.backend.ended(&waiting).await;
    site.gateway.kill_9();
    site.gateway.restart().await;

    site.settled().await;
    assert_eq!(site.states().await, ["\"delivered\": 3"]);
    let received = site.receiver.received();
    received.iter().for_each(|received| site.assert_signed(received));
    for run_id in &runs {
        let mine: Vec<_> = received.iter().filter(of(run_id)).collect();
        let ids: BTreeSet<_> = mine.iter().map(|received| received.header("webhook-id")).collect();
        assert!(mine.iter().any(|received| received.confirmed), "{run_id} never arrived");
        assert_eq!(ids.len(), 1, "one event has one identifier");
        let attempts: BTreeSet<_> = mine.iter().map(|received| received.header("x-deskgate-attempt")).collect();
        assert_eq!(attempts.len(), mine.len(), "no attempt was made twice");
    }
    assert!(received.len() >= 5, "two of them were sent again");
}

#[tokio::test]
async fn whoever_listens_on_this_computer_gets_what_a_callback_would() {
    let postgres = Postgres::shared().await;
    let gateway = GatewayProcess::start(&postgres, &[]).await;
    let (device, folder) = (Device::paired_with(&gateway).await, Folder::new());
    let backend = device.publish(&gateway, "shop", &folder, &[]).await;
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let to = format!("http://{}/hook", listener.local_addr().expect("bound"));
    let elsewhere = device.cli(&["listen", "--app", "shop", "--forward-to", "http://192.0.2.1/"]).await;
    assert_eq!(elsewhere.exit, 2, "{}", elsewhere.stderr);
    let listening =
        device.begin_cli(&["--json", "listen", "--app", "shop", "--forward-to", &to, "--event", "run.succeeded"]);
    let opened: Value = serde_json::from_str(&listening.log.line(&["listening/1"]).await).expect("JSON");
    let secret = SigningSecret::parse(opened["secret"].as_str().expect("shown once")).expect("a secret");
    let run_id = backend.submit("What does order 4711 say?").await;
    let (mut stream, _) = listener.accept().await.expect("somebody comes");
    let mut heard = Vec::new();
    let (headers, body) = loop {
        stream.read_buf(&mut heard).await.expect("read");
        if let Some(whole) = deskgate_tests::receiver::whole(&heard) {
            break whole;
        }
    };
    stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").await.expect("written");
    let received = Received { headers, body, confirmed: true };
    let [signature, id, at] =
        ["webhook-signature", "webhook-id", "webhook-timestamp"].map(|name| received.header(name));
    assert!(is_signed(signature, &[&secret], id, at, &received.body));
    assert_eq!(received.json()["data"]["run"]["run_id"], run_id.as_str());
    listening.log.line(&["forwarded/1", "200"]).await;
    until("the delivery to be confirmed", async || {
        let list = device.cli(&["deliveries", "list", "--app", "shop"]).await.ok();
        let delivery = &list["deliveries"][0];
        if delivery["state"] == "delivered" && delivery["to"] == "listener" { Ok(()) } else { Err(list.to_string()) }
    })
    .await;
    let callbacks = backend.send(backend.request(reqwest::Method::GET, "/deliveries")).await.expect("answered");
    assert_eq!(callbacks.body["data"], serde_json::json!([]), "callers do not see who listens");
}
