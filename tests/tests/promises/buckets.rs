//! Files and artifacts in a bucket, at an S3 server that somebody else wrote: moto's.

use std::net::TcpListener;
use std::process::Stdio;
use std::time::{Duration, Instant};

use deskgate_tests::backend::client;
use deskgate_tests::third_party::python_tool;
use deskgate_tests::{Folder, GatewayProcess, Postgres, TestDevice, until};
use reqwest::Method;
use serde_json::{Value, json};
use tokio::process::{Child, Command};

use crate::artifacts::download;
use crate::files::{some_bytes, upload, with_files};
use crate::text;

/// An S3 server with an empty bucket of the name `deskgate`.
struct S3Server {
    port: u16,
    client: reqwest::Client,
    process: Child,
}

impl S3Server {
    async fn start() -> Self {
        let port = TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr()).expect("ports are left").port();
        let server = Self { port, client: client().build().expect("a client"), process: spawn(port) };
        server.wait().await;
        server
    }

    /// Kills it. What it had is lost.
    async fn kill(&mut self) {
        self.process.kill().await.expect("killed");
    }

    async fn start_again(&mut self) {
        self.process = spawn(self.port);
        self.wait().await;
    }

    async fn wait(&self) {
        until("the bucket to be made", async || {
            let made = self.client.put(self.address() + "/deskgate").send().await;
            made.and_then(|answer| answer.error_for_status()).map(drop).map_err(|error| error.to_string())
        })
        .await;
    }

    fn address(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// What a gateway has in its environment.
    fn environment(&self) -> Vec<(String, String)> {
        let address = self.address();
        let variables = [
            ("AWS_ENDPOINT", address.as_str()),
            ("AWS_ALLOW_HTTP", "true"),
            ("AWS_REGION", "us-east-1"),
            ("AWS_ACCESS_KEY_ID", "deskgate"),
            ("AWS_SECRET_ACCESS_KEY", "deskgate"),
        ];
        variables.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec()
    }

    /// How many keys have this in their names.
    async fn keys_with(&self, part: &str) -> usize {
        let list = self.client.get(self.address() + "/deskgate?list-type=2").send().await.expect("answered");
        let list = list.text().await.expect("text");
        list.split("<Key>").skip(1).filter(|key| key.split('<').next().is_some_and(|key| key.contains(part))).count()
    }
}

fn spawn(port: u16) -> Child {
    let mut command = Command::new(python_tool("moto_server"));
    command.args(["-H", "127.0.0.1", "-p", &port.to_string()]).stdin(Stdio::null());
    command.stdout(Stdio::null()).stderr(Stdio::null()).kill_on_drop(true).spawn().expect("starts")
}

#[tokio::test]
async fn while_a_bucket_is_away_files_are_refused_it_is_a_problem_and_runs_go_on() {
    let (postgres, mut s3) = (Postgres::shared().await, S3Server::start().await);
    let settings = ["storage.url=s3://deskgate/of/gateway"];
    let gateway = GatewayProcess::start_in(&postgres, &settings, &s3.environment()).await;
    let device = TestDevice::paired_with(&gateway).await;
    let folder = Folder::new();
    let backend = device.publish(&gateway, "shop", &folder, &["--takes-files", "yes"]).await;
    upload(&backend, "a.bin", "bytes").await;
    let checked = gateway.command_line(&["check"]).await.ok();
    let finding = |checked: &Value| {
        let all = checked["findings"].as_array().expect("a list");
        all.iter().find(|finding| finding["name"] == "files").expect("it is checked").clone()
    };
    assert_eq!(text(&finding(&checked), "/verdict"), "PASS", "{checked}");

    s3.kill().await;
    let began = Instant::now();
    let refused =
        backend.send(backend.request(Method::POST, "/files?name=b.bin").body("bytes")).await.expect("answered");
    assert_eq!((refused.status.as_u16(), text(&refused.body, "/code")), (503, "storage_unavailable"));
    assert!(began.elapsed() < Duration::from_secs(60), "{:?}", began.elapsed());
    assert_eq!(text(&backend.run_body(&json!({ "input": { "text": "Without." } })).await, "/state"), "succeeded");
    until("the problem to be seen", async || {
        let status = gateway.command_line(&["status"]).await.ok();
        match &status["problems"][0]["code"] {
            code if code == "storage_unavailable" => Ok(()),
            _ => Err(status.to_string()),
        }
    })
    .await;
    let checked = gateway.command_line(&["check"]).await;
    assert_eq!(text(&finding(&checked.value), "/verdict"), "FAIL", "{}", checked.stdout);

    s3.start_again().await;
    until("files to be taken again", async || {
        let request = backend.request(Method::POST, "/files?name=b.bin").body("bytes");
        let answer = backend.send(request).await.map_err(|error| error.to_string())?;
        if answer.status.as_u16() == 201 { Ok(()) } else { Err(answer.body.to_string()) }
    })
    .await;
    gateway.log().line(&["files can be kept again"]).await;
}

#[tokio::test]
async fn files_and_artifacts_are_kept_in_a_bucket_and_deleted_there() {
    let (postgres, s3) = (Postgres::shared().await, S3Server::start().await);
    let settings = ["storage.url=s3://deskgate/of/gateway"];
    let gateway = GatewayProcess::start_in(&postgres, &settings, &s3.environment()).await;
    let device = TestDevice::paired_with(&gateway).await;
    let folder = Folder::new();
    let report = some_bytes(9_000_001, 7);
    std::fs::write(folder.path().join("report.bin"), &report).expect("written");
    let model = folder.script(
        "sums",
        json!([
            { "tool": "Bash", "arguments": { "command": "sha256sum /files/a.bin >sum.txt" } },
            { "tool": "Deliver", "arguments": { "file_path": "sum.txt" } },
            { "tool": "Deliver", "arguments": { "file_path": "report.bin" } },
            { "text": "{{last_tool_result}}" }
        ]),
    );
    let tools = ["--tools", "Bash,Deliver", "--allow", "Bash", "--allow", "Deliver", "--takes-files", "yes"];
    let backend = device.publish(&gateway, "shop", &folder, &[&["--model", &model][..], &tools].concat()).await;
    let file = upload(&backend, "a.bin", some_bytes(8_388_609, 3)).await;
    let object = text(&file, "/file_id").trim_start_matches("file_");
    assert_eq!(s3.keys_with(&format!("of/gateway/{object}/")).await, 3, "a file of three pieces");

    let run = backend.run_body(&with_files("Report.", std::slice::from_ref(&file))).await;
    let run_id = text(&run, "/run_id");
    let (sum, copy) = (&run["artifacts"][0], &run["artifacts"][1]);
    assert_eq!((text(sum, "/state"), text(copy, "/state")), ("stored", "stored"), "{run}");
    let line = format!("{}  /files/a.bin\n", text(&file, "/sha256"));
    assert_eq!(download(&backend, run_id, sum, &[]).await.2, line.as_bytes());
    assert!(download(&backend, run_id, copy, &[]).await.2 == report);
    let (status, _, part) = download(&backend, run_id, copy, &[("Range", "bytes=4194300-4194310")]).await;
    assert!(status == 206 && part == report[4_194_300..=4_194_310]);

    let object = text(copy, "/artifact_id").trim_start_matches("art_").to_owned();
    assert_eq!(s3.keys_with(&object).await, 3);
    let deleted = backend.send(backend.request(Method::DELETE, &format!("/runs/{run_id}/content"))).await;
    assert_eq!(deleted.expect("answered").status.as_u16(), 204);
    until("the bytes to be gone", async || match s3.keys_with(&object).await {
        0 => Ok(()),
        left => Err(format!("{left} pieces")),
    })
    .await;
}
