//! One exchange over HTTP: a request, and the answer that is its own.
//!
//! The SDK waits for an answer until the time is over when a server only takes a request (HTTP 202) or answers another
//! one. Here such an answer becomes an error of the request that was asked, at once. Here, too, a request gets the token
//! of a sign-in. A server that refuses a token has not carried the request out, so that it is sent once more with another.

use std::collections::HashMap;
use std::sync::Arc;

use deskgate_protocol::secret::AccessToken;
use futures_util::StreamExt;
use futures_util::stream::BoxStream;
use reqwest::Client;
use reqwest::header::{AUTHORIZATION, HeaderName, HeaderValue};
use rmcp::model::{ClientJsonRpcMessage, ErrorCode, ErrorData, RequestId, ServerJsonRpcMessage};
use rmcp::transport::streamable_http_client::{
    SseError, StreamableHttpClient, StreamableHttpError, StreamableHttpPostResponse, StreamableHttpResponseLimits,
};
use serde::Deserialize;
use sse_stream::Sse;

use super::sign_in::{SessionToken, SignInError};

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
pub(super) struct CheckedClient {
    pub(super) client: Client,
    /// The token that requests carry, if the owner has signed in.
    pub(super) token: Option<Arc<SessionToken>>,
}

impl CheckedClient {
    /// The headers with the token of the sign-in, if there is one.
    async fn with_token(&self, headers: Headers) -> Result<Headers, Failure> {
        match &self.token {
            Some(token) => carrying(headers, &token.get().await.map_err(failed)?),
            None => Ok(headers),
        }
    }
}

fn carrying(mut headers: Headers, token: &AccessToken) -> Result<Headers, Failure> {
    let value = HeaderValue::try_from(format!("Bearer {}", token.reveal()));
    let mut value = value.map_err(|_| failed(SignInError::Broken))?;
    value.set_sensitive(true);
    headers.insert(AUTHORIZATION, value);
    Ok(headers)
}

/// A failure of the sign-in on its way through the SDK, which has no kind of its own for it.
fn failed(error: SignInError) -> Failure {
    StreamableHttpError::Io(std::io::Error::other(error))
}

/// Whether the server refused the token, or that there is none.
fn is_unauthorized(failure: &Failure) -> bool {
    match failure {
        StreamableHttpError::AuthRequired(_) => true,
        // The SDK gives the status only in this text when the refusal has no challenge.
        StreamableHttpError::UnexpectedServerResponse(text) => text.starts_with("HTTP 401"),
        _ => false,
    }
}

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
        let post = async |headers| {
            let (uri, message) = (uri.clone(), message.clone());
            let (session, auth) = (session.clone(), auth.clone());
            self.client.post_message_with_response_limits(uri, message, session, auth, headers, limits).await
        };
        let answer = match &self.token {
            None => post(headers).await?,
            Some(source) => {
                let token = source.get().await.map_err(failed)?;
                match post(carrying(headers.clone(), &token)?).await {
                    Err(refused) if is_unauthorized(&refused) => {
                        let other = source.instead_of(&token).await.map_err(failed)?;
                        let again = post(carrying(headers, &other)?).await;
                        again.map_err(|again| if is_unauthorized(&again) { failed(source.refused()) } else { again })?
                    }
                    answered => answered?,
                }
            }
        };
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
        self.client.delete_session(uri, session, auth, self.with_token(headers).await?).await
    }

    async fn get_stream(
        &self,
        uri: Arc<str>,
        session: Option<Arc<str>>,
        last_event: Option<String>,
        auth: Option<String>,
        headers: Headers,
    ) -> Result<Events, Failure> {
        self.client.get_stream(uri, session, last_event, auth, self.with_token(headers).await?).await
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
        let headers = self.with_token(headers).await?;
        self.client.get_stream_with_max_sse_event_size(uri, session, last_event, auth, headers, max_bytes).await
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
