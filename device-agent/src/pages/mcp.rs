//! The page of MCP servers: addresses, tools, and pinned lists. Keys are never shown.

use askama::Template;
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Redirect, Response};
use deskgate_program::visible;
use deskgate_protocol::secret::SecretKind;
use serde::Deserialize;

use super::auth::Visitor;
use super::fields::FormFields;
use super::form_errors::{FormErrors, failed, without_secrets};
use super::frame::{Frame, Section};
use super::labels::{Shape, TimeLabel};
use super::live::Topic;
use super::removal::RemovalQuestion;
use super::{PageError, Pages};
use crate::local::{
    AcceptMcpTools, ErrorReply, ErrorReplyCode, GetSettings, LookAtMcpServer, McpSignOut, NewKey, RemoveMcpServer,
    ReviewMcpServers, SetMcpServer,
};
use crate::services::tool_pins::{PinState, ServerView, ToolChange};

/// The form's fields, by the names of the command line's options.
const MCP_SERVER_FIELDS: &[&str] = &["name", "url", "key", "header", "key_place"];

/// The state of a server, in one word.
fn state(view: &ServerView) -> (Shape, &'static str) {
    let any = |wanted: fn(&PinState) -> bool| view.pins().any(wanted);
    match &view.offer {
        _ if view.server.sign_in.as_ref().is_some_and(|sign_in| sign_in.over.is_some()) => {
            (Shape::Bad, "sign-in is over")
        }
        _ if view.problem.is_some() => (Shape::Bad, "gave no list of tools"),
        _ if view.has_changed() => (Shape::Bad, "tools have changed"),
        _ if any(|pin| *pin == PinState::Moved) => (Shape::Bad, "address has changed"),
        None => (Shape::Waiting, "not looked at yet"),
        Some(_) if any(|pin| *pin == PinState::Same) => (Shape::Good, "tools are pinned"),
        Some(_) => (Shape::Waiting, "nothing is pinned yet"),
    }
}

/// The state of a definition's pin, and what to do about it.
fn stands(pin: Option<&PinState>) -> (Shape, &'static str) {
    match pin {
        None => (Shape::Over, "does not use it"),
        Some(PinState::Moved) => (Shape::Bad, "was saved with another address: save the service again"),
        Some(PinState::Unpinned) => (Shape::Waiting, "not pinned yet: check the service"),
        Some(PinState::NotCompared) => (Shape::Unknown, "pinned, not compared yet"),
        Some(PinState::Same) => (Shape::Good, "pinned to these tools"),
        Some(PinState::Changed { .. }) => (Shape::Bad, "pinned to another list"),
    }
}

#[derive(Template)]
#[template(path = "mcp-servers.html")]
struct McpServersPage {
    frame: Frame,
    servers: Vec<ServerView>,
    /// What went wrong with what was just done.
    problem: Option<&'static str>,
}

/// What the owner reads when a sign-in is over and its authorization server does not know it.
const NOT_TOLD: &str =
    "The sign-in is over on this computer. The authorization server could not be told; end it there, too.";

/// `GET /mcp`
pub(super) async fn list(
    State(pages): State<Pages>,
    visitor: Visitor,
    Query(place): Query<DoneQuery>,
) -> Result<Response, PageError> {
    let frame = Frame::new(&pages, &visitor, Section::Settings, "MCP servers").await;
    let servers = pages.handler().request(ReviewMcpServers {}).await?;
    let problem = (place.said == "removed-untold").then_some(NOT_TOLD);
    Ok(super::html(StatusCode::OK, &McpServersPage { frame, servers, problem }))
}

/// What was just done.
#[derive(Debug, Default, Deserialize)]
pub(super) struct DoneQuery {
    #[serde(default)]
    said: String,
}

#[derive(Template)]
#[template(path = "mcp-server.html")]
struct McpServerPage {
    frame: Frame,
    /// `None` for a new one.
    view: Option<ServerView>,
    fields: FormFields,
    wrong: FormErrors,
    said: Option<&'static str>,
    /// What went wrong with what was just done.
    problem: Option<&'static str>,
}

impl McpServerPage {
    async fn new(pages: &Pages, visitor: &Visitor, view: Option<ServerView>) -> Self {
        let title = view
            .as_ref()
            .map_or_else(|| "New MCP server".to_owned(), |view| format!("MCP server {}", view.server.name));
        let frame = Frame::new(pages, visitor, Section::Settings, title).await;
        let server = view.as_ref().map(|view| &view.server);
        let place = match server.and_then(|server| server.key_place) {
            Some(place) => place,
            // Settings that cannot be queried do not prevent the page.
            None => {
                pages.handler().request(GetSettings {}).await.map(|settings| settings.key_place).unwrap_or_default()
            }
        };
        let field = |name: &str, value: Option<&String>| (name.to_owned(), value.cloned().unwrap_or_default());
        let fields = FormFields(vec![
            field("url", server.map(|server| &server.url)),
            // The default need not be shown.
            field("header", server.and_then(|server| server.header.as_ref()).filter(|name| *name != "authorization")),
            ("key_place".to_owned(), place.as_str().to_owned()),
        ]);
        Self { frame, view, fields, wrong: FormErrors::default(), said: None, problem: None }
    }

    /// The page with the errors, and the submitted values except secrets.
    fn failed(self, fields: &FormFields, no: &ErrorReply) -> Response {
        let mut fields = without_secrets(fields);
        for (name, value) in &mut fields.0 {
            // A wrong address may hold a password or a key.
            if name == "key" || (name == "url" && value.contains(['@', '?', '#'])) {
                value.clear();
            }
        }
        let (status, wrong) = failed(no, MCP_SERVER_FIELDS);
        super::html(status, &Self { fields, wrong, ..self })
    }

    fn step(&self) -> String {
        format!("/mcp/{}", self.view.as_ref().map_or("new", |view| &view.server.name))
    }

    /// Whether this control has an error.
    fn wrong(&self, field: &str) -> bool {
        self.wrong.at(field).is_some()
    }

    fn label(field: &str) -> &'static str {
        match field {
            "name" => "Name",
            "url" => "Address",
            "header" => "Header of the key",
            "key_place" => "Where the key is kept",
            _ => "Key",
        }
    }
}

async fn find(pages: &Pages, name: &str) -> Result<ServerView, PageError> {
    let missing = || ErrorReply {
        code: ErrorReplyCode::NotFound,
        message: format!("There is no MCP server {name:?} on this computer."),
    };
    let servers = pages.handler().request(ReviewMcpServers {}).await?;
    servers.into_iter().find(|view| view.server.name == name).ok_or_else(|| PageError(missing()))
}

/// `GET /mcp/new`
pub(super) async fn ask_new(State(pages): State<Pages>, visitor: Visitor) -> Response {
    super::html(StatusCode::OK, &McpServerPage::new(&pages, &visitor, None).await)
}

/// `GET /mcp/{name}`
pub(super) async fn show(
    State(pages): State<Pages>,
    visitor: Visitor,
    Path(name): Path<String>,
    Query(place): Query<DoneQuery>,
) -> Result<Response, PageError> {
    let said = match place.said.as_str() {
        "saved" | "saved-untold" => Some("Saved."),
        "looked" => Some("This is what it offers now."),
        "accepted" => Some("Taken over into the drafts. Check and publish each service to make it active."),
        _ => None,
    };
    let view = find(&pages, &name).await?;
    let problem = (place.said == "saved-untold").then_some(NOT_TOLD);
    let page = McpServerPage::new(&pages, &visitor, Some(view)).await;
    Ok(super::html(StatusCode::OK, &McpServerPage { said, problem, ..page }))
}

/// `POST /mcp/new`
pub(super) async fn create(
    State(pages): State<Pages>,
    visitor: Visitor,
    fields: FormFields,
) -> Result<Response, PageError> {
    let name = fields.get("name").trim().to_owned();
    let known = pages.handler().request(ReviewMcpServers {}).await?;
    if known.iter().any(|view| view.server.name == name) {
        let no = ErrorReply {
            code: ErrorReplyCode::Invalid,
            message: format!("name: there is an MCP server {name} already"),
        };
        return Ok(McpServerPage::new(&pages, &visitor, None).await.failed(&fields, &no));
    }
    set(&pages, &visitor, None, name, &fields).await
}

/// `POST /mcp/{name}`
pub(super) async fn change(
    State(pages): State<Pages>,
    visitor: Visitor,
    Path(name): Path<String>,
    fields: FormFields,
) -> Result<Response, PageError> {
    let view = find(&pages, &name).await?;
    set(&pages, &visitor, Some(view), name, &fields).await
}

async fn set(
    pages: &Pages,
    visitor: &Visitor,
    view: Option<ServerView>,
    name: String,
    fields: &FormFields,
) -> Result<Response, PageError> {
    let saved = match request(name.clone(), fields) {
        Ok(request) => pages.handler().request(request).await,
        Err(message) => Err(ErrorReply { code: ErrorReplyCode::Invalid, message }),
    };
    match saved {
        Ok(changed) => {
            pages.live().changed(Topic::Status);
            let said = if is_untold(changed.sign_out.as_ref()) { "saved-untold" } else { "saved" };
            Ok(Redirect::to(&format!("/mcp/{name}?said={said}")).into_response())
        }
        Err(no) if matches!(no.code, ErrorReplyCode::Invalid | ErrorReplyCode::Refused) => {
            let no = ErrorReply { message: format!("{}{}", place_of(&no.message), no.message), ..no };
            Ok(McpServerPage::new(pages, visitor, view).await.failed(fields, &no))
        }
        Err(no) => Err(no.into()),
    }
}

/// Whether a sign-in has ended without its authorization server.
fn is_untold(sign_out: Option<&McpSignOut>) -> bool {
    sign_out.is_some_and(|done| done.not_told.is_some())
}

/// The field that an agent's error is about, as [`FormErrors`] reads it; empty if the message names it.
fn place_of(message: &str) -> &'static str {
    match message {
        _ if message.starts_with("an MCP server's name") => "name: ",
        _ if message.starts_with("the address") || message.starts_with("a new MCP server needs") => "url: ",
        _ if message.contains("cannot be the header of a key") => "header: ",
        _ if message.contains("keyring") => "key_place: ",
        _ if MCP_SERVER_FIELDS.iter().any(|field| message.starts_with(&format!("{field}: "))) => "",
        _ => "key: ",
    }
}

fn request(name: String, fields: &FormFields) -> Result<SetMcpServer, String> {
    for place in ["name", "url", "header"] {
        if let Some(kind) = SecretKind::of(fields.get(place).trim()) {
            return Err(format!("{place}: this is {kind}, which does not belong here. It was taken out of the field"));
        }
    }
    let key = match fields.filled("key") {
        // A Deskgate key opens only Deskgate.
        Some(text) => match SecretKind::of(&text).filter(|kind| *kind != SecretKind::ModelProviderKey) {
            Some(other) => return Err(format!("key: this is {other}, not a key of an MCP server")),
            None => NewKey::Replace(text),
        },
        None if fields.get("key_is") == "none" => NewKey::Forget,
        None => NewKey::Keep,
    };
    let header = fields.filled("header").filter(|_| matches!(key, NewKey::Replace(_)));
    let key_place = fields.get("key_place").parse().ok();
    Ok(SetMcpServer { name, url: fields.filled("url"), header, key, key_place })
}

/// `POST /mcp/{name}/look`: queries the server's tools, without a timeout of its own.
pub(super) async fn look(
    State(pages): State<Pages>,
    visitor: Visitor,
    Path(name): Path<String>,
) -> Result<Response, PageError> {
    let view = pages.handler().request(LookAtMcpServer { name: name.clone() }).await?;
    pages.live().changed(Topic::Status);
    match view.problem.clone() {
        None => Ok(Redirect::to(&format!("/mcp/{name}?said=looked")).into_response()),
        Some(problem) => {
            let wrong = FormErrors::new(&format!("It gave no list of tools: {problem}"), MCP_SERVER_FIELDS);
            let page = McpServerPage { wrong, ..McpServerPage::new(&pages, &visitor, Some(view)).await };
            Ok(super::html(StatusCode::CONFLICT, &page))
        }
    }
}

/// A changed tool, for people.
struct ToolChangeRow {
    tool: String,
    old: String,
    new: String,
}

impl ToolChangeRow {
    fn of(change: &ToolChange) -> Self {
        let shown = |text: Option<String>, missing: &str| match text {
            None => missing.to_owned(),
            Some(text) => text.trim_end().to_owned(),
        };
        let [old, new] = change.texts();
        Self { tool: visible::line(&change.tool), old: shown(old, "was not there"), new: shown(new, "is gone") }
    }
}

#[derive(Template)]
#[template(path = "mcp-accept.html")]
struct AcceptQuestion {
    frame: Frame,
    name: String,
    tools_sha256: String,
    /// The differences for the drafts that accept it; the same one for several is shown once.
    changes: Vec<ToolChangeRow>,
    /// Whether a pinned list is no longer stored.
    unknown: bool,
    /// The services whose drafts change.
    services: Vec<String>,
}

/// `GET /mcp/{name}/accept`: the question before another list is accepted, with its differences.
pub(super) async fn ask_accept(
    State(pages): State<Pages>,
    visitor: Visitor,
    Path(name): Path<String>,
) -> Result<Response, PageError> {
    let view = find(&pages, &name).await?;
    let changed: Vec<_> =
        view.users.iter().filter(|user| matches!(user.draft, Some(PinState::Changed { .. }))).collect();
    let (Some(offer), false) = (&view.offer, changed.is_empty()) else {
        let message = "No draft is pinned to another list than the one that is offered.".to_owned();
        return Err(PageError(ErrorReply { code: ErrorReplyCode::Refused, message }));
    };
    let mut changes: Vec<&ToolChange> = Vec::new();
    let mut unknown = false;
    for pin in changed.iter().filter_map(|user| user.draft.as_ref()) {
        match view.changes(pin) {
            Some(found) => {
                let new: Vec<_> = found.iter().filter(|change| !changes.contains(change)).collect();
                changes.extend(new);
            }
            None => unknown = true,
        }
    }
    let question = AcceptQuestion {
        frame: Frame::new(&pages, &visitor, Section::Settings, format!("Take over the tools of {name}?")).await,
        tools_sha256: offer.tools_sha256.to_string(),
        changes: changes.into_iter().map(ToolChangeRow::of).collect(),
        unknown,
        services: changed.iter().map(|user| user.service.clone()).collect(),
        name,
    };
    Ok(super::html(StatusCode::OK, &question))
}

/// `POST /mcp/{name}/accept`: accepts exactly the list that the question was about.
pub(super) async fn accept(
    State(pages): State<Pages>,
    Path(name): Path<String>,
    fields: FormFields,
) -> Result<Redirect, PageError> {
    let unreadable =
        |_| ErrorReply { code: ErrorReplyCode::Invalid, message: "The form does not say which list.".to_owned() };
    let tools_sha256 = fields.get("tools_sha256").parse().map_err(unreadable)?;
    pages.handler().request(AcceptMcpTools { name: name.clone(), tools_sha256 }).await?;
    pages.live().changed(Topic::Status);
    Ok(Redirect::to(&format!("/mcp/{name}?said=accepted")))
}

/// `GET /mcp/{name}/remove`: the question before it.
pub(super) async fn ask_remove(
    State(pages): State<Pages>,
    visitor: Visitor,
    Path(name): Path<String>,
) -> Result<Response, PageError> {
    let view = find(&pages, &name).await?;
    let services = view.users.into_iter().map(|user| user.service).collect();
    Ok(RemovalQuestion::ask(&pages, &visitor, ("MCP server", "/mcp"), name, services).await)
}

/// `POST /mcp/{name}/remove`
pub(super) async fn remove(State(pages): State<Pages>, Path(name): Path<String>) -> Result<Redirect, PageError> {
    let removed = pages.handler().request(RemoveMcpServer { name }).await?;
    pages.live().changed(Topic::Status);
    let is_untold = is_untold(removed.sign_out.as_ref());
    Ok(Redirect::to(if is_untold { "/mcp?said=removed-untold" } else { "/mcp" }))
}
