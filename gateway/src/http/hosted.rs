//! The HTTP endpoints for devices of a hosted gateway: resource metadata (RFC 9728), and the upgrade to the control
//! channel.
//!
//! Neither is part of the API: backends do not need them, and its document does not name them.

use std::io;
use std::sync::Arc;

use axum::Json;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use deskgate_protocol::transfer::TRANSFERS_PATH;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::mpsc;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use url::Url;

use super::Api;
use super::caller::credential;
use super::connection_service::{ClientAddress, ConnectionPermit};
use super::error::Error;
use crate::domain::accounts::Grant;
use crate::hosted::{GrantError, TokenVerifier};

/// The path of the control channel, under the gateway's address.
pub const CONTROL_PATH: &str = "/control";
/// The path of a protected resource's metadata (RFC 9728, section 3).
const METADATA_PATH: &str = "/.well-known/oauth-protected-resource";

/// The entry of devices with accounts.
pub struct HostedIngress {
    verifier: TokenVerifier,
    public_url: String,
    arrivals: mpsc::Sender<AccountArrival>,
}

/// A device with a good token; its connection begins when the answer has been sent.
pub struct AccountArrival {
    /// The account, and until when it is valid.
    pub grant: Grant,
    /// Whether it comes with the bytes of files, and not with frames.
    pub is_for_transfers: bool,
    upgrade: OnUpgrade,
    lodging: Option<ConnectionPermit>,
}

/// A bidirectional byte stream.
pub trait UpgradedStream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<S: AsyncRead + AsyncWrite + Send + Unpin> UpgradedStream for S {}

impl AccountArrival {
    /// The upgraded stream, and the value that holds its permit for one of the listener's connections.
    ///
    /// # Errors
    /// The connection ends before its upgrade.
    pub async fn stream(self) -> io::Result<(Box<dyn UpgradedStream>, impl Send)> {
        let upgraded = self.upgrade.await.map_err(io::Error::other)?;
        Ok((Box::new(TokioIo::new(upgraded)), self.lodging))
    }
}

impl HostedIngress {
    /// Verifies tokens with `judge`, and hands devices over to `arrivals`.
    pub fn new(verifier: TokenVerifier, public_url: String, arrivals: mpsc::Sender<AccountArrival>) -> Self {
        Self { verifier, public_url, arrivals }
    }

    fn metadata_url(&self) -> String {
        let (origin, path) = self.split();
        format!("{origin}{METADATA_PATH}{path}")
    }

    /// Scheme and host, and the path after them without its last slash.
    fn split(&self) -> (String, String) {
        match Url::parse(&self.public_url) {
            Ok(url) => (url[..url::Position::AfterPort].to_owned(), url.path().trim_end_matches('/').to_owned()),
            Err(_) => (self.public_url.clone(), String::new()),
        }
    }

    fn metadata(&self) -> Value {
        let hosted = self.verifier.hosted();
        json!({
            "resource": self.public_url,
            "resource_name": "Deskgate gateway",
            "authorization_servers": [hosted.issuer_text],
            "bearer_methods_supported": ["header"],
            "scopes_supported": hosted.scopes,
            // The audience of tokens, and the desktops' client identifier.
            "deskgate_audience": hosted.audience,
            "deskgate_client_id": hosted.client_id,
        })
    }

    /// A refusal as in RFC 6750, which names the metadata's address.
    fn refuse(&self, status: StatusCode, error: Option<(&str, &str)>, text: &str) -> Response {
        let mut challenge = "Bearer ".to_owned();
        if let Some((code, description)) = error {
            challenge += &format!("error=\"{code}\", error_description=\"{description}\", ");
        }
        challenge += &format!("resource_metadata=\"{}\"", self.metadata_url());
        let mut response = (status, format!("{text}\n")).into_response();
        if status == StatusCode::UNAUTHORIZED
            && let Ok(challenge) = HeaderValue::from_str(&challenge)
        {
            response.headers_mut().insert(header::WWW_AUTHENTICATE, challenge);
        }
        response
    }
}

/// The two routes of a hosted gateway.
pub(super) fn routes(router: axum::Router<Arc<Api>>, entry: &HostedIngress) -> axum::Router<Arc<Api>> {
    let document = entry.metadata();
    let describe = get(async move || Json(document));
    // A proxy that strips the path of the gateway's address sends it here without.
    let mut places = vec![METADATA_PATH.to_owned(), format!("{METADATA_PATH}{}", entry.split().1)];
    places.dedup();
    let router = places.iter().fold(router, |router, place| router.route(place, describe.clone()));
    router.route(CONTROL_PATH, get(enter)).route(TRANSFERS_PATH, get(enter))
}

/// `GET /control`, `GET /transfers`: the upgrade.
async fn enter(State(api): State<Arc<Api>>, mut request: Request) -> Result<Response, Error> {
    let Some(entry) = &api.hosted else { return Err(Error::not_found()) };
    api.admits()?;
    let Ok(token) = credential(request.headers()) else {
        let text = "A device comes in with an access token of its account; the header says where to learn about it.";
        return Ok(entry.refuse(StatusCode::UNAUTHORIZED, None, text));
    };
    let from = request.extensions().get().map(|ClientAddress(address)| *address);
    let knock = api.access.begin_attempt(from)?;
    let grant = match entry.verifier.grant(token).await {
        Ok(grant) => grant,
        Err(GrantError::Unfit(unfit)) => {
            let why = unfit.to_string();
            tracing::info!(%why, "a device was turned away");
            return Ok(entry.refuse(StatusCode::UNAUTHORIZED, Some(("invalid_token", &why)), &why));
        }
        // The key may be new, or made up: so this counts as a failure until its device comes again.
        Err(GrantError::TooSoon) => return Ok(later("The account's issuer is asked for its keys again soon.", "30")),
        Err(error @ GrantError::Unavailable(_)) => {
            // Whether it was a failure is unknown. The reason is in the log; the issuer's address is not for strangers.
            knock.forgive();
            tracing::warn!(%error, "a device could not be let in");
            return Ok(later("The issuer of the account does not answer at the moment.", "10"));
        }
    };
    knock.forgive();
    let Some(accept) = accept_key(request.headers()) else {
        let text = "This is the control line of devices: a WebSocket of version 13 over HTTP/1.1.\n";
        let upgrade = [(header::UPGRADE, "websocket"), (header::SEC_WEBSOCKET_VERSION, "13")];
        return Ok((StatusCode::UPGRADE_REQUIRED, upgrade, text).into_response());
    };
    let lodging = request.extensions().get().cloned();
    let is_for_transfers = request.uri().path() == TRANSFERS_PATH;
    let Some(upgrade) = request.extensions_mut().remove::<OnUpgrade>() else {
        return Ok((StatusCode::BAD_REQUEST, "This connection cannot become a WebSocket.\n").into_response());
    };
    if entry.arrivals.try_send(AccountArrival { grant, is_for_transfers, upgrade, lodging }).is_err() {
        return Ok(later("Too many devices come in at this moment.", "1"));
    }
    let switching = [
        (header::CONNECTION, HeaderValue::from_static("Upgrade")),
        (header::UPGRADE, HeaderValue::from_static("websocket")),
        (header::SEC_WEBSOCKET_ACCEPT, accept),
    ];
    Ok((StatusCode::SWITCHING_PROTOCOLS, switching).into_response())
}

fn later(text: &str, seconds: &'static str) -> Response {
    (StatusCode::SERVICE_UNAVAILABLE, [(header::RETRY_AFTER, seconds)], format!("{text}\n")).into_response()
}

/// The accept key for a WebSocket request (RFC 6455, section 4.2); `None`: the request is something else.
fn accept_key(headers: &HeaderMap) -> Option<HeaderValue> {
    let text = |name| headers.get(name).and_then(|value: &HeaderValue| value.to_str().ok());
    let upgrades = text(header::CONNECTION)?.split(',').any(|word| word.trim().eq_ignore_ascii_case("upgrade"))
        && text(header::UPGRADE)?.trim().eq_ignore_ascii_case("websocket")
        && text(header::SEC_WEBSOCKET_VERSION)?.trim() == "13";
    let key = headers.get(header::SEC_WEBSOCKET_KEY).filter(|key| upgrades && key.len() == 24)?;
    HeaderValue::from_str(&derive_accept_key(key.as_bytes())).ok()
}
