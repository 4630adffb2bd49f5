//! An application's webhooks: their list, and the forms of new and saved ones.

use askama::Template;
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use axum::response::Response;
use deskgate_protocol::ids::{ApplicationId, HookId};
use deskgate_protocol::management::{
    Application, ApplicationState, ChangeWebhook, CreateWebhook, ListWebhooks, SecretText, ShowApplication,
    ShowWebhook, Webhook, WebhookReceipt,
};
use serde::Deserialize;

use super::auth::Visitor;
use super::fields::FormFields;
use super::form_errors::FormErrors;
use super::frame::{Frame, Section};
use super::labels::TimeLabel;
use super::live::Topic;
use super::webhook_kinds::{self, WebhookKind};
use super::webhook_page::{EditedWebhook, TargetService, state, targets};
use super::webhook_steps::{self, to_hook, to_list};
use super::{PageError, Pages, webhook_form};
use crate::local::{ErrorReply, ErrorReplyCode};

#[derive(Template)]
#[template(path = "webhooks.html")]
struct WebhooksPage {
    frame: Frame,
    app: Application,
    hooks: Vec<Webhook>,
    targets: Vec<TargetService>,
}

impl WebhooksPage {
    fn active(&self) -> bool {
        self.app.state == ApplicationState::Active
    }

    fn service(&self, hook: &Webhook) -> String {
        let found = self.targets.iter().find(|target| target.endpoint_id == hook.settings.endpoint_id);
        found.map_or_else(|| hook.settings.endpoint_id.to_string(), |target| target.name.clone())
    }
}

/// `GET /applications/{id}/webhooks`
pub(super) async fn list(
    State(pages): State<Pages>,
    visitor: Visitor,
    Path(app_id): Path<ApplicationId>,
) -> Result<Response, PageError> {
    let (frame, app, hooks, targets) = tokio::join!(
        Frame::new(&pages, &visitor, Section::Applications, "Webhooks"),
        pages.handler().manage(ShowApplication { app_id }),
        pages.handler().manage(ListWebhooks { app_id: Some(app_id) }),
        targets(&pages, app_id)
    );
    Ok(super::html(StatusCode::OK, &WebhooksPage { frame, app: app?, hooks: hooks?, targets: targets? }))
}

/// The query of a new webhook's page.
#[derive(Debug, Deserialize)]
pub(super) struct NewWebhookQuery {
    #[serde(default)]
    scheme: String,
}

fn kind(word: &str) -> Result<&'static WebhookKind, PageError> {
    let unknown = || ErrorReply {
        code: ErrorReplyCode::Invalid,
        message: "Choose how the other system signs its events.".to_owned(),
    };
    webhook_kinds::named(word).ok_or_else(|| PageError(unknown()))
}

/// `GET /applications/{id}/webhooks/new`
pub(super) async fn ask_new(
    State(pages): State<Pages>,
    visitor: Visitor,
    Path(app_id): Path<ApplicationId>,
    Query(asked): Query<NewWebhookQuery>,
) -> Result<Response, PageError> {
    let Ok(kind) = kind(&asked.scheme) else { return Ok(to_list(app_id)) };
    let mut fields = kind.fresh();
    let first = targets(&pages, app_id).await?.into_iter().next();
    match first {
        Some(target) => fields.0.push(("service".to_owned(), target.endpoint_id.to_string())),
        // The list shows what is missing.
        None => return Ok(to_list(app_id)),
    }
    EditedWebhook::New(app_id, kind).page(&pages, &visitor, fields, (StatusCode::OK, FormErrors::default())).await
}

/// `POST /applications/{id}/webhooks/new`: tries it, or creates it and shows its secret, once.
pub(super) async fn create(
    State(pages): State<Pages>,
    visitor: Visitor,
    Path(app_id): Path<ApplicationId>,
    fields: FormFields,
) -> Result<Response, PageError> {
    let kind = kind(fields.get("scheme"))?;
    let subject = EditedWebhook::New(app_id, kind);
    if fields.get("then") == "try" {
        return subject.tried(&pages, &visitor, &fields).await;
    }
    let made = match webhook_form::settings(&fields, kind) {
        Ok(settings) => {
            let secret = fields.filled("secret").map(SecretText::from);
            pages.handler().manage(CreateWebhook { app_id, settings: settings.into(), secret }).await
        }
        Err(no) => Err(no),
    };
    match made {
        Ok(made) => {
            pages.live().changed(Topic::Webhooks);
            Ok(webhook_steps::with_secret(&pages, &visitor, made).await)
        }
        Err(no) => subject.again(&pages, &visitor, &fields, no).await,
    }
}

/// The event that a webhook's page shows first.
#[derive(Debug, Deserialize)]
pub(super) struct WebhookQuery {
    #[serde(default)]
    receipt: String,
}

/// `GET /webhooks/{id}`
pub(super) async fn show(
    State(pages): State<Pages>,
    visitor: Visitor,
    Path(hook_id): Path<HookId>,
    Query(chosen): Query<WebhookQuery>,
) -> Result<Response, PageError> {
    let detail = pages.handler().manage(ShowWebhook { hook_id }).await?;
    let mut fields = webhook_form::fields(&detail.webhook.settings);
    fields.0.extend(webhook_kinds::of(&detail.webhook.settings.scheme).sample());
    let kept = |receipt: &&WebhookReceipt| receipt.body.is_some();
    let asked = detail.receipts.iter().filter(kept).find(|receipt| receipt.receipt_id.to_string() == chosen.receipt);
    if let Some(receipt) = asked.or_else(|| detail.receipts.iter().find(kept)) {
        fields.0.push(("receipt".to_owned(), receipt.receipt_id.to_string()));
    }
    EditedWebhook::Saved(detail.into()).page(&pages, &visitor, fields, (StatusCode::OK, FormErrors::default())).await
}

/// `POST /webhooks/{id}`: tries the form's settings, or saves them.
pub(super) async fn change(
    State(pages): State<Pages>,
    visitor: Visitor,
    Path(hook_id): Path<HookId>,
    fields: FormFields,
) -> Result<Response, PageError> {
    let subject = EditedWebhook::Saved(pages.handler().manage(ShowWebhook { hook_id }).await?.into());
    if fields.get("then") == "try" {
        return subject.tried(&pages, &visitor, &fields).await;
    }
    let changed = match webhook_form::settings(&fields, subject.kind()) {
        Ok(settings) => pages.handler().manage(ChangeWebhook { hook_id, settings: settings.into() }).await,
        Err(no) => Err(no),
    };
    match changed {
        Ok(_) => {
            pages.live().changed(Topic::Webhooks);
            Ok(to_hook(hook_id))
        }
        Err(no) => subject.again(&pages, &visitor, &fields, no).await,
    }
}
