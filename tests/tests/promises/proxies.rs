//! The reverse proxies that `deploy` has snippets for, in Debian's versions, with exactly those snippets.

use std::path::{Path, PathBuf};
use std::process::Command;

use deskgate_tests::process::{Process, command};
use deskgate_tests::{Backend, Folder, GatewayProcess, Postgres, TestDevice, until};
use rustix::process::Signal;
use serde_json::Value;
use tempfile::TempDir;

/// A reverse proxy in front of a gateway, with TLS, for the name `localhost`.
pub(crate) struct ReverseProxy {
    folder: TempDir,
    port: u16,
    _process: Process,
}

/// The text of a file under `deploy`, with the changes that a test needs.
fn snippet(path: &str, changes: &[(&str, &str)]) -> String {
    let text = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy").join(path));
    changes.iter().fold(text.expect("the snippet is there"), |text, (from, to)| {
        assert!(text.contains(from), "{path} does not say {from}");
        text.replace(from, to)
    })
}

fn free_port() -> u16 {
    std::net::TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a port").port()
}

impl ReverseProxy {
    async fn start(gateway: &GatewayProcess, arranged: impl FnOnce(&Path, u16, &str) -> Command) -> Self {
        let folder = TempDir::with_prefix("deskgate-proxy-").expect("a temporary folder");
        let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).expect("made");
        std::fs::write(folder.path().join("cert.pem"), made.cert.pem()).expect("written");
        std::fs::write(folder.path().join("key.pem"), made.signing_key.serialize_pem()).expect("written");
        let port = free_port();
        let command = arranged(folder.path(), port, &gateway.http().get().to_string());
        let process = Process::start(command, &folder.path().join("proxy.log"));
        let proxied = Self { folder, port, _process: process };
        until("the proxy to listen", async || {
            let connected = tokio::net::TcpStream::connect(("127.0.0.1", port)).await;
            connected.map(drop).map_err(|error| format!("{error}: {}", proxied.log()))
        })
        .await;
        proxied
    }

    pub(crate) async fn nginx(gateway: &GatewayProcess) -> Self {
        Self::start(gateway, |folder, port, to| {
            let file = |name: &str| folder.join(name).display().to_string();
            let server = snippet(
                "nginx/deskgate.conf",
                &[
                    ("127.0.0.1:8484;\n    #", &format!("{to};\n    #")),
                    ("listen 443 ssl", &format!("listen 127.0.0.1:{port} ssl")),
                    ("server_name gateway.example.com", "server_name localhost"),
                    ("/etc/ssl/deskgate/fullchain.pem", &file("cert.pem")),
                    ("/etc/ssl/deskgate/key.pem", &file("key.pem")),
                ],
            );
            let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
                .map(|kind| format!("{kind}_temp_path {};\n", file(kind)))
                .concat();
            let whole = format!(
                "daemon off;\nworker_processes 1;\npid {};\nerror_log stderr;\nevents {{}}\n\
                 http {{\naccess_log off;\n{temporary}{server}}}\n",
                file("pid")
            );
            std::fs::write(folder.join("nginx.conf"), whole).expect("written");
            let mut nginx = command(Path::new("/usr/sbin/nginx"), folder);
            nginx.arg("-p").arg(folder).arg("-c").arg(folder.join("nginx.conf"));
            nginx
        })
        .await
    }

    async fn caddy(gateway: &GatewayProcess) -> Self {
        Self::start(gateway, |folder, port, to| {
            let file = |name: &str| folder.join(name).display().to_string();
            let certificate = format!("https://localhost:{port} {{\n\ttls {} {}\n", file("cert.pem"), file("key.pem"));
            let site = snippet(
                "caddy/Caddyfile",
                &[
                    ("gateway.example.com {\n", &certificate),
                    ("reverse_proxy 127.0.0.1:8484 {", &format!("reverse_proxy {to} {{")),
                ],
            );
            let whole = format!("{{\n\tadmin off\n\tauto_https disable_redirects\n}}\n{site}");
            std::fs::write(folder.join("Caddyfile"), whole).expect("written");
            let mut caddy = command(Path::new("caddy"), folder);
            caddy.args(["run", "--adapter", "caddyfile", "--config"]).arg(folder.join("Caddyfile"));
            caddy
        })
        .await
    }

    /// haproxy passes TCP on: TLS is the gateway's own. Its second port leads to the SSH listener.
    async fn haproxy(gateway: &GatewayProcess, folder: TempDir, devices: u16) -> Self {
        let port = free_port();
        let servers = |backend: &str, to: std::net::SocketAddr| format!("backend {backend}\n    server one {to}\n");
        let config = snippet(
            "haproxy/haproxy.cfg",
            &[
                // A test has fewer descriptors than a balancer.
                ("maxconn 20000", "maxconn 100"),
                ("    bind :443\n", &format!("    bind 127.0.0.1:{port}\n")),
                ("    bind :7822\n", &format!("    bind 127.0.0.1:{devices}\n")),
                (
                    "backend api\n    server one 10.0.0.11:443\n    server two 10.0.0.12:443\n",
                    &servers("api", gateway.http().get()),
                ),
                (
                    "backend devices\n    server one 10.0.0.11:7822\n    server two 10.0.0.12:7822\n",
                    &servers("devices", gateway.ssh().get()),
                ),
            ],
        );
        std::fs::write(folder.path().join("haproxy.cfg"), config).expect("written");
        let mut haproxy = command(Path::new("/usr/sbin/haproxy"), folder.path());
        haproxy.arg("-db").arg("-f").arg(folder.path().join("haproxy.cfg"));
        let process = Process::start(haproxy, &folder.path().join("proxy.log"));
        let proxied = Self { folder, port, _process: process };
        until("haproxy to find the gateway", async || {
            let mut curl = command(Path::new("curl"), proxied.folder.path());
            curl.args(["--silent", "--insecure", "--noproxy", "*"]).arg(format!("https://127.0.0.1:{port}/"));
            let output = curl.output().expect("curl is there");
            if output.status.success() { Ok(()) } else { Err(proxied.log()) }
        })
        .await;
        proxied
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("proxy.log")).unwrap_or_default()
    }

    /// A curl command of a backend developer.
    fn curl(&self, backend: &Backend, key: &str, path: &str) -> Command {
        let mut curl = command(Path::new("curl"), self.folder.path());
        curl.args(["--silent", "--show-error", "--no-buffer", "--noproxy", "*", "--cacert"]);
        curl.arg(self.folder.path().join("cert.pem"));
        curl.args(["-H", &format!("Authorization: Bearer {key}"), "-H", "X-Gateway-Subject: customer-1"]);
        let path = path.replace("{endpoint}", backend.endpoint_id());
        curl.arg(format!("https://localhost:{}/api/v1{path}", self.port));
        curl
    }

    fn answer(mut curl: Command) -> Value {
        let output = curl.output().expect("curl is there");
        serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"))
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }
}

/// The checks for every proxy.
async fn holds(start: impl AsyncFnOnce(&GatewayProcess) -> ReverseProxy) {
    let postgres = Postgres::shared().await;
    let gateway = GatewayProcess::start(&postgres, &["server.trusted_proxies=127.0.0.1"]).await;
    let mut device = TestDevice::paired_with(&gateway).await;
    let folder = Folder::new();
    let backend = device.publish(&gateway, "shop", &folder, &[]).await;
    let elsewhere =
        device.cli(&["key", "create", "--app", "shop", "elsewhere", "--allow", "203.0.113.0/24"]).await.ok();
    let proxy = start(&gateway).await;
    assert!(device.stop(Signal::TERM).await.success());

    let mut submission = proxy.curl(&backend, backend.key(), "/agent-endpoints/{endpoint}/runs");
    submission.args(["-H", "Idempotency-Key: behind-a-proxy", "--json", r#"{"input":{"text":"What is there?"}}"#]);
    let accepted = ReverseProxy::answer(submission);
    let run_id = accepted["run_id"].as_str().unwrap_or_else(|| panic!("{accepted}"));

    // Files are larger than other bodies.
    std::fs::write(proxy.path("file.bin"), vec![7; 5 * 1024 * 1024]).expect("written");
    let mut upload = proxy.curl(&backend, backend.key(), "/files?name=file.bin");
    upload.arg("--data-binary").arg(format!("@{}", proxy.path("file.bin").display()));
    let file = ReverseProxy::answer(upload);
    assert_eq!(file["size"], 5 * 1024 * 1024, "{file}");

    // The run waits for its desktop, so only bytes that are forwarded at once can be seen.
    let mut events = proxy.curl(&backend, backend.key(), &format!("/runs/{run_id}/events"));
    events.args(["-H", "Accept: text/event-stream"]);
    let mut following = Process::start(events, &proxy.path("events"));
    following.log.line(&["event: run.accepted"]).await;
    assert!(following.has_ended().is_none(), "{}", following.log.all());
    device.start().await;
    following.log.line(&["event: run.succeeded"]).await;
    assert!(following.ended().await.success());

    let waited = ReverseProxy::answer(proxy.curl(&backend, backend.key(), &format!("/runs/{run_id}?wait=30")));
    assert_eq!(waited["state"], "succeeded");

    // In one call: the end, and the stream.
    let one_call = |key: &str, query: &str| {
        let mut submission = proxy.curl(&backend, backend.key(), &format!("/agent-endpoints/{{endpoint}}/runs{query}"));
        submission.args(["-H", &format!("Idempotency-Key: {key}"), "--json", r#"{"input":{"text":"What is there?"}}"#]);
        submission
    };
    // Not on this thread, which passes the device's bytes on.
    let waiting = one_call("waits", "?wait=60");
    let ended = tokio::task::spawn_blocking(move || ReverseProxy::answer(waiting)).await.expect("no panic");
    assert_eq!((&ended["phase"], &ended["state"]), (&"final".into(), &"succeeded".into()), "{ended}");
    let mut streaming = one_call("streams", "");
    streaming.args(["-H", "Accept: text/event-stream"]);
    let following = Process::start(streaming, &proxy.path("one-call"));
    following.log.line(&["event: run.snapshot"]).await;
    following.log.line(&["event: run.succeeded"]).await;
    assert!(following.ended().await.success());

    // The client's address is that of the connection to the proxy, whatever its headers claim.
    let text = elsewhere["text"].as_str().expect("shown once");
    let mut forged = proxy.curl(&backend, text, &format!("/runs/{run_id}"));
    forged.args(["-H", "X-Forwarded-For: 203.0.113.7"]);
    let refused = ReverseProxy::answer(forged);
    assert!(refused["status"] == 401 || refused["status"] == 403, "{refused}");
}

#[tokio::test]
async fn behind_nginx_with_our_snippet_events_come_when_they_happen_and_nobody_forges_an_address() {
    holds(ReverseProxy::nginx).await;
}

#[tokio::test]
async fn behind_caddy_with_our_snippet_events_come_when_they_happen_and_nobody_forges_an_address() {
    holds(ReverseProxy::caddy).await;
}

/// The status of a call with a key from one of this machine's addresses.
fn status_from(proxy: &ReverseProxy, backend: &Backend, key: &str, source: &str) -> String {
    let mut curl = proxy.curl(backend, key, "/agent-endpoints");
    curl.args(["--interface", source, "--output", "/dev/null", "--write-out", "%{http_code}"]);
    String::from_utf8_lossy(&curl.output().expect("curl is there").stdout).into_owned()
}

#[tokio::test]
async fn behind_haproxy_with_our_snippet_limits_ranges_and_logs_see_who_connects() {
    let folder = TempDir::with_prefix("deskgate-proxy-").expect("a temporary folder");
    crate::tls::certificate(folder.path());
    let file = |name: &str| folder.path().join(name).display().to_string();
    let postgres = Postgres::shared().await;
    let gateway = GatewayProcess::start(
        &postgres,
        &[
            &format!("server.tls.cert_file={}", file("cert.pem")),
            &format!("server.tls.key_file={}", file("key.pem")),
            "server.balancers=127.0.0.1",
            "ssh.balancers=127.0.0.1",
        ],
    )
    .await;
    let devices = free_port();
    let proxy = ReverseProxy::haproxy(&gateway, folder, devices).await;
    let mut device = TestDevice::for_remote().await;
    let paired = device.pair(&gateway, &[]).await;
    let address = deskgate_tests::gateway::Address::new(([127, 0, 0, 1], devices).into());
    device.connect(address, &paired, &gateway.control_token_file()).await.ok();
    device.wait_until_connected().await;

    let shop = Folder::new();
    let backend = device.publish(&gateway, "shop", &shop, &[]).await;
    let made = device.cli(&["key", "create", "--app", "shop", "elsewhere", "--allow", "127.0.0.9/32"]).await.ok();
    let elsewhere = made["text"].as_str().expect("shown once");
    assert_eq!(status_from(&proxy, &backend, elsewhere, "127.0.0.9"), "200");
    assert_ne!(status_from(&proxy, &backend, elsewhere, "127.0.0.8"), "200", "haproxy's own address counts for nobody");

    // A stranger's key, in the log with where it came from.
    let key = proxy.path("stranger");
    let made = Command::new("ssh-keygen").args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(&key).status();
    assert!(made.expect("ssh-keygen is there").success());
    let mut ssh = command(Path::new("ssh"), proxy.folder.path());
    ssh.args(["-F", "none", "-N", "-o", "BatchMode=yes", "-o", "IdentityAgent=none", "-o", "StrictHostKeyChecking=no"]);
    ssh.args(["-o", "UserKnownHostsFile=/dev/null", "-o", "BindAddress=127.0.0.7", "-p", &devices.to_string(), "-i"]);
    let refused = ssh.arg(&key).arg("device@127.0.0.1").output().expect("ssh is there");
    assert!(!refused.status.success());
    gateway.log().line(&["device key refused", "127.0.0.7:"]).await;

    // Version 1, and who is no balancer's word for a version 2.
    use std::io::{Read, Write};
    let straight = |head: &[u8]| {
        let mut stream = std::net::TcpStream::connect(gateway.ssh().get()).expect("it listens");
        stream.write_all(head).expect("sent");
        let mut text = Vec::new();
        let _ = stream.read_to_end(&mut text);
        text
    };
    assert!(straight(b"PROXY TCP4 127.0.0.9 127.0.0.1 40000 7822\r\n").is_empty());
    until("the log to say why", async || {
        let log = gateway.log().all();
        if log.contains("version 1 of the PROXY protocol") { Ok(()) } else { Err(log) }
    })
    .await;
}
