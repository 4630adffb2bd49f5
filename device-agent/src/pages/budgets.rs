//! The budget of a month: its form, and the question before it is removed.

use askama::Template;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Redirect, Response};
use deskgate_protocol::ids::DraftId;
use deskgate_protocol::management::ListApplications;

use super::auth::Visitor;
use super::budget_bar::BudgetBar;
use super::fields::FormFields;
use super::form_errors::{FieldAttributes, FormErrors, failed, without_secrets};
use super::frame::{Frame, Section};
use super::live::Topic;
use super::overview::Names;
use super::spending::in_words;
use super::{PageError, Pages};
use crate::local::{
    Budget, BudgetScope, ErrorReply, ErrorReplyCode, ListServices, RemoveBudget, SetBudget, ShowSpending, Spending,
};

/// The form's fields, by the names of their options on the command line.
const FIELDS: &[&str] = &["usd", "tokens"];

#[derive(Template)]
#[template(path = "budget.html")]
struct BudgetPage {
    frame: Frame,
    scope: BudgetScope,
    month: String,
    runs: u64,
    spent: Spending,
    /// The budget that is set.
    budget: Option<BudgetBar>,
    /// The other budgets that hold for it, with their names.
    others: Vec<(BudgetScope, String, BudgetBar)>,
    /// The service's draft, where a run's own budget is.
    draft: Option<DraftId>,
    fields: FormFields,
    wrong: FormErrors,
    /// Nothing is said here: a budget that was set leads to the list.
    said: Option<&'static str>,
}

impl BudgetPage {
    /// The page of a scope, with the budget that is set in its fields.
    async fn new(pages: &Pages, visitor: &Visitor, scope: BudgetScope) -> Result<Self, PageError> {
        let handler = pages.handler();
        let (spending, services, applications) = tokio::join!(
            handler.request(ShowSpending { month: None }),
            handler.request(ListServices {}),
            handler.glance(ListApplications {}),
        );
        let (spending, services, applications) = (spending?, services?, applications.unwrap_or_default());
        let service = services.iter().find(|service| service.endpoint_id.map(BudgetScope::Service) == Some(scope));
        let status = spending.budget(scope);
        let (runs, spent) = spending.of(scope);
        let is_known = match scope {
            BudgetScope::Device => true,
            BudgetScope::Application(app_id) => {
                applications.iter().any(|app| app.app_id == app_id)
                    || services.iter().any(|service| service.app_id == app_id)
            }
            BudgetScope::Service(_) => service.is_some(),
        };
        if !is_known && status.is_none() && runs == 0 {
            return Err(missing(&scope.to_string()));
        }
        let names = Names::of(&services, &applications);
        let above = service.map(|service| BudgetScope::Application(service.app_id));
        let above = above.into_iter().chain([BudgetScope::Device]).filter(|other| *other != scope);
        let others =
            above.filter_map(|other| Some((other, names.whose(other), BudgetBar::of(spending.budget(other)?))));
        let limits = status.map(|status| status.budget).unwrap_or_default();
        let field = |name: &str, value: Option<String>| (name.to_owned(), value.unwrap_or_default());
        let fields = FormFields(vec![
            field("usd", limits.cost.map(|cost| cost.dollars().to_string())),
            field("tokens", limits.tokens.map(|tokens| tokens.to_string())),
        ]);
        let title = format!("Budget of {}", names.whose(scope));
        Ok(Self {
            scope,
            month: in_words(&spending.month).0,
            runs,
            spent,
            budget: status.map(BudgetBar::of),
            others: others.collect(),
            draft: service.map(|service| service.draft_id),
            fields,
            wrong: FormErrors::default(),
            said: None,
            frame: Frame::new(pages, visitor, Section::Spending, title).await,
        })
    }

    fn label(field: &str) -> &'static str {
        match field {
            "usd" => "US dollars",
            _ => "Tokens",
        }
    }

    fn marks(&self, field: &'static str) -> FieldAttributes {
        FieldAttributes { field, wrong: self.error(field).is_some(), first: false }
    }

    fn error(&self, field: &str) -> Option<&str> {
        self.wrong.at(field)
    }
}

fn missing(scope: &str) -> PageError {
    let message = format!("There is no application or published service {scope} on this computer.");
    PageError(ErrorReply { code: ErrorReplyCode::NotFound, message })
}

fn scope(text: &str) -> Result<BudgetScope, PageError> {
    text.parse().map_err(|_| missing(text))
}

/// The limits in the form, or one sentence for each wrong field. An empty field limits nothing.
fn budget(fields: &FormFields) -> Result<Budget, ErrorReply> {
    let cost = fields.filled("usd").map(|text| Budget::read_cost(&text)).transpose();
    let tokens = fields.filled("tokens").map(|text| Budget::read_tokens(&text)).transpose();
    match (cost, tokens) {
        (Ok(cost), Ok(tokens)) => Ok(Budget { tokens, cost }),
        (cost, tokens) => {
            let wrong = [("usd", cost.err()), ("tokens", tokens.err())];
            let lines: Vec<_> =
                wrong.iter().filter_map(|(field, why)| Some(format!("{field}: {}", why.as_ref()?))).collect();
            Err(ErrorReply { code: ErrorReplyCode::Invalid, message: lines.join("\n") })
        }
    }
}

/// `GET /spending/{scope}`
pub(super) async fn show(
    State(pages): State<Pages>,
    visitor: Visitor,
    Path(text): Path<String>,
) -> Result<Response, PageError> {
    let page = BudgetPage::new(&pages, &visitor, scope(&text)?).await?;
    Ok(super::html(StatusCode::OK, &page))
}

/// `POST /spending/{scope}`
pub(super) async fn set(
    State(pages): State<Pages>,
    visitor: Visitor,
    Path(text): Path<String>,
    fields: FormFields,
) -> Result<Response, PageError> {
    let scope = scope(&text)?;
    let set = match budget(&fields) {
        Ok(budget) => pages.handler().request(SetBudget { scope, budget }).await,
        Err(no) => Err(no),
    };
    match set {
        Ok(()) => {
            pages.live().changed(Topic::Status);
            Ok(Redirect::to("/spending?said=set").into_response())
        }
        Err(no) => {
            let page = BudgetPage::new(&pages, &visitor, scope).await?;
            let (status, wrong) = failed(&no, FIELDS);
            Ok(super::html(status, &BudgetPage { fields: without_secrets(&fields), wrong, ..page }))
        }
    }
}

#[derive(Template)]
#[template(path = "budget-remove.html")]
struct RemoveQuestion {
    frame: Frame,
    scope: BudgetScope,
    whose: String,
    budget: BudgetBar,
}

/// `GET /spending/{scope}/remove`: the question before it.
pub(super) async fn ask_remove(
    State(pages): State<Pages>,
    visitor: Visitor,
    Path(text): Path<String>,
) -> Result<Response, PageError> {
    let scope = scope(&text)?;
    let (spending, names) = tokio::join!(pages.handler().request(ShowSpending { month: None }), Names::new(&pages));
    let none =
        || ErrorReply { code: ErrorReplyCode::NotFound, message: "There is no such budget any more.".to_owned() };
    let budget = BudgetBar::of(spending?.budget(scope).ok_or_else(none)?);
    let whose = names.whose(scope);
    let frame = Frame::new(&pages, &visitor, Section::Spending, format!("Remove the budget of {whose}?")).await;
    Ok(super::html(StatusCode::OK, &RemoveQuestion { frame, scope, whose, budget }))
}

/// `POST /spending/{scope}/remove`
pub(super) async fn remove(State(pages): State<Pages>, Path(text): Path<String>) -> Result<Redirect, PageError> {
    pages.handler().request(RemoveBudget { scope: scope(&text)? }).await?;
    pages.live().changed(Topic::Status);
    Ok(Redirect::to("/spending?said=removed"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_field_that_cannot_be_read_is_named_and_an_empty_one_limits_nothing() {
        let sent = |usd: &str, tokens: &str| {
            let pairs = [("usd", usd), ("tokens", tokens)];
            budget(&FormFields(pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec()))
        };
        assert_eq!(sent(" 2.5 ", "").expect("read"), Budget { tokens: None, cost: "2.5".parse().ok() });
        assert_eq!(sent("", " "), Ok(Budget::default()), "which the agent refuses");
        let wrong = FormErrors::new(&sent("much", "0").expect_err("nonsense").message, FIELDS);
        assert!(FIELDS.iter().all(|field| wrong.at(field).is_some()), "{wrong:?}");
    }
}
