//! `doctor` reports what an administrator cannot see on the server: the public address as seen from outside.

use std::net::SocketAddr;

use deskgate_tests::{GatewayProcess, Postgres};
use serde_json::Value;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use crate::text;
use crate::tls::certificate;

/// A proxy that buffers a whole answer before it forwards anything.
async fn buffering(target: SocketAddr) -> (SocketAddr, JoinSet<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("bound");
    let mut serving = JoinSet::new();
    serving.spawn(async move {
        let mut passing = JoinSet::new();
        while let Ok((mut caller, _)) = listener.accept().await {
            passing.spawn(async move {
                let mut upstream = TcpStream::connect(target).await.expect("it listens");
                let mut piece = [0; 4096];
                let length = caller.read(&mut piece).await.unwrap_or(0);
                let _ = upstream.write_all(&piece[..length]).await;
                let mut answer = Vec::new();
                let _ = upstream.read_to_end(&mut answer).await;
                let _ = caller.write_all(&answer).await;
            });
        }
    });
    (address, serving)
}

fn finding<'a>(said: &'a Value, name: &str) -> &'a Value {
    let all = said["findings"].as_array().expect("a list");
    all.iter().find(|finding| finding["name"] == name).unwrap_or_else(|| panic!("no {name} in {said}"))
}

#[tokio::test]
async fn a_proxy_that_buffers_is_told_from_one_that_passes_events_on() {
    let postgres = Postgres::shared().await;
    let gateway = GatewayProcess::start(&postgres, &[]).await;
    let good = gateway.command_line(&["doctor"]).await;
    assert_eq!(good.exit, 0, "{}{}", good.stdout, good.stderr);
    for (name, verdict) in [("gateway", "PASS"), ("devices", "PASS"), ("public API", "PASS"), ("event streams", "PASS")]
    {
        assert_eq!(text(finding(&good.value, name), "/verdict"), verdict, "{}", good.stdout);
    }
    let (proxy, _serving) = buffering(gateway.http().get()).await;
    let said = gateway.command_line(&["doctor", "--url", &format!("http://{proxy}")]).await;
    assert_eq!(said.exit, 10, "{}", said.stdout);
    let streams = finding(&said.value, "event streams");
    assert_eq!(text(streams, "/verdict"), "FAIL", "{streams}");
    assert!(text(streams, "/detail").contains("a proxy buffers"), "{streams}");
    assert_eq!(text(finding(&said.value, "public API"), "/verdict"), "PASS");
    // Only a request with a ticket gets a stream.
    let url = format!("http://{}/trial-stream/anything", gateway.http().get());
    let status = deskgate_tests::backend::client().build().expect("a client").get(url).send().await.expect("answered");
    assert_eq!(status.status().as_u16(), 404);
}

#[tokio::test]
async fn the_certificate_is_judged_by_name_and_time_and_plain_http_must_lead_nowhere() {
    let folder = TempDir::with_prefix("deskgate-tls-").expect("a temporary folder");
    certificate(folder.path());
    let file = |name: &str| folder.path().join(name).display().to_string();
    let trusted = vec![("SSL_CERT_FILE".to_owned(), file("cert.pem"))];
    let settings = [
        format!("server.tls.cert_file={}", file("cert.pem")),
        format!("server.tls.key_file={}", file("key.pem")),
        "server.listen=0.0.0.0:0".to_owned(),
    ];
    let settings: Vec<_> = settings.iter().map(String::as_str).collect();
    let postgres = Postgres::shared().await;
    let gateway = GatewayProcess::start_in(&postgres, &settings, &trusted).await;
    let port = gateway.http().get().port();
    let at = |host: &str| format!("https://{host}:{port}");
    let good = gateway.command_line(&["doctor", "--url", &at("localhost")]).await;
    assert_eq!(good.exit, 0, "{}{}", good.stdout, good.stderr);
    let tls = finding(&good.value, "public TLS");
    assert!(text(tls, "/verdict") == "PASS" && text(tls, "/detail").contains("good for"), "{tls}");
    assert_eq!(text(finding(&good.value, "plain HTTP"), "/verdict"), "PASS");
    assert_eq!(text(finding(&good.value, "event streams"), "/verdict"), "PASS", "over TLS too");

    let misnamed = gateway.command_line(&["doctor", "--url", &at("127.0.0.1")]).await;
    let address = finding(&misnamed.value, "public address");
    assert!(misnamed.exit == 10 && text(address, "/detail").contains("not valid for name"), "{address}");
    // A plain HTTP server on another port is not a gateway, and neither is the ops listener.
    let elsewhere = gateway.command_line(&["doctor", "--url", &format!("http://{}", gateway.ops().get())]).await;
    let api = finding(&elsewhere.value, "public API");
    assert!(elsewhere.exit == 10 && text(api, "/detail").contains("no Deskgate gateway"), "{api}");
}

#[tokio::test]
async fn without_a_running_gateway_the_doctor_says_so_and_looks_at_the_rest() {
    let postgres = Postgres::shared().await;
    let mut gateway = GatewayProcess::start(&postgres, &[]).await;
    gateway.stop(rustix::process::Signal::TERM).await;
    let said = gateway.command_line(&["doctor"]).await;
    assert_eq!(said.exit, 10, "{}", said.stdout);
    let down = finding(&said.value, "gateway");
    assert!(text(down, "/verdict") == "FAIL" && text(down, "/detail").contains("systemctl start"), "{down}");
    for name in ["configuration", "control token", "sealing key", "database", "PostgreSQL", "clock"] {
        assert_eq!(text(finding(&said.value, name), "/verdict"), "PASS", "{}", said.stdout);
    }
}
