//! The page of the settings.

use deskgate::settings::{KeepAwake, Theme};
use deskgate_store::RetentionSettings;

use crate::fixture::PagesFixture;

/// A complete form of the settings, with these changes.
pub(crate) fn form<'a>(change: &[(&'a str, &'a str)]) -> Vec<(&'a str, &'a str)> {
    let fields =
        [("device-name", "Desk"), ("slots", "2"), ("theme", "dark"), ("pages-port", "7500"), ("keep-awake", "on-ac")];
    let changed = |name| change.iter().find(|(key, _)| *key == name).map(|(_, value)| *value);
    fields.into_iter().map(|(name, value)| (name, changed(name).unwrap_or(value))).collect()
}

#[tokio::test]
async fn what_is_chosen_is_kept_and_the_page_says_what_waits_for_the_next_start() {
    let room = PagesFixture::new().await;
    assert!(!room.get("/settings").await.body.contains("data-theme"), "as the system");
    let saved = room.post("/settings", &form(&[])).await;
    assert_eq!((saved.status, saved.leads_to()), (303, "/settings?said=saved"), "{}", saved.body);
    let settings = room.store.settings();
    assert_eq!(settings.device_name().await.expect("readable").as_deref(), Some("Desk"));
    assert_eq!(settings.slots().await.expect("readable"), Some(2));
    assert_eq!(settings.get::<Theme>().await.expect("readable"), Theme::Dark);
    assert_eq!(settings.page_port().await.expect("readable"), Some(7500));
    assert_eq!(settings.get::<KeepAwake>().await.expect("readable"), KeepAwake::OnAc);
    let page = room.get("/settings").await;
    assert!(page.body.contains("<html lang=\"en\" data-theme=\"dark\">"));
    assert!(page.body.contains("Start the agent again for the other port"));
    assert!(room.get("/connection").await.body.contains("data-theme=\"dark\""), "on every page");
}

#[tokio::test]
async fn a_choice_that_is_none_keeps_every_field_and_changes_nothing() {
    let room = PagesFixture::new().await;
    for (field, value) in
        [("slots", "0"), ("slots", "many"), ("pages-port", "80"), ("pages-port", "70000"), ("device-name", "")]
    {
        let answer = room.post("/settings", &form(&[(field, value)])).await;
        assert_eq!((answer.status, answer.field(field)), (422, value), "{field}");
        assert!(answer.body.contains(&format!("id=\"{field}-wrong\"")), "{field}={value}: {}", answer.body);
        assert!(answer.body.contains("value=\"dark\" checked"), "the other fields stay");
    }
    let secret = room.post("/settings", &form(&[("device-name", "dgk_canary")])).await;
    assert!(secret.body.contains("this is an application key") && !secret.body.contains("canary"));
    assert_eq!(room.post("/settings", &form(&[("theme", "pink")])).await.status, 422);
    assert_eq!(room.post("/settings", &form(&[("keep-awake", "at-noon")])).await.status, 422);
    assert_eq!(room.store.settings().slots().await.expect("readable"), None);
}

#[tokio::test]
async fn a_form_without_the_sessions_token_changes_nothing() {
    let room = PagesFixture::new().await;
    for path in ["/settings", "/settings/autostart", "/settings/retention", "/settings/secrets"] {
        assert_eq!(room.post_without_token(path, &form(&[("enabled", "yes")])).await.status, 403, "{path}");
    }
    assert_eq!(room.store.settings().slots().await.expect("readable"), None);
}

#[tokio::test]
async fn every_browser_is_signed_out_after_a_question() {
    let room = PagesFixture::new().await;
    assert!(room.get("/settings/sign-out").await.body.contains("action=\"/sign-out\""));
    assert_eq!(room.post("/sign-out", &[]).await.status, 303);
    assert!(room.get("/settings").await.body.contains("deskgate open"), "it asks for a link again");
}

#[tokio::test]
async fn the_page_says_where_secrets_are_and_never_what_they_are() {
    let room = PagesFixture::new().await;
    let page = room.get("/settings").await.body;
    assert!(page.contains(&room.home().join("identity_ed25519").display().to_string()));
    let key = room.file("identity_ed25519").expect("a key");
    assert!(!page.contains(key.lines().nth(1).expect("its text")));
}

const RETENTION_DAYS: [(&str, &str); 5] = [
    ("keep-runs", "30"),
    ("keep-conversations", "60"),
    ("keep-journal", "90"),
    ("keep-calls", "30"),
    ("keep-log", "10"),
];

#[tokio::test]
async fn what_a_shorter_time_deletes_is_said_with_numbers_before_anything_is_deleted() {
    let room = PagesFixture::new().await;
    let new = format!("{}  INFO today\n", deskgate_protocol::Timestamp::now());
    let log = format!("2026-01-01T00:00:00Z  INFO long ago\nits second line\n{new}");
    std::fs::write(room.home().join("agent.log"), &log).expect("ours");
    let query = RETENTION_DAYS.map(|(name, days)| format!("{name}={days}")).join("&");
    let question = room.get(&format!("/settings/retention?{query}")).await;
    assert_eq!(question.status, 200, "{}", question.body);
    for said in [
        "Delete what is older?",
        "<strong>2</strong>",
        "90 days",
        "10 days",
        "the gateway is on a server",
        "class=\"question\"",
    ] {
        assert!(question.body.contains(said), "{said}: {}", question.body);
    }
    assert_eq!(question.field("keep-conversations"), "60");
    assert_eq!(room.file("agent.log").as_deref(), Some(log.as_str()), "a question deletes nothing");
    assert_eq!(room.store.settings().get::<RetentionSettings>().await.expect("readable"), RetentionSettings::DEFAULT);

    assert_eq!(room.post("/settings/retention", &RETENTION_DAYS).await.leads_to(), "/settings?said=kept#retention");
    assert_eq!(room.file("agent.log"), Some(new));
    assert_eq!(room.store.settings().get::<RetentionSettings>().await.expect("readable").log, 10);
    assert_eq!(room.get("/settings").await.field("keep-log"), "10");
    assert!(room.get(&format!("/settings/retention?{query}")).await.body.contains("Nothing goes now"));
}

#[tokio::test]
async fn days_that_are_none_keep_every_field_and_change_nothing() {
    let room = PagesFixture::new().await;
    for (field, value) in [("keep-log", "0"), ("keep-runs", "366"), ("keep-journal", "ever")] {
        let sent = RETENTION_DAYS.map(|(name, days)| (name, if name == field { value } else { days }));
        let query = sent.map(|(name, days)| format!("{name}={days}")).join("&");
        for failed in
            [room.get(&format!("/settings/retention?{query}")).await, room.post("/settings/retention", &sent).await]
        {
            assert_eq!((failed.status, failed.field(field)), (422, value), "{}", failed.body);
            assert!(failed.body.contains(&format!("id=\"{field}-wrong\"")), "{}", failed.body);
            assert_eq!(failed.field("keep-conversations"), "60", "the other fields stay");
            assert_ne!(failed.field("device-name"), failed.field("keep-log"), "and those of the other forms");
        }
    }
    assert_eq!(room.store.settings().get::<RetentionSettings>().await.expect("readable"), RetentionSettings::DEFAULT);
}
