//! Promises of the private PostgreSQL cluster, with the real PostgreSQL programs.
//!
//! They hold for root and for a person. As root the state directories of these tests lie in private temporary
//! directories, which the server's account could not enter by itself.

mod owner;
mod trouble;

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, Instant};

use deskgate_gateway::store::cluster::{Cluster, ClusterConfig, ClusterError};
use tokio_postgres::{Client, NoTls};

use owner::{ClusterOwner, is_alive};

/// A client whose connection is driven for as long as the returned set lives.
async fn connect(config: &tokio_postgres::Config) -> Result<(Client, tokio::task::JoinSet<()>), tokio_postgres::Error> {
    let (client, connection) = config.connect(NoTls).await?;
    let mut driver = tokio::task::JoinSet::new();
    driver.spawn(async move {
        // The client hears of it too.
        let _ = connection.await;
    });
    Ok((client, driver))
}

async fn query(cluster: &Cluster, statement: &str) -> String {
    let (client, _driver) = connect(&cluster.connect_config()).await.expect("connected");
    let row = client.query_one(statement, &[]).await.expect("answered");
    row.get::<_, String>(0)
}

async fn execute(cluster: &Cluster, statement: &str) {
    let (client, _driver) = connect(&cluster.connect_config()).await.expect("connected");
    client.batch_execute(statement).await.expect("executed");
}

async fn start(state_dir: &Path) -> Cluster {
    Cluster::start(ClusterConfig::new(state_dir)).await.expect("started")
}

#[tokio::test]
async fn the_first_start_makes_a_database_and_a_later_start_finds_what_was_written() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let state_dir = dir.path().join("not/yet/there");

    let began = Instant::now();
    let cluster = start(&state_dir).await;
    println!("first start: {:?}", began.elapsed());
    assert!(began.elapsed() < Duration::from_secs(20), "far above the two seconds it should take");
    execute(&cluster, "create table kept (what text); insert into kept values ('café')").await;
    cluster.stop().await;

    for _ in 0..3 {
        let began = Instant::now();
        let cluster = start(&state_dir).await;
        println!("later start: {:?}", began.elapsed());
        assert!(began.elapsed() < Duration::from_secs(10), "far above the half second it should take");
        assert_eq!(query(&cluster, "select what from kept").await, "café");
        let began = Instant::now();
        cluster.stop().await;
        println!("stop: {:?}", began.elapsed());
    }
}

#[tokio::test]
async fn commits_are_durable_and_text_is_compared_by_code_point() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let cluster = start(dir.path()).await;
    for (setting, value) in [
        ("fsync", "on"),
        ("synchronous_commit", "on"),
        ("full_page_writes", "on"),
        ("data_checksums", "on"),
        ("server_encoding", "UTF8"),
        ("listen_addresses", ""),
        ("log_min_error_statement", "panic"),
    ] {
        assert_eq!(query(&cluster, &format!("select current_setting('{setting}')")).await, value, "{setting}");
    }
    let collation = "select datcollate::text from pg_database where datname = current_database()";
    assert_eq!(query(&cluster, collation).await, "C.UTF-8");
    cluster.stop().await;
}

#[tokio::test]
async fn a_second_owner_is_refused_and_the_first_is_not_disturbed() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let mut owner = ClusterOwner::start(dir.path());
    let error = Cluster::start(ClusterConfig::new(dir.path())).await.expect_err("in use");
    assert!(matches!(error, ClusterError::InUse { owner: Some(pid), .. } if pid == owner.pid()), "{error}");
    assert!(is_alive(owner.postmaster));
    owner.stop();
    start(dir.path()).await.stop().await;
}

#[tokio::test]
async fn stopping_is_quick_although_clients_wait_work_and_hold_transactions() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let cluster = start(dir.path()).await;
    let config = cluster.connect_config();
    let (_idle, _driver) = connect(&config).await.expect("connected");
    let (in_transaction, _driver) = connect(&config).await.expect("connected");
    in_transaction.batch_execute("create table t (a int); begin; insert into t values (1)").await.expect("begun");
    let (working, _driver) = connect(&config).await.expect("connected");
    let work = tokio::spawn(async move { working.batch_execute("select pg_sleep(1000)").await });
    let (watching, _driver) = connect(&config).await.expect("connected");
    let at_work = "select count(*) from pg_stat_activity where wait_event = 'PgSleep'";
    while watching.query_one(at_work, &[]).await.expect("answered").get::<_, i64>(0) == 0 {}

    let (postmaster, socket_dir) = (cluster.postmaster_pid().expect("runs"), cluster.socket_dir().to_owned());
    let began = Instant::now();
    cluster.stop().await;
    println!("stop with clients: {:?}", began.elapsed());
    assert!(began.elapsed() < Duration::from_secs(2));
    assert!(!is_alive(postmaster), "reaped");
    assert!(!socket_dir.exists(), "nothing is left outside the state directory");
    work.await.expect("no panic").expect_err("the statement was cut off");
}

#[tokio::test]
async fn nobody_but_our_own_account_comes_in() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let cluster = start(dir.path()).await;
    for private in [cluster.data_dir(), cluster.socket_dir()] {
        assert_eq!(private.metadata().expect("there").mode() & 0o077, 0, "{}", private.display());
    }
    // Even the account the server runs as is no user of the database.
    let server = cluster.data_dir().metadata().expect("there");
    if rustix::process::geteuid().is_root() {
        use std::os::unix::process::CommandExt;
        let psql = |uid: u32, gid: u32| {
            let mut psql = std::process::Command::new("psql");
            psql.args(["--no-psqlrc", "-Atc", "select 'in'", &cluster.url()]).uid(uid).gid(gid).current_dir("/");
            psql.output().expect("psql runs")
        };
        assert_ne!(server.uid(), 0, "PostgreSQL does not run as root");
        assert_eq!(psql(0, 0).stdout, b"in\n", "the URL is understood by other programs");
        let refused = psql(server.uid(), server.gid());
        let message = String::from_utf8_lossy(&refused.stderr);
        assert!(!refused.status.success() && message.contains("Peer authentication failed"), "{message}");
    }
    cluster.stop().await;
}

#[tokio::test]
async fn no_network_port_is_opened() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let cluster = start(dir.path()).await;
    let process = Path::new("/proc").join(cluster.postmaster_pid().expect("runs").to_string());
    let held: Vec<String> = std::fs::read_dir(process.join("fd"))
        .expect("ours")
        .filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok())
        .filter_map(|target| Some(target.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.to_owned()))
        .collect();
    let inodes = |table: &str, column: usize| -> Vec<String> {
        let text = std::fs::read_to_string(process.join("net").join(table)).unwrap_or_default();
        text.lines().filter_map(|line| Some(line.split_whitespace().nth(column)?.to_owned())).collect()
    };
    assert!(held.iter().any(|inode| inodes("unix", 6).contains(inode)), "the check sees the server's socket");
    for table in ["tcp", "tcp6", "udp", "udp6"] {
        assert!(held.iter().all(|inode| !inodes(table, 9).contains(inode)), "{table}");
    }
    cluster.stop().await;
}

#[tokio::test]
async fn the_server_gets_none_of_our_environment() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let mut owner = ClusterOwner::start_with(dir.path(), |command| {
        command.env("DESKGATE_CONTROL_TOKEN", "dgt_secret").env("PGDATA", "/nowhere").env("PGPORT", "1");
    });
    let environment = std::fs::read(format!("/proc/{}/environ", owner.postmaster)).expect("ours");
    let environment = String::from_utf8_lossy(&environment);
    assert!(environment.contains("LC_ALL=C.UTF-8"), "the check sees the environment: {environment}");
    assert!(!environment.contains("dgt_secret") && !environment.contains("nowhere"), "{environment}");
    owner.stop();
}

#[tokio::test]
async fn an_ordinary_account_runs_its_own_server() {
    use std::os::unix::process::CommandExt;
    if !rustix::process::geteuid().is_root() {
        return; // every other test here shows it
    }
    let server = {
        let dir = tempfile::tempdir().expect("temporary directory");
        let cluster = start(dir.path()).await;
        let data = cluster.data_dir().metadata().expect("there");
        cluster.stop().await;
        data
    };
    // The account must reach the state directory and this program; both get a path that it can enter.
    let dir = tempfile::tempdir().expect("temporary directory");
    std::fs::set_permissions(dir.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).expect("ours");
    let program = dir.path().join("owner");
    std::fs::copy(std::env::current_exe().expect("known"), &program).expect("copied");
    let state_dir = dir.path().join("state");
    std::fs::create_dir(&state_dir).expect("new");
    std::os::unix::fs::chown(&state_dir, Some(server.uid()), Some(server.gid())).expect("as root");
    for _ in 0..2 {
        let mut owner = ClusterOwner::start_program(&program, &state_dir, |command| {
            command.uid(server.uid()).gid(server.gid()).env_remove("XDG_RUNTIME_DIR");
        });
        let line = std::fs::read(format!("/proc/{}/cmdline", owner.postmaster)).expect("runs");
        let data_dir = state_dir.join("postgres").canonicalize().expect("there");
        assert!(String::from_utf8_lossy(&line).contains(data_dir.to_str().expect("UTF-8")), "a plain path suffices");
        owner.stop();
    }
}
