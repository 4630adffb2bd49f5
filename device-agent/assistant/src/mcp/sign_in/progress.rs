//! A sign-in under way: the one that waits for its owner, and why the last one failed.

use tokio_util::task::AbortOnDropHandle;

use super::{McpSignInPrompt, McpSignInStatus};

/// How far the sign-in at one server is.
#[derive(Default)]
pub(super) struct SignInProgress {
    /// The prompt, and the task that waits for its answer.
    waiting: Option<(McpSignInPrompt, AbortOnDropHandle<()>)>,
    /// Why the last sign-in failed.
    failed: Option<String>,
}

impl SignInProgress {
    /// Another sign-in waits now; one that waited until now does so no longer.
    pub(super) fn begin(&mut self, prompt: McpSignInPrompt, task: AbortOnDropHandle<()>) {
        *self = Self { waiting: Some((prompt, task)), failed: None };
    }

    /// The sign-in with this address has ended, if it is the one that waits: a task that is aborted may be at its end
    /// already, and its successor waits on. Returns the handle of the task, which must not be dropped under a lock.
    pub(super) fn end(&mut self, address: &str, failed: Option<String>) -> Option<AbortOnDropHandle<()>> {
        let (_, task) = self.waiting.take_if(|(prompt, _)| prompt.address == address)?;
        self.failed = failed;
        Some(task)
    }

    /// No sign-in waits any more.
    pub(super) fn cancel(&mut self) {
        self.waiting = None;
    }

    /// How it stands, if there is more to say than what is kept.
    pub(super) fn status(&self) -> Option<McpSignInStatus> {
        match (&self.waiting, &self.failed) {
            (Some((prompt, _)), _) => Some(McpSignInStatus::Waiting { prompt: prompt.clone() }),
            (None, Some(why)) => Some(McpSignInStatus::Failed { why: why.clone() }),
            (None, None) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use deskgate_protocol::Timestamp;

    use super::*;

    fn prompt(address: &str) -> McpSignInPrompt {
        let issuer = "https://id.example".to_owned();
        McpSignInPrompt { issuer, address: address.to_owned(), expires_at: Timestamp::now() }
    }

    fn task() -> AbortOnDropHandle<()> {
        AbortOnDropHandle::new(tokio::spawn(std::future::pending()))
    }

    #[tokio::test]
    async fn a_sign_in_that_ends_late_leaves_its_successor_waiting() {
        let mut progress = SignInProgress::default();
        progress.begin(prompt("first"), task());
        progress.begin(prompt("second"), task());
        assert!(progress.end("first", Some("too late".to_owned())).is_none());
        let Some(McpSignInStatus::Waiting { prompt }) = progress.status() else { panic!("the second waits") };
        assert_eq!(prompt.address, "second");
        let ended = progress.end("second", Some("declined".to_owned())).expect("it was the one that waits");
        assert!(!ended.is_finished(), "nobody has aborted it");
        assert_eq!(progress.status(), Some(McpSignInStatus::Failed { why: "declined".to_owned() }));
    }
}
