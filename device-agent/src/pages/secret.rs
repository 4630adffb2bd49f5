//! Secrets for signatures: shown once, and the question before another one.

use askama::Template;
use axum::http::StatusCode;
use axum::response::Response;
use deskgate_protocol::Timestamp;

use super::fields::FormFields;
use super::frame::Frame;
use super::labels::When;
use super::webhook_kinds::WebhookKind;

/// The page with a secret's text. It is an answer, not a page with an address: nobody can come back to it.
#[derive(Template)]
#[template(path = "secret-shown.html")]
pub(super) struct SecretPage {
    pub(super) frame: Frame,
    /// Who needs it.
    pub(super) lead: String,
    pub(super) secret: String,
    /// What a file with it is called.
    pub(super) file: &'static str,
    /// What the secret before it is good for, and until when.
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

/// The question before another secret.
#[derive(Template)]
#[template(path = "secret-roll.html")]
pub(super) struct RollQuestion {
    pub(super) frame: Frame,
    /// What happens, up to the time until which the old one is good.
    pub(super) lead: String,
    /// Whose secret it is: the page that the question belongs to.
    pub(super) back: String,
    /// Whether the other side makes the secret always; absent if it never does.
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
