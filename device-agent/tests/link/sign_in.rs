//! Signing in at an issuer whose every answer a test decides.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Redirect, Response};
use axum::routing::{get, post};
use axum::{Form, Json, Router};
use deskgate::account::{AccountError, AccountStatus, GatewayAddress, TokenManager};
use deskgate_secrets::KeyPreference;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio_util::task::AbortOnDropHandle;

type RequestForm = Vec<(String, String)>;

/// The issuer's answers, and the requests to it.
#[derive(Default)]
struct IssuerScript {
    /// Answers of the token endpoint, in turn; the last one stays.
    token: VecDeque<(u16, Value)>,
    asked: Vec<RequestForm>,
    revoked: Vec<RequestForm>,
    /// Members that replace those of the default metadata.
    metadata: Value,
    /// The audience that the gateway wants tokens for.
    audience: Option<String>,
    redirects: bool,
}

/// Gateway and issuer at one address.
struct SignInSite {
    script: Arc<Mutex<IssuerScript>>,
    address: SocketAddr,
    folder: TempDir,
    keeper: TokenManager,
    _serving: AbortOnDropHandle<()>,
}

fn tokens(access: &str, refresh: Option<&str>, lasts_s: u64) -> (u16, Value) {
    let mut tokens = json!({ "access_token": access, "token_type": "Bearer", "expires_in": lasts_s });
    if let Some(refresh) = refresh {
        tokens["refresh_token"] = json!(refresh);
    }
    (200, tokens)
}

fn no(error: &str) -> (u16, Value) {
    (400, json!({ "error": error, "error_description": "because\u{1b}[2J" }))
}

impl SignInSite {
    async fn new() -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a free port");
        let address = listener.local_addr().expect("bound");
        let script = Arc::new(Mutex::new(IssuerScript { metadata: json!({}), ..IssuerScript::default() }));
        let own = move |path: &str| format!("http://{address}{path}");
        let resource = move |State(script): State<Arc<Mutex<IssuerScript>>>| async move {
            let mut said = json!({ "resource": own(""), "authorization_servers": [own("/issuer")],
                "scopes_supported": ["openid", "offline_access"], "deskgate_client_id": "desk" });
            if let Some(audience) = &script.lock().expect("whole").audience {
                said["deskgate_audience"] = json!(audience);
            }
            Json(said)
        };
        let metadata = move |State(script): State<Arc<Mutex<IssuerScript>>>| async move {
            let mut said = json!({ "issuer": own("/issuer"), "token_endpoint": own("/token"),
                "device_authorization_endpoint": own("/device"), "revocation_endpoint": own("/revoke") });
            for (name, value) in script.lock().expect("whole").metadata.as_object().expect("an object") {
                said[name] = value.clone();
            }
            Json(said)
        };
        let device = move |Form(asked): Form<RequestForm>| async move {
            assert!(asked.contains(&("client_id".to_owned(), "desk".to_owned())), "{asked:?}");
            assert!(asked.contains(&("resource".to_owned(), own(""))), "{asked:?}");
            Json(
                json!({ "device_code": "secret-device-code", "user_code": "ABCD-EFGH", "interval": 1, "expires_in": 60,
                "verification_uri": own("/activate"), "verification_uri_complete": own("/activate?user_code=ABCD-EFGH") }),
            )
        };
        let router = Router::new()
            .route("/.well-known/oauth-protected-resource", get(resource))
            .route("/.well-known/oauth-authorization-server/issuer", get(metadata))
            .route("/device", post(device))
            .route("/token", post(token))
            .route("/revoke", post(revoke))
            .with_state(script.clone());
        let serving = async move { axum::serve(listener, router).await.expect("serves") };
        let folder = tempfile::tempdir().expect("a folder");
        let keeper = TokenManager::new(folder.path().join("accounts"), KeyPreference::default());
        Self { script, address, folder, keeper, _serving: AbortOnDropHandle::new(tokio::spawn(serving)) }
    }

    fn gateway(&self) -> GatewayAddress {
        GatewayAddress::parse(&format!("http://{}", self.address)).expect("loopback")
    }

    fn script(&self) -> MutexGuard<'_, IssuerScript> {
        self.script.lock().expect("whole")
    }

    fn answers(&self, answers: impl IntoIterator<Item = (u16, Value)>) {
        self.script().token = answers.into_iter().collect();
    }

    async fn standing(&self) -> AccountStatus {
        self.keeper.standing(&self.gateway()).await.expect("known")
    }

    /// Signs in and waits for the result.
    async fn sign_in(&self) -> AccountStatus {
        self.keeper.sign_in(&self.gateway()).await.expect("begun");
        let mut news = self.keeper.watch();
        loop {
            match self.standing().await {
                AccountStatus::Waiting { .. } => news.changed().await.expect("there"),
                standing => return standing,
            }
        }
    }

    async fn signed_in(&self, tokens: (u16, Value)) {
        self.answers([tokens]);
        let standing = self.sign_in().await;
        assert!(matches!(standing, AccountStatus::SignedIn { .. }), "{standing:?}");
        self.script().asked.clear();
    }

    async fn token(&self) -> Result<String, AccountError> {
        self.keeper.token(&self.gateway()).await.map(|token| token.reveal().to_owned())
    }

    fn files(&self) -> Vec<(PathBuf, String)> {
        let Ok(entries) = std::fs::read_dir(self.folder.path().join("accounts")) else { return Vec::new() };
        let read = |path: PathBuf| (path.clone(), std::fs::read_to_string(path).expect("text"));
        entries.map(|entry| read(entry.expect("readable").path())).collect()
    }
}

async fn token(State(script): State<Arc<Mutex<IssuerScript>>>, Form(asked): Form<RequestForm>) -> Response {
    let mut script = script.lock().expect("whole");
    script.asked.push(asked);
    if script.redirects {
        return Redirect::temporary("/elsewhere").into_response();
    }
    let answer = if script.token.len() > 1 { script.token.pop_front() } else { script.token.front().cloned() };
    let (status, body) = answer.unwrap_or((500, json!({})));
    (StatusCode::from_u16(status).expect("a status"), Json(body)).into_response()
}

async fn revoke(State(script): State<Arc<Mutex<IssuerScript>>>, Form(asked): Form<RequestForm>) -> StatusCode {
    script.lock().expect("whole").revoked.push(asked);
    StatusCode::OK
}

#[tokio::test]
async fn a_user_who_enters_the_code_is_signed_in_and_only_the_refresh_token_is_on_the_disk() {
    let world = SignInSite::new().await;
    world.answers([no("authorization_pending"), no("slow_down"), tokens("access-1", Some("refresh-1"), 3600)]);
    let invitation = world.keeper.sign_in(&world.gateway()).await.expect("begun");
    assert_eq!(invitation.user_code, "ABCD-EFGH");
    assert!(invitation.verification_uri.ends_with("/activate"));
    let began = Instant::now();
    let mut news = world.keeper.watch();
    while matches!(world.standing().await, AccountStatus::Waiting { .. }) {
        news.changed().await.expect("there");
    }
    assert!(matches!(world.standing().await, AccountStatus::SignedIn { trouble: None, .. }));
    assert!(began.elapsed() >= Duration::from_secs(8), "one second, one more, and then six, as it was told to");
    assert_eq!(world.token().await.expect("a token"), "access-1");
    let files = world.files();
    let [(path, text)] = files.as_slice() else { panic!("one file: {files:?}") };
    assert!(text.contains("refresh-1") && !text.contains("access-1"), "{text}");
    assert_eq!(path.metadata().expect("there").permissions().mode() & 0o777, 0o600);
    // The agent was restarted.
    world.answers([tokens("access-2", None, 3600)]);
    let again = TokenManager::new(world.folder.path().join("accounts"), KeyPreference::default());
    assert_eq!(again.token(&world.gateway()).await.expect("refreshed").reveal(), "access-2");
}

#[tokio::test]
async fn who_says_no_or_takes_too_long_is_not_signed_in_and_hears_why() {
    for (error, why) in
        [("access_denied", "refused"), ("expired_token", "expired"), ("invalid_client", "invalid_client")]
    {
        let world = SignInSite::new().await;
        world.answers([no(error)]);
        let AccountStatus::SignedOut { why: Some(said) } = world.sign_in().await else { panic!("signed in") };
        assert!(said.contains(why) && !said.contains('\u{1b}'), "{said}");
        assert!(matches!(world.token().await, Err(AccountError::SignedOut(_))));
        assert!(world.files().is_empty());
    }
}

#[tokio::test]
async fn a_new_sign_in_that_fails_is_told_beside_the_old_one_that_stays() {
    let world = SignInSite::new().await;
    world.signed_in(tokens("old", Some("refresh-1"), 3600)).await;
    assert_eq!(world.keeper.last_failure(&world.gateway()), None);
    for (error, why) in [("expired_token", "expired"), ("access_denied", "was refused")] {
        world.answers([no(error)]);
        assert!(matches!(world.sign_in().await, AccountStatus::SignedIn { .. }), "{error}");
        let said = world.keeper.last_failure(&world.gateway()).expect("it failed");
        assert!(said.contains(why), "{said}");
        assert_eq!(world.token().await.expect("the old one is good"), "old");
    }
    world.signed_in(tokens("anew", Some("refresh-9"), 3600)).await;
    assert_eq!(world.keeper.last_failure(&world.gateway()), None);
}

#[tokio::test]
async fn a_sign_in_that_nobody_waits_for_any_more_asks_nothing_more() {
    let world = SignInSite::new().await;
    world.answers([no("authorization_pending"), no("authorization_pending"), tokens("access", None, 3600)]);
    world.keeper.sign_in(&world.gateway()).await.expect("begun");
    world.keeper.cancel(&world.gateway());
    assert_eq!(world.standing().await, AccountStatus::SignedOut { why: None });
    // The next one takes longer than the first would have waited before it polls.
    assert!(matches!(world.sign_in().await, AccountStatus::SignedIn { .. }));
    assert_eq!(world.script().asked.len(), 3, "all of them asked by the second");
}

#[tokio::test]
async fn many_who_need_a_token_ask_once_and_each_refresh_token_is_used_once() {
    let world = SignInSite::new().await;
    // Expires at once, so that each use needs a newer one.
    world.signed_in(tokens("old", Some("refresh-1"), 0)).await;
    world.answers([tokens("new", Some("refresh-2"), 3600)]);
    let all = futures_util::future::join_all((0..20).map(|_| world.token())).await;
    assert!(all.iter().all(|token| token.as_deref() == Ok("new")), "{all:?}");
    let used: Vec<_> =
        world.script().asked.iter().flatten().filter(|(name, _)| name == "refresh_token").cloned().collect();
    assert_eq!(used, [("refresh_token".to_owned(), "refresh-1".to_owned())]);
    assert!(world.files()[0].1.contains("refresh-2"), "the next one is kept before the token is used");
}

#[tokio::test]
async fn an_issuer_that_refuses_ends_the_sign_in_and_is_not_asked_again() {
    let world = SignInSite::new().await;
    world.signed_in(tokens("old", Some("refresh-1"), 0)).await;
    world.answers([no("invalid_grant")]);
    let error = world.token().await.expect_err("refused");
    assert!(matches!(&error, AccountError::Refused { why, .. } if why.contains("invalid_grant")), "{error}");
    assert!(matches!(world.standing().await, AccountStatus::Refused { .. }));
    assert!(!world.files()[0].1.contains("refresh-1"));
    assert!(world.token().await.is_err());
    assert_eq!(world.script().asked.len(), 1);
    // Signing in again mends it.
    world.signed_in(tokens("anew", Some("refresh-9"), 3600)).await;
    assert_eq!(world.token().await.expect("good"), "anew");
}

#[tokio::test]
async fn an_issuer_that_is_away_ends_nothing() {
    let world = SignInSite::new().await;
    world.signed_in(tokens("old", Some("refresh-1"), 0)).await;
    for away in [(503, json!({})), (400, json!("no words")), (200, json!({ "what": 1 })), no("temporarily_unavailable")]
    {
        world.answers([away.clone()]);
        let error = world.token().await.expect_err("nothing newer");
        assert!(matches!(error, AccountError::Away { .. }), "{away:?}: {error}");
    }
    assert!(matches!(world.standing().await, AccountStatus::SignedIn { trouble: Some(_), .. }));
    world.answers([tokens("new", None, 3600)]);
    assert_eq!(world.token().await.expect("it is back"), "new");
    assert!(matches!(world.standing().await, AccountStatus::SignedIn { trouble: None, .. }));
    assert!(world.files()[0].1.contains("refresh-1"), "the one that was kept is still good");
}

#[tokio::test]
async fn a_newer_token_is_fetched_at_half_time_while_the_last_one_is_still_good() {
    let world = SignInSite::new().await;
    world.signed_in(tokens("first", Some("refresh-1"), 4)).await;
    world.answers([tokens("second", None, 3600)]);
    let began = Instant::now();
    assert_eq!(world.keeper.newer_token(&world.gateway()).await.expect("newer").reveal(), "second");
    assert!(began.elapsed() < Duration::from_secs(4), "after {:?}", began.elapsed());
}

#[tokio::test]
async fn a_redirect_takes_no_token_anywhere() {
    let world = SignInSite::new().await;
    world.signed_in(tokens("old", Some("refresh-1"), 0)).await;
    world.script().redirects = true;
    let error = world.token().await.expect_err("it points elsewhere").to_string();
    assert!(error.contains("307") && !error.contains("refresh-1"), "{error}");
    assert_eq!(world.script().asked.len(), 1);
}

#[tokio::test]
async fn an_issuer_that_is_another_than_the_gateway_says_or_not_guarded_is_not_used() {
    for (change, why) in [
        (json!({ "issuer": "https://evil.example.com" }), "calls itself otherwise"),
        (json!({ "token_endpoint": "http://id.example.com/token" }), "token endpoint"),
        (json!({ "device_authorization_endpoint": null }), "RFC 8628"),
    ] {
        let world = SignInSite::new().await;
        world.script().metadata = change;
        let error = world.keeper.sign_in(&world.gateway()).await.expect_err("not used").to_string();
        assert!(error.contains(why), "{error}");
    }
}

#[tokio::test]
async fn a_gateway_gets_no_tokens_that_are_made_for_another_address() {
    let world = SignInSite::new().await;
    for audience in ["https://other.example.com", "http://127.0.0.1:1"] {
        world.script().audience = Some(audience.to_owned());
        let error = world.keeper.sign_in(&world.gateway()).await.expect_err("not used").to_string();
        assert!(error.contains("made for another address"), "{error}");
    }
}

#[tokio::test]
async fn what_is_no_hosted_gateway_is_told_so() {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a free port");
    let address = listener.local_addr().expect("bound");
    let serving = async move { axum::serve(listener, Router::<()>::new()).await.expect("serves") };
    let _serving = AbortOnDropHandle::new(tokio::spawn(serving));
    let world = SignInSite::new().await;
    let gateway = GatewayAddress::parse(&format!("http://{address}")).expect("loopback");
    assert!(matches!(world.keeper.sign_in(&gateway).await, Err(AccountError::NotHosted(_))));
}

#[tokio::test]
async fn signing_out_tells_the_issuer_and_leaves_nothing() {
    let world = SignInSite::new().await;
    world.signed_in(tokens("access", Some("refresh-1"), 3600)).await;
    assert_eq!(world.keeper.sign_out(&world.gateway()).await.expect("out"), None);
    assert!(world.script().revoked[0].contains(&("token".to_owned(), "refresh-1".to_owned())));
    assert!(world.files().is_empty());
    assert_eq!(world.standing().await, AccountStatus::SignedOut { why: None });
    assert!(matches!(world.token().await, Err(AccountError::SignedOut(_))));
}

#[tokio::test]
async fn a_token_of_one_gateway_is_no_other_gateways() {
    let (one, other) = (SignInSite::new().await, SignInSite::new().await);
    one.signed_in(tokens("access", Some("refresh-1"), 3600)).await;
    assert!(matches!(one.keeper.token(&other.gateway()).await, Err(AccountError::SignedOut(_))));
}
