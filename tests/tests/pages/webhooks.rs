//! An application's webhooks, from the choice of a sender to their removal, and the preview of an event.

use deskgate_gateway::signing::{SigningSecret, sign};
use deskgate_protocol::Timestamp;
use deskgate_tests::backend::client;
use deskgate_tests::browser::{BrowserPage, WindowOptions};
use deskgate_tests::{Backend, Browser, Folder, TestDevice, until};
use serde_json::{Value, json};

use crate::accessibility::AccessibilityChecker;
use crate::{FIELDS_JS, agree, choose, text};

/// An application with a service that answers, and its webhook page.
struct WebhookPageFixture {
    browser: Browser,
    device: TestDevice,
    backend: Backend,
    page: BrowserPage,
    _folder: Folder,
}

impl WebhookPageFixture {
    async fn open(look: WindowOptions) -> Option<Self> {
        let browser = Browser::start().await?;
        let (device, folder) = (TestDevice::built_in().await, Folder::new());
        let backend = device.publish_here("shop", &folder, &[]).await;
        let page = browser.window(look).await;
        page.goto(&device.page_link().await).await;
        if look.script == Some(false) {
            page.click("text=Continue").await;
        }
        page.wait_for_visible(".side [aria-current] >> text=Overview").await;
        page.goto("/applications").await;
        page.click("main >> text=shop").await;
        page.click("a >> text=Webhooks").await;
        page.wait_for_visible("text=No webhook yet").await;
        Some(Self { browser, device, backend, page, _folder: folder })
    }

    /// The only webhook, as the command line shows it.
    async fn hook(&self) -> Value {
        let listed = self.device.cli(&["hook", "list"]).await.ok();
        let [hook] = &listed["webhooks"].as_array().expect("a list")[..] else { panic!("{listed}") };
        hook.clone()
    }
}

/// Confirms that the shown secret is stored; it is then shown no more. Returns the secret.
async fn stored(page: &BrowserPage) -> SigningSecret {
    let secret = page.text("#secret").await;
    page.tick("text=I have stored it", true).await;
    page.click("button >> text=Close").await;
    page.wait_for_visible("#state").await;
    assert!(!page.text("body").await.contains(&secret), "it is shown once");
    SigningSecret::parse(&secret).expect("a secret of Standard Webhooks")
}

/// Delivers an event as another system does. Returns the status and the body.
async fn deliver(address: &str, secret: &SigningSecret, id: &str, body: &Value) -> (u16, Value) {
    let (body, now) = (body.to_string(), Timestamp::now().0.as_second());
    let request = client().build().expect("a client").post(address).header("Content-Type", "application/json");
    let request = request.header("webhook-id", id).header("webhook-timestamp", now.to_string());
    let signature = sign(&[secret], id, now, body.as_bytes());
    let answer = request.header("webhook-signature", signature).body(body).send().await.expect("an answer");
    (answer.status().as_u16(), answer.json().await.expect("JSON"))
}

fn ticket(id: u32, urgent: bool) -> Value {
    let ticket = json!({ "id": id, "customer": "customer-1", "title": "It <b>breaks</b>", "urgent": urgent });
    json!({ "type": "ticket.created", "ticket": ticket })
}

#[tokio::test]
async fn a_webhook_is_made_tried_used_rolled_and_removed() {
    let Some(site) = WebhookPageFixture::open(WindowOptions::default()).await else { return };
    let WebhookPageFixture { browser, device, backend, page, .. } = &site;
    let mut judge = AccessibilityChecker::of("webhooks");
    judge.judge(page, "empty").await;

    page.click("a >> text=Standard Webhooks").await;
    page.wait_for_visible("#outcome >> text=It becomes a run.").await;
    judge.judge(page, "new").await;
    what_would_happen_follows_the_form(page, &mut judge).await;

    // A form that fails keeps its values.
    page.fill("#rate", "0").await;
    page.tick("input[name=keep-bodies]", true).await;
    page.wait_for_visible("#rate-error").await;
    let filled = page.evaluate(FIELDS_JS).await;
    browser.tolerate(Some("Failed to load resource")).await;
    page.click("button >> text=Create webhook").await;
    page.wait_for_visible("[role=alert] >> text=a webhook takes 1 to 1000 events a second").await;
    browser.tolerate(None).await;
    assert_eq!(page.evaluate(FIELDS_JS).await, filled);
    judge.judge(page, "failed").await;
    page.fill("#rate", "20").await;
    page.click("button >> text=Create webhook").await;
    page.wait_for_visible("h1 >> text=Signing secret").await;
    judge.judge(page, "secret").await;
    let address = page.text("#address").await;
    let secret = stored(page).await;
    let hook = site.hook().await;
    assert_eq!((text(&hook, "/address"), &hook["requests_per_second"]), (address.as_str(), &json!(20)));
    page.wait_for_visible("#received >> text=Nothing came in yet").await;

    // Received events show by themselves, each with its reason.
    let (status, accepted) = deliver(&address, &secret, "msg_1", &ticket(1, true)).await;
    assert_eq!(status, 202, "{accepted}");
    page.wait_for_visible("#received tr >> text=Accepted").await;
    assert_eq!(deliver(&address, &secret, "msg_1", &ticket(1, true)).await, (202, accepted.clone()));
    page.wait_for_visible("#received tr:has-text('Repeated') >> text=it came before").await;
    assert_eq!(deliver(&address, &secret, "msg_2", &ticket(2, false)).await.0, 200);
    page.wait_for_visible("#received tr:has-text('Ignored') >> text=the condition does not hold").await;
    let other = SigningSecret::generate();
    assert_eq!(deliver(&address, &other, "msg_3", &ticket(3, true)).await.0, 401);
    page.wait_for_visible("#received tr:has-text('Refused') >> text=the signature does not fit").await;
    assert_eq!(page.count("#received tbody tr").await, 4);
    judge.judge(page, "received").await;

    // A received event can be used for a test, and earlier input stays.
    page.fill("#condition", "").await;
    page.fill("#text", "{{ event.type }}: {{ $.ticket.title }}").await;
    let ignored =
        page.evaluate("[...document.querySelectorAll('#receipt option')].find((o) => /Ignored/.test(o.text)).value");
    page.choose("#receipt", ignored.await.as_str().expect("text")).await;
    page.wait_for_visible("#becomes >> text=It <b>breaks</b>").await;
    page.wait_for_visible("#becomes dd >> text=msg_2").await;
    page.fill("#conversation-key", "$.ticket.id").await;
    page.wait_for_visible("#outcome >> text=It becomes a message.").await;
    page.click("button >> text=Save webhook").await;
    page.wait_for_visible("#state").await;
    let told = async || match deliver(&address, &secret, "msg_4", &ticket(4, true)).await {
        (202, said) => Ok(said["run_id"].as_str().expect("text").to_owned()),
        other => Err(format!("{other:?}")),
    };
    let run_id = until("the message to be accepted", told).await;
    backend.wait_for_end(&run_id).await;
    page.wait_for_visible("#received >> text=its conversation").await;
    page.click(&format!("#received a[href$='/runs/{run_id}']")).await;
    page.wait_for_visible("#state >> text=Succeeded").await;

    page.goto(&format!("/webhooks/{}", text(&hook, "/hook_id"))).await;
    page.click("text=Roll the secret…").await;
    page.wait_for_visible("dialog[open] >> text=Roll the signing secret?").await;
    judge.judge(page, "roll").await;
    browser.tolerate(Some("Failed to load resource")).await;
    page.fill("dialog #secret", "too easy").await;
    page.click("dialog button >> text=Roll secret").await;
    page.wait_for_visible("[role=alert]").await;
    browser.tolerate(None).await;
    page.fill("#secret", "").await;
    page.click("button >> text=Roll secret").await;
    let rolled = stored(page).await;
    page.wait_for_visible("#state >> text=Two secrets count").await;
    for (id, secret) in [("msg_5", &secret), ("msg_6", &rolled)] {
        let taken = async || match deliver(&address, secret, id, &ticket(5, true)).await.0 {
            202 => Ok(()),
            409 => Err("the conversation is busy".to_owned()),
            status => Err(format!("{id}: {status}")),
        };
        until("both secrets to count", taken).await;
    }
    page.click("button >> text=Switch off").await;
    page.wait_for_visible("#state >> text=Events are ignored").await;
    assert_eq!(site.hook().await["enabled"], json!(false));

    page.click("text=Remove webhook…").await;
    page.wait_for_visible("dialog[open] >> text=Its secret, and what it received, are deleted.").await;
    judge.judge(page, "remove").await;
    page.fill("dialog #confirm", "tickets").await;
    page.click("dialog button >> text=Remove webhook").await;
    page.wait_for_visible("[role=alert] >> text=Nothing was changed").await;
    page.fill("#confirm", "Tickets").await;
    page.click("button >> text=Remove webhook").await;
    page.wait_for_visible("text=No webhook yet").await;
    assert_eq!(device.cli(&["hook", "list"]).await.ok()["webhooks"], json!([]));
    judge.sentence(8);
}

async fn what_would_happen_follows_the_form(page: &BrowserPage, judge: &mut AccessibilityChecker) {
    page.fill("#condition", "payload.ticket.").await;
    page.wait_for_visible("#condition-error >> text=at character 16").await;
    page.wait_for_visible("#outcome >> text=Not known").await;
    assert_eq!(page.evaluate("document.querySelector('#condition').getAttribute('aria-invalid')").await, json!("true"));
    judge.judge(page, "wrong-condition").await;
    page.fill("#condition", "payload.ticket.urgent && payload.ticket.id > 2000").await;
    page.wait_for_visible("#outcome >> text=the condition does not hold").await;
    assert_eq!(page.evaluate("document.querySelector('#condition').getAttribute('aria-invalid')").await, Value::Null);
    page.fill("#condition", "payload.ticket.urgent").await;
    page.fill("#text", "Ticket {{ $.ticket.id }}: {{ $..title }}").await;
    page.wait_for_visible("#text-error >> text=at character 27").await;
    page.fill("#text", "Ticket {{ $.ticket.id }}").await;
    page.wait_for_visible("#becomes pre >> text=Ticket 1880").await;
    page.fill("#subject-path", "$.ticket[").await;
    page.wait_for_visible("#subject-path-error >> text=its character 10").await;
    page.fill("#subject-path", "$.ticket.customer").await;
    page.fill("#body", "{ no JSON").await;
    page.wait_for_visible("#body-error >> text=it is not JSON").await;
    page.fill("#body", &ticket(7, true).to_string()).await;
    page.wait_for_visible("#becomes pre >> text=Ticket 7").await;
    page.wait_for_visible("#becomes dd >> text=customer-1").await;
}

#[tokio::test]
async fn a_webhook_is_made_and_tried_by_keys_alone() {
    let Some(site) = WebhookPageFixture::open(WindowOptions::default()).await else { return };
    let page = &site.page;
    page.wait_for_visible("#live >> text=/^Live$/").await;
    choose(page, "link", "GitHub").await;
    page.wait_for_visible("#outcome >> text=It becomes a run.").await;
    page.tab_to("textbox", "Condition").await;
    page.press("Control+a").await;
    page.types("payload.issue.number > 12").await;
    page.wait_for_visible("#outcome >> text=the condition does not hold").await;
    page.has_focus("textbox", "Condition").await;
    page.press("Control+a").await;
    page.types("payload.issue.number == 12").await;
    page.wait_for_visible("#outcome >> text=It becomes a run.").await;
    choose(page, "button", "Create webhook").await;
    page.wait_for_visible("h1 >> text=Signing secret").await;
    page.tab_to("checkbox", "I have stored it.").await;
    page.press("Space").await;
    choose(page, "button", "Close").await;
    page.wait_for_visible("#state >> text=On").await;
    assert_eq!(text(&site.hook().await, "/filter/condition"), "payload.issue.number == 12");

    choose(page, "link", "Roll the secret…").await;
    agree(page, "Roll the signing secret?", "Roll secret").await;
    page.wait_for_visible("h1 >> text=Signing secret").await;
    page.tab_to("checkbox", "I have stored it.").await;
    page.press("Space").await;
    choose(page, "button", "Close").await;
    page.wait_for_visible("#state >> text=Two secrets count").await;
    choose(page, "button", "Switch off").await;
    page.wait_for_visible("#state >> text=Off").await;
    choose(page, "link", "Remove webhook…").await;
    page.wait_for_visible("dialog >> text=Remove GitHub issues?").await;
    page.has_focus("link", "Cancel").await;
    page.press("Shift+Tab").await;
    page.has_focus("textbox", "Type GitHub issues to confirm").await;
    page.types("GitHub issues").await;
    choose(page, "button", "Remove webhook").await;
    page.wait_for_visible("text=No webhook yet").await;
}

#[tokio::test]
async fn each_kind_of_sender_begins_with_what_works_and_a_button_tries_it_without_the_script() {
    let Some(site) = WebhookPageFixture::open(WindowOptions { script: Some(false), ..WindowOptions::default() }).await
    else {
        return;
    };
    let (page, list) = (&site.page, site.page.url().await);
    for (kind, becomes) in [
        ("GitHub", "Look at issue 12: The printer is on fire"),
        ("Stripe", "Invoice in_1880: invoice.payment_failed"),
        ("Standard Webhooks", "ticket.created: The printer is on fire"),
        ("Plain HMAC", "Order 1880: order.changed"),
    ] {
        page.goto(&list).await;
        page.click(&format!("main a >> text={kind}")).await;
        page.wait_for_visible(&format!("h1 >> text=New webhook: {kind}")).await;
        page.wait_for_visible(&format!("#becomes pre >> text={becomes}")).await;
        page.fill("#text", "{{ event.type }}, {{ $.nothing }}").await;
        page.fill("#subject", "").await;
        page.fill("#subject-path", "").await;
        page.click("button >> text=Try it").await;
        page.wait_for_visible("#subject-error >> text=needs a subject").await;
        page.fill("#subject", "somebody").await;
        page.click("button >> text=Try it").await;
        page.wait_for_visible("#outcome >> text=It becomes a run.").await;
    }
    // Stripe makes its secret when it gets the address, so there is none to show.
    page.goto(&list).await;
    page.click("main a >> text=Stripe").await;
    page.click("button >> text=Create webhook").await;
    page.wait_for_visible("#register >> text=nothing counts before").await;
    page.click("text=Give its secret…").await;
    page.fill("#secret", "whsec_c2VjcmV0IG9mIFN0cmlwZQ").await;
    page.tick("input[value=now]", true).await;
    page.click("button >> text=Roll secret").await;
    page.wait_for_visible("#state >> text=On").await;
    assert!(!page.text("body").await.contains("whsec_c2V"), "what was given is never shown");
    assert_eq!(text(&site.hook().await, "/scheme/kind"), "stripe");
}
