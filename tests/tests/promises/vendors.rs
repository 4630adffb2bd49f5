//! Runs with models of vendors that enforce their rules: strict stand-ins, each with what its vendor documents.

use std::process::Stdio;

use base64::Engine;
use deskgate_program::socket;
use deskgate_tests::third_party;
use deskgate_tests::tool_server::ToolServer;
use deskgate_tests::vendors::{ModelVendor, Move, VENDOR_KEY, Vendor};
use deskgate_tests::visitor::Visitor;
use deskgate_tests::wait::until;
use deskgate_tests::{Backend, Folder, TestDevice};
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;

use crate::text;

const ALL: [Vendor; 8] = [
    Vendor::Anthropic,
    Vendor::Openai,
    Vendor::Google,
    Vendor::Mistral,
    Vendor::Deepseek,
    Vendor::Openrouter,
    Vendor::Xai,
    Vendor::Groq,
];

fn read() -> (&'static str, Value) {
    ("Read", json!({ "file_path": "orders.txt" }))
}

fn say(text: &str) -> Move {
    Move::Say(text.to_owned())
}

/// Two calls at once, one call, and the answer.
fn looks_and_answers() -> Vec<Move> {
    vec![Move::Call(vec![("Glob", json!({ "pattern": "*" })), read()]), Move::Call(vec![read()]), say("Three lamps.")]
}

async fn set(device: &TestDevice, vendor: &ModelVendor, profile: &str, more: &[&str]) {
    let (base_url, key_file) = (vendor.base_url(), vendor.key_file());
    let key_file = key_file.to_str().expect("a plain name");
    let set = ["provider", "set", "work", "--profile", profile, "--base-url", &base_url, "--key-file", key_file];
    device.cli(&[&set[..], more].concat()).await.ok();
}

/// A device with a service whose model is this vendor's.
async fn served_by(vendor: &ModelVendor, kind: Vendor, more: &[&str]) -> (TestDevice, Folder, Backend) {
    let device = TestDevice::built_in().await;
    let folder = Folder::new();
    set(&device, vendor, kind.profile(), &[]).await;
    let service = [&["--provider", "work", "--model", kind.model()][..], more].concat();
    let backend = device.publish_here("shop", &folder, &service).await;
    (device, folder, backend)
}

#[tokio::test]
async fn every_vendor_gets_its_reasoning_back_and_refuses_nothing() {
    let chat = [(Vendor::Xai, &["--api", "chat"][..])];
    for (kind, api) in ALL.map(|kind| (kind, &[][..])).into_iter().chain(chat) {
        let vendor = ModelVendor::start(kind, looks_and_answers()).await;
        let (device, _folder, backend) = served_by(&vendor, kind, &["--effort", "high"]).await;
        if !api.is_empty() {
            set(&device, &vendor, kind.profile(), api).await;
            device.cli(&["service", "check", "shop"]).await.ok();
        }
        let run = backend.wait_for_end(&backend.submit("How many lamps?").await).await;
        assert_eq!(run["result"]["text"], "Three lamps.", "{kind:?}: {run}\n{:#?}", vendor.refused());
        assert_eq!(vendor.refused(), Vec::<Value>::new(), "{kind:?}");
        let is_responses = matches!(kind, Vendor::Openai | Vendor::Xai) && api.is_empty();
        assert_eq!(vendor.asked().pop().expect("asked").get("input").is_some(), is_responses, "{kind:?} {api:?}");
        assert_eq!(run["usage"]["tool_calls"], 3, "{kind:?}: {run}");
        assert_eq!(run["usage"]["output_tokens"], 60, "{kind:?}: {run}");
        assert_eq!(run["usage"]["reasoning_tokens"], 21, "{kind:?}: {run}");
        // What a reasoning was is nobody's but the owner's.
        let run_id = text(&run, "/run_id").to_owned();
        let events = device.cli(&["run", "show", &run_id]).await.ok();
        assert!(!events.to_string().contains("I look first"), "{kind:?}: {events}");
    }
}

#[tokio::test]
async fn every_vendor_gives_data_by_whatever_schema() {
    let schema = json!({
        "type": "object",
        "properties": {
            "reason": { "type": "string", "minLength": 1 },
            "lamps": { "type": "array", "items": { "$ref": "#/$defs/lamp" }, "uniqueItems": true },
            "kind": { "const": "stock" },
        },
        "required": ["reason", "lamps", "kind"],
        "additionalProperties": false,
        "anyOf": [{ "required": ["reason"] }],
        "$defs": { "lamp": { "type": "object", "properties": {
            "watts": { "type": "number", "exclusiveMinimum": 0, "multipleOf": 0.5 },
            "beside": { "$ref": "#/$defs/lamp" },
        } } },
    });
    let fits = json!({ "reason": "counted", "lamps": [{ "watts": 4.5 }, { "watts": 5 }], "kind": "stock" });
    let wrong = json!({ "reason": "counted", "lamps": [{ "watts": 0 }], "kind": "stock" });
    for kind in ALL {
        let plays = vec![Move::Call(vec![("Result", wrong.clone())]), Move::Call(vec![("Result", fits.clone())])];
        let vendor = ModelVendor::start(kind, plays).await;
        let (_device, _folder, backend) = served_by(&vendor, kind, &[]).await;
        let body = json!({ "input": { "text": "x" }, "output": { "name": "stock", "schema": schema } });
        let run = backend.run_body(&body).await;
        assert_eq!(run["result"]["data"], fits, "{kind:?}: {run}\n{:#?}", vendor.refused());
        assert_eq!(vendor.refused(), Vec::<Value>::new(), "{kind:?}");
        let asked = vendor.asked().pop().expect("asked").to_string();
        assert!(asked.contains("exclusiveMinimum") || kind == Vendor::Google, "{kind:?}: the schema is kept: {asked}");
        assert!(asked.contains("/lamps/0/watts"), "{kind:?}: the place is told: {asked}");
    }
}

#[tokio::test]
async fn a_schema_of_the_narrow_kind_is_one_that_the_vendor_holds_its_model_to() {
    let lamp = json!({ "type": "object", "properties": { "watts": { "type": ["number", "null"] } }, "required": ["watts"],
        "additionalProperties": false });
    let narrow = json!({ "type": "object", "properties": { "lamps": { "type": "array", "items": lamp } }, "required": ["lamps"],
        "additionalProperties": false });
    let mut wide = narrow.clone();
    wide["properties"]["lamps"]["items"]["required"] = json!([]);
    for (schema, strict) in [(narrow, true), (wide, false)] {
        let data = json!({ "lamps": [{ "watts": 5 }] });
        let vendor = ModelVendor::start(Vendor::Openai, vec![Move::Call(vec![("Result", data.clone())])]).await;
        let (_device, _folder, backend) = served_by(&vendor, Vendor::Openai, &[]).await;
        let body = json!({ "input": { "text": "x" }, "output": { "name": "stock", "schema": schema } });
        let run = backend.run_body(&body).await;
        assert_eq!(run["result"]["data"], data, "{run}\n{:#?}", vendor.refused());
        let asked = vendor.asked().pop().expect("asked");
        let tools = asked["tools"].as_array().expect("tools");
        let of = |name: &str| tools.iter().find(|tool| tool["name"] == name).expect("a tool")["strict"].clone();
        assert_eq!((of("Result"), of("Read")), (json!(strict), json!(false)), "{asked}");
    }
}

#[tokio::test]
async fn each_effort_is_asked_as_the_vendors_model_takes_it() {
    let further = [
        (Vendor::Xai, "grok-4.7", &["--api", "chat"][..]),
        (Vendor::Anthropic, "claude-haiku-4-5", &[]),
        (Vendor::Anthropic, "claude-opus-4-6", &[]),
        (Vendor::Anthropic, "claude-opus-5", &[]),
        (Vendor::Anthropic, "claude-sonnet-5-5", &[]),
    ];
    for (kind, model, api) in ALL.map(|kind| (kind, kind.model(), &[][..])).into_iter().chain(further) {
        let vendor = ModelVendor::start(kind, Vec::new()).await;
        let (device, folder) = (TestDevice::built_in().await, Folder::new());
        set(&device, &vendor, kind.profile(), api).await;
        device.cli(&["app", "create", "shop"]).await.ok();
        let dir = folder.path().display().to_string();
        let create = ["service", "create", "shop", "--app", "shop", "--dir", &dir, "--instructions", "Answer."];
        device.cli(&[&create[..], &["--provider", "work", "--model", model]].concat()).await.ok();
        for effort in ["none", "minimal", "medium", "xhigh", "max"] {
            device.cli(&["service", "edit", "shop", "--effort", effort]).await.ok();
            let checked = device.cli(&["service", "check", "shop"]).await;
            assert_eq!(checked.exit, 0, "{kind:?} {model} {effort}: {}", checked.stdout);
        }
        assert_eq!(vendor.refused(), Vec::<Value>::new(), "{kind:?} {model}");
    }
}

#[tokio::test]
async fn callers_see_why_a_model_acts_only_if_the_owner_shows_it() {
    for kind in [Vendor::Openai, Vendor::Anthropic, Vendor::Deepseek] {
        for (more, is_told) in [(&[][..], false), (&["--reasoning-summaries", "callers"], true)] {
            let vendor = ModelVendor::start(kind, looks_and_answers()).await;
            let (_device, _folder, backend) = served_by(&vendor, kind, more).await;
            let run_id = backend.submit("How many lamps?").await;
            let run = backend.wait_for_end(&run_id).await;
            assert_eq!(run["result"]["text"], "Three lamps.", "{kind:?}: {run}");
            let events = backend.request(reqwest::Method::GET, &format!("/runs/{run_id}/events?limit=100"));
            let events = backend.send(events.header("Accept", "application/json")).await.expect("an answer").body;
            let said: Vec<_> = events["data"].as_array().expect("a list").iter().map(|event| &event["data"]).collect();
            let summaries = said.iter().filter(|data| data["reasoning_summary"] == "I look first.").count();
            assert_eq!(summaries > 0, is_told, "{kind:?}: {events}");
            assert_eq!(events.to_string().contains("I look first"), is_told, "{kind:?}: {events}");
        }
    }
}

/// A drawing of one pixel, and a document of one page, in base64.
const PNG: &str = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";
const PDF: &str = "%PDF-1.4\n1 0 obj<</Type/Catalog/Pages 2 0 R>>endobj\n2 0 obj<</Type/Pages/Count 1/Kids[3 0 R]>>endobj\n\
                   3 0 obj<</Type/Page/Parent 2 0 R/MediaBox[0 0 9 9]>>endobj\nxref\n0 4\n0000000000 65535 f \n\
                   0000000009 00000 n \n0000000052 00000 n \n0000000101 00000 n \n\
                   trailer<</Root 1 0 R/Size 4>>\nstartxref\n164\n%%EOF";

/// Adds both to a folder that services work in.
fn plant(folder: &Folder) {
    let png = base64::engine::general_purpose::STANDARD.decode(PNG).expect("base64");
    std::fs::write(folder.path().join("lamp.png"), png).expect("writable");
    std::fs::write(folder.path().join("offer.pdf"), PDF).expect("writable");
}

/// Reads a picture and a document at once, and answers.
fn looks_at_both() -> Vec<Move> {
    let read = |file: &str| ("Read", json!({ "file_path": file }));
    vec![Move::Call(vec![read("lamp.png"), read("offer.pdf")]), say("A lamp.")]
}

#[tokio::test]
async fn a_model_is_shown_the_images_and_documents_that_it_takes_and_no_others() {
    let not_read = "which the model of this service does not read";
    for (kind, shown, refused) in [
        (Vendor::Anthropic, &["image/png", "application/pdf"][..], 0),
        (Vendor::Openai, &["data:image/png", "data:application/pdf"], 0),
        (Vendor::Google, &["data:image/png"], 1),
        (Vendor::Mistral, &["data:image/png"], 1),
        (Vendor::Xai, &["data:image/png"], 1),
        (Vendor::Deepseek, &[], 2),
        (Vendor::Groq, &[], 2),
    ] {
        let vendor = ModelVendor::start(kind, looks_at_both()).await;
        let (_device, folder, backend) = served_by(&vendor, kind, &[]).await;
        plant(&folder);
        let run = backend.wait_for_end(&backend.submit("What stands in the offer?").await).await;
        assert_eq!(run["result"]["text"], "A lamp.", "{kind:?}: {run}\n{:#?}", vendor.refused());
        assert_eq!(vendor.refused(), Vec::<Value>::new(), "{kind:?}");
        let asked = vendor.asked().pop().expect("asked").to_string();
        assert!(shown.iter().all(|media| asked.contains(media)), "{kind:?}: {asked}");
        assert_eq!(asked.matches(not_read).count(), refused, "{kind:?}: {asked}");
        assert!(!asked.contains("%PDF"), "{kind:?}: {asked}");
    }
    // The owner knows better what a model takes.
    let vendor = ModelVendor::start(Vendor::Openrouter, looks_at_both()).await;
    let (_device, folder, backend) = served_by(&vendor, Vendor::Openrouter, &["--model-reads", "images"]).await;
    plant(&folder);
    let run = backend.wait_for_end(&backend.submit("What stands in the offer?").await).await;
    assert_eq!(run["result"]["text"], "A lamp.", "{run}\n{:#?}", vendor.refused());
    let asked = vendor.asked().pop().expect("asked").to_string();
    assert!(asked.contains("data:image/png") && asked.matches(not_read).count() == 1, "{asked}");
    // A model of Mistral's takes them where its own vendor has them, behind a router too.
    let vendor = ModelVendor::start(Vendor::Openrouter, looks_at_both()).await;
    let (device, folder) = (TestDevice::built_in().await, Folder::new());
    set(&device, &vendor, "openrouter", &[]).await;
    plant(&folder);
    let service = ["--provider", "work", "--model", "mistralai/mistral-medium-3.5", "--model-reads", "images"];
    let backend = device.publish_here("shop", &folder, &service).await;
    let run = backend.wait_for_end(&backend.submit("What stands in the offer?").await).await;
    assert_eq!(run["result"]["text"], "A lamp.", "{run}\n{:#?}", vendor.refused());
    assert!(vendor.asked().pop().expect("asked").to_string().contains("data:image/png"));
}

#[tokio::test]
async fn what_is_asked_has_the_types_of_the_vendors_own_sdks() {
    for (kind, more, effort, format) in [
        (Vendor::Anthropic, &[][..], "high", "messages"),
        (Vendor::Openai, &[], "high", "responses"),
        // Without reasoning, current models take tools there too.
        (Vendor::Openai, &["--api", "chat"], "none", "chat"),
    ] {
        let vendor = ModelVendor::start(kind, [looks_at_both(), looks_and_answers()].concat()).await;
        let (device, folder) = (TestDevice::built_in().await, Folder::new());
        plant(&folder);
        set(&device, &vendor, kind.profile(), more).await;
        let service = ["--provider", "work", "--model", kind.model(), "--effort", effort, "--tools", "Read,Glob,Bash"];
        let backend = device.publish_here("shop", &folder, &service).await;
        let run = backend.wait_for_end(&backend.submit("What stands in the offer?").await).await;
        assert_eq!(run["result"]["text"], "A lamp.", "{format}: {run}\n{:#?}", vendor.refused());
        let run = backend.wait_for_end(&backend.submit("How many lamps?").await).await;
        assert_eq!(run["result"]["text"], "Three lamps.", "{format}: {run}\n{:#?}", vendor.refused());
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/clients/sdk_types.py");
        let judged = |bodies: Vec<Value>| {
            let asked = json!({ "format": format, "bodies": bodies }).to_string();
            async move {
                let mut python = tokio::process::Command::new(third_party::python_tool("python"));
                let piped = python.arg(script).stdin(Stdio::piped()).stderr(Stdio::piped());
                let mut python = piped.spawn().expect("it starts");
                let mut stdin = python.stdin.take().expect("piped");
                stdin.write_all(asked.as_bytes()).await.expect("it reads");
                drop(stdin);
                let ended = python.wait_with_output().await.expect("it ends");
                (ended.status.success(), String::from_utf8_lossy(&ended.stderr).into_owned())
            }
        };
        let bodies = vendor.asked();
        assert!(bodies.len() >= 5, "{bodies:?}");
        let (fits, why) = judged(bodies.clone()).await;
        assert!(fits, "{format}: {why}");
        // The judge would notice.
        let mut wrong = bodies[2].clone();
        wrong["tools"][0]["unheard_of"] = true.into();
        assert!(!judged(vec![wrong]).await.0, "{format}");
    }
}

#[tokio::test]
async fn the_models_of_a_key_are_listed() {
    let vendor = ModelVendor::start(Vendor::Openai, Vec::new()).await;
    let device = TestDevice::built_in().await;
    set(&device, &vendor, "openai", &[]).await;
    let listed = device.cli(&["provider", "models", "work"]).await.ok();
    assert_eq!(listed["models"][0]["model"], "gpt-5.6-terra", "{listed}");
    assert_eq!(listed["models"][0]["max_output_tokens"], 128_000, "what the profile knows is added: {listed}");
    let other = vendor.key_file();
    std::fs::write(&other, "sk-another-key-4711").expect("writable");
    device.cli(&["provider", "set", "work", "--key-file", other.to_str().expect("plain")]).await.ok();
    let refused = device.cli(&["provider", "models", "work"]).await;
    assert_eq!(refused.exit, 1, "{}", refused.stderr);
    assert!(
        refused.stderr.contains("[a model provider's key]") && !refused.stderr.contains("4711"),
        "{}",
        refused.stderr
    );
}

#[tokio::test]
async fn a_check_asks_what_a_run_asks_and_shows_the_owner_the_vendors_words() {
    let vendor = ModelVendor::start(Vendor::Openai, vec![say("Never.")]).await;
    let device = TestDevice::built_in().await;
    let folder = Folder::new();
    set(&device, &vendor, "openai", &["--api", "chat"]).await;
    device.cli(&["app", "create", "shop"]).await.ok();
    let dir = folder.path().display().to_string();
    let create = ["service", "create", "shop", "--app", "shop", "--dir", &dir, "--provider", "work"];
    device.cli(&[&create[..], &["--model", "gpt-5.6-terra"]].concat()).await.ok();
    let checked = device.cli(&["service", "check", "shop"]).await;
    assert_eq!(checked.exit, 10, "{}", checked.stderr);
    assert!(checked.stdout.contains("To use function tools, use /v1/responses"), "{}", checked.stdout);
    device.cli(&["provider", "set", "work", "--api", "responses"]).await.ok();
    device.cli(&["service", "check", "shop"]).await.ok();
}

#[tokio::test]
async fn a_prompt_is_read_from_the_cache_but_for_what_is_new() {
    let mut moves: Vec<_> = (0..20).map(|_| Move::Call(vec![read()])).collect();
    moves.push(say("Done."));
    let vendor = ModelVendor::start(Vendor::Anthropic, moves).await;
    let (_device, _folder, backend) = served_by(&vendor, Vendor::Anthropic, &[]).await;
    let run = backend.wait_for_end(&backend.submit("Read it often.").await).await;
    assert_eq!(run["result"]["text"], "Done.", "{run}\n{:#?}", vendor.refused());
    let (read, cached) = vendor.read_tokens();
    assert!(cached * 100 >= read * 80, "{cached} of {read} tokens came from the cache");
    let usage = &run["usage"];
    assert!(
        usage["cached_input_tokens"].as_u64() > Some(0) && usage["cache_write_tokens"].as_u64() > Some(0),
        "{usage}"
    );
}

#[tokio::test]
async fn what_a_run_cost_is_the_owners_unless_the_service_tells_its_callers() {
    let vendor = ModelVendor::start(Vendor::Anthropic, looks_and_answers()).await;
    let (device, folder, backend) = served_by(&vendor, Vendor::Anthropic, &[]).await;
    let run = backend.wait_for_end(&backend.submit("How many lamps?").await).await;
    assert_eq!((&run["state"], &run["usage"]["cost_usd"]), (&json!("succeeded"), &Value::Null), "{run}");
    let shown = device.cli(&["run", "show", text(&run, "/run_id")]).await.ok();
    let spent = &shown["spending"];
    assert_eq!(spent["input_tokens"], run["usage"]["input_tokens"], "{shown}");
    let cost = spent["cost"].as_u64().unwrap_or_else(|| panic!("{shown}"));
    assert!(cost > 0 && spent["unpriced_calls"] == 0, "{shown}");
    // The owner's own price goes first.
    let prices = "[[prices]]\nprovider = \"work\"\nmodel = \"claude-*\"\ninput = 1000.0\noutput = 1000.0\n";
    std::fs::write(device.home().join("prices.toml"), prices).expect("writable");
    vendor.then(looks_and_answers());
    let service = ["--provider", "work", "--model", Vendor::Anthropic.model(), "--cost-shown-to", "callers"];
    let other = device.publish_here("till", &folder, &service).await;
    let run = other.wait_for_end(&other.submit("How many lamps?").await).await;
    let usage = &run["usage"];
    let tokens = usage["input_tokens"].as_u64().zip(usage["output_tokens"].as_u64()).expect("tokens");
    let told = usage["cost_usd"].as_f64().unwrap_or_else(|| panic!("{run}"));
    assert!((told - (tokens.0 + tokens.1) as f64 / 1000.0).abs() < 1e-9, "{run}");
    let month = device.cli(&["spending"]).await.ok();
    let services = month["services"].as_array().expect("a list");
    assert_eq!((&services[0]["service"], &services[1]["service"]), (&json!("till"), &json!("shop")), "{month}");
    assert_eq!((&services[1]["cost"], &services[1]["runs"]), (&json!(cost), &json!(1)), "{month}");
    // A table with a mistake is said, and no price is guessed.
    std::fs::write(device.home().join("prices.toml"), "[[prices]]\nmodel = \"claude-*\"\n").expect("writable");
    let checked = device.cli(&["service", "check", "till"]).await;
    assert!(checked.exit != 0 && checked.stdout.contains("prices.toml"), "{}{}", checked.stdout, checked.stderr);
}

#[tokio::test]
async fn a_budget_ends_runs_before_the_call_that_would_exceed_it() {
    let vendor = ModelVendor::start(Vendor::Anthropic, looks_and_answers()).await;
    let (device, folder, backend) = served_by(&vendor, Vendor::Anthropic, &[]).await;
    assert_eq!(device.cli(&["budget", "list"]).await.ok()["budgets"], json!([]));
    let run = backend.wait_for_end(&backend.submit("How many lamps?").await).await;
    let spent = device.cli(&["run", "show", text(&run, "/run_id")]).await.ok()["spending"].clone();
    let cost = spent["cost"].as_u64().expect("priced");
    // Of a budget of the device four fifths are spent: its owner is warned, and runs go on.
    let usd = format!("{:.6}", cost as f64 / 0.9 / 1e6);
    let set = device.cli(&["budget", "set", "--usd", &usd]).await.ok();
    assert_eq!((&set["budgets"][0]["scope"], &set["budgets"][0]["spent"]["cost"]), (&json!("device"), &json!(cost)));
    let doctor = device.cli(&["doctor"]).await;
    assert!(doctor.stdout.contains("budget_nearly_spent"), "{}", doctor.stdout);
    // The next run would exceed it: nothing is asked.
    let asked = vendor.asked().len();
    device.cli(&["budget", "set", "--usd", &format!("{:.6}", cost as f64 / 1e6)]).await.ok();
    let run = backend.wait_for_end(&backend.submit("How many lamps?").await).await;
    assert_eq!((&run["state"], &run["error"]["code"]), (&json!("failed"), &json!("budget_reached")), "{run}");
    assert_eq!((&run["error"]["effects"], &run["error"]["retryable"]), (&json!("none"), &json!(false)), "{run}");
    assert!(!run.to_string().contains(&usd), "how much it is stays with the owner: {run}");
    assert_eq!(vendor.asked().len(), asked, "the model was not called");
    let doctor = device.cli(&["doctor"]).await;
    assert!(doctor.exit == 10 && doctor.stdout.contains("budget_reached"), "{}", doctor.stdout);
    // What it says to do is a command that works as it is printed.
    let problems = doctor.value["problems"].as_array().expect("problems");
    let reached = problems.iter().find(|problem| problem["code"] == "budget_reached").expect("it is there");
    let command = text(reached, "/next").split_once("deskgate budget").expect("a command").1;
    let doubled = device.cli(&[&["budget"], &command.split_whitespace().collect::<Vec<_>>()[..]].concat()).await.ok();
    assert_eq!(doubled["budgets"][0]["budget"], json!({ "cost": cost * 2 }));
    assert!(!device.cli(&["doctor"]).await.stdout.contains("budget_reached"));
    // A service's own budget holds for it alone.
    device.cli(&["budget", "remove"]).await.ok();
    device.cli(&["budget", "set", "--service", "shop", "--tokens", "10"]).await.ok();
    let run = backend.wait_for_end(&backend.submit("How many lamps?").await).await;
    assert_eq!(run["error"]["code"], "budget_reached", "{run}");
    vendor.then(looks_and_answers());
    let service = ["--provider", "work", "--model", Vendor::Anthropic.model()];
    let other = device.publish_here("till", &folder, &service).await;
    let run = other.wait_for_end(&other.submit("How many lamps?").await).await;
    assert_eq!(run["state"], "succeeded", "{run}");
    // And one of a run, for each run.
    vendor.then(looks_and_answers());
    let limited = [&service[..], &["--run-tokens", "1500"]].concat();
    let third = device.publish_here("kiosk", &folder, &limited).await;
    let run = third.wait_for_end(&third.submit("How many lamps?").await).await;
    assert_eq!((&run["state"], &run["error"]["code"]), (&json!("failed"), &json!("budget_reached")), "{run}");
}

#[tokio::test]
async fn a_budget_of_nothing_or_without_a_limit_is_refused_and_the_one_before_stays() {
    let device = TestDevice::built_in().await;
    device.cli(&["budget", "set", "--usd", "5", "--tokens", "7000"]).await.ok();
    for (limits, why) in [
        (&[][..], "--usd"),
        (&["--usd", "0"], "a budget of nothing"),
        (&["--usd", "0.00"], "a budget of nothing"),
        (&["--tokens", "0"], "a budget of nothing"),
        (&["--usd", "5", "--tokens", "0"], "a budget of nothing"),
        (&["--usd", "much"], "US dollars as a number"),
        (&["--tokens", "1.5"], "whole number"),
    ] {
        let refused = device.cli(&[&["budget", "set"], limits].concat()).await;
        let said = refused.stdout + &refused.stderr;
        assert!(refused.exit == 2 && said.contains(why), "{limits:?}: {} {said}", refused.exit);
    }
    // The agent refuses it too, whoever asks.
    for budget in [json!({}), json!({ "tokens": 0 }), json!({ "tokens": 5, "cost": 0 })] {
        let request = json!({ "ask": "set_budget", "scope": "device", "budget": budget });
        let reply: Value = socket::call(&device.home().join("agent.sock"), &request).await.expect("it answers");
        assert_eq!(reply["no"]["code"], "invalid", "{budget}: {reply}");
    }
    let unknown = ["budget", "set", "--service", "ep_0198f0f0000070008000000000000000", "--usd", "5"];
    assert_ne!(device.cli(&unknown).await.exit, 0, "there is no such service");
    let kept = device.cli(&["budget", "list"]).await.ok()["budgets"].clone();
    assert_eq!(
        (kept.as_array().map(Vec::len), &kept[0]["budget"]),
        (Some(1), &json!({ "cost": 5_000_000, "tokens": 7000 }))
    );
}

#[tokio::test]
async fn a_call_that_was_cut_is_asked_for_once_more_with_a_higher_limit_and_never_a_success() {
    for kind in [Vendor::Anthropic, Vendor::Openai, Vendor::Groq] {
        let vendor = ModelVendor::start(kind, vec![Move::CutCall("Write"), say("Done.")]).await;
        let (_device, _folder, backend) = served_by(&vendor, kind, &[]).await;
        let run = backend.wait_for_end(&backend.submit("Write much.").await).await;
        assert_eq!(run["result"]["text"], "Done.", "{kind:?}: {run}");
        let asked = vendor.asked();
        let limit = |body: &Value| {
            ["max_tokens", "max_output_tokens", "max_completion_tokens"].iter().find_map(|name| body[*name].as_u64())
        };
        assert!(limit(asked.last().expect("asked")) >= Some(16_384), "{kind:?}: {:?}", asked.last());
        vendor.then(vec![Move::CutCall("Write"), Move::CutCall("Write"), say("Never.")]);
        let run = backend.wait_for_end(&backend.submit("Write much.").await).await;
        assert_eq!(
            (&run["state"], &run["error"]["code"]),
            (&json!("failed"), &json!("model_error")),
            "{kind:?}: {run}"
        );
        assert!(text(&run, "/error/message").contains("call of Write was not whole"), "{run}");
        assert_eq!((&run["error"]["effects"], &run["usage"]["model_calls"]), (&json!("none"), &json!(2)), "{run}");
    }
}

#[tokio::test]
async fn an_outage_is_waited_out_and_the_run_goes_on() {
    let busy = || json!({ "error": { "message": "later", "type": "rate_limit_error", "code": "rate_limit_exceeded" } });
    let soon = |name: &'static str, value: &str| vec![(name, value.to_owned())];
    let moves = vec![
        Move::Call(vec![read()]),
        Move::Refuse(503, Vec::new(), json!({ "error": { "message": "down" } })),
        Move::Refuse(429, soon("retry-after-ms", "20"), busy()),
        Move::Refuse(429, soon("retry-after", "0"), busy()),
        Move::Refuse(529, Vec::new(), json!({ "type": "error", "error": { "type": "overloaded_error" } })),
        Move::HangUp,
        Move::HangUp,
        say("Back again."),
    ];
    for kind in [Vendor::Anthropic, Vendor::Openai] {
        let vendor = ModelVendor::start(kind, moves.clone()).await;
        let (_device, _folder, backend) = served_by(&vendor, kind, &[]).await;
        let run = backend.wait_for_end(&backend.submit("How many lamps?").await).await;
        assert_eq!(run["result"]["text"], "Back again.", "{kind:?}: {run}\n{:#?}", vendor.refused());
        assert_eq!(run["usage"]["model_calls"], 8, "{run}");
    }
    // A provider that never comes back ends the run with its time, and says so.
    let vendor = ModelVendor::start(Vendor::Openai, Vec::new()).await;
    let (device, _folder, backend) = served_by(&vendor, Vendor::Openai, &["--max-duration", "3"]).await;
    drop(vendor);
    let run = backend.wait_for_end(&backend.submit("How many lamps?").await).await;
    assert_eq!((&run["state"], &run["error"]["code"]), (&json!("failed"), &json!("model_error")), "{run}");
    assert!(text(&run, "/error/message").contains("until the run's time was over"), "{run}");
    assert_eq!(run["error"]["retryable"], true, "{run}");
    assert!(!device.log().own().contains(VENDOR_KEY));
}

#[tokio::test]
async fn caller_and_owner_see_that_a_run_waits_for_its_model() {
    let busy = json!({ "error": { "message": "later", "type": "rate_limit_error", "code": "rate_limit_exceeded" } });
    let later = || Move::Refuse(429, vec![("retry-after", "2".to_owned())], busy.clone());
    let moves = vec![Move::Call(vec![read()]), later(), Move::Call(vec![read()]), later(), say("Back again.")];
    let vendor = ModelVendor::start(Vendor::Openai, moves).await;
    let (device, _folder, backend) = served_by(&vendor, Vendor::Openai, &[]).await;
    let run_id = backend.submit("How many lamps?").await;
    until("the caller to see why it waits", async || {
        let run = backend.run(&run_id).await;
        let is_seen = run["state_reason"]["code"] == "model_unavailable" && run["state"] == "running";
        if is_seen { Ok(()) } else { Err(run.to_string()) }
    })
    .await;
    let shown = device.cli(&["run", "show", &run_id]).await.ok();
    assert_eq!(shown["run"]["state_reason"]["code"], "model_unavailable", "{shown}");
    let run = backend.wait_for_end(&run_id).await;
    assert_eq!((&run["result"]["text"], &run["state_reason"]), (&json!("Back again."), &json!(null)), "{run}");
    let request = backend.request(reqwest::Method::GET, &format!("/runs/{run_id}/events"));
    let events = backend.send(request.header("Accept", "application/json")).await.expect("it answers").body;
    let away: Vec<_> = events["data"]
        .as_array()
        .unwrap_or_else(|| panic!("{events}"))
        .iter()
        .filter(|event| event["type"] == "usage.updated")
        .map(|event| event["data"]["model_unavailable"] == true)
        .collect();
    let turns = [false, true, false, false, true, false, false];
    assert_eq!(away, turns, "{events:#}");
}

#[tokio::test]
async fn what_a_vendor_said_of_a_failed_run_is_the_owners_alone() {
    let no = json!({ "error": { "message": format!("Bad tools for {VENDOR_KEY}."), "type": "invalid_request_error",
        "code": "invalid_function_parameters", "param": "tools[0]" } });
    let moves = vec![Move::Refuse(400, vec![("x-request-id", "req_4711".to_owned())], no)];
    let vendor = ModelVendor::start(Vendor::Openai, moves).await;
    let (device, _folder, backend) = served_by(&vendor, Vendor::Openai, &[]).await;
    let run_id = backend.submit("How many lamps?").await;
    let run = backend.wait_for_end(&run_id).await;
    assert_eq!(run["error"]["code"], "model_error", "{run}");
    let shown = device.cli(&["run", "show", &run_id]).await.ok();
    let detail = &shown["model_failure"]["detail"];
    assert_eq!((&detail["status"], &detail["param"]), (&json!(400), &json!("tools[0]")), "{shown}");
    assert_eq!(
        (&detail["message"], &detail["request_id"]),
        (&json!("Bad tools for [a model provider's key]."), &json!("req_4711"))
    );
    let page = Visitor::of(&device).await.page(&format!("/runs/{run_id}")).await.text;
    assert!(
        page.contains("parameter tools[0]: Bad tools for [a model provider") && page.contains("Only you see this"),
        "{page}"
    );
    for told in [run.to_string(), device.log().own()] {
        assert!(!told.contains("Bad tools") && !told.contains("req_4711"), "{told}");
    }
}

#[tokio::test]
async fn doctor_tells_the_owner_alone_why_a_model_cannot_be_used_and_tells_a_refused_key_from_it() {
    let vendor = ModelVendor::start(Vendor::Openai, Vec::new()).await;
    let (device, _folder, _backend) = served_by(&vendor, Vendor::Openai, &[]).await;
    device.cli(&["doctor", "--all"]).await.ok();
    let no = json!({ "error": { "message": format!("Bad tools for {VENDOR_KEY}."), "type": "invalid_request_error",
        "code": "invalid_function_parameters", "param": "tools[0]" } });
    vendor.answer_checks_with(Move::Refuse(400, Vec::new(), no));
    let doctor = device.cli(&["doctor", "--all"]).await;
    let problem = &doctor.value["problems"][0];
    assert_eq!((doctor.exit, &problem["code"]), (10, &json!("model_unusable")), "{}", doctor.stdout);
    assert_eq!(
        (&problem["title"], &problem["about"]),
        (&json!("A model cannot be used"), &json!("work: gpt-5.6-terra"))
    );
    for part in [
        "shop asks for gpt-5.6-terra",
        "HTTP 400, invalid_request_error, invalid_function_parameters, parameter tools[0]",
        "Bad tools for [a model provider's key].",
    ] {
        assert!(text(problem, "/text").contains(part), "{part}: {problem}");
    }
    let page = Visitor::of(&device).await.page("/health").await.text;
    assert!(page.contains("A model cannot be used") && page.contains("Bad tools for"), "{page}");
    let report = device.folder().join("support.txt");
    device.cli(&["bundle", "--yes", "--output", report.to_str().expect("a plain name")]).await.ok();
    let report = std::fs::read_to_string(report).expect("written");
    assert!(report.contains("model_unusable") && !report.contains("Bad tools"), "{report}");
    for told in [doctor.stdout, page, report, device.log().own()] {
        assert!(!told.contains(VENDOR_KEY), "{told}");
    }
    // A key that is refused is another problem, with another thing to do.
    let other = vendor.key_file();
    std::fs::write(&other, "sk-another-key-4711").expect("writable");
    device.cli(&["provider", "set", "work", "--key-file", other.to_str().expect("plain")]).await.ok();
    let doctor = device.cli(&["doctor", "--all"]).await;
    let problem = &doctor.value["problems"][0];
    assert_eq!((doctor.exit, &problem["code"]), (10, &json!("provider_refuses_key")), "{}", doctor.stdout);
    assert!(text(problem, "/next").contains("its key") && !doctor.stdout.contains("4711"), "{}", doctor.stdout);
}

/// What plain `doctor` names.
async fn codes(device: &TestDevice) -> Vec<String> {
    let report = device.cli(&["doctor"]).await.value;
    let problems = report["problems"].as_array().expect("a list");
    problems.iter().map(|problem| text(problem, "/code").to_owned()).collect()
}

async fn nothing_is_wrong_with_the_provider(device: &TestDevice) {
    until("the problem to go", async || {
        let codes = codes(device).await;
        if codes.iter().any(|code| code.contains("provider")) { Err(format!("{codes:?}")) } else { Ok(()) }
    })
    .await;
}

#[tokio::test]
async fn a_refused_key_is_over_with_another_one_or_the_next_good_run_and_a_removed_provider_is_no_refused_key() {
    let vendor = ModelVendor::start(Vendor::Openai, vec![say("One."), say("Two.")]).await;
    let (device, _folder, backend) = served_by(&vendor, Vendor::Openai, &[]).await;
    let (good, bad) = (vendor.key_file(), device.folder().join("bad-key"));
    std::fs::write(&bad, "sk-another-key-4711").expect("writable");
    let set_key = async |file: &std::path::Path| {
        device.cli(&["provider", "set", "work", "--key-file", file.to_str().expect("plain")]).await.ok();
    };
    set_key(&bad).await;
    assert_eq!(text(&backend.wait_for_end(&backend.submit("How many?").await).await, "/error/code"), "model_auth");
    assert_eq!(codes(&device).await, ["provider_refuses_key"]);
    set_key(&good).await;
    nothing_is_wrong_with_the_provider(&device).await;

    // The provider takes the key again, and nobody told the device.
    set_key(&bad).await;
    backend.wait_for_end(&backend.submit("How many?").await).await;
    assert_eq!(codes(&device).await, ["provider_refuses_key"]);
    vendor.take_any_key();
    assert_eq!(text(&backend.wait_for_end(&backend.submit("How many?").await).await, "/state"), "succeeded");
    nothing_is_wrong_with_the_provider(&device).await;

    device.cli(&["provider", "remove", "work", "--yes"]).await.ok();
    let removed = device.cli(&["doctor"]).await;
    let problem = &removed.value["problems"][0];
    assert_eq!((removed.exit, text(problem, "/code"), text(problem, "/about")), (10, "provider_missing", "work"));
    assert!(text(problem, "/text").contains("shop") && text(problem, "/next").contains("deskgate provider set work"));
    backend.wait_for_end(&backend.submit("How many?").await).await;
    assert_eq!(codes(&device).await, ["provider_missing"], "a provider that is gone refuses nothing");
    set(&device, &vendor, "openai", &[]).await;
    nothing_is_wrong_with_the_provider(&device).await;
}

#[tokio::test]
async fn a_check_and_doctor_send_every_tool_of_a_run_and_name_the_one_that_the_vendor_refuses() {
    let Some(server) = ToolServer::start().await else { return };
    let (device, folder) = (server.configured_device().await, Folder::new());
    let vendor = ModelVendor::start(Vendor::Anthropic, vec![say("Three lamps.")]).await;
    set(&device, &vendor, "anthropic", &[]).await;
    let service =
        ["--provider", "work", "--model", Vendor::Anthropic.model(), "--tools", "Read,Bash,Glob", "--mcp", "crm"];
    let backend = device.publish_here("shop", &folder, &service).await;
    backend.wait_for_end(&backend.submit("How many lamps?").await).await;
    device.cli(&["doctor", "--all"]).await.ok();
    // Without the last, which is the check's own; the mark of the cache stands at another one then.
    let tools = |body: &Value| -> Vec<Value> {
        let tools = body["tools"].as_array().expect("a list").iter();
        let plain = tools.map(|tool| json!([tool["name"], tool["input_schema"]]));
        plain.filter(|tool| tool[0] != "Check").collect()
    };
    let asked = vendor.asked();
    let of_run = asked.iter().find(|body| !body.to_string().contains("Call the tool Check")).expect("the run asked");
    assert_eq!(tools(of_run).len(), 5, "{of_run}");
    for body in &asked {
        assert_eq!(tools(body), tools(of_run));
    }
    assert_eq!(asked.len(), 5, "two for the check, one for the run, two for doctor");
    // Another service, when one of the server's tools has an argument of a name that the vendor refuses.
    server.rename_argument("the text");
    let dir = folder.path().display().to_string();
    let create = ["service", "create", "till", "--app", "shop", "--dir", &dir, "--instructions", "Answer."];
    device.cli(&[&create[..], &service].concat()).await.ok();
    let checked = device.cli(&["service", "check", "till"]).await;
    let said = "Property keys should match pattern";
    assert!(checked.exit == 10 && checked.stdout.contains(said), "{}", checked.stdout);
    assert!(checked.stdout.contains("this is about the tool mcp__crm__add_note"), "{}", checked.stdout);
}

#[tokio::test]
async fn reasoning_that_is_not_taken_back_is_left_out_and_the_run_goes_on() {
    let stale = json!({ "error": { "message": "The encrypted content gAAA... could not be verified.",
        "type": "invalid_request_error", "code": "invalid_encrypted_content", "param": null } });
    let moves = vec![Move::Call(vec![read()]), Move::Refuse(400, Vec::new(), stale), say("Three lamps.")];
    let vendor = ModelVendor::start(Vendor::Openai, moves).await;
    let (_device, _folder, backend) = served_by(&vendor, Vendor::Openai, &[]).await;
    let run = backend.wait_for_end(&backend.submit("How many lamps?").await).await;
    assert_eq!(run["result"]["text"], "Three lamps.", "{run}\n{:#?}", vendor.refused());
    let last = vendor.asked().pop().expect("asked")["input"].to_string();
    assert!(!last.contains("encrypted_content") && last.contains("function_call_output"), "{last}");
}

#[tokio::test]
async fn a_server_in_the_own_network_needs_a_word_for_plain_http() {
    let device = TestDevice::built_in().await;
    let set = ["provider", "set", "lab", "--profile", "ollama", "--base-url", "http://192.168.7.7:11434/v1"];
    let refused = device.cli(&set).await;
    assert_eq!(refused.exit, 2, "{}", refused.stderr);
    assert!(refused.stderr.contains("--plain-http"), "{}", refused.stderr);
    let allowed = device.cli(&[&set[..], &["--plain-http"]].concat()).await;
    assert_eq!(allowed.value["plain_http"], true, "{}", allowed.stderr);
    let public = ["provider", "set", "lab", "--base-url", "http://8.8.8.8/v1", "--no-key"];
    assert!(device.cli(&public).await.stderr.contains("not in your own network"));
}
