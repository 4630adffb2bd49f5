//! A budget as the pages show it: its limits, and how much of it is used, as a bar with words.

use deskgate_definition::BudgetLevel;

use super::labels::{NumberLabel, Shape};
use crate::local::BudgetStatus;

/// A month's budget, and how much of it is used.
pub(super) struct BudgetBar {
    /// Its limits.
    pub(super) limits: String,
    /// What is spent of each.
    pub(super) spent: String,
    percent: u64,
    level: BudgetLevel,
}

impl BudgetBar {
    pub(super) fn of(status: &BudgetStatus) -> Self {
        let BudgetStatus { budget, spent, .. } = status;
        let both = |cost: Option<String>, tokens: Option<String>, between: &str| {
            cost.into_iter().chain(tokens).collect::<Vec<_>>().join(between)
        };
        let limits = both(
            budget.cost.map(|most| most.to_string()),
            budget.tokens.map(|most| format!("{} tokens", NumberLabel(most))),
            " and ",
        );
        let spent = both(
            budget.cost.map(|most| format!("{} of {most}", spent.cost)),
            budget.tokens.map(|most| format!("{} of {} tokens", NumberLabel(spent.tokens()), NumberLabel(most))),
            ", ",
        );
        let (percent, level) = status.level();
        Self { limits, spent, percent, level }
    }

    pub(super) fn shape(&self) -> Shape {
        match self.level {
            BudgetLevel::Open => Shape::Good,
            BudgetLevel::NearlySpent => Shape::Paused,
            BudgetLevel::Reached => Shape::Bad,
        }
    }

    /// The length of the bar, of 100.
    pub(super) fn length(&self) -> u64 {
        self.percent.min(100)
    }

    pub(super) fn words(&self) -> String {
        let percent = self.percent;
        match self.level {
            BudgetLevel::Open => format!("{percent} % used"),
            BudgetLevel::NearlySpent => format!("{percent} % used, nearly all"),
            BudgetLevel::Reached if percent > 100 => format!("used up, {percent} %"),
            BudgetLevel::Reached => "used up".to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use deskgate_definition::{Budget, BudgetScope, MicroUsd, Spending};

    use super::*;

    #[test]
    fn a_bar_says_in_words_how_much_is_used_and_is_never_too_long() {
        let bar = |cost| {
            let spent = Spending { input_tokens: 1_500, cost: MicroUsd(cost), ..Spending::default() };
            let budget = Budget { tokens: Some(5_000_000), cost: Some(MicroUsd(20_000_000)) };
            BudgetBar::of(&BudgetStatus { scope: BudgetScope::Device, budget, spent })
        };
        assert_eq!(bar(17_000_000).limits, "$20.00 and 5,000,000 tokens");
        assert_eq!(bar(17_000_000).spent, "$17.00 of $20.00, 1,500 of 5,000,000 tokens");
        assert_eq!(
            [1, 17, 20, 50].map(|usd| bar(usd * 1_000_000).words()),
            ["5 % used", "85 % used, nearly all", "used up", "used up, 250 %"]
        );
        assert_eq!((bar(50_000_000).length(), bar(50_000_000).shape()), (100, Shape::Bad));
    }
}
