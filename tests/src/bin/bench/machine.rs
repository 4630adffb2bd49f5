//! The machine that the numbers were measured on.

use serde_json::{Value, json};

/// The class and state of this machine, without its name.
pub(crate) fn facts() -> Value {
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
