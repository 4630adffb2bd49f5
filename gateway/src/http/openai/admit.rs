//! From a request to its run: alone, or as a message in a conversation.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use axum::http::HeaderMap;
use deskgate_protocol::canonical::Sha256Digest;
use deskgate_protocol::conversation::Conversation;
use deskgate_protocol::management::Scope;
use deskgate_protocol::{EndpointId, RunId};

use super::models;
use super::request::{Continuation, Kind, OpenAiRequest};
use crate::domain::access::Caller;
use crate::domain::admission::{AdmittedRun, DEFAULT_DURATION_S, DEFAULT_QUEUE_TTL_S, RunRequest};
use crate::domain::conversations::{self, OpenConversation};
use crate::domain::refusal::{Flaw, Refusal};
use crate::domain::{runs, typed_data};
use crate::http::error::Error;
use crate::http::watched::Watch;
use crate::http::{Api, caller};

/// Admits the run that a request asks for; with the request, if it has no Idempotency-Key of its own.
///
/// # Errors
/// There is no such service, the request does not fit it or the conversation that it goes on in, or nothing is admitted.
pub(super) async fn admit(
    api: &Api,
    caller: &Caller,
    headers: &HeaderMap,
    asked: &OpenAiRequest,
    kind: Kind,
) -> Result<(AdmittedRun, Option<Watch>), Error> {
    let service = models::service(api, caller, &asked.model).await?;
    let (input, input_json) = asked.input(&answers(api, caller, asked).await?, kind)?;
    if let Some(output) = &asked.output {
        let pointer =
            if kind == Kind::Response { "/text/format/schema" } else { "/response_format/json_schema/schema" };
        typed_data::check_schema(output.schema.clone(), pointer).await?;
    }
    let (idempotency_key, unkeyed) = match caller::optional_idempotency_key(headers)? {
        Some(key) => (key, None),
        None => {
            let call = if kind == Kind::Response { "POST responses" } else { "POST chat" };
            let unkeyed = api.unkeyed.begin(caller, call, asked.fingerprint, is_retry(headers)).await?;
            (unkeyed.key().to_owned(), Some(unkeyed))
        }
    };
    let request = RunRequest {
        endpoint_id: service.id,
        idempotency_key,
        fingerprint: asked.fingerprint,
        input,
        input_json,
        files: asked.files.clone(),
        output: asked.output.clone(),
        metadata: asked.metadata.clone(),
        queue_ttl_s: DEFAULT_QUEUE_TTL_S,
        max_duration_s: DEFAULT_DURATION_S,
        traceparent: caller::traceparent(headers),
        depth: caller::depth(headers)?,
    };
    let conversation = match asked.continuation {
        Some(continuation) => {
            caller.needs(Scope::ConversationsWrite)?;
            let (conversation, refusal) = continued(api, caller, service.id, continuation).await?;
            if let Some(refusal) = refusal {
                // What came since may be this very request, whose answer got lost.
                let known = api.admission.said_before(caller, conversation.conversation_id, &request).await?;
                return Ok((known.ok_or(refusal)?, unkeyed.map(Watch::of)));
            }
            Some(conversation)
        }
        // So that the response can be continued.
        None if asked.store && caller.needs(Scope::ConversationsWrite).is_ok() => {
            Some(opened(api, caller, &request).await?)
        }
        None => None,
    };
    let admitted = match conversation {
        Some(Conversation { conversation_id, generation, .. }) => {
            api.admission.say(caller, conversation_id, generation, asked.on_busy, request).await?
        }
        None => api.admission.admit(caller, request).await?,
    };
    Ok((admitted, unkeyed.map(Watch::of)))
}

/// Whether the client says that it has sent the request before: OpenAI's SDKs count what they repeat.
fn is_retry(headers: &HeaderMap) -> bool {
    let count = headers.get("x-stainless-retry-count").and_then(|count| count.to_str().ok()?.parse::<u32>().ok());
    count.is_some_and(|count| count > 0)
}

/// How many responses an input may refer to: each is read.
const MAX_REFERENCES: usize = 32;

/// What the runs said that an input refers to.
async fn answers(api: &Api, caller: &Caller, asked: &OpenAiRequest) -> Result<BTreeMap<RunId, String>, Error> {
    let mut answers = BTreeMap::new();
    let references: BTreeSet<RunId> = asked.references().collect();
    if references.len() > MAX_REFERENCES {
        let detail = format!("at most {MAX_REFERENCES} items refer to other responses; send what they said");
        return Err(flaw("/input", &detail));
    }
    for run_id in references {
        let run = runs::read(&api.store, caller, run_id, Duration::ZERO).await;
        let said = run.ok().and_then(|run| Some(run.result?.whole_text().into_owned()));
        let gone = || flaw("/input", "an item refers to a message that is not there");
        answers.insert(run_id, said.ok_or_else(gone)?);
    }
    Ok(answers)
}

/// The conversation in which a request goes on, and why it cannot unless it is known already.
async fn continued(
    api: &Api,
    caller: &Caller,
    service: EndpointId,
    continuation: Continuation,
) -> Result<(Conversation, Option<Refusal>), Error> {
    let ((conversation, refusal), pointer) = match continuation {
        Continuation::Conversation(id) => ((conversations::read(&api.store, caller, id).await?, None), "/conversation"),
        Continuation::Response(run_id) => {
            let behind = conversations::behind(&api.store, caller, run_id).await?;
            (behind.ok_or_else(|| flaw("/previous_response_id", STORED_NOWHERE))?, "/previous_response_id")
        }
    };
    if conversation.endpoint_id != service {
        return Err(flaw(pointer, "it is with another service than the model"));
    }
    Ok((conversation, refusal))
}

const STORED_NOWHERE: &str =
    "it cannot be continued: it was made with store false, or by a key without the scope conversations:write";

/// A conversation of its own for a response.
async fn opened(api: &Api, caller: &Caller, request: &RunRequest) -> Result<Conversation, Refusal> {
    let digest = Sha256Digest::of(request.idempotency_key.as_bytes()).to_string();
    let wanted = OpenConversation {
        endpoint_id: request.endpoint_id,
        // A repetition finds it by this.
        conversation_key: format!("openai:{}", digest.get(..32).unwrap_or(&digest)),
        idempotency_key: request.idempotency_key.clone(),
        fingerprint: request.fingerprint,
    };
    Ok(conversations::open(&api.store, caller, wanted).await?.conversation)
}

fn flaw(pointer: &'static str, detail: &str) -> Error {
    Refusal::Invalid(vec![Flaw::new(pointer, "not_taken", detail)]).into()
}
