//! One session with one MCP server: its tools, and calls of them.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use deskgate_definition::ModelReads;
use deskgate_definition::tool::{Attachment, ToolOutput};
use deskgate_media::{MAX_IMAGE_BYTES, MediaError, MediaKind};
use deskgate_program::redaction::without_secret;
use reqwest::header::HeaderValue;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, ContentBlock, PaginatedRequestParams, ResourceContents, Tool,
};
use serde_json::{Map, Value};
use tokio::time::timeout;

use super::error::{McpCallError, McpServerError};
use super::listing::{ListedTool, Listing, MAX_TOOLS};
use super::opening::{Opening, RunningSession};
use super::sign_in::SessionToken;
use super::{ListError, McpTimeouts};

/// The timeout for connecting.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// At most this many pages of a tool list.
const MAX_PAGES: usize = 32;

/// The settings of the clients that all sessions share: HTTPS only, without retries.
pub(super) fn settings(builder: reqwest::ClientBuilder) -> reqwest::ClientBuilder {
    let builder = builder.https_only(true).connect_timeout(CONNECT_TIMEOUT);
    // Neither by the client itself, nor on an old connection that may be broken.
    builder.retry(reqwest::retry::never()).pool_max_idle_per_host(0)
}

/// An open session. Dropping it ends it.
pub(super) struct McpSession {
    pub(super) server: String,
    patience: McpTimeouts,
    service: RunningSession,
    secrets: SessionSecrets,
}

/// What the requests of a session carry, and nobody else may read.
pub(super) struct SessionSecrets {
    /// The value of the header with the owner's key.
    pub(super) key: Option<HeaderValue>,
    pub(super) token: Option<Arc<SessionToken>>,
}

impl SessionSecrets {
    /// A server's words for an error without them: some repeat the request that they refuse.
    async fn removed_from(&self, words: String) -> String {
        let key = self.key.clone();
        let tokens = match &self.token {
            Some(token) => token.recent().await,
            None => Vec::new(),
        };
        // A long answer takes a while.
        let remove = move || {
            let key = key.as_ref().and_then(|value| value.to_str().ok());
            let key = key.map(|value| value.strip_prefix("Bearer ").unwrap_or(value));
            let words = key.map(|key| without_secret(&words, key, "[the key]")).unwrap_or(words);
            tokens.iter().fold(words, |words, token| without_secret(&words, token.reveal(), "[the token]"))
        };
        tokio::task::spawn_blocking(remove).await.unwrap_or_else(|_| "its words could not be read".to_owned())
    }
}

impl McpSession {
    /// Opens a session and reads the list of tools.
    pub(super) async fn open(
        server: &str,
        opening: Opening<'_>,
        patience: McpTimeouts,
    ) -> Result<(Self, Listing), McpServerError> {
        let opening = async {
            let (service, secrets) = (opening.open().await?, opening.secrets());
            let session = Self { server: server.to_owned(), patience, service, secrets };
            let listing = session.list().await?;
            Ok((session, listing))
        };
        timeout(patience.opening, opening).await.unwrap_or(Err(McpServerError::Slow))
    }

    async fn list(&self) -> Result<Listing, McpServerError> {
        let (mut tools, mut cursor) = (Vec::new(), None);
        for _ in 0..MAX_PAGES {
            let page = PaginatedRequestParams::default().with_cursor(cursor);
            let page = self.service.list_tools(Some(page)).await?;
            tools.extend(page.tools.into_iter().map(listed));
            if tools.len() > MAX_TOOLS {
                break;
            }
            cursor = page.next_cursor;
            if cursor.is_none() {
                return Ok(Listing::new(&self.server, tools)?);
            }
        }
        Err(ListError::TooMany.into())
    }

    /// Calls a tool, once.
    pub(super) async fn call(
        &self,
        tool: &str,
        arguments: Map<String, Value>,
        reads: ModelReads,
    ) -> Result<ToolOutput, McpCallError> {
        let params = CallToolRequestParams::new(tool.to_owned()).with_arguments(arguments);
        match timeout(self.patience.call, self.service.call_tool_once(params)).await {
            Err(_) => Err(McpCallError::Unknown("it did not answer in time")),
            Ok(Err(error)) => Err(match McpCallError::of(error) {
                McpCallError::Refused(words) => McpCallError::Refused(self.secrets.removed_from(words).await),
                other => other,
            }),
            Ok(Ok(CallToolResponse::Complete(result))) => {
                // Images are decoded.
                let output = move || output(result.content, result.structured_content, reads);
                let shown = tokio::task::spawn_blocking(output).await;
                let shown = shown.map_err(|_| McpCallError::Unknown("its answer could not be read"))?;
                let is_error = result.is_error == Some(true);
                let text = if is_error { self.secrets.removed_from(shown.text).await } else { shown.text };
                // A failure is told in text alone: one vendor refuses images in it.
                let attachments = if is_error { Vec::new() } else { shown.attachments };
                Ok(ToolOutput { attachments, is_error, ..ToolOutput::ok(text) })
            }
            Ok(Ok(_)) => {
                Err(McpCallError::Unknown("it answered with a question or a task, which are not supported here"))
            }
        }
    }
}

/// The parts of a tool that a model needs. Annotations are the server's hints about itself, and titles and icons are
/// for people.
fn listed(tool: Tool) -> ListedTool {
    let schema = std::sync::Arc::unwrap_or_clone(tool.input_schema);
    ListedTool { name: tool.name.into_owned(), description: tool.description.unwrap_or_default().into_owned(), schema }
}

/// A result as text, with the images and documents that the model reads; other content is named and left out.
fn output(content: Vec<ContentBlock>, structured: Option<Value>, reads: ModelReads) -> ToolOutput {
    let mut attachments = Vec::new();
    let mut tried = 0;
    let mut parts: Vec<String> = content
        .into_iter()
        .map(|block| match block {
            ContentBlock::Text(text) => text.text,
            ContentBlock::Image(image) => show((&mut attachments, &mut tried), "An image", &image.data, reads),
            ContentBlock::Audio(_) => left_out("A sound", NOT_PASSED_ON),
            ContentBlock::Resource(embedded) => match embedded.resource {
                ResourceContents::TextResourceContents { text, .. } => text,
                ResourceContents::BlobResourceContents { blob, .. } => {
                    show((&mut attachments, &mut tried), "A file", &blob, reads)
                }
                _ => left_out("A file", NOT_PASSED_ON),
            },
            ContentBlock::ResourceLink(link) => format!("(A link to {}, which cannot be followed here.)", link.uri),
            _ => left_out("Something", NOT_PASSED_ON),
        })
        .collect();
    // Servers that send both repeat the same content.
    if parts.is_empty() {
        parts.extend(structured.map(|value| value.to_string()));
    }
    let text = if parts.is_empty() { "(The tool answered with nothing.)".to_owned() } else { parts.join("\n") };
    ToolOutput { attachments, ..ToolOutput::ok(text) }
}

/// Why content is left out that no model here is shown.
const NOT_PASSED_ON: &str = "it is not passed on.";
/// At most this many images and documents of one result are decoded.
const MAX_ATTACHMENTS: usize = 8;

fn left_out(what: &str, why: impl std::fmt::Display) -> String {
    format!("({what} is left out here: {why})")
}

/// Shows an image or a document, in base64, if the model reads it. Returns a sentence about it. Counts those that were
/// tried: each takes time.
fn show(
    (attachments, tried): (&mut Vec<Attachment>, &mut usize),
    what: &str,
    base64: &str,
    reads: ModelReads,
) -> String {
    if reads == ModelReads::Text {
        return left_out(what, NOT_PASSED_ON);
    }
    *tried += 1;
    if *tried > MAX_ATTACHMENTS {
        return left_out(what, "a result shows at most eight.");
    }
    // The text is a third longer than what it stands for.
    if base64.len() / 4 * 3 > MAX_IMAGE_BYTES {
        return left_out(what, MediaError::TooLarge(MAX_IMAGE_BYTES));
    }
    let Ok(bytes) = base64::engine::general_purpose::STANDARD.decode(base64) else {
        return left_out(what, MediaError::Damaged);
    };
    let shown = match MediaKind::of(&bytes) {
        Some(MediaKind::Picture) if reads >= ModelReads::Images => deskgate_media::picture(bytes),
        Some(MediaKind::Pdf) if reads >= ModelReads::Pdfs => deskgate_media::pdf(bytes),
        Some(_) => return left_out(what, "the model of this service does not read it."),
        None => return left_out(what, NOT_PASSED_ON),
    };
    match shown {
        Ok(attachment) => {
            let about = attachment.about.clone();
            attachments.push(attachment);
            about
        }
        Err(error) => left_out(what, error),
    }
}
