//! Samples of management requests and their replies.

use deskgate_protocol::canonical::Sha256Digest;
use deskgate_protocol::conversation::{ConversationState, OnBusy};
use deskgate_protocol::delivery::*;
use deskgate_protocol::management::*;
use deskgate_protocol::run::{Run, RunState};
use deskgate_protocol::service::DRAFT_VERSION;
use deskgate_protocol::service::ServiceData;

use crate::file::Golden;
use crate::samples::*;

/// Lists a request and its reply for every call; a call without them does not compile.
macro_rules! every_call {
    ($file:ident, { $($name:ident: $request:expr => $reply:expr;)* }) => {{
        fn _is_listed(request: &ManagementRequest) {
            match request {
                $(ManagementRequest::$name(_) => {})*
            }
        }
        $(
            let request: ManagementRequest = $request.into();
            assert!(matches!(request, ManagementRequest::$name(_)));
            $file.sample(stringify!($name).to_owned(), request);
            let reply: <$name as ManagementCall>::Reply = $reply;
            $file.sample(concat!(stringify!($name), " reply").to_owned(), reply);
        )*
    }};
}

#[test]
fn every_management_call_and_its_reply_are_written_and_read_as_ever() {
    let mut file = Golden::open("management");
    let (app_id, name) = (app_id(), "invoices".to_owned());
    let created_key = || CreatedKey { key: key(), text: "dgk_only_shown_once".to_owned() };
    let publish = PublishEndpoint {
        app_id,
        endpoint_id: endpoint_id(),
        version: 3,
        name: name.clone(),
        description: "Answers questions about invoices.".to_owned(),
        definition_sha256: digest(),
        data: Default::default(),
    };
    let named = ServiceData { tool_name: Some("bills".to_owned()), read_only: true, ..ServiceData::default() };
    let publish_named = PublishEndpoint { data: named.into(), ..publish.clone() };
    let create_key = CreateKey {
        app_id,
        name: "nightly".to_owned(),
        scopes: Scope::ALL.to_vec(),
        endpoints: vec![endpoint_id()],
        fixed_subject: Some("anna".to_owned()),
        expires_at: Some(moment()),
        allowed_cidrs: vec!["10.0.0.0/8".to_owned()],
    };
    let list_runs = ListRuns {
        limit: 20,
        before: Some(run_id()),
        states: vec![RunState::Queued, RunState::WaitingForDevice],
        app_id: Some(app_id),
        endpoint_id: Some(endpoint_id()),
        find: Some("conv_00000000000000000000000000000008".to_owned()),
    };
    let list_conversations = ListConversations {
        limit: 20,
        before: Some(id(8)),
        app_id: Some(app_id),
        state: Some(ConversationState::Busy),
    };
    every_call!(file, {
        CreateApplication: CreateApplication { name: name.clone() }
            => CreatedApplication { application: application(), key: created_key() };
        ListApplications: ListApplications {} => vec![application()];
        ShowApplication: ShowApplication { app_id } => application();
        ListActivity: ListActivity { limit: 20, before: Some(id(11)), app_id: Some(app_id) }
            => ActivityPage { entries: vec![activity()], next: Some(id(11)) };
        CreateKey: create_key => created_key();
        ListKeys: ListKeys { app_id } => vec![key(), short_key()];
        RevokeKey: RevokeKey { key_id: key_id() } => key();
        RollKey: RollKey { key_id: key_id(), overlap_s: 3600 } => created_key();
        PreviewDisabling: PreviewDisabling { app_id } => preview();
        DisableApplication: DisableApplication { app_id } => disabling();
        CompleteDisabling: CompleteDisabling { app_id } => removed();
        RemoveApplication: RemoveApplication { app_id } => removed();
        ListRemoved: ListRemoved {}
            => vec![RemovedApplication { application: removed(), runs: 412, kept_until: moment() }];
        PublishEndpoint: publish => published();
        ListEndpoints: ListEndpoints {} => vec![
            published(),
            PublishedEndpoint { closed_at: None, unpublished_at: None, disabled_at: None, ..published() },
            PublishedEndpoint { tool_name: Some("ask_invoices".to_owned()), ..published() },
        ];
        PreviewUnpublishing: PreviewUnpublishing { endpoint_id: endpoint_id() } => UnpublishingPreview {
            endpoint: published(),
            runs_queued: 7,
            runs_in_progress: 1,
            conversations: 2,
            keys: 1,
            webhooks: 1,
        };
        UnpublishEndpoint: UnpublishEndpoint { endpoint_id: endpoint_id() } => published();
        EnableEndpoint: EnableEndpoint { endpoint_id: endpoint_id(), enabled: false } => published();
        TryEndpoint: TryEndpoint { endpoint_id: endpoint_id(), input: "Summarise it.".to_owned(), data: None, files: Vec::new() } => young_run();
        TryDraft: TryDraft {
            app_id,
            endpoint_id: endpoint_id(),
            name: name.clone(),
            definition_sha256: Sha256Digest::of(b"a draft"),
            input: "Summarise it.".to_owned(),
            data: Some(serde_json::json!({ "month": "2026-11" })),
            files: vec![id(20)],
            output: Some(output().into()),
        } => Run { endpoint_version: DRAFT_VERSION, ..young_run() };
        GrantTransfer: GrantTransfer {} => TransferGrant { ticket: ticket() };
        SetAccess: SetAccess { enabled: true } => access();
        GetAccess: GetAccess {} => Access { changed_at: None, ..access() };
        GetOverview: GetOverview {} => overview();
        FindByEnd: FindByEnd { kind: RecordKind::Run, end: "a4f7".to_owned() }
            => FoundByEnd { ids: vec![run_id().to_string()] };
        ListRuns: list_runs => RunPage { runs: vec![listed_run()], has_more: true, next: Some(run_id()) };
        ExportRuns: ExportRuns { app_id, before: Some(run_id()) } => RunExport {
            runs: vec![RunDetail { run: old_run(), events: vec![run_event()], subject: None }],
            next: Some(run_id()),
        };
        ShowRun: ShowRun { run_id: run_id(), after: 5, wait_s: 30 }
            => RunDetail { run: old_run(), events: vec![run_event()], subject: Some("anna".to_owned()) };
        StopRun: StopRun { run_id: run_id() } => stop_operation();
        ListConversations: list_conversations
            => ConversationPage { conversations: vec![own_conversation()], has_more: true, next: Some(id(8)) };
        ShowConversation: ShowConversation { conversation_id: id(8) }
            => ConversationDetail { conversation: own_conversation(), messages: vec![ListedRun { answered: Some("Done.".to_owned()), ..listed_run() }] };
        ResetConversation: ResetConversation { conversation_id: id(8), expected_generation: 4 } => reset_operation();
        ShowOperation: ShowOperation { operation_id: id(9), wait_s: 30 } => reset_operation();
        ShowCallback: ShowCallback { app_id } => Some(callback());
        ListCallbacks: ListCallbacks {} => vec![callback(), young_callback()];
        SetCallback: SetCallback {
            app_id,
            url: Some("https://hooks.example.com/deskgate".to_owned()),
            types: Some(vec![CallbackEvent::RunSucceeded, CallbackEvent::ConversationReset]),
            enabled: Some(true),
            keep_answers: Some(false),
            format: Some(CallbackFormat::Openai),
        } => CallbackWithSecret { callback: young_callback(), secret: Some("whsec_only_shown_once".to_owned()) };
        RollCallbackSecret: RollCallbackSecret { app_id, overlap_s: 86_400 }
            => CallbackWithSecret { callback: callback(), secret: Some("whsec_only_shown_once".to_owned()) };
        TestCallback: TestCallback { app_id } => own_delivery();
        TriggerDelivery: TriggerDelivery { app_id, kind: CallbackEvent::RunFailed } => vec![own_delivery()];
        ListDeliveries: ListDeliveries {
            limit: 20,
            before: Some(id(12)),
            app_id: Some(app_id),
            run_id: Some(run_id()),
            state: Some(DeliveryState::Exhausted),
        } => DeliveryPage { deliveries: vec![own_delivery()], next: Some(id(12)) };
        ShowDelivery: ShowDelivery { delivery_id: id(12), wait_s: 20, seen: 1 }
            => DeliveryDetail { delivery: own_delivery(), attempts: vec![attempt(), lost_attempt()] };
        ResendDelivery: ResendDelivery { delivery_id: id(12) } => own_delivery();
        RecoverDeliveries: RecoverDeliveries { app_id, since: moment(), only_count: true } => Recovery { deliveries: 7 };
        ShowAllowlist: ShowAllowlist {}
            => Allowlist { hosts: vec!["hooks.example.com".to_owned()], is_yours: false };
        SetAllowlist: SetAllowlist { hosts: vec!["hooks.example.com".to_owned()] }
            => Allowlist { hosts: vec!["hooks.example.com".to_owned()], is_yours: true };
        OpenListener: OpenListener { app_id, types: vec![CallbackEvent::RunSucceeded] } => OpenedListener {
            listener_id: id(13),
            secret: "whsec_only_shown_once".to_owned(),
            expires_at: moment(),
        };
        PollListener: PollListener { listener_id: id(13), limit: 8, wait_s: 20, outcomes: vec![forwarded()] }
            => ForwardBatch { forwards: vec![forward()] };
        CloseListener: CloseListener { listener_id: id(13) } => ();
        CreateWebhook: CreateWebhook { app_id, settings: hook_settings().into(), secret: Some("whsec_x".to_owned().into()) }
            => WebhookWithSecret { webhook: hook(), secret: Some("whsec_only_shown_once".to_owned().into()) };
        ListWebhooks: ListWebhooks { app_id: Some(app_id) } => vec![hook()];
        ShowWebhook: ShowWebhook { hook_id: id(12) }
            => WebhookDetail { webhook: hook(), receipts: vec![receipt(), short_receipt()] };
        ChangeWebhook: ChangeWebhook { hook_id: id(12), settings: hook_settings().into() } => hook();
        EnableWebhook: EnableWebhook { hook_id: id(12), enabled: false } => Webhook { enabled: false, ..hook() };
        RollWebhookSecret: RollWebhookSecret { hook_id: id(12), overlap_s: 3600, secret: None }
            => WebhookWithSecret { webhook: hook(), secret: None };
        RemoveWebhook: RemoveWebhook { hook_id: id(12) } => Webhook { old_secret_until: None, ..hook() };
        TestWebhook: TestWebhook {
            hook_id: Some(id(12)),
            settings: Some(hook_settings().into()),
            sample: WebhookSample::Given { headers: [("X-Id".to_owned(), "7".to_owned())].into(), body: "{}".to_owned() },
        } => trial();
    });
    file.sample("PublishEndpoint, named as a tool".to_owned(), ManagementRequest::from(publish_named));
    every!(file, WebhookScheme {
        StandardWebhooks: WebhookScheme::StandardWebhooks {};
        Github: WebhookScheme::Github {};
        Stripe: WebhookScheme::Stripe {};
        Hmac: hook_settings().scheme, WebhookScheme::Hmac(PlainHmac {
            header: "X-Signature".to_owned(),
            algorithm: HashAlgorithm::Sha1,
            encoding: SignatureEncoding::Base64,
            prefix: String::new(),
            event_id: None,
            event_type: None,
        });
    });
    every!(file, WebhookSample {
        Receipt: WebhookSample::Receipt { receipt_id: id(13) };
        Given: WebhookSample::Given { headers: [("X-Id".to_owned(), "7".to_owned())].into(), body: "{}".to_owned() };
    });
    every!(file, TrialOutcome {
        Submitted: trial().outcome;
        Ignored: TrialOutcome::Ignored { reason: "the condition does not hold".to_owned() };
        Refused: TrialOutcome::Refused { reason: "the text is empty".to_owned() };
    });
    file.close();
}

fn callback() -> Callback {
    Callback {
        off_since: Some(moment()),
        off: Some(CallbackOff::Failing),
        failing_since: Some(moment()),
        old_secret_until: Some(moment()),
        pending: 3,
        ..young_callback()
    }
}

fn young_callback() -> Callback {
    Callback {
        app_id: app_id(),
        url: "https://hooks.example.com/deskgate".to_owned(),
        host_allowed: true,
        types: CallbackEvent::RUN_END_EVENTS.to_vec(),
        keep_answers: false,
        format: CallbackFormat::Openai,
        created_at: moment(),
        updated_at: moment(),
        off_since: None,
        off: None,
        failing_since: None,
        old_secret_until: None,
        pending: 0,
    }
}

fn own_delivery() -> OwnDelivery {
    OwnDelivery {
        app_id: app_id(),
        subject: Some("anna".to_owned()),
        to: DestinationKind::Callback,
        delivery: delivery(),
    }
}

fn attempt() -> DeliveryAttempt {
    DeliveryAttempt {
        attempt: 1,
        started_at: moment(),
        url_host: "hooks.example.com".to_owned(),
        duration_ms: Some(112),
        status_code: Some(500),
        error_code: None,
        answer: Some("not now".to_owned()),
    }
}

fn lost_attempt() -> DeliveryAttempt {
    DeliveryAttempt { attempt: 2, duration_ms: None, status_code: None, answer: None, ..attempt() }
}

fn forwarded() -> ForwardOutcome {
    ForwardOutcome {
        delivery_id: id(12),
        attempt: 1,
        duration_ms: 12,
        status_code: None,
        error_code: Some(DeliveryErrorCode::ConnectFailed),
    }
}

fn forward() -> ForwardedDelivery {
    ForwardedDelivery {
        delivery_id: id(12),
        attempt: 1,
        kind: CallbackEvent::RunSucceeded,
        headers: vec![("webhook-id".to_owned(), "evt_00000000000000000000000000000007".to_owned())],
        body: "{}".to_owned(),
    }
}

fn application() -> Application {
    Application {
        app_id: app_id(),
        name: "invoices".to_owned(),
        created_at: moment(),
        live_keys: 2,
        state: ApplicationState::Active,
        disabled_at: None,
        completed_at: None,
        removed_at: None,
        outstanding: None,
    }
}

fn disabling() -> Application {
    Application {
        state: ApplicationState::Disabling,
        live_keys: 0,
        disabled_at: Some(moment()),
        outstanding: Some(OutstandingWork { runs_to_stop: 2, runs_to_reconcile: 1, resets: 0 }),
        ..application()
    }
}

fn removed() -> Application {
    Application {
        state: ApplicationState::Removed,
        completed_at: Some(moment()),
        removed_at: Some(moment()),
        outstanding: None,
        ..disabling()
    }
}

fn overview() -> Overview {
    let took = DurationStats { runs: 5, p50_ms: 41_000, p95_ms: 190_000 };
    Overview {
        at: moment(),
        waiting: 1,
        in_progress: 2,
        needs: AttentionCounts {
            approvals: 2,
            oldest_approval_at: Some(moment()),
            reconciliations: 1,
            oldest_reconciliation_at: Some(moment()),
        },
        hours: vec![Hour { began_at: moment(), accepted: 3, waiting: 1 }],
        days: vec![Day { began_at: moment(), succeeded: 4, failed: 1, cancelled: 0, expired: 2, took: Some(took) }],
        took: Some(took),
        applications: vec![ApplicationNumbers { app_id: app_id(), last_call_at: Some(moment()), accepted: vec![3] }],
    }
}

fn preview() -> DisablingPreview {
    DisablingPreview {
        application: application(),
        live_keys: 2,
        services: 1,
        runs_queued: 3,
        runs_in_progress: 1,
        conversations: 5,
    }
}

fn key() -> KeyRecord {
    KeyRecord {
        key_id: key_id(),
        app_id: app_id(),
        name: "nightly".to_owned(),
        last4: "3f9a".to_owned(),
        scopes: Scope::ALL.to_vec(),
        endpoints: vec![endpoint_id()],
        fixed_subject: Some("anna".to_owned()),
        created_at: moment(),
        expires_at: Some(moment()),
        revoked_at: Some(moment()),
        allowed_cidrs: vec!["10.0.0.0/8".to_owned()],
        last_used_at: Some(moment()),
        last_address: Some("192.0.2.7".to_owned()),
        new_address_at: Some(moment()),
        warnings: vec![KeyWarning::NewAddress],
    }
}

fn activity() -> Activity {
    Activity {
        activity_id: id(11),
        at: moment(),
        by: Actor::Key,
        key_id: Some(key_id()),
        key_last4: Some("3f9a".to_owned()),
        what: ActivityKind::RunStopped,
        app_id: Some(app_id()),
        about: Some(run_id().to_string()),
        name: Some("invoices".to_owned()),
    }
}

fn short_key() -> KeyRecord {
    KeyRecord {
        endpoints: Vec::new(),
        fixed_subject: None,
        expires_at: None,
        revoked_at: None,
        allowed_cidrs: Vec::new(),
        last_used_at: None,
        last_address: None,
        new_address_at: None,
        warnings: Vec::new(),
        ..key()
    }
}

fn published() -> PublishedEndpoint {
    PublishedEndpoint {
        endpoint_id: endpoint_id(),
        app_id: app_id(),
        name: "invoices".to_owned(),
        description: "Answers questions about invoices.".to_owned(),
        version: 3,
        tool_name: None,
        definition_sha256: digest(),
        published_at: moment(),
        closed_at: Some(moment()),
        unpublished_at: Some(moment()),
        disabled_at: Some(moment()),
    }
}

fn own_conversation() -> OwnConversation {
    OwnConversation { app_id: app_id(), subject: "anna".to_owned(), conversation: conversation() }
}

fn access() -> Access {
    let address = "https://gateway.example.com/api/v1".to_owned();
    Access { enabled: true, changed_at: Some(moment()), address }
}

fn hook_settings() -> WebhookSettings {
    WebhookSettings {
        name: "tickets".to_owned(),
        endpoint_id: endpoint_id(),
        scheme: WebhookScheme::Hmac(PlainHmac {
            header: "X-Signature".to_owned(),
            algorithm: HashAlgorithm::Sha256,
            encoding: SignatureEncoding::Hex,
            prefix: "sha256=".to_owned(),
            event_id: Some("X-Id".to_owned()),
            event_type: Some("$.type".to_owned()),
        }),
        filter: WebhookFilter {
            event_types: vec!["ticket.*".to_owned()],
            condition: Some("payload.urgent".to_owned()),
        },
        mapping: WebhookMapping {
            text: "{{ $.title }}".to_owned(),
            subject: Some("anna".to_owned()),
            subject_path: Some("$.customer".to_owned()),
            conversation_key: Some("$.id".to_owned()),
            on_busy: OnBusy::Enqueue,
            metadata: [("ticket".to_owned(), "$.id".to_owned())].into(),
            data: [("number".to_owned(), "$.id".to_owned())].into(),
        },
        requests_per_second: 10,
        keep_bodies: true,
    }
}

fn hook() -> Webhook {
    Webhook {
        hook_id: id(12),
        app_id: app_id(),
        settings: hook_settings(),
        enabled: true,
        address: "https://gw.example.org/api/v1/webhooks/hook_0000000000000000000000000000000c".to_owned(),
        old_secret_until: Some(moment()),
        last_received_at: Some(moment()),
        created_at: moment(),
        updated_at: moment(),
    }
}

fn receipt() -> WebhookReceipt {
    WebhookReceipt {
        receipt_id: id(13),
        received_at: moment(),
        outcome: ReceiptOutcome::Accepted,
        reason: None,
        event_id: Some("7".to_owned()),
        event_type: Some("ticket.created".to_owned()),
        run_id: Some(run_id()),
        conversation_id: Some(id(14)),
        body: Some("{}".to_owned()),
    }
}

fn short_receipt() -> WebhookReceipt {
    WebhookReceipt {
        outcome: ReceiptOutcome::Refused,
        reason: Some("the signature does not fit".to_owned()),
        event_id: None,
        event_type: None,
        run_id: None,
        conversation_id: None,
        body: None,
        ..receipt()
    }
}

fn trial() -> WebhookTrial {
    WebhookTrial {
        event_id: Some("7".to_owned()),
        event_type: Some("ticket.created".to_owned()),
        outcome: TrialOutcome::Submitted(MappedRun {
            text: "It breaks".to_owned(),
            subject: "anna".to_owned(),
            conversation_key: Some("7".to_owned()),
            metadata: [("ticket".to_owned(), "7".to_owned())].into(),
            data: Some([("number".to_owned(), 7.into())].into()),
        }),
    }
}
