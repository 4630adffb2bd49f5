//! The management pages: the desktop owner's view in a browser, on loopback.
//!
//! | file | what it does |
//! |---|---|
//! | here | the routes of all pages |
//! | `owner`, `auth`, `sign_in`, `sessions` | access control |
//! | `mount` | the unguessable path below which they lie |
//! | `frame`, `labels`, `style` | what all pages share |
//! | `hops`, `stages`, `tiles`, `plot` | parts of several pages, or large ones of one |
//! | `live` | notifies open pages of changes |
//! | one for each page | its content and its forms |
//!
//! The server renders the pages, and they work without their script, which only keeps them fresh and saves steps. They
//! use the command line's requests (`local`), so neither can do what the other cannot. A form that succeeded redirects
//! to a page; one that failed is shown again with the submitted values.

mod access;
mod applications;
mod approvals;
mod auth;
mod availability;
mod budget_bar;
mod budgets;
mod call_preview;
mod callbacks;
mod connection;
mod conversations;
mod deliveries;
mod diff;
mod escape;
mod export;
mod fields;
mod folder_picker;
mod form_errors;
mod frame;
mod health;
mod help;
mod hops;
mod keys;
mod labels;
mod live;
mod markdown;
mod mcp;
mod model_choice;
mod mount;
mod overview;
pub mod owner;
mod plot;
mod providers;
mod publication;
mod qr_code;
mod removal;
mod retention;
mod run_calls;
mod run_entries;
#[cfg(test)]
mod run_samples;
mod runs;
mod search;
mod secret;
mod service_editor;
mod service_form;
mod service_gallery;
mod service_life;
mod services;
mod sessions;
mod settings;
mod sign_in;
mod sign_in_form;
mod spending;
mod stages;
mod style;
mod tiles;
mod timeline;
mod trial;
mod unsettled;
mod uploads;
mod versions;
mod wait_times;
mod webhook_form;
mod webhook_kinds;
mod webhook_page;
mod webhook_steps;
mod webhooks;

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use askama::Template;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Extension, Router};
use deskgate_protocol::canonical::Sha256Digest;
use deskgate_store::{self, Settings};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::local::handler::RequestHandler;
use crate::local::{ErrorReply, ErrorReplyCode};
use auth::Visitor;
use frame::{Frame, Section};
use live::LiveUpdates;
use sessions::Sessions;
pub use sessions::WallClock;

/// The first port that is tried.
const DEFAULT_PORT: u16 = 7420;
/// How many ports are tried, one after the other.
const MAX_PORT_ATTEMPTS: u16 = 20;

/// The state behind every page. Clones are cheap.
#[derive(Clone)]
pub struct Pages(Arc<PagesInner>);

struct PagesInner {
    handler: RequestHandler,
    address: SocketAddr,
    cookie: String,
    sessions: Sessions,
    live: LiveUpdates,
}

impl Pages {
    /// The pages at an address, until `stop`. The ages of sessions are told by `wall`.
    ///
    /// # Errors
    /// The database cannot be read, or the saved sessions are damaged.
    pub async fn new(
        handler: RequestHandler,
        address: SocketAddr,
        wall: WallClock,
        stop: CancellationToken,
    ) -> Result<Self, deskgate_store::Error> {
        uploads::tidy(&handler.own_folder);
        let sessions = Sessions::load(handler.store.settings(), wall).await?;
        // Cookies ignore ports: the names of two agents' cookies differ by their keys.
        let own = Sha256Digest::of(handler.key.public_key().fingerprint().as_bytes()).to_string();
        let cookie = format!("ui_{}", &own[..8]);
        handler.launch.set_address(address);
        let live = LiveUpdates::new(handler.clone(), stop);
        Ok(Self(Arc::new(PagesInner { handler, address, cookie, sessions, live })))
    }

    fn handler(&self) -> &RequestHandler {
        &self.0.handler
    }

    fn address(&self) -> SocketAddr {
        self.0.address
    }

    /// The name of the session's cookie.
    fn cookie(&self) -> String {
        self.0.cookie.clone()
    }

    /// A header that gives the session's cookie a value; `path` may have further attributes behind it.
    fn set_cookie(&self, value: &str, path: &str) -> HeaderValue {
        let cookie = format!("{}={value}; HttpOnly; SameSite=Strict; Path={path}", self.0.cookie);
        HeaderValue::from_str(&cookie).expect("a name of ours and base64 are visible ASCII")
    }

    fn sessions(&self) -> &Sessions {
        &self.0.sessions
    }

    fn live(&self) -> &LiveUpdates {
        &self.0.live
    }
}

/// Listens on loopback: on the last port, or the first free one.
///
/// # Errors
/// No port is free.
pub async fn listen(settings: &Settings) -> std::io::Result<TcpListener> {
    let at = |port| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let known = settings.page_port().await.ok().flatten();
    for port in known.into_iter().chain(DEFAULT_PORT..DEFAULT_PORT + MAX_PORT_ATTEMPTS).chain([0]) {
        if let Ok(listener) = TcpListener::bind(at(port)).await {
            let port = listener.local_addr()?.port();
            match known {
                // The process that has the port may end later, so the saved port stays.
                Some(known) if known != port => {
                    tracing::warn!(known, port, "the pages' port of the last time is taken")
                }
                Some(_) => {}
                None => drop(settings.set_page_port(port).await),
            }
            return Ok(listener);
        }
    }
    Err(std::io::ErrorKind::AddrInUse.into())
}

/// The router of all pages. Their paths are those within the pages' own path, which the guard takes off first.
pub fn router(pages: Pages) -> Router {
    let guard = axum::middleware::from_fn_with_state(pages.clone(), auth::guard);
    Router::new().fallback_service(routes(pages)).layer(guard)
}

fn routes(pages: Pages) -> Router {
    Router::new()
        .route("/", get(overview::show))
        .route("/access", get(access::ask).post(access::set))
        .route("/applications", get(applications::list))
        .route("/applications/new", get(applications::ask_new).post(applications::create))
        .route("/applications/{id}", get(applications::show))
        .route("/applications/{id}/callback", get(callbacks::show).post(callbacks::set))
        .route("/applications/{id}/callback/allow", post(callbacks::allow))
        .route("/applications/{id}/callback/secret", get(callbacks::ask_roll).post(callbacks::roll))
        .route("/applications/{id}/callback/switch", post(callbacks::switch))
        .route("/applications/{id}/callback/test", post(callbacks::test))
        .route("/applications/{id}/complete", post(applications::complete))
        .route("/applications/{id}/copy", post(applications::copy))
        .route("/applications/{id}/disable", get(applications::ask_disable).post(applications::disable))
        .route("/applications/{id}/export.jsonl", get(export::download))
        .route("/applications/{id}/keys/new", get(keys::ask_new).post(keys::create))
        .route("/applications/{id}/keys/stored", post(keys::stored))
        .route("/applications/{id}/keys/{key}/revoke", get(keys::ask_revoke).post(keys::revoke))
        .route("/applications/{id}/keys/{key}/roll", get(keys::ask_roll).post(keys::roll))
        .route("/applications/{id}/remove", get(applications::ask_remove).post(applications::remove))
        .route("/applications/{id}/services/new", get(services::ask_new).post(services::create))
        .route("/applications/{id}/webhooks", get(webhooks::list))
        .route("/applications/{id}/webhooks/new", get(webhooks::ask_new).post(webhooks::create))
        .route("/approvals", get(approvals::list))
        .route("/approvals/{id}", post(approvals::decide))
        .route("/approvals/{id}/undo", post(approvals::undo))
        .route("/connection", get(connection::show).post(connection::change))
        .route("/connection/abandon", get(connection::ask_abandon).post(connection::abandon))
        .route("/connection/discard", get(connection::ask_discard).post(connection::discard))
        .route("/connection/pair", post(connection::pair))
        .route("/connection/pair/cancel", post(connection::cancel_pairing))
        .route("/connection/identity.json", get(connection::identity))
        .route("/conversations", get(conversations::list))
        .route("/conversations/{id}", get(conversations::show))
        .route("/conversations/{id}/reset", get(conversations::ask_reset).post(conversations::reset))
        .route("/health", get(health::show).post(health::check_all))
        .route("/health/attention", post(health::attend))
        .route("/health/bundle", get(health::ask_bundle).post(health::bundle))
        .route("/deliveries", get(deliveries::list))
        .route("/deliveries/hosts", get(callbacks::show_hosts).post(callbacks::set_hosts))
        .route("/deliveries/recover", get(deliveries::ask_recover).post(deliveries::recover))
        .route("/deliveries/{id}", get(deliveries::show))
        .route("/deliveries/{id}/resend", get(deliveries::ask_resend).post(deliveries::resend))
        .route("/help", get(help::help))
        .route(live::PATH, get(live::stream))
        .route("/mcp", get(mcp::list))
        .route("/mcp/new", get(mcp::ask_new).post(mcp::create))
        .route("/mcp/{name}", get(mcp::show).post(mcp::change))
        .route("/mcp/{name}/accept", get(mcp::ask_accept).post(mcp::accept))
        .route("/mcp/{name}/look", post(mcp::look))
        .route("/mcp/{name}/remove", get(mcp::ask_remove).post(mcp::remove))
        .route("/providers", get(providers::list))
        .route("/providers/new", get(providers::ask_new).post(providers::create))
        .route("/providers/{name}", get(providers::show).post(providers::change))
        .route("/providers/{name}/models", get(providers::models))
        .route("/providers/{name}/remove", get(providers::ask_remove).post(providers::remove))
        .route("/removed", get(applications::removed))
        .route("/runs", get(runs::list))
        .route("/runs/{id}", get(runs::show))
        .route("/runs/{id}/again", get(runs::ask_again))
        .route("/runs/{id}/calls/{call}", get(run_calls::show))
        .route("/runs/{id}/reconcile", post(runs::reconcile))
        .route("/runs/{id}/writing", get(runs::writing))
        .route("/runs/{id}/stop", get(runs::ask_stop).post(runs::stop))
        .route("/search", get(search::show))
        .route("/services", get(services::list))
        .route("/services/{id}", get(services::show).post(services::edit))
        .route("/services/{id}/check", post(services::check))
        .route("/services/{id}/publish", get(publication::ask_publish).post(publication::publish))
        .route("/services/{id}/try", post(publication::try_out))
        .route("/services/{id}/versions", get(versions::compare))
        .route("/services/{id}/{step}", get(service_life::ask).post(service_life::take))
        .route("/settings", get(settings::show).post(settings::change))
        .route("/settings/autostart", post(settings::set_autostart))
        .route("/settings/notifications", post(settings::set_notifications))
        .route("/settings/retention", get(retention::ask).post(retention::set))
        .route("/settings/secrets", post(settings::move_keys))
        .route("/settings/sign-out", get(settings::ask_sign_out))
        .route("/sign-in", get(sign_in::show).post(sign_in::enter))
        .route("/sign-out", post(sign_in::leave))
        .route("/spending", get(spending::show))
        .route("/spending/{scope}", get(budgets::show).post(budgets::set))
        .route("/spending/{scope}/remove", get(budgets::ask_remove).post(budgets::remove))
        .route("/unsettled", get(unsettled::show).post(unsettled::end_unknown))
        .route("/webhooks/{id}", get(webhooks::show).post(webhooks::change))
        .route("/webhooks/{id}/remove", get(webhook_steps::ask_remove).post(webhook_steps::remove))
        .route("/webhooks/{id}/secret", get(webhook_steps::ask_roll).post(webhook_steps::roll))
        .route("/webhooks/{id}/switch", post(webhook_steps::switch))
        .route("/style.css", get(style::css))
        .route("/script.js", get(style::script))
        .route(style::ICONS_PATH, get(style::icons))
        .route(style::MARK_PATH, get(style::mark))
        .route(style::WAITING_MARK_PATH, get(style::waiting_mark))
        .fallback(missing)
        .with_state(pages)
}

async fn missing() -> PageError {
    PageError(ErrorReply { code: ErrorReplyCode::NotFound, message: "There is no page at this address.".to_owned() })
}

/// A page as an answer.
fn html(status: StatusCode, page: &impl Template) -> Response {
    match page.render() {
        Ok(text) => {
            let kind = (header::CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8"));
            (status, [kind], text).into_response()
        }
        Err(error) => {
            tracing::error!(%error, "a page could not be written");
            StatusCode::INTERNAL_SERVER_ERROR.into_response()
        }
    }
}

/// An error page, with the agent's own words.
#[derive(Debug)]
struct PageError(ErrorReply);

impl<E: Into<ErrorReply>> From<E> for PageError {
    fn from(error: E) -> Self {
        Self(error.into())
    }
}

/// The content of an error page.
#[derive(Clone, Debug)]
struct ErrorNotice {
    title: &'static str,
    message: String,
}

#[derive(Template)]
#[template(path = "trouble.html")]
struct ErrorPage {
    frame: Frame,
    message: String,
    /// Whether the error may pass by itself.
    passes: bool,
}

impl ErrorPage {
    /// The error page with its frame.
    async fn of(pages: &Pages, visitor: &Visitor, status: StatusCode, told: ErrorNotice) -> Response {
        let frame = Frame::new(pages, visitor, Section::Help, told.title).await;
        let passes = status == StatusCode::SERVICE_UNAVAILABLE;
        html(status, &Self { frame, message: told.message, passes })
    }
}

impl IntoResponse for PageError {
    fn into_response(self) -> Response {
        let (status, title) = match self.0.code {
            ErrorReplyCode::Invalid => (StatusCode::UNPROCESSABLE_ENTITY, "This cannot be done as it was asked"),
            ErrorReplyCode::NotFound => (StatusCode::NOT_FOUND, "Not found"),
            ErrorReplyCode::Refused => (StatusCode::CONFLICT, "Not now"),
            ErrorReplyCode::CannotReach => (StatusCode::SERVICE_UNAVAILABLE, "The gateway cannot be reached"),
            ErrorReplyCode::NotAuthorised => (StatusCode::BAD_GATEWAY, "The gateway does not let this computer in"),
            ErrorReplyCode::VersionMismatch => (StatusCode::BAD_GATEWAY, "The gateway has another version"),
            ErrorReplyCode::Failed => (StatusCode::INTERNAL_SERVER_ERROR, "The agent failed"),
        };
        let told = ErrorNotice { title, message: self.0.message };
        (status, Extension(told.clone()), told.message).into_response()
    }
}
