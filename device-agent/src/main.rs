//! The desktop's program.

use std::process::ExitCode;

fn main() -> ExitCode {
    match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime
            .block_on(deskgate::cli::main(|home, stop| Box::pin(async move { Ok(deskgate::run(&home, stop).await?) }))),
        Err(error) => {
            eprintln!("cannot start: {error}");
            ExitCode::FAILURE
        }
    }
}
