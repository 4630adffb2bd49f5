//! From draft to published version, against a gateway whose answers get lost.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use deskgate_assistant::mcp::McpServers;
use deskgate_assistant::mcp::connections::Connections;
use deskgate_definition::{ApprovalPolicy, Network, Provider, RunLimits, ServiceStage, ToolName};
use deskgate_protocol::canonical::Sha256Digest;
use deskgate_protocol::management::{
    ManagementCall, ManagementError, ManagementErrorCode, ManagementRequest, PublishEndpoint, PublishedEndpoint,
    RunDetail, TryDraft,
};
use deskgate_protocol::run::{Run, RunState};
use deskgate_store::Store;

use super::*;

/// What happens to a publication on its way.
#[derive(Clone, Copy, PartialEq)]
enum Fate {
    Arrives,
    RequestLost,
    AnswerLost,
    Refused,
}

#[derive(Clone, Default)]
struct FakeGateway(Arc<Mutex<FakeGatewayState>>);

#[derive(Default)]
struct FakeGatewayState {
    asked: Vec<PublishEndpoint>,
    published: Vec<PublishedEndpoint>,
    fates: VecDeque<Fate>,
    tried: Vec<TryDraft>,
    trials_ended: bool,
}

/// The run of a draft that is tried, the `number`th.
fn run(tried: &TryDraft, number: usize) -> Run {
    let run_id: RunId = format!("run_019200000000700080000000000000{number:02x}").parse().expect("an identifier");
    serde_json::from_value(serde_json::json!({
        "run_id": run_id, "endpoint_id": tried.endpoint_id, "endpoint_version": 0, "state": "queued",
        "phase": "accepted", "attempt": 0, "metadata": {}, "last_sequence": 1,
        "created_at": "2026-11-27T09:00:00Z", "queue_expires_at": "2026-11-27T10:00:00Z",
        "links": { "self": "/", "events": "/" },
    }))
    .expect("a run")
}

impl FakeGateway {
    fn fate(&self, fate: Fate) {
        self.0.lock().expect("no panic").fates.push_back(fate);
    }

    fn published(&self) -> Vec<(u32, Sha256Digest)> {
        let state = self.0.lock().expect("no panic");
        state.published.iter().map(|one| (one.version, one.definition_sha256)).collect()
    }

    fn endpoints_asked_for(&self) -> usize {
        let state = self.0.lock().expect("no panic");
        state.asked.iter().map(|one| one.endpoint_id).collect::<std::collections::HashSet<_>>().len()
    }
}

impl GatewayClient for FakeGateway {
    async fn call<C: ManagementCall + Send>(&self, request: C) -> Result<C::Reply, CallError> {
        let mut state = self.0.lock().expect("no panic");
        let reply = match request.into() {
            ManagementRequest::ListEndpoints(_) => serde_json::to_value(&state.published),
            ManagementRequest::PublishEndpoint(request) => {
                state.asked.push(request.clone());
                let fate = state.fates.pop_front().unwrap_or(Fate::Arrives);
                let no = ManagementError { code: ManagementErrorCode::Conflict, message: "name taken".to_owned() };
                match fate {
                    Fate::RequestLost => return Err(CallError::LineLost),
                    Fate::Refused => return Err(CallError::Refused(no)),
                    Fate::Arrives | Fate::AnswerLost => {}
                }
                let known = state.published.iter().find(|one| one.endpoint_id == request.endpoint_id).cloned();
                let answer = match known {
                    Some(known) if known.version == request.version => {
                        assert_eq!(known.definition_sha256, request.definition_sha256, "one number, two contents");
                        known
                    }
                    known => {
                        assert_eq!(request.version, known.map_or(1, |known| known.version + 1));
                        let PublishEndpoint {
                            app_id, endpoint_id, version, name, description, definition_sha256, ..
                        } = request;
                        let published_at = Timestamp::now();
                        state.published.retain(|one| one.endpoint_id != endpoint_id);
                        let one = PublishedEndpoint {
                            endpoint_id,
                            app_id,
                            name,
                            description,
                            version,
                            definition_sha256,
                            published_at,
                            closed_at: None,
                            unpublished_at: None,
                            disabled_at: None,
                            tool_name: None,
                        };
                        state.published.push(one.clone());
                        one
                    }
                };
                if fate == Fate::AnswerLost {
                    return Err(CallError::LineLost);
                }
                serde_json::to_value(answer)
            }
            ManagementRequest::TryDraft(request) => {
                state.tried.push(request.clone());
                serde_json::to_value(run(&request, state.tried.len()))
            }
            ManagementRequest::ShowRun(request) => {
                let tried = state.tried.last().expect("something was tried");
                let state = if state.trials_ended { RunState::Succeeded } else { RunState::Queued };
                let run = Run { run_id: request.run_id, state, ..run(tried, 1) };
                serde_json::to_value(RunDetail { run, events: Vec::new(), subject: None })
            }
            other => panic!("nobody asks for {other:?}"),
        };
        Ok(serde_json::from_value(reply.expect("JSON")).expect("the shape that belongs to the request"))
    }
}

struct TestServices {
    home: tempfile::TempDir,
    store: Store,
    gateway: FakeGateway,
    handler: ServiceManager<FakeGateway>,
}

impl TestServices {
    async fn new() -> Self {
        let home = tempfile::tempdir().expect("temporary folder");
        let store = Store::open(home.path().join("deskgate.db")).await.expect("opens");
        let gateway = FakeGateway::default();
        let accounts = Providers::new(home.path().join("providers"));
        let servers = McpServers::new(Connections::new(home.path().join("mcp")));
        let computer = CheckEnvironment { home: None, own_folder: "/nonexistent".into(), accounts, servers };
        let handler = ServiceManager::new(store.services(), gateway.clone(), computer);
        Self { home, store, gateway, handler }
    }

    fn definition(&self, instructions: &str) -> Definition {
        Definition {
            name: "Reader".to_owned(),
            description: "Reads.".to_owned(),
            working_directory: self.home.path().to_owned(),
            provider: Provider::Scripted,
            model: "folder".to_owned(),
            reasoning: Default::default(),
            model_reads: None,
            cost_shown_to: Default::default(),
            data: Default::default(),
            instructions: instructions.to_owned(),
            tools: ToolName::WORKSPACE_TOOLS.to_vec(),
            skills: Vec::new(),
            mcp: Vec::new(),
            approvals: ApprovalPolicy::default(),
            protected: Vec::new(),
            network: Network::None,
            limits: RunLimits::default(),
        }
    }

    async fn checked(&self) -> DraftId {
        let service = self.handler.create(ApplicationId::new(), self.definition("First.")).await.expect("saved");
        assert!(self.handler.check(service.draft_id).await.expect("checked").passed());
        service.draft_id
    }

    async fn change(&self, id: DraftId, instructions: &str) {
        self.handler.edit(id, self.definition(instructions)).await.expect("saved");
        self.handler.check(id).await.expect("checked");
    }
}

#[tokio::test]
async fn a_service_goes_from_draft_to_checked_to_published() {
    let handler = TestServices::new().await;
    let service = handler.handler.create(ApplicationId::new(), handler.definition("First.")).await.expect("saved");
    let id = service.draft_id;
    assert_eq!((service.stage(), service.endpoint_id), (ServiceStage::Draft, None));
    assert!(matches!(handler.handler.publish(id).await, Err(Error::NotChecked(_))));
    handler.handler.check(id).await.expect("checked");
    assert_eq!(handler.handler.show(id).await.expect("there").stage(), ServiceStage::Checked);
    let published = handler.handler.publish(id).await.expect("published");
    assert_eq!(published.stage(), ServiceStage::Published);
    let endpoint = published.endpoint_id.expect("chosen");
    let found = handler.store.services().published(endpoint, 1).await.expect("readable");
    assert_eq!(found, Some((published.draft.clone(), published.draft.digest())));
    assert_eq!(handler.store.services().published(endpoint, 2).await.expect("readable"), None);
    assert_eq!(handler.handler.list().await.expect("readable"), [published]);
}

#[tokio::test]
async fn a_draft_that_changed_after_its_checks_is_not_published() {
    let handler = TestServices::new().await;
    let id = handler.checked().await;
    handler.handler.edit(id, handler.definition("Changed.")).await.expect("saved");
    assert_eq!(handler.handler.show(id).await.expect("there").stage(), ServiceStage::Draft);
    assert!(matches!(handler.handler.publish(id).await, Err(Error::NotChecked(_))));
    assert_eq!(handler.gateway.published(), []);
}

#[tokio::test]
async fn a_draft_with_a_failed_check_is_not_published_and_the_next_step_is_named() {
    let handler = TestServices::new().await;
    let service = handler.handler.create(ApplicationId::new(), handler.definition(" ")).await.expect("saved");
    assert!(!handler.handler.check(service.draft_id).await.expect("checked").passed());
    let error = handler.handler.publish(service.draft_id).await.expect_err("no instructions").to_string();
    assert!(error.contains("write what the assistant is to do"), "{error}");
    assert_eq!(handler.gateway.published(), []);
}

#[tokio::test]
async fn a_publication_whose_answer_was_lost_is_repeated_and_happens_once() {
    for fate in [Fate::RequestLost, Fate::AnswerLost] {
        let handler = TestServices::new().await;
        let id = handler.checked().await;
        handler.gateway.fate(fate);
        assert!(matches!(handler.handler.publish(id).await, Err(Error::Gateway(CallError::LineLost))));
        let unsure = handler.handler.show(id).await.expect("there");
        assert_eq!(unsure.stage(), ServiceStage::Checked, "nothing is shown as published that is not confirmed");
        let endpoint = unsure.endpoint_id.expect("chosen before the request went out");
        let held = handler.store.services().published(endpoint, 1).await.expect("readable");
        assert!(held.is_some(), "an offer may come before the confirmation");
        handler.handler.publish(id).await.expect("published");
        handler.handler.publish(id).await.expect("nothing new");
        assert_eq!(handler.gateway.published(), [(1, unsure.draft.digest())]);
        assert_eq!(handler.gateway.endpoints_asked_for(), 1);
    }
}

#[tokio::test]
async fn a_change_after_a_lost_answer_gets_the_number_that_is_really_free() {
    for (fate, version) in [(Fate::RequestLost, 1), (Fate::AnswerLost, 2)] {
        let handler = TestServices::new().await;
        let id = handler.checked().await;
        handler.gateway.fate(fate);
        assert!(handler.handler.publish(id).await.is_err());
        handler.change(id, "Second.").await;
        let service = handler.handler.publish(id).await.expect("published");
        assert_eq!(handler.gateway.published(), [(version, service.draft.digest())]);
        assert_eq!(service.published.expect("confirmed").version, version);
    }
}

#[tokio::test]
async fn a_refused_publication_leaves_its_number_free() {
    let handler = TestServices::new().await;
    let id = handler.checked().await;
    handler.gateway.fate(Fate::Refused);
    let error = handler.handler.publish(id).await.expect_err("refused").to_string();
    assert_eq!(error, "name taken");
    handler.change(id, "Second.").await;
    assert_eq!(handler.handler.publish(id).await.expect("published").published.expect("confirmed").version, 1);
}

#[tokio::test]
async fn editing_after_publication_leaves_the_published_version_as_it_was() {
    let handler = TestServices::new().await;
    let id = handler.checked().await;
    let first = handler.handler.publish(id).await.expect("published");
    let endpoint = first.endpoint_id.expect("chosen");
    handler.change(id, "Second.").await;
    let between = handler.handler.show(id).await.expect("there");
    assert_eq!((between.stage(), &between.published), (ServiceStage::Checked, &first.published));
    let second = handler.handler.publish(id).await.expect("published");
    assert_eq!(second.published.as_ref().expect("confirmed").version, 2);
    for (version, service) in [(1, &first), (2, &second)] {
        let found = handler.store.services().published(endpoint, version).await.expect("readable");
        assert_eq!(found.expect("frozen").1, service.draft.digest());
    }
}

#[tokio::test]
async fn a_checked_draft_is_tried_and_changes_nothing_of_what_is_published() {
    let handler = TestServices::new().await;
    let service = handler.handler.create(ApplicationId::new(), handler.definition("First.")).await.expect("saved");
    let id = service.draft_id;
    let ask = || handler.handler.try_draft(id, "Which letters?".to_owned(), None, &[]);
    assert!(matches!(ask().await, Err(Error::NotChecked(_))));
    handler.handler.check(id).await.expect("checked");
    let first = ask().await.expect("tried");
    let shown = handler.handler.show(id).await.expect("there");
    assert_eq!((shown.stage(), shown.endpoint_id), (ServiceStage::Checked, Some(first.endpoint_id)));
    assert_eq!(handler.handler.versions(id).await.expect("readable"), [], "a draft is no version");
    assert!(matches!(ask().await, Err(Error::TrialUnderWay(run_id)) if run_id == first.run_id));
    handler.gateway.0.lock().expect("no panic").trials_ended = true;
    assert_ne!(ask().await.expect("tried again").run_id, first.run_id);

    let published = handler.handler.publish(id).await.expect("published");
    assert_eq!(handler.gateway.published(), [(1, published.draft.digest())]);
    handler.change(id, "Second.").await;
    ask().await.expect("tried beside what is published");
    let tried = handler.gateway.0.lock().expect("no panic").tried.last().map(|tried| tried.definition_sha256);
    let now = handler.handler.show(id).await.expect("there");
    assert_eq!((tried, &now.published), (Some(now.draft.digest()), &published.published));
    handler.handler.publish(id).await.expect("published");
    let numbers = handler.handler.versions(id).await.expect("readable").into_iter().map(|version| version.version);
    assert_eq!(numbers.collect::<Vec<_>>(), [2, 1]);
}

#[tokio::test]
async fn an_invalid_definition_is_never_saved() {
    let handler = TestServices::new().await;
    let nameless = Definition { name: String::new(), ..handler.definition("First.") };
    assert!(matches!(handler.handler.create(ApplicationId::new(), nameless.clone()).await, Err(Error::Invalid(_))));
    let id = handler.checked().await;
    assert!(matches!(handler.handler.edit(id, nameless).await, Err(Error::Invalid(_))));
    assert_eq!(handler.handler.list().await.expect("readable").len(), 1);
    assert!(matches!(handler.handler.show(DraftId::new()).await, Err(Error::NotFound(_))));
}
