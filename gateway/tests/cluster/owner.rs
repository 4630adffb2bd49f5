//! A cluster's owner in a process of its own, so that it can be killed.
//!
//! It is this very test program, started to run the one test below, which is skipped otherwise.

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};

use deskgate_gateway::store::cluster::{Cluster, ClusterConfig};

const STATE_DIR_VARIABLE: &str = "CLUSTER_OWNER_STATE_DIR";

#[tokio::test]
#[ignore = "run by the other tests, in a process of its own"]
async fn owner_process() {
    let state_dir = std::env::var_os(STATE_DIR_VARIABLE).expect("given by the parent");
    let cluster = Cluster::start(ClusterConfig::new(state_dir)).await.expect("started");
    println!("\nready {}", cluster.postmaster_pid().expect("runs"));
    let wait_for_parent = tokio::task::spawn_blocking(|| std::io::stdin().read_line(&mut String::new()));
    wait_for_parent.await.expect("no panic").expect("readable");
    cluster.stop().await;
}

/// A process that owns a cluster. Killed when dropped.
pub(crate) struct ClusterOwner {
    process: Child,
    pub(crate) postmaster: u32,
    /// Kept open: the process must be able to write its last output.
    output: Option<BufReader<ChildStdout>>,
}

impl ClusterOwner {
    pub(crate) fn start(state_dir: &Path) -> Self {
        Self::start_with(state_dir, |_| {})
    }

    pub(crate) fn start_with(state_dir: &Path, adjust: impl FnOnce(&mut Command)) -> Self {
        Self::start_program(&std::env::current_exe().expect("known"), state_dir, adjust)
    }

    pub(crate) fn start_program(program: &Path, state_dir: &Path, adjust: impl FnOnce(&mut Command)) -> Self {
        let mut owner = Self::begin(program, state_dir, adjust);
        let output = owner.output.insert(BufReader::new(owner.process.stdout.take().expect("piped")));
        let ready =
            output.by_ref().lines().map_while(Result::ok).find_map(|line| line.strip_prefix("ready ")?.parse().ok());
        owner.postmaster = ready.expect("the owner starts its cluster");
        owner
    }

    /// Does not wait until it is ready.
    pub(crate) fn begin(program: &Path, state_dir: &Path, adjust: impl FnOnce(&mut Command)) -> Self {
        let mut command = Command::new(program);
        command
            .args(["--exact", "owner::owner_process", "--ignored", "--nocapture"])
            .env(STATE_DIR_VARIABLE, state_dir);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        adjust(&mut command);
        Self { process: command.spawn().expect("the test program runs"), postmaster: 0, output: None }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.process.id()
    }

    /// Ends it as a signal to a gateway would.
    pub(crate) fn stop(&mut self) {
        drop(self.process.stdin.take());
        assert!(self.process.wait().expect("ours").success());
    }

    /// Ends it as a power cut would, without a chance to do anything.
    pub(crate) fn kill(&mut self) {
        self.process.kill().expect("ours");
        self.process.wait().expect("ours");
    }
}

impl Drop for ClusterOwner {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Whether a process exists and is more than the remains of one.
pub(crate) fn is_alive(pid: u32) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/stat"))
        .is_ok_and(|stat| !stat.rsplit(") ").next().is_some_and(|rest| rest.starts_with('Z')))
}
