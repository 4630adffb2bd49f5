//! The calls of the Responses API.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, RawQuery, State};
use axum::response::{IntoResponse, Response};
use deskgate_protocol::RunId;
use deskgate_protocol::canonical::Sha256Digest;
use deskgate_protocol::management::Scope;
use deskgate_protocol::run::Run;
use serde_json::{Value, json};

use super::request::{self, Kind, OpenAiRequest};
use super::response::{RequestEcho, messages, response};
use super::response_stream::ResponseEvents;
use super::run_stream::followed;
use super::{RunHeaders, admit, response_id, run_of};
use crate::domain::access::AuthenticatedRequest;
use crate::domain::operations::{self, RequestIdentity, StopRequest};
use crate::domain::refusal::Refusal;
use crate::domain::runs;
use crate::http::Api;
use crate::http::error::Error;
use crate::http::held::{self, Waiting};
use crate::http::query::QueryParameters;
use crate::http::request_body::{ReceivedRequest, RequestBody};

/// How long an answer is held back at most.
const MAX_HELD_TIME: Duration = Duration::from_secs(600);

/// `POST /openai/v1/responses`
pub(super) async fn create(
    State(api): State<Arc<Api>>,
    authenticated: AuthenticatedRequest,
    ReceivedRequest { headers, body }: ReceivedRequest,
) -> Result<Response, Error> {
    api.admits()?;
    let caller = authenticated.authorise_work(&[Scope::RunsWrite, Scope::RunsRead])?;
    let mut incoming = RequestBody::of(&api, &caller, &headers, body)?;
    let asked = request::read(&mut incoming, Kind::Response).await?;
    drop(incoming);
    let (admitted, watch) = admit::admit(&api, &caller, &headers, &asked, Kind::Response).await?;
    let echo = echo(&asked);
    let about = RunHeaders { run_id: admitted.run.run_id, replayed: admitted.replayed, ignored: asked.ignored, watch };
    let run = admitted.run;
    let answer = match (asked.stream, asked.background) {
        // Refused, the request was not answered: its repetition finds the run.
        (true, _) => {
            let stream = api.streams.open(&caller, run.run_id, 0).await?.ok_or(Refusal::NotFound)?;
            followed(api.clone(), caller, stream, ResponseEvents::new(run.run_id, echo, None))
        }
        (false, true) => written(api, run, echo, false).await.map(|body| Json(body).into_response())?,
        (false, false) => {
            let waiting = Waiting::for_end(api.clone(), caller, run.run_id);
            let body = move |api: Arc<Api>, run: Run, is_over: bool| written(api, run, echo.clone(), is_over);
            held::answer(waiting, MAX_HELD_TIME, body).await?
        }
    };
    Ok(about.write(answer))
}

fn echo(asked: &OpenAiRequest) -> RequestEcho {
    let previous = match asked.continuation {
        Some(request::Continuation::Response(run_id)) => Some(response_id(run_id)),
        _ => None,
    };
    RequestEcho { background: Some(asked.background), previous_response_id: previous, store: Some(asked.store) }
}

/// The response of a run; `is_over`: it was waited for in vain, which its reader must not take for an empty answer.
async fn written(api: Arc<Api>, run: Run, echo: RequestEcho, is_over: bool) -> Result<Value, Refusal> {
    let mut body = response(&run, messages(&api, &run).await?, &echo);
    if is_over {
        let message = format!("The run goes on. Read it with: GET /openai/v1/responses/{}", response_id(run.run_id));
        body["error"] = json!({ "type": "wait_over", "code": "wait_over", "message": message });
    }
    Ok(body)
}

/// `GET /openai/v1/responses/{response_id}`
pub(super) async fn read(
    State(api): State<Arc<Api>>,
    authenticated: AuthenticatedRequest,
    id: Result<Path<String>, PathRejection>,
    RawQuery(query): RawQuery,
) -> Result<Response, Error> {
    let caller = authenticated.authorise(Scope::RunsRead)?;
    let run_id = identifier(id)?;
    let known = ["stream", "starting_after", "include", "include[]", "include_obfuscation"];
    let query = QueryParameters::read(query.as_deref(), &known)?;
    let about = RunHeaders { run_id, replayed: false, ignored: Vec::new(), watch: None };
    if query.text("stream") != Some("true") {
        let run = runs::read(&api.store, &caller, run_id, Duration::ZERO).await?;
        return Ok(about.write(Json(written(api, run, RequestEcho::default(), false).await?).into_response()));
    }
    let after = match query.text("starting_after") {
        None => None,
        Some(text) => {
            let wrong =
                || Error::invalid_parameter("starting_after", "starting_after is a sequence_number that was sent.");
            Some(text.parse::<u64>().map_err(|_| wrong())?)
        }
    };
    // All of its events are read again: the numbers tell which of them the caller has.
    let stream = api.streams.open(&caller, run_id, 0).await?.ok_or(Refusal::NotFound)?;
    let events = ResponseEvents::new(run_id, RequestEcho::default(), after);
    Ok(about.write(followed(api.clone(), caller, stream, events)))
}

/// `POST /openai/v1/responses/{response_id}/cancel`
pub(super) async fn cancel(
    State(api): State<Arc<Api>>,
    authenticated: AuthenticatedRequest,
    id: Result<Path<String>, PathRejection>,
) -> Result<Response, Error> {
    let caller = authenticated.authorise_work(&[Scope::RunsControl, Scope::RunsRead])?;
    let run_id = identifier(id)?;
    let stop = StopRequest { expected_attempt: None, reason: None };
    // Every repetition is the same request.
    let request = RequestIdentity { idempotency_key: "openai-cancel".to_owned(), fingerprint: Sha256Digest::of(b"{}") };
    operations::stop(&api.store, &caller, run_id, stop, request, api.limits.retention).await?;
    let run = runs::read(&api.store, &caller, run_id, Duration::ZERO).await?;
    let about = RunHeaders { run_id, replayed: false, ignored: Vec::new(), watch: None };
    Ok(about.write(Json(written(api, run, RequestEcho::default(), false).await?).into_response()))
}

/// `GET /openai/v1/responses/{response_id}/input_items`
pub(super) async fn input_items(
    State(api): State<Arc<Api>>,
    authenticated: AuthenticatedRequest,
    id: Result<Path<String>, PathRejection>,
) -> Result<Json<Value>, Error> {
    let caller = authenticated.authorise(Scope::RunsRead)?;
    let run_id = identifier(id)?;
    let run = runs::read(&api.store, &caller, run_id, Duration::ZERO).await?;
    let items = items(&run);
    let id = |item: Option<&Value>| item.map(|item| item["id"].clone());
    Ok(Json(json!({
        "object": "list", "first_id": id(items.first()), "last_id": id(items.last()), "has_more": false, "data": items,
    })))
}

/// The input of a run, newest first.
fn items(run: &Run) -> Vec<Value> {
    let Some(input) = &run.input else { return Vec::new() };
    let transcript = input.more.get("transcript").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let asked = json!({ "role": "user", "text": input.text });
    let turns = transcript.iter().chain([&asked]).enumerate();
    let item = |(place, turn): (usize, &Value)| {
        let is_user = turn["role"] == "user";
        let mut part = json!({ "type": if is_user { "input_text" } else { "output_text" }, "text": turn["text"] });
        if !is_user {
            part["annotations"] = json!([]);
        }
        json!({
            "id": format!("msg_{}_in{place}", run.run_id.uuid().simple()), "type": "message", "status": "completed",
            "role": turn["role"], "content": [part],
        })
    };
    let mut items: Vec<_> = turns.map(item).collect();
    items.reverse();
    items
}

fn identifier(path: Result<Path<String>, PathRejection>) -> Result<RunId, Refusal> {
    path.ok().and_then(|Path(text)| run_of(&text)).ok_or(Refusal::NotFound)
}
