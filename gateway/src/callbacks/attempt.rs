//! One delivery attempt, from the signed request to its outcome.

use bytes::Bytes;
use deskgate_protocol::delivery::DeliveryErrorCode;
use hyper::header::{HeaderMap, HeaderName, HeaderValue};

use super::send::{CallbackSender, SendResult};
use crate::domain::deliveries::{AttemptResponse, SignedRequest, judge, refused};
use crate::domain::destinations::Destination;
use crate::store::deliveries::outcomes::AttemptOutcome;

/// Posts to callbacks; implemented by [`CallbackSender`].
pub trait DeliveryTransport: Clone + Send + Sync + 'static {
    /// Posts once.
    fn post(&self, to: &Destination, headers: HeaderMap, body: Bytes) -> impl Future<Output = SendResult> + Send;
}

impl DeliveryTransport for CallbackSender {
    async fn post(&self, to: &Destination, headers: HeaderMap, body: Bytes) -> SendResult {
        CallbackSender::post(self, to, headers, body).await
    }
}

/// Posts a signed request, if its destination is allowed.
pub(super) async fn attempt(post: impl DeliveryTransport, signed: SignedRequest) -> AttemptOutcome {
    let SignedRequest { claimed, headers, body } = signed;
    if !claimed.allowed {
        return refused(&claimed, DeliveryErrorCode::HostNotAllowed);
    }
    let to = claimed.url.as_deref().and_then(|url| Destination::parse(url).ok());
    let headers = headers
        .into_iter()
        .map(|(name, value)| Some((HeaderName::from_static(name), HeaderValue::from_str(&value).ok()?)));
    let (Some(to), Some(headers)) = (to, headers.collect::<Option<HeaderMap>>()) else {
        return refused(&claimed, DeliveryErrorCode::Misconfigured);
    };
    let SendResult { answer, took } = post.post(&to, headers, Bytes::from(body)).await;
    let came = match answer {
        Ok(answer) => AttemptResponse {
            took,
            status_code: Some(answer.status),
            error_code: None,
            retry_after: answer.retry_after,
            answer: answer.body,
        },
        Err(why) => AttemptResponse { took, error_code: Some(why), ..AttemptResponse::default() },
    };
    judge(&claimed, &came)
}
