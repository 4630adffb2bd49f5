//! Search: by identifier or name, on the pages and on the command line.

use deskgate_tests::visitor::Visitor;
use deskgate_tests::{Folder, TestDevice};
use reqwest::StatusCode;
use serde_json::Value;

use crate::text;

fn kinds(found: &Value) -> Vec<&str> {
    found["things"].as_array().expect("a list").iter().map(|thing| text(thing, "/kind")).collect()
}

#[tokio::test]
async fn what_has_an_identifier_or_a_name_is_found_and_what_is_meant_for_certain_opens() {
    let (device, folder) = (TestDevice::built_in().await, Folder::new());
    let backend = device.publish_here("Billing", &folder, &[]).await;
    let run_id = backend.submit("Look.").await;
    let created = device.cli(&["key", "create", "backend of Berlin", "--app", "Billing"]).await.ok();
    let find = async |text: &str| device.cli(&["find", text]).await.ok();
    let both = find("billing").await;
    assert_eq!(kinds(&both), ["application", "service"], "two things have this name: {both}");
    assert_eq!(kinds(&find("bill").await), ["application", "service"]);
    let key = find("berlin").await;
    assert_eq!((kinds(&key), text(&key, "/things/0/id")), (vec!["key"], text(&created, "/key/key_id")), "{key}");
    assert_eq!(kinds(&find(&run_id).await), ["run"]);
    let end = &run_id[run_id.len() - 6..];
    assert_eq!(kinds(&find(&format!("…{end}")).await), ["run"], "as lists show it");
    assert!(kinds(&find(end).await).contains(&"run"));
    assert_eq!(kinds(&find(&run_id[..20]).await), [""; 0], "a part of a run's identifier is none");
    let plain = device.plain_cli(&["find", "nothing of this name"]).await;
    assert!(plain.exit == 0 && plain.stdout.contains("Nothing has"), "{}", plain.stdout);

    let visitor = Visitor::of(&device).await;
    let found = visitor.page(&format!("/search?q={run_id}")).await;
    assert_eq!((found.status, found.leads_to.as_str()), (StatusCode::SEE_OTHER, format!("/runs/{run_id}").as_str()));
    let listed = visitor.page("/search?q=BILLING").await;
    assert_eq!(listed.status, StatusCode::OK, "{}", listed.text);
    for (kind, thing) in [("Applications", "app_id"), ("Services", "endpoint_id")] {
        assert!(listed.text.contains(&format!(">{kind}</h2>")), "{thing}: {}", listed.text);
    }
    assert!(listed.text.contains("value=\"BILLING\""), "what was looked for stays in the field");
    let secret = device.cli(&["find", "dgk_canarycanarycanary"]).await;
    assert!(secret.exit != 0 && !secret.stderr.contains("canary"), "{}", secret.stderr);
    let secret = visitor.page("/search?q=dgk_canarycanarycanary").await;
    assert_eq!(secret.status, StatusCode::UNPROCESSABLE_ENTITY);
    assert!(secret.text.contains("this is an application key") && !secret.text.contains("canary"), "{}", secret.text);
}
