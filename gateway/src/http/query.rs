//! The parameters of a query string: known ones, each at most once.

use std::collections::BTreeMap;
use std::str::FromStr;

use deskgate_protocol::Timestamp;

use super::caller::decoded;
use super::error::Error;

/// The parameters of a request, by name.
pub(super) struct QueryParameters {
    values: BTreeMap<&'static str, String>,
    /// The labels of `metadata[NAME]=VALUE`, by the parameter's whole name.
    labels: BTreeMap<String, String>,
}

impl QueryParameters {
    /// Refuses unknown parameters, and repeated ones, by their name.
    pub(super) fn read(query: Option<&str>, known: &[&'static str]) -> Result<Self, Error> {
        let (mut values, mut labels) = (BTreeMap::new(), BTreeMap::new());
        for pair in query.unwrap_or_default().split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let sent = decoded(name);
            if known.contains(&LABELS) && label(&sent).is_some() {
                if sent.contains(NESTED) {
                    let detail =
                        format!("A label's value is a text: no label is sought whose name has {NESTED:?} in it.");
                    return Err(Error::invalid_parameter(&sent, &detail));
                }
                if labels.insert(sent.clone(), decoded(value)).is_some() {
                    return Err(Error::invalid_parameter(&sent, &format!("{sent} was sent more than once.")));
                }
                continue;
            }
            let Some(name) = known.iter().find(|known| **known == sent) else {
                let detail = format!("{sent:?} is no parameter of this call. It takes: {}.", known.join(", "));
                return Err(Error::invalid_parameter(&sent, &detail));
            };
            if values.insert(*name, decoded(value)).is_some() {
                return Err(Error::invalid_parameter(name, &format!("{name} was sent more than once.")));
            }
        }
        match values.contains_key(LABELS) {
            true => Err(Error::invalid_parameter(LABELS, "A label is sought as metadata[NAME]=VALUE.")),
            false => Ok(Self { values, labels }),
        }
    }

    /// The labels that are sought, by name.
    pub(super) fn labels(&self) -> impl Iterator<Item = (&str, &str)> {
        self.labels.iter().filter_map(|(sent, value)| Some((label(sent)?, value.as_str())))
    }

    /// A parameter's text.
    pub(super) fn text(&self, name: &'static str) -> Option<&str> {
        self.values.get(name).map(String::as_str)
    }

    /// A parameter's value; `wanted` names what is expected when the text is invalid.
    pub(super) fn value<T: FromStr>(&self, name: &'static str, wanted: &str) -> Result<Option<T>, Error> {
        let parsed = self.text(name).map(str::parse).transpose();
        parsed.map_err(|_| Error::invalid_parameter(name, &format!("{name} is {wanted}.")))
    }

    /// A time. A `+` that was not escaped has become a space.
    pub(super) fn moment(&self, name: &'static str) -> Result<Option<Timestamp>, Error> {
        let wanted = match self.text(name) {
            Some(text) if text.contains(' ') => {
                "a time. A \"+\" in an address means a space: write it as %2B, or end the time with Z, as in \
                 2026-11-21T09:14:50.123Z"
            }
            _ => "a time, as in 2026-11-21T09:14:50.123Z",
        };
        Ok(self.value(name, wanted)?.map(Timestamp))
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
        let values = self.values.iter().filter(move |(name, _)| !paging(name));
        let values = values.map(|(name, value)| (*name, value.as_str()));
        values.chain(self.labels.iter().map(|(name, value)| (name.as_str(), value.as_str())))
    }
}

/// The parameter that stands for `metadata[NAME]`, one for each label that is sought (OpenAPI's style `deepObject`).
pub(super) const LABELS: &str = "metadata";

/// What a client puts between the names of an object in an object. A label has none in its value, and one whose name
/// has this in it would look the same.
const NESTED: &str = "][";

/// The name of the label that a parameter seeks.
fn label(sent: &str) -> Option<&str> {
    sent.strip_prefix(LABELS)?.strip_prefix('[')?.strip_suffix(']')
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
    fn labels_are_read_by_name_and_are_filters() {
        let query = QueryParameters::read(Some("metadata%5Border%5D=4711&metadata[a[b]]=&limit=5"), &["limit", LABELS]);
        let query = query.unwrap_or_else(|error| panic!("{error:?}"));
        assert_eq!(query.labels().collect::<Vec<_>>(), [("a[b]", ""), ("order", "4711")]);
        assert_eq!(query.filters().count(), 2);
        for query in [
            "metadata=x",
            "metadata[a]=1&metadata[a]=1",
            "metadata[a][b]=1",
            "metadata%5Ba%5D%5B0%5D=1",
            "metadata.a=1",
            "labels[a]=1",
        ] {
            assert!(QueryParameters::read(Some(query), &[LABELS]).is_err(), "{query}");
        }
        assert!(QueryParameters::read(Some("metadata[a]=1"), &["limit"]).is_err());
    }

    #[test]
    fn where_a_page_begins_is_no_filter() {
        let query = QueryParameters::read(Some("limit=5&state=x&cursor=y"), &["limit", "state", "cursor"]);
        let query = query.unwrap_or_else(|error| panic!("{error:?}"));
        assert_eq!(query.filters().collect::<Vec<_>>(), [("state", "x")]);
    }
}
