//! Requests about what models used up.

pub use deskgate_definition::{Budget, BudgetScope, BudgetStatus};
use deskgate_protocol::ids::RunId;
pub use deskgate_store::spending::{ServiceSpending, Spending};
use serde::{Deserialize, Serialize};

use super::handler::RequestHandler;
use super::reply::{ErrorReply, Requester};
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
        let month = self.month.unwrap_or_else(|| jiff::Zoned::now().strftime("%Y-%m").to_string());
        let services = handler.store.month_spending(month.clone()).await?;
        let budgets = handler.store.budgets(month.clone()).await?;
        Ok(MonthSpending { month, services, budgets })
    }
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

/// Sets what models may use up in a month; without limits, the budget is removed.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct SetBudget {
    /// What it holds for.
    pub scope: BudgetScope,
    /// The limit.
    pub budget: Budget,
}

impl TypedRequest for SetBudget {
    type Response = ();

    async fn answer(self, handler: &RequestHandler, _: Requester) -> Result<(), ErrorReply> {
        Ok(handler.store.set_budget(self.scope, self.budget).await?)
    }
}

impl MonthSpending {
    /// What all services used up.
    pub fn total(&self) -> Spending {
        self.services.iter().fold(Spending::default(), |sum, service| sum.plus(service.spending))
    }
}
