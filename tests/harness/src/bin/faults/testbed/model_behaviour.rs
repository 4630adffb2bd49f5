//! How the model provider behaves, and what it answers when it is out of order.

use std::net::SocketAddr;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::header::RETRY_AFTER;
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::serve::Listener;
use futures_util::{StreamExt, stream};
use serde_json::json;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::time::sleep;

use super::fake_model::events;

/// Its address: the port lies outside those that are given to others, who could take it while it is away.
pub(super) const MODEL_ADDRESS: &str = "127.0.0.1:8444";
/// The pauses that it asks for, where it asks for one, in seconds.
const BUSY_SECONDS: u64 = 2;
const THROTTLED_SECONDS: u64 = 1;
/// From the half of an answer to its breaking off.
const BREAK_PAUSE: Duration = Duration::from_millis(50);

/// Its behaviour.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum ModelBehaviour {
    #[default]
    Answers,
    /// It answers 429 without a retry time.
    Refuses,
    /// It answers 429 with a retry time.
    Throttles,
    /// It answers 503 with a retry time.
    IsBusy,
    /// It answers 500.
    Fails,
    /// It sends something other than a model's answer.
    Babbles,
    /// Its answer ends in the middle.
    BreaksOff,
    /// It stays silent until it is healed, and then closes the connection.
    Hangs,
    /// Nothing listens at its address; what comes over an open connection is closed without an answer.
    IsAway,
}

impl ModelBehaviour {
    /// The faulty behaviours.
    pub(crate) const FAULTS: [Self; 8] = [
        Self::Refuses,
        Self::Throttles,
        Self::IsBusy,
        Self::Fails,
        Self::Babbles,
        Self::BreaksOff,
        Self::Hangs,
        Self::IsAway,
    ];

    /// Its name in the journal.
    pub(crate) fn name(self) -> String {
        format!("{self:?}")
    }

    /// Whether it means that the provider cannot be used at the moment, and may be again.
    pub(crate) fn is_outage(self) -> bool {
        !matches!(self, Self::Answers | Self::Babbles)
    }

    /// The pause that it asks for.
    pub(crate) fn pause(self) -> Option<Duration> {
        match self {
            Self::Throttles => Some(Duration::from_secs(THROTTLED_SECONDS)),
            Self::IsBusy => Some(Duration::from_secs(BUSY_SECONDS)),
            _ => None,
        }
    }

    /// Its answer in the place of this one. `None`: it closes the connection.
    pub(super) fn answer(self, text: &str) -> Option<Response> {
        Some(match self {
            Self::Refuses | Self::Throttles => self.refusal(StatusCode::TOO_MANY_REQUESTS, "rate_limit_exceeded"),
            Self::IsBusy => self.refusal(StatusCode::SERVICE_UNAVAILABLE, "overloaded"),
            Self::Fails => self.refusal(StatusCode::INTERNAL_SERVER_ERROR, "server_error"),
            Self::Babbles => events(Body::from("data: {\"choices\": 7}\n\ndata: [DO")),
            Self::BreaksOff => {
                let half: Bytes = text[..text.len() / 2].to_owned().into();
                // An error right behind it would take it back before it is sent.
                let broken = async {
                    sleep(BREAK_PAUSE).await;
                    Err(std::io::Error::other("broken off on purpose"))
                };
                events(Body::from_stream(stream::iter([Ok(half)]).chain(stream::once(broken))))
            }
            Self::Answers | Self::Hangs | Self::IsAway => return None,
        })
    }

    fn refusal(self, status: StatusCode, kind: &str) -> Response {
        let body = json!({ "error": { "message": "out of order on purpose", "type": kind } });
        let later = self.pause().map(|pause| (RETRY_AFTER, HeaderValue::from(pause.as_secs())));
        (status, later.into_iter().collect::<HeaderMap>(), axum::Json(body)).into_response()
    }
}

/// A listener that is gone while the provider is away.
pub(super) struct Door {
    listener: Option<TcpListener>,
    manner: watch::Receiver<ModelBehaviour>,
}

impl Door {
    pub(super) async fn open(manner: watch::Receiver<ModelBehaviour>) -> Self {
        let mut door = Self { listener: None, manner };
        door.listening().await;
        door
    }

    /// Listens again after it was away.
    async fn listening(&mut self) -> &TcpListener {
        while self.listener.is_none() {
            match TcpListener::bind(MODEL_ADDRESS).await {
                Ok(listener) => self.listener = Some(listener),
                // Connections of before are still being closed.
                Err(_) => sleep(Duration::from_millis(10)).await,
            }
        }
        self.listener.as_ref().expect("it listens")
    }
}

impl Listener for Door {
    type Io = TcpStream;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (TcpStream, SocketAddr) {
        let mut manner = self.manner.clone();
        loop {
            if *manner.borrow() == ModelBehaviour::IsAway {
                self.listener = None;
                let _ = manner.wait_for(|manner| *manner != ModelBehaviour::IsAway).await;
            }
            let listener = self.listening().await;
            tokio::select! {
                accepted = listener.accept() => if let Ok(accepted) = accepted { return accepted },
                _ = manner.wait_for(|manner| *manner == ModelBehaviour::IsAway) => {}
            }
        }
    }

    fn local_addr(&self) -> std::io::Result<SocketAddr> {
        MODEL_ADDRESS.parse().map_err(std::io::Error::other)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_may_pass_by_itself_is_an_outage_and_a_pause_is_told() {
        let outages = ModelBehaviour::FAULTS.into_iter().filter(|manner| manner.is_outage()).count();
        assert_eq!(outages, ModelBehaviour::FAULTS.len() - 1);
        let busy = ModelBehaviour::IsBusy.answer("text").expect("it answers");
        assert_eq!((busy.status().as_u16(), &busy.headers()[RETRY_AFTER]), (503, &HeaderValue::from_static("2")));
        let refused = ModelBehaviour::Refuses.answer("text").expect("it answers");
        assert_eq!((refused.status().as_u16(), refused.headers().get(RETRY_AFTER)), (429, None));
        assert!(ModelBehaviour::IsAway.answer("text").is_none());
    }
}
