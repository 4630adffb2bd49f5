//! Conversations: who may open one, read it, and send messages.

use deskgate_protocol::canonical::Sha256Digest;
use deskgate_protocol::conversation::{Conversation, OnBusy};
use deskgate_protocol::management::Scope;
use deskgate_protocol::run::{Input, Run};
use deskgate_protocol::{ConversationId, EndpointId, RunId};

use super::access::Caller;
use super::admission::{
    AdmissionService, AdmittedRun, MAX_VERSIONS_CHECKED, Principal, RunRequest, identity, new_run, submission,
};
use super::refusal::Refusal;
use super::runs::{find, visible_run};
use super::{files, typed_data};
use crate::store::activity::ActivityActor;
use crate::store::conversations::{ConversationOpening, ConversationQuery, OpeningOutcome};
use crate::store::messages::{Message, MessageAdmission, WhenBusy};
use crate::store::operations::Requester;
use crate::store::requests;
use crate::store::run_content::MessageQuery;
use crate::store::{Page, PagePosition, Store};

/// A caller's request for a conversation.
#[derive(Clone, Debug)]
pub struct OpenConversation {
    /// The service.
    pub endpoint_id: EndpointId,
    /// The caller's name for it.
    pub conversation_key: String,
    /// The caller's name for this request.
    pub idempotency_key: String,
    /// The digest of the whole body, canonical.
    pub fingerprint: Sha256Digest,
}

/// An open conversation.
#[derive(Clone, Debug)]
pub struct OpenedConversation {
    /// Its record at this moment.
    pub conversation: Conversation,
    /// Whether this request, now or when it came first, made it.
    pub made: bool,
    /// Whether the request was repeated.
    pub replayed: bool,
}

/// Gets or creates a conversation for a caller with `conversations:write`.
///
/// # Errors
/// A [`Refusal`], such as for an unknown service or a key that was used for another request.
pub async fn open(store: &Store, caller: &Caller, wanted: OpenConversation) -> Result<OpenedConversation, Refusal> {
    if !caller.may_use(wanted.endpoint_id) {
        return Err(Refusal::NotFound);
    }
    let identity = identity(caller, "POST conversations", "", &wanted.idempotency_key);
    let opening = ConversationOpening {
        conversation_id: ConversationId::new(),
        app_id: caller.app_id(),
        subject: caller.subject().to_owned(),
        endpoint_id: wanted.endpoint_id,
        conversation_key: wanted.conversation_key,
        request: Some(requests::RequestKey { identity, fingerprint: wanted.fingerprint }),
        within_rate: caller.is_within_rate(),
    };
    match store.open_conversation(&opening).await? {
        OpeningOutcome::There { conversation, made, replayed } => {
            Ok(OpenedConversation { conversation, made, replayed })
        }
        other => Err(unopened(other)),
    }
}

/// The refusal for a conversation that was not opened.
pub(super) fn unopened(opened: OpeningOutcome) -> Refusal {
    match opened {
        OpeningOutcome::Reused(existing) => Refusal::IdempotencyKeyReused { existing: existing.into() },
        OpeningOutcome::NoSuchEndpoint => Refusal::NotFound,
        OpeningOutcome::Disabled => Refusal::ApplicationDisabled,
        OpeningOutcome::Paused => Refusal::AccessPaused,
        OpeningOutcome::ServiceDisabled => Refusal::ServiceDisabled,
        OpeningOutcome::OverRate => Refusal::RateLimited,
        // The caller has looked for it before.
        OpeningOutcome::There { .. } => Refusal::Internal,
    }
}

/// Reads a conversation of this caller.
///
/// # Errors
/// [`Refusal::NotFound`]: no such conversation, or another application's or subject's, or with a service that the key
/// may not use. [`Refusal::StoreUnavailable`] or [`Refusal::Internal`]: the database does not answer, or refuses the
/// statement.
pub async fn read(store: &Store, caller: &Caller, conversation_id: ConversationId) -> Result<Conversation, Refusal> {
    let found = store.conversation(caller.app_id(), caller.subject(), conversation_id).await?;
    found.filter(|conversation| caller.may_use(conversation.endpoint_id)).ok_or(Refusal::NotFound)
}

/// The conversation of a run of this caller, and why nothing can be said behind that run: the conversation was reset, or has
/// gone on. `None`: the run is of no conversation.
///
/// # Errors
/// [`Refusal::NotFound`]: no such run, or one that the caller may not see. [`Refusal::RunPurged`]: it ended and was deleted.
/// [`Refusal::StoreUnavailable`] or [`Refusal::Internal`]: the database does not answer, or refuses the statement.
pub async fn behind(
    store: &Store,
    caller: &Caller,
    run_id: RunId,
) -> Result<Option<(Conversation, Option<Refusal>)>, Refusal> {
    let run = find(store, caller, run_id).await?.run;
    let Some(conversation_id) = run.conversation_id else { return Ok(None) };
    let conversation = read(store, caller, conversation_id).await?;
    let newest = MessagePage { conversation_id, generation: None, before: None, limit: 1 };
    let newest = messages(store, caller, &newest).await?.entries.first().map(|run| run.run_id);
    let refusal = if run.generation != Some(conversation.generation) {
        Some(Refusal::GenerationMismatch { current_generation: conversation.generation })
    } else if newest != Some(run_id) {
        Some(Refusal::ConversationMovedOn { newest })
    } else {
        None
    };
    Ok(Some((conversation, refusal)))
}

/// The filter of a caller's list of conversations.
#[derive(Clone, Debug, Default)]
pub struct ConversationFilter {
    /// Only with this service.
    pub endpoint_id: Option<EndpointId>,
    /// Only those with this caller's key.
    pub conversation_key: Option<String>,
}

/// At most `limit` conversations that this caller may see, older than `before`.
///
/// # Errors
/// The database does not answer, or refuses the statement.
pub async fn list(
    store: &Store,
    caller: &Caller,
    filter: &ConversationFilter,
    before: Option<PagePosition>,
    limit: u32,
) -> Result<Page<Conversation>, Refusal> {
    let Some(endpoints) = caller.shown(filter.endpoint_id) else { return Ok(Page::EMPTY_PAGE) };
    let (app_id, subject) = (caller.app_id(), caller.subject());
    let conversation_key = filter.conversation_key.as_deref();
    let sought = ConversationQuery { app_id, subject, endpoints, conversation_key, before };
    Ok(store.conversations_of_caller(&sought, limit).await?)
}

/// A page of a conversation's messages, as a caller asks for it.
#[derive(Clone, Copy, Debug)]
pub struct MessagePage {
    /// The conversation.
    pub conversation_id: ConversationId,
    /// Only messages of this generation.
    pub generation: Option<u32>,
    /// Only messages that are older than this position.
    pub before: Option<PagePosition>,
    /// How many at most.
    pub limit: u32,
}

/// Messages of a conversation of this caller, newest first, with inputs and results.
///
/// # Errors
/// [`Refusal::NotFound`]: no such conversation, or another application's or subject's, or with a service that the key
/// may not use. [`Refusal::StoreUnavailable`] or [`Refusal::Internal`]: the database does not answer, or refuses the
/// statement.
pub async fn messages(store: &Store, caller: &Caller, page: &MessagePage) -> Result<Page<Run>, Refusal> {
    let MessagePage { conversation_id, generation, before, limit } = *page;
    read(store, caller, conversation_id).await?;
    let (app_id, subject) = (caller.app_id(), caller.subject());
    let sought = MessageQuery { app_id, subject, conversation_id, generation, before };
    Ok(store.messages_of_conversation(&sought, limit).await?.map(visible_run))
}

impl AdmissionService {
    /// Admits a message of a caller with `conversations:write` and `runs:write`, or finds the run that the same
    /// message made before. `request.endpoint_id` is set to the conversation's service.
    ///
    /// # Errors
    /// [`Refusal::NotFound`]: no such conversation, or another application's or subject's, or with a service that the
    /// key may not use. [`Refusal::ApplicationDisabled`]: the application was disabled. [`Refusal::AccessPaused`]:
    /// access is paused. [`Refusal::GenerationMismatch`]: the conversation is in another generation.
    /// [`Refusal::ConversationBusy`]: a message or a reset is under way, and it may not wait for it.
    /// [`Refusal::InsufficientScope`]: it is to interrupt, and the key may not stop runs. [`Refusal::IdempotencyKeyReused`]: the key
    /// belongs to a message with another body. [`Refusal::RunPurged`]: the message is a repetition, and its run was
    /// deleted just now. [`Refusal::QueueFull`]: too many of the application's runs wait. [`Refusal::RateLimited`]: the
    /// key made too many requests. [`Refusal::StoreUnavailable`] or [`Refusal::Internal`]: the database does not answer
    /// or refuses the statement, or the conversation changes during each try.
    pub async fn say(
        &self,
        caller: &Caller,
        conversation_id: ConversationId,
        expected_generation: u32,
        on_busy: OnBusy,
        mut request: RunRequest,
    ) -> Result<AdmittedRun, Refusal> {
        if on_busy == OnBusy::Interrupt {
            caller.needs(Scope::RunsControl)?;
        }
        request.endpoint_id = read(&self.store, caller, conversation_id).await?.endpoint_id;
        let run_id = RunId::new();
        let identity = identity(caller, "POST messages", &conversation_id.to_string(), &request.idempotency_key);
        let mut no_room = self.no_room(caller).await?;
        if no_room.is_none() {
            no_room = files::resolve(&self.store, caller.into(), &mut request).await?;
        }
        let submission = submission(caller.into(), run_id, identity, &mut request, no_room.is_none())?;
        let when_busy = self.when_busy(on_busy, caller.into(), ActivityActor::Key(caller.key_id()));
        let message = Message { submission, conversation_id, expected_generation, when_busy };
        match self.admit_message(message, &request.input).await? {
            MessageAdmission::Accepted(accepted) => {
                self.waiting.one_more(caller.app_id());
                tracing::info!(%run_id, %conversation_id, app_id = %caller.app_id(), "message accepted");
                let run = new_run(run_id, request, accepted);
                let (conversation_id, generation) = (Some(conversation_id), Some(expected_generation));
                Ok(AdmittedRun { run: Run { conversation_id, generation, ..run }, replayed: false })
            }
            MessageAdmission::Known { run_id, fingerprint } => {
                self.replay(caller, run_id, fingerprint == request.fingerprint).await
            }
            other => Err(self.not_admitted(other, no_room)),
        }
    }

    /// The run that a message made before, if it did: for a request that is refused now because its own message came
    /// meanwhile.
    ///
    /// # Errors
    /// [`Refusal::IdempotencyKeyReused`]: the key belongs to a message with another body. [`Refusal::RunPurged`]: its run was
    /// deleted just now. [`Refusal::StoreUnavailable`] or [`Refusal::Internal`]: the database does not answer, or refuses the
    /// statement.
    pub async fn said_before(
        &self,
        caller: &Caller,
        conversation_id: ConversationId,
        request: &RunRequest,
    ) -> Result<Option<AdmittedRun>, Refusal> {
        let identity = identity(caller, "POST messages", &conversation_id.to_string(), &request.idempotency_key);
        match self.store.known_message(identity).await? {
            Some((run_id, fingerprint)) => {
                self.replay(caller, run_id, fingerprint == request.fingerprint).await.map(Some)
            }
            None => Ok(None),
        }
    }

    /// What becomes of a message of this principal to a busy conversation.
    pub(super) fn when_busy(&self, on_busy: OnBusy, whose: Principal<'_>, actor: ActivityActor) -> WhenBusy {
        match on_busy {
            OnBusy::Reject => WhenBusy::Reject,
            OnBusy::Enqueue => WhenBusy::Enqueue,
            OnBusy::Interrupt => WhenBusy::Interrupt {
                by: Requester::Application {
                    app_id: whose.app_id,
                    actor,
                    subject: whose.subject.to_owned(),
                    request: None,
                    // The message itself is counted.
                    within_rate: true,
                },
                retention: self.retention,
            },
        }
    }

    /// Why a message became no run. `no_room`: the refusal that new work would get.
    pub(super) fn not_admitted(&self, said: MessageAdmission, no_room: Option<Refusal>) -> Refusal {
        match said {
            MessageAdmission::NoSuchConversation => Refusal::NotFound,
            MessageAdmission::Disabled => Refusal::ApplicationDisabled,
            MessageAdmission::Paused => Refusal::AccessPaused,
            MessageAdmission::ServiceDisabled => Refusal::ServiceDisabled,
            MessageAdmission::OtherGeneration { current } => {
                Refusal::GenerationMismatch { current_generation: current }
            }
            MessageAdmission::Busy { active_run_id, operation_id, waiting_messages } => {
                Refusal::ConversationBusy { active_run_id, operation_id, waiting_messages }
            }
            MessageAdmission::QueueFull => no_room.unwrap_or_else(|| self.waiting.full()),
            MessageAdmission::OutputNotTaken => typed_data::output_not_taken(),
            MessageAdmission::FilesNotTaken => files::not_taken(),
            MessageAdmission::FileGone => files::deleted_meanwhile(),
            MessageAdmission::Unchecked(_) => typed_data::kept_changing(),
            // They are runs.
            MessageAdmission::Accepted(_) | MessageAdmission::Known { .. } => Refusal::Internal,
        }
    }

    /// Admits a message, whose data is checked by the schema of the version that is published at the moment of acceptance.
    pub(super) async fn admit_message(&self, mut message: Message, input: &Input) -> Result<MessageAdmission, Refusal> {
        let _first = self.precedence.go_first();
        let mut said = self.store.admit_message(&message).await?;
        for _ in 1..MAX_VERSIONS_CHECKED {
            let MessageAdmission::Unchecked(unchecked) = said else { break };
            message.submission.checked_version = Some(unchecked.version);
            typed_data::check_input(unchecked, input.data()).await?;
            said = self.store.admit_message(&message).await?;
        }
        Ok(said)
    }
}
