//! The desktop's program.

use std::process::ExitCode;

use deskgate_gateway::exit::Failure;

fn main() -> ExitCode {
    match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime.block_on(deskgate::cli::main(|home, stop| {
            Box::pin(async move { deskgate::run(&home, stop).await.map_err(Failure::from) })
        })),
        Err(error) => {
            eprintln!("cannot start: {error}");
            ExitCode::FAILURE
        }
    }
}
