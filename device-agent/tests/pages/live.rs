//! What changes while a page is on its way to its browser.

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;

use crate::fixture::PagesFixture;
use crate::settings::form;

/// How long the first event of a stream may take.
const HELLO_TIMEOUT: Duration = Duration::from_secs(60);

#[tokio::test]
async fn a_page_is_told_what_changed_before_its_stream_was_there() {
    let room = PagesFixture::new().await;
    let page = room.get("/settings").await.body;
    let (_, rest) = page.split_once("data-live-after=\"").expect("it says what it shows");
    let (after, _) = rest.split_once('"').expect("a value");
    let path = format!("/live?after={after}");
    assert_eq!(hello(&room, &path).await, "here");
    assert_eq!(room.post("/settings", &form(&[])).await.status, 303);
    assert_eq!(hello(&room, &path).await, "late");
    // A page of an agent that has ended.
    assert_eq!(hello(&room, "/live?after=1").await, "late");
    // The answer to a form cannot be had again.
    let answer = room.post("/settings", &form(&[("theme", "pink")])).await.body;
    assert!(answer.contains("data-live-after=\"\""), "{answer}");
    assert_eq!(hello(&room, "/live").await, "here");
    assert_eq!(room.get("/live?after=x").await.status, 400);
}

/// The data of a stream's first event.
async fn hello(room: &PagesFixture, path: &str) -> String {
    let mut stream = room.connect().await;
    stream.write_all(room.request("GET", path, "", "").as_bytes()).await.expect("sent");
    let (mut read, mut chunk) = (String::new(), [0; 4096]);
    let data = async {
        loop {
            let len = stream.read(&mut chunk).await.expect("readable");
            assert_ne!(len, 0, "it ended: {read}");
            read.push_str(std::str::from_utf8(&chunk[..len]).expect("text"));
            if let Some((_, event)) = read.split_once("event: hello\n")
                && event.contains("\n\n")
            {
                let data = event.lines().find_map(|line| line.strip_prefix("data: "));
                return data.expect("it has data").to_owned();
            }
        }
    };
    timeout(HELLO_TIMEOUT, data).await.expect("a first event")
}
