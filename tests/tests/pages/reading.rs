//! Runs and conversations as people read them: by their words, and not by their identifiers.

use deskgate_tests::{Browser, Folder, TestDevice};
use serde_json::json;

use crate::accessibility::AccessibilityChecker;
use crate::{text, writer};

const QUESTION: &str = "How many are in stock?\n\tI need   forty of them, and they have to be in Bergen before the fair opens in the second week of May.";
const FIRST_WORDS: &str = "How many are in stock? I need forty of them, and they have to be in Bergen before the…";

#[tokio::test]
async fn runs_are_named_by_what_was_asked_and_a_conversation_reads_as_what_was_said() {
    let Some(browser) = Browser::start().await else { return };
    let (device, folder) = (TestDevice::built_in().await, Folder::new());
    let model = folder.script("stock", json!([{ "text": "Forty-two <b>pieces</b>\n    are in Bergen." }]));
    let backend = device.publish_here("shop", &folder, &["--model", &model, "--tools", "none"]).await;
    let talk = backend.conversation("case 4711").await;
    let asked = backend.say(&talk, 1, QUESTION).await.expect("answered");
    let run_id = text(&asked.body, "/run_id").to_owned();
    backend.wait_for_end(&run_id).await;
    device.cli(&["conversation", "reset", &talk, "--wait", "60s"]).await.ok();
    let again = backend.say(&talk, 2, "And in Oslo?").await.expect("answered");
    backend.wait_for_end(text(&again.body, "/run_id")).await;

    let page = browser.signed_in(&device).await;
    let mut judge = AccessibilityChecker::of("reading");
    page.goto("/runs").await;
    assert_eq!(page.text(&format!("#row-{run_id} .what")).await, FIRST_WORDS);
    assert!(!page.text("main table").await.contains("run_"), "nobody has to read identifiers");
    page.evaluate("navigator.clipboard.writeText = async (text) => { window.copied = text; }").await;
    page.click(&format!("#row-{run_id} button.id")).await;
    assert_eq!(page.evaluate("window.copied").await, json!(run_id), "the whole identifier");
    page.wait_for_visible("#said.toast >> text=Copied").await;
    judge.judge(&page, "runs").await;
    page.click(&format!("#row-{run_id} .what a")).await;
    page.wait_for_visible("h1 >> text=How many are in stock?").await;
    assert_eq!(page.evaluate("document.querySelector('#facts button.id').title").await, json!(run_id));

    page.goto(&format!("/conversations/{talk}")).await;
    let turns = page.text("#messages ol").await;
    let order = ["I need   forty of them", "Forty-two <b>pieces</b>", "Generation 2", "And in Oslo?"];
    let places: Vec<_> =
        order.iter().map(|part| turns.find(part).unwrap_or_else(|| panic!("{part}: {turns}"))).collect();
    assert!(places.is_sorted(), "as it was said: {turns}");
    assert!(turns.contains("I need   forty of them"), "a question keeps its shape: {turns:?}");
    judge.judge(&page, "conversation").await;
    for page_of_words in ["/runs", &format!("/conversations/{talk}"), &format!("/runs/{run_id}")] {
        page.look("light", 390).await;
        page.goto(page_of_words).await;
        let width = page.evaluate("document.documentElement.scrollWidth").await.as_u64();
        assert!(width.is_some_and(|width| width <= 390), "{page_of_words} is {width:?} pixels wide");
    }

    let found = device.plain_cli(&["find", &run_id]).await;
    assert!(found.stdout.contains("How many are in stock? I need forty of them, and they have…"), "{}", found.stdout);
    let listed = device.plain_cli(&["run", "list"]).await;
    assert!(listed.stdout.contains("How many are in stock? I need forty of them,…"), "{}", listed.stdout);
    let listed = device.cli(&["run", "list", "--limit", "1"]).await.ok();
    assert_eq!(text(&listed, "/runs/0/asked"), "And in Oslo?");
    judge.sentence(2);
}

#[tokio::test]
async fn a_run_reads_as_a_conversation_with_its_tool_calls_and_who_allowed_them() {
    let Some(browser) = Browser::start().await else { return };
    let (device, folder) = (TestDevice::built_in().await, Folder::new());
    let backend = writer(&device, &folder).await;
    let run_id = backend.submit("Answer the customer.").await;
    backend.wait_for_state(&run_id, "awaiting_approval").await;
    let page = browser.signed_in(&device).await;
    let mut judge = AccessibilityChecker::of("run-conversation");
    page.goto(&format!("/runs/{run_id}")).await;
    page.wait_for_visible("#input >> text=Answer the customer.").await;
    page.wait_for_visible(".turn >> text=I save it.").await;
    page.wait_for_visible("#talk .ask .diff tr.add >> text=Dear customer").await;
    assert_eq!(page.count(".tool").await, 0, "a call that waits is told once, where it is decided");
    judge.judge(&page, "asks").await;
    page.click("#talk .ask [data-allow]").await;
    backend.wait_for_end(&run_id).await;

    page.goto(&format!("/runs/{run_id}")).await;
    page.wait_for_visible(".tool >> text=Done").await;
    assert!(page.text(".tool summary").await.starts_with("Write"));
    page.tab_to("button", &format!("Copy identifier ending in {}", &run_id[run_id.len() - 4..])).await;
    page.click(".tool summary").await;
    page.wait_for_visible(".tool >> text=Allowed once").await;
    page.wait_for_visible("#result").await;
    assert_eq!(page.count("#steps:visible").await, 0, "events are for developers");
    page.click("#developer summary").await;
    page.wait_for_visible("#steps >> text=tool.completed").await;
    judge.judge(&page, "ended").await;
    judge.sentence(2);
}

/// What the model does in a run: it fails, searches, writes and is denied.
fn clerk(folder: &Folder) -> String {
    folder.write("ledger.md", "2026-102 open\n2026-103 paid\n");
    folder.write("notes.txt", "one\nthe sum is 12 EUR\nthree\n");
    let call = |tool: &str, arguments: serde_json::Value| json!({ "tool": tool, "arguments": arguments });
    let edit = json!({ "file_path": "notes.txt", "old_string": "12 EUR", "new_string": "21 EUR" });
    folder.script(
        "clerk",
        json!([
            { "text": "I look at the **ledger**." },
            call("Read", json!({ "file_path": "missing.md" })),
            call("Grep", json!({ "pattern": "open" })),
            call("Read", json!({ "file_path": "notes.txt" })),
            call("Edit", edit),
            call("Write", json!({ "file_path": "draft.md", "content": "line\n".repeat(200) })),
            call("Write", json!({ "file_path": "keys.txt", "content": "x" })),
            { "text": "## Two things\n\n- *one*\n- <script>alert(1)</script>\n\n[the bank](https://evil.example/x)" },
        ]),
    )
}

#[tokio::test]
async fn what_each_tool_call_was_to_do_and_gave_back_stays_readable_with_its_run() {
    let Some(browser) = Browser::start().await else { return };
    let (device, folder) = (TestDevice::built_in().await, Folder::new());
    let fields = ["--allow", "Write", "--allow", "Edit", "--deny", "Write:keys.txt", "--model", &clerk(&folder)];
    let backend = device.publish_here("shop", &folder, &fields).await;
    let run_id = backend.submit("Look at the ledger.").await;
    assert_eq!(text(&backend.wait_for_end(&run_id).await, "/state"), "succeeded");

    let page = browser.signed_in(&device).await;
    let mut judge = AccessibilityChecker::of("run-tools");
    page.goto(&format!("/runs/{run_id}")).await;
    let calls = page.evaluate("[...document.querySelectorAll('details.tool')].map((row) => row.querySelector('summary').innerText.replace(/\\s+/g, ' '))").await;
    let calls: Vec<String> = serde_json::from_value(calls).expect("texts");
    let expected = [
        ("Read missing.md", "Failed"),
        ("Grep open", "Done"),
        ("Read notes.txt", "Done"),
        ("Edit notes.txt", "Done"),
        ("Write draft.md", "Done"),
        ("Write keys.txt", "Not allowed"),
    ];
    assert_eq!(calls.len(), expected.len(), "{calls:?}");
    for (call, (begin, state)) in calls.iter().zip(expected) {
        assert!(call.trim().starts_with(begin) && call.contains(state), "{begin}, {state}: {call}");
    }
    let reasons = page.text("#talk").await;
    assert!(reasons.contains("missing.md") && reasons.contains("rules for this service do not allow"), "{reasons}");

    // What an edit changed, word by word; and what a search gave back.
    page.click(".tool summary >> text=Edit").await;
    assert_eq!(page.text(".tool[open] .diff ins").await, "21");
    assert_eq!(page.text(".tool[open] .diff del").await, "12");
    page.click(".tool summary >> text=Grep").await;
    page.wait_for_visible(".tool[open] pre >> text=ledger.md").await;
    let files = page.text("#files").await;
    for part in ["notes.txt", "+1", "−1", "draft.md", "new", "+200"] {
        assert!(files.contains(part), "{part}: {files}");
    }
    assert!(!files.contains("keys.txt"), "what was not allowed changed nothing: {files}");
    judge.judge(&page, "open").await;

    // The answer is Markdown, and nothing in it is an element of its own.
    assert_eq!(page.text("#result li em").await, "one");
    assert!(page.text("#result").await.contains("<script>alert(1)</script>"));
    assert_eq!(page.text("#result").await.matches("(evil.example)").count(), 1, "a link says where it leads");

    // A long one is whole on a page of its own.
    page.click(".tool summary >> text=draft.md").await;
    page.click("text=The whole tool call").await;
    page.wait_for_visible("h1 >> text=draft.md").await;
    assert_eq!(page.count(".diff tr.add").await, 200);
    judge.judge(&page, "call").await;

    // A change stands above or beside what it changes, as its reader likes.
    page.goto(&format!("/runs/{run_id}/calls/call_1_4")).await;
    page.tab_to("link", "Split").await;
    page.press("Enter").await;
    page.wait_for_visible(".diff.split").await;
    let changed = "[...document.querySelectorAll('.diff.split tr')].find((row) => row.querySelector('del'))";
    let cells = page.evaluate(&format!("[...{changed}.cells].map((cell) => cell.innerText)")).await;
    let cells: Vec<String> = serde_json::from_value(cells).expect("texts");
    assert_eq!(cells.len(), 6, "{cells:?}");
    assert!(cells[2].contains("12") && cells[5].contains("21") && cells[0] == cells[3], "{cells:?}");
    judge.judge(&page, "split").await;
    page.click("text=Unified").await;
    page.wait_for_visible(".diff:not(.split)").await;

    for narrow in [
        format!("/runs/{run_id}"),
        format!("/runs/{run_id}/calls/call_1_5"),
        format!("/runs/{run_id}/calls/call_1_4?diff=split"),
    ] {
        page.look("dark", 390).await;
        page.goto(&narrow).await;
        let width = page.evaluate("document.documentElement.scrollWidth").await.as_u64();
        assert!(width.is_some_and(|width| width <= 390), "{narrow} is {width:?} pixels wide");
    }
    let bytes = page.evaluate("performance.getEntriesByType('navigation')[0].decodedBodySize").await.as_u64();
    assert!(bytes.is_some_and(|bytes| bytes < 100_000), "{bytes:?}");

    // The same on the command line.
    let shown = device.plain_cli(&["run", "show", &run_id]).await.stdout;
    for part in ["failed", "Read missing.md", "not run", "Write keys.txt", "deskgate run call"] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    let call = device.plain_cli(&["run", "call", &run_id, "call_1_4"]).await.stdout;
    assert!(call.contains("+the sum is 21 EUR") && call.contains("what it gave back"), "{call}");
    let whole = device.cli(&["run", "show", &run_id]).await.ok();
    assert_eq!(text(&whole, "/calls/0/status"), "error", "{whole}");
    let none = device.plain_cli(&["run", "call", &run_id, "call_9_9"]).await;
    assert!(none.exit != 0 && none.stderr.contains("no such tool call"), "{}", none.stderr);
    judge.sentence(2);
}

#[tokio::test]
async fn what_the_assistant_writes_is_read_while_it_writes_it_and_never_twice() {
    let Some(browser) = Browser::start().await else { return };
    let (device, folder) = (TestDevice::built_in().await, Folder::new());
    let steps = json!([{ "text": "I am still *writing* " }, { "delay_ms": 6_000 }, { "text": "and done." }]);
    let model = folder.script("writes", steps);
    let backend = device.publish_here("shop", &folder, &["--model", &model, "--tools", "none"]).await;
    let page = browser.signed_in(&device).await;
    let run_id = backend.submit("Write.").await;
    page.goto(&format!("/runs/{run_id}")).await;
    page.wait_for_visible("#writing >> text=I am still").await;
    assert_eq!(page.text("#writing em").await, "writing");
    page.wait_for_visible("#result >> text=and done.").await;
    assert_eq!(text(&backend.wait_for_end(&run_id).await, "/state"), "succeeded");
    page.wait_for_hidden("#writing").await;
    assert_eq!(page.text("#talk").await.matches("I am still").count(), 1);
}
