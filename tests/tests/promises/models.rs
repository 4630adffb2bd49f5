//! Runs with a model over a network, in each wire format; and with skills.

use deskgate_tests::model::{MODEL_KEY, ModelServer};
use deskgate_tests::{Backend, Folder, TestDevice};
use serde_json::{Value, json};

use crate::text;

/// One turn that searches, one that reads, one that answers.
fn looks_and_answers() -> Value {
    json!([
        { "match": { "userMessage": "lamps", "turnIndex": 0 }, "response": { "blocks": [
            { "type": "text", "text": "I will look." },
            { "type": "toolCall", "name": "Grep", "arguments": "{\"pattern\":\"lamps\",\"output_mode\":\"content\"}" },
            { "type": "toolCall", "name": "NoSuchTool", "arguments": "{}" } ] } },
        { "match": { "userMessage": "lamps", "turnIndex": 1, "toolResultContains": "no such tool" }, "response":
            { "toolCalls": [{ "name": "Read", "arguments": "{\"file_path\":\"orders.txt\"}" }] } },
        { "match": { "userMessage": "lamps", "turnIndex": 2, "toolResultContains": "4711" }, "response":
            { "content": "Order 4711 asks for three green lamps.",
              "usage": { "prompt_tokens": 70, "completion_tokens": 9, "input_tokens": 70, "output_tokens": 9 } } },
    ])
}

/// A device with a service whose model is on this server.
async fn served_by(model: &ModelServer, profile: &str, path: &str) -> (TestDevice, Folder, Backend) {
    let device = TestDevice::built_in().await;
    let folder = Folder::new();
    configure(&device, model, profile, path, MODEL_KEY).await;
    let backend = device.publish_here("shop", &folder, &["--provider", "work", "--model", "m-1"]).await;
    (device, folder, backend)
}

pub(crate) async fn configure(device: &TestDevice, model: &ModelServer, profile: &str, path: &str, key: &str) {
    let base_url = format!("{}{path}", model.address());
    let key_file = model.key_file(key);
    let key_file = key_file.to_str().expect("a plain name");
    let set = ["provider", "set", "work", "--profile", profile, "--base-url", &base_url, "--key-file", key_file];
    assert_eq!(device.cli(&set).await.ok()["has_key"], true);
}

#[tokio::test]
async fn a_run_reads_files_with_real_tools_through_either_wire_format() {
    for (profile, path) in [("anthropic", ""), ("openai", "/v1"), ("compatible", "/v1")] {
        let Some(model) = ModelServer::start(looks_and_answers()).await else { return };
        let (device, _folder, backend) = served_by(&model, profile, path).await;
        let run_id = backend.submit("How many lamps?").await;
        let run = backend.wait_for_end(&run_id).await;
        assert_eq!(run["result"]["text"], "Order 4711 asks for three green lamps.", "{profile}: {run}");
        assert_eq!((&run["usage"]["model_calls"], &run["usage"]["tool_calls"]), (&json!(3), &json!(2)), "{run}");
        // One of the formats also estimates usage that the fixtures do not set.
        assert!(run["usage"]["output_tokens"].as_u64() >= Some(9), "{profile}: {run}");
        let events = device.events(&run_id).await;
        let tools = events.iter().filter(|event| *event == "tool.completed").count();
        assert_eq!(tools, 2, "{events:?}");
        // The witness is the model's requests: they have its own messages and calls, with the results.
        let asked = model.requests().await;
        let last = asked.last().expect("asked").to_string();
        for part in ["How many lamps?", "I will look.", "three green lamps for Ms Meier", "There is no such tool"] {
            assert!(last.contains(part), "{profile}: {part} in {last}");
        }
        assert_eq!(asked.last().expect("asked")["model"], "m-1");
        let logs = device.log().own();
        assert!(!logs.contains(MODEL_KEY) && !logs.contains("Ms Meier"), "neither keys nor contents are logged");
    }
}

#[tokio::test]
async fn a_run_reads_files_with_the_profile_of_every_local_server_in_each_of_its_formats() {
    // The server's journal has what came in other formats in the words of Chat Completions.
    for (profile, path, api, limit) in [
        ("ollama", "/v1", "chat", "max_tokens"),
        ("lmstudio", "/v1", "chat", "max_tokens"),
        ("lmstudio", "/v1", "responses", "max_tokens"),
        ("vllm", "/v1", "chat", "max_completion_tokens"),
        ("vllm", "/v1", "responses", "max_tokens"),
        ("llamacpp", "/v1", "chat", "max_tokens"),
        ("litellm", "/v1", "chat", "max_tokens"),
        ("litellm", "/v1", "responses", "max_tokens"),
        ("compatible", "/v1", "responses", "max_tokens"),
        ("compatible-messages", "", "messages", "max_tokens"),
    ] {
        let Some(model) = ModelServer::start(looks_and_answers()).await else { return };
        let (device, folder) = (TestDevice::built_in().await, Folder::new());
        configure(&device, &model, profile, path, MODEL_KEY).await;
        device.cli(&["provider", "set", "work", "--api", api]).await.ok();
        let service = ["--provider", "work", "--model", "anthropic/m-1", "--max-output-tokens", "2000"];
        let backend = device.publish_here("shop", &folder, &service).await;
        let run = backend.wait_for_end(&backend.submit("How many lamps?").await).await;
        assert_eq!(run["result"]["text"], "Order 4711 asks for three green lamps.", "{profile} {api}: {run}");
        let asked = model.requests().await.pop().expect("asked");
        assert!(asked[limit].as_u64().is_some_and(|most| most <= 2000), "{profile} {api}: {asked}");
        // Anthropic's models behind a router have marks for the cache.
        let is_marked = asked.to_string().contains("cache_control");
        assert!(api != "chat" || is_marked == (profile == "litellm"), "{profile}: {asked}");
    }
}

#[tokio::test]
async fn a_key_that_is_refused_ends_runs_as_model_auth_and_fails_the_check() {
    let Some(model) = ModelServer::start(looks_and_answers()).await else { return };
    let (device, _folder, backend) = served_by(&model, "anthropic", "").await;
    configure(&device, &model, "anthropic", "", "sk-another-key").await;
    let run = backend.wait_for_end(&backend.submit("How many lamps?").await).await;
    assert_eq!((&run["state"], &run["error"]["code"]), (&json!("failed"), &json!("model_auth")), "{run}");
    assert_eq!(run["error"]["effects"], "none", "{run}");
    let checked = device.cli(&["service", "check", "shop"]).await;
    assert_eq!(checked.exit, 10, "{}", checked.stderr);
    let checks = checked.value["checks"].as_array().expect("a list");
    let check = checks.iter().find(|check| check["name"] == "provider and model").expect("made");
    assert_eq!(check["verdict"], "FAIL", "{check}");
    assert!(text(check, "/cause").contains("refused") && text(check, "/next").contains("deskgate provider"), "{check}");
    let shown = device.cli(&["provider", "list"]).await.stdout;
    assert!(!shown.contains("sk-another-key") && shown.contains("\"has_key\":true"), "{shown}");
}

#[tokio::test]
async fn a_provider_that_is_busy_is_asked_again_and_the_run_succeeds() {
    let busy = json!({ "error": { "message": "later", "type": "rate_limit_error", "code": "rate_limit_exceeded" },
        "status": 429 });
    let fixtures = json!([
        { "match": { "userMessage": "lamps", "sequenceIndex": 0 }, "response": busy },
        { "match": { "userMessage": "lamps", "sequenceIndex": 1 }, "response": { "content": "Three." } },
    ]);
    let Some(model) = ModelServer::start(fixtures).await else { return };
    let (_device, _folder, backend) = served_by(&model, "compatible", "/v1").await;
    let run = backend.wait_for_end(&backend.submit("How many lamps?").await).await;
    assert_eq!((&run["result"]["text"], &run["usage"]["model_calls"]), (&json!("Three."), &json!(2)), "{run}");
}

#[tokio::test]
async fn a_skill_is_published_as_it_was_read_and_a_file_that_changed_since_fails_the_check() {
    let device = TestDevice::built_in().await;
    let folder = Folder::new();
    let place = folder.path().join("skills/refunds");
    let skill = place.to_str().expect("a plain name");
    std::fs::create_dir_all(&place).expect("a fresh folder");
    let write = |instructions: &str| {
        let text = format!("---\nname: refunds\ndescription: Use when: money goes back.\n---\n{instructions}\n");
        std::fs::write(place.join("SKILL.md"), text).expect("writable");
    };
    write("Be kind.");
    let asks = json!([
        { "tool": "Skill", "arguments": { "skill": "refunds" } },
        { "text": "{{last_tool_result}}" },
    ]);
    let model = folder.script("asks", asks);
    let backend = device.publish_here("shop", &folder, &["--model", &model, "--skill", skill]).await;
    write("Be strict.");
    let run = backend.wait_for_end(&backend.submit("Money back!").await).await;
    assert_eq!(run["result"]["text"], "Be kind.", "what was published stays: {run}");
    let checked = device.cli(&["service", "check", "shop"]).await;
    assert_eq!(checked.exit, 10, "{}", checked.stderr);
    assert!(checked.stdout.contains("something else than what was saved"), "{}", checked.stdout);
    device.cli(&["service", "edit", "shop", "--skill", skill]).await.ok();
    device.cli(&["service", "check", "shop"]).await.ok();
    device.cli(&["service", "publish", "shop"]).await.ok();
    let run = backend.wait_for_end(&backend.submit("Money back!").await).await;
    assert_eq!(run["result"]["text"], "Be strict.", "{run}");
}

#[tokio::test]
async fn a_conversation_that_outgrows_the_models_window_is_summed_up_once_and_goes_on() {
    let long = format!("Lamps: {}", "green lamp, ".repeat(400));
    let fixtures = json!([
        { "match": { "userMessage": "Application: Lamps" }, "response": { "content": "They spoke of four hundred lamps." } },
        { "match": { "userMessage": "Lamps:" }, "response": { "content": "Four hundred." } },
        { "match": { "userMessage": "And their colour?" }, "response": { "content": "Green." } },
        { "match": { "userMessage": "Thank you." }, "response": { "content": "Gladly." } },
    ]);
    let Some(model) = ModelServer::start(fixtures).await else { return };
    let device = TestDevice::built_in().await;
    let folder = Folder::new();
    configure(&device, &model, "compatible", "/v1", MODEL_KEY).await;
    let service = ["--provider", "work", "--model", "m-1", "--tools", "none", "--context-tokens", "1024"];
    let backend = device.publish_here("shop", &folder, &service).await;
    let talk = backend.conversation("case 4711").await;
    assert_eq!(backend.say_and_wait(&talk, 1, &long).await, "Four hundred.");
    assert_eq!(backend.say_and_wait(&talk, 1, "And their colour?").await, "Green.");
    assert_eq!(backend.say_and_wait(&talk, 1, "Thank you.").await, "Gladly.");
    let asked = model.requests().await;
    let sums = asked.iter().filter(|body| body["messages"].to_string().contains("Application: Lamps")).count();
    assert_eq!(sums, 1, "the summary is kept for the messages that follow: {asked:?}");
    let last = asked.last().expect("asked")["messages"].to_string();
    for part in ["four hundred lamps", "And their colour?", "Green.", "Thank you."] {
        assert!(last.contains(part), "{part} in {last}");
    }
    assert!(!last.contains("green lamp, green lamp"), "what was summed up is not sent any more: {last}");
}

#[tokio::test]
async fn a_run_writes_no_more_tokens_than_its_service_allows() {
    let Some(model) = ModelServer::start(looks_and_answers()).await else { return };
    let device = TestDevice::built_in().await;
    let folder = Folder::new();
    configure(&device, &model, "compatible", "/v1", MODEL_KEY).await;
    let service = ["--provider", "work", "--model", "m-1", "--max-output-tokens", "3"];
    let backend = device.publish_here("shop", &folder, &service).await;
    let run = backend.wait_for_end(&backend.submit("How many lamps?").await).await;
    assert_eq!((&run["state"], &run["error"]["code"]), (&json!("failed"), &json!("model_error")), "{run}");
    assert!(text(&run, "/error/message").contains("as much as the service allows"), "{run}");
    assert_eq!((&run["usage"]["tool_calls"], &run["error"]["effects"]), (&json!(0), &json!("none")), "{run}");
    let asked = model.requests().await;
    assert_eq!(asked.last().expect("asked")["max_tokens"], 3);
}
