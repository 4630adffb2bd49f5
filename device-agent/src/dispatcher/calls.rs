//! Management requests that wait for their reply.

use std::collections::HashMap;

use deskgate_protocol::control::{DeviceFrame, MAX_CONCURRENT_REQUESTS, ManagementResult};
use deskgate_protocol::frame;
use deskgate_protocol::management::{AskedBy, ManagementError, ManagementErrorCode, ManagementRequest};
use serde_json::Value;
use tokio::sync::oneshot;

use crate::services::CallError;

type ReplySender = oneshot::Sender<Result<Value, CallError>>;

#[derive(Debug, Default)]
pub(super) struct PendingCalls {
    last_id: u64,
    waiting: HashMap<u64, ReplySender>,
}

impl PendingCalls {
    /// Registers the caller and returns the frame to send. `None` if too many calls wait, or if the request exceeds a
    /// frame: sending it would end the session for all callers.
    pub(super) fn begin(
        &mut self,
        by: AskedBy,
        request: ManagementRequest,
        answer: ReplySender,
    ) -> Option<DeviceFrame> {
        // A caller that gave up frees its entry.
        self.waiting.retain(|_, answer| !answer.is_closed());
        if self.waiting.len() >= MAX_CONCURRENT_REQUESTS {
            let _ = answer.send(Err(CallError::Busy));
            return None;
        }
        let request_id = self.last_id + 1;
        let frame = DeviceFrame::Request { request_id, by, request };
        if let Err(error) = frame::encode(&frame) {
            let no = ManagementError { code: ManagementErrorCode::Invalid, message: error.to_string() };
            let _ = answer.send(Err(CallError::Refused(no)));
            return None;
        }
        self.last_id = request_id;
        self.waiting.insert(request_id, answer);
        Some(frame)
    }

    pub(super) fn end(&mut self, request_id: u64, result: ManagementResult) {
        if let Some(answer) = self.waiting.remove(&request_id) {
            let _ = answer.send(match result {
                ManagementResult::Ok(value) => Ok(value),
                ManagementResult::Error(error) => Err(CallError::Refused(error)),
            });
        }
    }

    /// The connection is lost, and with it every reply.
    pub(super) fn fail_all(&mut self) {
        for (_, answer) in self.waiting.drain() {
            let _ = answer.send(Err(CallError::LineLost));
        }
    }
}

#[cfg(test)]
mod tests {
    use deskgate_protocol::management::{CreateApplication, GetAccess};

    use super::*;

    #[test]
    fn a_request_that_fits_into_no_frame_is_its_senders_error_and_the_next_one_goes_out() {
        let mut calls = PendingCalls::default();
        let (answer, mut refused) = oneshot::channel();
        let name = "x".repeat(frame::MAX_FRAME_BYTES);
        assert_eq!(calls.begin(AskedBy::Cli, CreateApplication { name }.into(), answer), None);
        let error = refused.try_recv().expect("answered at once").expect_err("too large");
        assert!(matches!(error, CallError::Refused(no) if no.code == ManagementErrorCode::Invalid));
        let (answer, _waits) = oneshot::channel();
        assert!(calls.begin(AskedBy::Agent, GetAccess {}.into(), answer).is_some());
    }
}
