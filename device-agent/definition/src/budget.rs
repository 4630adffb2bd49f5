//! Budgets: how much model calls may use up, in tokens and in money.

use deskgate_protocol::ids::{ApplicationId, EndpointId};
use serde::{Deserialize, Serialize};

use crate::spending::{MicroUsd, Spending};

/// Less room than this for an answer, in tokens, is none.
const MIN_ANSWER_TOKENS: u64 = 256;

/// An upper limit; what is absent is unlimited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Budget {
    /// Tokens that models may read and write.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokens: Option<u64>,
    /// What the calls may cost. Calls whose price is not known cost nothing here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost: Option<MicroUsd>,
}

/// What the next call will use up at least.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ExpectedCall {
    /// Tokens that it reads.
    pub input_tokens: u64,
    /// What reading them costs, as far as known.
    pub input_cost: MicroUsd,
    /// The price of a token that it writes, in millionths of a US dollar, if known.
    pub output_price: Option<f64>,
}

impl Budget {
    /// Whether nothing is limited.
    pub fn is_unlimited(&self) -> bool {
        *self == Self::default()
    }

    /// How many tokens a call may write after so much was spent; `None`: the call would exceed the budget.
    pub fn room(&self, spent: &Spending, call: &ExpectedCall) -> Option<u64> {
        let by_tokens = match self.tokens {
            None => u64::MAX,
            Some(most) => most.checked_sub(spent.tokens())?.checked_sub(call.input_tokens)?,
        };
        let by_cost = match self.cost {
            None => u64::MAX,
            Some(most) => {
                let left = most.0.checked_sub(spent.cost.0)?.checked_sub(call.input_cost.0)?;
                match call.output_price.filter(|price| *price > 0.0) {
                    // A cast saturates.
                    Some(price) => (left as f64 / price) as u64,
                    None => u64::MAX,
                }
            }
        };
        Some(by_tokens.min(by_cost)).filter(|room| *room >= MIN_ANSWER_TOKENS)
    }

    /// How much of it is spent, in percent of the part of which most is spent; `None`: it is unlimited.
    pub fn percent_spent(&self, spent: &Spending) -> Option<u64> {
        let part = |spent: u64, most: u64| (u128::from(spent) * 100 / u128::from(most.max(1))) as u64;
        let tokens = self.tokens.map(|most| part(spent.tokens(), most));
        tokens.max(self.cost.map(|most| part(spent.cost.0, most.0)))
    }
}

/// What a month's budget holds for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BudgetScope {
    /// All services of this device.
    Device,
    /// All services of an application.
    Application(ApplicationId),
    /// One service.
    Service(EndpointId),
}

/// A month's budget, and what is spent of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BudgetStatus {
    /// What it holds for.
    pub scope: BudgetScope,
    /// The limit.
    pub budget: Budget,
    /// What was spent in the month.
    pub spent: Spending,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spent(tokens: u64, cost: u64) -> Spending {
        Spending { input_tokens: tokens, cost: MicroUsd(cost), ..Spending::default() }
    }

    #[test]
    fn a_call_may_write_what_the_scarcer_part_leaves() {
        let call = ExpectedCall { input_tokens: 1_000, input_cost: MicroUsd(2_000), output_price: Some(10.0) };
        let tokens = Budget { tokens: Some(10_000), cost: None };
        assert_eq!(tokens.room(&spent(4_000, 0), &call), Some(5_000));
        assert_eq!(tokens.room(&spent(8_744, 0), &call), Some(256));
        for used in [8_745, 9_500, 20_000] {
            assert_eq!(tokens.room(&spent(used, 0), &call), None, "{used}");
        }
        let cost = Budget { tokens: None, cost: Some(MicroUsd(100_000)) };
        assert_eq!(cost.room(&spent(0, 48_000), &call), Some(5_000));
        assert_eq!(cost.room(&spent(0, 99_000), &call), None);
        let both = Budget { tokens: Some(10_000), ..cost };
        assert_eq!(both.room(&spent(4_000, 90_000), &call), Some(800));
        // Without a price money cannot be counted.
        let unpriced = ExpectedCall { input_cost: MicroUsd(0), output_price: None, ..call };
        assert_eq!(cost.room(&spent(0, 99_000), &unpriced), Some(u64::MAX));
        assert_eq!(Budget::default().room(&spent(u64::MAX, u64::MAX), &call), Some(u64::MAX));
    }

    #[test]
    fn the_part_of_which_most_is_spent_counts() {
        let budget = Budget { tokens: Some(1_000), cost: Some(MicroUsd(100)) };
        assert_eq!(budget.percent_spent(&spent(100, 85)), Some(85));
        assert_eq!(budget.percent_spent(&spent(2_000, 0)), Some(200));
        assert_eq!(Budget::default().percent_spent(&spent(1, 1)), None);
        assert_eq!(Budget { tokens: Some(0), cost: None }.percent_spent(&spent(1, 0)), Some(100));
    }
}
