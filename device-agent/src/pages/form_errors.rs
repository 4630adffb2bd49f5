//! The errors of a form: one sentence for each field, at the field and at the top.

use std::fmt;

use axum::http::StatusCode;

use super::fields::FormFields;
use crate::local::{ErrorReply, ErrorReplyCode};
use deskgate_protocol::secret::SecretKind;

/// The agent's error sentences, each with its field.
#[derive(Clone, Debug, Default)]
pub(super) struct FormErrors(Vec<(&'static str, String)>);

impl FormErrors {
    /// The agent's sentences begin with the field's name and a colon, as the command line's options are called; others
    /// are about the whole form, which has the name "".
    pub(super) fn new(message: &str, fields: &'static [&'static str]) -> Self {
        let mut wrong: Vec<(&'static str, String)> = Vec::new();
        for line in message.lines() {
            let field = line
                .split_once(": ")
                .and_then(|(name, why)| Some((*fields.iter().find(|field| **field == name)?, why.to_owned())));
            match (field, wrong.last_mut()) {
                (Some(field), _) => wrong.push(field),
                // A continuation line belongs to the sentence before it.
                (None, Some(("", why))) => *why += &format!("\n{line}"),
                (None, _) => wrong.push(("", line.to_owned())),
            }
        }
        Self(wrong)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn all(&self) -> &[(&'static str, String)] {
        &self.0
    }

    /// The error of a field.
    pub(super) fn at(&self, field: &str) -> Option<&str> {
        self.0.iter().find(|(name, _)| *name == field).map(|(_, why)| why.as_str())
    }
}

/// The status and errors of a failed form: whether its fields or the agent's state are the reason.
pub(super) fn failed(no: &ErrorReply, fields: &'static [&'static str]) -> (StatusCode, FormErrors) {
    let status =
        if no.code == ErrorReplyCode::Invalid { StatusCode::UNPROCESSABLE_ENTITY } else { StatusCode::CONFLICT };
    (status, FormErrors::new(&no.message, fields))
}

/// A form's fields for showing it again, without those that turned out to be secrets.
pub(super) fn without_secrets(fields: &FormFields) -> FormFields {
    let shown = |(name, value): &(String, String)| {
        let secret = name.ends_with("token") || SecretKind::of(value.trim()).is_some();
        (name.clone(), if secret { String::new() } else { value.clone() })
    };
    FormFields(fields.0.iter().map(shown).collect())
}

/// The attributes that tie a control to its hint and its error. They are markup of names from this program, so templates
/// write them with `|safe`.
pub(super) struct FieldAttributes {
    pub(super) field: &'static str,
    pub(super) wrong: bool,
    /// Whether it has focus when the page opens.
    pub(super) first: bool,
}

impl fmt::Display for FieldAttributes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let field = self.field;
        if self.first {
            f.write_str(" autofocus")?;
        }
        match self.wrong {
            true => write!(f, " aria-describedby=\"{field}-hint {field}-error\" aria-invalid=\"true\""),
            false => write!(f, " aria-describedby=\"{field}-hint\""),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sentences_are_told_apart_by_their_field_and_what_has_none_is_about_the_whole() {
        let wrong = FormErrors::new("host: no\nThe draft is kept.\nNothing else.\nport: too low", &["host", "port"]);
        assert_eq!((wrong.at("host"), wrong.at("port")), (Some("no"), Some("too low")));
        assert_eq!(wrong.at(""), Some("The draft is kept.\nNothing else."));
        assert!(FormErrors::default().is_empty() && wrong.at("user").is_none());
    }

    #[test]
    fn a_secret_never_comes_back() {
        let field = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let sent =
            FormFields(vec![field("host", " dgk_canary"), field("user", "me"), field("control-token", "canary")]);
        let back = without_secrets(&sent);
        assert_eq!((back.get("host"), back.get("user"), back.get("control-token")), ("", "me", ""));
    }
}
