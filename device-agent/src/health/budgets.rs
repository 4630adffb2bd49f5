//! Budgets of the month that are used up, or of which four fifths are.

use deskgate_definition::{BudgetLevel, BudgetScope, BudgetStatus, Service};

use super::{Finding, ProblemCode};

/// The problems of budgets. Each is about its scope.
pub fn look(services: &[Service], budgets: &[BudgetStatus]) -> Vec<Finding> {
    budgets.iter().filter_map(|status| finding(services, status)).collect()
}

fn finding(services: &[Service], status: &BudgetStatus) -> Option<Finding> {
    let (percent, level) = status.level();
    let (code, what) = match level {
        BudgetLevel::Open => return None,
        BudgetLevel::NearlySpent => (ProblemCode::BudgetNearlySpent, "Runs go on until it is used up"),
        BudgetLevel::Reached => (ProblemCode::BudgetReached, "Runs fail until the month is over"),
    };
    let whose = match status.scope {
        BudgetScope::Device => "all services".to_owned(),
        BudgetScope::Application(app_id) => format!("the application {app_id}"),
        BudgetScope::Service(endpoint_id) => {
            let known = services.iter().find(|service| service.endpoint_id == Some(endpoint_id));
            known.map_or_else(|| endpoint_id.to_string(), |service| service.draft.name.clone())
        }
    };
    let text = format!("{percent} % of this month's budget of {whose} is spent: {}. {what}.", status.spent);
    let next = format!("See what spent it: deskgate spending. Double the budget: {}", doubling(status));
    Some(Finding::about(code, status.scope.to_string(), text, next))
}

/// The command that doubles what is nearly spent. A budget is set as a whole, so it has the other limit too.
fn doubling(status: &BudgetStatus) -> String {
    let scope = match status.scope {
        BudgetScope::Device => String::new(),
        // Identifiers: a name may be that of several, and may need quotes.
        BudgetScope::Application(app_id) => format!(" --app {app_id}"),
        BudgetScope::Service(endpoint_id) => format!(" --service {endpoint_id}"),
    };
    let budget = status.budget.doubled(&status.spent);
    let usd = budget.cost.map(|cost| format!(" --usd {}", cost.dollars())).unwrap_or_default();
    let tokens = budget.tokens.map(|tokens| format!(" --tokens {tokens}")).unwrap_or_default();
    format!("deskgate budget set{scope}{usd}{tokens}")
}

#[cfg(test)]
mod tests {
    use deskgate_definition::{Budget, MicroUsd, Spending};
    use deskgate_protocol::ids::EndpointId;

    use super::*;

    #[test]
    fn what_to_do_about_a_spent_budget_is_a_command_that_doubles_it_and_keeps_the_rest() {
        let spent = |tokens, cost| Spending { input_tokens: tokens, cost: MicroUsd(cost), ..Spending::default() };
        let budget = Budget { tokens: Some(1_000), cost: Some(MicroUsd(10_000_000)) };
        let of = |scope, spent| look(&[], &[BudgetStatus { scope, budget, spent }]);
        assert_eq!(of(BudgetScope::Device, spent(799, 0)), []);
        let found = of(BudgetScope::Device, spent(0, 8_500_000));
        assert_eq!((found[0].code, found[0].about.as_deref()), (ProblemCode::BudgetNearlySpent, Some("device")));
        assert!(found[0].next.ends_with(": deskgate budget set --usd 20 --tokens 1000"), "{}", found[0].next);
        let service = EndpointId::new();
        let found = of(BudgetScope::Service(service), spent(1_000, 12_500_000));
        assert_eq!(found[0].code, ProblemCode::BudgetReached);
        let command = format!(": deskgate budget set --service {service} --usd 20 --tokens 2000");
        assert!(found[0].next.ends_with(&command), "{}", found[0].next);
    }
}
