//! The page of the settings.

use deskgate::settings::{KeepAwake, Theme};

use crate::room::Room;

fn form<'a>(change: &[(&'a str, &'a str)]) -> Vec<(&'a str, &'a str)> {
    let fields =
        [("device-name", "Desk"), ("slots", "2"), ("theme", "dark"), ("pages-port", "7500"), ("keep-awake", "on-ac")];
    let changed = |name| change.iter().find(|(key, _)| *key == name).map(|(_, value)| *value);
    fields.into_iter().map(|(name, value)| (name, changed(name).unwrap_or(value))).collect()
}

#[tokio::test]
async fn what_is_chosen_is_kept_and_the_page_says_what_waits_for_the_next_start() {
    let room = Room::new().await;
    assert!(!room.get("/settings").await.body.contains("data-theme"), "as the system");
    let saved = room.post("/settings", &form(&[])).await;
    assert_eq!((saved.status, saved.leads_to()), (303, "/settings?said=saved"), "{}", saved.body);
    let settings = room.store.settings();
    assert_eq!(settings.device_name().await.expect("readable").as_deref(), Some("Desk"));
    assert_eq!(settings.slots().await.expect("readable"), Some(2));
    assert_eq!(settings.theme().await.expect("readable"), Theme::Dark);
    assert_eq!(settings.page_port().await.expect("readable"), Some(7500));
    assert_eq!(settings.keep_awake().await.expect("readable"), KeepAwake::OnAc);
    let page = room.get("/settings").await;
    assert!(page.body.contains("<html lang=\"en\" data-theme=\"dark\">"));
    assert!(page.body.contains("Start the agent again for the other port"));
    assert!(room.get("/connection").await.body.contains("data-theme=\"dark\""), "on every page");
}

#[tokio::test]
async fn a_choice_that_is_none_keeps_every_field_and_changes_nothing() {
    let room = Room::new().await;
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
    let room = Room::new().await;
    for path in ["/settings", "/settings/autostart", "/settings/secrets"] {
        assert_eq!(room.post_without_token(path, &form(&[("enabled", "yes")])).await.status, 403, "{path}");
    }
    assert_eq!(room.store.settings().slots().await.expect("readable"), None);
}

#[tokio::test]
async fn every_browser_is_signed_out_after_a_question() {
    let room = Room::new().await;
    assert!(room.get("/settings/sign-out").await.body.contains("action=\"/sign-out\""));
    assert_eq!(room.post("/sign-out", &[]).await.status, 303);
    assert!(room.get("/settings").await.body.contains("deskgate open"), "it asks for a link again");
}

#[tokio::test]
async fn the_page_says_where_secrets_are_and_never_what_they_are() {
    let room = Room::new().await;
    let page = room.get("/settings").await.body;
    assert!(page.contains(&room.home().join("identity_ed25519").display().to_string()));
    let key = room.file("identity_ed25519").expect("a key");
    assert!(!page.contains(key.lines().nth(1).expect("its text")));
}
