//! The pages under `/problems/`, to which a problem document's `type` leads.

use askama::Template;
use axum::extract::Path;
use axum::extract::rejection::PathRejection;
use axum::response::Response;
use deskgate_protocol::VERSION;

use super::super::error::Error;
use super::super::html::{self, Text};
use super::{Code, ProblemFacts, RetryAdvice};

/// A code's values for a template.
struct ProblemView {
    code: &'static str,
    facts: &'static ProblemFacts,
}

impl ProblemView {
    fn of(code: Code) -> Self {
        Self { code: code.as_str(), facts: code.facts() }
    }

    fn retry(&self) -> String {
        match self.facts.retry {
            RetryAdvice::No => "The same request would be refused again.".to_owned(),
            RetryAdvice::Yes => "The same request may succeed later.".to_owned(),
            RetryAdvice::After(seconds) => {
                format!("The same request may succeed later; `Retry-After` says when, usually {seconds} s.")
            }
        }
    }
}

#[derive(Template)]
#[template(path = "problem.html")]
struct ProblemPage {
    problem: ProblemView,
}

#[derive(Template)]
#[template(path = "problems.html")]
struct ProblemIndex {
    problems: Vec<ProblemView>,
}

/// `GET /problems/{code}`.
pub(in crate::http) async fn page(code: Result<Path<String>, PathRejection>) -> Result<Response, Error> {
    let code = code.ok().and_then(|Path(text)| Code::find(&text)).ok_or_else(Error::not_found)?;
    html::answer(&ProblemPage { problem: ProblemView::of(code) })
}

/// `GET /problems`: all of them.
pub(in crate::http) async fn index() -> Result<Response, Error> {
    html::answer(&ProblemIndex { problems: Code::ALL.iter().copied().map(ProblemView::of).collect() })
}
