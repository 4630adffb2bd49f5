//! Tickets that transfers wait for: asked for on the control channel, again in each session until they come.

use deskgate_protocol::control::DeviceFrame;
use deskgate_protocol::ids::RunId;
use deskgate_protocol::transfer::TransferTicket;
use tokio::sync::mpsc;

use crate::transfers::TicketRequest;

/// The requests that have no answer.
#[derive(Debug, Default)]
pub(super) struct PendingTickets {
    incoming: Option<mpsc::Receiver<TicketRequest>>,
    waiting: Vec<TicketRequest>,
}

impl PendingTickets {
    pub(super) fn of(incoming: mpsc::Receiver<TicketRequest>) -> Self {
        Self { incoming: Some(incoming), waiting: Vec::new() }
    }

    /// The next request. Cancel-safe.
    pub(super) async fn next(&mut self) -> TicketRequest {
        let next = match &mut self.incoming {
            Some(incoming) => incoming.recv().await,
            None => None,
        };
        match next {
            Some(request) => request,
            None => std::future::pending().await,
        }
    }

    /// Notes a request, and returns the frame that asks for it. `None`: the same is asked for already.
    pub(super) fn add(&mut self, request: TicketRequest) -> Option<DeviceFrame> {
        self.waiting.retain(|waiting| !waiting.answer.is_closed());
        let (run_id, attempt) = (request.run_id, request.attempt);
        let is_new = !self.waiting.iter().any(|waiting| (waiting.run_id, waiting.attempt) == (run_id, attempt));
        self.waiting.push(request);
        is_new.then_some(DeviceFrame::RequestTicket { run_id, attempt })
    }

    /// What is asked for in a new session.
    pub(super) fn requests(&mut self) -> impl Iterator<Item = DeviceFrame> + use<> {
        self.waiting.retain(|waiting| !waiting.answer.is_closed());
        let mut asked: Vec<_> = self.waiting.iter().map(|waiting| (waiting.run_id, waiting.attempt)).collect();
        asked.sort_unstable();
        asked.dedup();
        asked.into_iter().map(|(run_id, attempt)| DeviceFrame::RequestTicket { run_id, attempt })
    }

    /// Gives a ticket to all who wait for it.
    pub(super) fn end(&mut self, run_id: RunId, attempt: u32, ticket: &TransferTicket) {
        for request in self.waiting.extract_if(.., |waiting| (waiting.run_id, waiting.attempt) == (run_id, attempt)) {
            // Who gave up needs none.
            let _ = request.answer.send(ticket.clone());
        }
    }

    /// Tells those who wait for a run's tickets that it is not this device's any more.
    pub(super) fn forget(&mut self, run_id: RunId) {
        self.waiting.retain(|waiting| waiting.run_id != run_id);
    }
}
