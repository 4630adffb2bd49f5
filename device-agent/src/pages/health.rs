//! What is wrong and what to do, as `deskgate doctor` says it; the end of the log; the support bundle.

use askama::Template;
use axum::extract::{Query, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Redirect, Response};
use serde::Deserialize;

use super::door::Visitor;
use super::fields::Fields;
use super::frame::{Frame, Section};
use super::live::Topic;
use super::words::{Shape, When};
use super::{Pages, Trouble};
use crate::local::{
    Bundle, Code, GetHealth, GetLog, HealthReport, Ignore, IgnoreProblem, MakeBundle, No, NoCode, Problem, Severity,
};

/// Lines of the log that are shown.
const LINES: u32 = 200;

/// What of the log is shown.
#[derive(Debug, Default, Deserialize)]
pub(super) struct Filter {
    #[serde(default)]
    log: String,
}

#[derive(Template)]
#[template(path = "health.html")]
struct Health {
    frame: Frame,
    report: HealthReport,
    filter: String,
    lines: Vec<String>,
}

impl Health {
    fn shape(problem: &Problem) -> Shape {
        match problem.severity {
            Severity::Fail => Shape::Bad,
            Severity::Warn => Shape::Waiting,
        }
    }

    /// The word beside the shape.
    fn word(problem: &Problem) -> &'static str {
        match problem.severity {
            Severity::Fail => "Fails",
            Severity::Warn => "Warning",
        }
    }

    fn open(&self) -> Vec<&Problem> {
        self.report.open().collect()
    }

    fn left_out(&self) -> Vec<&Problem> {
        self.report.problems.iter().filter(|problem| problem.ignored).collect()
    }
}

/// `GET /health`
pub(super) async fn show(
    State(pages): State<Pages>,
    visitor: Visitor,
    Query(filter): Query<Filter>,
) -> Result<Response, Trouble> {
    let desk = pages.desk();
    let report = desk.ask(GetHealth { all: false }).await?;
    let lines = desk.ask(GetLog { lines: LINES, filter: filter.log.clone() }).await?;
    let frame = Frame::new(&pages, &visitor, Section::Health, "Health").await;
    Ok(super::html(StatusCode::OK, &Health { frame, report, filter: filter.log, lines }))
}

/// `POST /health`: every check, those too that take long.
pub(super) async fn check_all(State(pages): State<Pages>) -> Result<Redirect, Trouble> {
    pages.desk().ask(GetHealth { all: true }).await?;
    pages.live().changed(Topic::Status);
    Ok(Redirect::to("/health"))
}

/// `POST /health/attention`: hear of a problem, or not.
pub(super) async fn attend(State(pages): State<Pages>, fields: Fields) -> Result<Redirect, Trouble> {
    let wrong = |message: String| No { code: NoCode::Invalid, message };
    let code: Code = fields.get("code").parse().map_err(wrong)?;
    let ignore = match fields.get("ignore") {
        "day" => Ignore::Day,
        "yes" => Ignore::Yes,
        "no" => Ignore::No,
        other => return Err(wrong(format!("{other:?} is no way to ignore a problem")).into()),
    };
    pages.desk().ask(IgnoreProblem { code, ignore }).await?;
    pages.live().changed(Topic::Status);
    Ok(Redirect::to("/health"))
}

#[derive(Template)]
#[template(path = "health-bundle.html")]
struct Question {
    frame: Frame,
    bundle: Bundle,
}

/// `GET /health/bundle`: what would be in it.
pub(super) async fn ask_bundle(State(pages): State<Pages>, visitor: Visitor) -> Result<Response, Trouble> {
    let bundle = pages.desk().ask(MakeBundle {}).await?;
    let frame = Frame::new(&pages, &visitor, Section::Health, "Support bundle").await;
    Ok(super::html(StatusCode::OK, &Question { frame, bundle }))
}

/// `POST /health/bundle`: the file.
pub(super) async fn bundle(State(pages): State<Pages>) -> Result<Response, Trouble> {
    let bundle = pages.desk().ask(MakeBundle {}).await?;
    let headers = [
        (header::CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8")),
        (header::CONTENT_DISPOSITION, HeaderValue::from_static("attachment; filename=\"deskgate-support.txt\"")),
    ];
    Ok((headers, bundle.text("Deskgate")).into_response())
}
