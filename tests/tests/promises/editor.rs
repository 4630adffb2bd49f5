//! Services and providers on the management pages.

use deskgate_tests::visitor::{Visitor, value};
use deskgate_tests::{Folder, TestDevice};
use reqwest::StatusCode;
use tokio::net::TcpListener;

/// The fields of a new service as its page shows them, for a folder.
fn fields<'a>(name: &'a str, folder: &'a str) -> Vec<(&'a str, &'a str)> {
    vec![
        ("name", name),
        ("description", "Reads & answers."),
        ("working_directory", folder),
        ("provider", "scripted"),
        ("model", "folder"),
        ("instructions", "Answer.\r\nBriefly."),
        ("kind", "workspace"),
        ("tool", "Read"),
        ("network", "none"),
        ("rules", "deny Read:keys"),
        ("expiry", "2"),
        ("expiry_unit", "hours"),
        ("on_denial", "tell"),
        ("protected", ""),
        ("skills", ""),
        ("max_turns", "50"),
        ("max_duration_s", "3600"),
        ("concurrency", ""),
    ]
}

fn with<'a>(fields: &[(&'a str, &'a str)], name: &str, value: &'a str) -> Vec<(&'a str, &'a str)> {
    fields.iter().map(|(known, old)| (*known, if *known == name { value } else { *old })).collect()
}

#[tokio::test]
async fn a_service_is_described_checked_published_and_changed_on_its_page() {
    let (device, folder) = (TestDevice::built_in().await, Folder::new());
    let created = device.cli(&["app", "create", "Billing"]).await.ok();
    let app = created["application"]["app_id"].as_str().expect("an application").to_owned();
    let visitor = Visitor::of(&device).await;
    let path = folder.path().display().to_string();
    let new = format!("/applications/{app}/services/new");
    let sound = fields("Reader", &path);

    let gallery = visitor.page(&new).await.text;
    for template in ["read-only", "drafts", "code"] {
        let begun = visitor.page(&format!("{new}?template={template}")).await.text;
        assert!(gallery.contains(&format!("?template={template}")) && begun.contains("id=\"working_directory\""));
    }
    let blank = visitor.page(&format!("{new}?template=empty")).await.text;
    assert!(blank.contains("value=\"scripted\" selected"), "no account is needed to begin");

    // A form that fails marks the field and keeps everything.
    let failed = visitor.send(&new, &with(&with(&sound, "working_directory", "/no/such"), "max_turns", "many")).await;
    assert_eq!(failed.status, StatusCode::UNPROCESSABLE_ENTITY);
    for kept in ["value=\"Reader\"", "Reads &#38; answers.", "value=\"/no/such\"", "value=\"many\"", "deny Read:keys"] {
        assert!(failed.text.contains(kept), "{kept}: {}", failed.text);
    }
    for led in ["<a href=\"#working_directory\">", "<a href=\"#max_turns\">", "id=\"working_directory-error\""] {
        assert!(failed.text.contains(led), "{led}: {}", failed.text);
    }
    let both = visitor.send(&new, &with(&with(&sound, "skills", "/no/such"), "rules", "never")).await.text;
    let place = |led: &str| both.find(led).unwrap_or_else(|| panic!("{led}: {both}"));
    assert!(place("<a href=\"#rules\">") < place("<a href=\"#skills\">"), "in the order of the fields");
    // A secret is not sent back.
    let pasted = visitor.send(&new, &with(&sound, "instructions", "dgk_canary")).await;
    assert_eq!(pasted.status, StatusCode::UNPROCESSABLE_ENTITY);
    assert!(pasted.text.contains("an application key") && !pasted.text.contains("canary"));
    // A form without the session's token does nothing either.
    assert_eq!(visitor.send_as_it_is(&new, &sound).await.status, StatusCode::FORBIDDEN);
    let none = device.cli(&["service", "list"]).await.ok();
    assert_eq!(none["services"], serde_json::json!([]), "nothing was saved by any of them");

    // Saved: a draft has no identifier to copy, and a guessed address does not publish it.
    let page = visitor.send(&new, &sound).await.redirect_target();
    let draft = visitor.page(&page).await.text;
    assert!(!draft.contains("ep_0") && draft.contains("Inactive until this draft has been checked"), "{draft}");
    assert_eq!(visitor.page(&format!("{page}/publish")).await.status, StatusCode::CONFLICT);
    assert!(draft.contains("exists, no Git repository"), "{draft}");
    std::fs::create_dir(folder.path().join(".git")).expect("made");
    std::fs::write(folder.path().join(".git/HEAD"), "ref: refs/heads/main").expect("written");
    assert!(visitor.page(&page).await.text.contains("exists, Git repository"));
    assert!(device.plain_cli(&["service", "show", "Reader"]).await.stdout.contains("(exists, Git repository)"));
    let saved = device.cli(&["service", "show", "Reader"]).await.ok();
    assert_eq!(saved["draft"]["instructions"], "Answer.\nBriefly.");
    assert_eq!(saved["draft"]["approvals"]["expiry_s"], 7200);
    assert_eq!(saved["draft"]["limits"]["concurrency"], 4, "what only reads is not held back");

    let checked = visitor.send(&format!("{page}/check"), &[]).await.redirect_target();
    assert_eq!(checked, format!("{page}#checks"));
    let question = visitor.page(&format!("{page}/publish")).await.text;
    assert!(question.contains("Anyone with a key of Billing can start this"), "{question}");
    let definition = value(&question, "definition");
    visitor.send(&format!("{page}/publish"), &[("definition", &definition)]).await.redirect_target();
    let published = device.cli(&["service", "show", "Reader"]).await.ok();
    let endpoint = published["endpoint_id"].as_str().expect("published").to_owned();
    assert!(visitor.page(&page).await.text.contains(&endpoint));
    assert!(visitor.page(&format!("/applications/{app}")).await.text.contains(&endpoint));

    // What is published and what is a draft are tried from one form.
    let form = visitor.page(&page).await.text;
    assert!(form.contains("<option value=\"published\" selected>Version 1") && !form.contains("value=\"draft\""));

    // Tried: refused while access is paused, with the text kept; then a normal run.
    let tried = format!("{page}/try");
    let paused = visitor.send(&tried, &[("input", "What is in <orders>?"), ("of", "published")]).await;
    assert_eq!(paused.status, StatusCode::CONFLICT);
    assert!(
        paused.text.contains("access is paused") && paused.text.contains("What is in &#60;orders&#62;?"),
        "{}",
        paused.text
    );
    device.cli(&["access", "enable"]).await.ok();
    let asked = [("input", "What is in the folder?"), ("of", "published")];
    let run = visitor.send(&tried, &asked).await.redirect_target();
    let shown = run.strip_prefix(&format!("{page}?tried=")).expect("the service's page, with the run");
    let run_id = shown.strip_suffix("#try").expect("its place");
    let ended = device.cli(&["run", "show", run_id, "--wait", "40s"]).await.ok();
    assert_eq!(ended["run"]["state"], "succeeded", "{ended}");
    let beside = visitor.page(&format!("{page}?tried={run_id}")).await.text;
    assert!(beside.contains("id=\"trial-answer\"") && beside.contains("What is in the folder?"), "{beside}");
    let said = device.cli(&["service", "try", "Reader", "--input", "Again.", "--wait", "40s"]).await.ok();
    assert_eq!((&said["run"]["state"], &said["run"]["input"]["text"]), (&"succeeded".into(), &"Again.".into()));

    // Edited: the published version stays, and the difference is shown. A form of an older draft replaces nothing by
    // itself.
    let was = value(&visitor.page(&page).await.text, "was");
    let other = with(&sound, "description", "Reads slowly.");
    let edited = [&other[..], &[("was", was.as_str()), ("then", "check")]].concat();
    visitor.send(&page, &edited).await.redirect_target();
    let changed = visitor.page(&page).await.text;
    assert!(changed.contains("What this draft changes") && changed.contains("Reads slowly."), "{changed}");
    assert!(changed.contains("PASS") && !changed.contains("was PASS"), "it was checked as it is: {changed}");
    // A draft that was checked is tried by itself; callers keep what is published.
    assert!(changed.contains("<option value=\"draft\" selected>"), "{changed}");
    let run = visitor.send(&tried, &[("input", "As it will be?"), ("of", "draft")]).await.redirect_target();
    let run_id = run.trim_start_matches(&format!("{page}?tried=")).trim_end_matches("#try");
    let ended = device.cli(&["run", "show", run_id, "--wait", "40s"]).await.ok();
    assert_eq!((&ended["run"]["state"], &ended["run"]["endpoint_version"]), (&"succeeded".into(), &0.into()));
    assert!(visitor.page(&run).await.text.contains("<span>draft</span>"));
    assert!(visitor.page(&format!("/runs/{run_id}")).await.text.contains(", draft</dd>"));
    let said =
        device.cli(&["service", "try", "Reader", "--draft", "--input", "Once more.", "--wait", "40s"]).await.ok();
    assert_eq!(said["run"]["endpoint_version"], 0);
    let differs = device.plain_cli(&["service", "diff", "Reader"]).await.stdout;
    assert!(differs.contains("description") && differs.contains("+Reads slowly."), "{differs}");
    let was = value(&changed, "was");
    let unchecked = [&with(&other, "expiry", "3")[..], &[("was", was.as_str())]].concat();
    visitor.send(&page, &unchecked).await.redirect_target();
    let outdated = visitor.page(&page).await.text;
    assert!(outdated.contains("was PASS") && outdated.contains("changed since"), "{outdated}");
    assert!(device.plain_cli(&["service", "show", "Reader"]).await.stdout.contains("changed since"));
    let stale = with(&edited, "description", "Written in another window.");
    let refused = visitor.send(&page, &stale).await;
    assert_eq!(refused.status, StatusCode::CONFLICT);
    assert!(refused.text.contains("Written in another window."), "what was written is kept");
    let late = visitor.send(&format!("{page}/publish"), &[("definition", &definition)]).await;
    assert_eq!(late.status, StatusCode::CONFLICT, "the question was about another draft");
    let unchecked = device.cli(&["service", "try", "Reader", "--draft", "--input", "Early?"]).await;
    assert!(unchecked.stderr.contains("has not been checked"), "{}", unchecked.stderr);
    let now = device.cli(&["service", "show", "Reader"]).await.ok();
    assert_eq!(now["draft"]["description"], "Reads slowly.");
    assert_eq!(now["published"]["definition"]["description"], "Reads & answers.");

    // Two versions, and what the second changed.
    device.cli(&["service", "check", "Reader"]).await.ok();
    device.cli(&["service", "publish", "Reader"]).await.ok();
    let listed = device.cli(&["service", "versions", "Reader"]).await.ok();
    let numbers: Vec<_> = listed["versions"].as_array().expect("a list").iter().map(|one| &one["version"]).collect();
    assert_eq!(numbers, [2, 1]);
    let below = visitor.page(&page).await.text;
    assert!(below.contains("<b>Version 2</b>") && below.contains("?from=1&amp;to=2"), "{below}");
    let compared = visitor.page(&format!("{page}/versions?from=1&to=2")).await.text;
    assert!(compared.contains("From version 1 to version 2"), "{compared}");
    assert!(compared.contains("<del>&#38;</del>") || compared.contains("<ins>slowly"), "word for word: {compared}");
    let same = visitor.page(&format!("{page}/versions")).await.text;
    assert!(same.contains("Nothing: they are the same."), "{same}");
    assert_eq!(visitor.page(&format!("{page}/versions?from=7")).await.status, StatusCode::NOT_FOUND);
    let unknown = device.cli(&["service", "diff", "Reader", "7"]).await;
    assert!(unknown.stderr.contains("no version 7"), "{}", unknown.stderr);
    let of_versions = device.cli(&["service", "diff", "Reader", "1", "2"]).await.ok();
    assert_eq!(of_versions["fields"][0]["field"], "approvals", "{of_versions}");
}

#[tokio::test]
async fn each_check_is_shown_as_soon_as_it_is_known() {
    let (device, folder) = (TestDevice::built_in().await, Folder::new());
    // A model that accepts the question, and is silent until it is released.
    let model = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let url = format!("http://{}/v1", model.local_addr().expect("bound"));
    device.cli(&["provider", "set", "slow", "--profile", "compatible", "--base-url", &url]).await.ok();
    device.cli(&["app", "create", "Billing"]).await.ok();
    let (path, slow) = (folder.path().display().to_string(), ["--provider", "slow", "--model", "m-1"]);
    let fixed = ["service", "create", "Slow", "--app", "Billing", "--dir", &path];
    let created = device.cli(&[&fixed[..], &slow].concat()).await.ok();
    let page = format!("/services/{}", created["draft_id"].as_str().expect("a draft"));
    let visitor = Visitor::of(&device).await;
    assert!(!visitor.page(&page).await.text.contains("not known yet"));

    let command = device.begin_cli(&["service", "check", "Slow"]);
    let (asked, _) = model.accept().await.expect("the model is asked");
    command.log.line(&["PASS  directory is readable"]).await;
    assert!(!command.log.own().contains("instructions"), "{}", command.log.own());
    let during = visitor.page(&page).await.text;
    for shown in ["<b>directory is readable</b>", "not known yet", "4 found, 8 to come", "disabled"] {
        assert!(during.contains(shown), "{shown}: {during}");
    }
    // From now on its address does not answer, and the model counts as unreachable.
    drop((asked, model));
    command.log.line(&["FAIL  provider and model"]).await;
    command.log.line(&["PASS  directory is writable"]).await;
    let log = command.log.own();
    assert_eq!(log.matches("directory exists").count(), 1, "each line is said once: {log}");
    assert_eq!(command.ended().await.code(), Some(10));
    let after = visitor.page(&page).await.text;
    assert!(!after.contains("not known yet") && after.contains("FAIL"), "{after}");
}

#[tokio::test]
async fn a_provider_is_kept_on_its_page_and_its_key_never_comes_back() {
    let device = TestDevice::built_in().await;
    let visitor = Visitor::of(&device).await;
    let all = |name: &'static str, url: &'static str, key: &'static str| {
        [("name", name), ("profile", "compatible"), ("base_url", url), ("key", key)]
    };
    for (name, url, key, said) in [
        ("work", "https://models.example/v1", "dgk_canary", "this is an application key"),
        ("Not A Name", "https://models.example/v1", "sk-canary", "a provider&#39;s name has"),
        ("work", "http://models.example/v1", "sk-canary", "the API base URL"),
    ] {
        let failed = visitor.send("/providers/new", &all(name, url, key)).await;
        assert_eq!(failed.status, StatusCode::UNPROCESSABLE_ENTITY, "{}", failed.text);
        assert!(failed.text.contains(said) && !failed.text.contains("canary"), "{said}: {}", failed.text);
        assert!(failed.text.contains(&format!("value=\"{name}\"")) && failed.text.contains(url), "{}", failed.text);
    }
    let good = all("work", "https://models.example/v1", "sk-canary");
    assert_eq!(visitor.send_as_it_is("/providers/new", &good).await.status, StatusCode::FORBIDDEN);
    assert_eq!(visitor.send("/providers/new", &good).await.redirect_target(), "/providers");
    let form = visitor.page("/providers/work").await.text;
    assert!(form.contains("saved · leave blank to keep") && !form.contains("canary"), "{form}");

    // A blank field keeps the key, but not for another address.
    let kept = [("profile", "compatible"), ("base_url", "https://models.example/v1"), ("key", "")];
    visitor.send("/providers/work", &kept).await.redirect_target();
    let moved = visitor.send("/providers/work", &with(&kept, "base_url", "https://elsewhere.example/v1")).await;
    assert_eq!(moved.status, StatusCode::UNPROCESSABLE_ENTITY, "{}", moved.text);
    let listed = || async { device.cli(&["provider", "list"]).await.ok()["providers"].clone() };
    let provider = &listed().await[0];
    assert_eq!((&provider["base_url"], &provider["has_key"]), (&"https://models.example/v1".into(), &true.into()));

    // Another vendor has another address, whatever still stands in the field, and the key stays where it belongs.
    let other = with(&with(&kept, "profile", "anthropic"), "key", "sk-other");
    visitor.send("/providers/work", &other).await.redirect_target();
    assert_eq!(listed().await[0]["base_url"], "https://api.anthropic.com");

    assert!(visitor.page("/providers/work/remove").await.text.contains("No service names it"));
    visitor.send("/providers/work/remove", &[]).await.redirect_target();
    assert_eq!(listed().await, serde_json::json!([]));
    assert_eq!(visitor.page("/providers/work").await.status, StatusCode::NOT_FOUND);
}
