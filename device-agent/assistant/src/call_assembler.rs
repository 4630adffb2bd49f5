//! Assembles tool calls that arrive in pieces.

use serde_json::{Map, Value};

use super::remote::malformed_response;
use super::{ModelError, ToolCall};

/// The size limit of the arguments in one answer, in bytes: as much as a request to this device may have.
const MAX_ARGUMENT_BYTES: usize = 4 * 1024 * 1024;
/// At most this many calls of one answer are kept; the turn refuses earlier.
const MAX_CALLS: usize = 256;

/// The calls of one answer, in order of their start.
#[derive(Debug, Default)]
pub(super) struct CallAssembler {
    calls: Vec<PartialCall>,
    bytes: usize,
}

#[derive(Debug)]
struct PartialCall {
    index: u64,
    id: String,
    name: String,
    arguments: String,
    ended: bool,
}

impl CallAssembler {
    /// Begins a call at an index of the provider's own counting.
    pub(super) fn begin(&mut self, index: u64, id: String, name: String) -> Result<(), ModelError> {
        if self.calls.len() == MAX_CALLS {
            return Err(malformed_response());
        }
        self.calls.push(PartialCall { index, id, name, arguments: String::new(), ended: false });
        Ok(())
    }

    /// The last call that began at this index.
    fn at(&mut self, index: u64) -> Option<&mut PartialCall> {
        self.calls.iter_mut().rev().find(|call| call.index == index)
    }

    /// The identifier of the unfinished call at this index.
    pub(super) fn id_at(&mut self, index: u64) -> Option<&str> {
        self.at(index).map(|call| call.id.as_str())
    }

    /// Appends to the call's arguments.
    pub(super) fn go_on(&mut self, index: u64, piece: &str) -> Result<(), ModelError> {
        self.bytes += piece.len();
        if self.bytes > MAX_ARGUMENT_BYTES {
            return Err(malformed_response());
        }
        self.at(index).ok_or_else(malformed_response)?.arguments.push_str(piece);
        Ok(())
    }

    /// Marks the call as complete.
    pub(super) fn end(&mut self, index: u64) {
        if let Some(call) = self.at(index) {
            call.ended = true;
        }
    }

    /// Marks all calls as complete.
    pub(super) fn end_all(&mut self) {
        self.calls.iter_mut().for_each(|call| call.ended = true);
    }

    /// The complete calls. A call that was cut off by a limit is dropped.
    pub(super) fn take_ended(&mut self) -> Vec<ToolCall> {
        let calls = std::mem::take(&mut self.calls);
        calls.into_iter().filter(|call| call.ended).map(PartialCall::into_call).collect()
    }
}

impl PartialCall {
    fn into_call(self) -> ToolCall {
        let arguments = match self.arguments.trim() {
            "" => Value::Object(Map::new()),
            text => serde_json::from_str(text).unwrap_or_else(|_| Value::String(text.to_owned())),
        };
        ToolCall { id: self.id, name: self.name, arguments }
    }
}
