//! Actions on an existing webhook: switching it off and on, rolling its secret, removing it.

use askama::Template;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Redirect, Response};
use deskgate_protocol::ids::HookId;
use deskgate_protocol::management::{
    EnableWebhook, RemoveWebhook, RollWebhookSecret, SecretText, ShowWebhook, Webhook, WebhookWithSecret,
};

use super::auth::Visitor;
use super::fields::FormFields;
use super::form_errors::without_secrets;
use super::frame::{Frame, Section};
use super::live::Topic;
use super::secret::{RollQuestion, SecretPage};
use super::{PageError, Pages, webhook_kinds};
use crate::local::{ErrorReply, ErrorReplyCode};

/// A webhook's secret if a new one was made here, otherwise its page.
pub(super) async fn with_secret(pages: &Pages, visitor: &Visitor, made: WebhookWithSecret) -> Response {
    let WebhookWithSecret { webhook, secret } = made;
    let back = format!("/webhooks/{}", webhook.hook_id);
    let Some(secret) = secret else { return Redirect::to(&back).into_response() };
    let kind = webhook_kinds::of(&webhook.settings.scheme);
    let shown = SecretPage {
        frame: Frame::new(pages, visitor, Section::Applications, "Signing secret").await,
        lead: "The other system signs its events with it, and only what it signed counts.".to_owned(),
        secret: secret.0.to_string(),
        file: "deskgate-webhook-secret.txt",
        old: webhook.old_secret_until.map(|until| ("counts too", until)),
        register: Some((webhook.address, kind)),
        back,
    };
    shown.page()
}

/// `POST /webhooks/{id}/switch`
pub(super) async fn switch(
    State(pages): State<Pages>,
    Path(hook_id): Path<HookId>,
    fields: FormFields,
) -> Result<Response, PageError> {
    pages.handler().manage(EnableWebhook { hook_id, enabled: fields.get("enabled") == "yes" }).await?;
    pages.live().changed(Topic::Webhooks);
    Ok(to_hook(hook_id))
}

async fn find(pages: &Pages, hook_id: HookId) -> Result<Webhook, PageError> {
    Ok(pages.handler().manage(ShowWebhook { hook_id }).await?.webhook)
}

/// `GET /webhooks/{id}/secret`: the question before another secret.
pub(super) async fn ask_roll(
    State(pages): State<Pages>,
    visitor: Visitor,
    Path(hook_id): Path<HookId>,
) -> Result<Response, PageError> {
    let hook = find(&pages, hook_id).await?;
    Ok(roll_question(&pages, &visitor, &hook, FormFields::default(), None).await)
}

async fn roll_question(
    pages: &Pages,
    visitor: &Visitor,
    hook: &Webhook,
    fields: FormFields,
    problem: Option<String>,
) -> Response {
    let frame = Frame::new(pages, visitor, Section::Applications, "Roll the signing secret?").await;
    let always = webhook_kinds::of(&hook.settings.scheme).gives_secret;
    let shown = if always { "is the one that Stripe shows" } else { "is shown once, or it is the one that you give" };
    let lead =
        format!("The new secret of {} {shown}. What is signed with the old one counts too, until:", hook.settings.name);
    let back = format!("/webhooks/{}", hook.hook_id);
    RollQuestion { frame, lead, back, given: Some(always), fields, problem }.page()
}

/// `POST /webhooks/{id}/secret`: shows the new secret if it was made here, once.
pub(super) async fn roll(
    State(pages): State<Pages>,
    visitor: Visitor,
    Path(hook_id): Path<HookId>,
    fields: FormFields,
) -> Result<Response, PageError> {
    let secret = fields.filled("secret").map(SecretText::from);
    let rolled = match super::keys::overlap(&fields) {
        Some(overlap_s) => pages.handler().manage(RollWebhookSecret { hook_id, overlap_s, secret }).await,
        None => {
            let message = "Choose until when the old secret counts too.".to_owned();
            Err(ErrorReply { code: ErrorReplyCode::Invalid, message })
        }
    };
    match rolled {
        Ok(rolled) => Ok(with_secret(&pages, &visitor, rolled).await),
        Err(no) if no.code == ErrorReplyCode::Invalid => {
            let hook = find(&pages, hook_id).await?;
            Ok(roll_question(&pages, &visitor, &hook, without_secrets(&fields), Some(no.message)).await)
        }
        Err(no) => Err(no.into()),
    }
}

#[derive(Template)]
#[template(path = "webhook-remove.html")]
struct RemoveQuestion {
    frame: Frame,
    hook: Webhook,
    problem: Option<String>,
}

async fn remove_question(pages: &Pages, visitor: &Visitor, hook: Webhook, problem: Option<String>) -> Response {
    let title = format!("Remove {}?", hook.settings.name);
    let frame = Frame::new(pages, visitor, Section::Applications, title).await;
    let status = if problem.is_some() { StatusCode::UNPROCESSABLE_ENTITY } else { StatusCode::OK };
    super::html(status, &RemoveQuestion { frame, hook, problem })
}

/// `GET /webhooks/{id}/remove`: the question before it.
pub(super) async fn ask_remove(
    State(pages): State<Pages>,
    visitor: Visitor,
    Path(hook_id): Path<HookId>,
) -> Result<Response, PageError> {
    let hook = find(&pages, hook_id).await?;
    Ok(remove_question(&pages, &visitor, hook, None).await)
}

/// `POST /webhooks/{id}/remove`: requires the webhook's name, because it cannot be undone.
pub(super) async fn remove(
    State(pages): State<Pages>,
    visitor: Visitor,
    Path(hook_id): Path<HookId>,
    fields: FormFields,
) -> Result<Response, PageError> {
    let hook = find(&pages, hook_id).await?;
    if fields.get("name").trim() != hook.settings.name {
        let problem = format!("Type the webhook's name, {}, to confirm. Nothing was changed.", hook.settings.name);
        return Ok(remove_question(&pages, &visitor, hook, Some(problem)).await);
    }
    pages.handler().manage(RemoveWebhook { hook_id }).await?;
    pages.live().changed(Topic::Webhooks);
    Ok(to_list(hook.app_id))
}

pub(super) fn to_hook(hook_id: HookId) -> Response {
    Redirect::to(&format!("/webhooks/{hook_id}")).into_response()
}

pub(super) fn to_list(app_id: deskgate_protocol::ids::ApplicationId) -> Response {
    Redirect::to(&format!("/applications/{app_id}/webhooks")).into_response()
}
