//! Budgets: how much model calls may use up, in tokens and in money.

use std::fmt;
use std::str::FromStr;

use deskgate_protocol::ids::{ApplicationId, EndpointId};
use serde::{Deserialize, Serialize};

use crate::spending::{MicroUsd, Spending};

/// Less room than this for an answer, in tokens, is none.
const MIN_ANSWER_TOKENS: u64 = 256;
/// From here on a budget is nearly used up, in percent.
const NEARLY_SPENT_PERCENT: u64 = 80;
/// Why there is no limit of nothing.
const LIMIT_OF_NOTHING: &str = "a budget of nothing lets no run call a model; write more than 0, or leave it out";

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

    /// Reads a limit in tokens.
    ///
    /// # Errors
    /// It is no whole number, or nothing.
    pub fn read_tokens(text: &str) -> Result<u64, String> {
        match text.trim().parse() {
            Ok(0) => Err(LIMIT_OF_NOTHING.to_owned()),
            Ok(tokens) => Ok(tokens),
            Err(_) => Err("write tokens as a whole number, such as 5000000".to_owned()),
        }
    }

    /// Reads a limit in US dollars.
    ///
    /// # Errors
    /// It is no amount, or nothing.
    pub fn read_cost(text: &str) -> Result<MicroUsd, String> {
        text.parse().and_then(|cost: MicroUsd| match cost.0 {
            0 => Err(LIMIT_OF_NOTHING.to_owned()),
            _ => Ok(cost),
        })
    }

    /// Its limits of nothing, by the names of their options, each with what to write instead.
    pub fn limits_of_nothing(&self) -> Vec<(&'static str, &'static str)> {
        let nothing = [("usd", self.cost == Some(MicroUsd(0))), ("tokens", self.tokens == Some(0))];
        nothing.into_iter().filter(|(_, is)| *is).map(|(limit, _)| (limit, LIMIT_OF_NOTHING)).collect()
    }

    /// The budget with each limit that is nearly used up doubled, as often as it takes until it is not any more.
    pub fn doubled(&self, spent: &Spending) -> Self {
        let tokens = self.tokens.map(|most| doubled(spent.tokens(), most));
        let cost = self.cost.map(|most| MicroUsd(doubled(spent.cost.0, most.0)));
        Self { tokens, cost }
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
        let tokens = self.tokens.map(|most| percent(spent.tokens(), most));
        tokens.max(self.cost.map(|most| percent(spent.cost.0, most.0)))
    }
}

fn percent(spent: u64, most: u64) -> u64 {
    u64::try_from(u128::from(spent) * 100 / u128::from(most.max(1))).unwrap_or(u64::MAX)
}

fn doubled(spent: u64, most: u64) -> u64 {
    let mut most = most.max(1);
    while percent(spent, most) >= NEARLY_SPENT_PERCENT && most < u64::MAX {
        most = most.saturating_mul(2);
    }
    most
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

/// The identifier of what it holds for; `device` for all services.
impl fmt::Display for BudgetScope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Device => f.write_str("device"),
            Self::Application(app_id) => app_id.fmt(f),
            Self::Service(endpoint_id) => endpoint_id.fmt(f),
        }
    }
}

impl FromStr for BudgetScope {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let application = || text.parse().map(Self::Application).ok();
        let service = || text.parse().map(Self::Service).ok();
        let scope = if text == "device" { Some(Self::Device) } else { application().or_else(service) };
        scope.ok_or_else(|| format!("{text:?} is neither \"device\" nor an application nor a published service"))
    }
}

/// How far a budget is used up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BudgetLevel {
    /// There is much room.
    Open,
    /// Four fifths are spent.
    NearlySpent,
    /// All of it is spent.
    Reached,
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

impl BudgetStatus {
    /// How much of it is spent, in percent, and how far it is used up.
    pub fn level(&self) -> (u64, BudgetLevel) {
        let percent = self.budget.percent_spent(&self.spent).unwrap_or_default();
        let level = match percent {
            0..NEARLY_SPENT_PERCENT => BudgetLevel::Open,
            NEARLY_SPENT_PERCENT..100 => BudgetLevel::NearlySpent,
            _ => BudgetLevel::Reached,
        };
        (percent, level)
    }
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

    #[test]
    fn a_budget_is_nearly_spent_from_four_fifths_on_and_doubled_until_it_is_not() {
        let level = |tokens| {
            let budget = Budget { tokens: Some(1_000), cost: None };
            BudgetStatus { scope: BudgetScope::Device, budget, spent: spent(tokens, 0) }.level()
        };
        assert_eq!([799, 800, 999, 1_000].map(|tokens| level(tokens).1), {
            use BudgetLevel::*;
            [Open, NearlySpent, NearlySpent, Reached]
        });
        let budget = Budget { tokens: Some(1_000), cost: Some(MicroUsd(20_000_000)) };
        let doubled = |tokens, cost| budget.doubled(&spent(tokens, cost));
        assert_eq!(doubled(799, 0), budget, "what has room stays as it is");
        assert_eq!(doubled(1_003, 0), Budget { tokens: Some(2_000), ..budget });
        assert_eq!(doubled(0, 70_000_000), Budget { cost: Some(MicroUsd(160_000_000)), ..budget });
        assert_eq!(doubled(u64::MAX, 0).tokens, Some(u64::MAX));
    }

    #[test]
    fn a_limit_of_nothing_is_none_and_a_scope_is_read_as_it_is_written() {
        assert_eq!((Budget::read_tokens(" 7 "), Budget::read_cost("0.5")), (Ok(7), Ok(MicroUsd(500_000))));
        assert!(["0", "", "-1", "1.5", "many"].iter().all(|text| Budget::read_tokens(text).is_err()));
        assert!(["0", "0.00", "-0", "", "-1", "much"].iter().all(|text| Budget::read_cost(text).is_err()));
        let nothing = Budget { tokens: Some(0), cost: Some(MicroUsd(0)) };
        assert_eq!(nothing.limits_of_nothing().iter().map(|(limit, _)| *limit).collect::<Vec<_>>(), ["usd", "tokens"]);
        assert!(Budget { tokens: Some(1), cost: None }.limits_of_nothing().is_empty());
        let (application, service) = (ApplicationId::new(), EndpointId::new());
        for scope in [BudgetScope::Device, BudgetScope::Application(application), BudgetScope::Service(service)] {
            assert_eq!(scope.to_string().parse(), Ok(scope));
        }
        assert!("Device".parse::<BudgetScope>().is_err());
    }
}
