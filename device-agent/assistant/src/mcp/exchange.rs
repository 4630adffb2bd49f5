//! One exchange over HTTP: a request, and the answer that is its own.
//!
//! The SDK waits for an answer until the time is over when a server only takes a request (HTTP 202) or answers another
//! one. Here such an answer becomes an error of the request that was asked, at once.

use std::collections::HashMap;
use std::sync::Arc;

use futures_util::StreamExt;
use futures_util::stream::BoxStream;
use reqwest::Client;
use reqwest::header::{HeaderName, HeaderValue};
use rmcp::model::{ClientJsonRpcMessage, ErrorCode, ErrorData, RequestId, ServerJsonRpcMessage};
use rmcp::transport::streamable_http_client::{
    SseError, StreamableHttpClient, StreamableHttpError, StreamableHttpPostResponse, StreamableHttpResponseLimits,
};
use serde::Deserialize;
use sse_stream::Sse;

type Headers = HashMap<HeaderName, HeaderValue>;
type Events = BoxStream<'static, Result<Sse, SseError>>;
type Failure = StreamableHttpError<reqwest::Error>;

/// What is wrong with an answer that came, but is none to the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AnswerFault {
    /// The request was taken like a notification.
    Missing,
    /// The answer has no identifier, or `null`.
    Anonymous,
    /// The answer has another request's identifier.
    Foreign,
    /// What came is no message of the protocol, or no answer.
    Senseless,
}

impl AnswerFault {
    const ALL: [Self; 4] = [Self::Missing, Self::Anonymous, Self::Foreign, Self::Senseless];
    /// The faults have codes from here on, far from any that a protocol gives out. A server that sends one says of itself
    /// that its answer is useless.
    const FIRST_CODE: i32 = i32::MIN;

    /// The fault that stands in an error's place, if one does.
    pub(super) fn of(error: &ErrorData) -> Option<Self> {
        Self::ALL.into_iter().find(|fault| fault.code() == error.code)
    }

    /// What the server did.
    pub fn words(self) -> &'static str {
        match self {
            Self::Missing => "it took a request and gave no answer to it",
            Self::Anonymous => "its answer does not say to which request it belongs",
            Self::Foreign => "it answered a request that was not asked",
            Self::Senseless => "what it answered is no answer in the protocol",
        }
    }

    fn code(self) -> ErrorCode {
        ErrorCode(Self::FIRST_CODE + self as i32)
    }

    /// The fault as an error of the request that was asked.
    fn answer_to(self, asked: &RequestId) -> ServerJsonRpcMessage {
        ServerJsonRpcMessage::error(ErrorData::new(self.code(), self.words(), None), Some(asked.clone()))
    }
}

/// The HTTP client of a session, which lets no answer pass that is none to its request.
#[derive(Clone, Debug)]
pub(super) struct CheckedClient(pub(super) Client);

impl StreamableHttpClient for CheckedClient {
    type Error = reqwest::Error;

    async fn post_message(
        &self,
        uri: Arc<str>,
        message: ClientJsonRpcMessage,
        session: Option<Arc<str>>,
        auth: Option<String>,
        headers: Headers,
    ) -> Result<StreamableHttpPostResponse, Failure> {
        let limits = StreamableHttpResponseLimits::default();
        self.post_message_with_response_limits(uri, message, session, auth, headers, limits).await
    }

    async fn post_message_with_response_limits(
        &self,
        uri: Arc<str>,
        message: ClientJsonRpcMessage,
        session: Option<Arc<str>>,
        auth: Option<String>,
        headers: Headers,
        limits: StreamableHttpResponseLimits,
    ) -> Result<StreamableHttpPostResponse, Failure> {
        let asked = match &message {
            ClientJsonRpcMessage::Request(request) => Some(request.id.clone()),
            _ => None,
        };
        let answer = self.0.post_message_with_response_limits(uri, message, session, auth, headers, limits).await?;
        Ok(match asked {
            Some(asked) => checked(answer, asked),
            None => answer,
        })
    }

    async fn delete_session(
        &self,
        uri: Arc<str>,
        session: Arc<str>,
        auth: Option<String>,
        headers: Headers,
    ) -> Result<(), Failure> {
        self.0.delete_session(uri, session, auth, headers).await
    }

    async fn get_stream(
        &self,
        uri: Arc<str>,
        session: Option<Arc<str>>,
        last_event: Option<String>,
        auth: Option<String>,
        headers: Headers,
    ) -> Result<Events, Failure> {
        self.0.get_stream(uri, session, last_event, auth, headers).await
    }

    async fn get_stream_with_max_sse_event_size(
        &self,
        uri: Arc<str>,
        session: Option<Arc<str>>,
        last_event: Option<String>,
        auth: Option<String>,
        headers: Headers,
        max_bytes: usize,
    ) -> Result<Events, Failure> {
        self.0.get_stream_with_max_sse_event_size(uri, session, last_event, auth, headers, max_bytes).await
    }
}

/// The answer to a request, with a fault in the place of one that is none.
fn checked(answer: StreamableHttpPostResponse, asked: RequestId) -> StreamableHttpPostResponse {
    use StreamableHttpPostResponse::{Json, Sse};
    match answer {
        Json(message, session) => match fault_of(&message, &asked) {
            Some(fault) => Json(fault.answer_to(&asked), session),
            None => Json(message, session),
        },
        Sse(events, session) => {
            Sse(events.map(move |event| event.map(|event| checked_event(event, &asked))).boxed(), session)
        }
        _ => Json(AnswerFault::Missing.answer_to(&asked), None),
    }
}

/// What is wrong with one message as the whole answer.
fn fault_of(message: &ServerJsonRpcMessage, asked: &RequestId) -> Option<AnswerFault> {
    match message {
        ServerJsonRpcMessage::Response(response) => fault_of_id(Some(&response.id), asked),
        ServerJsonRpcMessage::Error(error) => fault_of_id(error.id.as_ref(), asked),
        _ => Some(AnswerFault::Senseless),
    }
}

/// The members by which an answer is told from a request or a notification.
#[derive(Deserialize)]
struct EventHead {
    method: Option<String>,
    id: Option<RequestId>,
}

/// An event of the answer's stream; requests and notifications of the server pass.
fn checked_event(event: Sse, asked: &RequestId) -> Sse {
    let Some(text) = event.data.as_deref().filter(|text| !text.trim().is_empty()) else { return event };
    let fault = match serde_json::from_str(text) {
        Ok(EventHead { method: Some(_), .. }) => None,
        Ok(EventHead { method: None, id }) => fault_of_id(id.as_ref(), asked),
        Err(_) => Some(AnswerFault::Senseless),
    };
    match fault.map(|fault| serde_json::to_string(&fault.answer_to(asked))) {
        Some(Ok(text)) => Sse { data: Some(text), ..event },
        _ => event,
    }
}

/// A number may come back as text, which the SDK takes as the same.
fn fault_of_id(given: Option<&RequestId>, asked: &RequestId) -> Option<AnswerFault> {
    match given {
        None => Some(AnswerFault::Anonymous),
        Some(given) if given.to_string() == asked.to_string() => None,
        Some(_) => Some(AnswerFault::Foreign),
    }
}
