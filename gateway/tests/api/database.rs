//! Opening a database by its URL: TLS, and the refusal of what could lose a 202.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use deskgate_gateway::notify::ChangeNotifier;
use deskgate_gateway::store::Database as Address;
use deskgate_gateway::store::DatabaseOpenError;
use deskgate_gateway::store::migrate::{MigrateError, newest};
use deskgate_gateway::{DatabaseSettings, Gateway, Settings, StartError};

use crate::support::cluster::TestDatabase;
use crate::support::gateway::DeviceFixture;
use crate::support::until;

/// Runs a program to its end.
fn run(command: &mut Command) {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// A certificate authority in a folder, and a certificate for `localhost` made with it.
fn certificates(folder: &Path, name: &str) -> PathBuf {
    let openssl = |args: &str| run(Command::new("openssl").args(args.split(' ')).current_dir(folder));
    openssl(&format!(
        "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -keyout {name}.key -out {name}.crt \
         -subj /CN={name} -addext basicConstraints=critical,CA:TRUE"
    ));
    openssl(&format!(
        "req -new -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -keyout {name}-server.key -out {name}.csr \
         -subj /CN=localhost"
    ));
    let extensions = folder.join(format!("{name}.ext"));
    std::fs::write(&extensions, "subjectAltName=DNS:localhost\n").expect("writable");
    openssl(&format!(
        "x509 -req -in {name}.csr -CA {name}.crt -CAkey {name}.key -CAcreateserial -days 2 -out {name}-server.crt \
         -extfile {name}.ext"
    ));
    folder.join(format!("{name}.crt"))
}

/// Connections with TLS only.
const WITH_TLS: &str = "hostssl all all 127.0.0.1/32 scram-sha-256\n";
/// Connections without TLS only.
const WITHOUT_TLS: &str = "hostnossl all all 127.0.0.1/32 scram-sha-256\n";

/// Either.
const EITHER_WAY: &str = "host all all 127.0.0.1/32 scram-sha-256\n";

/// A PostgreSQL server on TCP with TLS and a password, as an administrator would set one up.
struct TlsPostgres {
    process: Child,
    port: u16,
    _dir: tempfile::TempDir,
}

impl TlsPostgres {
    /// With the certificate `own-server.crt`, and these lines of `pg_hba.conf`.
    async fn start(certificates: &Path, hba: &str) -> Self {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let (data, programs) = (dir.path().join("data"), programs());
        for file in ["own-server.crt", "own-server.key"] {
            std::fs::copy(certificates.join(file), dir.path().join(file)).expect("copied");
        }
        let password = dir.path().join("password");
        std::fs::write(&password, "secret\n").expect("writable");
        let unprivileged = UnprivilegedAccount::find();
        unprivileged.own(dir.path());
        let mut initdb = Command::new(programs.join("initdb"));
        initdb
            .args(["--no-sync", "-U", "admin", "-A", "scram-sha-256", "--pwfile"])
            .arg(&password)
            .arg("-D")
            .arg(&data);
        run(unprivileged.become_in(&mut initdb, dir.path()));
        std::fs::OpenOptions::new()
            .write(true)
            .truncate(true)
            .open(data.join("pg_hba.conf"))
            .and_then(|mut file| file.write_all(hba.as_bytes()))
            .expect("writable");
        let port = std::net::TcpListener::bind(("127.0.0.1", 0)).and_then(|socket| socket.local_addr());
        let port = port.expect("a free port").port();
        let mut postgres = Command::new(programs.join("postgres"));
        postgres.arg("-D").arg(&data).args([
            "-c",
            &format!("port={port}"),
            "-c",
            "listen_addresses=127.0.0.1",
            "-c",
            "unix_socket_directories=",
            "-c",
            "ssl=on",
            "-c",
            &format!("ssl_cert_file={}", dir.path().join("own-server.crt").display()),
            "-c",
            &format!("ssl_key_file={}", dir.path().join("own-server.key").display()),
        ]);
        let process = unprivileged.become_in(&mut postgres, dir.path()).stderr(Stdio::null()).spawn().expect("started");
        let server = Self { process, port, _dir: dir };
        until("the server takes connections", async || {
            tokio::net::TcpStream::connect(("127.0.0.1", server.port)).await.is_ok()
        })
        .await;
        server
    }

    fn url(&self, host: &str, mode: &str) -> String {
        format!("postgres://admin:secret@{host}:{}/postgres?sslmode={mode}", self.port)
    }
}

impl Drop for TlsPostgres {
    fn drop(&mut self) {
        // At once: its data is not needed any more.
        let pid = rustix::process::Pid::from_child(&self.process);
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::QUIT);
        let _ = self.process.wait();
    }
}

/// Where the newest PostgreSQL's programs are.
fn programs() -> PathBuf {
    let mut found: Vec<_> = std::fs::read_dir("/usr/lib/postgresql")
        .expect("PostgreSQL is installed")
        .map(|entry| entry.expect("readable").path().join("bin"))
        .filter(|folder| folder.join("postgres").exists())
        .collect();
    found.sort();
    found.pop().expect("PostgreSQL is installed")
}

/// The account that a server runs as, when the tests run as root.
struct UnprivilegedAccount(Option<(u32, u32)>);

impl UnprivilegedAccount {
    fn find() -> Self {
        if !rustix::process::geteuid().is_root() {
            return Self(None);
        }
        let passwd = std::fs::read_to_string("/etc/passwd").expect("readable");
        let line = passwd.lines().find(|line| line.starts_with("postgres:")).expect("the package made an account");
        let number = |place| line.split(':').nth(place).and_then(|text| text.parse().ok()).expect("a number");
        Self(Some((number(2), number(3))))
    }

    fn own(&self, folder: &Path) {
        let Some((uid, gid)) = self.0 else { return };
        let inside = std::fs::read_dir(folder).expect("readable").map(|entry| entry.expect("readable").path());
        for path in inside.chain([folder.to_owned()]) {
            std::os::unix::fs::chown(path, Some(uid), Some(gid)).expect("as root");
        }
    }

    fn become_in<'a>(&self, command: &'a mut Command, folder: &Path) -> &'a mut Command {
        use std::os::unix::process::CommandExt;
        if let Some((uid, gid)) = self.0 {
            command.uid(uid).gid(gid);
        }
        command.current_dir(folder).stdout(Stdio::null())
    }
}

fn settings(dir: &Path, url: String, ca_file: Option<PathBuf>, migrate: bool) -> Settings {
    let mut settings = Settings::built_in(dir.to_owned(), ([127, 0, 0, 1], 0).into());
    settings.database = Some(DatabaseSettings { url, listen_url: None, ca_file, migrate });
    settings
}

#[tokio::test]
async fn a_database_over_tls_is_used_only_when_its_certificate_is_vouched_for() {
    let folder = tempfile::tempdir().expect("a temporary directory");
    let (own, other) = (certificates(folder.path(), "own"), certificates(folder.path(), "other"));
    let server = TlsPostgres::start(folder.path(), WITH_TLS).await;
    let state = tempfile::tempdir().expect("a temporary directory");
    let start =
        |url: String, ca_file: Option<&PathBuf>| Gateway::start(settings(state.path(), url, ca_file.cloned(), true));

    let gateway = loop {
        match start(server.url("localhost", "require"), Some(&own)).await {
            Ok(gateway) => break gateway,
            Err(error) => assert!(error.to_string().contains("starting up"), "the authority is known: {error}"),
        }
    };
    DeviceFixture::pair(gateway.store()).await;
    gateway.stop().await;

    for (why, url, ca_file) in [
        ("certificate", server.url("localhost", "require"), Some(&other)),
        ("certificate", server.url("localhost", "verify-full"), None),
        ("certificate", server.url("127.0.0.1", "require"), Some(&own)),
        ("no encryption", server.url("localhost", "disable"), Some(&own)),
    ] {
        let Err(error) = start(url, ca_file).await else { panic!("{why} was accepted") };
        assert!(matches!(error, StartError::Database(_)), "{why}: {error:?}");
        let text = error.to_string();
        assert!(text.contains(why) && !text.contains("secret"), "{why}: {text}");
    }

    let empty = folder.path().join("empty.crt");
    std::fs::write(&empty, "no certificate\n").expect("writable");
    for unusable in [empty, folder.path().join("missing.crt")] {
        let Err(error) = start(server.url("localhost", "require"), Some(&unusable)).await else { panic!("accepted") };
        assert!(matches!(error, StartError::Database(DatabaseOpenError::CaFile { .. })), "{error:?}");
        assert!(error.to_string().contains(unusable.to_str().expect("UTF-8")), "{error}");
    }
}

/// The clients of PostgreSQL itself say what a mode means.
#[tokio::test]
async fn every_sslmode_with_every_sslrootcert_connects_where_psql_does_and_nowhere_else() {
    let folder = tempfile::tempdir().expect("a temporary directory");
    let (own, other) = (certificates(folder.path(), "own"), certificates(folder.path(), "other"));
    let (encrypted, plain) =
        tokio::join!(TlsPostgres::start(folder.path(), WITH_TLS), TlsPostgres::start(folder.path(), WITHOUT_TLS));
    for server in [&encrypted, &plain] {
        until("the server takes statements", async || psql(&server.url("localhost", "prefer"), folder.path())).await;
    }
    let mut connected = 0;
    for server in [&encrypted, &plain] {
        for host in ["localhost", "127.0.0.1"] {
            for mode in ["disable", "allow", "prefer", "require", "verify-ca", "verify-full"] {
                for root in [None, Some(&own), Some(&other), Some(&folder.path().join("own-server.crt"))] {
                    let root = root.map(|file| format!("&sslrootcert={}", file.display())).unwrap_or_default();
                    let url = format!("{}{root}", server.url(host, mode));
                    let ours = Address::new(&url, None, None).expect("a URL").connect().await;
                    let expected = psql(&url, folder.path());
                    assert_eq!(
                        ours.is_ok(),
                        expected,
                        "{url} {}",
                        ours.err().map(|e| e.to_string()).unwrap_or_default()
                    );
                    connected += usize::from(expected);
                }
            }
        }
    }
    assert!((30..60).contains(&connected), "the table has both: {connected}");
}

/// Whether `psql` of the newest PostgreSQL connects.
fn psql(url: &str, home: &Path) -> bool {
    let mut command = Command::new(programs().join("psql"));
    command.args(["--no-psqlrc", "--command=SELECT 1"]).arg(url).env_clear().env("HOME", home);
    command.output().expect("it is installed").status.success()
}

#[tokio::test]
async fn a_server_with_a_certificate_that_signed_itself_is_used_as_the_manual_of_postgresql_sets_it_up() {
    let folder = tempfile::tempdir().expect("a temporary directory");
    let openssl = "req -new -x509 -days 365 -nodes -out own-server.crt -keyout own-server.key -subj /CN=localhost \
                   -addext subjectAltName=DNS:localhost";
    run(Command::new("openssl").args(openssl.split_whitespace()).current_dir(folder.path()));
    let server = TlsPostgres::start(folder.path(), EITHER_WAY).await;
    let own = folder.path().join("own-server.crt");
    let connects = async |url: &str| Address::new(url, None, None).expect("a URL").connect().await.is_ok();
    let url = |host: &str, mode: &str| format!("{}&sslrootcert={}", server.url(host, mode), own.display());
    until("the server takes statements", async || connects(&url("localhost", "verify-full")).await).await;
    assert!(connects(&format!("postgres://admin:secret@localhost:{}/postgres", server.port)).await, "as Debian has it");
    assert!(!connects(&url("127.0.0.1", "verify-full")).await, "it is for another name");
    assert!(connects(&url("127.0.0.1", "verify-ca")).await);
    assert!(!connects(&server.url("localhost", "verify-full")).await, "the system does not trust it");
}

/// PgBouncer before a server, as Debian has it.
struct PgBouncer {
    process: Child,
    port: u16,
    dir: tempfile::TempDir,
}

impl PgBouncer {
    async fn start(server: &TlsPostgres, pool_mode: &str) -> Self {
        until("the server takes statements", async || {
            let address = Address::new(&server.url("localhost", "prefer"), None, None).expect("a URL");
            address.connect().await.is_ok()
        })
        .await;
        let dir = tempfile::tempdir().expect("a temporary directory");
        let port = std::net::TcpListener::bind(("127.0.0.1", 0)).and_then(|socket| socket.local_addr());
        let port = port.expect("a free port").port();
        let process = Self::spawn(dir.path(), port, server, pool_mode);
        let pooler = Self { process, port, dir };
        until("the pooler takes connections", async || {
            tokio::net::TcpStream::connect(("127.0.0.1", port)).await.is_ok()
        })
        .await;
        pooler
    }

    fn spawn(dir: &Path, port: u16, server: &TlsPostgres, pool_mode: &str) -> Child {
        let file = dir.join("pgbouncer.ini");
        let config = format!(
            "[databases]\n* = host=127.0.0.1 port={} user=admin password=secret\n[pgbouncer]\n\
             listen_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir =\nauth_type = any\n\
             pool_mode = {pool_mode}\ndefault_pool_size = 40\nmax_client_conn = 200\n",
            server.port
        );
        std::fs::write(&file, config).expect("writable");
        let unprivileged = UnprivilegedAccount::find();
        unprivileged.own(dir);
        let mut command = Command::new("/usr/sbin/pgbouncer");
        command.arg(&file);
        unprivileged.become_in(&mut command, dir).stderr(Stdio::null()).spawn().expect("scripts/setup installs it")
    }

    /// Starts it again with another mode.
    fn restart(&mut self, server: &TlsPostgres, pool_mode: &str) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        self.process = Self::spawn(self.dir.path(), self.port, server, pool_mode);
    }

    fn url(&self) -> String {
        format!("postgres://admin@127.0.0.1:{}/postgres", self.port)
    }
}

impl Drop for PgBouncer {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[tokio::test]
async fn a_pooler_in_transaction_mode_is_refused_at_the_start_and_says_what_to_do() {
    let folder = tempfile::tempdir().expect("a temporary directory");
    certificates(folder.path(), "own");
    let server = TlsPostgres::start(folder.path(), EITHER_WAY).await;
    for mode in ["transaction", "statement"] {
        let pooler = PgBouncer::start(&server, mode).await;
        let (wake, _outgoing) = ChangeNotifier::new();
        let address = Address::new(&pooler.url(), None, None).expect("a URL");
        let error = address.open(true, wake).await.err().expect("refused");
        assert!(matches!(error, DatabaseOpenError::SharedSessions), "{mode}: {error}");
        assert!(error.to_string().contains("Set pool_mode = session"), "{error}");
        let past = Address::new(&server.url("localhost", "require"), None, None).expect("a URL");
        let (client, _driver) = past.connect().await.expect("the server is there");
        let row = client.query_one("SELECT to_regclass('runs') IS NULL", &[]).await.expect("answered");
        assert!(row.get::<_, bool>(0), "nothing was migrated");
    }
}

#[tokio::test]
async fn behind_a_pooler_in_session_mode_a_gateway_works_and_is_ready_only_while_statements_are_safe() {
    let folder = tempfile::tempdir().expect("a temporary directory");
    certificates(folder.path(), "own");
    let server = TlsPostgres::start(folder.path(), EITHER_WAY).await;
    let mut pooler = PgBouncer::start(&server, "session").await;
    let state = tempfile::tempdir().expect("a temporary directory");
    let mut settings = settings(state.path(), pooler.url(), None, true);
    settings.ops_listen = Some(([127, 0, 0, 1], 0).into());
    let gateway = Gateway::start(settings).await.expect("it starts");
    DeviceFixture::pair(gateway.store()).await;
    let ops = gateway.addresses().ops.expect("a listener");
    let ready = async || deskgate_gateway::ops::health_check::send_request(ops, "/readyz?verbose").await;
    until("it is ready", async || ready().await.is_ok()).await;

    pooler.restart(&server, "transaction");
    until("it is not ready, and says why", async || {
        ready().await.is_err_and(|said| said.contains("a connection pooler in transaction mode"))
    })
    .await;
    for _ in 0..20 {
        assert!(ready().await.is_err(), "it never says so now and then");
    }
    pooler.restart(&server, "session");
    until("it is ready again", async || ready().await.is_ok()).await;
    gateway.stop().await;
}

async fn open(database: &TestDatabase, migrate: bool) -> Result<(), DatabaseOpenError> {
    let (wake, _outgoing) = ChangeNotifier::new();
    Address::new(&database.url(), None, None).expect("a URL").open(migrate, wake).await.map(drop)
}

#[tokio::test]
async fn a_database_that_may_lose_a_commit_is_refused() {
    let database = TestDatabase::new().await;
    let name = database.value("SELECT current_database()").await;
    database.execute(&format!("ALTER DATABASE {name} SET synchronous_commit = off")).await;
    let error = open(&database, true).await.expect_err("not durable");
    assert!(matches!(error, DatabaseOpenError::NotDurable { setting: "synchronous_commit", .. }), "{error}");
    assert!(error.to_string().contains("Set synchronous_commit = on"), "{error}");
    assert_eq!(database.value("SELECT to_regclass('runs')::text IS NULL").await, "true", "nothing was migrated");
    database.execute(&format!("ALTER DATABASE {name} RESET synchronous_commit")).await;
    open(&database, true).await.expect("durable");
}

#[tokio::test]
async fn a_server_without_fsync_is_refused() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let (data, programs, unprivileged) = (dir.path().join("data"), programs(), UnprivilegedAccount::find());
    unprivileged.own(dir.path());
    let mut initdb = Command::new(programs.join("initdb"));
    initdb.args(["--no-sync", "-U", "admin", "-A", "trust", "-D"]).arg(&data);
    run(unprivileged.become_in(&mut initdb, dir.path()));
    let mut postgres = Command::new(programs.join("postgres"));
    postgres.arg("-D").arg(&data).args([
        "-c",
        "fsync=off",
        "-c",
        "listen_addresses=",
        "-c",
        "unix_socket_directories=.",
    ]);
    // Its working directory is the data directory, so its socket is there.
    let process = unprivileged.become_in(&mut postgres, dir.path()).stderr(Stdio::null()).spawn().expect("started");
    let server = TlsPostgres { process, port: 0, _dir: dir };
    let socket = data.join(".s.PGSQL.5432");
    until("the server takes connections", async || socket.exists()).await;
    let host = data.to_str().expect("UTF-8").replace('/', "%2F");
    let address = Address::new(&format!("postgres://admin@{host}/postgres"), None, None).expect("a URL");
    let (wake, _outgoing) = ChangeNotifier::new();
    let error = loop {
        match address.open(true, wake.clone()).await {
            // It is still starting.
            Err(DatabaseOpenError::Migrate(MigrateError::Store(_))) => {}
            Err(error) => break error,
            Ok(_) => panic!("a database without fsync was accepted"),
        }
    };
    assert!(matches!(error, DatabaseOpenError::NotDurable { setting: "fsync", .. }), "{error}");
    drop(server);
}

#[tokio::test]
async fn a_schema_that_is_older_newer_or_another_ones_is_refused() {
    let database = TestDatabase::new().await;
    let error = open(&database, false).await.expect_err("nothing is there");
    assert!(matches!(error, DatabaseOpenError::Behind { applied: 0, known } if known == newest()), "{error}");
    assert!(error.to_string().contains("deskgate-gateway migrate run"), "{error}");
    open(&database, true).await.expect("migrated");
    open(&database, false).await.expect("current");

    database.execute("INSERT INTO deskgate_migrations (version, name, sha256) VALUES (999, 'later', 'x')").await;
    for migrate in [false, true] {
        let error = open(&database, migrate).await.expect_err("too new");
        assert!(
            matches!(error, DatabaseOpenError::Migrate(MigrateError::Ahead { applied: 999, known }) if known == newest()),
            "{error}"
        );
    }
    database.execute("DELETE FROM deskgate_migrations WHERE version = 999").await;
    open(&database, false).await.expect("current again");

    database.execute("UPDATE deskgate_migrations SET sha256 = 'changed' WHERE version = 1").await;
    let error = open(&database, true).await.expect_err("changed");
    assert!(matches!(error, DatabaseOpenError::Migrate(MigrateError::Changed { version: 1 })), "{error}");
}

#[tokio::test]
async fn gateways_that_start_together_migrate_once() {
    let database = TestDatabase::new().await;
    let mut starting = tokio::task::JoinSet::new();
    for _ in 0..4 {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let settings = settings(dir.path(), database.url(), None, true);
        starting.spawn(async move { (Gateway::start(settings).await.expect("started"), dir) });
    }
    let gateways = starting.join_all().await;
    let applied = database.value("SELECT count(*) || ' ' || count(DISTINCT version) FROM deskgate_migrations").await;
    assert_eq!(applied, format!("{0} {0}", newest()));
    assert_eq!(database.value("SELECT count(*) FROM gateway").await, "1", "all of them are one gateway");
    for (gateway, _dir) in gateways {
        gateway.stop().await;
    }
}

#[tokio::test]
async fn an_address_that_is_none_is_refused_without_repeating_its_password() {
    for url in ["", "http://example.com/", "postgres://u:secret@h:port/db", "postgres://u:secret@h/db?sslmode=perhaps"]
    {
        let Err(error) = Address::new(url, None, None) else { continue };
        assert!(matches!(error, DatabaseOpenError::Url(_)), "{error}");
        assert!(!error.to_string().contains("secret"), "{error}");
    }
    let debug = format!("{:?}", settings(Path::new("/nowhere"), "postgres://u:secret@h/db".to_owned(), None, false));
    assert!(!debug.contains("secret"), "{debug}");
}
