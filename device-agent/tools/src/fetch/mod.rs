//! Fetch: a page of a public host, as text.
//!
//! ```text
//! plan      the URL is judged; its host is the place that rules are about
//! request   one GET without credentials, to an address that was found public; redirects on the same host
//! content   what kind of text came, and in which charset
//! html      HTML as text; markdown is how it is written
//! page      the text from an offset on, within a result's limit
//! ```
//!
//! A call only reads: a GET changes nothing by its meaning (RFC 9110, section 9.2.1), and one that was interrupted may be
//! repeated. Still it asks unless a rule allows its host, because its URL tells that host something.

mod content;
mod html;
mod markdown;
mod page;
mod request;
#[cfg(test)]
mod tests;

use std::sync::{Arc, OnceLock};

use deskgate_definition::ToolName;
use deskgate_definition::tool::{Plan, PlanPreview, Tool, ToolOutput, ToolResult, ToolSpec};
use deskgate_program::public_hosts::HttpsUrl;
use deskgate_protocol::control::ToolKind;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::engine::access::AccessError;
use content::PageKind;
use page::PageView;
use request::{Answer, FetchError, RawPage, Web};

/// One for all runs, once it is ready: making it reads the certificates that this computer trusts.
static SYSTEM_WEB: OnceLock<Arc<Web>> = OnceLock::new();

pub(super) struct FetchTool {
    web: Arc<Web>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FetchArguments {
    url: String,
    offset: Option<usize>,
}

impl FetchArguments {
    /// The URL that is asked for.
    fn target(&self) -> Result<HttpsUrl, String> {
        let url = HttpsUrl::parse(&self.url).map_err(|why| format!("This URL cannot be fetched: {why}."))?;
        Ok(url.without_fragment())
    }
}

/// Whether pages can be fetched on this computer. None is.
///
/// # Errors
/// Why not: nothing can be trusted without the certificates of authorities.
pub fn probe() -> Result<(), String> {
    system_web().ready().map_err(|error| error.to_string())
}

fn system_web() -> Arc<Web> {
    if let Some(web) = SYSTEM_WEB.get() {
        return Arc::clone(web);
    }
    let web = Arc::new(Web::of_the_system());
    match web.ready() {
        Ok(()) => Arc::clone(SYSTEM_WEB.get_or_init(|| web)),
        // The next run, or check, tries again.
        Err(_) => web,
    }
}

impl FetchTool {
    pub(super) fn new() -> Self {
        Self { web: system_web() }
    }
}

impl Tool for FetchTool {
    fn spec(&self) -> ToolSpec {
        ToolSpec {
            name: ToolName::Fetch.to_string(),
            description:
                "Gets a page of the public web over HTTPS and returns its text: HTML as Markdown; plain text, \
                          Markdown, JSON, XML and CSV as they are. It sends no cookies, runs no scripts, and reads no \
                          images or PDFs. A redirect to another host is named and not followed. A long page is cut; \
                          offset reads on."
                    .to_owned(),
            parameters: json!({
                "type": "object",
                "properties": {
                    "url": { "type": "string", "description": "The whole URL: https:// and a host name, without a port." },
                    "offset": {
                        "type": "integer",
                        "minimum": 0,
                        "description": "The character of the text to begin with. Default 0."
                    }
                },
                "required": ["url"],
                "additionalProperties": false
            }),
        }
    }

    fn kind(&self) -> ToolKind {
        ToolKind::Read
    }

    fn plan(&self, arguments: &Value) -> BoxFuture<'static, Result<Plan, ToolOutput>> {
        let plan = target_of(arguments.clone()).map(|(url, _)| Plan {
            place: Some(url.host().to_string()),
            shown: PlanPreview::Page { url: url.to_string() },
        });
        std::future::ready(plan.map_err(ToolOutput::error)).boxed()
    }

    fn run(&self, arguments: Value, stop: CancellationToken) -> BoxFuture<'static, ToolResult> {
        let web = Arc::clone(&self.web);
        async move {
            let (url, offset) = match target_of(arguments) {
                Ok(asked) => asked,
                Err(complaint) => return Ok(ToolOutput::error(complaint)),
            };
            let fetching = Box::pin(fetch(&web, url.clone(), offset, &stop));
            tokio::select! {
                () = stop.cancelled() => Ok(ToolOutput::error(AccessError::Stopped.to_string())),
                fetched = fetching => {
                    Ok(fetched.unwrap_or_else(|error| ToolOutput::error(format!("{url} was not read: {error}."))))
                }
            }
        }
        .boxed()
    }
}

fn target_of(arguments: Value) -> Result<(HttpsUrl, usize), String> {
    let arguments: FetchArguments = crate::blocking::parse(ToolName::Fetch.as_str(), arguments)?;
    Ok((arguments.target()?, arguments.offset.unwrap_or(0)))
}

async fn fetch(web: &Web, url: HttpsUrl, offset: usize, stop: &CancellationToken) -> Result<ToolOutput, FetchError> {
    match web.get(url.clone()).await? {
        Answer::Elsewhere(next) => Ok(ToolOutput::ok(format!(
            "{url} redirects to {next}. That is another host, so it was not opened: call Fetch with it if you want it."
        ))),
        Answer::Page(page) => {
            let shown =
                crate::blocking::on_thread(stop, move |stop| view(&page, stop).map(|view| view.shown_from(offset)));
            shown.await.unwrap_or_else(|| Ok(ToolOutput::error("The page was not read because the agent is stopping.")))
        }
    }
}

/// The text of a page. Takes as long as the page is.
fn view(page: &RawPage, stop: &CancellationToken) -> Result<PageView, FetchError> {
    let (body, mut is_cut) = page.unpacked()?;
    let not_text = || FetchError::NotText { name: "binary data".to_owned(), size: format!("{} bytes", body.len()) };
    let mut text = page.page_type.decode(&body, is_cut).ok_or_else(not_text)?;
    let kind = page.page_type.kind();
    if kind == PageKind::Html || (kind == PageKind::Unknown && content::begins_as_html(&text)) {
        let (read, is_shortened) = html::text_of(&text, page.url.as_url(), stop);
        (text, is_cut) = (read, is_cut || is_shortened);
    }
    let page_type = if page.page_type.name.is_empty() { "of an unknown type" } else { &page.page_type.name };
    let head = format!("{} (status {}, {page_type})", page.url, page.status);
    Ok(PageView { head, text, is_cut, is_error: page.status >= 400 })
}
