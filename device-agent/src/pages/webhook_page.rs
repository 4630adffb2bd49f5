//! A webhook's page: its receipts, its form, and a preview of an event's result.

use askama::Template;
use axum::http::StatusCode;
use axum::response::Response;
use deskgate_program::visible;
use deskgate_protocol::conversation::OnBusy;
use deskgate_protocol::ids::{ApplicationId, EndpointId};
use deskgate_protocol::management::{
    Application, ApplicationState, HashAlgorithm, ReceiptOutcome, ShowApplication, SignatureEncoding, TestWebhook,
    TrialOutcome, Webhook, WebhookDetail, WebhookReceipt, WebhookSettings, WebhookTrial,
};

use super::auth::Visitor;
use super::fields::FormFields;
use super::form_errors::{FieldAttributes, FormErrors, failed, without_secrets};
use super::frame::{Frame, Section};
use super::labels::{Shape, TimeLabel};
use super::webhook_form::{self, WEBHOOK_FIELDS};
use super::webhook_kinds::{self, WebhookKind};
use super::{PageError, Pages};
use crate::local::{ErrorReply, ErrorReplyCode, ListServices};

/// A service that events can be for.
pub(super) struct TargetService {
    pub(super) endpoint_id: EndpointId,
    pub(super) name: String,
}

/// The services of an application that callers can use.
pub(super) async fn targets(pages: &Pages, app_id: ApplicationId) -> Result<Vec<TargetService>, ErrorReply> {
    let services = pages.handler().request(ListServices {}).await?;
    let of_app = services.into_iter().filter(|service| service.app_id == app_id && service.published.is_some());
    Ok(of_app
        .filter_map(|service| Some(TargetService { endpoint_id: service.endpoint_id?, name: service.draft.name }))
        .collect())
}

pub(super) fn state(hook: &Webhook) -> (Shape, &'static str) {
    if hook.enabled { (Shape::Good, "On") } else { (Shape::Paused, "Off") }
}

/// A receipt in the table.
struct ReceiptRow {
    receipt: WebhookReceipt,
}

impl ReceiptRow {
    fn state(&self) -> (Shape, &'static str) {
        match self.receipt.outcome {
            ReceiptOutcome::Accepted => (Shape::Good, "Accepted"),
            ReceiptOutcome::Repeated => (Shape::Good, "Repeated"),
            ReceiptOutcome::Ignored => (Shape::Over, "Ignored"),
            ReceiptOutcome::Refused => (Shape::Bad, "Refused"),
        }
    }

    fn why(&self) -> String {
        match (&self.receipt.reason, self.receipt.outcome) {
            (Some(reason), _) => reason.to_string(),
            (None, ReceiptOutcome::Repeated) => "it came before, and makes nothing a second time".to_owned(),
            (None, _) => String::new(),
        }
    }

    fn kind(&self) -> String {
        self.receipt.event_type.as_deref().map(visible::line).unwrap_or_default()
    }

    fn event(&self) -> Option<String> {
        self.receipt.event_id.as_deref().map(visible::line)
    }

    fn body(&self) -> Option<&str> {
        self.receipt.body.as_deref()
    }
}

/// The preview of the event in a form.
enum WebhookPreview {
    Would(WebhookTrial),
    /// There is no preview, because the form has errors.
    Cannot(FormErrors),
}

#[derive(Template)]
#[template(path = "webhook.html")]
struct WebhookPage {
    frame: Frame,
    app: Application,
    kind: &'static WebhookKind,
    /// `None` for a new one.
    hook: Option<Webhook>,
    received: Vec<ReceiptRow>,
    targets: Vec<TargetService>,
    fields: FormFields,
    wrong: FormErrors,
    preview: WebhookPreview,
}

impl WebhookPage {
    fn active(&self) -> bool {
        self.app.state == ApplicationState::Active
    }

    /// The address of its form.
    fn step(&self) -> String {
        match &self.hook {
            Some(hook) => format!("/webhooks/{}", hook.hook_id),
            None => format!("/applications/{}/webhooks/new", self.app.app_id),
        }
    }

    fn chosen(&self, name: &str, value: impl ToString) -> bool {
        self.fields.get(name) == value.to_string()
    }

    /// The services to choose from, always with the current one.
    fn services(&self) -> Vec<(String, String)> {
        let mut all: Vec<_> =
            self.targets.iter().map(|target| (target.endpoint_id.to_string(), target.name.clone())).collect();
        if let Some(hook) = &self.hook {
            let own = hook.settings.endpoint_id.to_string();
            if all.iter().all(|(id, _)| *id != own) {
                all.push((own.clone(), own));
            }
        }
        all
    }

    /// Whether no event with a valid signature was received yet.
    fn is_silent(&self) -> bool {
        self.received.iter().all(|received| received.receipt.outcome == ReceiptOutcome::Refused)
    }

    /// Whether there is an event to try with.
    fn has_bodies(&self) -> bool {
        self.received.iter().any(|received| received.receipt.body.is_some())
    }

    /// Whether only programs on this computer can reach its address.
    fn is_local(hook: &Webhook) -> bool {
        ["http://127.0.0.1", "http://localhost", "http://[::1]"].iter().any(|own| hook.address.starts_with(own))
    }

    fn error(&self, field: &str) -> Option<&str> {
        let tried = match &self.preview {
            WebhookPreview::Cannot(wrong) => wrong.at(field),
            WebhookPreview::Would(_) => None,
        };
        self.wrong.at(field).or(tried)
    }

    fn marks(&self, field: &'static str) -> FieldAttributes {
        FieldAttributes { field, wrong: self.error(field).is_some(), first: false }
    }

    /// What may become of an event while its conversation is busy, in words.
    fn on_busy(&self) -> [(OnBusy, &'static str); OnBusy::ALL.len()] {
        OnBusy::ALL.map(|on_busy| {
            let meaning = match on_busy {
                OnBusy::Reject => "The event is refused; the other system sends it again",
                OnBusy::Enqueue => "The message waits for its turn",
                OnBusy::Interrupt => "The run is stopped, and the message comes next",
            };
            (on_busy, meaning)
        })
    }

    fn label(field: &str) -> &'static str {
        webhook_form::label(field)
    }

    /// The result, as shape, word and sentence.
    fn outcome(&self) -> (Shape, &'static str, String) {
        match &self.preview {
            WebhookPreview::Cannot(_) => (Shape::Unknown, "Not known", "Something cannot be read.".to_owned()),
            WebhookPreview::Would(trial) => match &trial.outcome {
                TrialOutcome::Ignored { reason } => (Shape::Over, "Ignored", format!("{reason}.")),
                TrialOutcome::Refused { reason } => (Shape::Bad, "Refused", format!("{reason}.")),
                TrialOutcome::Submitted(mapped) if mapped.conversation_key.is_some() => {
                    (Shape::Good, "Accepted", "It becomes a message.".to_owned())
                }
                TrialOutcome::Submitted(_) => (Shape::Good, "Accepted", "It becomes a run.".to_owned()),
            },
        }
    }
}

/// An existing webhook, or the kind of a new one.
pub(super) enum EditedWebhook {
    New(ApplicationId, &'static WebhookKind),
    Saved(Box<WebhookDetail>),
}

impl EditedWebhook {
    pub(super) fn kind(&self) -> &'static WebhookKind {
        match self {
            Self::New(_, kind) => kind,
            Self::Saved(detail) => webhook_kinds::of(&detail.webhook.settings.scheme),
        }
    }

    /// The result of the form's event, if the form were saved.
    async fn preview(&self, pages: &Pages, fields: &FormFields) -> Result<WebhookPreview, ErrorReply> {
        let hook_id = match self {
            Self::New(..) => None,
            Self::Saved(detail) => Some(detail.webhook.hook_id),
        };
        let request = webhook_form::settings(fields, self.kind()).and_then(|settings| {
            // The name does not matter for that.
            let name = if settings.name.is_empty() { "new".to_owned() } else { settings.name };
            let settings = Some(Box::new(WebhookSettings { name, ..settings }));
            Ok(TestWebhook { hook_id, settings, sample: webhook_form::sample(fields)? })
        });
        let tried = match request {
            Ok(request) => pages.handler().manage(request).await,
            Err(no) => Err(no),
        };
        match tried {
            Ok(trial) => Ok(WebhookPreview::Would(trial)),
            Err(no) if is_about_the_form(&no) => Ok(WebhookPreview::Cannot(failed(&no, WEBHOOK_FIELDS).1)),
            Err(no) => Err(no),
        }
    }

    pub(super) async fn page(
        self,
        pages: &Pages,
        visitor: &Visitor,
        fields: FormFields,
        (status, wrong): (StatusCode, FormErrors),
    ) -> Result<Response, PageError> {
        let (app_id, title) = match &self {
            Self::New(app_id, kind) => (*app_id, format!("New webhook: {}", kind.name)),
            Self::Saved(detail) => (detail.webhook.app_id, detail.webhook.settings.name.clone()),
        };
        let (frame, app, targets, preview) = tokio::join!(
            Frame::new(pages, visitor, Section::Applications, title),
            pages.handler().manage(ShowApplication { app_id }),
            targets(pages, app_id),
            self.preview(pages, &fields)
        );
        let (app, targets, preview, kind) = (app?, targets?, preview?, self.kind());
        let (hook, received) = match self {
            Self::New(..) => (None, Vec::new()),
            Self::Saved(detail) => (Some(detail.webhook), detail.receipts),
        };
        let received = received.into_iter().map(|receipt| ReceiptRow { receipt }).collect();
        Ok(super::html(status, &WebhookPage { frame, app, kind, hook, received, targets, fields, wrong, preview }))
    }

    /// The form as it was sent, with the preview of its event.
    pub(super) async fn tried(
        self,
        pages: &Pages,
        visitor: &Visitor,
        fields: &FormFields,
    ) -> Result<Response, PageError> {
        self.page(pages, visitor, without_secrets(fields), (StatusCode::OK, FormErrors::default())).await
    }

    /// The form as it was sent, with its errors or the problem.
    pub(super) async fn again(
        self,
        pages: &Pages,
        visitor: &Visitor,
        fields: &FormFields,
        no: ErrorReply,
    ) -> Result<Response, PageError> {
        if !is_about_the_form(&no) {
            return Err(no.into());
        }
        self.page(pages, visitor, without_secrets(fields), failed(&no, WEBHOOK_FIELDS)).await
    }
}

fn is_about_the_form(no: &ErrorReply) -> bool {
    matches!(no.code, ErrorReplyCode::Invalid | ErrorReplyCode::Refused | ErrorReplyCode::NotFound)
}
