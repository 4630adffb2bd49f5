//! Signing secrets: shown once, and the question before a new one.

use askama::Template;
use axum::http::StatusCode;
use axum::response::Response;
use deskgate_protocol::Timestamp;

use super::fields::FormFields;
use super::frame::Frame;
use super::labels::TimeLabel;
use super::webhook_kinds::WebhookKind;

/// The page with a secret's text. It is the answer to a form and has no address: it cannot be opened again.
#[derive(Template)]
#[template(path = "secret-shown.html")]
pub(super) struct SecretPage {
    pub(super) frame: Frame,
    /// The text about where the secret is needed.
    pub(super) lead: String,
    pub(super) secret: String,
    /// The name of a file with the secret.
    pub(super) file: &'static str,
    /// What the old secret is still valid for, and until when.
    pub(super) old: Option<(&'static str, Timestamp)>,
    /// The address to register with it, and how.
    pub(super) register: Option<(String, &'static WebhookKind)>,
    pub(super) back: String,
}

impl SecretPage {
    pub(super) fn page(&self) -> Response {
        super::html(StatusCode::OK, self)
    }
}

/// The question before a new secret.
#[derive(Template)]
#[template(path = "secret-roll.html")]
pub(super) struct RollQuestion {
    pub(super) frame: Frame,
    /// The consequences, up to the time until which the old one is valid.
    pub(super) lead: String,
    /// The page to which the question belongs.
    pub(super) back: String,
    /// Whether the other side always makes the secret; absent if it never does.
    pub(super) given: Option<bool>,
    pub(super) fields: FormFields,
    pub(super) problem: Option<String>,
}

impl RollQuestion {
    pub(super) fn page(&self) -> Response {
        let status = if self.problem.is_some() { StatusCode::UNPROCESSABLE_ENTITY } else { StatusCode::OK };
        super::html(status, self)
    }

    fn chosen(&self, overlap: &str) -> bool {
        self.fields.get("overlap") == overlap || (overlap == "day" && self.fields.get("overlap").is_empty())
    }
}
