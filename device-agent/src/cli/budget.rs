//! `budget`: how much models may use up in a month.

use clap::{Args, Subcommand};
use deskgate_definition::MicroUsd;
use deskgate_program::exit::Failure;
use deskgate_program::output::Output;
use deskgate_program::{records, visible};
use deskgate_protocol::management::ListApplications;

use super::socket::AgentClient;
use super::{app, service};
use crate::local::{Budget, BudgetScope, BudgetStatus, ListServices, RemoveBudget, SetBudget, ShowSpending};

#[derive(Debug, Subcommand)]
pub(super) enum BudgetCommand {
    /// Show the budgets of each month, and what is spent of them in this one
    List,
    /// Set how much models may use up in each month; takes the place of the budget before
    Set {
        #[command(flatten)]
        scope: ScopeArgs,
        #[command(flatten)]
        limits: LimitArgs,
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

/// How much, in tokens, dollars or both.
#[derive(Debug, Args)]
#[group(required = true, multiple = true)]
pub(super) struct LimitArgs {
    /// Tokens that models may read and write
    #[arg(long, value_parser = Budget::read_tokens)]
    tokens: Option<u64>,
    /// US dollars that their calls may cost, such as 25 or 0.50
    #[arg(long, value_name = "AMOUNT", value_parser = Budget::read_cost)]
    usd: Option<MicroUsd>,
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
        BudgetCommand::Set { scope, limits: LimitArgs { tokens, usd } } => {
            let scope = scope.find(&agent).await?;
            agent.request(SetBudget { scope, budget: Budget { tokens, cost: usd } }).await?;
        }
        BudgetCommand::Remove { scope } => {
            let scope = scope.find(&agent).await?;
            agent.request(RemoveBudget { scope }).await?;
        }
    }
    list(&agent, out).await
}

async fn list(agent: &AgentClient, out: Output) -> Result<(), Failure> {
    let month = agent.request(ShowSpending { month: None }).await?;
    let services = agent.request(ListServices {}).await?;
    // Names only: without the gateway, budgets have their applications' identifiers.
    let applications = agent.glance(ListApplications {}).await.unwrap_or_default();
    let name = |status: &BudgetStatus| match status.scope {
        BudgetScope::Device => "all services".to_owned(),
        BudgetScope::Application(app_id) => {
            let known = applications.iter().find(|application| application.app_id == app_id);
            format!("application {}", known.map_or_else(|| app_id.to_string(), |known| visible::line(&known.name)))
        }
        BudgetScope::Service(endpoint_id) => {
            let known = services.iter().find(|service| service.endpoint_id == Some(endpoint_id));
            known.map_or_else(|| format!("service {endpoint_id}"), |service| visible::line(&service.draft.name))
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
