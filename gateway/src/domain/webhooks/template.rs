//! The template of an event's input: text with placeholders for values of the payload, as in `{{ $.issue.title }}`.
//!
//! A value is inserted as it is and never parsed as a template. There are no loops, conditions and functions: the
//! gateway's work for an event is bounded by the template's and the payload's length alone, and an assistant reads JSON
//! where more is needed.

use serde_json::Value;

use super::path::{InvalidPath, Path};
use super::{WebhookEvent, character};
use crate::domain::body_quota::MAX_TEXT_BYTES;

/// Bytes of a template.
const MAX_TEMPLATE_BYTES: usize = 16 * 1024;

/// A parsed template.
#[derive(Clone, Debug)]
pub struct Template(Vec<TemplatePart>);

#[derive(Clone, Debug)]
enum TemplatePart {
    Text(String),
    Place { what: Placeholder, otherwise: String },
}

#[derive(Clone, Debug)]
enum Placeholder {
    Payload(Path),
    EventId,
    EventType,
}

/// Why a text is not a template.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidTemplate {
    /// The text is empty or too long.
    #[error("a template has 1 to {MAX_TEMPLATE_BYTES} bytes")]
    Length,
    /// A placeholder has no end.
    #[error("the {{{{ at character {0} is never closed with }}}}")]
    Open(usize),
    /// A placeholder's content is unknown.
    #[error(
        "at character {0}: in {{{{ }}}} stands a path such as $.issue.title, event.id or event.type, and after ?? what is put in \
         its place where there is none, in quotes"
    )]
    Place(usize),
    /// A path is invalid.
    #[error("at character {0}: {1}")]
    Path(usize, InvalidPath),
}

/// The text would be longer than an input may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the text would be longer than {MAX_TEXT_BYTES} bytes")]
pub struct OutputTooLong;

impl Template {
    /// Parses a template.
    ///
    /// # Errors
    /// See [`InvalidTemplate`].
    pub fn parse(text: &str) -> Result<Self, InvalidTemplate> {
        if !(1..=MAX_TEMPLATE_BYTES).contains(&text.len()) {
            return Err(InvalidTemplate::Length);
        }
        let (mut parts, mut rest) = (Vec::new(), text);
        while let Some((before, more)) = rest.split_once("{{") {
            let at = character(text, &rest[before.len()..]);
            let (place, after) = apart(more, "}}").ok_or(InvalidTemplate::Open(at))?;
            parts.push(TemplatePart::Text(before.to_owned()));
            parts.push(part(place.trim(), at)?);
            rest = after;
        }
        parts.push(TemplatePart::Text(rest.to_owned()));
        Ok(Self(parts))
    }

    /// The text for an event. A missing or null value leaves its placeholder empty.
    ///
    /// # Errors
    /// The text would be too long.
    pub fn fill(&self, event: &WebhookEvent) -> Result<String, OutputTooLong> {
        let mut text = String::new();
        for part in &self.0 {
            match part {
                TemplatePart::Text(own) => text.push_str(own),
                TemplatePart::Place { what, otherwise } => match what.of(event) {
                    Some(value) => text.push_str(&value),
                    None => text.push_str(otherwise),
                },
            }
            if text.len() > MAX_TEXT_BYTES {
                return Err(OutputTooLong);
            }
        }
        Ok(text)
    }
}

impl Placeholder {
    fn of(&self, event: &WebhookEvent) -> Option<String> {
        match self {
            Self::Payload(path) => path.of(&event.payload).and_then(shown),
            Self::EventId => Some(event.id.clone()),
            Self::EventType => event.kind.clone(),
        }
    }
}

/// A value as text: a string as it is, everything else as JSON. Null is absent.
pub(super) fn shown(value: &Value) -> Option<String> {
    match value {
        Value::Null => None,
        Value::String(text) => Some(text.clone()),
        other => Some(other.to_string()),
    }
}

/// The text before a mark outside quotes, and the text after it.
fn apart<'a>(text: &'a str, mark: &str) -> Option<(&'a str, &'a str)> {
    let (mut quote, mut escaped) = (None, false);
    for (place, c) in text.char_indices() {
        match (quote, c) {
            _ if escaped => escaped = false,
            (Some(_), '\\') => escaped = true,
            (Some(open), c) if c == open => quote = None,
            (None, '\'' | '"') => quote = Some(c),
            (None, _) if text[place..].starts_with(mark) => return Some((&text[..place], &text[place + mark.len()..])),
            _ => {}
        }
    }
    None
}

/// The content of a placeholder whose braces begin at that character.
fn part(place: &str, at: usize) -> Result<TemplatePart, InvalidTemplate> {
    // A quoted text: the way to write braces.
    if let Some(text) = quoted(place) {
        return Ok(TemplatePart::Text(text));
    }
    let (what, otherwise) = match apart(place, "??") {
        Some((what, text)) => (what.trim(), quoted(text.trim()).ok_or(InvalidTemplate::Place(at))?),
        None => (place, String::new()),
    };
    let what = match what {
        "event.id" => Placeholder::EventId,
        "event.type" => Placeholder::EventType,
        path if path.starts_with('$') => {
            Placeholder::Payload(Path::parse(path).map_err(|error| InvalidTemplate::Path(at, error))?)
        }
        _ => return Err(InvalidTemplate::Place(at)),
    };
    Ok(TemplatePart::Place { what, otherwise })
}

/// A text in double quotes, as JSON writes it.
fn quoted(text: &str) -> Option<String> {
    serde_json::from_str(text).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn event(payload: Value) -> WebhookEvent {
        WebhookEvent { id: "evt_1".to_owned(), kind: Some("issues".to_owned()), payload }
    }

    fn filled(template: &str, payload: Value) -> String {
        Template::parse(template).unwrap_or_else(|error| panic!("{error}")).fill(&event(payload)).expect("short")
    }

    #[test]
    fn values_are_put_where_the_template_says() {
        let payload = json!({ "title": "It }} breaks", "n": 7, "none": null, "who": { "a": [1] }, "}}": "odd" });
        for (template, text) in [
            ("no place", "no place"),
            ("{{ $.title }} ({{$.n}})", "It }} breaks (7)"),
            ("{{ event.type }} {{ event.id }}", "issues evt_1"),
            ("[{{ $.none }}|{{ $.missing }}|{{ $.none ?? \"–\" }}]", "[||–]"),
            ("{{ $.who }}", "{\"a\":[1]}"),
            ("{{ \"{{\" }} {{ $['}}'] }} }}", "{{ odd }}"),
            ("{{ $ ?? \"a ?? b\" }}", &payload.to_string()),
            ("{{ $.x ?? \"}}\\n\" }}", "}}\n"),
        ] {
            assert_eq!(filled(template, payload.clone()), text, "{template}");
        }
    }

    #[test]
    fn what_is_no_template_is_refused() {
        for text in
            ["", "{{", "{{ $.a", "{{ }}", "{{ payload }}", "{{ $.a ?? b }}", "{{ $..a }}", "{{ $.a | upper }}", "{{ '"]
        {
            assert!(Template::parse(text).is_err(), "{text:?}");
        }
        assert_eq!(Template::parse(&"a".repeat(MAX_TEMPLATE_BYTES + 1)).unwrap_err(), InvalidTemplate::Length);
        assert_eq!(Template::parse("ß {{ $.a }} {{ $.b").unwrap_err(), InvalidTemplate::Open(13));
        assert_eq!(Template::parse("ß {{ $.a }} {{ b }}").unwrap_err(), InvalidTemplate::Place(13));
    }

    #[test]
    fn a_value_is_never_read_as_a_template() {
        assert_eq!(filled("{{ $.a }}", json!({ "a": "{{ $.b }}", "b": "secret" })), "{{ $.b }}");
    }

    #[test]
    fn many_places_for_a_large_value_end_early() {
        let template = Template::parse(&"{{$.a}}".repeat(2000)).unwrap();
        assert_eq!(template.fill(&event(json!({ "a": "x".repeat(200_000) }))), Err(OutputTooLong));
    }

    proptest! {
        #[test]
        fn arbitrary_text_never_panics(text: String) {
            let _ = Template::parse(&text);
            let _ = Template::parse(&format!("{{{{ {text} }}}}"));
        }
    }
}
