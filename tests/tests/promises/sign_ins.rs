//! `deskgate connection sign-in` ends as the sign-in did.

use axum::http::StatusCode;
use axum::routing::{get, post};
use axum::{Json, Router};
use deskgate_tests::TestDevice;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio_util::task::AbortOnDropHandle;

/// A gateway with an issuer, which answers each question for tokens so.
async fn site(code_lasts_s: u32, tokens: fn() -> (StatusCode, Value)) -> (String, AbortOnDropHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let own = format!("http://{}", listener.local_addr().expect("bound"));
    let resource = json!({ "resource": own, "authorization_servers": [own], "deskgate_client_id": "desk" });
    let metadata = json!({ "issuer": own, "token_endpoint": format!("{own}/token"),
        "device_authorization_endpoint": format!("{own}/device") });
    let begun = json!({ "device_code": "code", "user_code": "ABCD", "verification_uri": format!("{own}/go"),
        "interval": 1, "expires_in": code_lasts_s });
    let answer = async move || {
        let (status, body) = tokens();
        (status, Json(body))
    };
    let router = Router::new()
        .route("/.well-known/oauth-protected-resource", get(async move || Json(resource)))
        .route("/.well-known/oauth-authorization-server", get(async move || Json(metadata)))
        .route("/device", post(async move || Json(begun)))
        .route("/token", post(answer));
    let serving = async move { axum::serve(listener, router).await.expect("serves") };
    (own, AbortOnDropHandle::new(tokio::spawn(serving)))
}

fn said(error: &str) -> (StatusCode, Value) {
    (StatusCode::BAD_REQUEST, json!({ "error": error }))
}

#[tokio::test]
async fn a_sign_in_that_comes_to_nothing_says_why_and_exits_with_4() {
    let device = TestDevice::for_remote().await;
    let (signed_in, _serving) = site(60, || {
        let tokens = json!({ "access_token": "a", "token_type": "Bearer", "refresh_token": "r", "expires_in": 600 });
        (StatusCode::OK, tokens)
    })
    .await;
    let done = device.cli(&["connection", "sign-in", "--gateway-address", &signed_in]).await.ok();
    assert_eq!(done["standing"], "signed_in", "{done}");
    for (code_lasts_s, tokens, why) in [
        (60, (|| said("access_denied")) as fn() -> _, "Not signed in: "),
        (2, || said("authorization_pending"), "Not signed in: the code expired"),
    ] {
        let (own, _serving) = site(code_lasts_s, tokens).await;
        let ended = device.plain_cli(&["connection", "sign-in", "--gateway-address", &own]).await;
        assert!(ended.exit == 4 && ended.stderr.contains(why), "{ended:?}");
    }
}
