//! Refusals of who calls: keys, scopes, subjects, and the name of the work.

use deskgate_protocol::management::Scope;
use deskgate_protocol::secret::{ApplicationKey, ControlToken};
use deskgate_protocol::{KeyId, RunId, Timestamp};
use serde_json::{Value, json};

use crate::support::call::{ExpectedProblem, not_found};
use crate::support::gateway::TestGateway;

const MISSING_KEY_PROBLEM: ExpectedProblem<'_> = ExpectedProblem {
    status: 401,
    code: "credential_missing",
    title: "Credential missing",
    detail: "The request has no application key. Send it as \"Authorization: Bearer <application key>\".",
    retryable: false,
    members: Value::Null,
};

fn credential_invalid(detail: &str) -> ExpectedProblem<'_> {
    ExpectedProblem::new(401, "credential_invalid", "Credential invalid", detail)
}

#[tokio::test]
async fn every_key_that_is_no_valid_key_gets_the_same_401() {
    let gateway = TestGateway::new().await;
    let device = &gateway.device;
    let revoked = device.restricted_key(|_| {}).await;
    device.revoke(revoked.key.key_id).await;
    let past: Timestamp = "2020-01-01T00:00:00Z".parse().expect("valid");
    let expired = device.restricted_key(|key| key.expires_at = Some(past)).await;
    let unknown = ApplicationKey::generate(KeyId::new());
    // Everything about this one is right, but the secret.
    let wrong_secret = ApplicationKey::generate(device.app.key.parse::<ApplicationKey>().expect("a key").id());
    let mut damaged = device.app.key.clone();
    let last = damaged.pop().expect("not empty");
    damaged.push(if last == '0' { '1' } else { '0' });
    let bearer = |text: &str| format!("Bearer {text}");
    let sent = [
        bearer(&revoked.text),
        bearer(&expired.text),
        bearer(unknown.reveal()),
        bearer(wrong_secret.reveal()),
        bearer(&damaged),
        bearer(&device.app.key.to_uppercase()),
        bearer(""),
        bearer("nonsense"),
        format!("Basic {}", device.app.key),
        device.app.key.clone(),
        format!("Bearer{}", device.app.key),
        format!("Bearer {0} {0}", device.app.key),
        "é".to_owned(),
    ];
    for authorization in sent {
        let reply =
            gateway.call("GET", "/api/v1/agent-endpoints").subject("anna").header("Authorization", &authorization);
        reply.send().await.assert_problem(&credential_invalid("The application key is not valid."));
    }
    let twice = gateway.ask("GET", "/api/v1/agent-endpoints").more("Authorization", bearer(&device.app.key));
    twice.send().await.assert_problem(&credential_invalid("The application key is not valid."));
    let scheme = gateway.call("GET", "/api/v1/agent-endpoints").subject("anna");
    let any_case = scheme.header("Authorization", format!("bEaReR {}", device.app.key));
    assert_eq!(any_case.send().await.status, 200, "schemes are compared without case");
    gateway.stop().await;
}

#[tokio::test]
async fn without_a_credential_every_route_says_that_one_is_missing() {
    let gateway = TestGateway::new().await;
    let routes = [
        ("GET", "/api/v1/agent-endpoints".to_owned()),
        ("POST", gateway.runs_of(gateway.device.endpoint)),
        ("GET", format!("/api/v1/runs/{}", RunId::new())),
    ];
    for (method, path) in routes {
        gateway.call(method, &path).send().await.assert_problem(&MISSING_KEY_PROBLEM);
    }
    gateway.stop().await;
}

#[tokio::test]
async fn another_kind_of_secret_in_the_place_of_a_key_is_named() {
    let gateway = TestGateway::new().await;
    let token = ControlToken::generate();
    for (secret, name) in [
        (token.reveal(), "a private control token"),
        ("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "a webhook signing secret"),
        ("sk-ant-0000", "a model provider's key"),
        ("dgl_0000", "a launch link"),
        ("dgi_0000", "an invitation"),
    ] {
        let reply = gateway.call("GET", "/api/v1/agent-endpoints").subject("anna").key(secret).send().await;
        let detail =
            format!("The application key is not valid. This is {name}; an application key starts with \"dgk_\".");
        reply.assert_problem(&credential_invalid(&detail));
        assert!(!reply.text.contains(secret), "what was pasted is not repeated");
    }
    gateway.stop().await;
}

#[tokio::test]
async fn a_key_in_the_url_is_refused_before_everything_else_and_not_repeated() {
    let gateway = TestGateway::new().await;
    let key = &gateway.device.app.key;
    let detail = "A credential was sent in the URL, where it can leak into logs. Send it in the Authorization header, \
                  and roll the key that was sent.";
    let problem = ExpectedProblem::new(400, "credential_in_url", "Credential in the URL", detail);
    for query in [
        format!("access_token={key}"),
        format!("wait=1&x={key}"),
        "API_KEY=anything".to_owned(),
        "wait=1&token".to_owned(),
        format!("x={}", key.replacen('_', "%5F", 1)),
        format!("{key}=x"),
        key.clone(),
    ] {
        for (method, path) in [("GET", "/api/v1/agent-endpoints"), ("POST", "/nowhere")] {
            let reply = gateway.call(method, &format!("{path}?{query}")).send().await;
            reply.assert_problem(&problem);
            assert!(!reply.text.contains(&key[4..]), "{query}");
        }
    }
    gateway.stop().await;
}

#[tokio::test]
async fn a_missing_scope_is_named_on_each_route() {
    let gateway = TestGateway::new().await;
    let run_id = gateway.submit("one").await;
    let routes = [
        (Scope::EndpointsRead, "GET", "/api/v1/agent-endpoints".to_owned()),
        (Scope::RunsWrite, "POST", gateway.runs_of(gateway.device.endpoint)),
        (Scope::RunsRead, "GET", format!("/api/v1/runs/{run_id}")),
        (Scope::RunsControl, "POST", format!("/api/v1/runs/{run_id}/stop")),
        (Scope::ConversationsWrite, "POST", "/api/v1/conversations".to_owned()),
        (Scope::ConversationsRead, "GET", "/api/v1/conversations/conv_1".to_owned()),
        (Scope::ConversationsWrite, "POST", "/api/v1/conversations/conv_1/messages".to_owned()),
        (Scope::RunsWrite, "POST", "/api/v1/conversations/conv_1/messages".to_owned()),
        (Scope::ConversationsControl, "POST", "/api/v1/conversations/conv_1/reset".to_owned()),
        (Scope::DeliveriesRead, "GET", "/api/v1/deliveries".to_owned()),
    ];
    for (scope, method, path) in routes {
        let others = Scope::ALL.into_iter().filter(|other| *other != scope).collect();
        let key = gateway.device.restricted_key(|key| key.scopes = others).await;
        let detail = format!("This application key lacks the scope \"{scope}\".");
        let problem = ExpectedProblem::new(403, "insufficient_scope", "Insufficient scope", &detail)
            .with(json!({ "required_scope": scope.as_str() }));
        gateway.call(method, &path).key(&key.text).subject("anna").send().await.assert_problem(&problem);
    }
    gateway.stop().await;
}

#[tokio::test]
async fn a_subject_is_one_name_of_1_to_255_visible_ascii_characters() {
    let gateway = TestGateway::new().await;
    let ask = || gateway.ask("GET", "/api/v1/agent-endpoints");
    let detail = "The request names no business user. Send the header X-Gateway-Subject.";
    let missing = ExpectedProblem::new(400, "subject_missing", "Subject missing", detail);
    ask().without("X-Gateway-Subject").send().await.assert_problem(&missing);
    let detail = "X-Gateway-Subject must be sent once and hold 1 to 255 visible ASCII characters.";
    let invalid = ExpectedProblem::new(400, "subject_invalid", "Subject invalid", detail);
    for subject in ["".to_owned(), "x".repeat(256), "anna berg".to_owned(), "änna".to_owned(), "anna\tb".to_owned()] {
        ask().header("X-Gateway-Subject", &subject).send().await.assert_problem(&invalid);
    }
    ask().header("X-Gateway-Subject", b"an\xffna").send().await.assert_problem(&invalid);
    ask().more("X-Gateway-Subject", "anna").send().await.assert_problem(&invalid);
    ask().more("X-Gateway-Subject", "berta").send().await.assert_problem(&invalid);
    assert_eq!(ask().subject(&"x".repeat(255)).send().await.status, 200);
    assert_eq!(ask().subject("{\"sub\":'a,b;c'}").send().await.status, 200);
    gateway.stop().await;
}

#[tokio::test]
async fn a_key_bound_to_a_subject_speaks_for_no_other() {
    let gateway = TestGateway::new().await;
    let bound = gateway.device.restricted_key(|key| key.fixed_subject = Some("berta".to_owned())).await;
    let of_anna = gateway.submit("one").await;
    let ask = |path: &str| gateway.call("GET", path).key(&bound.text);
    let detail = "This application key is bound to another subject.";
    let problem = ExpectedProblem::new(403, "subject_not_allowed", "Subject not allowed", detail);
    ask("/api/v1/agent-endpoints").subject("anna").send().await.assert_problem(&problem);
    ask(&format!("/api/v1/runs/{of_anna}")).subject("anna").send().await.assert_problem(&problem);
    for allowed in [ask("/api/v1/agent-endpoints"), ask("/api/v1/agent-endpoints").subject("berta")] {
        assert_eq!(allowed.send().await.status, 200);
    }
    ask(&format!("/api/v1/runs/{of_anna}")).send().await.assert_problem(&not_found());
    let submitted = gateway.submission("two").without("X-Gateway-Subject").key(&bound.text).send().await;
    let run = ask(&format!("/api/v1/runs/{}", submitted.run_id())).subject("berta").send().await;
    assert_eq!(run.status, 200, "what it left out is filled in");
    gateway.stop().await;
}

#[tokio::test]
async fn an_idempotency_key_is_one_text_bare_or_quoted() {
    let gateway = TestGateway::new().await;
    let detail = "This request needs the header Idempotency-Key, so that it can be repeated safely: 1 to 255 visible ASCII \
                  characters that you choose.";
    let missing = ExpectedProblem::new(400, "idempotency_key_missing", "Idempotency-Key missing", detail);
    gateway.submission("x").without("Idempotency-Key").send().await.assert_problem(&missing);
    let detail =
        "Idempotency-Key must be sent once and hold 1 to 255 visible ASCII characters, bare or in double quotes.";
    let invalid = ExpectedProblem::new(400, "idempotency_key_invalid", "Idempotency-Key invalid", detail);
    let long = "x".repeat(256);
    for key in ["", "\"\"", "\"", "a b", "ä", "a\"b", &long, &format!("\"{long}\"")] {
        gateway.submission(key).send().await.assert_problem(&invalid);
    }
    gateway.submission("x").more("Idempotency-Key", "x").send().await.assert_problem(&invalid);
    let longest = "x".repeat(255);
    let bare = gateway.submission(&longest).send().await;
    let quoted = gateway.submission(&format!("\"{longest}\"")).send().await;
    assert_eq!(bare.run_id(), quoted.run_id(), "quotes are not a part of it");
    gateway.stop().await;
}
