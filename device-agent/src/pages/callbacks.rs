//! An application's callback: its address, its events, and their deliveries.

use askama::Template;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Redirect, Response};
use deskgate_protocol::delivery::CallbackEvent;
use deskgate_protocol::ids::ApplicationId;
use deskgate_protocol::management::{
    Allowlist, Application, ApplicationState, Callback, CallbackFormat, CallbackOff, CallbackWithSecret,
    ListDeliveries, RollCallbackSecret, SetAllowlist, SetCallback, ShowAllowlist, ShowApplication, ShowCallback,
    ShowDelivery, TestCallback,
};

use super::auth::Visitor;
use super::deliveries::DeliveryRow;
use super::fields::FormFields;
use super::form_errors::{FormErrors, failed, without_secrets};
use super::frame::{Frame, Section};
use super::labels::{CountLabel, Shape, TimeLabel};
use super::overview::Names;
use super::secret::{RollQuestion, SecretPage};
use super::{PageError, Pages};
use crate::local::{ErrorReply, ErrorReplyCode};

/// The fields that an error can be about.
const CALLBACK_FIELDS: &[&str] = &["url", "events"];
/// How many of the newest deliveries are shown.
const DELIVERIES_SHOWN: u32 = 10;
/// How many seconds a test waits; after that its page is updated.
const TEST_WAIT_SECS: u32 = 10;

/// The description of an event, in a sentence.
fn says(kind: CallbackEvent) -> &'static str {
    match kind {
        CallbackEvent::RunAccepted => "it is durable",
        CallbackEvent::RunStarted => "this computer began it",
        CallbackEvent::RunAwaitingApproval => "it waits for your decision",
        CallbackEvent::RunApprovalResolved => "you decided, or the time was over",
        CallbackEvent::RunAwaitingReconciliation => "it was interrupted, and needs your decision",
        CallbackEvent::RunReconciled => "its outcome was confirmed",
        CallbackEvent::RunRestarted => "this computer began it again",
        CallbackEvent::RunCancelling => "it is being stopped",
        CallbackEvent::RunSucceeded => "it ended with a result",
        CallbackEvent::RunFailed => "it ended without one",
        CallbackEvent::RunCancelled => "it was stopped",
        CallbackEvent::RunExpired => "it was not started in time",
        CallbackEvent::ConversationReset => "a conversation begins anew",
        CallbackEvent::WebhookTest => "a test",
    }
}

#[derive(Template)]
#[template(path = "callback.html")]
struct CallbackPage {
    frame: Frame,
    app: Application,
    callback: Option<Callback>,
    allowlist: Allowlist,
    fields: FormFields,
    wrong: FormErrors,
    rows: Vec<DeliveryRow>,
}

impl CallbackPage {
    fn active(&self) -> bool {
        self.app.state == ApplicationState::Active
    }

    /// The events that can be chosen: name, description, and whether it is chosen.
    fn events(&self) -> Vec<(CallbackEvent, &'static str, bool)> {
        let chosen = |kind: CallbackEvent| self.fields.all("events").any(|name| name == kind.as_str());
        let kinds = CallbackEvent::ALL.iter().copied().filter(|kind| kind.can_be_chosen());
        kinds.map(|kind| (kind, says(kind), chosen(kind))).collect()
    }

    /// The host that would have to be allowed.
    fn blocked_host(&self) -> Option<&str> {
        self.callback.as_ref().filter(|callback| !callback.host_allowed).and_then(|callback| host(&callback.url))
    }

    /// Whether events are sent, as shape, word and reason.
    fn standing(callback: &Callback) -> (Shape, &'static str, &'static str) {
        match callback.off {
            Some(CallbackOff::Gone) => (Shape::Bad, "Off", "The receiver answered 410: it is gone."),
            Some(CallbackOff::Failing) => (Shape::Bad, "Off", "Nothing but failures for five days."),
            Some(CallbackOff::Owner) => (Shape::Paused, "Off", "You switched it off."),
            Some(CallbackOff::Application) => (Shape::Over, "Off", "The application was disabled."),
            None if !callback.host_allowed => {
                (Shape::Bad, "Blocked", "Its host is not among the allowed hosts, so every attempt fails.")
            }
            None if callback.failing_since.is_some() => (Shape::Bad, "Failing", "No attempt succeeds."),
            None => (Shape::Good, "On", "Events are sent as they happen."),
        }
    }

    fn label(field: &str) -> &'static str {
        match field {
            "url" => "Address",
            _ => "Events",
        }
    }
}

/// The host of an accepted address.
fn host(url: &str) -> Option<&str> {
    url.strip_prefix("https://")?.split(['/', '?']).next()
}

/// `GET /applications/{id}/callback`
pub(super) async fn show(
    State(pages): State<Pages>,
    visitor: Visitor,
    Path(app_id): Path<ApplicationId>,
) -> Result<Response, PageError> {
    let callback = pages.handler().manage(ShowCallback { app_id }).await?;
    let mut fields = Vec::new();
    let types = callback.as_ref().map_or(CallbackEvent::RUN_END_EVENTS.to_vec(), |callback| callback.types.clone());
    fields.extend(types.iter().map(|kind| ("events".to_owned(), kind.to_string())));
    if let Some(callback) = &callback {
        fields.push(("url".to_owned(), callback.url.clone()));
        fields.push(("format".to_owned(), callback.format.to_string()));
        fields.extend(callback.keep_answers.then(|| ("keep-answers".to_owned(), "yes".to_owned())));
    }
    page(&pages, &visitor, app_id, callback, FormFields(fields), (StatusCode::OK, FormErrors::default())).await
}

async fn page(
    pages: &Pages,
    visitor: &Visitor,
    app_id: ApplicationId,
    callback: Option<Callback>,
    fields: FormFields,
    (status, wrong): (StatusCode, FormErrors),
) -> Result<Response, PageError> {
    let newest = ListDeliveries { limit: DELIVERIES_SHOWN, app_id: Some(app_id), ..ListDeliveries::default() };
    let (frame, names, app, allowlist, newest) = tokio::join!(
        Frame::new(pages, visitor, Section::Applications, "Events and callbacks"),
        Names::new(pages),
        pages.handler().manage(ShowApplication { app_id }),
        pages.handler().manage(ShowAllowlist {}),
        pages.handler().manage(newest)
    );
    let rows = newest?.deliveries.into_iter().map(|own| DeliveryRow::new(own, &names)).collect();
    let (app, allowlist) = (app?, allowlist?);
    Ok(super::html(status, &CallbackPage { frame, app, callback, allowlist, fields, wrong, rows }))
}

/// `POST /applications/{id}/callback`: shows a new callback's secret, once.
pub(super) async fn set(
    State(pages): State<Pages>,
    visitor: Visitor,
    Path(app_id): Path<ApplicationId>,
    fields: FormFields,
) -> Result<Response, PageError> {
    let set = match request(app_id, &fields) {
        Ok(request) => pages.handler().manage(request).await,
        Err(message) => Err(ErrorReply { code: ErrorReplyCode::Invalid, message }),
    };
    match set {
        Ok(set) => done(&pages, &visitor, set).await,
        Err(no) if matches!(no.code, ErrorReplyCode::Invalid | ErrorReplyCode::Refused) => {
            let callback = pages.handler().manage(ShowCallback { app_id }).await?;
            page(&pages, &visitor, app_id, callback, without_secrets(&fields), failed(&no, CALLBACK_FIELDS)).await
        }
        Err(no) => Err(no.into()),
    }
}

fn request(app_id: ApplicationId, fields: &FormFields) -> Result<SetCallback, String> {
    let types = fields.all("events").map(str::parse).collect::<Result<Vec<_>, _>>();
    let types = types.map_err(|_| "events: one of them is not known".to_owned())?;
    if types.is_empty() {
        return Err("events: choose at least one; to send nothing, switch the callback off".to_owned());
    }
    let url = fields.filled("url").ok_or("url: an address is missing, such as https://hooks.example.com/deskgate")?;
    let keep_answers = Some(fields.get("keep-answers") == "yes");
    let format = Some(if fields.get("format") == "openai" { CallbackFormat::Openai } else { CallbackFormat::Deskgate });
    Ok(SetCallback { app_id, url: Some(url), types: Some(types), enabled: None, keep_answers, format })
}

async fn done(pages: &Pages, visitor: &Visitor, set: CallbackWithSecret) -> Result<Response, PageError> {
    let CallbackWithSecret { callback, secret } = set;
    let Some(secret) = secret else { return Ok(back(callback.app_id)) };
    let shown = SecretPage {
        frame: Frame::new(pages, visitor, Section::Applications, "Signing secret").await,
        lead: format!(
            "Put it into the credential store of the receiver at {}, which checks with it that what it gets comes from here \
             (Standard Webhooks).",
            callback.url
        ),
        secret,
        file: "deskgate-webhook-secret.txt",
        old: callback.old_secret_until.map(|until| ("signs too", until)),
        register: None,
        back: format!("/applications/{}/callback", callback.app_id),
    };
    Ok(shown.page())
}

fn back(app_id: ApplicationId) -> Response {
    Redirect::to(&format!("/applications/{app_id}/callback")).into_response()
}

/// `POST /applications/{id}/callback/switch`
pub(super) async fn switch(
    State(pages): State<Pages>,
    Path(app_id): Path<ApplicationId>,
    fields: FormFields,
) -> Result<Response, PageError> {
    let enabled = Some(fields.get("enabled") == "yes");
    pages
        .handler()
        .manage(SetCallback { app_id, url: None, types: None, enabled, keep_answers: None, format: None })
        .await?;
    Ok(back(app_id))
}

/// `POST /applications/{id}/callback/test`: sends a test event, and leads to its attempts.
pub(super) async fn test(State(pages): State<Pages>, Path(app_id): Path<ApplicationId>) -> Result<Response, PageError> {
    let delivery_id = pages.handler().manage(TestCallback { app_id }).await?.delivery.delivery_id;
    pages.handler().manage(ShowDelivery { delivery_id, wait_s: TEST_WAIT_SECS, seen: 0 }).await?;
    Ok(Redirect::to(&format!("/deliveries/{delivery_id}")).into_response())
}

/// `POST /applications/{id}/callback/allow`: allows sending to its host.
pub(super) async fn allow(
    State(pages): State<Pages>,
    Path(app_id): Path<ApplicationId>,
) -> Result<Response, PageError> {
    let callback = pages.handler().manage(ShowCallback { app_id }).await?;
    let mut hosts = pages.handler().manage(ShowAllowlist {}).await?.hosts;
    hosts.extend(callback.as_ref().and_then(|callback| host(&callback.url)).map(str::to_owned));
    pages.handler().manage(SetAllowlist { hosts }).await?;
    Ok(back(app_id))
}

/// `GET /applications/{id}/callback/secret`: the question before a new secret.
pub(super) async fn ask_roll(
    State(pages): State<Pages>,
    visitor: Visitor,
    Path(app_id): Path<ApplicationId>,
) -> Result<Response, PageError> {
    let missing =
        || ErrorReply { code: ErrorReplyCode::NotFound, message: "This application has no callback.".to_owned() };
    let callback = pages.handler().manage(ShowCallback { app_id }).await?.ok_or_else(missing)?;
    let frame = Frame::new(&pages, &visitor, Section::Applications, "Roll the signing secret?").await;
    let lead = format!(
        "A new secret for {} is shown once. Each delivery is signed with both, so that the receiver can change over, until:",
        callback.url
    );
    let back = format!("/applications/{app_id}/callback");
    Ok(RollQuestion { frame, lead, back, given: None, fields: FormFields::default(), problem: None }.page())
}

/// `POST /applications/{id}/callback/secret`: shows the new secret, once.
pub(super) async fn roll(
    State(pages): State<Pages>,
    visitor: Visitor,
    Path(app_id): Path<ApplicationId>,
    fields: FormFields,
) -> Result<Response, PageError> {
    let chosen = super::keys::overlap(&fields);
    let wrong = || ErrorReply {
        code: ErrorReplyCode::Invalid,
        message: "Choose until when the old secret signs too.".to_owned(),
    };
    let overlap_s = chosen.ok_or_else(wrong)?;
    let rolled = pages.handler().manage(RollCallbackSecret { app_id, overlap_s }).await?;
    done(&pages, &visitor, rolled).await
}

#[derive(Template)]
#[template(path = "allowlist.html")]
struct AllowlistPage {
    frame: Frame,
    allowlist: Allowlist,
    text: String,
    problem: Option<String>,
}

async fn hosts(pages: &Pages, visitor: &Visitor, sent: Option<(String, String)>) -> Result<Response, PageError> {
    let allowlist = pages.handler().manage(ShowAllowlist {}).await?;
    let frame = Frame::new(pages, visitor, Section::Deliveries, "Allowed hosts").await;
    let status = if sent.is_some() { StatusCode::UNPROCESSABLE_ENTITY } else { StatusCode::OK };
    let (text, problem) = match sent {
        Some((text, problem)) => (text, Some(problem)),
        None => (allowlist.hosts.join(", "), None),
    };
    Ok(super::html(status, &AllowlistPage { frame, allowlist, text, problem }))
}

/// `GET /deliveries/hosts`
pub(super) async fn show_hosts(State(pages): State<Pages>, visitor: Visitor) -> Result<Response, PageError> {
    hosts(&pages, &visitor, None).await
}

/// `POST /deliveries/hosts`
pub(super) async fn set_hosts(
    State(pages): State<Pages>,
    visitor: Visitor,
    fields: FormFields,
) -> Result<Response, PageError> {
    let text = fields.get("hosts").to_owned();
    let names = text.split([',', '\n']).map(str::trim).filter(|name| !name.is_empty());
    let request = SetAllowlist { hosts: names.map(str::to_owned).collect() };
    match pages.handler().manage(request).await {
        Ok(_) => Ok(Redirect::to("/deliveries/hosts").into_response()),
        Err(no) if matches!(no.code, ErrorReplyCode::Invalid | ErrorReplyCode::Refused) => {
            let text = without_secrets(&FormFields(vec![("hosts".to_owned(), text)])).get("hosts").to_owned();
            hosts(&pages, &visitor, Some((text, no.message))).await
        }
        Err(no) => Err(no.into()),
    }
}
