//! The judges: for each fuzz target, a function that takes any bytes and panics when a promise is broken. The same
//! functions are tests on the stable compiler (`tests/tests/arbitrary`).
//!
//! | judge | input |
//! |---|---|
//! | [`frames`] | frames of the control channel, in both directions |
//! | [`journal`] | the device's database as a crash or a bad disk may have left it |
//! | [`cursors`] | cursors of lists, and the numbers of events |
//! | [`destinations`] | URLs, names and addresses of callbacks |
//! | [`signatures`] | signatures of incoming webhooks |
//! | [`mapping`] | an event's mapping: condition, paths, template |
//! | [`configuration`] | the gateway's file, environment and flags; the device's connection |
//! | [`balancers`] | the header of a balancer's connection |
//! | [`keys`] | keys, identity files, known hosts, secrets |
//! | [`receipts`] | what devices sign about their runs, and records of runs |
//! | [`paths`] | the paths of tool calls |
//! | [`schemas`] | schemas of typed inputs and results, and data |

// The fuzzer uses it as a library, a test as a module; its items have no other users.
#![allow(unreachable_pub)]

pub mod balancers;
pub mod configuration;
pub mod cursors;
pub mod destinations;
pub mod frames;
pub mod journal;
pub mod keys;
pub mod mapping;
pub mod paths;
pub mod receipts;
pub mod schemas;
pub mod signatures;

use std::path::Path;

use rustix::time::{ClockId, clock_gettime};

/// A temporary folder, in memory where that is possible.
fn folder() -> tempfile::TempDir {
    let memory = Path::new("/dev/shm");
    let made = if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() };
    made.expect("a temporary folder")
}

/// Waits for a future that needs a runtime.
fn wait<F: Future>(future: F) -> F::Output {
    static RUNTIME: std::sync::LazyLock<tokio::runtime::Runtime> = std::sync::LazyLock::new(|| {
        let mut runtime = tokio::runtime::Builder::new_multi_thread();
        runtime.worker_threads(1).enable_all().build().expect("a runtime")
    });
    RUNTIME.block_on(future)
}

/// The seconds that the processor has worked for this thread, which other work on the machine does not change.
fn processor_time() -> f64 {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    now.tv_sec as f64 + now.tv_nsec as f64 / 1e9
}

/// The first line, and the rest.
fn line(text: &str) -> (&str, &str) {
    text.split_once('\n').unwrap_or((text, ""))
}
