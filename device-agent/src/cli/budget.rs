//! `budget`: how much models may use up in a month.

use clap::{Args, Subcommand};
use deskgate_definition::MicroUsd;
use deskgate_program::exit::{Exit, Failure};
use deskgate_program::output::Output;
use deskgate_program::records;

use super::socket::AgentClient;
use super::{app, service};
use crate::local::{Budget, BudgetScope, BudgetStatus, ListServices, SetBudget, ShowSpending};

#[derive(Debug, Subcommand)]
pub(super) enum BudgetCommand {
    /// Show the budgets of each month, and what is spent of them in this one
    List,
    /// Set how much models may use up in each month; takes the place of the budget before
    Set {
        #[command(flatten)]
        scope: ScopeArgs,
        /// Tokens that models may read and write
        #[arg(long, required_unless_present = "usd")]
        tokens: Option<u64>,
        /// US dollars that their calls may cost, such as 25 or 0.50
        #[arg(long, value_name = "AMOUNT")]
        usd: Option<MicroUsd>,
    },
    /// Remove a budget
    Remove {
        #[command(flatten)]
        scope: ScopeArgs,
    },
}

/// What a budget holds for; without any, all services of this device.
#[derive(Debug, Args)]
pub(super) struct ScopeArgs {
    /// Only this published service
    #[arg(long, conflicts_with = "app")]
    service: Option<String>,
    /// Only the services of this application
    #[arg(long)]
    app: Option<String>,
}

impl ScopeArgs {
    async fn find(&self, agent: &AgentClient) -> Result<BudgetScope, Failure> {
        Ok(match (&self.service, &self.app) {
            (Some(wanted), _) => BudgetScope::Service(service::endpoint_of(agent, wanted).await?),
            (None, Some(wanted)) => BudgetScope::Application(app::find(agent, wanted).await?),
            (None, None) => BudgetScope::Device,
        })
    }
}

pub(super) async fn run(agent: AgentClient, command: BudgetCommand, out: Output) -> Result<(), Failure> {
    match command {
        BudgetCommand::List => {}
        BudgetCommand::Set { scope, tokens, usd } => {
            if tokens == Some(0) {
                return Err(Failure::new(
                    Exit::Usage,
                    "a budget of no tokens lets nothing run; pause the service instead",
                ));
            }
            let scope = scope.find(&agent).await?;
            agent.request(SetBudget { scope, budget: Budget { tokens, cost: usd } }).await?;
        }
        BudgetCommand::Remove { scope } => {
            let scope = scope.find(&agent).await?;
            agent.request(SetBudget { scope, budget: Budget::default() }).await?;
        }
    }
    list(&agent, out).await
}

async fn list(agent: &AgentClient, out: Output) -> Result<(), Failure> {
    let month = agent.request(ShowSpending { month: None }).await?;
    let services = agent.request(ListServices {}).await?;
    let name = |status: &BudgetStatus| match status.scope {
        BudgetScope::Device => "all services".to_owned(),
        BudgetScope::Application(app_id) => format!("application {app_id}"),
        BudgetScope::Service(endpoint_id) => {
            let known = services.iter().find(|service| service.endpoint_id == Some(endpoint_id));
            known.map_or_else(|| format!("service {endpoint_id}"), |service| service.draft.name.clone())
        }
    };
    let shown = serde_json::json!({ "month": month.month, "budgets": month.budgets });
    out.result("budgets/1", &shown, || {
        records::list(
            &month.budgets,
            "No budget is set: models may use up as much as runs need.",
            &["FOR", "TOKENS", "SPENT", "DOLLARS", "SPENT", "OF IT"],
            |status| {
                let BudgetStatus { budget, spent, .. } = status;
                let or_dash = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
                vec![
                    name(status),
                    or_dash(budget.tokens.map(|most| most.to_string())),
                    spent.tokens().to_string(),
                    or_dash(budget.cost.map(|most| most.to_string())),
                    spent.cost_text(),
                    or_dash(budget.percent_spent(spent).map(|percent| format!("{percent} %"))),
                ]
            },
        )
    });
    Ok(())
}
