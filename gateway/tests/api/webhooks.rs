//! Events of other systems: genuine ones become runs, once each; all others do not.

use std::collections::BTreeMap;

use deskgate_gateway::signing::{SigningSecret, sign};
use deskgate_protocol::conversation::OnBusy;
use deskgate_protocol::management::*;
use deskgate_protocol::{HookId, RunId, Timestamp};
use serde_json::{Value, json};

use crate::support::call::{TestRequest, TestResponse};
use crate::support::gateway::{DeviceFixture, TestGateway};
use crate::support::until;

/// A webhook, and a sender that knows its secret.
struct WebhookSender {
    hook_id: HookId,
    secret: SigningSecret,
}

/// The settings that tests begin with: tickets for their customers.
pub(crate) fn settings(device: &DeviceFixture) -> WebhookSettings {
    WebhookSettings {
        name: "tickets".to_owned(),
        endpoint_id: device.endpoint,
        scheme: WebhookScheme::StandardWebhooks {},
        filter: WebhookFilter {
            event_types: vec!["ticket.*".to_owned()],
            condition: Some("payload.ticket.urgent".to_owned()),
        },
        mapping: WebhookMapping {
            text: "{{ event.type }}: {{ $.ticket.title }}".to_owned(),
            subject: Some("anna".to_owned()),
            subject_path: Some("$.ticket.customer".to_owned()),
            conversation_key: None,
            on_busy: Default::default(),
            metadata: BTreeMap::from([("ticket".to_owned(), "$.ticket.id".to_owned())]),
            data: BTreeMap::new(),
        },
        requests_per_second: 1000,
        keep_bodies: false,
    }
}

fn ticket() -> Value {
    json!({ "type": "ticket.created", "ticket": { "id": 7, "title": "It {{ $.breaks }}", "urgent": true } })
}

impl WebhookSender {
    async fn new(gateway: &TestGateway, change: impl FnOnce(&mut WebhookSettings)) -> Self {
        let mut settings = settings(&gateway.device);
        change(&mut settings);
        let request = CreateWebhook { app_id: gateway.device.app.id, settings: settings.into(), secret: None };
        let made = gateway.device.desktop.create_webhook(request).await.expect("created");
        let secret = SigningSecret::parse(&made.secret.expect("made here").0).expect("a secret");
        Self { hook_id: made.webhook.hook_id, secret }
    }

    /// An event, signed now.
    fn event(&self, gateway: &TestGateway, id: &str, body: &Value) -> TestRequest {
        let (body, now) = (body.to_string(), Timestamp::now().0.as_second());
        gateway
            .call("POST", &format!("/api/v1/webhooks/{}", self.hook_id))
            .header("webhook-id", id)
            .header("webhook-timestamp", now.to_string())
            .header("webhook-signature", sign(&[&self.secret], id, now, body.as_bytes()))
            .text(body)
    }

    async fn send(&self, gateway: &TestGateway, id: &str, body: &Value) -> TestResponse {
        self.event(gateway, id, body).send().await
    }

    /// The receipts, once there are so many.
    async fn receipts(&self, gateway: &TestGateway, count: usize) -> Vec<WebhookReceipt> {
        let show = async || {
            let detail = gateway.device.desktop.webhook(ShowWebhook { hook_id: self.hook_id }).await.expect("there");
            detail.receipts
        };
        until("receipts are written", async || show().await.len() >= count).await;
        show().await
    }
}

fn ignored(reply: &TestResponse) -> String {
    assert_eq!((reply.status, &reply.json()["ignored"]), (200, &json!(true)), "{reply:?}");
    reply.json()["reason"].as_str().expect("a text").to_owned()
}

async fn runs(gateway: &TestGateway) -> String {
    gateway.database.value("SELECT count(*)::text FROM runs").await
}

#[tokio::test]
async fn a_signed_event_becomes_the_run_that_the_mapping_makes_of_it() {
    let gateway = TestGateway::new().await;
    let sender = WebhookSender::new(&gateway, |_| {}).await;
    let reply = sender.send(&gateway, "evt-1", &ticket()).await;
    reply.assert_envelope();
    assert_eq!(reply.json().as_object().expect("an object").len(), 1, "the sender learns the run, and nothing of it");
    assert_eq!(reply.header("ratelimit-policy"), Some("\"webhook\";q=4000;w=4"));
    let run = gateway.read(reply.run_id()).await.json();
    assert_eq!(run["input"], json!({ "text": "ticket.created: It {{ $.breaks }}" }));
    let labels = json!({
        "ticket": "7",
        "webhook_hook_id": sender.hook_id.to_string(),
        "webhook_event_id": "evt-1",
        "webhook_event_type": "ticket.created",
    });
    assert_eq!(run["metadata"], labels);

    let mut of_berta = ticket();
    of_berta["ticket"]["customer"] = json!("berta");
    let run_id = sender.send(&gateway, "evt-2", &of_berta).await.run_id();
    assert_eq!(gateway.read(run_id).await.status, 404, "it is not anna's");
    assert_eq!(gateway.ask("GET", &format!("/api/v1/runs/{run_id}")).subject("berta").send().await.status, 200);
    gateway.stop().await;
}

#[tokio::test]
async fn an_event_that_comes_twenty_times_at_once_and_again_after_every_change_is_one_run() {
    let gateway = TestGateway::new().await;
    let sender = WebhookSender::new(&gateway, |_| {}).await;
    let body = ticket();
    let events = (0..20).map(|_| sender.send(&gateway, "evt-1", &body));
    let replies = futures_util::future::join_all(events).await;
    let first = replies[0].run_id();
    assert!(replies.iter().all(|reply| reply.run_id() == first));

    // Also with another body, and when the filter ignores it by now.
    let mut other = ticket();
    other["ticket"]["title"] = json!("Another title");
    assert_eq!(sender.send(&gateway, "evt-1", &other).await.run_id(), first);
    other["type"] = json!("invoice.paid");
    assert_eq!(sender.send(&gateway, "evt-1", &other).await.run_id(), first);
    gateway
        .device
        .desktop
        .enable_webhook(EnableWebhook { hook_id: sender.hook_id, enabled: false })
        .await
        .expect("there");
    let mut other_events = (2..).map(|number| format!("evt-{number}"));
    let mut next = || other_events.next().expect("there is no last");
    until("it is disabled", async || sender.send(&gateway, &next(), &ticket()).await.status == 200).await;
    assert_eq!(sender.send(&gateway, "evt-1", &ticket()).await.run_id(), first);
    let of_it = "SELECT count(*)::text FROM runs WHERE metadata->>'webhook_event_id' = 'evt-1'";
    assert_eq!(gateway.database.value(of_it).await, "1");
    let outcomes: Vec<_> = sender.receipts(&gateway, 20).await.iter().map(|receipt| receipt.outcome).collect();
    assert!(outcomes.contains(&ReceiptOutcome::Repeated) && outcomes.len() == 20, "{outcomes:?}");
    gateway.stop().await;
}

#[tokio::test]
async fn nobody_without_the_secret_learns_whether_there_is_such_a_webhook() {
    let gateway = TestGateway::new().await;
    let sender = WebhookSender::new(&gateway, |_| {}).await;
    let removed = WebhookSender::new(&gateway, |_| {}).await;
    gateway.device.desktop.remove_webhook(RemoveWebhook { hook_id: removed.hook_id }).await.expect("removed");
    let other = WebhookSender { hook_id: sender.hook_id, secret: SigningSecret::generate() };
    let unknown = WebhookSender { hook_id: HookId::new(), secret: SigningSecret::generate() };
    let event = |sender: &WebhookSender| sender.event(&gateway, "evt-1", &ticket());
    let twice = event(&sender).more("webhook-id", "evt-1");
    let unsigned = event(&sender).without("webhook-signature");
    let late = event(&sender).header("webhook-timestamp", "1000");
    let changed = event(&sender).text(ticket().to_string() + " ");
    let no_id = event(&sender).to(gateway.gateway.addresses().http, "/api/v1/webhooks/nothing");
    let calls = [event(&other), event(&removed), event(&unknown), twice, unsigned, late, changed, no_id];
    let mut seen = Vec::new();
    for call in calls {
        let reply = call.send().await;
        reply.assert_envelope();
        assert_eq!((reply.status, reply.header("www-authenticate")), (401, Some("Webhook-Signature")), "{reply:?}");
        let mut document = reply.json();
        document["request_id"] = Value::Null;
        seen.push(document);
    }
    assert_eq!(seen[0]["code"], "signature_invalid");
    assert!(seen.iter().all(|document| *document == seen[0]), "{seen:?}");
    assert_eq!(runs(&gateway).await, "0");
    let reasons = sender.receipts(&gateway, 1).await;
    assert_eq!((reasons[0].outcome, reasons[0].event_id.as_deref()), (ReceiptOutcome::Refused, None));
    assert_eq!(reasons[0].reason.as_deref(), Some("the signature does not fit"), "its owner learns why");
    gateway.stop().await;
}

#[tokio::test]
async fn what_is_not_wanted_is_ignored_and_what_does_not_fit_is_refused_and_both_say_why() {
    let gateway = TestGateway::new().await;
    let sender = WebhookSender::new(&gateway, |settings| {
        settings.keep_bodies = true;
        settings.mapping.subject = None;
    })
    .await;
    let (mut other, mut calm, mut nobody) = (ticket(), ticket(), ticket());
    other["type"] = json!("invoice.paid");
    calm["ticket"]["urgent"] = json!(false);
    nobody["ticket"]["customer"] = json!("Anna Müller");
    let reply = sender.send(&gateway, "1", &other).await;
    assert_eq!(ignored(&reply), "the filter does not have the type \"invoice.paid\"");
    assert_eq!(ignored(&sender.send(&gateway, "2", &calm).await), "the condition does not hold");
    let reply = sender.send(&gateway, "3", &ticket()).await;
    assert_eq!((reply.status, reply.code()), (422, "mapping_failed".to_owned()));
    assert!(reply.json()["detail"].as_str().unwrap().contains("names no subject"), "{reply:?}");
    assert_eq!(sender.send(&gateway, "4", &nobody).await.status, 422);
    assert_eq!(sender.send(&gateway, "5", &json!("{{")).await.status, 200, "any JSON can be judged");
    assert_eq!(runs(&gateway).await, "0");

    let receipts = sender.receipts(&gateway, 5).await;
    let shown: Vec<_> = receipts.iter().rev().map(|r| (r.event_id.as_deref().unwrap(), r.outcome)).collect();
    use ReceiptOutcome::{Ignored, Refused};
    assert_eq!(shown, [("1", Ignored), ("2", Ignored), ("3", Refused), ("4", Refused), ("5", Ignored)]);
    assert_eq!(receipts[4].body.as_deref(), Some(other.to_string().as_str()));

    // A stored body can be tried again with another mapping, before that is saved.
    let mut settings = settings(&gateway.device);
    settings.name = "another".to_owned();
    let sample = WebhookSample::Receipt { receipt_id: receipts[2].receipt_id };
    let test = TestWebhook { hook_id: Some(sender.hook_id), settings: Some(settings.into()), sample: sample.clone() };
    let trial = gateway.device.desktop.test_webhook(test).await.expect("tried");
    let TrialOutcome::Submitted(mapped) = trial.outcome else { panic!("{trial:?}") };
    assert_eq!((mapped.subject.as_str(), trial.event_id.as_deref()), ("anna", Some("3")));
    let test = TestWebhook { hook_id: Some(sender.hook_id), settings: None, sample };
    let trial = gateway.device.desktop.test_webhook(test).await.expect("tried");
    assert!(matches!(trial.outcome, TrialOutcome::Refused { .. }), "{trial:?}");
    assert_eq!(runs(&gateway).await, "0", "a trial submits nothing");
    gateway.stop().await;
}

#[tokio::test]
async fn an_event_with_a_conversation_is_a_message_in_its_present_generation() {
    let gateway = TestGateway::new().await;
    let sender = WebhookSender::new(&gateway, |settings| {
        settings.mapping.conversation_key = Some("$.ticket.id".to_owned());
    })
    .await;
    let (session, _) = gateway.device.connect().await;
    let first = sender.send(&gateway, "evt-1", &ticket()).await.run_id();
    let run = gateway.read(first).await.json();
    assert_eq!((&run["generation"], run["conversation_id"].is_string()), (&json!(1), true));

    let busy = sender.send(&gateway, "evt-2", &ticket()).await;
    assert_eq!(
        (busy.status, busy.code(), busy.header("retry-after")),
        (409, "conversation_busy".to_owned(), Some("30"))
    );
    assert_eq!(sender.send(&gateway, "evt-1", &ticket()).await.run_id(), first, "its own run is no reason");

    finish(&gateway, session, first).await;
    let second = sender.send(&gateway, "evt-2", &ticket()).await.run_id();
    finish(&gateway, session, second).await;
    let conversation: String = run["conversation_id"].as_str().expect("a text").to_owned();
    gateway
        .database
        .execute(&format!(
            "UPDATE conversations SET generation = 4 WHERE 'conv_' || replace(conversation_id::text, '-', '') = '{conversation}'"
        ))
        .await;
    let third = gateway.read(sender.send(&gateway, "evt-3", &ticket()).await.run_id()).await.json();
    assert_eq!((&third["conversation_id"], &third["generation"]), (&run["conversation_id"], &json!(4)));
    let mut other = ticket();
    other["ticket"]["id"] = json!("a\u{7}b");
    assert_eq!(sender.send(&gateway, "evt-4", &other).await.code(), "mapping_failed");
    gateway.stop().await;
}

#[tokio::test]
async fn an_event_waits_for_its_conversation_or_interrupts_it_if_its_webhook_says_so() {
    let gateway = TestGateway::new().await;
    let with = async |on_busy| {
        WebhookSender::new(&gateway, |settings| {
            settings.name = format!("tickets that {on_busy}");
            settings.mapping.conversation_key = Some("$.ticket.id".to_owned());
            settings.mapping.on_busy = on_busy;
        })
        .await
    };
    let (waits, interrupts) = (with(OnBusy::Enqueue).await, with(OnBusy::Interrupt).await);
    let (session, _) = gateway.device.connect().await;
    let first = waits.send(&gateway, "evt-1", &ticket()).await.run_id();
    assert_eq!(crate::conversations::start(&gateway, session).await, first);
    let second = waits.send(&gateway, "evt-2", &ticket()).await.run_id();
    assert_eq!(gateway.read(second).await.json()["conversation_position"], 1);
    let third = interrupts.send(&gateway, "evt-3", &ticket()).await.run_id();
    assert_eq!(gateway.read(third).await.json()["conversation_position"], 2);
    assert_eq!(gateway.read(first).await.json()["state"], "cancelling");
    assert_eq!(interrupts.send(&gateway, "evt-3", &ticket()).await.run_id(), third, "the same event");
    let noted = gateway.store().activity(gateway.device.device_id, None, None, 10).await.expect("activity");
    let stopped = noted.iter().find(|entry| entry.what == ActivityKind::RunStopped).expect("noted");
    assert_eq!((stopped.by, stopped.about.clone()), (Actor::Webhook, Some(first.to_string())));
    gateway.stop().await;
}

async fn finish(gateway: &TestGateway, session: deskgate_gateway::store::leases::SessionKey, run_id: RunId) {
    assert_eq!(crate::conversations::start(gateway, session).await, run_id);
    crate::conversations::report(gateway, session, run_id, crate::store::succeeded(1)).await;
}

#[tokio::test]
async fn a_webhook_takes_so_many_events_and_repetitions_find_their_runs_all_the_same() {
    let gateway = TestGateway::new().await;
    let sender = WebhookSender::new(&gateway, |settings| settings.requests_per_second = 1).await;
    let first = sender.send(&gateway, "evt-0", &ticket()).await.run_id();
    let mut refused = None;
    for number in 1..20 {
        let reply = sender.send(&gateway, &format!("evt-{number}"), &ticket()).await;
        if reply.status == 429 {
            refused = Some(reply);
            break;
        }
    }
    let refused = refused.expect("twenty at once are too many");
    assert_eq!((refused.code(), refused.header("retry-after")), ("rate_limited".to_owned(), Some("1")));
    assert_eq!(refused.header("ratelimit-policy"), Some("\"webhook\";q=4;w=4"));
    assert_eq!(sender.send(&gateway, "evt-0", &ticket()).await.run_id(), first);
    gateway.stop().await;
}

#[tokio::test]
async fn bodies_that_are_too_large_or_no_json_are_refused_and_a_pause_is_told() {
    let gateway = TestGateway::new().await;
    let sender = WebhookSender::new(&gateway, |_| {}).await;
    let large = sender.send(&gateway, "1", &json!({ "a": "x".repeat(256 * 1024) })).await;
    assert_eq!((large.status, &large.json()["limit_bytes"]), (413, &json!(262_144)));
    let form = sender.event(&gateway, "2", &ticket()).header("Content-Type", "application/x-www-form-urlencoded");
    assert_eq!(form.send().await.status, 415);
    let now = Timestamp::now().0.as_second();
    let text = sender
        .event(&gateway, "3", &ticket())
        .header("webhook-signature", sign(&[&sender.secret], "3", now, b"{\"a\""))
        .header("webhook-timestamp", now.to_string())
        .text("{\"a\"");
    assert_eq!(text.send().await.code(), "malformed_json");
    gateway.device.allow(false).await;
    let paused = sender.send(&gateway, "4", &ticket()).await;
    assert_eq!((paused.status, paused.code()), (503, "access_paused".to_owned()));
    gateway.device.allow(true).await;
    assert_eq!(sender.send(&gateway, "4", &ticket()).await.status, 202, "a repetition is accepted");
    gateway.stop().await;
}

#[tokio::test]
async fn while_a_secret_rolls_both_are_good_and_afterwards_only_the_new_one() {
    let gateway = TestGateway::new().await;
    let sender = WebhookSender::new(&gateway, |_| {}).await;
    let hook_id = sender.hook_id;
    let roll = async |overlap_s| {
        let request = RollWebhookSecret { hook_id, overlap_s, secret: None };
        let rolled = gateway.device.desktop.roll_webhook_secret(request).await.expect("rolled");
        assert_eq!(rolled.webhook.old_secret_until.is_some(), overlap_s > 0);
        WebhookSender { hook_id, secret: SigningSecret::parse(&rolled.secret.expect("new").0).expect("a secret") }
    };
    let second = roll(3600).await;
    until("the new one is good", async || second.send(&gateway, "evt-1", &ticket()).await.status == 202).await;
    assert_eq!(sender.send(&gateway, "evt-1", &ticket()).await.status, 202);
    let third = roll(0).await;
    until("the new one is good", async || third.send(&gateway, "evt-1", &ticket()).await.status == 202).await;
    assert_eq!(sender.send(&gateway, "evt-1", &ticket()).await.status, 401);
    assert_eq!(second.send(&gateway, "evt-1", &ticket()).await.status, 401);
    for sender in [&sender, &second, &third] {
        let kept = sender.secret.bytes().iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        let found = format!("SELECT count(*)::text FROM webhooks WHERE encode(secret, 'hex') LIKE '%{kept}%'");
        assert_eq!(gateway.database.value(&found).await, "0", "secrets are sealed");
    }
    gateway.stop().await;
}

#[tokio::test]
async fn the_last_twenty_are_kept_and_forgeries_push_out_none_of_them() {
    let gateway = TestGateway::new().await;
    let sender = WebhookSender::new(&gateway, |_| {}).await;
    for number in 0..25 {
        assert_eq!(sender.send(&gateway, &format!("evt-{number}"), &ticket()).await.status, 202);
    }
    let forger = WebhookSender { hook_id: sender.hook_id, secret: SigningSecret::generate() };
    assert_eq!(forger.send(&gateway, "forged", &ticket()).await.status, 401);
    until("all is written", async || {
        let receipts = sender.receipts(&gateway, 21).await;
        receipts[0].reason.is_some() && receipts.len() == 21
    })
    .await;
    let receipts = sender.receipts(&gateway, 21).await;
    let ids: Vec<_> = receipts[1..].iter().filter_map(|receipt| receipt.event_id.clone()).collect();
    assert_eq!(ids, (5..25).rev().map(|number| format!("evt-{number}")).collect::<Vec<_>>());
    assert!(receipts[1..].iter().all(|receipt| receipt.run_id.is_some() && receipt.body.is_none()));
    gateway.stop().await;
}

#[tokio::test]
async fn a_webhook_belongs_to_its_device_and_what_is_done_to_it_is_noted() {
    let gateway = TestGateway::new().await;
    let sender = WebhookSender::new(&gateway, |_| {}).await;
    let hook_id = sender.hook_id;
    let stranger = DeviceFixture::pair(gateway.store()).await.desktop;
    let not_found = ManagementErrorCode::NotFound;
    let show = stranger.webhook(ShowWebhook { hook_id }).await;
    assert_eq!(show.expect_err("not its own").code, not_found);
    let enable = stranger.enable_webhook(EnableWebhook { hook_id, enabled: false }).await;
    assert_eq!(enable.expect_err("not its own").code, not_found);
    let settings_of = |name: &str| WebhookSettings { name: name.to_owned(), ..settings(&gateway.device) };
    let change = stranger.change_webhook(ChangeWebhook { hook_id, settings: settings_of("mine").into() }).await;
    assert_eq!(change.expect_err("not its own").code, not_found);
    let roll = stranger.roll_webhook_secret(RollWebhookSecret { hook_id, overlap_s: 0, secret: None }).await;
    assert_eq!(roll.expect_err("not its own").code, not_found);
    assert_eq!(stranger.remove_webhook(RemoveWebhook { hook_id }).await.expect_err("not its own").code, not_found);
    let create = CreateWebhook { app_id: gateway.device.app.id, settings: settings_of("theirs").into(), secret: None };
    assert_eq!(stranger.create_webhook(create).await.expect_err("not its own").code, not_found);
    assert!(stranger.webhooks(ListWebhooks { app_id: None }).await.expect("a list").is_empty());

    let desktop = &gateway.device.desktop;
    let changed = desktop.change_webhook(ChangeWebhook { hook_id, settings: settings_of("renamed").into() }).await;
    assert_eq!(changed.expect("changed").settings.name, "renamed");
    let github = WebhookSettings { scheme: WebhookScheme::Github {}, ..settings_of("renamed") };
    let changed = desktop.change_webhook(ChangeWebhook { hook_id, settings: github.into() }).await;
    assert_eq!(changed.expect_err("its secret is of another kind").code, ManagementErrorCode::Conflict);
    for enabled in [false, false, true] {
        desktop.enable_webhook(EnableWebhook { hook_id, enabled }).await.expect("there");
    }
    desktop.remove_webhook(RemoveWebhook { hook_id }).await.expect("removed");
    assert_eq!(desktop.remove_webhook(RemoveWebhook { hook_id }).await.expect_err("gone").code, not_found);
    let page = desktop.activity(ListActivity { limit: 5, before: None, app_id: None }).await.expect("a page");
    let done: Vec<_> = page.entries.iter().rev().map(|entry| entry.what.as_str()).collect();
    let expected = ["webhook.created", "webhook.changed", "webhook.disabled", "webhook.enabled", "webhook.removed"];
    assert_eq!(done, expected);
    assert!(page.entries.iter().all(|entry| entry.about == Some(hook_id.to_string())));
    assert_eq!(gateway.database.value("SELECT count(*)::text FROM webhooks WHERE secret IS NOT NULL").await, "0");
    gateway.stop().await;
}

/// A plain HMAC in a header, with the event's identifier somewhere.
fn plain(header: &str, event_id: Option<&str>) -> WebhookScheme {
    WebhookScheme::Hmac(PlainHmac {
        header: header.to_owned(),
        algorithm: HashAlgorithm::Sha256,
        encoding: SignatureEncoding::Hex,
        prefix: String::new(),
        event_id: event_id.map(str::to_owned),
        event_type: None,
    })
}

#[tokio::test]
async fn a_mapping_gives_the_service_the_data_that_it_takes_and_what_does_not_fit_becomes_no_run() {
    let gateway = TestGateway::new().await;
    let sender = WebhookSender::new(&gateway, |settings| {
        let paths = [("number", "$.ticket.id"), ("ticket", "$.ticket"), ("none", "$.nothing")];
        settings.mapping.data = paths.map(|(name, path)| (name.to_owned(), path.to_owned())).into();
    })
    .await;
    let run = gateway.read(sender.send(&gateway, "evt-1", &ticket()).await.run_id()).await.json();
    let data = &run["input"]["data"];
    assert_eq!((&data["number"], &data["ticket"]), (&ticket()["ticket"]["id"], &ticket()["ticket"]));
    assert_eq!(data.get("none"), None, "the event has nothing there");

    let typed = json!({ "type": "object", "properties": { "number": { "type": "string" } }, "required": ["none"] });
    gateway.database.execute(&format!("UPDATE endpoints SET input_schema = '{typed}'")).await;
    let refused = sender.send(&gateway, "evt-2", &ticket()).await;
    assert_eq!((refused.status, &refused.json()["code"]), (422, &json!("mapping_failed")), "{refused:?}");
    assert!(refused.json()["detail"].as_str().is_some_and(|why| why.contains("input.data")), "{refused:?}");
    assert_eq!(runs(&gateway).await, "1");
    let again = sender.send(&gateway, "evt-1", &ticket()).await;
    assert_eq!(again.json()["run_id"], run["run_id"], "what it became stays");

    let mut large = ticket();
    large["ticket"]["text"] = "x".repeat(200 * 1024).into();
    let reply = WebhookSender::new(&gateway, |settings| {
        settings.mapping.data = ["a", "b"].map(|name| (name.to_owned(), "$.ticket".to_owned())).into();
    })
    .await;
    let refused = reply.send(&gateway, "evt-3", &large).await;
    assert_eq!((refused.status, &refused.json()["code"]), (422, &json!("mapping_failed")), "{refused:?}");
    gateway.stop().await;
}

#[tokio::test]
async fn settings_that_cannot_work_are_refused_with_what_is_wrong() {
    let gateway = TestGateway::new().await;
    type Change = fn(&mut WebhookSettings);
    let wrong: [(&str, Change); 12] = [
        ("text: a template has", |s| s.mapping.text = String::new()),
        ("text: at character 4: in {{ }} stands", |s| s.mapping.text = "Hi {{ x }}".to_owned()),
        ("subject-path: ", |s| s.mapping.subject_path = Some("$..customer".to_owned())),
        ("subject: a webhook needs a subject", |s| (s.mapping.subject, s.mapping.subject_path) = (None, None)),
        ("condition: it cannot be read at character 9", |s| s.filter.condition = Some("payload.".to_owned())),
        ("event-type: ", |s| s.filter.event_types = vec!["a*b".to_owned()]),
        ("label: ", |s| s.mapping.metadata = BTreeMap::from([("webhook_hook_id".to_owned(), "$.a".to_owned())])),
        ("data: number: ", |s| s.mapping.data = BTreeMap::from([("number".to_owned(), "$..id".to_owned())])),
        ("data: at most 32", |s| s.mapping.data = (0..33).map(|n| (format!("m{n}"), "$.a".to_owned())).collect()),
        ("rate: ", |s| s.requests_per_second = 0),
        ("signature-header: ", |s| s.scheme = plain("X Sign", None)),
        ("event-id-from: ", |s| s.scheme = plain("X-Sign", Some("$..id"))),
    ];
    for (says, change) in wrong {
        let mut settings = settings(&gateway.device);
        change(&mut settings);
        let request = CreateWebhook { app_id: gateway.device.app.id, settings: settings.into(), secret: None };
        let error = gateway.device.desktop.create_webhook(request).await.expect_err(says);
        assert_eq!(error.code, ManagementErrorCode::Invalid);
        assert!(error.message.contains(says), "{error}");
    }
    gateway.stop().await;
}
