//! Records on both command lines: found by identifier or name, listed in a table, shown in detail.
//!
//! | module | what it shows |
//! |---|---|
//! | [`applications`] | what disabling one ends, and what it waits for |
//! | [`deliveries`] | deliveries, and one with its attempts |
//! | [`given`] | an identifier as it is typed: whole, or its end |
//! | [`tones`] | the colours of states |

pub mod applications;
pub mod deliveries;
pub mod given;
pub mod tones;

use std::fmt::Display;

use crate::exit::{Exit, Failure};
use crate::look::Cell;
use crate::output::table;
use crate::visible;

/// How many records a command names that was given none.
const MAX_CANDIDATES: usize = 20;

/// A kind of record, as commands name it.
#[derive(Clone, Copy, Debug)]
pub struct Noun {
    /// One of them, such as `application`.
    pub singular: &'static str,
    /// Several, such as `applications`.
    pub plural: &'static str,
    /// The command that lists them.
    pub list: &'static str,
}

impl Noun {
    /// The refusal of a command that names no record: what there is to choose from, by its name and identifier.
    pub fn ask_for_one(&self, command: &str, there: impl IntoIterator<Item = (String, String)>) -> Failure {
        let Self { singular, plural, list } = self;
        let mut there = there.into_iter();
        let shown: Vec<_> = there
            .by_ref()
            .take(MAX_CANDIDATES)
            .map(|(name, id)| format!("\n  {}  {id}", visible::line(&name)))
            .collect();
        let choice = match (shown.is_empty(), there.next()) {
            (true, _) => format!("There are no {plural}."),
            (false, None) => format!("There are:{}", shown.concat()),
            (false, Some(_)) => format!("There are, among others (see: {list}):{}", shown.concat()),
        };
        Failure::new(Exit::Usage, format!("which {singular}? Give its name or identifier: {command}\n{choice}"))
    }

    /// The one record that somebody names: by its whole identifier, by its name, or else by the end of its identifier.
    ///
    /// # Errors
    /// None or several are meant. The message names the command that lists them.
    pub fn named<T>(
        &self,
        wanted: &str,
        all: impl IntoIterator<Item = T>,
        name: impl Fn(&T) -> String,
        id: impl Fn(&T) -> String,
    ) -> Result<T, Failure> {
        let mut all: Vec<_> = all.into_iter().collect();
        let end = given::end_of_id(wanted).filter(|_| !all.iter().any(|record| name(record) == wanted));
        all.retain(|record| match end {
            Some(end) => id(record).ends_with(end),
            None => name(record) == wanted || id(record) == wanted,
        });
        self.only(wanted, all)
    }

    /// The one record of those that have the identifier or name `wanted`.
    ///
    /// # Errors
    /// None or several have it. The message names the command that lists them.
    pub fn only<T>(&self, wanted: &str, matching: impl IntoIterator<Item = T>) -> Result<T, Failure> {
        let Self { singular, plural, list } = self;
        let mut matching = matching.into_iter();
        match (matching.next(), matching.next()) {
            (Some(record), None) => Ok(record),
            (Some(_), Some(_)) => Err(Failure::new(
                Exit::Failed,
                format!("several {plural} are named {wanted:?}; use the identifier, see: {list}"),
            )),
            (None, _) => Err(Failure::new(Exit::Failed, format!("there is no {singular} {wanted:?}; see: {list}"))),
        }
    }
}

/// A table with one row for each item; `empty` if there is none.
pub fn list<T, C: Into<Cell>>(items: &[T], empty: &str, heading: &[&str], row: impl Fn(&T) -> Vec<C>) -> String {
    match items.is_empty() {
        true => empty.to_owned(),
        false => table(heading, items.iter().map(row).collect()),
    }
}

/// The hint below a page of a list: how to see the next one, if there is one.
pub fn older(next: Option<impl Display>) -> String {
    next.map(|next| format!("\nOlder ones: --before {next}")).unwrap_or_default()
}

/// A number of things, in words.
pub fn counted(count: u32, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}

/// One record in detail: its title, and a line for each field. Values are one line each, made visible.
#[derive(Debug)]
pub struct Detail {
    title: String,
    fields: Vec<(&'static str, String)>,
}

impl Detail {
    /// A record without fields.
    pub fn new(title: impl Display) -> Self {
        Self { title: visible::line(&title.to_string()), fields: Vec::new() }
    }

    /// Adds a field.
    #[must_use]
    pub fn field(mut self, name: &'static str, value: impl Display) -> Self {
        self.fields.push((name, visible::line(&value.to_string())));
        self
    }

    /// Adds a field for each value, or none.
    #[must_use]
    pub fn fields(self, name: &'static str, values: impl IntoIterator<Item = impl Display>) -> Self {
        values.into_iter().fold(self, |detail, value| detail.field(name, value))
    }

    /// The text, each value in the same column.
    pub fn text(&self) -> String {
        let width = self.fields.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
        let mut text = format!("{}\n", self.title);
        for (name, value) in &self.fields {
            text += &format!("{name:width$}  {value}\n");
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SERVICES: Noun = Noun { singular: "service", plural: "services", list: "deskgate service list" };

    #[test]
    fn one_is_found_and_none_and_several_are_refused_with_the_next_step() {
        assert_eq!(SERVICES.only("shop", [7]).expect("one"), 7);
        let none = SERVICES.only::<u8>("shop", []).expect_err("none");
        assert_eq!(none.message, "there is no service \"shop\"; see: deskgate service list");
        let several = SERVICES.only("shop", [7, 8, 9]).expect_err("several");
        assert!(several.message.starts_with("several services are named \"shop\"; use the identifier"));
    }

    #[test]
    fn fields_stand_in_columns_and_no_value_can_look_like_another_field() {
        let detail = Detail::new("a\nb").field("state", "on\nnote   all is well").fields("last seen", ["now"]);
        assert_eq!(detail.text(), "a<U+000A>b\nstate      on<U+000A>note   all is well\nlast seen  now\n");
    }
}
