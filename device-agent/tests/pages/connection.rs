//! The page of the connection.

use deskgate::settings::Mode;
use deskgate_protocol::secret::{ApplicationKey, ControlToken};

use crate::fixture::PagesFixture;

const PINNED_FINGERPRINT: &str = "SHA256:5TYAUnj1p7hSySxwLSzuo2ncngeS76sPafw9EyRvV6g";

/// A form for a remote gateway that does not exist.
fn remote<'a>(button: &'a str, change: &[(&'a str, &'a str)]) -> Vec<(&'a str, &'a str)> {
    let fields = [
        ("mode", "remote"),
        ("do", button),
        ("ssh-address", "127.0.0.1:9"),
        ("ssh-user", "gate"),
        ("control-socket", "/run/gate.sock"),
        ("host-key", PINNED_FINGERPRINT),
        ("known-hosts", ""),
        ("control-token", ""),
    ];
    let changed = |name| change.iter().find(|(key, _)| *key == name).map(|(_, value)| *value);
    fields.into_iter().map(|(name, value)| (name, changed(name).unwrap_or(value))).collect()
}

#[tokio::test]
async fn a_draft_changes_nothing_that_is_in_force_until_it_is_saved() {
    let room = PagesFixture::new().await;
    let (old, new) = (ControlToken::generate(), ControlToken::generate());
    deskgate_program::token::save(&room.home().join("control_token"), &old).expect("saved");
    let drafted = room.post("/connection", &remote("draft", &[("control-token", new.reveal())])).await;
    assert_eq!((drafted.status, drafted.leads_to()), (303, "/connection?mode=remote&said=draft"));
    let connection = room.connection().await;
    assert!(connection.mode == Mode::BuiltIn && connection.saved.remote.ssh_address.is_empty() && room.dialled() == 0);
    assert_eq!(room.file("control_token").expect("there").trim(), old.reveal(), "the token is a draft too");

    let page = room.get("/connection?mode=remote").await;
    assert_eq!((page.field("ssh-address"), page.field("host-key")), ("127.0.0.1:9", PINNED_FINGERPRINT));
    assert!(page.body.contains("in the draft · leave blank to keep") && page.body.contains(">draft</span>"));
    assert!(!page.body.contains(new.reveal()) && page.body.contains("pauses access until you enable it again"));

    let saved = room.post("/connection", &remote("save", &[])).await;
    assert_eq!((saved.status, saved.leads_to()), (303, "/connection?mode=remote&said=saved"), "{}", saved.body);
    let connection = room.connection().await;
    assert!(connection.mode == Mode::Remote && connection.pause_access && connection.remote_draft.is_none());
    assert_eq!(room.file("control_token").expect("there").trim(), new.reveal(), "a blank field keeps it");
    assert_eq!((room.dialled(), room.file("control_token.draft")), (1, None));
    let page = room.get("/connection").await;
    assert!(page.body.contains("saved · leave blank to keep") && !page.body.contains(">draft</span>"));
}

#[tokio::test]
async fn a_save_that_fails_keeps_every_field_and_names_each_that_is_wrong() {
    let room = PagesFixture::new().await;
    let wrong = [("ssh-address", "not a host"), ("host-key", "SHA1:\"x\""), ("control-socket", "gate.sock")];
    let answer = room.post("/connection", &remote("save", &wrong)).await;
    assert_eq!(answer.status, 409);
    assert_eq!((answer.field("ssh-address"), answer.field("ssh-user")), ("not a host", "gate"));
    assert_eq!((answer.field("control-socket"), answer.field("host-key")), ("gate.sock", "SHA1:&#34;x&#34;"));
    for name in ["ssh-address", "host-key", "control-socket"] {
        assert!(answer.body.contains(&format!("<a href=\"#{name}\">")), "the summary leads to {name}");
        assert!(answer.body.contains(&format!("id=\"{name}-wrong\"")), "{name} has its sentence");
    }
    assert!(answer.body.contains("role=\"alert\"") && !answer.body.contains("id=\"ssh-user-wrong\""));
    assert_eq!((room.connection().await.mode, room.dialled()), (Mode::BuiltIn, 0));

    let no_token = room.post("/connection", &remote("save", &[])).await;
    assert_eq!(no_token.status, 409);
    assert!(no_token.body.contains("id=\"control-token-wrong\""), "{}", no_token.body);
}

#[tokio::test]
async fn a_secret_that_was_pasted_into_the_wrong_field_is_named_and_comes_back_nowhere() {
    let room = PagesFixture::new().await;
    let key = ApplicationKey::generate(deskgate_protocol::ids::KeyId::new());
    for field in ["ssh-address", "ssh-user", "control-socket", "host-key", "known-hosts", "control-token"] {
        let answer = room.post("/connection", &remote("draft", &[(field, key.reveal())])).await;
        assert_eq!(answer.status, 422, "{field}");
        assert!(answer.body.contains("this is an application key"), "{field}");
        assert!(!answer.body.contains(key.reveal()), "{field}");
    }
    assert!(room.connection().await.remote_draft.is_none(), "nothing of it is kept");
    let listen = [("mode", "builtin"), ("do", "draft"), ("listen", key.reveal())];
    assert_eq!(room.post("/connection", &listen).await.status, 422);
}

#[tokio::test]
async fn a_draft_is_thrown_away_after_a_question_with_its_token() {
    let room = PagesFixture::new().await;
    let token = ControlToken::generate();
    room.post("/connection", &remote("draft", &[("control-token", token.reveal())])).await;
    assert!(room.get("/connection/discard?mode=remote").await.body.contains("class=\"question\""));
    assert!(room.connection().await.remote_draft.is_some(), "the question changes nothing");
    assert_eq!(room.post("/connection/discard", &[("mode", "remote")]).await.status, 303);
    assert_eq!((room.connection().await, room.file("control_token.draft")), (Default::default(), None));
}

#[tokio::test]
async fn a_test_tells_what_went_well_before_it_failed() {
    let room = PagesFixture::new().await;
    let token = ControlToken::generate();
    let silent = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = silent.local_addr().expect("bound").to_string();
    drop(silent);
    let fields = [("control-token", token.reveal()), ("ssh-address", address.as_str())];
    let answer = room.post("/connection", &remote("test", &fields)).await;
    assert_eq!(answer.status, 200);
    assert!(answer.body.contains("Failed: </span> Something answers"), "{}", answer.body);
    assert!(answer.body.contains("Not known: </span> Host key") && answer.body.contains("nothing listens there"));
    assert!(room.connection().await.remote_draft.is_some() && room.dialled() == 0, "a test puts nothing in force");
}

#[tokio::test]
async fn a_port_that_is_taken_is_not_put_in_force_for_the_gateway_that_is_built_in() {
    let room = PagesFixture::new().await;
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = taken.local_addr().expect("bound").to_string();
    let answer = room.post("/connection", &[("mode", "builtin"), ("do", "save"), ("listen", &address)]).await;
    assert_eq!((answer.status, answer.field("listen")), (409, address.as_str()));
    assert!(answer.body.contains("id=\"listen-wrong\"") && room.dialled() == 0);
}

#[tokio::test]
async fn a_form_without_the_sessions_token_changes_nothing() {
    let room = PagesFixture::new().await;
    for path in ["/connection", "/connection/abandon", "/connection/discard"] {
        assert_eq!(room.post_without_token(path, &remote("draft", &[])).await.status, 403, "{path}");
    }
    assert_eq!(room.connection().await, Default::default());
}

#[tokio::test]
async fn each_mode_has_a_draft_of_its_own_and_a_hosted_address_is_checked_where_it_stands() {
    let room = PagesFixture::new().await;
    let hosted =
        |what: &'static str, address: &'static str| [("mode", "hosted"), ("do", what), ("gateway-address", address)];
    assert_eq!(room.post("/connection", &hosted("draft", "https://gateway.example.com")).await.status, 303);
    let connection = room.connection().await;
    assert!(connection.hosted_draft.is_some() && connection.remote_draft.is_none(), "{connection:?}");
    for wrong in ["http://gateway.example.com", "gateway.example.com", ""] {
        let answer = room.post("/connection", &hosted("sign-in", wrong)).await;
        assert_eq!((answer.status, answer.field("gateway-address")), (422, wrong), "{wrong}");
        assert!(answer.body.contains("id=\"gateway-address-wrong\""), "{wrong}");
    }
    assert_eq!(room.post("/connection", &[("mode", "else"), ("do", "save")]).await.status, 422);
    assert_eq!(room.dialled(), 0);
}

#[tokio::test]
async fn the_identity_file_is_handed_out_whole() {
    let room = PagesFixture::new().await;
    let answer = room.get("/connection/identity.json").await;
    assert!(answer.header("content-disposition").starts_with("attachment"), "{}", answer.head);
    let identity: serde_json::Value = serde_json::from_str(&answer.body).expect("JSON");
    let fingerprint = identity["fingerprint"].as_str().expect("it has one");
    assert!(room.get("/connection").await.body.contains(fingerprint));
}

#[tokio::test]
async fn cancel_asks_once_when_something_would_be_lost_and_not_otherwise() {
    let room = PagesFixture::new().await;
    let page = room.get("/connection?mode=remote").await;
    let as_shown: Vec<_> = ["ssh-address", "ssh-user", "control-socket", "host-key", "known-hosts"]
        .into_iter()
        .map(|name| (name, page.field(name)))
        .chain([("mode", "remote"), ("do", "cancel"), ("control-token", "")])
        .collect();
    let unchanged = room.post("/connection", &as_shown).await;
    assert_eq!((unchanged.status, unchanged.leads_to()), (303, "/connection"), "{}", unchanged.body);
    assert_eq!(room.connection().await, Default::default());

    let changed = room.post("/connection", &remote("cancel", &[])).await;
    assert_eq!((changed.status, changed.leads_to()), (303, "/connection/discard?mode=remote"));
    let kept = room.get("/connection?mode=remote").await;
    assert_eq!(kept.field("ssh-address"), "127.0.0.1:9", "whoever answers no goes on where they were");
    assert_eq!(room.post("/connection/discard", &[("mode", "remote")]).await.status, 303);
    assert_eq!((room.connection().await, room.dialled()), (Default::default(), 0));
}

#[tokio::test]
async fn the_identity_can_be_read_out_copied_and_scanned() {
    let room = PagesFixture::new().await;
    let identity: deskgate_protocol::identity::IdentityFile =
        serde_json::from_str(&room.get("/connection/identity.json").await.body).expect("an identity");
    let page = room.get("/connection").await.body;
    assert!(page.contains(&identity.public_key.short_code()) && page.contains("data-copy=\"identity\""));
    assert!(page.contains("aria-label=\"A QR code of the identity file\"") && page.contains("h1v1h-1z"));
}
