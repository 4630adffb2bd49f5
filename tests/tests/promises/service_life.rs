//! A service is disabled for a time, unpublished and published again, moved to another application, and removed.

use deskgate_tests::{Backend, Folder, GatewayProcess, Postgres, TestDevice};
use serde_json::{Value, json};

use crate::text;

struct Site {
    gateway: GatewayProcess,
    device: TestDevice,
    folder: Folder,
    backend: Backend,
    _postgres: Postgres,
}

/// A published service that executes one run at a time, and takes its time.
async fn site() -> Site {
    let postgres = Postgres::shared().await;
    let gateway = GatewayProcess::start(&postgres, &[]).await;
    let device = TestDevice::paired_with(&gateway).await;
    let folder = Folder::new();
    let model = answers(&folder, 600_000);
    let backend = device.publish(&gateway, "shop", &folder, &["--model", &model]).await;
    Site { gateway, device, folder, backend, _postgres: postgres }
}

fn answers(folder: &Folder, delay_ms: u64) -> String {
    folder.script("service", json!([{ "delay_ms": delay_ms }, { "text": "done" }]))
}

impl Site {
    async fn running(&self) -> String {
        let run_id = self.backend.submit("Take your time.").await;
        self.backend.wait_for_state(&run_id, "running").await;
        run_id
    }

    /// The services that this computer lists, by name and stage.
    async fn services(&self) -> Vec<(String, String)> {
        let listed = self.device.cli(&["service", "list"]).await.ok();
        let pair = |service: &Value| (text(service, "/draft/name").to_owned(), text(service, "/stage").to_owned());
        listed["services"].as_array().expect("a list").iter().map(pair).collect()
    }

    async fn submission(&self) -> (u16, String) {
        let answer = self.backend.try_submit(&deskgate_tests::backend::fresh_key(), "Anyone?").await.expect("answered");
        (answer.status.as_u16(), answer.code().to_owned())
    }
}

#[tokio::test]
async fn an_unpublished_service_ends_every_run_it_accepted_and_comes_back_under_its_own_id() {
    let site = site().await;
    let (device, backend) = (&site.device, &site.backend);
    let running = site.running().await;
    let queued = backend.submit("And this?").await;
    let asked = device.cli(&["service", "unpublish", "shop"]).await;
    let question = &asked.stderr;
    assert_eq!(asked.exit, 1, "{question}");
    for part in ["1 queued run, cancelled", "1 started run, stopped", "no changes made", "service disable"] {
        assert!(question.contains(part), "{part}: {question}");
    }
    assert_eq!(text(&backend.run(&queued).await, "/state"), "queued");

    let unpublished = device.cli(&["service", "unpublish", "shop", "--yes"]).await.ok();
    assert_eq!(unpublished["stage"], "checked", "{unpublished}");
    for run_id in [&running, &queued] {
        let run = backend.wait_for_end(run_id).await;
        assert_eq!((text(&run, "/state"), text(&run, "/stop/requested_by")), ("cancelled", "desktop_user"), "{run}");
    }
    assert_eq!((device.executions(&running), device.executions(&queued)), (1, 0));
    assert_eq!(site.submission().await, (404, "not_found".to_owned()));
    assert_eq!(backend.endpoints().await.body["endpoints"], json!([]));
    let refused = device.cli(&["service", "try", "shop", "--input", "Anyone?"]).await;
    assert_eq!(refused.exit, 6, "{}", refused.stderr);
    // Repeated, there is nothing to ask.
    device.cli(&["service", "unpublish", "shop"]).await.ok();

    answers(&site.folder, 0);
    let namesake = device.add_service("shop", "shop", &site.folder, &["--description", "Another."]).await;
    device.cli(&["service", "remove", &namesake, "--yes"]).await.ok();
    let back = device.cli(&["service", "publish", "shop"]).await.ok();
    assert_eq!((text(&back, "/endpoint_id"), text(&back, "/stage")), (backend.endpoint_id(), "published"));
    let again = backend.submit("Still there?").await;
    assert_eq!(text(&backend.wait_for_end(&again).await, "/state"), "succeeded");
}

#[tokio::test]
async fn a_disabled_service_refuses_new_calls_and_executes_what_it_accepted() {
    let site = site().await;
    let (device, backend) = (&site.device, &site.backend);
    answers(&site.folder, 3_000);
    let (running, queued) = (site.running().await, backend.submit("And this?").await);
    device.cli(&["service", "disable", "shop"]).await.ok();
    assert_eq!(site.submission().await, (503, "access_paused".to_owned()));
    assert_eq!(site.services().await, [("shop".to_owned(), "disabled".to_owned())]);
    let refused = device.cli(&["service", "try", "shop", "--input", "Anyone?"]).await;
    assert!(refused.exit == 6 && refused.stderr.contains("service enable"), "{}", refused.stderr);
    for run_id in [&running, &queued] {
        assert_eq!(text(&backend.wait_for_end(run_id).await, "/state"), "succeeded");
    }
    device.cli(&["service", "disable", "shop"]).await.ok();
    device.cli(&["service", "enable", "shop"]).await.ok();
    assert_eq!(site.submission().await.0, 202);
}

#[tokio::test]
async fn without_its_gateway_nothing_is_removed_and_with_it_the_name_is_free() {
    let site = site().await;
    let (device, backend) = (&site.device, &site.backend);
    let (running, queued) = (site.running().await, backend.submit("And this?").await);
    let device_id = device.device_id().await;
    device.proxy().cut();
    site.gateway.wait_for_device_state(&device_id, "offline").await;
    device.wait_for_line_state("disconnected").await;
    for step in [&["remove", "shop", "--yes"][..], &["unpublish", "shop", "--yes"], &["disable", "shop"]] {
        let refused = device.cli(&[&["service"], step].concat()).await;
        assert_eq!(refused.exit, 5, "{step:?}: {}", refused.stderr);
    }
    let listed = device.plain_cli(&["service", "list"]).await.stdout;
    assert!(listed.contains("gateway not reached"), "{listed}");
    let spare = device.cli(&["service", "duplicate", "shop", "spare"]).await.ok();
    device.cli(&["service", "remove", text(&spare, "/draft_id"), "--yes"]).await.ok();
    device.proxy().heal();
    device.wait_until_connected().await;

    device.cli(&["service", "remove", "shop", "--yes"]).await.ok();
    assert_eq!(site.services().await, []);
    for run_id in [&running, &queued] {
        assert_eq!(text(&backend.wait_for_end(run_id).await, "/state"), "cancelled");
    }
    assert_eq!(site.submission().await, (404, "not_found".to_owned()));
    assert_eq!(device.cli(&["service", "remove", "shop", "--yes"]).await.exit, 1, "there is none any more");
    answers(&site.folder, 0);
    let endpoint_id = device.add_service("shop", "shop", &site.folder, &[]).await;
    assert_ne!(endpoint_id, backend.endpoint_id());
    let backend = Backend::new(site.gateway.http(), backend.key(), &endpoint_id);
    let run_id = backend.submit("And the new one?").await;
    assert_eq!(text(&backend.wait_for_end(&run_id).await, "/state"), "succeeded");
}

#[tokio::test]
async fn a_moved_service_ends_in_one_application_and_is_published_in_the_other_with_its_budget() {
    let site = site().await;
    let (device, backend) = (&site.device, &site.backend);
    device.cli(&["budget", "set", "--service", "shop", "--tokens", "5000"]).await.ok();
    let queued = {
        site.running().await;
        backend.submit("And this?").await
    };
    let other = device.cli(&["app", "create", "Billing"]).await.ok();
    let draft = device.cli(&["service", "show", "shop"]).await.ok();
    assert_eq!(device.cli(&["service", "move", "shop", "--app", "Billing"]).await.exit, 1, "it asks first");
    let moved = device.cli(&["service", "move", "shop", "--app", "Billing", "--yes"]).await.ok();
    assert_eq!((&moved["draft_id"], &moved["app_id"]), (&draft["draft_id"], &other["application"]["app_id"]));
    assert_eq!((text(&moved, "/stage"), &moved["endpoint_id"]), ("checked", &Value::Null));
    assert_eq!(text(&backend.wait_for_end(&queued).await, "/state"), "cancelled");
    assert_eq!(site.submission().await, (404, "not_found".to_owned()));
    device.cli(&["service", "move", "shop", "--app", "Billing"]).await.ok();

    answers(&site.folder, 0);
    let published = device.cli(&["service", "publish", "shop"]).await.ok();
    let endpoint_id = text(&published, "/endpoint_id");
    assert_ne!(endpoint_id, backend.endpoint_id());
    let caller = Backend::new(site.gateway.http(), text(&other, "/key/text"), endpoint_id);
    let run_id = caller.submit("And here?").await;
    assert_eq!(text(&caller.wait_for_end(&run_id).await, "/state"), "succeeded");
    let budgets = device.cli(&["budget", "list"]).await.ok();
    assert!(budgets.to_string().contains(endpoint_id), "{budgets}");
}

#[tokio::test]
async fn a_renamed_service_is_seen_by_callers_once_it_is_published_again() {
    let site = site().await;
    let (device, backend) = (&site.device, &site.backend);
    let renamed = device.plain_cli(&["service", "rename", "shop", "Orders"]).await;
    assert!(renamed.stdout.contains("Callers see \"shop\" until this draft is published"), "{}", renamed.stdout);
    assert_eq!(text(&backend.endpoints().await.body, "/endpoints/0/name"), "shop");
    for step in ["check", "publish"] {
        device.cli(&["service", step, "Orders"]).await.ok();
    }
    assert_eq!(text(&backend.endpoints().await.body, "/endpoints/0/name"), "Orders");
}

#[tokio::test]
async fn a_service_whose_application_was_removed_says_so_and_leaves_its_name_to_another() {
    let site = site().await;
    let device = &site.device;
    device.cli(&["app", "disable", "shop", "--yes", "--wait", "2m"]).await.ok();
    assert_eq!(site.services().await, [("shop".to_owned(), "ended".to_owned())]);
    device.cli(&["app", "remove", "shop", "--yes"]).await.ok();
    let old = device.cli(&["service", "show", "shop"]).await.ok();
    assert_eq!((text(&old, "/stage"), text(&old, "/standing")), ("ended", "ended"));
    device.cli(&["app", "create", "shop"]).await.ok();
    let new = device.add_service("shop", "shop", &site.folder, &[]).await;
    assert_eq!(text(&device.cli(&["service", "show", "shop"]).await.ok(), "/endpoint_id"), new);
    device.cli(&["service", "remove", text(&old, "/draft_id"), "--yes"]).await.ok();
    assert_eq!(site.services().await, [("shop".to_owned(), "published".to_owned())]);
}
