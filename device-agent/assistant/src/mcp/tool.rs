//! One tool of a server, as the executor calls it.

use std::sync::Arc;

use deskgate_definition::ModelReads;
use deskgate_definition::tool::{RESULT_LIMIT, Tool, ToolOutput, ToolResult, ToolSpec};
use deskgate_protocol::control::ToolKind;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::listing::OfferedTool;
use super::session::McpSession;

/// Bytes reserved for the note about a cut.
const CUT_NOTE_BYTES: usize = 200;

pub(super) struct McpTool {
    session: Arc<McpSession>,
    offered: OfferedTool,
    reads: ModelReads,
}

impl McpTool {
    pub(super) fn new(session: Arc<McpSession>, offered: OfferedTool, reads: ModelReads) -> Self {
        Self { session, offered, reads }
    }
}

impl Tool for McpTool {
    fn spec(&self) -> ToolSpec {
        self.offered.spec.clone()
    }

    /// Always counts as writing, whatever the server hints.
    fn kind(&self) -> ToolKind {
        ToolKind::Write
    }

    /// A stop cancels the request at the server; whether the call had happened by then stays open.
    fn run(&self, arguments: Value, stop: CancellationToken) -> BoxFuture<'static, ToolResult> {
        let (session, name, known_as) =
            (Arc::clone(&self.session), self.offered.name.clone(), self.offered.spec.name.clone());
        let reads = self.reads;
        async move {
            let Value::Object(arguments) = arguments else {
                return Ok(ToolOutput::error(format!("The arguments of {known_as} must be one JSON object.")));
            };
            tokio::select! {
                biased;
                () = stop.cancelled() => Ok(ToolOutput::unknown("The call was stopped.")),
                called = session.call(&name, arguments, reads) => Ok(match called {
                    Ok(output) => ToolOutput { text: bounded(output.text), ..output },
                    Err(trouble) => trouble.into_output(&session.server),
                }),
            }
        }
        .boxed()
    }
}

fn bounded(mut text: String) -> String {
    if text.len() <= RESULT_LIMIT {
        return text;
    }
    let whole = text.len();
    let mut end = RESULT_LIMIT - CUT_NOTE_BYTES;
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.truncate(end);
    text + &format!("\n\n({} more bytes are left out: a result has at most {RESULT_LIMIT}.)", whole - end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_result_keeps_its_limit_and_says_what_is_missing() {
        assert_eq!(bounded("x".repeat(RESULT_LIMIT)).len(), RESULT_LIMIT);
        let cut = bounded("é".repeat(RESULT_LIMIT));
        assert!(cut.len() <= RESULT_LIMIT && cut.ends_with(&format!("at most {RESULT_LIMIT}.)")));
    }
}
