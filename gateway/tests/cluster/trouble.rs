//! The private cluster when processes are killed and files are damaged.

use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use deskgate_gateway::store::cluster::{Cluster, ClusterConfig, ClusterError};
use rustix::process::{Pid, Signal, kill_process};

use crate::owner::{ClusterOwner, is_alive};
use crate::{connect, execute, query, start};

/// The interval of polls for an expected state.
const POLL_INTERVAL: Duration = Duration::from_millis(5);

fn kill(pid: u32) {
    // It may have ended by itself a moment before.
    let _ = kill_process(Pid::from_raw(pid as i32).expect("above zero"), Signal::KILL);
}

/// The server's children, found by their parent.
fn children(postmaster: u32) -> Vec<u32> {
    std::fs::read_to_string(format!("/proc/{postmaster}/task/{postmaster}/children"))
        .expect("runs")
        .split_whitespace()
        .map(|pid| pid.parse().expect("a number"))
        .collect()
}

/// Leaves a database with one committed row behind, and nothing running.
async fn with_one_row(state_dir: &Path) {
    let cluster = start(state_dir).await;
    execute(&cluster, "create table kept (what text); insert into kept values ('row')").await;
    cluster.stop().await;
}

#[tokio::test]
async fn after_a_killed_owner_the_next_start_works_and_one_server_runs() {
    let dir = tempfile::tempdir().expect("temporary directory");
    with_one_row(dir.path()).await;
    let mut owner = ClusterOwner::start(dir.path());
    owner.kill();
    let cluster = start(dir.path()).await;
    assert!(!is_alive(owner.postmaster), "the earlier server is gone");
    assert_eq!(query(&cluster, "select what from kept").await, "row");
    cluster.stop().await;
}

#[tokio::test]
async fn a_server_ends_with_its_killed_owner_where_the_machine_can_do_that() {
    let can =
        Command::new("setpriv").args(["--pdeathsig", "INT", "true"]).status().is_ok_and(|status| status.success());
    if !can {
        return;
    }
    let dir = tempfile::tempdir().expect("temporary directory");
    let mut owner = ClusterOwner::start(dir.path());
    owner.kill();
    let ended = async {
        while is_alive(owner.postmaster) {
            tokio::time::sleep(POLL_INTERVAL).await
        }
    };
    tokio::time::timeout(Duration::from_secs(120), ended).await.expect("it ends by itself");
    // The next start removes files outside the state directory.
    start(dir.path()).await.stop().await;
}

#[tokio::test]
async fn a_server_that_was_left_running_is_replaced_although_clients_hold_it() {
    let dir = tempfile::tempdir().expect("temporary directory");
    with_one_row(dir.path()).await;
    // Without setpriv in its PATH the owner cannot arrange that the server ends with it.
    let path = tempfile::tempdir().expect("temporary directory");
    std::os::unix::fs::symlink("/usr/bin/id", path.path().join("id")).expect("new");
    let mut owner = ClusterOwner::start_with(dir.path(), |command| {
        command.env("PATH", path.path());
    });
    let mut config = tokio_postgres::Config::new();
    let pid_file = std::fs::read_to_string(dir.path().join("postgres/postmaster.pid")).expect("runs");
    config.host_path(pid_file.lines().nth(4).expect("the socket's directory")).user("deskgate").dbname("deskgate");
    let (client, _driver) = connect(&config).await.expect("connected");
    owner.kill();
    client.batch_execute("select 1").await.expect("the orphan still works");

    let cluster = start(dir.path()).await;
    assert!(!is_alive(owner.postmaster), "the orphan is gone");
    client.batch_execute("select 1").await.expect_err("its client was cut off");
    assert_eq!(query(&cluster, "select what from kept").await, "row");
    cluster.stop().await;
}

#[tokio::test]
async fn a_kill_of_everything_loses_nothing_that_was_committed() {
    let dir = tempfile::tempdir().expect("temporary directory");
    with_one_row(dir.path()).await;
    let mut owner = ClusterOwner::start(dir.path());
    let mut config = tokio_postgres::Config::new();
    let pid_file = std::fs::read_to_string(dir.path().join("postgres/postmaster.pid")).expect("runs");
    config.host_path(pid_file.lines().nth(4).expect("the socket's directory")).user("deskgate").dbname("deskgate");
    let (client, _driver) = connect(&config).await.expect("connected");
    client.batch_execute("insert into kept select 'row' from generate_series(1, 1000)").await.expect("committed");
    let all = children(owner.postmaster);
    kill(owner.postmaster);
    all.into_iter().for_each(kill);
    owner.kill();

    let cluster = start(dir.path()).await;
    assert_eq!(query(&cluster, "select count(*)::text from kept").await, "1001");
    cluster.stop().await;
}

#[tokio::test]
async fn a_killed_server_is_started_again_while_its_owner_lives() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let cluster = start(dir.path()).await;
    execute(&cluster, "create table kept (what text); insert into kept values ('row')").await;
    let (working, _driver) = connect(&cluster.connect_config()).await.expect("connected");
    // A child that is busy does not notice the end of the postmaster; it must not stay.
    let work =
        tokio::spawn(async move { working.batch_execute("select count(*) from generate_series(1, 1e12)").await });
    let before = cluster.postmaster_pid().expect("runs");
    kill(before);
    let again = async {
        loop {
            match connect(&cluster.connect_config()).await {
                Ok(connected) if cluster.postmaster_pid().is_some_and(|pid| pid != before) => return connected,
                _ => tokio::time::sleep(POLL_INTERVAL).await,
            }
        }
    };
    let (client, _driver) = tokio::time::timeout(Duration::from_secs(120), again).await.expect("it is back");
    client.batch_execute("insert into kept values ('another')").await.expect("it works");
    work.await.expect("no panic").expect_err("cut off");
    assert_eq!(query(&cluster, "select count(*)::text from kept").await, "2");
    cluster.stop().await;
}

#[tokio::test]
async fn a_reused_process_number_neither_blocks_the_start_nor_costs_a_stranger_its_life() {
    let dir = tempfile::tempdir().expect("temporary directory");
    with_one_row(dir.path()).await;
    let data_dir = dir.path().join("postgres");
    let data = data_dir.metadata().expect("there");
    // Another process of the server's own account: the one case in which PostgreSQL itself is deceived.
    let mut stranger = Command::new("sleep");
    stranger.arg("1000");
    if rustix::process::geteuid().is_root() {
        stranger.uid(data.uid()).gid(data.gid());
    }
    let mut stranger = stranger.spawn().expect("sleep runs");
    let text = format!(
        "{}\n{}\n1795254166\n5432\n/nowhere\n\n        1         1\nready   \n",
        stranger.id(),
        data_dir.display()
    );
    let pid_file = data_dir.join("postmaster.pid");
    std::fs::write(&pid_file, text).expect("written");
    std::os::unix::fs::chown(&pid_file, Some(data.uid()), Some(data.gid())).expect("ours");

    let started = Cluster::start(ClusterConfig::new(dir.path())).await;
    let is_unharmed = stranger.try_wait().expect("ours").is_none();
    stranger.kill().expect("ours");
    stranger.wait().expect("ours");
    let cluster = started.expect("started");
    assert!(is_unharmed);
    assert_eq!(query(&cluster, "select what from kept").await, "row");
    cluster.stop().await;
}

#[tokio::test]
async fn an_interrupted_initdb_is_repaired() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let partial = dir.path().join("postgres.partial");
    let mut owner = ClusterOwner::begin(&std::env::current_exe().expect("known"), dir.path(), |_| {});
    let under_way = async {
        while !partial.join("PG_VERSION").exists() {
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(120), under_way).await.expect("initdb is under way");
    owner.kill();
    assert!(!dir.path().join("postgres").exists(), "killed before it was complete");

    let cluster = start(dir.path()).await;
    assert!(!partial.exists());
    execute(&cluster, "create table works (a int)").await;
    cluster.stop().await;
}

#[tokio::test]
async fn a_start_that_is_cancelled_or_dropped_leaves_nothing_running() {
    let dir = tempfile::tempdir().expect("temporary directory");
    with_one_row(dir.path()).await;
    for _ in 0..3 {
        let begun = Cluster::start(ClusterConfig::new(dir.path()));
        tokio::select! {
            biased;
            _ = begun => {}
            () = std::future::ready(()) => {}
        }
        // The lock is free and no server is left in the way.
        let cluster = start(dir.path()).await;
        let postmaster = cluster.postmaster_pid().expect("runs");
        drop(cluster);
        assert!(!is_alive(postmaster));
    }
    let cluster = start(dir.path()).await;
    assert_eq!(query(&cluster, "select what from kept").await, "row");
    cluster.stop().await;
}

#[tokio::test]
async fn a_server_that_does_not_start_says_why_in_the_error() {
    let dir = tempfile::tempdir().expect("temporary directory");
    with_one_row(dir.path()).await;
    let file = dir.path().join("postgres/postgresql.conf");
    let sound = std::fs::read_to_string(&file).expect("there");
    std::fs::write(&file, "no_such_setting = 1\n").expect("written");
    let error = Cluster::start(ClusterConfig::new(dir.path())).await.expect_err("refused by PostgreSQL").to_string();
    assert!(error.contains("no_such_setting") && error.contains("postgres.log"), "{error}");
    std::fs::write(&file, sound).expect("written");
    start(dir.path()).await.stop().await;
}

#[tokio::test]
async fn missing_programs_are_answered_with_the_command_that_installs_them() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let config = ClusterConfig { bin_dir: Some(dir.path().join("nothing here")), ..ClusterConfig::new(dir.path()) };
    let error = Cluster::start(config).await.expect_err("no programs");
    assert!(matches!(error, ClusterError::NoBinaries { .. }));
    assert!(error.to_string().contains("sudo apt-get install postgresql"), "{error}");
}

#[tokio::test]
async fn a_socket_directory_that_is_too_long_or_hostile_is_refused() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let hostile = dir.path().join("everybody");
    std::fs::create_dir(&hostile).expect("new");
    std::fs::set_permissions(&hostile, std::os::unix::fs::PermissionsExt::from_mode(0o777)).expect("ours");
    let long = dir.path().join("x".repeat(100));
    std::fs::create_dir(&long).expect("new");
    for (parent, problem) in [(hostile, "other users may replace"), (long, "too long")] {
        let config = ClusterConfig { socket_parent: Some(parent), ..ClusterConfig::new(dir.path().join("state")) };
        let error = Cluster::start(config).await.expect_err("refused").to_string();
        assert!(error.contains(problem), "{error}");
    }
    // The data made on the way is good.
    start(&dir.path().join("state")).await.stop().await;
}
