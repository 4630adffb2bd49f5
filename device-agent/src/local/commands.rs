//! What the agent is told to do as a whole, and who waits for it while a line is wound down: no
//! order is lost, and nobody is told that the agent stopped before it has.

use tokio::sync::oneshot;

/// What the agent is told to do as a whole.
#[derive(Debug)]
pub enum AgentCommand {
    /// Dial with the connection that is saved now. Answered when the old line is down.
    Reconnect(oneshot::Sender<()>),
    /// End. Answered when the work has ended.
    Stop {
        /// Whether to cut off what is in progress.
        now: bool,
        /// Told when it is done.
        done: oneshot::Sender<()>,
    },
}

/// The end of a line, from the order that began it until it is answered.
#[derive(Debug, Default)]
pub(crate) struct LineShutdown {
    /// The agent ends with this line.
    pub(crate) stops: bool,
    /// Executions are cut off instead of waited for.
    pub(crate) now: bool,
    stopped: Vec<oneshot::Sender<()>>,
    reconnected: Vec<oneshot::Sender<()>>,
}

impl LineShutdown {
    /// For another line.
    pub(crate) fn to_reconnect(now: bool) -> Self {
        Self { now, ..Self::default() }
    }

    /// For good.
    pub(crate) fn to_stop(now: bool) -> Self {
        Self { stops: true, now, ..Self::default() }
    }

    /// One more order. A stop turns a change of the line into a stop; a second change is part of
    /// the first, which reads what is saved only afterwards.
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

    /// The line is down. Who waits for another line in an agent that stops hears nothing: the
    /// dropped answer says so.
    pub(crate) fn answer(self) {
        let waiting = if self.stops { self.stopped } else { self.reconnected };
        for done in waiting {
            // Whoever gave up waiting needs no answer.
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
