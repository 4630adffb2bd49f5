//! What a call of Fetch comes to, with servers that do what servers on the Internet do.

mod server;

use std::io::Write as _;
use std::time::{Duration, Instant};

use deskgate_definition::tool::RESULT_LIMIT;
use flate2::Compression;
use flate2::write::GzEncoder;

use super::*;
use server::{HOST, PageServer, Reply, http, redirect};

const HTML: &str = "content-type: text/html; charset=utf-8\r\n";
const TEXT: &str = "content-type: text/plain; charset=utf-8\r\n";
/// Names that lead elsewhere than a name on the Internet should.
const INWARD_NAMES: &[(&str, &[&str])] = &[
    ("inside.example.com", &["127.0.0.1"]),
    ("both.example.com", &["93.184.216.34", "127.0.0.1"]),
    ("mapped.example.com", &["::ffff:10.0.0.1"]),
    ("translated.example.com", &["64:ff9b::a00:1"]),
    ("nowhere.example.com", &[]),
];

async fn call(web: &Arc<Web>, arguments: Value) -> ToolOutput {
    let tool = FetchTool { web: Arc::clone(web) };
    tool.run(arguments, CancellationToken::new()).await.expect("it never ends a run")
}

async fn fetched(server: &PageServer, target: &str) -> ToolOutput {
    call(&server.web, json!({ "url": format!("https://{HOST}{target}") })).await
}

/// What comes of one answer.
async fn read(answer: impl Fn(&str) -> Reply + Send + Sync + 'static) -> ToolOutput {
    fetched(&PageServer::start(&[], answer).await, "/").await
}

fn packed(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes).expect("packed");
    encoder.finish().expect("packed")
}

#[track_caller]
fn assert_error(output: &ToolOutput, part: &str) {
    assert!(output.is_error && output.text.contains(part), "{part}: {}", output.text);
}

#[tokio::test]
async fn a_page_is_shown_with_its_url_status_and_type_and_without_markup() {
    let server = PageServer::start(&[], |_| http("200 OK", HTML, "<title>T</title><p>Hello <b>you</b>")).await;
    let output = fetched(&server, "/a?b=1#part").await;
    let expected = "https://docs.example.com/a?b=1 (status 200, text/html)\n\nTitle: T\n\nHello you";
    assert_eq!(output, ToolOutput::ok(expected));
    assert_eq!(server.targets(), ["/a?b=1"], "the part behind # is not sent");
    let json = read(|_| http("200 OK", "content-type: application/json\r\n", "{\"a\": \"<p>\"}")).await;
    assert_eq!(json.text, "https://docs.example.com/ (status 200, application/json)\n\n{\"a\": \"<p>\"}");
    let untyped = read(|_| http("200 OK", "", "<!doctype html><p>Hello")).await;
    assert_eq!(untyped.text, "https://docs.example.com/ (status 200, of an unknown type)\n\nHello");
    let latin = read(|_| http("200 OK", "content-type: text/html; charset=nonsense\r\n", b"<p>caf\xe9")).await;
    assert!(latin.text.ends_with("\n\ncafé"), "{}", latin.text);
}

#[tokio::test]
async fn a_url_that_leads_to_no_public_host_is_refused_before_anything_is_sent() {
    let server = PageServer::start(INWARD_NAMES, |_| http("200 OK", TEXT, "no")).await;
    for (url, part) in [
        ("http://docs.example.com/", "only HTTPS"),
        ("ftp://docs.example.com/", "only HTTPS"),
        ("file:///etc/passwd", "only HTTPS"),
        ("docs.example.com", "no URL"),
        ("https://user@docs.example.com/", "no user"),
        ("https://user:word@docs.example.com/", "no user"),
        ("https://docs.example.com@127.0.0.1/", "no user"),
        ("https://docs.example.com:8443/", "port 443"),
        ("https://docs.example.com./", "dot at the end"),
        ("https://docs.example.com\\@127.0.0.1/", "backslashes"),
        ("https://127.0.0.1/", "address"),
        ("https://2130706433/", "address"),
        ("https://0x7f.1/", "address"),
        ("https://[::1]/", "address"),
        ("https://[::ffff:127.0.0.1]/", "address"),
        ("https://8.8.8.8/", "address"),
        ("https://localhost/", "machine or network"),
        ("https://printer.local/", "machine or network"),
        ("https://metadata.google.internal/", "machine or network"),
        ("https://inside.example.com/", "not public"),
        ("https://both.example.com/", "not public"),
        ("https://mapped.example.com/", "not public"),
        ("https://translated.example.com/", "not public"),
        ("https://nowhere.example.com/", "no address"),
    ] {
        assert_error(&call(&server.web, json!({ "url": url })).await, part);
    }
    for arguments in [json!({}), json!({ "url": 1 }), json!({ "url": "https://a.example", "x": 1 }), json!([])] {
        assert!(call(&server.web, arguments).await.is_error);
    }
    assert!(server.targets().is_empty());
}

#[tokio::test]
async fn a_plan_names_the_host_as_rules_do_and_shows_the_whole_url() {
    let tool = FetchTool { web: PageServer::start(&[], |_| redirect("/")).await.web.clone() };
    let plan = tool.plan(&json!({ "url": "https://BÜCHER.example:443/Ü?q=a b".replace(' ', "%20"), "offset": 7 }));
    let shown = PlanPreview::Page { url: "https://xn--bcher-kva.example/%C3%9C?q=a%20b".to_owned() };
    assert_eq!(plan.await, Ok(Plan { place: Some("xn--bcher-kva.example".to_owned()), shown }));
    let refused = tool.plan(&json!({ "url": "https://127.0.0.1/" })).await.expect_err("an address");
    assert_eq!(refused, tool.run(json!({ "url": "https://127.0.0.1/" }), CancellationToken::new()).await.expect("ok"));
    assert_eq!(tool.kind(), ToolKind::Read);
}

#[tokio::test]
async fn redirects_are_followed_on_the_host_alone_and_five_times_at_most() {
    let server = PageServer::start(INWARD_NAMES, |target| match target {
        "/1" => redirect("2?next=https://other.example/"),
        "/2?next=https://other.example/" => redirect("//docs.example.com/3#part"),
        "/3" => redirect("https://docs.example.com/4"),
        "/4" => http("200 OK", TEXT, "there"),
        "/loop" => redirect("/loop"),
        "/other" => redirect("https://other.example/page?x=1"),
        "/inside" => redirect("https://inside.example.com/"),
        "/address" => redirect("https://127.0.0.1/"),
        "/metadata" => redirect("https://169.254.169.254/latest/"),
        "/plain" => redirect("http://docs.example.com/4"),
        "/user" => redirect("//a:b@docs.example.com/4"),
        "/port" => redirect("https://docs.example.com:8443/4"),
        "/file" => redirect("file:///etc/passwd"),
        _ => http("302 Found", TEXT, "nowhere"),
    })
    .await;
    let there = fetched(&server, "/1").await;
    assert_eq!(there.text, "https://docs.example.com/4 (status 200, text/plain)\n\nthere");
    let before = server.targets().len();
    assert_error(&fetched(&server, "/loop").await, "more than 5 times");
    assert_eq!(server.targets().len() - before, 6);
    let other = fetched(&server, "/other").await;
    assert!(!other.is_error && other.text.contains("redirects to https://other.example/page?x=1."), "{}", other.text);
    assert!(!fetched(&server, "/inside").await.is_error, "it is named, and refused when it is asked for");
    for (target, part) in [
        ("/address", "https://127.0.0.1/, which Fetch does not open: this is an address"),
        ("/metadata", "this is an address"),
        ("/plain", "only HTTPS"),
        ("/user", "no user"),
        ("/port", "port 443"),
        ("/file", "only HTTPS"),
    ] {
        assert_error(&fetched(&server, target).await, part);
    }
    assert!(fetched(&server, "/302").await.text.contains("status 302"), "one without a target is a page");
}

#[tokio::test]
async fn what_is_no_text_is_refused_by_its_type_and_size() {
    let image = read(|_| http("200 OK", "content-type: image/png\r\n", [0; 20])).await;
    assert_error(&image, "this is image/png (20 bytes) and no text");
    let endless = read(|_| {
        let head = b"HTTP/1.1 200 OK\r\ncontent-type: application/pdf\r\n\r\n".to_vec();
        Reply::Endless(head, vec![b'x'; 1024], Duration::ZERO)
    });
    assert_error(&endless.await, "this is application/pdf (size unknown)");
    assert_error(&read(|_| http("200 OK", TEXT, b"\x7fELF\0\0\0")).await, "binary data (7 bytes)");
    let other = read(|_| http("200 OK", &format!("{TEXT}content-encoding: br\r\n"), "x")).await;
    assert_error(&other, "the encoding br");
}

#[tokio::test]
async fn a_status_from_400_on_is_an_error_with_the_beginning_of_its_text() {
    let missing = read(|_| http("404 Not Found", HTML, format!("<h1>Not here</h1>{}", "x".repeat(50_000)))).await;
    assert_error(&missing, "https://docs.example.com/ (status 404, text/html)\n\n# Not here\n\nxxx");
    assert!(missing.text.len() < 5000);
    assert_error(&read(|_| http("503 Busy", "", "")).await, "(status 503, of an unknown type)");
    assert_error(&read(|_| Reply::Bytes(b"SSH-2.0-OpenSSH_9.2\r\n".to_vec())).await, "the request failed");
    assert_error(&read(|_| Reply::Bytes(Vec::new())).await, "the request failed");
    let broken = read(|_| Reply::Bytes(format!("HTTP/1.1 200 OK\r\n{TEXT}content-length: 9\r\n\r\nhalf").into_bytes()));
    assert_error(&broken.await, "broke off");
}

#[tokio::test]
async fn a_long_page_is_cut_and_read_on_with_an_offset() {
    let long = |_: &str| http("200 OK", TEXT, "0123456789".repeat(20_000));
    let server = PageServer::start(&[], long).await;
    let first = fetched(&server, "/").await;
    assert!(first.text.len() <= RESULT_LIMIT);
    let (_, notice) = first.text.rsplit_once("\n\n(characters 0 to ").expect("a notice");
    let next: usize = notice.split(' ').next().and_then(|text| text.parse().ok()).expect("a number");
    assert!(notice.contains(&format!("of 200000 are shown: go on with offset {next})")), "{notice}");
    let second = call(&server.web, json!({ "url": format!("https://{HOST}/"), "offset": next })).await;
    let begin = ["0123456789".repeat(2).as_str()].concat()[next % 10..next % 10 + 5].to_owned();
    assert!(second.text.contains(&format!("text/plain)\n\n{begin}")), "{}", &second.text[..100]);
}

#[tokio::test]
async fn a_compressed_page_is_unpacked_and_a_bomb_is_not() {
    let gzip = |headers: &str| format!("{headers}content-encoding: gzip\r\n");
    let page = read(move |_| http("200 OK", &gzip(HTML), packed(b"<p>Hello"))).await;
    assert!(page.text.ends_with("\n\nHello"), "{}", page.text);
    let bomb = packed(&vec![b'x'; 64 * 1024 * 1024]);
    assert!(bomb.len() < 1024 * 1024);
    let began = Instant::now();
    let output = read(move |_| http("200 OK", &gzip(TEXT), &bomb)).await;
    assert!(output.text.contains("of 5242880 are shown") && output.text.contains("only its beginning was read"));
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
    let twice = packed(&packed(&vec![b'x'; 1024 * 1024]));
    let output = read(move |_| http("200 OK", &gzip(TEXT), &twice)).await;
    assert!(output.text.len() < 10_000 || output.is_error, "it is unpacked once");
    let mut half = packed(&(0..10_000u32).flat_map(u32::to_le_bytes).map(|byte| byte | 0x20).collect::<Vec<_>>());
    half.truncate(half.len() / 2);
    assert_error(&read(move |_| http("200 OK", &gzip(TEXT), &half)).await, "cannot be unpacked");
    assert_error(&read(move |_| http("200 OK", &gzip(TEXT), "plain")).await, "cannot be unpacked");
}

#[tokio::test]
async fn an_endless_page_ends_at_its_limit_and_a_slow_one_in_its_time() {
    let head = |headers: &str| format!("HTTP/1.1 200 OK\r\n{headers}\r\n").into_bytes();
    let endless = read(move |_| Reply::Endless(head(TEXT), vec![b'x'; 1 << 20], Duration::ZERO)).await;
    assert!(endless.text.ends_with("(the page is too large: only its beginning was read)"));
    assert!(endless.text.contains("of 5242880 are shown"));
    let began = Instant::now();
    let slow = [(head(TEXT), "y"), (Vec::new(), ""), (b"HTTP/1.1 200 OK\r\nx: ".to_vec(), "y")]
        .map(|(first, piece)| read(move |_| Reply::Endless(first.clone(), piece.into(), Duration::from_millis(50))));
    for output in futures_util::future::join_all(slow).await {
        assert_error(&output, "did not send the page within 4 s");
    }
    assert!(began.elapsed() < Duration::from_secs(12), "{:?}", began.elapsed());
}

#[tokio::test]
async fn a_stop_ends_a_request_at_once() {
    let server = PageServer::start(&[], |_| {
        let head = format!("HTTP/1.1 200 OK\r\n{TEXT}\r\n").into_bytes();
        Reply::Endless(head, b"y".to_vec(), Duration::from_millis(20))
    })
    .await;
    let stop = CancellationToken::new();
    let tool = FetchTool { web: Arc::clone(&server.web) };
    let running = tokio::spawn(tool.run(json!({ "url": format!("https://{HOST}/") }), stop.clone()));
    while server.targets().is_empty() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let began = Instant::now();
    stop.cancel();
    assert_error(&running.await.expect("no panic").expect("no failure"), "stopped");
    assert!(began.elapsed() < Duration::from_secs(1), "{:?}", began.elapsed());
}
