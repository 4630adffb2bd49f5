//! Hostile requests: other hosts, other origins, other sessions. Each carries a valid cookie and a valid token, so that
//! only the one wrong thing can be the reason for its refusal.

use std::collections::BTreeSet;

use deskgate_tests::TestDevice;

use crate::enabled;
use crate::raw_http::{RawResponse, RawSession, exchange};

fn refused(answer: &RawResponse, case: &str) {
    assert!(answer.status >= 400, "{case}: {answer:?}");
    assert!(!answer.body.contains("name=\"token\""), "{case}: no form of a session: {}", answer.body);
}

#[tokio::test]
async fn what_no_owner_sends_changes_nothing_and_what_an_owner_sees_holds_no_secret() {
    let (device, sibling) = tokio::join!(TestDevice::built_in(), TestDevice::built_in());
    let (hand, theirs) = (RawSession::signed_in(&device).await, RawSession::signed_in(&sibling).await);
    it_answers_to_its_own_address_and_to_no_name_that_leads_to_it(&hand).await;
    only_its_own_pages_change_something_and_only_with_the_session_s_token(&device, &hand).await;
    no_form_of_any_page_is_taken_from_elsewhere_or_without_the_token(&device, &hand).await;
    a_link_leads_nowhere_but_to_its_own_pages(&device, &hand).await;
    the_session_of_a_second_agent_is_none_here(&hand, &theirs).await;
    every_answer_says_what_a_browser_may_do_with_it_and_none_opens_it_to_other_origins(&hand).await;
    no_page_shows_a_secret(&device, &hand).await;
}

async fn it_answers_to_its_own_address_and_to_no_name_that_leads_to_it(hand: &RawSession) {
    let (port, cookie, mount) = (hand.address.port(), &hand.cookie, &hand.mount);
    let named = async |host: &str| {
        let request = format!("GET {mount}/access HTTP/1.1\r\n{host}Cookie: {cookie}\r\n\r\n");
        exchange(hand.address, &request).await
    };
    assert_eq!(named(&format!("Host: {}\r\n", hand.address)).await.status, 200);
    for host in [
        format!("rebound.example:{port}"),
        "rebound.example".to_owned(),
        format!("127.evil.com:{port}"),
        format!("127.0.0.1.evil.com:{port}"),
        format!("[::ffff:127.0.0.1]:{port}"),
        format!("[::1]:{port}"),
        format!("127.0.0.2:{port}"),
        format!("0.0.0.0:{port}"),
        format!("2130706433:{port}"),
        format!("127.1:{port}"),
        "127.0.0.1".to_owned(),
        format!("127.0.0.1:{}", port + 1),
        format!("<img src=x>:{port}"),
    ] {
        let answer = named(&format!("Host: {host}\r\n")).await;
        refused(&answer, &host);
        assert!(!answer.body.contains("<img"), "what was named is text: {}", answer.body);
    }
    let foreign = async |path: &str| {
        exchange(hand.address, &format!("GET {path} HTTP/1.1\r\nHost: rebound.example:{port}\r\n\r\n")).await
    };
    assert_eq!(foreign("/style.css").await.status, 200, "what tells of the mistake has its style");
    for path in
        ["/script.js", "/icons.svg", "/mark.svg", "/sign-in", "/live", "/style.css/", "/STYLE.css", "//style.css"]
    {
        refused(&foreign(path).await, path);
    }
    let changing = format!("POST /style.css HTTP/1.1\r\nHost: rebound.example:{port}\r\nContent-Length: 0\r\n\r\n");
    refused(&exchange(hand.address, &changing).await, "no question for the style sheet");
    refused(&named("").await, "no host");
    refused(&named(&format!("Host: {0}\r\nHost: {0}\r\n", hand.address)).await, "two hosts");
    let old = format!("GET {mount}/access HTTP/1.0\r\nCookie: {cookie}\r\n\r\n");
    refused(&exchange(hand.address, &old).await, "an old browser's request without a host");
    let address = hand.address;
    let proxied = format!("GET http://evil.com{mount}/access HTTP/1.1\r\nHost: {address}\r\nCookie: {cookie}\r\n\r\n");
    refused(&exchange(hand.address, &proxied).await, "another target");
    let localhost = named(&format!("Host: localhost:{port}\r\n")).await;
    let there = format!("http://{address}{mount}/access");
    assert_eq!((localhost.status, localhost.header("location")), (308, there.as_str()), "the one other origin is left");
}

async fn only_its_own_pages_change_something_and_only_with_the_session_s_token(device: &TestDevice, hand: &RawSession) {
    device.cli(&["access", "enable"]).await.ok();
    let own = format!("Origin: http://{}\r\n", hand.address);
    let neighbour = format!("Origin: http://127.0.0.1:{}\r\n", hand.address.port() + 1);
    let pause = format!("token={}&enabled=no", hand.token);
    for headers in [
        String::new(),
        "Origin: null\r\n".to_owned(),
        "Sec-Fetch-Site: cross-site\r\nOrigin: null\r\n".to_owned(),
        "Sec-Fetch-Site: none\r\n".to_owned(),
        format!("Sec-Fetch-Site: same-site\r\n{own}"),
        format!("Sec-Fetch-Site: cross-site\r\n{own}"),
        format!("Sec-Fetch-Site: same-site\r\n{neighbour}"),
        format!("Sec-Fetch-Site: same-origin\r\n{neighbour}"),
        neighbour.clone(),
        format!("Origin: http://localhost:{}\r\n", hand.address.port()),
        format!("Origin: https://{}\r\n", hand.address),
        "Origin: http://evil.com\r\n".to_owned(),
        format!("{own}{neighbour}"),
        "Sec-Fetch-Site: same-origin\r\nSec-Fetch-Site: cross-site\r\n".to_owned(),
    ] {
        refused(&hand.post("/access", &headers, &pause).await, &headers);
    }
    for form in ["enabled=no".to_owned(), "token=&enabled=no".to_owned(), format!("token={}A&enabled=no", hand.token)] {
        refused(&hand.post("/access", &hand.own(), &form).await, &form);
    }
    for kind in ["text/plain", "application/json", "multipart/form-data; boundary=x"] {
        let RawSession { address, mount, cookie, .. } = hand;
        let length = pause.len();
        let request = format!(
            "POST {mount}/access HTTP/1.1\r\nHost: {address}\r\nCookie: {cookie}\r\nContent-Type: {kind}\r\n\
             Content-Length: {length}\r\n{}\r\n{pause}",
            hand.own()
        );
        refused(&hand.exchange(&request).await, kind);
    }
    let by_address = hand.get(&format!("/access?{pause}")).await;
    assert_eq!(by_address.status, 200, "it asks, and does nothing");
    assert!(enabled(device).await, "nothing of this changed anything");
    assert_eq!(hand.post("/access", &hand.own(), &pause).await.status, 303);
    assert!(!enabled(device).await, "and this, from its own page, does");
}

/// The target addresses of a page's forms.
fn actions(page: &str) -> impl Iterator<Item = &str> {
    let forms = page.split("<form method=\"post\" action=\"").skip(1);
    forms.filter_map(|rest| rest.split('"').next())
}

async fn no_form_of_any_page_is_taken_from_elsewhere_or_without_the_token(device: &TestDevice, hand: &RawSession) {
    device.cli(&["app", "create", "Shop"]).await.ok();
    let look = async || (device.cli(&["app", "list"]).await.ok(), device.cli(&["provider", "list"]).await.ok());
    let before = look().await;
    let pages = hand.every_page().await;
    let all: BTreeSet<_> = pages.values().flat_map(|answer| actions(&answer.body)).map(str::to_owned).collect();
    assert!(all.len() > 12, "{all:?}");
    let token = format!("token={}&name=Shop", hand.token);
    for action in &all {
        let neighbour =
            format!("Sec-Fetch-Site: same-site\r\nOrigin: http://127.0.0.1:{}\r\n", hand.address.port() + 1);
        for headers in ["", "Origin: null\r\n", "Sec-Fetch-Site: cross-site\r\nOrigin: null\r\n", &neighbour] {
            assert_eq!(hand.post(action, headers, &token).await.status, 403, "{action} {headers}");
        }
        assert_eq!(hand.post(action, &hand.own(), "name=Shop").await.status, 403, "{action} without the token");
        let stranger = RawSession::stranger(hand.address, &hand.mount);
        assert_eq!(stranger.post(action, &hand.own(), &token).await.status, 401, "{action} without a session");
    }
    assert_eq!(look().await, before, "nothing was changed");
    assert_eq!(hand.get("/access").await.status, 200, "the session goes on");
}

async fn a_link_leads_nowhere_but_to_its_own_pages(device: &TestDevice, hand: &RawSession) {
    for (to, leads) in [
        ("/runs", "/runs"),
        ("/approvals%23apr_0", "/approvals#apr_0"),
        ("//evil.example/", "/"),
        ("/%5Cevil.example", "/"),
        ("https://evil.example/", "/"),
        ("/%0d%0aSet-Cookie:%20a=b", "/"),
        ("%22%3E%3Cscript%3E", "/"),
    ] {
        let link = device.page_link().await;
        let code = link.split_once("code=").expect("the link has a code").1;
        let browser = RawSession::stranger(hand.address, "");
        let shown = browser.get(&format!("/sign-in?code={code}&to={to}")).await;
        assert!(!shown.body.contains("<script>"), "{}", shown.body);
        let entered = browser.post("/sign-in", &hand.own(), &format!("code={code}&to={to}")).await;
        let there = format!("{}{leads}", hand.mount);
        assert_eq!((entered.status, entered.header("location")), (303, there.as_str()), "{to}");
    }
}

async fn the_session_of_a_second_agent_is_none_here(own: &RawSession, theirs: &RawSession) {
    let (name, _) = own.cookie.split_once('=').expect("a name");
    let (_, value) = theirs.cookie.split_once('=').expect("a value");
    for cookie in [theirs.cookie.clone(), format!("{name}={value}"), format!("{name}="), String::new()] {
        let stranger = RawSession { cookie: cookie.clone(), token: theirs.token.clone(), ..own.clone() };
        for path in ["/", "/access", "/live", "/runs"] {
            let answer = stranger.get(path).await;
            refused(&answer, &cookie);
            assert!(!answer.body.contains("<nav"), "{cookie}: {}", answer.body);
        }
        let form = format!("token={}&enabled=no", theirs.token);
        refused(&stranger.post("/access", &stranger.own(), &form).await, &cookie);
    }
    let both = format!("{}; {}", theirs.cookie, own.cookie);
    let both = RawSession { cookie: both, ..own.clone() };
    assert_eq!(both.get("/access").await.status, 200, "its own is found beside the other");
}

async fn every_answer_says_what_a_browser_may_do_with_it_and_none_opens_it_to_other_origins(hand: &RawSession) {
    let stranger = RawSession::stranger(hand.address, &hand.mount);
    let outside = RawSession { mount: String::new(), ..hand.clone() };
    let mut answers: Vec<_> = hand.every_page().await.into_iter().collect();
    for path in
        ["/style.css", "/script.js", "/icons.svg", "/mark.svg", "/sign-in", "/live", "/nowhere", "/runs/run_x", "/%00"]
    {
        answers.push((path.to_owned(), hand.get(path).await));
        answers.push((format!("{path} for a stranger"), stranger.get(path).await));
        answers.push((format!("{path} outside"), outside.get(path).await));
    }
    for path in ["/access", "/sign-in", "/runs", "/style.css", "/nowhere"] {
        answers.push((format!("POST {path}"), hand.post(path, &hand.own(), "").await));
        answers.push((format!("POST {path} outside"), outside.post(path, &hand.own(), "").await));
        answers.push((format!("POST {path} from elsewhere"), hand.post(path, "Origin: http://evil.com\r\n", "").await));
    }
    let RawSession { address, mount, cookie, .. } = hand;
    let origin = "Origin: http://evil.com\r\nAccess-Control-Request-Method: POST\r\n";
    let asked_first = format!("OPTIONS {mount}/access HTTP/1.1\r\nHost: {address}\r\nCookie: {cookie}\r\n{origin}\r\n");
    answers.push(("OPTIONS".to_owned(), hand.exchange(&asked_first).await));
    let policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; \
                  form-action 'self'; base-uri 'none'; frame-ancestors 'none'";
    for (path, answer) in &answers {
        for (name, value) in [
            ("content-security-policy", policy),
            ("x-content-type-options", "nosniff"),
            ("x-frame-options", "DENY"),
            ("referrer-policy", "no-referrer"),
            ("cross-origin-opener-policy", "same-origin"),
            ("cross-origin-resource-policy", "same-origin"),
        ] {
            assert_eq!(answer.header(name), value, "{name} of {path}: {answer:?}");
        }
        // The live stream has its own text for the same refusal.
        assert!(["no-store", "no-cache"].contains(&answer.header("cache-control")), "{path}: {answer:?}");
        let open = answer.headers.iter().find(|(name, _)| name.starts_with("access-control-"));
        assert_eq!(open, None, "{path}");
    }
    assert!(answers.len() > 25, "{}", answers.len());
}

async fn no_page_shows_a_secret(device: &TestDevice, hand: &RawSession) {
    let created = device.cli(&["app", "create", "Billing"]).await.ok();
    let provider_key = "sk-canary-of-the-pages-0123456789";
    let file = device.folder().join("provider-key");
    std::fs::write(&file, provider_key).expect("writable");
    let file = file.to_str().expect("a plain name");
    let base = ["--profile", "anthropic", "--base-url", "http://127.0.0.1:9", "--key-file", file];
    device.cli(&[&["provider", "set", "work"], &base[..]].concat()).await.ok();
    let mut secrets = vec![
        provider_key.to_owned(),
        crate::text(&created, "/key/text").to_owned(),
        hand.cookie.split_once('=').expect("a value").1.to_owned(),
        // Outside of its addresses, which are taken off here, no page has the path either.
        hand.mount.trim_matches('/').to_owned(),
    ];
    let identity = std::fs::read_to_string(device.home().join("identity_ed25519")).expect("the agent's own key");
    secrets.extend(identity.lines().filter(|line| line.len() > 30 && !line.starts_with('-')).map(str::to_owned));
    assert!(secrets.len() > 3, "the agent's own key is among them");
    let pages = hand.every_page().await;
    for (path, answer) in &pages {
        assert!(answer.status < 500, "{path}: {answer:?}");
        for secret in &secrets {
            assert!(!answer.body.contains(secret), "{path} shows {secret}");
        }
    }
    assert!(pages.len() > 10 && pages.keys().any(|path| path.ends_with("/revoke")), "{:?}", pages.keys());
}
