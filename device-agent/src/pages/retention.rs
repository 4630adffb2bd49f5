//! For how long what is over is kept on this computer; a question with numbers comes before anything is deleted.

use askama::Template;
use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Redirect, Response};
use deskgate_store::Keep;

use super::door::Visitor;
use super::fields::Fields;
use super::frame::{Frame, Section};
use super::words::Count;
use super::{Pages, Trouble, settings};
use crate::local::{Amount, No, NoCode, Retention, ReviewRetention, SetRetention};

#[derive(Template)]
#[template(path = "retention.html")]
struct Question {
    frame: Frame,
    keep: Keep,
    kept: Retention,
}

/// One kind of what is kept: for how long now and then, how much there is, and how much of it goes.
struct Row {
    what: &'static str,
    now: u32,
    then: u32,
    amount: Option<Amount>,
}

impl Question {
    fn rows(&self) -> [Row; 4] {
        let (now, then, kept) = (&self.kept.keep, &self.keep, &self.kept);
        let row = |what, now, then, amount| Row { what, now, then, amount };
        [
            row("Ended runs in the built-in gateway", now.runs, then.runs, kept.runs),
            row("Conversations", now.conversations, then.conversations, Some(kept.conversations)),
            row("Answers in the journal", now.journal, then.journal, Some(kept.journal)),
            row("Lines of the agent's log", now.log, then.log, Some(kept.log)),
        ]
    }
}

/// What the form asks for, or one sentence for each field that is none.
fn keep(fields: &Fields) -> Result<Keep, No> {
    let mut wrong = Vec::new();
    let mut days = |name: &str| {
        let text = fields.get(name).trim();
        text.parse().unwrap_or_else(|_| {
            wrong.push(format!("{name}: {text:?} is no number of days"));
            Keep::MOST
        })
    };
    let keep = Keep {
        runs: days("keep-runs"),
        conversations: days("keep-conversations"),
        journal: days("keep-journal"),
        log: days("keep-log"),
    };
    if wrong.is_empty() { Ok(keep) } else { Err(No { code: NoCode::Invalid, message: wrong.join("\n") }) }
}

/// `GET /settings/retention`: what would go, before it does.
pub(super) async fn ask(
    State(pages): State<Pages>,
    visitor: Visitor,
    Query(fields): Query<Vec<(String, String)>>,
) -> Result<Response, Trouble> {
    let fields = Fields(fields);
    let reviewed = match keep(&fields) {
        Ok(keep) => pages.desk().ask(ReviewRetention { keep: Some(keep) }).await.map(|kept| (keep, kept)),
        Err(no) => Err(no),
    };
    match reviewed {
        Ok((keep, kept)) => {
            let frame = Frame::new(&pages, &visitor, Section::Settings, "Keep things for so long?").await;
            Ok(super::html(StatusCode::OK, &Question { frame, keep, kept }))
        }
        Err(no) => settings::again(&pages, &visitor, Some(&fields), no).await,
    }
}

/// `POST /settings/retention`
pub(super) async fn set(State(pages): State<Pages>, visitor: Visitor, fields: Fields) -> Result<Response, Trouble> {
    let set = match keep(&fields) {
        Ok(keep) => pages.desk().ask(SetRetention { keep }).await,
        Err(no) => Err(no),
    };
    match set {
        Ok(_) => Ok(Redirect::to("/settings?said=kept#retention").into_response()),
        Err(no) => settings::again(&pages, &visitor, Some(&fields), no).await,
    }
}
