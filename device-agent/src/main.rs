//! The `deskgate` program of the desktop.

#![warn(clippy::print_stdout, clippy::print_stderr)]

use std::process::ExitCode;
use std::time::Duration;

use deskgate::cli::AgentFunctions;

/// How long blocked threads may delay the end of the program: a tool that hangs in a system call must not keep it.
const THREAD_SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(2);

fn main() -> ExitCode {
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            deskgate_program::terminal::report(&format!("cannot start: {error}"));
            return ExitCode::FAILURE;
        }
    };
    let ended = runtime.block_on(deskgate::cli::main(AgentFunctions {
        run: |home, signals| Box::pin(async move { Ok(deskgate::run(&home, signals).await?) }),
        look: |home| Box::pin(async move { deskgate::look(&home).await }),
    }));
    runtime.shutdown_timeout(THREAD_SHUTDOWN_TIMEOUT);
    ended
}
