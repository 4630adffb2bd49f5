//! The upgrade to a hosted gateway's control channel, against a gateway and issuer that answer as a test decides.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Redirect, Response};
use axum::routing::{any, get, post};
use axum::{Json, Router};
use deskgate::account::{AccountStatus, GatewayAddress, TokenManager};
use deskgate::link::{ConnectStage, Connector, Credentials, HostedConnector, LinkError, connect_once};
use serde_json::json;
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio_util::task::AbortOnDropHandle;

use crate::support::{device_key, soon};

/// The requested paths, with their authorization.
type RequestLog = Arc<Mutex<Vec<(String, String)>>>;

struct HostedSite {
    asked: RequestLog,
    hosted: HostedConnector,
    credentials: Credentials,
    _folder: TempDir,
    _serving: AbortOnDropHandle<()>,
}

async fn note(State(asked): State<RequestLog>, request: Request, next: Next) -> Response {
    let sent = request.headers().get("authorization").map(|value| value.to_str().expect("text").to_owned());
    asked.lock().expect("whole").push((request.uri().path().to_owned(), sent.unwrap_or_default()));
    next.run(request).await
}

impl HostedSite {
    /// `line` answers the upgrade.
    async fn new(line: impl Fn() -> Response + Clone + Send + Sync + 'static) -> Self {
        Self::answering(move || std::future::ready(line())).await
    }

    /// The same, and the answer may take its time.
    async fn answering<F: Future<Output = Response> + Send + 'static>(
        line: impl Fn() -> F + Clone + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a free port");
        let own = format!("http://{}", listener.local_addr().expect("bound"));
        let resource = json!({ "resource": own, "authorization_servers": [own], "deskgate_client_id": "desk" });
        let metadata = json!({ "issuer": own, "token_endpoint": format!("{own}/token"),
            "device_authorization_endpoint": format!("{own}/device") });
        let begun = json!({ "device_code": "code", "user_code": "ABCD", "verification_uri": format!("{own}/go"),
            "interval": 1, "expires_in": 60 });
        let tokens =
            json!({ "access_token": "access-canary", "token_type": "Bearer", "refresh_token": "r", "expires_in": 600 });
        let asked = RequestLog::default();
        let router = Router::new()
            .route("/.well-known/oauth-protected-resource", get(async move || Json(resource)))
            .route("/.well-known/oauth-authorization-server", get(async move || Json(metadata)))
            .route("/device", post(async move || Json(begun)))
            .route("/token", post(async move || Json(tokens)))
            .route("/control", get(line))
            .route("/elsewhere", any(async || "here"))
            .layer(from_fn_with_state(asked.clone(), note));
        let serving = async move { axum::serve(listener, router).await.expect("serves") };
        let folder = tempfile::tempdir().expect("a folder");
        let keeper = TokenManager::new(folder.path().join("accounts"), Default::default());
        let gateway = GatewayAddress::parse(&own).expect("loopback");
        let credentials =
            Credentials { key: device_key(folder.path(), "key"), token: None, known_gateways: None, journal_id: None };
        let hosted = HostedConnector { gateway, token_manager: keeper, device_name: "desk".to_owned() };
        let _serving = AbortOnDropHandle::new(tokio::spawn(serving));
        Self { asked, hosted, credentials, _folder: folder, _serving }
    }

    async fn sign_in(&self) {
        let HostedConnector { gateway, token_manager: keeper, .. } = &self.hosted;
        let mut news = keeper.watch();
        keeper.sign_in(gateway).await.expect("begun");
        while !matches!(keeper.standing(gateway).await, Ok(AccountStatus::SignedIn { .. })) {
            soon("a sign-in", news.changed()).await.expect("there");
        }
    }

    async fn refused(&self) -> LinkError {
        let connector = Connector::Hosted(self.hosted.clone());
        soon("an answer", connect_once(&connector, &self.credentials, Vec::new())).await.expect_err("not let in")
    }

    fn asked(&self, path: &str) -> Vec<String> {
        let asked = self.asked.lock().expect("whole");
        asked.iter().filter(|(at, _)| at == path).map(|(_, sent)| sent.clone()).collect()
    }
}

#[tokio::test]
async fn without_a_sign_in_nothing_is_dialled_and_nothing_is_tried_again() {
    let site = HostedSite::new(|| StatusCode::OK.into_response()).await;
    let error = site.refused().await;
    assert!(error.is_blocked() && error.failed_at() == Some(ConnectStage::Account), "{error}");
    assert!(site.asked("/control").is_empty());
}

/// As from a try that began while the network was down: nothing comes back.
#[tokio::test]
async fn a_later_try_takes_over_from_one_that_hangs() {
    let tries = Arc::new(AtomicU32::new(0));
    let count = Arc::clone(&tries);
    let site = HostedSite::answering(move || {
        let number = count.fetch_add(1, Ordering::Relaxed);
        async move {
            match number {
                0 => std::future::pending().await,
                _ => StatusCode::NOT_FOUND.into_response(),
            }
        }
    })
    .await;
    site.sign_in().await;
    let error = site.refused().await;
    assert!(matches!(error, LinkError::Account(_)), "the second one was answered: {error}");
    assert_eq!(tries.load(Ordering::Relaxed), 2);
}

#[tokio::test]
async fn a_redirect_takes_the_token_nowhere() {
    let site = HostedSite::new(|| Redirect::temporary("/elsewhere").into_response()).await;
    site.sign_in().await;
    let error = site.refused().await;
    assert!(error.to_string().contains("307") && !error.to_string().contains("canary"), "{error}");
    assert_eq!(site.asked("/control"), ["Bearer access-canary"]);
    assert!(site.asked("/elsewhere").is_empty());
}

#[tokio::test]
async fn a_token_that_the_gateway_does_not_take_is_not_tried_twice() {
    let site = HostedSite::new(|| {
        let challenge = "Bearer error=\"invalid_token\", error_description=\"the access token expired\"";
        (StatusCode::UNAUTHORIZED, [("www-authenticate", challenge)]).into_response()
    })
    .await;
    site.sign_in().await;
    let error = site.refused().await;
    assert!(
        matches!(&error, LinkError::AccessTokenRefused { why, .. } if why == "the access token expired"),
        "{error}"
    );
    assert!(!error.is_blocked() && error.failed_at() == Some(ConnectStage::AccessToken));
    site.refused().await;
    // By the code, and then for a newer token.
    assert_eq!(site.asked("/token").len(), 2);
}

#[tokio::test]
async fn what_is_no_line_is_told_so() {
    let answers = [
        (StatusCode::OK, Some(ConnectStage::Socket)),
        (StatusCode::NOT_FOUND, Some(ConnectStage::Socket)),
        (StatusCode::SERVICE_UNAVAILABLE, None),
    ];
    for (answer, failed_at) in answers {
        let site = HostedSite::new(move || answer.into_response()).await;
        site.sign_in().await;
        let error = site.refused().await;
        assert_eq!(error.failed_at(), failed_at, "{error}");
        assert!(!error.is_blocked(), "{error}");
    }
}
