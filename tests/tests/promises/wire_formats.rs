//! Each wire format against a third-party server: tool calls that change something, and answers that arrive in pieces
//! or break off.

use deskgate_tests::model::{MODEL_KEY, ModelServer};
use deskgate_tests::stream::RunStream;
use deskgate_tests::{Backend, Folder, TestDevice};
use serde_json::{Value, json};

use crate::approvals::waiting;
use crate::models::configure;
use crate::text;

/// A profile for each format, with the path after the server's address.
const PROFILES: [(&str, &str); 3] = [("anthropic", ""), ("openai", "/v1"), ("compatible", "/v1")];

/// A server with scripted answers, and a device with a service of that profile.
struct ProviderFixture {
    model: ModelServer,
    device: TestDevice,
    folder: Folder,
    backend: Backend,
}

impl ProviderFixture {
    async fn new(profile: &str, path: &str, fixtures: &[Value], service: &[&str]) -> Option<Self> {
        let model = ModelServer::start(fixtures.into()).await?;
        let (device, folder) = (TestDevice::built_in().await, Folder::new());
        configure(&device, &model, profile, path, MODEL_KEY).await;
        let service = [&["--provider", "work", "--model", "m-1"], service].concat();
        let backend = device.publish_here("shop", &folder, &service).await;
        Some(Self { model, device, folder, backend })
    }
}

/// A model's turn, chosen by the newest result.
fn turn(index: u32, result: &str, response: Value) -> Value {
    let mut when = json!({ "userMessage": "lamps", "turnIndex": index });
    if !result.is_empty() {
        when["toolResultContains"] = result.into();
    }
    json!({ "match": when, "response": response })
}

fn calls(tool: &str, arguments: Value) -> Value {
    json!({ "toolCalls": [{ "name": tool, "arguments": arguments }] })
}

#[tokio::test]
async fn a_model_in_any_format_reads_edits_and_runs_commands_as_the_owner_allows() {
    let edit = json!({ "file_path": "orders.txt", "old_string": "three", "new_string": "four" });
    let turns = [
        turn(0, "", calls("Read", json!({ "file_path": "orders.txt" }))),
        turn(1, "three green lamps", calls("Edit", edit)),
        turn(2, "orders.txt", calls("Bash", json!({ "command": "grep -o 'four.*lamps' orders.txt" }))),
        turn(3, "four green lamps", json!({ "content": "Four it is." })),
    ];
    for (profile, path) in PROFILES {
        let Some(site) = ProviderFixture::new(profile, path, &turns, &["--tools", "Read,Edit,Bash"]).await else {
            return;
        };
        let run_id = site.backend.submit("One more of the lamps.").await;
        for tool in ["Edit", "Bash"] {
            let request = waiting(&site.device).await;
            assert_eq!(text(&request, "/tool"), tool, "{profile}: {request}");
            site.device.cli(&["approval", "approve", text(&request, "/approval_id")]).await.ok();
        }
        let run = site.backend.wait_for_end(&run_id).await;
        assert_eq!((&run["result"]["text"], &run["usage"]["tool_calls"]), (&json!("Four it is."), &json!(3)), "{run}");
        let orders = std::fs::read_to_string(site.folder.path().join("orders.txt")).expect("it is there");
        assert!(orders.contains("four green lamps"), "{profile}: {orders}");
        let asked = site.model.requests().await;
        assert_eq!(asked.len(), 6, "twice for the check, and once for each turn: {asked:?}");
        for body in &asked[2..] {
            assert_eq!(body["stream"], true, "{profile}: {body}");
            let tools: Vec<_> = body["tools"].as_array().expect("a list").iter().map(name).collect();
            assert_eq!(tools, ["Read", "Edit", "Bash"], "{profile}");
        }
    }
}

/// The name of a tool in a request, in any format.
fn name(tool: &Value) -> &str {
    tool["name"].as_str().or(tool["function"]["name"].as_str()).expect("every tool has one")
}

#[tokio::test]
async fn what_a_model_in_any_format_writes_is_shown_while_it_writes() {
    let answer = "Order 4711 asks for three green lamps, and they are due on Friday.";
    let mut slowly = turn(0, "", json!({ "content": answer }));
    (slowly["chunkSize"], slowly["latency"]) = (json!(10), json!(200));
    for (profile, path) in PROFILES {
        let Some(site) = ProviderFixture::new(profile, path, &[slowly.clone()], &[]).await else { return };
        let run_id = site.backend.submit("How many lamps?").await;
        let mut stream = RunStream::open(&site.backend, &run_id, 0).await.expect("it is up");
        let (mut written, mut pieces) = (String::new(), 0);
        while let Some(sent) = stream.next().await {
            let said = sent.data["data"]["text"].as_str().unwrap_or_default();
            match sent.event.as_str() {
                "message.delta" => {
                    written.push_str(said);
                    pieces += 1;
                }
                "message.completed" => assert_eq!((written.as_str(), said), (answer, answer), "{profile}"),
                _ => {}
            }
        }
        assert!(pieces >= 3, "{profile}: {pieces} pieces");
        assert_eq!(site.backend.wait_for_end(&run_id).await["result"]["text"], answer, "{profile}");
    }
}

#[tokio::test]
async fn an_answer_that_breaks_off_is_asked_for_again_and_its_half_of_a_call_is_never_made() {
    let write = calls("Write", json!({ "file_path": "reply.txt", "content": "Dear customer, ".repeat(20) }));
    let when = |index: u32| json!({ "userMessage": "lamps", "sequenceIndex": index });
    let broken = json!({ "match": when(0), "response": write, "truncateAfterChunks": 3 });
    let whole = json!({ "match": when(1), "response": { "content": "Three." } });
    for (profile, path) in PROFILES {
        let fixtures = [broken.clone(), whole.clone()];
        let Some(site) = ProviderFixture::new(profile, path, &fixtures, &["--allow", "Write"]).await else { return };
        let run = site.backend.wait_for_end(&site.backend.submit("How many lamps?").await).await;
        assert_eq!(
            (&run["result"]["text"], &run["usage"]["model_calls"]),
            (&json!("Three."), &json!(2)),
            "{profile}: {run}"
        );
        assert_eq!(run["usage"]["tool_calls"], 0, "{profile}: {run}");
        assert!(!site.folder.path().join("reply.txt").exists(), "{profile}");
    }
}
