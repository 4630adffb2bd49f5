//! What a desktop user sees of callers' runs and conversations, and orders; the device is played by the store's calls.

use deskgate_gateway::store::attempts::RecordOutcome;
use deskgate_gateway::store::operations::OrderSelection;
use deskgate_protocol::canonical::Sha256Digest;
use deskgate_protocol::control::Order;
use deskgate_protocol::management::{
    ListConversations, ManagementErrorCode, PublishEndpoint, ResetConversation, ShowConversation, ShowOperation,
    StopRun, TryDraft, TryEndpoint,
};
use deskgate_protocol::operation::{OperationState, OutcomeCode};
use deskgate_protocol::run::EventType;
use deskgate_protocol::service::DRAFT_VERSION;
use deskgate_protocol::{ConversationId, EndpointId, OperationId, RunId};
use serde_json::json;

use crate::conversations::{TestConversation, report, start};
use crate::store::succeeded;
use crate::support::gateway::{DeviceFixture, LONG_LEASE, TestGateway};

#[tokio::test]
async fn an_owners_own_run_passes_where_the_others_pass() {
    let gateway = TestGateway::new().await;
    let device = &gateway.device;
    let ask = |endpoint_id, input: &str| {
        device.desktop.try_endpoint(TryEndpoint { endpoint_id, input: input.to_owned(), data: None, files: Vec::new() })
    };
    let run = ask(device.endpoint, "What is new?").await.expect("accepted");
    let (session, _) = device.connect().await;
    assert_eq!(start(&gateway, session).await, run.run_id, "it is offered like any other");
    let again = ask(device.endpoint, "What is new?").await.expect("accepted");
    assert_ne!(again.run_id, run.run_id, "each request is a run of its own");

    let code = |refused: Result<_, deskgate_protocol::management::ManagementError>| refused.expect_err("refused").code;
    let foreign = DeviceFixture::pair(gateway.store()).await;
    assert_eq!(code(ask(foreign.endpoint, "Mine?").await), ManagementErrorCode::NotFound);
    assert_eq!(code(ask(device.endpoint, "").await), ManagementErrorCode::Invalid);
    assert_eq!(code(ask(device.endpoint, &"x".repeat(256 * 1024 + 1)).await), ManagementErrorCode::Invalid);
    device.allow(false).await;
    assert_eq!(code(ask(device.endpoint, "Paused?").await), ManagementErrorCode::Conflict);
    gateway.stop().await;
}

#[tokio::test]
async fn a_draft_is_tried_without_anything_of_it_being_published() {
    let gateway = TestGateway::new().await;
    let device = &gateway.device;
    let (new, digest) = (EndpointId::new(), Sha256Digest::of(b"a draft"));
    let draft = |endpoint_id, app_id| TryDraft {
        app_id,
        endpoint_id,
        name: "Letters".to_owned(),
        definition_sha256: digest,
        input: "What is new?".to_owned(),
        data: None,
        files: Vec::new(),
        output: None,
    };
    let ask = |endpoint_id| device.desktop.try_draft(draft(endpoint_id, device.app.id));
    let (session, _) = device.connect().await;
    for endpoint_id in [new, new, device.endpoint] {
        let run = ask(endpoint_id).await.expect("accepted");
        assert_eq!((run.endpoint_id, run.endpoint_version), (endpoint_id, DRAFT_VERSION));
        let offered = device.claim(session, 1).await;
        let [offer] = &offered[..] else { panic!("{offered:?}") };
        assert_eq!((offer.run_id, offer.endpoint_version, offer.definition_sha256), (run.run_id, 0, digest));
    }
    let listed = gateway.ask("GET", "/api/v1/agent-endpoints").send().await.json();
    assert!(!listed.to_string().contains("Letters"), "{listed}");
    let published = &listed["endpoints"][0];
    assert_eq!((&published["id"], &published["version"]), (&json!(device.endpoint), &json!(1)), "it stays as it was");
    let path = format!("/api/v1/agent-endpoints/{new}/runs");
    let body = json!({ "input": { "text": "Mine?" } });
    let refused = gateway.ask("POST", &path).header("Idempotency-Key", "draft").json(&body).send().await;
    assert_eq!(refused.status, 404, "callers cannot call it");

    let publish = PublishEndpoint {
        app_id: device.app.id,
        endpoint_id: new,
        version: 1,
        name: "Letters".to_owned(),
        description: String::new(),
        definition_sha256: digest,
        data: Default::default(),
    };
    device.desktop.publish(publish).await.expect("its first version is 1, as of any other");
    let code = |refused: Result<_, deskgate_protocol::management::ManagementError>| refused.expect_err("refused").code;
    let foreign = DeviceFixture::pair(gateway.store()).await;
    let of_other = |endpoint_id, app_id| device.desktop.try_draft(draft(endpoint_id, app_id));
    assert_eq!(code(of_other(foreign.endpoint, device.app.id).await), ManagementErrorCode::NotFound);
    assert_eq!(code(of_other(EndpointId::new(), foreign.app.id).await), ManagementErrorCode::NotFound);
    device.allow(false).await;
    assert_eq!(code(ask(new).await), ManagementErrorCode::Conflict, "access is paused");
    gateway.stop().await;
}

#[tokio::test]
async fn a_desktop_user_stops_a_run_and_its_application_reads_who_did() {
    let gateway = TestGateway::new().await;
    let desktop = &gateway.device.desktop;
    let waiting = gateway.submit("one").await;
    let stopped = desktop.stop_run(StopRun { run_id: waiting }).await.expect("stopped");
    assert_eq!(stopped.outcome.map(|outcome| outcome.code), Some(OutcomeCode::Stopped), "it had not started");
    assert_eq!(gateway.read(waiting).await.json()["stop"]["requested_by"], "desktop_user");

    gateway.submit("two").await;
    let (session, _) = gateway.device.connect().await;
    let run_id = start(&gateway, session).await;
    let operation = desktop.stop_run(StopRun { run_id }).await.expect("asked for");
    let again = desktop.stop_run(StopRun { run_id }).await.expect("open already");
    assert_eq!((operation.state, again.operation_id), (OperationState::Pending, operation.operation_id));
    let path = format!("/api/v1/runs/{run_id}/stop");
    let theirs = gateway.ask("POST", &path).header("Idempotency-Key", "stop").send().await.json();
    assert_eq!(theirs["operation_id"], json!(operation.operation_id), "there is one open stop, whoever asks");
    let run = gateway.read(run_id).await.json();
    assert_eq!((&run["state"], &run["stop"]["requested_by"]), (&json!("cancelling"), &json!("desktop_user")));
    let told = gateway.store().deliver(session, OrderSelection::New).await.expect("delivered");
    assert_eq!(told, [(operation.operation_id, Order::Stop { run_id })]);
    let events = gateway.store().events_after(run_id, 0, 100).await.expect("read");
    let cancelling = events.iter().find(|event| event.kind == EventType::RunCancelling).expect("it says so");
    assert_eq!(cancelling.data["requested_by"], "desktop_user");

    let waiting = ShowOperation { operation_id: operation.operation_id, wait_s: 60 };
    let (ended, written) = tokio::join!(desktop.operation(waiting), report(&gateway, session, run_id, succeeded(1)));
    let outcome = ended.expect("there").outcome.expect("it ended").code;
    assert_eq!((written, outcome), (RecordOutcome::Done, OutcomeCode::AlreadyFinal), "the end was first");
    gateway.stop().await;
}

#[tokio::test]
async fn a_desktop_user_sees_the_conversations_of_all_subjects_with_their_messages() {
    let gateway = TestGateway::new().await;
    let desktop = &gateway.device.desktop;
    let (first, second) =
        (TestConversation::open(&gateway, "first").await, TestConversation::open(&gateway, "second").await);
    let body = json!({ "endpoint_id": gateway.device.endpoint, "conversation_key": "first" });
    let opening =
        gateway.ask("POST", "/api/v1/conversations").subject("berta").header("Idempotency-Key", "b").json(&body);
    let of_berta: ConversationId =
        opening.send().await.json()["conversation_id"].as_str().expect("text").parse().expect("id");
    let page = async |before, limit| {
        let page = desktop
            .conversations(ListConversations { limit, before, ..ListConversations::default() })
            .await
            .expect("listed");
        let shown = page.conversations.into_iter().map(|own| (own.conversation.conversation_id, own.subject));
        (shown.collect::<Vec<_>>(), page.has_more)
    };
    let anna = |talk: &TestConversation<'_>| (talk.id, "anna".to_owned());
    assert_eq!(page(None, 2).await, (vec![(of_berta, "berta".to_owned()), anna(&second)], true));
    assert_eq!(page(Some(second.id), 2).await, (vec![anna(&first)], false));

    let (session, _) = gateway.device.connect().await;
    let mut said = Vec::new();
    for key in ["one", "two"] {
        let run_id = first.message(key, 1).send().await.run_id();
        assert_eq!(start(&gateway, session).await, run_id);
        assert_eq!(report(&gateway, session, run_id, succeeded(1)).await, RecordOutcome::Done);
        said.insert(0, run_id);
    }
    second.message("elsewhere", 1).send().await.run_id();
    let detail = desktop.conversation(ShowConversation { conversation_id: first.id }).await.expect("there");
    assert_eq!(detail.messages.iter().map(|run| run.run_id).collect::<Vec<_>>(), said, "newest first");
    assert!(detail.messages.iter().all(|run| run.input.is_none() && run.result.is_none()));
    assert_eq!((detail.conversation.app_id, detail.conversation.subject.as_str()), (gateway.device.app.id, "anna"));
    gateway.stop().await;
}

#[tokio::test]
async fn a_desktop_users_reset_is_fenced_by_the_generation_and_by_what_is_under_way() {
    let gateway = TestGateway::new().await;
    let desktop = &gateway.device.desktop;
    let talk = TestConversation::open(&gateway, "case").await;
    let reset = |expected_generation| {
        desktop.reset_conversation(ResetConversation { conversation_id: talk.id, expected_generation })
    };
    let run_id = talk.message("one", 1).send().await.run_id();
    let no = reset(1).await.expect_err("busy");
    assert_eq!(no.code, ManagementErrorCode::Conflict);
    assert!(no.message.contains(&format!("deskgate run stop {run_id}")), "{no}");
    desktop.stop_run(StopRun { run_id }).await.expect("stopped");
    let no = reset(2).await.expect_err("another generation");
    assert_eq!(no.code, ManagementErrorCode::Conflict);
    assert!(no.message.contains("generation 1"), "{no}");

    let asked = reset(1).await.expect("asked for");
    assert_eq!(reset(1).await.expect("open already").operation_id, asked.operation_id);
    assert_eq!(talk.stands().await.0, "resetting");
    let (session, _) = gateway.device.connect().await;
    let order = Order::Reset { conversation: talk.id, generation: 1 };
    assert_eq!(
        gateway.store().deliver(session, OrderSelection::New).await.expect("told"),
        [(asked.operation_id, order)]
    );
    let waiting = ShowOperation { operation_id: asked.operation_id, wait_s: 60 };
    let done = gateway.store().operation_done(session, asked.operation_id, OutcomeCode::Reset, LONG_LEASE);
    let (ended, done) = tokio::join!(desktop.operation(waiting), done);
    done.expect("written");
    let outcome = ended.expect("there").outcome.expect("it ended");
    assert_eq!((outcome.code, outcome.new_generation), (OutcomeCode::Reset, Some(2)));
    assert_eq!((talk.stands().await.0.as_str(), talk.stands().await.1), ("idle", 2));
    gateway.stop().await;
}

#[tokio::test]
async fn another_device_sees_and_orders_nothing_of_it() {
    let gateway = TestGateway::new().await;
    let talk = TestConversation::open(&gateway, "case").await;
    let run_id = talk.message("one", 1).send().await.run_id();
    let (session, _) = gateway.device.connect().await;
    start(&gateway, session).await;
    let operation = gateway.device.desktop.stop_run(StopRun { run_id }).await.expect("asked for");
    let other = DeviceFixture::pair(gateway.store()).await.desktop;
    assert_eq!(
        other
            .conversations(ListConversations { limit: 9, ..ListConversations::default() })
            .await
            .expect("listed")
            .conversations,
        []
    );
    let (stranger, nobody) =
        ((run_id, talk.id, operation.operation_id), (RunId::new(), ConversationId::new(), OperationId::new()));
    for (desktop, (run_id, conversation_id, operation_id)) in [(&other, stranger), (&gateway.device.desktop, nobody)] {
        let reset = ResetConversation { conversation_id, expected_generation: 1 };
        let refusals = [
            desktop.stop_run(StopRun { run_id }).await.expect_err("no such run"),
            desktop.conversation(ShowConversation { conversation_id }).await.expect_err("no such conversation"),
            desktop.reset_conversation(reset).await.expect_err("no such conversation"),
            desktop.operation(ShowOperation { operation_id, wait_s: 0 }).await.expect_err("no such operation"),
        ];
        assert!(refusals.iter().all(|no| no.code == ManagementErrorCode::NotFound), "{refusals:?}");
    }
    gateway.stop().await;
}
