//! The folder of a program's reports, and the machine they were made on.

use std::path::PathBuf;

use anyhow::Context;
use serde_json::{Value, json};

/// The folder of this name in the target folder that this program was built into; it is created.
///
/// # Errors
/// The program stands in no target folder, or the folder cannot be created.
pub fn folder(name: &str) -> anyhow::Result<PathBuf> {
    let program = std::env::current_exe()?;
    let target = program.ancestors().nth(2).context("the program stands in no target folder")?;
    let folder = target.join(name);
    std::fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
    Ok(folder)
}

/// The class and state of this machine, without its name.
pub fn machine() -> Value {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let line = |text: &str, name: &str| {
        let line = text.lines().find(|line| line.starts_with(name)).unwrap_or_default();
        line.split_once(':').map(|(_, value)| value.trim().to_owned())
    };
    let system = rustix::system::uname();
    json!({
        "date": deskgate_protocol::Timestamp::now(),
        "product_version": deskgate_protocol::VERSION,
        "optimised": !cfg!(debug_assertions),
        "cores": std::thread::available_parallelism().map_or(0, usize::from),
        "cpu": line(&read("/proc/cpuinfo"), "model name"),
        "memory": line(&read("/proc/meminfo"), "MemTotal"),
        "kernel": system.release().to_string_lossy(),
        "load_average": read("/proc/loadavg").split(' ').next().map(str::to_owned),
    })
}
