//! Pairing by an invitation: one line, one confirmation, whatever happens in between.

use deskgate_gateway::control::invited::MAX_INVITED;
use deskgate_protocol::Timestamp;
use deskgate_protocol::control::GatewayFrame;
use deskgate_protocol::invitation::{INVITATION_SCHEME, Invitation, InvitationToken};
use deskgate_tests::proxy::Proxy;
use deskgate_tests::raw::RawConnection;
use deskgate_tests::sshd::Sshd;
use deskgate_tests::visitor::Visitor;
use deskgate_tests::{Folder, GatewayProcess, Postgres, TestDevice, until};
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::text;

/// The only invitation, once it is in a state.
async fn invitation_that_is(gateway: &GatewayProcess, state: &str) -> Value {
    until("the invitation to be in its state", async || {
        let listed = gateway.admin(&["device", "invitations"]).await.ok();
        let newest = listed["invitations"][0].clone();
        if newest["state"] == state { Ok(newest) } else { Err(format!("{listed}")) }
    })
    .await
}

async fn invite(gateway: &GatewayProcess, more: &[&str]) -> String {
    let invited = gateway.admin(&[&["device", "invite", "--note", "laptop"], more].concat()).await.ok();
    text(&invited, "/line").to_owned()
}

/// Invites a device and confirms it. Returns its identifier once it is connected.
async fn paired(gateway: &GatewayProcess, device: &TestDevice) -> String {
    let line = invite(gateway, &[]).await;
    come(gateway, device, &line).await;
    let confirmed = gateway.admin(&["device", "confirm", &short_code(device).await]).await.ok();
    let device_id = text(&confirmed, "/device/device_id").to_owned();
    gateway.wait_for_device_state(&device_id, "paused").await;
    device_id
}

/// The device comes with an invitation, and waits for the administrator.
async fn come(gateway: &GatewayProcess, device: &TestDevice, line: &str) {
    device.cli(&["pair", line, "--yes", "--no-wait"]).await.ok();
    invitation_that_is(gateway, "waiting").await;
}

async fn short_code(device: &TestDevice) -> String {
    text(&device.cli(&["identity", "show"]).await.ok(), "/short_code").to_owned()
}

#[tokio::test]
async fn one_line_and_one_confirmation_pair_a_device_and_nobody_else_comes_in_by_it() {
    let postgres = Postgres::shared().await;
    let gateway = GatewayProcess::start(&postgres, &[]).await;
    let device = TestDevice::for_remote().await;
    let line = invite(&gateway, &[]).await;
    assert!(line.starts_with("dgi_"), "{line}");

    // The line is read where no list of processes shows it; without a yes nothing is done.
    let asked = device.cli_with_input(&["pair"], &format!("{line}\n")).await;
    assert!(asked.exit == 1 && asked.stderr.contains("host key    SHA256:"), "{}", asked.stderr);
    invitation_that_is(&gateway, "open").await;

    let begun = device.cli_with_input(&["pair", "--yes", "--no-wait"], &line).await.ok();
    assert_eq!(text(&begun, "/state"), "dialling");
    let waiting = invitation_that_is(&gateway, "waiting").await;
    let code = short_code(&device).await;
    assert_eq!(text(&waiting, "/short_code"), code, "both sides see the same code");
    assert_eq!(text(&waiting, "/note"), "laptop");
    assert!(!waiting.to_string().contains(&line[4..40]) && !gateway.log().all().contains(&line[4..40]));

    let wrong = gateway.admin(&["device", "confirm", "0000-0000-0000-0000"]).await;
    assert!(wrong.exit == 1 && wrong.stderr.contains("did not read"), "{}", wrong.stderr);
    assert_eq!(gateway.admin(&["device", "list"]).await.ok()["devices"], json!([]));
    let confirmed = gateway.admin(&["device", "confirm", &code.to_lowercase()]).await.ok();
    device.wait_until_connected().await;
    let device_id = text(&confirmed, "/device/device_id").to_owned();
    gateway.wait_for_device_state(&device_id, "paused").await;

    let folder = Folder::new();
    let backend = device.publish(&gateway, "shop", &folder, &[]).await;
    let run = backend.wait_for_end(&backend.submit("What does order 4711 say?").await).await;
    assert_eq!(text(&run, "/state"), "succeeded");

    // The same line opens nothing for another device, and is confirmed once.
    let stranger = TestDevice::for_remote().await;
    let refused = stranger.cli(&["pair", &line, "--yes"]).await;
    assert_eq!(refused.exit, 4, "{}", refused.stderr);
    assert!(refused.stderr.contains("Another device came with this invitation"), "{}", refused.stderr);
    assert!(refused.stderr.contains("deskgate-gateway admin device invite"), "{}", refused.stderr);
    let again = gateway.admin(&["device", "confirm", &code]).await;
    assert_eq!(again.exit, 1, "{}", again.stderr);
    assert_eq!(gateway.admin(&["device", "list"]).await.ok()["devices"].as_array().map(Vec::len), Some(1));
    let log = device.log().all() + &stranger.log().all() + &gateway.log().all();
    assert!(!log.contains("dgt_") && !log.contains("dgi_"), "no log has a secret");
}

#[tokio::test]
async fn a_pairing_that_is_cut_off_or_killed_goes_on_and_is_confirmed_once() {
    let postgres = Postgres::shared().await;
    let gateway = GatewayProcess::start(&postgres, &[]).await;
    let proxy = Proxy::to(gateway.ssh()).await;
    let mut device = TestDevice::for_remote().await;
    let line = invite(&gateway, &["--ssh-address", &proxy.address().to_string()]).await;
    come(&gateway, &device, &line).await;

    // A killed agent has forgotten the line, which is as good as before.
    device.kill_9();
    device.start().await;
    come(&gateway, &device, &line).await;

    // Confirmed while nothing gets through: the device comes again and learns it.
    proxy.cut();
    let code = short_code(&device).await;
    let confirmed = gateway.admin(&["device", "confirm", &code]).await.ok();
    assert_eq!(text(&confirmed, "/device/short_code"), code);
    proxy.heal();
    device.wait_until_connected().await;
    assert_eq!(gateway.admin(&["device", "list"]).await.ok()["devices"].as_array().map(Vec::len), Some(1));
    device.stop(Signal::TERM).await;
    device.start().await;
    device.wait_until_connected().await;
}

/// The gateway gave the token, and the device was killed before it had it: it comes again, and gets the same one.
#[tokio::test]
async fn an_answer_that_got_lost_is_given_again_until_the_device_has_come_with_it() {
    let postgres = Postgres::shared().await;
    let gateway = GatewayProcess::start(&postgres, &[]).await;
    let proxy = Proxy::to(gateway.ssh()).await;
    let mut device = TestDevice::for_remote().await;
    let line = invite(&gateway, &["--ssh-address", &proxy.address().to_string()]).await;
    come(&gateway, &device, &line).await;
    let tokens = async || postgres.rows("SELECT digest::text FROM control_tokens ORDER BY 1").await;
    let before = tokens().await.len();
    proxy.deafen();
    gateway.admin(&["device", "confirm", &short_code(&device).await]).await.ok();
    let given = until("the gateway to give a token", async || {
        let now = tokens().await;
        if now.len() == before + 1 { Ok(now) } else { Err(format!("{} tokens", now.len())) }
    })
    .await;
    device.kill_9();
    proxy.cut();
    proxy.heal();
    invitation_that_is(&gateway, "confirmed").await;

    device.start().await;
    device.cli(&["pair", &line, "--yes", "--no-wait"]).await.ok();
    device.wait_until_connected().await;
    assert_eq!(tokens().await, given, "no second secret was made, and none was ended");
    invitation_that_is(&gateway, "paired").await;

    // Whoever comes again now is told so, and what the device has stays good.
    let again = device.cli(&["pair", &line, "--yes"]).await;
    assert!(again.exit == 4 && again.stderr.contains("used up"), "{}", again.stderr);
    assert_eq!(tokens().await, given);
    device.stop(Signal::TERM).await;
    device.start().await;
    device.wait_until_connected().await;
}

#[tokio::test]
async fn a_pairing_that_nobody_waits_for_is_shown_and_ended_by_a_command() {
    let postgres = Postgres::shared().await;
    let gateway = GatewayProcess::start(&postgres, &[]).await;
    let device = TestDevice::for_remote().await;
    let nothing = device.cli(&["pair", "--status"]).await.ok();
    assert_eq!(text(&nothing, "/state"), "none");
    let line = invite(&gateway, &[]).await;
    come(&gateway, &device, &line).await;
    let shown = until("the device to know that it waits", async || {
        let shown = device.cli(&["pair", "--status"]).await.ok();
        if shown["state"] == "waiting" { Ok(shown) } else { Err(shown.to_string()) }
    })
    .await;
    assert_eq!(text(&shown, "/short_code"), short_code(&device).await);
    let plain = device.plain_cli(&["pair", "--status"]).await.stdout;
    assert!(plain.contains("admin device confirm") && plain.contains(&short_code(&device).await), "{plain}");
    assert_eq!(text(&device.cli(&["pair", "--cancel"]).await.ok(), "/state"), "none");
    assert_eq!(text(&device.cli(&["pair", "--status"]).await.ok(), "/state"), "none");
    let both = device.cli(&["pair", &line, "--cancel"]).await;
    assert_eq!(both.exit, 2, "{}", both.stderr);
}

#[tokio::test]
async fn ctrl_c_ends_the_pairing_that_a_command_waits_for() {
    let postgres = Postgres::shared().await;
    let gateway = GatewayProcess::start(&postgres, &[]).await;
    let device = TestDevice::for_remote().await;
    let line = invite(&gateway, &[]).await;
    let begun = device.begin_cli(&["pair", &line, "--yes"]);
    begun.log.line(&["admin device confirm"]).await;
    begun.signal(Signal::INT);
    let log = begun.log.clone();
    assert_eq!(begun.ended().await.code(), Some(130), "{}", log.all());
    assert!(log.all().contains("This device was not paired."), "{}", log.all());
    assert_eq!(text(&device.cli(&["pair", "--status"]).await.ok(), "/state"), "none");
}

/// A place is held by whoever shows an invitation's secret, and is free again when they are gone.
#[tokio::test]
async fn so_many_invited_devices_wait_at_once_and_a_further_one_comes_again() {
    let postgres = Postgres::shared().await;
    let gateway = GatewayProcess::start(&postgres, &[]).await;
    let invitation: Invitation = invite(&gateway, &[]).await.parse().expect("our own line");
    let authorization = format!("{INVITATION_SCHEME} {}", *invitation.token.secret());
    let come = async || {
        let mut line = RawConnection::authorized(&gateway.control_socket(), &authorization).await.expect("it upgrades");
        let first = line.next().await.expect("it is answered");
        (line, first)
    };
    let mut waiting = Vec::new();
    for number in 0..MAX_INVITED {
        let (line, first) = come().await;
        assert!(matches!(first, GatewayFrame::Challenge(_)), "{number}: {first:?}");
        waiting.push(line);
    }
    let (_, first) = come().await;
    let GatewayFrame::Refused(refused) = first else { panic!("it was let in beside {MAX_INVITED}: {first:?}") };
    assert!(refused.should_retry && refused.retry_after_s.is_some(), "{refused:?}");
    assert!(refused.message.contains("Too many invited devices"), "{refused:?}");
    // Those with the control token are not kept out by them.
    let device = TestDevice::paired_with(&gateway).await;
    device.wait_until_connected().await;
    waiting.pop();
    until("a place to be free", async || match come().await {
        (_, GatewayFrame::Challenge(_)) => Ok(()),
        (_, other) => Err(format!("{other:?}")),
    })
    .await;
}

#[tokio::test]
async fn a_refused_invitation_and_one_for_another_server_change_nothing() {
    let postgres = Postgres::shared().await;
    let gateway = GatewayProcess::start(&postgres, &[]).await;
    let device = TestDevice::built_in().await;
    let mode = async || text(&device.cli(&["connection", "show"]).await.ok(), "/mode").to_owned();
    let line = invite(&gateway, &[]).await;
    come(&gateway, &device, &line).await;
    gateway.admin(&["device", "refuse", &short_code(&device).await]).await.ok();
    let failed = until("the device to learn it", async || {
        let status = device.cli(&["pair", &line, "--yes"]).await;
        if status.exit == 4 { Ok(status.stderr) } else { Err(status.stderr) }
    })
    .await;
    assert!(failed.contains("refused") || failed.contains("does not take this invitation"), "{failed}");
    assert_eq!(
        (mode().await.as_str(), gateway.admin(&["device", "list"]).await.ok()["devices"].clone()),
        ("builtin", json!([]))
    );

    // A line that names another host key than the server shows: nothing of this device is told there.
    let elsewhere = Invitation {
        token: InvitationToken::generate(),
        expires_at: Timestamp(Timestamp::now().0 + std::time::Duration::from_secs(600)),
        ssh_address: gateway.ssh().get().to_string(),
        host_key: "SHA256:47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU".to_owned(),
        ssh_user: "deskgate".to_owned(),
        control_socket: "/run/deskgate/control.sock".to_owned(),
    };
    let refused = device.cli(&["pair", &elsewhere.line().expect("it fits"), "--yes"]).await;
    assert!(refused.exit == 4 && refused.stderr.contains(&elsewhere.host_key), "{}", refused.stderr);
    // The right server with a secret that it never made.
    let invited = gateway.admin(&["device", "invite"]).await.ok();
    let real: Invitation = text(&invited, "/line").parse().expect("an invitation");
    let forged = Invitation { token: InvitationToken::generate(), ..real };
    let refused = device.cli(&["pair", &forged.line().expect("it fits"), "--yes"]).await;
    assert!(refused.exit == 4 && refused.stderr.contains("does not take this invitation"), "{}", refused.stderr);
    let mistyped = device.cli(&["pair", &text(&invited, "/line").replace("dgi_", "dgi_A"), "--yes"]).await;
    assert!(mistyped.exit == 2 && mistyped.stderr.contains("incomplete or mistyped"), "{}", mistyped.stderr);
    assert_eq!(mode().await, "builtin");
}

#[tokio::test]
async fn a_removed_device_is_told_the_commands_that_bring_it_back_and_they_do() {
    let postgres = Postgres::shared().await;
    let gateway = GatewayProcess::start(&postgres, &[]).await;
    let device = TestDevice::new();
    device.cli(&["start"]).await.ok();
    let device_id = paired(&gateway, &device).await;
    gateway.admin(&["device", "revoke", &device_id, "--accept-risk", "interrupt-runs"]).await.ok();
    let renew = "deskgate identity renew --accept-risk=lose-pairing";
    let told = until("the device to be told", async || {
        let status = device.plain_cli(&["status"]).await.stdout;
        if status.contains(renew) { Ok(status) } else { Err(status) }
    })
    .await;
    assert!(told.contains("`deskgate pair`"), "{told}");
    let report = device.cli(&["doctor"]).await.value;
    assert!(text(&report, "/problems/0/next").contains(renew), "{report}");

    let words: Vec<_> = renew.split(' ').skip(1).collect();
    device.cli(&words).await.ok();
    assert_ne!(paired(&gateway, &device).await, device_id);
    device.cli(&["stop", "--now"]).await.ok();
}

#[tokio::test]
async fn an_invitation_leads_through_debians_own_ssh_server_until_it_ends() {
    let postgres = Postgres::shared().await;
    let gateway = GatewayProcess::start(&postgres, &[]).await;
    let device = TestDevice::for_remote().await;
    let sshd = Sshd::start("").await;
    let (address, user, host_key) = (sshd.address(), sshd.user(), sshd.fingerprint("host"));
    let way = ["device", "invite", "--ssh-address", &address, "--ssh-user", &user, "--host-key", &host_key];
    let invited = gateway.admin(&way).await.ok();
    let until_then = text(&invited, "/authorized_keys");
    assert!(until_then.starts_with("restrict,port-forwarding,expiry-time=\""), "{until_then}");
    sshd.authorize(until_then);
    device.cli(&["pair", text(&invited, "/line"), "--yes", "--no-wait"]).await.ok();
    invitation_that_is(&gateway, "waiting").await;
    let printed =
        gateway.plain_admin(&["device", "confirm", &short_code(&device).await, "--print-authorized-keys"]).await;
    assert!(
        printed.stdout.starts_with("restrict,port-forwarding ssh-ed25519 "),
        "{}{}",
        printed.stdout,
        printed.stderr
    );
    sshd.authorize(&printed.stdout);
    device.wait_until_connected().await;

    // sshd reads the time as it was meant.
    let expired = until_then.split_once("expiry-time=\"2").map(|(begin, rest)| format!("{begin}expiry-time=\"1{rest}"));
    sshd.replace_authorized(&expired.expect("it has a time"));
    let stranger = TestDevice::for_remote().await;
    let refused = stranger.cli(&["pair", text(&invited, "/line"), "--yes"]).await;
    assert!(refused.exit == 4 && refused.stderr.contains("authorized_keys"), "{}", refused.stderr);
}

#[tokio::test]
async fn an_application_of_the_gateway_before_is_made_again_at_this_one_with_its_services() {
    let postgres = Postgres::shared().await;
    let gateway = GatewayProcess::start(&postgres, &[]).await;
    let (device, folder) = (TestDevice::built_in().await, Folder::new());
    device.cli(&["app", "create", "Billing"]).await.ok();
    let path = folder.path().display().to_string();
    for name in ["Letters", "Reader"] {
        device.cli(&["service", "create", name, "--app", "Billing", "--dir", &path]).await.ok();
    }
    device.cli(&["service", "check", "Letters"]).await.ok();
    device.cli(&["service", "publish", "Letters"]).await.ok();
    let here = device.plain_cli(&["service", "list"]).await.stdout;
    assert!(!here.contains("app copy"), "{here}");
    let none = device.cli(&["app", "copy", "Billing"]).await;
    assert!(none.stderr.contains("no application of another gateway"), "{}", none.stderr);

    paired(&gateway, &device).await;
    let away = device.plain_cli(&["service", "list"]).await.stdout;
    for said in ["Letters, Reader of Billing is at the built-in gateway", "To make it here too: deskgate app copy app_"]
    {
        assert!(away.contains(said), "{said}: {away}");
    }
    let visitor = Visitor::of(&device).await;
    let page = visitor.page("/services").await.text;
    assert!(page.contains("Make it here too") && page.contains("at the built-in gateway"), "{page}");

    let copied = device.cli(&["app", "copy", "Billing"]).await.ok();
    assert!(text(&copied, "/key/text").starts_with("dgk_"), "{copied}");
    let app = text(&copied, "/application/app_id").to_owned();
    let made = copied["services"].as_array().expect("a list");
    assert!(made.len() == 2 && made.iter().all(|service| service["app_id"] == app.as_str()), "{copied}");
    let again = device.cli(&["app", "copy", "Billing"]).await;
    assert!(again.exit == 6 && again.stderr.contains("at this gateway already"), "{}", again.stderr);
    let page = visitor.page("/services").await.text;
    assert!(
        !page.contains("Make it here too") && page.contains("This gateway has an application of this name"),
        "{page}"
    );

    // What was made is checked, published and called like any other; the old ones stay for the way back.
    let id = text(&made[0], "/draft_id");
    device.cli(&["service", "check", id]).await.ok();
    device.cli(&["service", "publish", id]).await.ok();
    device.cli(&["connection", "set", "--mode", "builtin", "--yes"]).await.ok();
    device.wait_until_connected().await;
    let back = device.cli(&["service", "list"]).await.ok();
    let standings: Vec<_> = back["services"].as_array().expect("a list").iter().map(|one| &one["standing"]).collect();
    assert_eq!(standings, ["published", "unpublished", "elsewhere", "elsewhere"], "{back}");
    let listed = device.plain_cli(&["service", "list"]).await.stdout;
    assert!(
        listed.contains(&format!("is at {}", gateway.ssh().get())) && listed.contains("It is at this gateway too."),
        "{listed}"
    );
}
