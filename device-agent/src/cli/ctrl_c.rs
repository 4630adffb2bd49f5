//! Ctrl-C. It ends a command at once, unless the command answers it: then it is that command's alone.

use std::sync::atomic::{AtomicBool, Ordering};

use deskgate_program::exit::{Exit, Failure};
use tokio::signal::unix::{Signal, SignalKind, signal};

static ANSWERED: AtomicBool = AtomicBool::new(false);

/// Ctrl-C for a command that has something to do or to say before it ends. While one is there, Ctrl-C does nothing else.
#[derive(Debug)]
pub(super) struct CtrlC(Signal);

impl CtrlC {
    /// Answers Ctrl-C from now on. One that is pressed while nobody waits for it is not lost.
    ///
    /// # Errors
    /// The system gives no signals.
    pub(super) fn answered() -> Result<Self, Failure> {
        let listening = listen()?;
        ANSWERED.store(true, Ordering::SeqCst);
        Ok(Self(listening))
    }

    /// Waits until it is pressed.
    pub(super) async fn pressed(&mut self) {
        if self.0.recv().await.is_none() {
            std::future::pending::<()>().await;
        }
    }
}

impl Drop for CtrlC {
    fn drop(&mut self) {
        ANSWERED.store(false, Ordering::SeqCst);
    }
}

/// Waits until it is pressed while no command answers it.
pub(super) async fn interrupted() -> Failure {
    let mut listening = match listen() {
        Ok(listening) => listening,
        Err(failure) => return failure,
    };
    loop {
        match listening.recv().await {
            Some(()) if ANSWERED.load(Ordering::SeqCst) => {}
            Some(()) => return Failure::new(Exit::Interrupted, ""),
            None => std::future::pending().await,
        }
    }
}

fn listen() -> Result<Signal, Failure> {
    signal(SignalKind::interrupt()).map_err(|error| Failure::new(Exit::Failed, error.to_string()))
}
