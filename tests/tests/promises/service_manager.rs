//! The gateway's messages to a service manager, its sockets from one, and its exit codes when it cannot start.

use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use deskgate_tests::wait::WAIT_TIMEOUT;
use deskgate_tests::{GatewayProcess, Postgres, TestDevice, until};
use rustix::process::Signal;
use tempfile::TempDir;
use tokio::net::UnixDatagram;
use tokio::time::timeout;

use crate::text;

/// A service manager: its notification socket, and the messages it received.
struct ServiceManager {
    folder: TempDir,
    socket: UnixDatagram,
}

impl ServiceManager {
    fn new() -> Self {
        let folder = TempDir::with_prefix("deskgate-sd-").expect("a temporary folder");
        let socket = UnixDatagram::bind(folder.path().join("notify")).expect("bound");
        Self { folder, socket }
    }

    fn environment(&self, watchdog: Duration) -> Vec<(String, String)> {
        let place = self.folder.path().join("notify").display().to_string();
        vec![("NOTIFY_SOCKET".to_owned(), place), ("WATCHDOG_USEC".to_owned(), watchdog.as_micros().to_string())]
    }

    /// The next message that contains this.
    async fn hears(&self, wanted: &str) -> String {
        self.hears_all(&[wanted]).await
    }

    /// Waits until each of these messages arrived, in any order; returns the last of them.
    async fn hears_all(&self, wanted: &[&str]) -> String {
        let mut missing = wanted.to_vec();
        let mut bytes = [0; 4096];
        let mut seen = Vec::new();
        let heard = timeout(WAIT_TIMEOUT, async {
            loop {
                let length = self.socket.recv(&mut bytes).await.expect("bound");
                let said = String::from_utf8_lossy(&bytes[..length]).into_owned();
                missing.retain(|wanted| !said.contains(wanted));
                if missing.is_empty() {
                    return said;
                }
                seen.push(said);
            }
        });
        match heard.await {
            Ok(said) => said,
            Err(_) => panic!("{wanted:?} was not heard, but {seen:?}"),
        }
    }
}

#[tokio::test]
async fn the_service_manager_hears_when_it_is_ready_how_it_is_that_it_lives_reloads_and_stops() {
    let (postgres, manager) = (Postgres::start_exclusive().await, ServiceManager::new());
    let told = manager.environment(Duration::from_secs(4));
    let mut gateway = GatewayProcess::start_in(&postgres, &[], &told).await;
    manager.hears_all(&["READY=1", "STATUS=0 devices connected, 0 queued"]).await;
    manager.hears("WATCHDOG=1").await;
    let device = TestDevice::paired_with(&gateway).await;
    manager.hears("STATUS=1 device connected, 0 queued").await;

    gateway.command_line(&["reload"]).await.ok();
    assert!(manager.hears("RELOADING=1").await.contains("\nMONOTONIC_USEC="));
    manager.hears("READY=1").await;

    // A gateway without its database stays up: a restart would not bring the database back.
    postgres.stop().await;
    manager.hears("STATUS=the database does not answer").await;
    for _ in 0..4 {
        manager.hears("WATCHDOG=1").await;
    }
    postgres.start().await;
    manager.hears("connected, 0 queued").await;
    drop(device);
    let process = gateway.process().id();
    gateway.process().signal(Signal::TERM);
    manager.hears("STOPPING=1").await;
    assert!(gateway.wait_for_exit().await.success(), "process {process}");
}

#[tokio::test]
async fn what_only_a_person_can_mend_ends_with_3_another_schema_with_7_and_a_missing_database_is_waited_for() {
    let postgres = Postgres::start_exclusive().await;
    let gateway = GatewayProcess::start(&postgres, &[]).await;
    let startup = ["check", "--startup"];
    assert_eq!(gateway.command_line(&startup).await.exit, 0);
    for wrong in ["server.listen=nowhere", "control.token_file=/nowhere/token", "log.format=loud"] {
        let said = gateway.command_line(&[&["--set", wrong], &startup[..]].concat()).await;
        assert_eq!(said.exit, 3, "{wrong}: {}", said.stderr);
    }
    let loose = gateway.folder().join("loose");
    std::fs::copy(gateway.control_token_file(), &loose).expect("copied");
    std::fs::set_permissions(&loose, std::fs::Permissions::from_mode(0o644)).expect("ours");
    let token = format!("control.token_file={}", loose.display());
    let said = gateway.command_line(&[&["--set", &token], &startup[..]].concat()).await;
    assert!(said.exit == 3 && said.stderr.contains("chmod 600"), "{}", said.stderr);

    postgres.change("INSERT INTO deskgate_migrations (version, name, sha256) VALUES (9999, 'later', 'x')").await;
    let said = gateway.command_line(&startup).await;
    assert!(said.exit == 7 && said.stderr.contains("upgrade it"), "{}", said.stderr);
    let served = gateway.command_line(&["serve"]).await;
    assert_eq!(served.exit, 7, "{}", served.stderr);
    postgres.stop().await;
    let said = gateway.command_line(&startup).await;
    assert_eq!(said.exit, 0, "the start waits for it: {}", said.stderr);
    assert_eq!(gateway.command_line(&["check"]).await.exit, 10);
}

#[tokio::test]
async fn credentials_of_the_service_manager_are_used_and_shown_by_their_place_only() {
    let (postgres, folder) = (Postgres::shared().await, TempDir::with_prefix("deskgate-cred-").expect("a folder"));
    let token = deskgate_protocol::secret::ControlToken::generate();
    for (name, text) in [("database_url", postgres.url()), ("control_token", token.reveal())] {
        let path = folder.path().join(name);
        std::fs::write(&path, text).expect("written");
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o400)).expect("ours");
    }
    let given = vec![("CREDENTIALS_DIRECTORY".to_owned(), folder.path().display().to_string())];
    let gateway = GatewayProcess::by_credentials(&[], &given).await;
    let shown = gateway.command_line(&["config", "show", "--origin"]).await;
    let value = shown.value["settings"]["database.url_file"].clone();
    assert_eq!(text(&value, "/origin"), "credential", "{value}");
    assert!(text(&value, "/value").ends_with("/database_url"), "{value}");
    assert!(!shown.stdout.contains(token.reveal()) && !shown.stdout.contains(postgres.url()), "{}", shown.stdout);
    until("the token of the credential to be the one that counts", async || {
        match deskgate_tests::raw::RawConnection::open(&gateway, token.reveal()).await {
            Ok(_) => Ok(()),
            Err(status) => Err(status.to_string()),
        }
    })
    .await;
    let rotated = gateway.admin(&["token", "roll"]).await;
    assert_eq!(rotated.exit, 6, "what was given from outside is not changed here: {}", rotated.stderr);
    let unknown = gateway.command_line(&["--set", "server.listne=1", "config", "show"]).await;
    assert!(unknown.exit == 3 && unknown.stderr.contains("did you mean \"server.listen\"?"), "{}", unknown.stderr);
}

#[tokio::test]
async fn the_manual_has_a_page_for_every_command() {
    let postgres = Postgres::shared().await;
    let gateway = GatewayProcess::start(&postgres, &[]).await;
    let folder = gateway.folder().join("man");
    gateway.command_line(&["man", folder.to_str().expect("plain")]).await.ok();
    for page in ["deskgate-gateway.1", "deskgate-gateway-backup-restore.1", "deskgate-gateway-admin-run-stop.1"] {
        let text = std::fs::read_to_string(folder.join(page)).unwrap_or_else(|_| panic!("no {page}"));
        assert!(text.contains(".TH"), "{text}");
    }
}
