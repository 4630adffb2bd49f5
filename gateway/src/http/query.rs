//! The parameters of a query string: known ones, each at most once.

use std::collections::BTreeMap;
use std::str::FromStr;

use super::caller::decoded;
use super::error::Error;

/// The parameters of a request, by name.
pub(super) struct QueryParameters(BTreeMap<&'static str, String>);

impl QueryParameters {
    /// Refuses unknown parameters, and repeated ones, by their name.
    pub(super) fn read(query: Option<&str>, known: &[&'static str]) -> Result<Self, Error> {
        let mut values = BTreeMap::new();
        for pair in query.unwrap_or_default().split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let sent = decoded(name);
            let Some(name) = known.iter().find(|known| **known == sent) else {
                let detail = match known {
                    [only] => format!("The only parameter here is \"{only}\"."),
                    _ => format!("There is no such parameter here. There are: {}.", known.join(", ")),
                };
                return Err(Error::invalid_parameter(&sent, &detail));
            };
            if values.insert(*name, decoded(value)).is_some() {
                return Err(Error::invalid_parameter(name, &format!("{name} was sent more than once.")));
            }
        }
        Ok(Self(values))
    }

    /// A parameter's text.
    pub(super) fn text(&self, name: &'static str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    /// A parameter's value; `wanted` names what is expected when the text is invalid.
    pub(super) fn value<T: FromStr>(&self, name: &'static str, wanted: &str) -> Result<Option<T>, Error> {
        let parsed = self.text(name).map(str::parse).transpose();
        parsed.map_err(|_| Error::invalid_parameter(name, &format!("{name} is {wanted}.")))
    }

    /// A whole number in a range.
    pub(super) fn number(
        &self,
        name: &'static str,
        range: std::ops::RangeInclusive<u32>,
        default: u32,
    ) -> Result<u32, Error> {
        let wanted = format!("a whole number from {} to {}", range.start(), range.end());
        match self.value(name, &wanted)?.unwrap_or(default) {
            number if range.contains(&number) => Ok(number),
            _ => Err(Error::invalid_parameter(name, &format!("{name} is {wanted}."))),
        }
    }

    /// The filters of a list: every parameter except the page's cursor and length.
    pub(super) fn filters(&self) -> impl Iterator<Item = (&str, &str)> {
        let paging = |name: &str| matches!(name, "cursor" | "limit");
        self.0.iter().filter(move |(name, _)| !paging(name)).map(|(name, value)| (*name, value.as_str()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_are_read_and_empty_pairs_skipped() {
        let query =
            QueryParameters::read(Some("&a=x%3Ay&&b="), &["a", "b"]).unwrap_or_else(|error| panic!("{error:?}"));
        assert_eq!((query.text("a"), query.text("b")), (Some("x:y"), Some("")));
    }

    #[test]
    fn unknown_and_repeated_parameters_are_refused_however_they_are_written() {
        for query in ["c=1", "a=1&c", "a=1&a=1", "a=1&%61=2", "A=1"] {
            assert!(QueryParameters::read(Some(query), &["a", "b"]).is_err(), "{query}");
        }
    }

    #[test]
    fn where_a_page_begins_is_no_filter() {
        let query = QueryParameters::read(Some("limit=5&state=x&cursor=y"), &["limit", "state", "cursor"]);
        let query = query.unwrap_or_else(|error| panic!("{error:?}"));
        assert_eq!(query.filters().collect::<Vec<_>>(), [("state", "x")]);
    }
}
