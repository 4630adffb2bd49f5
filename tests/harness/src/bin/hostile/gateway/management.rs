//! Answers to what the desktop asks of its gateway: wrong shapes, another's, endless, late, with text that a terminal obeys.

use std::time::{Duration, Instant};

use anyhow::Context;
use deskgate_protocol::Timestamp;
use deskgate_tests::device::CommandOutput;
use serde_json::{Value, json};
use tokio::time::timeout;

use super::greetings::ESCAPES;
use super::siege::Siege;
use crate::behaviour::{Behaviour, Evidence, NOTHING, effect, holds};
use crate::witnesses::hidden_in;

const TYPED: &str = "an answer of another shape is an error with its reason";
const RAW: &str = "what a gateway writes reaches no terminal raw";
/// A cursor.
const AGAIN: &str = "run_00000000000070008000000000000000";
const SOON: &str = "status and approvals answer within two seconds and say what is wrong";

/// Asks the desktop for something that it asks its gateway, and answers with what `answer` makes of the request.
async fn asked(
    siege: &mut Siege,
    arguments: &[&str],
    answer: impl Fn(&Value) -> Vec<Value>,
) -> anyhow::Result<(Evidence, CommandOutput)> {
    siege.line().await?;
    let home = siege.device.home();
    let mut command = tokio::process::Command::new(deskgate_tests::binaries::agent());
    command.args(arguments).env("DESKGATE_HOME", home).kill_on_drop(true);
    command.stdin(std::process::Stdio::null());
    let running = tokio::spawn(async move { command.output().await });
    let line = siege.line().await?;
    let mut answered = 0;
    let mut running = std::pin::pin!(timeout(Duration::from_secs(40), running));
    let output = loop {
        tokio::select! {
            output = &mut running => break output???,
            request = line.awaited(|frame| frame["frame"] == "request") => {
                let request = request?.context("the desktop hung up")?;
                for frame in answer(&request) {
                    line.send(frame).await;
                }
                answered += 1;
            }
        }
    };
    anyhow::ensure!(answered > 0, "the desktop asked nothing");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let said = CommandOutput {
        exit: output.status.code().unwrap_or(-1),
        value: Value::Null,
        stdout: text(&output.stdout),
        stderr: text(&output.stderr),
    };
    if let Some(hidden) = hidden_in(&said.stdout).or_else(|| hidden_in(&said.stderr)) {
        return Err(effect(format!("`deskgate {}` shows {hidden}", arguments.join(" "))));
    }
    let evidence = Evidence::Said(format!("exit {}: {}{}", said.exit, said.stdout, said.stderr));
    Ok((evidence, said))
}

fn reply(request: &Value, ok: Value) -> Value {
    json!({ "frame": "reply", "request_id": request["request_id"], "ok": ok })
}

/// Asks, answers, and demands that the command fails.
async fn must_fail(
    siege: &mut Siege,
    arguments: &[&str],
    answer: impl Fn(&Value) -> Vec<Value>,
) -> anyhow::Result<Evidence> {
    let (evidence, said) = asked(siege, arguments, answer).await?;
    holds!(said.exit != 0, "`deskgate {}` took it: {}", arguments.join(" "), said.stdout);
    Ok(evidence)
}

fn application(name: &str) -> Value {
    json!({ "app_id": deskgate_protocol::ApplicationId::new(), "name": name, "state": "active",
        "created_at": Timestamp::now(), "live_keys": 1, "warnings": [] })
}

/// The behaviours of this family.
pub(super) fn behaviours() -> Vec<Behaviour<Siege>> {
    vec![
        Behaviour {
            name: "a list of applications that is a number",
            promise: TYPED,
            allowed: NOTHING,
            act: |siege| Box::pin(must_fail(siege, &["app", "list"], |request| vec![reply(request, json!(7))])),
        },
        Behaviour {
            name: "a list of applications that is the list of runs",
            promise: TYPED,
            allowed: NOTHING,
            act: |siege| {
                Box::pin(must_fail(siege, &["app", "list"], |request| {
                    vec![reply(request, json!({ "runs": [], "next_cursor": null }))]
                }))
            },
        },
        Behaviour {
            name: "an error of escapes and right-to-left text",
            promise: RAW,
            allowed: NOTHING,
            act: |siege| {
                Box::pin(must_fail(siege, &["app", "list"], |request| {
                    vec![json!({ "frame": "reply", "request_id": request["request_id"],
                        "error": { "code": "conflict", "message": ESCAPES.repeat(500) } })]
                }))
            },
        },
        Behaviour {
            name: "applications with names of escapes and nothing to see",
            promise: RAW,
            allowed: NOTHING,
            act: |siege| {
                Box::pin(async move {
                    let (evidence, _) = asked(siege, &["app", "list"], |request| {
                        vec![reply(
                            request,
                            json!([application(ESCAPES), application("Bill\u{200b}ing"), application("")]),
                        )]
                    })
                    .await?;
                    Ok(evidence)
                })
            },
        },
        Behaviour {
            name: "answers to requests that were never made, and then the answer",
            promise: TYPED,
            allowed: NOTHING,
            act: |siege| {
                Box::pin(async move {
                    let (evidence, said) = asked(siege, &["app", "list"], |request| {
                        let others = (0..1000_u64).map(|n| reply(&json!({ "request_id": n + 1_000_000 }), json!("x")));
                        others.chain([reply(request, json!([])), reply(request, json!("again"))]).collect()
                    })
                    .await?;
                    holds!(said.exit == 0, "an answer to another request was taken: {}", said.stderr);
                    Ok(evidence)
                })
            },
        },
        Behaviour {
            name: "ten thousand applications in one answer",
            promise: "an answer has a bound",
            allowed: NOTHING,
            act: |siege| {
                Box::pin(async move {
                    let (evidence, _) = asked(siege, &["app", "list"], |request| {
                        let many: Vec<_> = (0..10_000).map(|n| application(&format!("a{n}"))).collect();
                        vec![reply(request, Value::Array(many))]
                    })
                    .await?;
                    Ok(Evidence::Said(evidence.text().chars().take(100).collect()))
                })
            },
        },
        Behaviour {
            name: "a next cursor that always leads to the same page",
            promise: "a list ends",
            allowed: NOTHING,
            act: |siege| {
                Box::pin(async move {
                    let (evidence, _) = asked(siege, &["run", "list"], |request| {
                        vec![reply(request, json!({ "runs": [], "has_more": true, "next": AGAIN }))]
                    })
                    .await?;
                    Ok(evidence)
                })
            },
        },
        Behaviour {
            name: "an answer with both a result and an error",
            promise: TYPED,
            allowed: NOTHING,
            act: |siege| {
                Box::pin(async move {
                    siege
                        .line()
                        .await?
                        .send(json!({ "frame": "reply", "request_id": 1, "ok": [], "error": {
                        "code": "conflict", "message": "x" } }))
                        .await;
                    siege.line().await?.read_it().await
                })
            },
        },
        Behaviour {
            name: "deliveries for a listener: of another host, with headers of its own, endless",
            promise: "listen posts to the owner's address and nowhere else",
            allowed: NOTHING,
            act: |siege| Box::pin(listened(siege)),
        },
        Behaviour {
            name: "times in the year 9999 and before all clocks",
            promise: TYPED,
            allowed: NOTHING,
            act: |siege| {
                Box::pin(async move {
                    let (evidence, _) = asked(siege, &["app", "list"], |request| {
                        let mut late = application("late");
                        late["created_at"] = "9999-12-31T23:59:59.999Z".into();
                        let mut early = application("early");
                        early["created_at"] = "-009999-01-02T00:00:00Z".into();
                        let ok = if request["request_id"].as_u64() == Some(u64::MAX) {
                            json!([])
                        } else {
                            json!([late, early])
                        };
                        vec![reply(request, ok)]
                    })
                    .await?;
                    Ok(evidence)
                })
            },
        },
        Behaviour {
            name: "pings that are answered and requests that never are",
            promise: SOON,
            allowed: NOTHING,
            act: |siege| {
                Box::pin(async move {
                    siege.fresh_line().await?;
                    let began = Instant::now();
                    let status = siege.device.plain_cli(&["status"]).await;
                    let approvals = siege.device.plain_cli(&["approval", "list"]).await;
                    let took = began.elapsed();
                    holds!(took < Duration::from_secs(6), "the two took {} ms", took.as_millis());
                    holds!(status.exit == 0 && approvals.exit == 0, "{}{}", status.stderr, approvals.stderr);
                    siege.line().await?.must_stay().await?;
                    Ok(Evidence::Said(format!("both within {} ms", took.as_millis())))
                })
            },
        },
    ]
}

/// A listener at an address of this computer, fed with what it was not asked for.
async fn listened(siege: &mut Siege) -> anyhow::Result<Evidence> {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    let url = format!("http://{}/hook", listener.local_addr()?);
    let delivery = |n: usize, headers: Value| {
        json!({ "delivery_id": deskgate_protocol::DeliveryId::new(), "attempt": n, "kind": "run.succeeded",
            "headers": headers, "body": "{}" })
    };
    let mut command = tokio::process::Command::new(deskgate_tests::binaries::agent());
    command.args(["listen", "--app", "orders", "--forward-to", &url]);
    command.env("DESKGATE_HOME", siege.device.home()).kill_on_drop(true).stdin(std::process::Stdio::null());
    command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
    let mut running = command.spawn()?;
    let line = siege.line().await?;
    let mut asked = Vec::new();
    while asked.len() < 4 {
        let request = line.awaited(|frame| frame["frame"] == "request").await?.context("the desktop hung up")?;
        let call = request["request"]["call"].as_str().unwrap_or_default().to_owned();
        let ok = match call.as_str() {
            "list_applications" => json!([application("orders")]),
            "open_listener" => json!({ "listener_id": "dst_00000000000070008000000000000000",
                "secret": "whsec_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA", "expires_at": "9999-12-31T23:59:59Z" }),
            _ => json!({ "forwards": [
                delivery(1, json!([["Host", "metadata.internal"], ["Content-Length", "99999"], ["X-Evil", "a\r\nB: c"]])),
                delivery(2, json!([["webhook-id", "x"]])),
            ] }),
        };
        line.send(reply(&request, ok)).await;
        asked.push(call);
        if let Ok(Some(_)) = running.try_wait().map(|ended| ended.map(|_| ())) {
            break;
        }
    }
    running.start_kill()?;
    let output = running.wait_with_output().await?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    holds!(hidden_in(&said).is_none(), "listen shows {:?}", hidden_in(&said));
    siege.line().await?.must_stay().await?;
    Ok(Evidence::Answered(format!("asked {}", asked.join(", "))))
}
