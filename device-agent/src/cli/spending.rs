//! `spending`: what models used up in a month.

use clap::Args;
use deskgate_program::exit::Failure;
use deskgate_program::output::Output;
use deskgate_program::records;
use deskgate_program::visible;

use super::socket::AgentClient;
use crate::local::{MonthSpending, ShowSpending, Spending};

/// Which month is shown.
#[derive(Debug, Args)]
pub(super) struct SpendingArgs {
    /// The month, such as 2026-11 [default: this one]
    #[arg(long, value_name = "YEAR-MONTH")]
    month: Option<String>,
}

pub(super) async fn run(agent: AgentClient, args: SpendingArgs, out: Output) -> Result<(), Failure> {
    let month = agent.request(ShowSpending { month: args.month }).await?;
    out.result("spending/1", &month, || list(&month));
    Ok(())
}

fn list(month: &MonthSpending) -> String {
    let nothing = format!("No model was called in {}.", month.month);
    let table = records::list(
        &month.services,
        &nothing,
        &["SERVICE", "RUNS", "READ", "FROM CACHE", "WRITTEN", "COST"],
        |service| {
            let name = service.service.as_deref().map_or_else(|| service.endpoint_id.to_string(), visible::line);
            let Spending { input_tokens, cached_input_tokens, output_tokens, .. } = service.spending;
            let numbers =
                [service.runs, input_tokens, cached_input_tokens, output_tokens].map(|number| number.to_string());
            std::iter::once(name).chain(numbers).chain([service.spending.cost_text()]).collect()
        },
    );
    if month.services.is_empty() {
        return table;
    }
    format!("{table}{} in all: {}\n", month.month, month.total())
}
