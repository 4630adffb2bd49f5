//! Requests about what models used up.

pub use deskgate_definition::{Budget, BudgetLevel, BudgetScope, BudgetStatus};
use deskgate_protocol::ids::{EndpointId, RunId};
use deskgate_protocol::management::ShowApplication;
pub use deskgate_store::spending::{ServiceSpending, Spending, this_month};
use serde::{Deserialize, Serialize};

use super::error_reply::invalid;
use super::handler::RequestHandler;
use super::reply::{ErrorReply, ErrorReplyCode, Requester};
use super::request::TypedRequest;

/// Shows what the models of a run used up.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct ShowRunSpending {
    /// The run.
    pub run_id: RunId,
}

impl TypedRequest for ShowRunSpending {
    type Response = Option<Spending>;

    async fn answer(self, handler: &RequestHandler, _: Requester) -> Result<Option<Spending>, ErrorReply> {
        Ok(handler.store.run_spending(self.run_id).await?)
    }
}

/// Shows what the models of each service used up in a month.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ShowSpending {
    /// The month in this computer's time zone (`2026-11`); `None`: this one.
    pub month: Option<String>,
}

impl TypedRequest for ShowSpending {
    type Response = MonthSpending;

    async fn answer(self, handler: &RequestHandler, _: Requester) -> Result<MonthSpending, ErrorReply> {
        let month = self.month.unwrap_or_else(this_month);
        if !is_month(&month) {
            return Err(invalid(format!("{month:?} is no month; write it like 2026-11")));
        }
        let services = handler.store.month_spending(month.clone()).await?;
        let budgets = handler.store.budgets(month.clone()).await?;
        Ok(MonthSpending { month, services, budgets })
    }
}

/// Whether a text is a year and a month.
fn is_month(text: &str) -> bool {
    format!("{text}-01").parse::<jiff::civil::Date>().is_ok() && text.len() == 7
}

/// What models used up in a month.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct MonthSpending {
    /// The month (`2026-11`).
    pub month: String,
    /// Each service that called a model, the costliest first.
    pub services: Vec<ServiceSpending>,
    /// The budgets, with what was spent of each.
    pub budgets: Vec<BudgetStatus>,
}

/// Sets what models may use up in each month, in place of the budget before.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct SetBudget {
    /// What it holds for.
    pub scope: BudgetScope,
    /// The limits: one at least, and none of nothing.
    pub budget: Budget,
}

impl TypedRequest for SetBudget {
    type Response = ();

    async fn answer(self, handler: &RequestHandler, _: Requester) -> Result<(), ErrorReply> {
        if self.budget.is_unlimited() {
            let message = "a budget limits dollars, tokens or both; for no limit at all, remove it";
            return Err(invalid(message.to_owned()));
        }
        let nothing = self.budget.limits_of_nothing();
        if !nothing.is_empty() {
            let lines: Vec<_> = nothing.iter().map(|(limit, why)| format!("{limit}: {why}")).collect();
            return Err(invalid(lines.join("\n")));
        }
        exists(handler, self.scope).await?;
        handler.store.set_budget(self.scope, self.budget).await?;
        handler.check_again().await;
        Ok(())
    }
}

/// Removes the budget of each month, if there is one.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct RemoveBudget {
    /// What it holds for.
    pub scope: BudgetScope,
}

impl TypedRequest for RemoveBudget {
    type Response = ();

    async fn answer(self, handler: &RequestHandler, _: Requester) -> Result<(), ErrorReply> {
        handler.store.remove_budget(self.scope).await?;
        handler.check_again().await;
        Ok(())
    }
}

/// Whether there is what a budget would hold for. Only an application without services here needs its gateway for that.
async fn exists(handler: &RequestHandler, scope: BudgetScope) -> Result<(), ErrorReply> {
    let services = handler.store.services().list().await?;
    let is_service = |wanted: EndpointId| services.iter().any(|service| service.endpoint_id == Some(wanted));
    match scope {
        BudgetScope::Service(endpoint_id) if !is_service(endpoint_id) => Err(ErrorReply {
            code: ErrorReplyCode::NotFound,
            message: format!("there is no service {endpoint_id} on this computer"),
        }),
        BudgetScope::Application(app_id) if services.iter().all(|service| service.app_id != app_id) => {
            handler.manage(ShowApplication { app_id }).await?;
            Ok(())
        }
        _ => Ok(()),
    }
}

impl MonthSpending {
    /// What all services used up.
    pub fn total(&self) -> Spending {
        self.of(BudgetScope::Device).1
    }

    /// How many runs called a model, and what they used up, of the services that a budget holds for.
    pub fn of(&self, scope: BudgetScope) -> (u64, Spending) {
        let holds = |service: &&ServiceSpending| match scope {
            BudgetScope::Device => true,
            BudgetScope::Application(app_id) => service.app_id == Some(app_id),
            BudgetScope::Service(endpoint_id) => service.endpoint_id == endpoint_id,
        };
        let services = self.services.iter().filter(holds);
        services
            .fold((0, Spending::default()), |(runs, sum), service| (runs + service.runs, sum.plus(service.spending)))
    }

    /// The budget of exactly this scope.
    pub fn budget(&self, scope: BudgetScope) -> Option<&BudgetStatus> {
        self.budgets.iter().find(|status| status.scope == scope)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_month_is_a_year_and_a_month() {
        assert!(is_month("2026-11") && is_month(&this_month()));
        assert!(["2026-13", "2026", "2026-11-23", "11-2026", "", "2026-1"].iter().all(|text| !is_month(text)));
    }
}
