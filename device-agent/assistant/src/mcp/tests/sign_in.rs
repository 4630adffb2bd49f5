//! Signing in for a server at a strict authorization server, and what becomes of the tokens.

use super::strict_issuer::{StrictIssuer, bring_back, query_of};
use super::*;
use crate::mcp::sign_in::{McpSignInStatus, SignInError};

/// A device without a key for the server.
async fn device(issuer: &StrictIssuer) -> TrustingDevice {
    let device = TrustingDevice::with(&issuer.server).await;
    device.servers.connections.set("crm", change(None, KeyChange::Forget)).expect("saved");
    device
}

fn change(url: Option<&str>, key: KeyChange) -> McpServerChange {
    McpServerChange { url: url.map(str::to_owned), header: None, key, key_place: None }
}

/// A device whose owner has signed in.
async fn signed_in(issuer: &StrictIssuer) -> TrustingDevice {
    let device = device(issuer).await;
    let prompt = device.servers.sign_ins.begin("crm", None).await.expect("begun");
    issuer.agree(&prompt.address).await;
    let status = settled(&device).await;
    assert!(matches!(status, McpSignInStatus::SignedIn(_)), "{status:?}");
    device
}

/// The status when no sign-in waits any more.
async fn settled(device: &TrustingDevice) -> McpSignInStatus {
    let settled = async {
        loop {
            match device.servers.sign_ins.status("crm").await.expect("configured") {
                McpSignInStatus::Waiting { .. } => tokio::task::yield_now().await,
                status => return status,
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(20), settled).await.expect("it ends")
}

fn file(device: &TrustingDevice) -> String {
    std::fs::read_to_string(device._folder.path().join("mcp/crm.json")).expect("a file")
}

async fn refusal(device: &TrustingDevice) -> String {
    let error = device.servers.look(&device.server).await.expect_err("nobody gets in").to_string();
    assert!(!error.contains("Canary"), "{error}");
    error
}

#[tokio::test]
async fn an_owner_who_agrees_is_signed_in_and_requests_carry_the_token_and_nothing_else_does() {
    let issuer = StrictIssuer::start().await;
    let device = device(&issuer).await;
    assert!(refusal(&device).await.contains("deskgate mcp sign-in"));
    let prompt = device.servers.sign_ins.begin("crm", None).await.expect("begun");
    assert!(matches!(device.servers.sign_ins.status("crm").await, Ok(McpSignInStatus::Waiting { .. })));
    issuer.agree(&prompt.address).await;
    let McpSignInStatus::SignedIn(view) = settled(&device).await else { panic!("the owner agreed") };
    assert_eq!((&view.issuer, &view.over), (&prompt.issuer, &None));
    let device = device.published().await;
    assert_eq!(device.call().await, ToolOutput::ok("Noted."));
    let carried = issuer.seen_at("/mcp").into_iter().filter_map(|seen| seen.bearer).collect::<Vec<_>>();
    assert!(carried.len() >= 3 && carried.iter().all(|token| token == &carried[0]), "{carried:?}");
    // The token is in the file that only the owner can read, and in nothing that is shown.
    assert!(file(&device).contains(&carried[0]));
    let listed = device.servers.connections.list().expect("listed");
    assert_eq!((&listed[0].sign_in, &listed[0].header), (&Some(view), &None));
    let shown = format!("{listed:?} {:?} {:?}", device.servers, device.servers.sign_ins.status("crm").await);
    assert!(!shown.contains("Canary") && !prompt.address.contains("Canary"), "{shown}");
    let lines: Vec<_> = issuer.server.seen().into_iter().map(|seen| seen.line).collect();
    assert!(lines.iter().all(|line| !line.contains("Canary")), "no address of a request holds a secret: {lines:?}");
}

#[tokio::test]
async fn the_stand_in_refuses_what_an_authorization_server_has_to_refuse() {
    let issuer = StrictIssuer::start().await;
    let device = device(&issuer).await;
    let prompt = device.servers.sign_ins.begin("crm", None).await.expect("begun");
    let right = query_of(&prompt.address);
    for (name, other) in [
        ("code_challenge", None),
        ("code_challenge_method", Some("plain")),
        ("resource", Some("https://other.example")),
        ("redirect_uri", Some("http://127.0.0.1:1/callback")),
        ("state", None),
    ] {
        let mut wrong = right.clone();
        wrong.remove(name);
        wrong.extend(other.map(|other| (name.to_owned(), other.to_owned())));
        assert!(issuer.book().authorized(&wrong).is_err(), "{name}");
    }
    let back = issuer.book().authorized(&right).expect("right");
    let code = query_of(&back)["code"].clone();
    let client = device.servers.clients.for_url(&reqwest::Url::parse(&issuer.server.url).expect("a URL")).clone();
    let place = issuer.server.url.replace("/mcp", "/token");
    let resource = format!("&resource={}", issuer.server.url);
    for form in [
        format!("grant_type=authorization_code&code={code}&code_verifier=wrong{resource}"),
        format!("grant_type=authorization_code&code={code}{resource}"),
        "grant_type=refresh_token&refresh_token=old".to_owned(),
        format!("grant_type=refresh_token&refresh_token=old{resource}"),
    ] {
        assert_eq!(client.post(&place).body(form.clone()).send().await.expect("answered").status(), 400, "{form}");
    }
}

#[tokio::test]
async fn what_makes_a_sign_in_unsafe_or_impossible_ends_it_before_a_browser_is_opened() {
    type Spoil = fn(&mut strict_issuer::IssuerBook);
    let cases: [(Spoil, &str); 12] = [
        (|book| book.metadata = json!({ "code_challenge_methods_supported": null }), "PKCE"),
        (|book| book.metadata = json!({ "code_challenge_methods_supported": ["plain"] }), "PKCE"),
        (|book| book.metadata = json!({ "issuer": "https://id.example" }), "calls itself otherwise"),
        (|book| book.metadata = json!({ "token_endpoint": "http://127.0.0.1:1/token" }), "no token endpoint"),
        (|book| book.metadata = json!({ "authorization_endpoint": null }), "no authorization endpoint"),
        (|book| book.metadata = json!({ "registration_endpoint": null }), "--client-id"),
        (|book| book.resource = json!({ "resource": "https://localhost/mcp" }), "another address"),
        (|book| book.resource = json!({ "authorization_servers": [] }), "where one signs in"),
        (|book| book.resource = json!({ "authorization_servers": ["http://localhost:1"] }), "not asked over https"),
        (|book| book.registration = json!({ "token_endpoint_auth_method": "client_secret_basic" }), "need a secret"),
        (|book| book.registration = json!({ "client_id": "" }), "no usable client identifier"),
        (|book| book.registration = json!({ "client_id": null }), "not the one that belongs there"),
    ];
    for (spoil, part) in cases {
        let issuer = StrictIssuer::start().await;
        spoil(&mut issuer.book());
        let device = device(&issuer).await;
        let error = device.servers.sign_ins.begin("crm", None).await.expect_err(part).to_string();
        assert!(error.contains(part), "{part}: {error}");
        assert!(matches!(device.servers.sign_ins.status("crm").await, Ok(McpSignInStatus::SignedOut)));
    }
}

#[tokio::test]
async fn a_server_that_is_silent_about_its_metadata_has_it_at_the_well_known_place() {
    let issuer = StrictIssuer::start().await;
    issuer.book().is_silent = true;
    let device = device(&issuer).await;
    let prompt = device.servers.sign_ins.begin("crm", None).await.expect("found");
    assert_eq!(query_of(&prompt.address)["scope"], "notes offline_access", "the scopes of the metadata");
    assert_eq!(query_of(&prompt.address)["resource"], issuer.server.url);
    // A server that has it nowhere wants a key, or nothing.
    let other = FakeMcpServer::start(|_| http("404 Not Found", "", "")).await;
    let device = TrustingDevice::with(&other).await;
    let error = device.servers.sign_ins.begin("crm", None).await.expect_err("it has a key");
    assert!(matches!(error, SignInError::HasKey(_)) && other.seen().is_empty(), "{error:?}");
    device.servers.connections.set("crm", change(None, KeyChange::Forget)).expect("saved");
    let error = device.servers.sign_ins.begin("crm", None).await.expect_err("nowhere");
    assert!(matches!(error, SignInError::NotOffered(_)), "{error:?}");
    assert!(error.to_string().contains("/.well-known/oauth-protected-resource/mcp: status 404; https://"), "{error}");
}

#[tokio::test]
async fn a_web_page_at_a_well_known_place_is_no_metadata_and_the_next_place_is_asked() {
    let issuer = StrictIssuer::start().await;
    issuer.book().shows_pages = true;
    let device = signed_in(&issuer).await;
    assert_eq!(issuer.seen_at("/.well-known/oauth-authorization-server").len(), 1, "a page was there");
    // The same for the server's own metadata, and for what cannot be read.
    issuer.book().is_silent = true;
    for spoilt in [json!({ "resource": null }), json!({ "resource": "https://localhost/other" })] {
        issuer.book().resource = spoilt;
        issuer.book().host = json!({});
        device.servers.sign_ins.begin("crm", None).await.expect("found at the host's place");
    }
    // With nothing at any place, the owner reads what is there.
    issuer.book().host = json!(null);
    let error = device.servers.sign_ins.begin("crm", None).await.expect_err("nowhere").to_string();
    assert!(error.contains("/mcp: it speaks for another address"), "{error}");
    assert!(error.contains("/.well-known/oauth-protected-resource: a web page"), "{error}");
    (issuer.book().resource, issuer.book().metadata) = (json!({}), json!({ "issuer": null }));
    let error = device.servers.sign_ins.begin("crm", None).await.expect_err("no issuer").to_string();
    assert!(error.contains("/.well-known/oauth-authorization-server: a web page"), "{error}");
    assert!(error.contains("/.well-known/openid-configuration: its answer is not the one"), "{error}");
}

#[tokio::test]
async fn a_resource_above_the_servers_address_counts_only_if_its_own_place_has_it() {
    let issuer = StrictIssuer::start().await;
    let host = issuer.server.url.strip_suffix("/mcp").expect("a path").to_owned();
    issuer.book().resource = json!({ "resource": host, "authorization_servers": ["https://evil.example"] });
    let device = device(&issuer).await;
    let error = device.servers.sign_ins.begin("crm", None).await.expect_err("nobody else says so").to_string();
    assert!(error.contains("more than the server's address") && error.contains("404"), "{error}");
    issuer.book().host = json!({ "resource": format!("{host}/other") });
    let error = device.servers.sign_ins.begin("crm", None).await.expect_err("the host says otherwise").to_string();
    assert!(error.contains("another resource"), "{error}");
    // The host's own word counts, also for who gives the tokens; the resource is asked for as it is written there.
    issuer.book().host = json!({});
    let prompt = device.servers.sign_ins.begin("crm", None).await.expect("the host says it");
    assert_eq!((&query_of(&prompt.address)["resource"], &prompt.issuer), (&host, &host));
    issuer.agree(&prompt.address).await;
    settled(&device).await;
    device.servers.look(&device.server).await.expect("signed in");
}

#[tokio::test]
async fn a_client_identifier_that_the_owner_gave_is_used_and_kept_for_the_next_sign_in() {
    let issuer = StrictIssuer::start().await;
    issuer.book().clients.insert("by-hand".to_owned(), None);
    let device = device(&issuer).await;
    for given in [Some("by-hand".to_owned()), None] {
        let prompt = device.servers.sign_ins.begin("crm", given).await.expect("begun");
        assert_eq!(query_of(&prompt.address)["client_id"], "by-hand");
        issuer.agree(&prompt.address).await;
        assert!(matches!(settled(&device).await, McpSignInStatus::SignedIn(_)));
    }
    assert!(issuer.seen_at("/register").is_empty());
    for wrong in ["", "two words", "line\nline"] {
        let error = device.servers.sign_ins.begin("crm", Some(wrong.to_owned())).await;
        assert!(matches!(error, Err(SignInError::ClientId)), "{error:?}");
    }
}

#[tokio::test]
async fn an_answer_of_somebody_else_or_a_refusal_signs_nobody_in_and_sends_no_code_on() {
    for (is_named, answer, part) in [
        (true, "code=x", "another authorization server"),
        (false, "code=x&iss=https%3A%2F%2Fevil.example", "another authorization server"),
        (false, "error=access_denied&iss=https%3A%2F%2Fevil.example", "another authorization server"),
        (false, "error=access_denied&error_description=No%1b", "access_denied: No"),
        (false, "nothing=1", "no code"),
        (false, "code=guessed", "invalid_grant"),
    ] {
        let issuer = StrictIssuer::start().await;
        if is_named {
            issuer.book().metadata = json!({ "authorization_response_iss_parameter_supported": true });
        }
        let device = device(&issuer).await;
        let prompt = device.servers.sign_ins.begin("crm", None).await.expect("begun");
        let query = query_of(&prompt.address);
        bring_back(&format!("{}?state={}&{answer}", query["redirect_uri"], query["state"])).await;
        let McpSignInStatus::Failed { why } = settled(&device).await else { panic!("{answer}: nobody agreed") };
        assert!(why.contains(part) && !why.contains('\u{1b}'), "{answer}: {why}");
        assert_eq!(issuer.seen_at("/token").len(), usize::from(part == "invalid_grant"), "{answer}");
        assert!(!file(&device).contains("sign_in"));
    }
}

#[tokio::test]
async fn a_sign_in_that_is_cancelled_or_begun_anew_waits_no_longer() {
    let issuer = StrictIssuer::start().await;
    let device = device(&issuer).await;
    let first = device.servers.sign_ins.begin("crm", None).await.expect("begun");
    let second = device.servers.sign_ins.begin("crm", None).await.expect("begun anew");
    device.servers.sign_ins.cancel("crm");
    assert!(matches!(device.servers.sign_ins.status("crm").await, Ok(McpSignInStatus::SignedOut)));
    for prompt in [first, second] {
        let redirect = query_of(&prompt.address)["redirect_uri"].clone();
        wait_until_closed(&redirect).await;
    }
}

#[tokio::test]
async fn tokens_are_refreshed_before_they_expire_and_each_refresh_token_is_used_once() {
    let issuer = StrictIssuer::start().await;
    issuer.book().expires_in = Some(30);
    let device = signed_in(&issuer).await;
    for refreshes in 1..=3 {
        device.servers.look(&device.server).await.expect("with a new token");
        assert!(issuer.refreshes() >= refreshes, "less than the margin is left each time");
    }
    issuer.book().expires_in = Some(3600);
    device.servers.look(&device.server).await.expect("with a new token");
    let refreshes = issuer.refreshes();
    device.servers.look(&device.server).await.expect("with the same token");
    assert_eq!(issuer.refreshes(), refreshes);
    let asked = issuer.seen_at("/token");
    let unique: std::collections::BTreeSet<_> = asked.iter().map(|seen| &seen.text).collect();
    assert_eq!(unique.len(), asked.len(), "no code and no refresh token twice");
    // A refresh that gives no other refresh token lets the old one last.
    (issuer.book().keeps_refresh_token, issuer.book().expires_in) = (true, Some(30));
    issuer.book().access_tokens.clear();
    device.servers.look(&device.server).await.expect("with a new token");
    device.servers.look(&device.server).await.expect("with the same refresh token");
}

#[tokio::test]
async fn tokens_in_a_vendors_own_form_are_taken_and_those_of_another_type_are_not() {
    let issuer = StrictIssuer::start().await;
    issuer.book().tokens = json!({ "token_type": null, "expires_in": "30.5" });
    let device = signed_in(&issuer).await;
    issuer.book().tokens = json!({ "token_type": null, "expires_in": "3600" });
    for _ in 0..2 {
        device.servers.look(&device.server).await.expect("signed in");
    }
    assert_eq!(issuer.refreshes(), 1, "the first was about to expire, and the second is not");
    issuer.book().tokens = json!({ "token_type": "DPoP" });
    issuer.book().access_tokens.clear();
    let error = refusal(&device).await;
    assert!(error.contains("the type \"DPoP\", and only Bearer"), "{error}");
}

#[tokio::test]
async fn runs_that_begin_at_once_refresh_once() {
    let issuer = StrictIssuer::start().await;
    issuer.book().expires_in = Some(1);
    let device = signed_in(&issuer).await;
    issuer.book().expires_in = Some(3600);
    let look = || device.servers.look(&device.server);
    let looked = tokio::join!(look(), look(), look(), look());
    for looked in [looked.0, looked.1, looked.2, looked.3] {
        looked.expect("with the new token");
    }
    assert_eq!(issuer.refreshes(), 1);
    // The same when the server has forgotten the token that all of them have.
    issuer.book().access_tokens.clear();
    let looked = tokio::join!(look(), look(), look(), look());
    for looked in [looked.0, looked.1, looked.2, looked.3] {
        looked.expect("with the new token");
    }
    assert_eq!(issuer.refreshes(), 2);
}

#[tokio::test]
async fn a_call_whose_token_is_refused_was_not_carried_out_and_is_sent_once_more_with_a_new_one() {
    let issuer = StrictIssuer::start().await;
    let device = signed_in(&issuer).await.published().await;
    let opened = device.open().await.expect("as it was published");
    issuer.book().access_tokens.clear();
    let output = opened[0].run(json!({}), CancellationToken::new()).await.expect("an answer");
    assert_eq!(output, ToolOutput::ok("Noted."));
    assert_eq!((issuer.server.count("tools/call"), issuer.refreshes()), (2, 1));
    // A server that takes no token is not asked a third time.
    issuer.book().is_closed = true;
    let output = opened[0].run(json!({}), CancellationToken::new()).await.expect("an answer");
    assert!(output.text.contains("did not carry this call out") && !output.is_unknown, "{output:?}");
    assert!(output.text.contains("deskgate mcp sign-in crm"), "{output:?}");
    assert_eq!((issuer.server.count("tools/call"), issuer.refreshes()), (4, 2));
    // The sign-in is not over for that.
    issuer.book().is_closed = false;
    device.servers.look(&device.server).await.expect("let in again");
}

#[tokio::test]
async fn a_refused_refresh_ends_the_sign_in_and_says_how_to_begin_another() {
    let issuer = StrictIssuer::start().await;
    let device = signed_in(&issuer).await.published().await;
    let opened = device.open().await.expect("as it was published");
    issuer.book().access_tokens.clear();
    issuer.book().end_refreshing();
    let output = opened[0].run(json!({}), CancellationToken::new()).await.expect("an answer");
    assert!(output.text.contains("Sign in again: deskgate mcp sign-in crm"), "{output:?}");
    assert!(output.is_error && !output.is_unknown && !output.text.contains("Canary"), "{output:?}");
    assert_eq!(issuer.server.count("tools/call"), 1, "the call is not sent without a token");
    let error = refusal(&device).await;
    assert!(error.contains("invalid_grant") && error.contains("Sign in again: deskgate mcp sign-in crm"), "{error}");
    assert_eq!(issuer.refreshes(), 1, "the authorization server has said its word");
    assert!(!file(&device).contains("Canary"), "the tokens are gone");
    let McpSignInStatus::SignedIn(view) = settled(&device).await else { panic!("it was one") };
    assert!(view.over.expect("over").contains("invalid_grant"));
    let prompt = device.servers.sign_ins.begin("crm", None).await.expect("begun");
    issuer.agree(&prompt.address).await;
    settled(&device).await;
    device.servers.look(&device.server).await.expect("signed in again");
}

#[tokio::test]
async fn an_authorization_server_that_is_away_ends_nothing() {
    let issuer = StrictIssuer::start().await;
    issuer.book().expires_in = Some(40);
    let device = signed_in(&issuer).await;
    issuer.book().is_failing = true;
    device.servers.look(&device.server).await.expect("the token lasts for a while");
    issuer.book().access_tokens.clear();
    let error = refusal(&device).await;
    assert!(error.contains("503") && error.contains("try again later"), "{error}");
    issuer.book().is_failing = false;
    device.servers.look(&device.server).await.expect("it is back");
}

#[tokio::test]
async fn a_renewal_whose_answer_is_lost_ends_the_sign_in_only_if_the_issuer_says_so() {
    for keeps_refresh_token in [true, false] {
        let issuer = StrictIssuer::start().await;
        let device = signed_in(&issuer).await;
        (issuer.book().keeps_refresh_token, issuer.book().loses_tokens) = (keeps_refresh_token, true);
        issuer.book().access_tokens.clear();
        let error = refusal(&device).await;
        assert!(error.contains("try again later"), "{error}");
        issuer.book().loses_tokens = false;
        if keeps_refresh_token {
            device.servers.look(&device.server).await.expect("renewed with the same token");
        } else {
            // It gave its tokens to nobody, and takes a used one for stolen (RFC 9700, section 4.14.2).
            let error = refusal(&device).await;
            assert!(error.contains("invalid_grant") && error.contains("deskgate mcp sign-in crm"), "{error}");
        }
    }
}

#[tokio::test]
async fn without_a_refresh_token_the_sign_in_lasts_as_long_as_its_token() {
    let issuer = StrictIssuer::start().await;
    (issuer.book().is_refreshing, issuer.book().expires_in) = (false, None);
    let device = signed_in(&issuer).await;
    device.servers.look(&device.server).await.expect("signed in");
    // As after a restart of the agent.
    let again = McpServers {
        sign_ins: SignIns::new(device.servers.connections.clone(), Arc::clone(&device.servers.clients)),
        ..device.servers.clone()
    };
    again.look(&device.server).await.expect("the token is kept");
    issuer.book().access_tokens.clear();
    let error = refusal(&device).await;
    assert!(error.contains("nothing to renew it with") && error.contains("Sign in again"), "{error}");
}

#[tokio::test]
async fn a_sign_out_revokes_and_forgets_and_a_server_elsewhere_gets_nothing() {
    let issuer = StrictIssuer::start().await;
    let device = signed_in(&issuer).await;
    let moved = device.servers.connections.set("crm", change(Some("https://other.example/mcp"), KeyChange::Keep));
    assert!(matches!(moved, Err(ConnectionError::KeyOfAnotherPlace(_))), "{moved:?}");
    assert_eq!(device.servers.sign_ins.sign_out("crm").await.expect("signed out"), None);
    let revoked = issuer.book().revoked.clone();
    assert!(revoked.len() == 1 && revoked[0].starts_with("refresh-"), "{revoked:?}");
    assert!(!file(&device).contains("Canary") && !file(&device).contains("sign_in"));
    assert!(matches!(device.servers.sign_ins.sign_out("crm").await, Err(SignInError::SignedOut(_))));
    assert!(refusal(&device).await.contains("deskgate mcp sign-in"));
    // Without a place to revoke at, the owner hears of it.
    issuer.book().metadata = json!({ "revocation_endpoint": null });
    let device = signed_in(&issuer).await;
    let not_told = device.servers.sign_ins.sign_out("crm").await.expect("signed out");
    assert!(not_told.expect("not told").contains("no place"));
}

#[tokio::test]
async fn a_sign_in_that_a_key_or_a_removal_ends_is_revoked_and_one_that_goes_on_is_not() {
    let issuer = StrictIssuer::start().await;
    let key = || KeyChange::Replace(Secret::new("key-canary").expect("a key"));
    for (is_told, ends) in [(true, Some(key())), (true, Some(KeyChange::Forget)), (true, None), (false, Some(key()))] {
        issuer.book().metadata = if is_told { json!({}) } else { json!({ "revocation_endpoint": null }) };
        let device = signed_in(&issuer).await;
        let sign_ins = &device.servers.sign_ins;
        let (kept, ended) = sign_ins.set("crm", change(None, KeyChange::Keep)).await.expect("saved");
        assert!(kept.sign_in.is_some() && ended.is_none() && issuer.book().revoked.is_empty());
        let moved = sign_ins.set("crm", change(Some("https://other.example/mcp"), KeyChange::Keep)).await;
        assert!(moved.is_err() && issuer.book().revoked.is_empty(), "what is refused ends nothing");
        let is_removed = ends.is_none();
        let ended = match ends {
            Some(key) => {
                let (set, ended) = sign_ins.set("crm", change(None, key)).await.expect("saved");
                assert_eq!(set.sign_in, None);
                ended
            }
            None => sign_ins.remove("crm").await.expect("removed"),
        };
        let ended = ended.expect("there was one");
        assert_eq!((ended.not_told.is_none(), ended.name.as_str()), (is_told, "crm"), "{ended:?}");
        let revoked = std::mem::take(&mut issuer.book().revoked);
        assert!(revoked.len() == usize::from(is_told) && revoked.iter().all(|token| token.starts_with("refresh-")));
        assert!(is_removed || !file(&device).contains("Canary"), "deleted in any case");
    }
    // A server without a sign-in has nothing to revoke.
    let device = device(&issuer).await;
    assert_eq!(device.servers.sign_ins.remove("crm").await.expect("removed"), None);
}

#[tokio::test]
async fn tokens_that_cannot_be_kept_are_revoked() {
    let issuer = StrictIssuer::start().await;
    let device = device(&issuer).await;
    let prompt = device.servers.sign_ins.begin("crm", None).await.expect("begun");
    let key = KeyChange::Replace(Secret::new("key-canary").expect("a key"));
    device.servers.sign_ins.set("crm", change(None, key)).await.expect("saved");
    issuer.agree(&prompt.address).await;
    let McpSignInStatus::Failed { why } = settled(&device).await else { panic!("there is a key by now") };
    assert!(why.contains("has a key"), "{why}");
    assert_eq!(issuer.book().revoked.len(), 1);
}

#[tokio::test]
async fn a_slow_renewal_takes_nothing_of_the_time_in_which_a_server_shows_its_era() {
    let issuer = StrictIssuer::start().await;
    issuer.book().expires_in = Some(30);
    let mut device = signed_in(&issuer).await;
    device.servers.patience.discovery = Duration::from_secs(2);
    (issuer.book().token_delay, issuer.book().expires_in) = (Duration::from_millis(2500), Some(3600));
    device.servers.look(&device.server).await.expect("discovered after a renewal");
    assert_eq!(issuer.refreshes(), 1);
    // The same for a token that the server refuses in the middle of it.
    issuer.book().access_tokens.clear();
    device.servers.look(&device.server).await.expect("discovered in spite of a renewal");
    assert_eq!((issuer.refreshes(), issuer.server.count("initialize")), (2, 0));
}
