//! `doctor` reports what an administrator cannot see on the server: the public address as seen from outside.

use std::net::SocketAddr;

use deskgate_tests::{GatewayProcess, Postgres};
use rustix::process::Signal;
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

pub(crate) fn finding<'a>(said: &'a Value, name: &str) -> &'a Value {
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

#[tokio::test]
async fn check_finds_what_would_keep_a_gateway_or_its_callers_from_working_before_it_starts() {
    let postgres = Postgres::shared().await;
    let mut gateway = GatewayProcess::start(&postgres, &[]).await;
    let running = gateway.command_line(&["check"]).await.ok();
    let own = finding(&running, "ops.listen");
    assert!(text(own, "/verdict") == "PASS" && text(own, "/detail").contains("a gateway runs here"), "{own}");
    assert_eq!(text(finding(&running, "disk"), "/verdict"), "PASS");
    gateway.stop(Signal::TERM).await;

    let other = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let taken = other.local_addr().expect("bound").to_string();
    let folder = TempDir::new().expect("a folder");
    certificate(folder.path());
    let [cert, key] = ["cert", "key"]
        .map(|name| format!("server.tls.{name}_file={}", folder.path().join(format!("{name}.pem")).display()));
    for (settings, name, says) in [
        (vec![format!("server.listen={taken}")], "server.listen", "is in use by another program"),
        (vec!["ssh.listen=192.0.2.1:7822".to_owned()], "ssh.listen", "is no address of this computer"),
        (vec![format!("ssh.listen={taken}"), format!("ops.listen={taken}")], "configuration", "has this address too"),
        (vec!["ssh.listen=127.0.0.1".to_owned()], "configuration", "an address and a port"),
        (vec!["log.filter=deskgate=loud".to_owned()], "configuration", "log.filter"),
        (vec!["server.public_url=gateway.example.com".to_owned()], "configuration", "does not begin with https://"),
        (vec!["server.public_url=https://gateway.example.com/api".to_owned()], "configuration", "it has a path"),
        (vec!["server.public_url=http://gateway.example.com".to_owned()], "public URL", "is plain HTTP"),
        (
            vec![cert, key, "server.public_url=https://gateway.example.com".to_owned()],
            "certificate's name",
            "callers refuse it",
        ),
    ] {
        let mut arguments: Vec<_> = settings.iter().flat_map(|setting| ["--set", setting]).collect();
        arguments.push("check");
        let found = gateway.command_line(&arguments).await;
        assert_eq!(found.exit, 10, "{settings:?}: {}", found.stdout);
        let failed = finding(&found.value, name);
        assert_eq!(text(failed, "/verdict"), "FAIL", "{settings:?}: {failed}");
        assert!(text(failed, "/detail").contains(says), "{settings:?}: {failed}");
    }
    let behind = ["server.public_url=http://gateway.example.com", "server.trusted_proxies=10.0.0.0/8"];
    let found = gateway.command_line(&["--set", behind[0], "--set", behind[1], "check"]).await.ok();
    assert_eq!(text(finding(&found, "public URL"), "/verdict"), "WARN");
}
