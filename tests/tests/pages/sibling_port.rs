//! Another program on another port of 127.0.0.1, to which the signed-in browser is led: for cookies it is the same site,
//! and a cookie knows no port.

use std::sync::{Arc, Mutex};

use axum::Router;
use axum::extract::Request;
use axum::http::HeaderMap;
use axum::response::Html;
use deskgate_tests::browser::BrowserPage;
use deskgate_tests::{Browser, TestDevice, until};
use serde_json::json;

use crate::raw_http::RawSession;

/// Paths that everybody can guess.
const PATHS: [&str; 12] = [
    "/",
    "/runs",
    "/access",
    "/approvals",
    "/live",
    "/sign-in",
    "/sign-out",
    "/style.css",
    "/script.js",
    "/nowhere/",
    "/AAAAAAAAAAAAAAAAAAAAAA/",
    "//",
];

/// What the other program received.
#[derive(Clone, Default)]
struct Listener(Arc<Mutex<Vec<(String, HeaderMap)>>>);

impl Listener {
    /// Listens on a port of its own, and returns its origin too.
    async fn start() -> (Self, String) {
        let own = Self::default();
        let socket = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = socket.local_addr().expect("it listens");
        let received = own.clone();
        let router = Router::new().fallback(async move |request: Request| {
            let entry = (request.uri().to_string(), request.headers().clone());
            received.0.lock().expect("no panic").push(entry);
            Html("<!doctype html><link rel=icon href=data:,><title>Elsewhere</title><h1>Elsewhere</h1>")
        });
        tokio::spawn(async move { axum::serve(socket, router).await });
        (own, format!("http://{address}"))
    }

    /// What came in since it was asked last.
    fn take(&self) -> Vec<(String, HeaderMap)> {
        std::mem::take(&mut *self.0.lock().expect("no panic"))
    }

    /// Waits for requests for all these paths, none of which may have anything of the session.
    async fn got_nothing_with(&self, paths: &[&str], mount: &str) {
        let mut all = Vec::new();
        until("the requests", async || {
            all.extend(self.take());
            let missing: Vec<_> = paths.iter().filter(|path| !all.iter().any(|(seen, _)| seen == *path)).collect();
            if missing.is_empty() { Ok(()) } else { Err(format!("{missing:?} of {all:?}")) }
        })
        .await;
        let secret = mount.rsplit('/').next().expect("a path");
        for (path, headers) in all {
            assert!(!headers.contains_key("cookie"), "{path}: {headers:?}");
            assert!(!path.contains(secret) && !format!("{headers:?}").contains(secret), "{path}: {headers:?}");
        }
    }
}

#[tokio::test]
async fn another_port_of_this_computer_never_receives_the_session() {
    let Some(browser) = Browser::start().await else { return };
    let device = TestDevice::built_in().await;
    let page = browser.signed_in(&device).await;
    let (mount, origin) = (page.mount().await, page.origin().await);
    let (listener, elsewhere) = Listener::start().await;

    leads_there_from_the_pages(&page, &listener, &elsewhere, &mount).await;
    let other = page.tab().await;
    for path in PATHS {
        other.goto(&format!("{elsewhere}{path}")).await;
    }
    listener.got_nothing_with(&PATHS, &mount).await;
    asks_from_a_page_of_its_own(&other, &listener, &elsewhere, &mount).await;

    // The same addresses of the pages themselves get no cookie either, so they show nothing.
    for path in PATHS.iter().filter(|path| !path.ends_with(".css") && !path.ends_with(".js")) {
        other.goto(&format!("{origin}{path}")).await;
        other.wait_for_visible("h1 >> text=Open from your computer").await;
    }
    // The path is what holds: whoever knew it would be sent the cookie, and this test would see it.
    other.goto(&format!("{}/", mount.replace(&origin, &elsewhere))).await;
    let led = listener.take();
    assert!(led.iter().any(|(_, headers)| headers.contains_key("cookie")), "{led:?}");
    page.reload().await;
    page.wait_for_visible(".side [aria-current] >> text=Overview").await;
}

/// A link that somebody followed from a page of ours.
async fn leads_there_from_the_pages(page: &BrowserPage, listener: &Listener, elsewhere: &str, mount: &str) {
    page.goto("/runs").await;
    page.evaluate(&format!("(() => {{ location.href = {elsewhere:?} + '/led'; }})()")).await;
    page.wait_for_visible("h1 >> text=Elsewhere").await;
    listener.got_nothing_with(&["/led"], mount).await;
    page.goto(&format!("{mount}/")).await;
}

/// Everything that a page can ask for: its own host is where the cookie would be sent.
async fn asks_from_a_page_of_its_own(other: &BrowserPage, listener: &Listener, elsewhere: &str, mount: &str) {
    other.goto(&format!("{elsewhere}/start")).await;
    let asks = format!(
        "(async () => {{
            for (const path of {}) {{
                await fetch(path + '?fetched', {{ credentials: 'include' }});
                const image = new Image();
                image.src = path + '?pictured';
                const frame = document.createElement('iframe');
                frame.src = path + '?framed';
                document.body.append(frame);
                const form = document.createElement('form');
                frame.name = 'into-' + path;
                [form.method, form.action, form.target] = ['post', path + '?posted', frame.name];
                document.body.append(form);
                form.submit();
            }}
            return true;
        }})()",
        json!(&PATHS[..10])
    );
    assert_eq!(other.evaluate(&asks).await, json!(true));
    let kinds = ["fetched", "pictured", "posted"];
    let asked: Vec<_> = PATHS[..10].iter().flat_map(|path| kinds.map(|kind| format!("{path}?{kind}"))).collect();
    let asked: Vec<_> = asked.iter().map(String::as_str).collect();
    listener.got_nothing_with(&asked, mount).await;
}

#[tokio::test]
async fn who_replays_what_another_port_could_see_gets_in_nowhere() {
    let device = TestDevice::built_in().await;
    let hand = RawSession::signed_in(&device).await;
    let outside = RawSession { mount: String::new(), ..hand.clone() };
    let guessing = RawSession { mount: "/AAAAAAAAAAAAAAAAAAAAAA".to_owned(), ..hand.clone() };
    let stranger = RawSession::stranger(hand.address, "");
    let expected = stranger.get("/").await;
    assert_eq!(expected.status, 401, "{expected:?}");
    for path in PATHS.iter().filter(|path| !["/sign-in", "/style.css", "/script.js"].contains(path)) {
        for who in [&outside, &guessing, &stranger] {
            let answer = who.get(path).await;
            assert_eq!((answer.status, &answer.body), (401, &expected.body), "{path} below {:?}", who.mount);
        }
    }
    let pause = format!("token={}&enabled=no", hand.token);
    for who in [&outside, &guessing, &stranger] {
        assert_eq!(who.post("/access", &hand.own(), &pause).await.status, 401, "{:?}", who.mount);
    }
    assert_eq!(hand.get("/access").await.status, 200, "the session itself goes on");
}
