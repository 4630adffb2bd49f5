//! Conditions in a part of the Common Expression Language (<https://cel.dev>) that can be bounded.
//!
//! | file | what it does |
//! |---|---|
//! | `token` | text to tokens |
//! | `parse` | tokens to an expression, of bounded size and depth |
//! | `eval` | an expression to a value, in a bounded number of steps |
//! | `value` | what can be compared, and how |
//!
//! Supported: `payload`, `event.id`, `event.type`; fields and indices; lists in brackets; numbers, texts, `true`,
//! `false`, `null`; `&&` `||` `!` `?:` `==` `!=` `<` `<=` `>` `>=` `in` `+` `-` `*` `/` `%`; `has(…)`, `size(…)`,
//! `startsWith`, `endsWith`, `contains`; and the macros `exists`, `all`, `exists_one`. Missing: maps and messages,
//! bytes, timestamps, regular expressions, joining texts and lists, `map` and `filter`. The meaning is that of CEL,
//! except that numbers of both kinds may be mixed.
//!
//! The libraries for the whole language have no budget for steps and memory, and the parser of the one for this
//! language takes more than two gigabytes for some texts of 125 bytes (cel-rust, issue 306).

mod eval;
mod parse;
mod token;
mod value;

use super::WebhookEvent;
use parse::Node;

/// Bytes of a condition.
const MAX_CONDITION_BYTES: usize = 2048;

/// A parsed condition.
#[derive(Clone, Debug)]
pub struct Condition(Node);

/// Why a text is not a condition.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("it cannot be read at character {at}: {why}")]
pub struct InvalidCondition {
    /// The position, counted from 1.
    at: usize,
    why: String,
}

/// Why a condition has no result for an event.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EvalError {
    /// A field is missing.
    #[error("there is no {0:?}; ask with has(…) first")]
    NoField(String),
    /// An index is out of range.
    #[error("there is no such index")]
    NoIndex,
    /// The values' kinds do not have this operation.
    #[error("{0} cannot be done with these values")]
    NoSuch(&'static str),
    /// A number that is too large, or a division by zero.
    #[error("a number is out of range")]
    Range,
    /// The result is neither true nor false.
    #[error("the condition is neither true nor false")]
    NoBoolean,
    /// It took too many steps.
    #[error("the condition takes too many steps for this payload")]
    TooMuch,
}

impl Condition {
    /// Parses a condition.
    ///
    /// # Errors
    /// See [`InvalidCondition`].
    pub fn parse(text: &str) -> Result<Self, InvalidCondition> {
        if text.len() > MAX_CONDITION_BYTES {
            return Err(InvalidCondition {
                at: MAX_CONDITION_BYTES,
                why: format!("it is longer than {MAX_CONDITION_BYTES} bytes"),
            });
        }
        parse::parse(token::tokens(text)?).map(Self)
    }

    /// Whether it holds for an event.
    ///
    /// # Errors
    /// See [`EvalError`].
    pub fn holds(&self, event: &WebhookEvent) -> Result<bool, EvalError> {
        eval::eval(&self.0, event)
    }
}

#[cfg(test)]
mod tests;
