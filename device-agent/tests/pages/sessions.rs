//! The path below which the pages lie, and the ends of sessions.

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;

use crate::fixture::PagesFixture;

/// How long an end may take that has to be noticed.
const END_TIMEOUT: Duration = Duration::from_secs(60);
const MINUTE_S: i64 = 60;
const HOUR_S: i64 = 60 * MINUTE_S;
const DAY_S: i64 = 24 * HOUR_S;

#[tokio::test]
async fn a_session_ends_after_twelve_hours_without_its_person() {
    let mut room = PagesFixture::new().await;
    room.set_clock_ahead(11 * HOUR_S);
    assert_eq!(room.get("/help").await.status, 200);
    // An open page that nobody looks at asks again and again.
    for hours in [14, 17, 20, 22] {
        room.set_clock_ahead(hours * HOUR_S);
        assert_eq!(room.refresh("/health").await.status, 200, "{hours}");
    }
    room.set_clock_ahead(23 * HOUR_S + MINUTE_S);
    let ended = room.get("/help").await;
    assert_eq!(ended.status, 401);
    assert!(ended.body.contains("You were signed out") && ended.body.contains("deskgate open"), "{}", ended.body);
    assert_eq!(room.refresh("/live").await.status, 401);
    assert_eq!(room.post("/settings", &[("slots", "3")]).await.status, 401);
    assert_eq!(room.store.settings().slots().await.expect("readable"), None, "nothing was changed");

    let before = room.mount().to_owned();
    room.sign_in().await;
    assert_eq!(room.mount(), before, "bookmarks go on");
    assert_eq!(room.get("/help").await.status, 200);
}

#[tokio::test]
async fn a_session_ends_after_seven_days_however_much_it_is_used() {
    let room = PagesFixture::new().await;
    for hours in (0..7 * 24).step_by(8) {
        room.set_clock_ahead(hours * HOUR_S);
        assert_eq!(room.get("/help").await.status, 200, "{hours}");
    }
    room.set_clock_ahead(7 * DAY_S - MINUTE_S);
    assert_eq!(room.get("/help").await.status, 200);
    room.set_clock_ahead(7 * DAY_S);
    assert!(room.get("/help").await.body.contains("You were signed out"));
    // A clock that is set back afterwards opens nothing again.
    room.set_clock_ahead(0);
    assert_eq!(room.get("/help").await.status, 401);
}

#[tokio::test]
async fn signing_out_ends_what_is_open_and_gives_the_pages_another_path() {
    let mut room = PagesFixture::new().await;
    let mut stream = room.connect().await;
    let request = room.request("GET", "/live", "", "");
    stream.write_all(request.as_bytes()).await.expect("sent");
    let mut begun = [0; 12];
    stream.read_exact(&mut begun).await.expect("answered");
    assert_eq!(&begun, b"HTTP/1.1 200");

    let before = room.mount().to_owned();
    assert_eq!(room.post("/sign-out", &[]).await.status, 303);
    let mut rest = Vec::new();
    timeout(END_TIMEOUT, stream.read_to_end(&mut rest)).await.expect("the stream ends").expect("read");
    assert_eq!(room.get("/help").await.status, 401);
    let (path, cookie) = (room.mount().to_owned(), room.cookie().to_owned());
    room.sign_in().await;
    assert_ne!(room.mount(), before);
    let old = room.raw(&path, "/help", &cookie).await;
    assert_eq!(old.status, 401);
}

#[tokio::test]
async fn who_has_no_session_learns_nothing_about_any_path() {
    let room = PagesFixture::new().await;
    let (mount, cookie) = (room.mount().to_owned(), room.cookie().to_owned());
    let constant = room.raw("", "/", "").await;
    assert_eq!(constant.status, 401);
    assert!(constant.body.contains("deskgate open") && !constant.body.contains(&mount));
    let date_free = |head: &str| head.lines().filter(|line| !line.starts_with("date:")).collect::<Vec<_>>().join("\n");
    for (below, path) in [
        ("", "/help"),
        ("", "/nowhere"),
        ("", "/live"),
        ("", "/%00"),
        ("/AAAAAAAAAAAAAAAAAAAAAA", "/"),
        (mount.as_str(), "/"),
        (mount.as_str(), "/help"),
        (mount.as_str(), "/nowhere"),
        (mount.as_str(), "/style.css"),
        (mount.as_str(), ""),
    ] {
        let answer = room.raw(below, path, "").await;
        assert_eq!(
            (date_free(&answer.head), &answer.body),
            (date_free(&constant.head), &constant.body),
            "{below}{path}"
        );
    }
    let bogus = format!("{}=AAAA", cookie.split_once('=').expect("a name").0);
    let (right, wrong) =
        (room.raw(&mount, "/help", &bogus).await, room.raw("/AAAAAAAAAAAAAAAAAAAAAA", "/help", &bogus).await);
    assert_eq!((date_free(&right.head), &right.body), (date_free(&wrong.head), &wrong.body));
    // The cookie opens nothing outside of the path, and is ended there, as a cookie of an earlier version would be.
    for path in ["/", "/help", "/approvals", "/live"] {
        let answer = room.raw("", path, &cookie).await;
        assert_eq!((answer.status, &answer.body), (401, &constant.body), "{path}");
        let ended = answer.header("set-cookie");
        assert!(ended.ends_with("; HttpOnly; SameSite=Strict; Path=/; Max-Age=0") && ended.contains("=;"), "{ended}");
    }
    assert_eq!(room.raw(&mount, "/help", &cookie).await.header("set-cookie"), "");
}

#[tokio::test]
async fn a_code_without_its_kind_signs_nobody_in() {
    let room = PagesFixture::new().await;
    let code = room.code();
    let bare = code.strip_prefix("dgl_").expect("it says what it is");
    assert_eq!(room.enter(bare).await.status, 403);
    assert_eq!(room.enter(&code).await.status, 303, "and the whole code does");
}
