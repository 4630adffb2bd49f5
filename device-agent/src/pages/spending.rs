//! What models used up in a month: on this computer, in each application and by each service, beside their budgets.

use std::collections::BTreeSet;

use askama::Template;
use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::response::Response;
use deskgate_definition::Service;
use deskgate_protocol::ids::ApplicationId;
use deskgate_protocol::management::{Application, ApplicationState, ListApplications};
use jiff::{Span, civil};
use serde::Deserialize;

use super::auth::Visitor;
use super::budget_bar::BudgetBar;
use super::frame::{Frame, Section};
use super::labels::NumberLabel;
use super::overview::Names;
use super::{PageError, Pages};
use crate::local::{BudgetScope, ListServices, MonthSpending, ShowSpending, Spending, this_month};

/// Which month is shown, and what was just done.
#[derive(Debug, Default, Deserialize)]
pub(super) struct SpendingQuery {
    month: Option<String>,
    #[serde(default)]
    said: String,
}

#[derive(Template)]
#[template(path = "spending.html")]
struct SpendingPage {
    frame: Frame,
    said: Option<&'static str>,
    /// The month in words.
    month: String,
    /// The month before, as the address has it.
    earlier: Option<String>,
    /// Whether it is the month that budgets hold for now.
    is_now: bool,
    runs: u64,
    total: Spending,
    rows: Vec<SpendingRow>,
}

/// What a service, or several together, used up.
struct SpendingRow {
    scope: BudgetScope,
    name: String,
    /// The page about it.
    page: Option<String>,
    runs: u64,
    spent: Spending,
    budget: Option<BudgetBar>,
}

impl SpendingRow {
    fn new(month: &MonthSpending, scope: BudgetScope, name: String, page: Option<String>) -> Self {
        let ((runs, spent), budget) = (month.of(scope), month.budget(scope).map(BudgetBar::of));
        Self { scope, name, page, runs, spent, budget }
    }

    /// The class by which it stands below what it belongs to.
    fn class(&self) -> &'static str {
        match self.scope {
            BudgetScope::Device => "device",
            BudgetScope::Application(_) => "application",
            BudgetScope::Service(_) => "service",
        }
    }

    /// Whether there is anything to say of it.
    fn says_something(&self) -> bool {
        self.runs > 0 || self.budget.is_some()
    }

    /// Whether it is a service that is not there any more. Of applications only the gateway knows that.
    fn is_gone(&self) -> bool {
        self.page.is_none() && matches!(self.scope, BudgetScope::Service(_))
    }

    fn cost(&self) -> String {
        if self.runs == 0 { "–".to_owned() } else { self.spent.cost_text() }
    }
}

/// The whole computer, then each application with its services: what cost most comes first. What can be called or has a
/// budget is there although it spent nothing. `listed`: the applications of the gateway, if it answered.
fn rows(month: &MonthSpending, services: &[Service], listed: Option<&[Application]>) -> Vec<SpendingRow> {
    let applications = listed.unwrap_or_default();
    let names = Names::of(services, applications);
    let row = |scope, page| SpendingRow::new(month, scope, names.of_scope(scope), page);
    let is_active = |app_id: ApplicationId| {
        let active = |app: &Application| app.app_id == app_id && app.state == ApplicationState::Active;
        listed.is_none_or(|listed| listed.iter().any(active))
    };
    let mut below = Vec::new();
    for app_id in owners(services, applications) {
        let application = row(BudgetScope::Application(app_id), Some(format!("/applications/{app_id}")));
        let mut own: Vec<_> = services
            .iter()
            .filter(|service| service.app_id == app_id)
            .filter_map(|service| {
                let scope = BudgetScope::Service(service.endpoint_id?);
                let row = row(scope, Some(format!("/services/{}", service.draft_id)));
                ((is_active(app_id) && service.published.is_some()) || row.says_something()).then_some(row)
            })
            .collect();
        if is_active(app_id) || application.says_something() || !own.is_empty() {
            sort(&mut own, |row| row);
            below.push((application, own));
        }
    }
    sort(&mut below, |(application, _)| application);
    let gone = gone(month, services, &below.iter().map(|(application, _)| application.scope).collect::<Vec<_>>());
    let device = row(BudgetScope::Device, None);
    let below = below.into_iter().flat_map(|(application, own)| std::iter::once(application).chain(own));
    std::iter::once(device).chain(below).chain(gone.into_iter().map(|scope| row(scope, None))).collect()
}

/// What spent something or has a budget, and is neither a service of today nor one of these applications.
fn gone(month: &MonthSpending, services: &[Service], applications: &[BudgetScope]) -> Vec<BudgetScope> {
    let spent = month.services.iter().map(|service| BudgetScope::Service(service.endpoint_id));
    let mut gone: Vec<_> = spent.chain(month.budgets.iter().map(|status| status.scope)).collect();
    let is_service =
        |scope| services.iter().any(|service| service.endpoint_id.map(BudgetScope::Service) == Some(scope));
    gone.retain(|scope| *scope != BudgetScope::Device && !applications.contains(scope) && !is_service(*scope));
    gone.sort_by_key(ToString::to_string);
    gone.dedup();
    gone
}

/// Every application that is listed or has services here.
fn owners(services: &[Service], applications: &[Application]) -> BTreeSet<ApplicationId> {
    applications.iter().map(|app| app.app_id).chain(services.iter().map(|service| service.app_id)).collect()
}

fn sort<T>(rows: &mut [T], row: impl Fn(&T) -> &SpendingRow) {
    rows.sort_by(|a, b| {
        let (a, b) = (row(a), row(b));
        let most = |row: &SpendingRow| (row.spent.cost, row.spent.tokens());
        most(b).cmp(&most(a)).then_with(|| a.name.cmp(&b.name))
    });
}

/// A month (`2026-11`) in words, and the month before.
pub(super) fn in_words(month: &str) -> (String, Option<String>) {
    let Ok(first) = format!("{month}-01").parse::<civil::Date>() else { return (month.to_owned(), None) };
    let before = first.checked_sub(Span::new().months(1)).ok();
    (first.strftime("%B %Y").to_string(), before.map(|before| before.strftime("%Y-%m").to_string()))
}

/// `GET /spending`
pub(super) async fn show(
    State(pages): State<Pages>,
    visitor: Visitor,
    Query(query): Query<SpendingQuery>,
) -> Result<Response, PageError> {
    let said = match query.said.as_str() {
        "set" => Some("The budget is saved. It holds from the next model call on."),
        "removed" => Some("The budget is removed."),
        _ => None,
    };
    let handler = pages.handler();
    let (frame, spending, services, applications) = tokio::join!(
        Frame::new(&pages, &visitor, Section::Spending, "Spending and budgets"),
        handler.request(ShowSpending { month: query.month }),
        handler.request(ListServices {}),
        handler.glance(ListApplications {}),
    );
    // Without the gateway, applications have no names.
    let (mut spending, services, applications) = (spending?, services?, applications.ok());
    let is_now = spending.month == this_month();
    if !is_now {
        // What the budgets of today would have been in another month says nothing.
        spending.budgets.clear();
    }
    let mut rows = rows(&spending, &services, applications.as_deref());
    rows.retain(|row| is_now || row.runs > 0 || row.scope == BudgetScope::Device);
    let (month, earlier) = in_words(&spending.month);
    let (runs, total) = spending.of(BudgetScope::Device);
    Ok(super::html(StatusCode::OK, &SpendingPage { frame, said, month, earlier, is_now, runs, total, rows }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_month_has_words_and_a_month_before_it() {
        assert_eq!(in_words("2026-01"), ("January 2026".to_owned(), Some("2025-12".to_owned())));
        assert_eq!(in_words("nonsense").1, None);
        assert_eq!(in_words("-9999-01").1, None);
    }
}
