//! What model calls use up: tokens, and money in the currency in which vendors price.

use std::fmt;
use std::ops::{Add, AddAssign};
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// The largest amount that is read, in US dollars.
const MAX_DOLLARS: f64 = 1e9;

/// An amount in millionths of a US dollar.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct MicroUsd(pub u64);

impl MicroUsd {
    /// The amount of so many dollars, rounded up: nothing that costs is free. What is no amount is nothing.
    pub fn of_dollars(dollars: f64) -> Self {
        // A cast saturates, and makes nothing of what is no number.
        Self((dollars * 1e6).ceil().max(0.0) as u64)
    }

    /// The amount in dollars.
    pub fn dollars(self) -> f64 {
        self.0 as f64 / 1e6
    }
}

/// Reads an amount in dollars, such as `25` or `0.50`.
impl FromStr for MicroUsd {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.trim().parse() {
            // To the nearest millionth, so that an amount is read as it was shown; but what is more than nothing stays so.
            Ok(dollars) if (0.0..=MAX_DOLLARS).contains(&dollars) => {
                Ok(Self(((dollars * 1e6).round() as u64).max(u64::from(dollars > 0.0))))
            }
            _ => Err("write US dollars as a number, such as 25 or 0.50".to_owned()),
        }
    }
}

impl Add for MicroUsd {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

impl AddAssign for MicroUsd {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

/// With cents; amounts below a dollar with a hundredth of a cent.
impl fmt::Display for MicroUsd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = if self.0 < 1_000_000 { 4 } else { 2 };
        write!(f, "${:.digits$}", self.dollars())
    }
}

/// What some model calls used up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spending {
    /// Tokens that models read, from a cache or not.
    pub input_tokens: u64,
    /// Those of them that came from a cache.
    pub cached_input_tokens: u64,
    /// Tokens that models wrote.
    pub output_tokens: u64,
    /// What they cost, as far as prices are known.
    pub cost: MicroUsd,
    /// The calls whose price is not known.
    pub unpriced_calls: u64,
}

impl Spending {
    /// All tokens, read and written.
    pub fn tokens(&self) -> u64 {
        self.input_tokens.saturating_add(self.output_tokens)
    }

    /// The sum of both.
    pub fn plus(self, other: Self) -> Self {
        Self {
            input_tokens: self.input_tokens + other.input_tokens,
            cached_input_tokens: self.cached_input_tokens + other.cached_input_tokens,
            output_tokens: self.output_tokens + other.output_tokens,
            cost: self.cost + other.cost,
            unpriced_calls: self.unpriced_calls + other.unpriced_calls,
        }
    }
}

impl Spending {
    /// What was used up in money, and what of it is not known.
    pub fn cost_text(&self) -> String {
        match (self.cost.0, self.unpriced_calls) {
            (_, 0) => self.cost.to_string(),
            (0, _) => "price not known".to_owned(),
            (_, calls) => format!("{} and {calls} calls whose price is not known", self.cost),
        }
    }
}

/// Tokens and money, in one line.
impl fmt::Display for Spending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { input_tokens, cached_input_tokens, output_tokens, .. } = self;
        let cost = self.cost_text();
        write!(f, "{input_tokens} tokens read ({cached_input_tokens} from a cache), {output_tokens} written; {cost}")
    }
}

deskgate_protocol::words! {
    /// Who is told what a run cost.
    #[derive(Default)]
    pub enum CostShownTo {
        /// The owner of the device.
        #[default]
        Owner = "owner",
        /// Callers too, in a run's usage.
        Callers = "callers",
    }
}

impl CostShownTo {
    /// Whether it is left as it is by default.
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_are_read_written_and_never_overflow() {
        assert_eq!(MicroUsd::of_dollars(4.2).to_string(), "$4.20");
        assert_eq!(MicroUsd::of_dollars(0.0042).to_string(), "$0.0042");
        assert_eq!(MicroUsd::of_dollars(0.000_000_1), MicroUsd(1));
        assert_eq!([f64::NAN, -1.0, 0.0].map(MicroUsd::of_dollars), [MicroUsd(0); 3]);
        assert_eq!(MicroUsd::of_dollars(f64::INFINITY) + MicroUsd(1), MicroUsd(u64::MAX));
        assert_eq!(MicroUsd(2_500_000).dollars(), 2.5);
        let read = |text: &str| text.parse::<MicroUsd>().ok().map(|amount| amount.0);
        assert_eq!(["25", " 0.50", "1e3", "0"].map(read), [25_000_000, 500_000, 1_000_000_000, 0].map(Some));
        assert!(["-1", "nan", "inf", "$5", "", "1e10"].iter().all(|text| read(text).is_none()));
        assert_eq!(read("0.0000000001"), Some(1), "it is not nothing");
        for amount in (0..200_000).chain([19_990_000, 999_999_999_999_999]) {
            assert_eq!(read(&MicroUsd(amount).dollars().to_string()), Some(amount), "as it was shown");
        }
    }

    #[test]
    fn a_cost_says_what_it_leaves_out() {
        let cost = |cost, unpriced_calls| Spending { cost: MicroUsd(cost), unpriced_calls, ..Spending::default() };
        assert_eq!(cost(1_500_000, 0).cost_text(), "$1.50");
        assert_eq!(cost(0, 3).cost_text(), "price not known");
        assert!(cost(1_500_000, 3).to_string().ends_with("$1.50 and 3 calls whose price is not known"));
    }
}
