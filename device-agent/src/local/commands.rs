//! Commands for the agent as a whole, and their callers while a connection shuts down: every command is carried out,
//! and a stop is confirmed only once it is complete.

use tokio::sync::oneshot;

/// A command for the agent as a whole.
#[derive(Debug)]
pub enum AgentCommand {
    /// Reconnect with the saved settings. Answered when the old connection is closed.
    Reconnect(oneshot::Sender<()>),
    /// Stop. Answered when the work has ended.
    Stop {
        /// Whether to cut off runs in progress.
        now: bool,
        /// Completed when the work has ended.
        done: oneshot::Sender<()>,
    },
}

/// The shutdown of a connection, from the first command until its answer.
#[derive(Debug, Default)]
pub(crate) struct LineShutdown {
    /// Whether the agent ends with this connection.
    pub(crate) stops: bool,
    /// Whether executions are cut off instead of awaited.
    pub(crate) now: bool,
    stopped: Vec<oneshot::Sender<()>>,
    reconnected: Vec<oneshot::Sender<()>>,
}

impl LineShutdown {
    /// To reconnect.
    pub(crate) fn to_reconnect(now: bool) -> Self {
        Self { now, ..Self::default() }
    }

    /// To stop the agent.
    pub(crate) fn to_stop(now: bool) -> Self {
        Self { stops: true, now, ..Self::default() }
    }

    /// Adds a command. A stop turns a reconnect into a stop; a second reconnect is part of the first, which reads the
    /// saved settings only afterwards.
    pub(crate) fn join(&mut self, order: AgentCommand) {
        match order {
            AgentCommand::Stop { now, done } => {
                self.stops = true;
                self.now |= now;
                self.stopped.push(done);
            }
            AgentCommand::Reconnect(done) => self.reconnected.push(done),
        }
    }

    /// Answers the callers after the shutdown. A caller who waits for a reconnect in an agent that stops gets a dropped
    /// channel.
    pub(crate) fn answer(self) {
        let waiting = if self.stops { self.stopped } else { self.reconnected };
        for done in waiting {
            // A caller that gave up needs no answer.
            let _ = done.send(());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stop_during_a_reconnect_stops_and_every_stop_is_answered_at_the_end_only() {
        let mut leaving = LineShutdown::to_reconnect(true);
        let (reconnect, mut reconnected) = oneshot::channel();
        leaving.join(AgentCommand::Reconnect(reconnect));
        let (first, mut first_done) = oneshot::channel();
        leaving.join(AgentCommand::Stop { now: false, done: first });
        let (second, mut second_done) = oneshot::channel();
        leaving.join(AgentCommand::Stop { now: false, done: second });
        assert!(leaving.stops && leaving.now, "a gentle stop takes no haste back");
        assert!(first_done.try_recv().is_err() && second_done.try_recv().is_err());
        leaving.answer();
        assert_eq!((first_done.try_recv(), second_done.try_recv()), (Ok(()), Ok(())));
        assert_eq!(reconnected.try_recv(), Err(oneshot::error::TryRecvError::Closed), "there is no other line");
    }

    #[test]
    fn a_second_reconnect_is_answered_with_the_first() {
        let mut leaving = LineShutdown::default();
        let (first, mut first_done) = oneshot::channel();
        let (second, mut second_done) = oneshot::channel();
        leaving.join(AgentCommand::Reconnect(first));
        leaving.join(AgentCommand::Reconnect(second));
        assert!(!leaving.stops);
        leaving.answer();
        assert_eq!((first_done.try_recv(), second_done.try_recv()), (Ok(()), Ok(())));
    }
}
