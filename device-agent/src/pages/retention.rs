//! Retention times; a question with numbers comes before any deletion.

use askama::Template;
use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Redirect, Response};
use deskgate_store::RetentionSettings;

use super::auth::Visitor;
use super::fields::FormFields;
use super::frame::{Frame, Section};
use super::labels::CountLabel;
use super::{PageError, Pages, settings};
use crate::local::{Amount, ErrorReply, ErrorReplyCode, Retention, ReviewRetention, SetRetention};

#[derive(Template)]
#[template(path = "retention.html")]
struct RetentionQuestion {
    frame: Frame,
    keep: RetentionSettings,
    kept: Retention,
}

/// One kind of data: its retention time now and then, its amount, and how much is deleted.
struct RetentionRow {
    what: &'static str,
    now: u32,
    then: u32,
    amount: Option<Amount>,
}

impl RetentionQuestion {
    fn rows(&self) -> [RetentionRow; 5] {
        let (now, then, kept) = (&self.kept.keep, &self.keep, &self.kept);
        let row = |what, now, then, amount| RetentionRow { what, now, then, amount };
        [
            row("Ended runs in the built-in gateway", now.runs, then.runs, kept.runs),
            row("Conversations", now.conversations, then.conversations, Some(kept.conversations)),
            row("Answers in the journal", now.journal, then.journal, Some(kept.journal)),
            row("Tool calls", now.calls, then.calls, Some(kept.calls)),
            row("Lines of the agent's log", now.log, then.log, Some(kept.log)),
        ]
    }
}

/// The retention times in the form, or one sentence for each wrong field.
fn keep(fields: &FormFields) -> Result<RetentionSettings, ErrorReply> {
    let mut wrong = Vec::new();
    let mut days = |name: &str| {
        let text = fields.get(name).trim();
        text.parse().unwrap_or_else(|_| {
            wrong.push(format!("{name}: {text:?} is no number of days"));
            RetentionSettings::MAX_DAYS
        })
    };
    let keep = RetentionSettings {
        runs: days("keep-runs"),
        conversations: days("keep-conversations"),
        journal: days("keep-journal"),
        calls: days("keep-calls"),
        log: days("keep-log"),
    };
    if wrong.is_empty() {
        Ok(keep)
    } else {
        Err(ErrorReply { code: ErrorReplyCode::Invalid, message: wrong.join("\n") })
    }
}

/// `GET /settings/retention`: shows what would be deleted.
pub(super) async fn ask(
    State(pages): State<Pages>,
    visitor: Visitor,
    Query(fields): Query<Vec<(String, String)>>,
) -> Result<Response, PageError> {
    let fields = FormFields(fields);
    let reviewed = match keep(&fields) {
        Ok(keep) => pages.handler().request(ReviewRetention { keep: Some(keep) }).await.map(|kept| (keep, kept)),
        Err(no) => Err(no),
    };
    match reviewed {
        Ok((keep, kept)) => {
            let frame = Frame::new(&pages, &visitor, Section::Settings, "Keep things for so long?").await;
            Ok(super::html(StatusCode::OK, &RetentionQuestion { frame, keep, kept }))
        }
        Err(no) => settings::again(&pages, &visitor, Some(&fields), no).await,
    }
}

/// `POST /settings/retention`
pub(super) async fn set(
    State(pages): State<Pages>,
    visitor: Visitor,
    fields: FormFields,
) -> Result<Response, PageError> {
    let set = match keep(&fields) {
        Ok(keep) => pages.handler().request(SetRetention { keep }).await,
        Err(no) => Err(no),
    };
    match set {
        Ok(_) => Ok(Redirect::to("/settings?said=kept#retention").into_response()),
        Err(no) => settings::again(&pages, &visitor, Some(&fields), no).await,
    }
}
