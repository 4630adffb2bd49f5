//! Certificates from a certificate authority that others wrote, for a real gateway.

use std::net::SocketAddr;
use std::time::Duration;

use deskgate_gateway::config::{AcmeSettings, AcmeTimings, ExternalAccount};
use deskgate_gateway::ops::health_check::send_request;
use deskgate_gateway::store::certificates::CertificateScope;
use deskgate_gateway::{DatabaseSettings, Gateway, Settings, StartError};
use rustls::pki_types::CertificateDer;
use tempfile::TempDir;
use tokio::task::JoinSet;

use crate::support::authority::{Authority, EXTERNAL_KEY, EXTERNAL_KEY_ID};
use crate::support::certificate::{connect, connect_to_anybody};
use crate::support::cluster::TestDatabase;
use crate::support::raw::RawConnection;
use crate::support::until;

const NOT_FOUND_REQUEST: &str = "GET /nowhere HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
const DOMAIN: &str = "gateway.example.com";

async fn start(dir: &TempDir, database: &TestDatabase, acme: Option<AcmeSettings>, listen: SocketAddr) -> Gateway {
    start_sealed(dir, database, acme, listen, dir).await
}

/// With the encryption key that another gateway has.
async fn start_sealed(
    dir: &TempDir,
    database: &TestDatabase,
    acme: Option<AcmeSettings>,
    listen: SocketAddr,
    sealed_like: &TempDir,
) -> Gateway {
    let mut settings = Settings::built_in(dir.path().to_owned(), listen);
    settings.database = Some(DatabaseSettings { url: database.url(), listen_url: None, ca_file: None, migrate: true });
    settings.acme = acme;
    settings.seal_file = sealed_like.path().join(deskgate_gateway::encryption::KEY_FILE_NAME);
    settings.ops_listen = Some(([127, 0, 0, 1], 0).into());
    Gateway::start(settings).await.expect("the gateway starts")
}

/// The gateway's readiness report.
async fn says(gateway: &Gateway) -> String {
    send_request(gateway.addresses().ops.expect("a listener"), "/readyz?verbose").await.expect("ready")
}

/// Whether a caller who trusts this root gets an answer.
async fn serves(gateway: &Gateway, domain: &str, root: &CertificateDer<'static>) -> bool {
    let Ok(stream) = connect(root, domain, gateway.addresses().http, &["http/1.1"]).await else { return false };
    let mut raw = RawConnection::over(stream);
    raw.say(NOT_FOUND_REQUEST).await && raw.hear().await.starts_with("HTTP/1.1 404 ")
}

/// Makes the certificate nearly expired, by the database's clock, and not recent.
async fn age(database: &TestDatabase) {
    let aged = "UPDATE acme_certificates SET valid_from = now() - interval '80 days',
        valid_until = now() + interval '10 days', next_turn = now()";
    database.execute(aged).await;
}

#[tokio::test]
async fn a_certificate_is_ordered_renewed_and_served_on_while_the_authority_is_down() {
    let (mut authority, database) = (Authority::start().await, TestDatabase::new().await);
    let dir = tempfile::tempdir().expect("a temporary directory");
    let domains = ["api.example.com", DOMAIN];
    let settings = authority.settings(&domains);
    let gateway = start(&dir, &database, Some(settings.clone()), authority.looks_at).await;
    let first = authority.root().await;
    for domain in domains {
        until("the first certificate", async || serves(&gateway, domain, &first).await).await;
    }
    let said = says(&gateway).await;
    assert!(said.contains("[i] certificate: valid until 2"), "{said}");
    let in_clear = "SELECT count(*) FROM acme_certificates c, acme_accounts a WHERE encode(c.sealed_key, 'escape')
        LIKE '%PRIVATE%' OR encode(a.sealed, 'escape') LIKE '%key_pkcs8%'";
    assert_eq!(database.value(in_clear).await, "0", "the database keeps no key in clear");

    authority.stop();
    age(&database).await;
    until("an order to fail", async || says(&gateway).await.contains("the last order failed: ")).await;
    assert!(serves(&gateway, DOMAIN, &first).await, "the old one is served on");
    gateway.stop().await;
    let gateway = start(&dir, &database, Some(settings), authority.looks_at).await;
    assert!(serves(&gateway, DOMAIN, &first).await, "also after a restart, at once");

    // It does not know the account any more.
    authority.start_again().await;
    let second = authority.root().await;
    until("the second certificate", async || serves(&gateway, DOMAIN, &second).await).await;
    assert!(!serves(&gateway, DOMAIN, &first).await, "whoever connects now is shown the new one");
    assert!(!says(&gateway).await.contains("failed"), "what is over is not told");
    assert_eq!(database.value("SELECT max(version) FROM acme_certificates").await, "2");
    gateway.stop().await;
}

#[tokio::test]
async fn an_authority_that_asks_for_an_external_account_issues_to_who_has_one_and_says_so_to_others() {
    use base64::Engine;
    let (authority, database) = (Authority::start_with_external_accounts().await, TestDatabase::new().await);
    let dir = tempfile::tempdir().expect("a temporary directory");
    let without = authority.settings(&[DOMAIN]);
    let gateway = start(&dir, &database, Some(without.clone()), authority.looks_at).await;
    until("its reason", async || says(&gateway).await.contains("externalAccountBinding")).await;
    gateway.stop().await;

    let key = base64::engine::general_purpose::URL_SAFE_NO_PAD.decode(EXTERNAL_KEY).expect("a key");
    let external_account = Some(ExternalAccount { key_id: EXTERNAL_KEY_ID.to_owned(), key });
    assert!(!format!("{external_account:?}").contains("zWND"), "the key is shown nowhere");
    age(&database).await;
    let gateway = start(&dir, &database, Some(AcmeSettings { external_account, ..without }), authority.looks_at).await;
    let root = authority.root().await;
    until("the certificate", async || serves(&gateway, DOMAIN, &root).await).await;
    gateway.stop().await;
}

#[tokio::test]
async fn a_replica_that_the_authority_does_not_reach_orders_through_one_that_it_reaches() {
    let (authority, database) = (Authority::start().await, TestDatabase::new().await);
    let dirs = [(); 3].map(|()| tempfile::tempdir().expect("a temporary directory"));
    let anywhere: SocketAddr = ([127, 0, 0, 1], 0).into();
    let settings = authority.settings(&[DOMAIN]);

    // The reachable one polls once, while another replica has the turn, and never again.
    let mut idle = settings.clone();
    idle.clocks.look = Duration::from_secs(3600);
    let bystander = start(&dirs[2], &database, None, anywhere).await;
    let subject = CertificateScope { directory_url: settings.directory_url.clone(), domains: DOMAIN.to_owned() };
    let turn = bystander.store().take_turn(&subject, Duration::from_secs(3600)).await;
    assert_eq!(turn.expect("taken"), Some(0));
    bystander.stop().await;
    let reachable = start(&dirs[0], &database, Some(idle), authority.looks_at).await;
    let ordering = start_sealed(&dirs[1], &database, Some(settings.clone()), anywhere, &dirs[0]).await;
    database.execute("UPDATE acme_certificates SET next_turn = now()").await;
    let root = authority.root().await;
    until("a certificate", async || serves(&ordering, DOMAIN, &root).await).await;
    assert!(!serves(&reachable, DOMAIN, &root).await, "this one has not looked since, and ordered nothing");

    let third = start_sealed(&dirs[2], &database, Some(settings.clone()), anywhere, &dirs[0]).await;
    assert!(serves(&third, DOMAIN, &root).await, "one that comes later has it at once");
    assert_eq!(database.value("SELECT max(version) FROM acme_certificates").await, "1", "and orders no other");

    third.stop().await;
    let stranger = start(&dirs[2], &database, Some(settings), anywhere).await;
    let said = says(&stranger).await;
    assert!(said.contains("sealed with another key") && said.contains("seal_file"), "{said}");
    for gateway in [reachable, ordering, stranger] {
        gateway.stop().await;
    }
}

#[tokio::test]
async fn a_domain_that_leads_elsewhere_is_refused_and_the_authoritys_reason_is_told() {
    let (authority, database) = (Authority::start().await, TestDatabase::new().await);
    let dir = tempfile::tempdir().expect("a temporary directory");
    authority.lead("elsewhere.example.com", "127.0.0.2").await;
    let mut settings = authority.settings(&["elsewhere.example.com"]);
    settings.clocks.first_pause = Duration::from_secs(3600);
    settings.clocks.longest_pause = Duration::from_secs(3600);
    let gateway = start(&dir, &database, Some(settings), authority.looks_at).await;
    until("the end of the order", async || says(&gateway).await.contains("the last order failed: ")).await;
    let said = says(&gateway).await;
    assert!(said.contains("the last order failed: elsewhere.example.com: "), "{said}");
    assert!(said.contains("[i] certificate: none was issued yet") && said.contains("port 443"), "{said}");
    assert!(!serves(&gateway, "elsewhere.example.com", &authority.root().await).await);
    assert_eq!(
        database.value("SELECT max(failures) FROM acme_certificates").await,
        "1",
        "it is not asked again at once"
    );

    // A reload after the repair makes it try again at once.
    authority.lead("elsewhere.example.com", "127.0.0.1").await;
    gateway.reload().expect("nothing to fail");
    let root = authority.root().await;
    until("a certificate", async || serves(&gateway, "elsewhere.example.com", &root).await).await;
    gateway.stop().await;
}

#[tokio::test]
async fn a_proof_is_shown_to_an_authority_only_and_only_when_one_was_ordered() {
    let (authority, database) = (Authority::start().await, TestDatabase::new().await);
    let dir = tempfile::tempdir().expect("a temporary directory");
    let settings = authority.settings(&[DOMAIN]);
    let gateway = start(&dir, &database, Some(settings), authority.looks_at).await;
    let (root, address) = (authority.root().await, gateway.addresses().http);
    until("a certificate", async || serves(&gateway, DOMAIN, &root).await).await;
    let ask = async |domain: &str, protocols: &[&str]| connect(&root, domain, address, protocols).await;

    database.execute("DELETE FROM acme_challenges").await;
    // The challenge is cached for a moment. A proof is signed by no authority.
    let proof = async || {
        let error = ask(DOMAIN, &["acme-tls/1"]).await.expect_err("nothing to trust").to_string();
        assert!(!error.contains("certificate") || error.contains("invalid peer certificate"), "{error}");
        error.contains("certificate")
    };
    until("nothing to be shown that nobody ordered", async || !proof().await).await;

    gateway.store().keep_challenge(DOMAIN, &[7; 32], Duration::from_secs(60)).await.expect("kept");
    gateway.store().keep_challenge("other.example.com", &[7; 32], Duration::from_secs(60)).await.expect("kept");
    until("the proof that was ordered", proof).await;
    let other = ask("other.example.com", &["acme-tls/1"]).await.expect_err("not ours").to_string();
    assert!(!other.contains("certificate"), "nothing is shown: {other}");
    for protocols in [&["h2"][..], &["h2", "acme-tls/1"], &["acme-tls/1", "h2"], &[]] {
        let stream = ask(DOMAIN, protocols).await.expect("whoever can be served sees the certificate");
        assert_ne!(stream.get_ref().1.alpn_protocol(), Some(&b"acme-tls/1"[..]));
    }

    // A client that saw a proof is not served over that connection.
    let stream = connect_to_anybody(DOMAIN, address, &["acme-tls/1"]).await.expect("a proof");
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"acme-tls/1"[..]));
    let mut raw = RawConnection::over(stream);
    let _ = raw.say(NOT_FOUND_REQUEST).await;
    assert_eq!(raw.hear().await, "");
    gateway.stop().await;
}

#[tokio::test]
async fn any_number_who_ask_for_a_proof_cost_one_look_and_all_see_it() {
    let (authority, database) = (Authority::start().await, TestDatabase::new().await);
    let dir = tempfile::tempdir().expect("a temporary directory");
    let settings = authority.settings(&[DOMAIN]);
    let gateway = start(&dir, &database, Some(settings), authority.looks_at).await;
    let (root, address) = (authority.root().await, gateway.addresses().http);
    until("a certificate", async || serves(&gateway, DOMAIN, &root).await).await;
    gateway.store().keep_challenge(DOMAIN, &[7; 32], Duration::from_secs(600)).await.expect("kept");
    let locked = database.begin().await;
    locked.execute("LOCK TABLE acme_challenges").await;
    let looks = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()
        AND wait_event_type = 'Lock' AND position('-- certificates::challenge' IN query) > 0";
    let mut asking = JoinSet::new();
    // The authority's result is cached for a moment.
    until("a look", async || {
        asking.spawn(connect_to_anybody(DOMAIN, address, &["acme-tls/1"]));
        database.value(looks).await == "1"
    })
    .await;
    for _ in 0..40 {
        asking.spawn(connect_to_anybody(DOMAIN, address, &["acme-tls/1"]));
    }
    assert_eq!(database.value(looks).await, "1");
    locked.commit().await;
    for shown in asking.join_all().await {
        let stream = shown.expect("a proof");
        assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"acme-tls/1"[..]));
    }
    gateway.stop().await;
}

#[tokio::test]
async fn a_certificate_is_issued_at_the_first_order_while_somebody_asks_for_its_proof_without_end() {
    let (authority, database) = (Authority::start().await, TestDatabase::new().await);
    let dir = tempfile::tempdir().expect("a temporary directory");
    let mut settings = authority.settings(&[DOMAIN]);
    settings.clocks.first_pause = Duration::from_secs(3600);
    settings.clocks.longest_pause = Duration::from_secs(3600);
    let address = authority.looks_at;
    let mut asking = JoinSet::new();
    asking.spawn(async move {
        loop {
            // Also before there is a listener, so that it is cached that nothing was ordered.
            let _ = connect_to_anybody(DOMAIN, address, &["acme-tls/1"]).await;
            tokio::task::yield_now().await;
        }
    });
    let gateway = start(&dir, &database, Some(settings), address).await;
    let root = authority.root().await;
    until("a certificate", async || serves(&gateway, DOMAIN, &root).await).await;
    asking.shutdown().await;
    gateway.stop().await;
}

/// Lets the database refuse a new certificate so many times.
async fn refuse(database: &TestDatabase, times: u32) {
    let refusal = format!(
        "DROP SEQUENCE IF EXISTS tries;
        CREATE SEQUENCE tries;
        CREATE OR REPLACE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
            IF nextval('tries') <= {times} THEN RAISE EXCEPTION 'the disk is full'; END IF;
            RETURN NEW;
        END $$;
        CREATE OR REPLACE TRIGGER refuse BEFORE UPDATE OF chain ON acme_certificates
            FOR EACH ROW EXECUTE FUNCTION refuse()"
    );
    database.execute(&refusal).await;
}

#[tokio::test]
async fn a_certificate_that_cannot_be_kept_is_tried_again_and_then_counts_as_a_failed_order() {
    let (authority, database) = (Authority::start().await, TestDatabase::new().await);
    let dir = tempfile::tempdir().expect("a temporary directory");
    let anywhere: SocketAddr = ([127, 0, 0, 1], 0).into();
    start(&dir, &database, None, anywhere).await.stop().await;
    let mut settings = authority.settings(&[DOMAIN]);
    settings.clocks.first_pause = Duration::from_secs(3600);
    settings.clocks.longest_pause = Duration::from_secs(3600);
    refuse(&database, 1000).await;
    let gateway = start(&dir, &database, Some(settings), authority.looks_at).await;
    until("the failure", async || says(&gateway).await.contains("could not be kept: ")).await;
    let pauses = "SELECT failures = 1 AND NOT ordering AND next_turn > now() + interval '50 minutes'
        FROM acme_certificates";
    assert_eq!(database.value(pauses).await, "true", "no other is ordered for a while");

    refuse(&database, 2).await;
    gateway.reload().expect("nothing to fail");
    let root = authority.root().await;
    until("a certificate", async || serves(&gateway, DOMAIN, &root).await).await;
    assert_eq!(database.value("SELECT last_value FROM tries").await, "3", "the same one was tried again");
    assert_eq!(database.value("SELECT failures FROM acme_certificates").await, "0");
    gateway.stop().await;
}

#[tokio::test]
async fn a_certificate_that_comes_after_the_rows_were_deleted_is_shown() {
    let (mut authority, database) = (Authority::start().await, TestDatabase::new().await);
    let dir = tempfile::tempdir().expect("a temporary directory");
    let settings = authority.settings(&[DOMAIN]);
    let gateway = start(&dir, &database, Some(settings), authority.looks_at).await;
    let first = authority.root().await;
    until("the first certificate", async || serves(&gateway, DOMAIN, &first).await).await;
    authority.stop();
    authority.start_again().await;
    database.execute("DELETE FROM acme_accounts; DELETE FROM acme_certificates").await;
    let second = authority.root().await;
    until("the second certificate", async || serves(&gateway, DOMAIN, &second).await).await;
    assert_eq!(database.value("SELECT version FROM acme_certificates").await, "1", "counted from the beginning");
    gateway.stop().await;
}

#[tokio::test]
async fn a_gateway_whose_sealing_key_cannot_be_used_leaves_nothing_running() {
    let database = TestDatabase::new().await;
    let dir = tempfile::tempdir().expect("a temporary directory");
    std::fs::write(dir.path().join(deskgate_gateway::encryption::KEY_FILE_NAME), "no key").expect("written");
    let mut settings = Settings::built_in(dir.path().to_owned(), ([127, 0, 0, 1], 0).into());
    settings.database = Some(DatabaseSettings { url: database.url(), listen_url: None, ca_file: None, migrate: true });
    settings.acme = Some(AcmeSettings {
        domains: vec![DOMAIN.to_owned()],
        contact: String::new(),
        directory_url: "https://localhost/dir".to_owned(),
        ca_file: None,
        external_account: None,
        clocks: AcmeTimings::default(),
    });
    let error = Gateway::start(settings).await.err().expect("refused");
    assert!(matches!(error, StartError::Seal(_)), "{error}");
    let connections = "SELECT count(*) FROM pg_stat_activity
        WHERE datname = current_database() AND pid <> pg_backend_pid()";
    until("its connections to end", async || database.value(connections).await == "0").await;
}
