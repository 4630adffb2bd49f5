//! The health page: problems as in `deskgate doctor`, the end of the log, and the support bundle.

use askama::Template;
use axum::extract::{Query, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Redirect, Response};
use deskgate_protocol::words::UnknownWord;
use serde::Deserialize;

use super::auth::Visitor;
use super::fields::FormFields;
use super::frame::{Frame, Section};
use super::labels::{Shape, TimeLabel};
use super::live::Topic;
use super::{PageError, Pages};
use crate::local::{
    Bundle, ErrorReply, ErrorReplyCode, GetHealth, GetLog, HealthProblem, HealthReport, IgnoreDuration, IgnoreProblem,
    MakeBundle, ProblemCode, Severity,
};

/// How many lines of the log are shown.
const LOG_LINES_SHOWN: u32 = 200;

/// The filter of the log.
#[derive(Debug, Default, Deserialize)]
pub(super) struct LogQuery {
    #[serde(default)]
    log: String,
}

#[derive(Template)]
#[template(path = "health.html")]
struct HealthPage {
    frame: Frame,
    report: HealthReport,
    filter: String,
    lines: Vec<String>,
}

impl HealthPage {
    /// The word beside the shape.
    fn word(problem: &HealthProblem) -> &'static str {
        match problem.severity {
            Severity::Fail => "Fails",
            Severity::Warn => "Warning",
        }
    }

    fn open(&self) -> Vec<&HealthProblem> {
        self.report.open().collect()
    }

    fn left_out(&self) -> Vec<&HealthProblem> {
        self.report.problems.iter().filter(|problem| problem.ignored).collect()
    }
}

/// `GET /health`
pub(super) async fn show(
    State(pages): State<Pages>,
    visitor: Visitor,
    Query(filter): Query<LogQuery>,
) -> Result<Response, PageError> {
    let handler = pages.handler();
    let report = handler.request(GetHealth { all: false }).await?;
    let lines = handler.request(GetLog { lines: LOG_LINES_SHOWN, filter: filter.log.clone() }).await?;
    let frame = Frame::new(&pages, &visitor, Section::Health, "Health").await;
    Ok(super::html(StatusCode::OK, &HealthPage { frame, report, filter: filter.log, lines }))
}

/// `POST /health`: makes every check, including the slow ones.
pub(super) async fn check_all(State(pages): State<Pages>) -> Result<Redirect, PageError> {
    pages.handler().request(GetHealth { all: true }).await?;
    pages.live().changed(Topic::Status);
    Ok(Redirect::to("/health"))
}

/// `POST /health/attention`: ignores a problem, or shows it again.
pub(super) async fn attend(State(pages): State<Pages>, fields: FormFields) -> Result<Redirect, PageError> {
    let wrong = |message: String| ErrorReply { code: ErrorReplyCode::Invalid, message };
    let code: ProblemCode = fields.get("code").parse().map_err(|why: UnknownWord| wrong(format!("code: {why}")))?;
    let ignore = match fields.get("ignore") {
        "day" => IgnoreDuration::Day,
        "yes" => IgnoreDuration::Yes,
        "no" => IgnoreDuration::No,
        other => return Err(wrong(format!("{other:?} is no way to ignore a problem")).into()),
    };
    pages.handler().request(IgnoreProblem { code, ignore }).await?;
    pages.live().changed(Topic::Status);
    Ok(Redirect::to("/health"))
}

#[derive(Template)]
#[template(path = "health-bundle.html")]
struct BundleQuestion {
    frame: Frame,
    bundle: Bundle,
}

/// `GET /health/bundle`: lists its contents.
pub(super) async fn ask_bundle(State(pages): State<Pages>, visitor: Visitor) -> Result<Response, PageError> {
    let bundle = pages.handler().request(MakeBundle {}).await?;
    let frame = Frame::new(&pages, &visitor, Section::Health, "Support bundle").await;
    Ok(super::html(StatusCode::OK, &BundleQuestion { frame, bundle }))
}

/// `POST /health/bundle`: returns the file.
pub(super) async fn bundle(State(pages): State<Pages>) -> Result<Response, PageError> {
    let bundle = pages.handler().request(MakeBundle {}).await?;
    let headers = [
        (header::CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8")),
        (header::CONTENT_DISPOSITION, HeaderValue::from_static("attachment; filename=\"deskgate-support.txt\"")),
    ];
    Ok((headers, bundle.text("Deskgate")).into_response())
}
