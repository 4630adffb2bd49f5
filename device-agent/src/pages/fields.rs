//! The fields of a form, as they were sent.

use std::fmt::Display;

use axum::extract::FromRequestParts;
use axum::http::StatusCode;
use axum::http::request::Parts;

/// A form's fields in order, as the guard has read them.
#[derive(Clone, Debug, Default)]
pub(super) struct FormFields(pub(super) Vec<(String, String)>);

impl FormFields {
    /// A field; empty if it was not sent.
    pub(super) fn get(&self, name: &str) -> &str {
        self.0.iter().find(|(key, _)| key == name).map_or("", |(_, value)| value)
    }

    /// A field that is not empty.
    pub(super) fn filled(&self, name: &str) -> Option<String> {
        Some(self.get(name).trim()).filter(|text| !text.is_empty()).map(str::to_owned)
    }

    /// Every field of a name, as several check boxes send it.
    pub(super) fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.0.iter().filter(move |(key, _)| key == name).map(|(_, value)| value.as_str())
    }
}

/// The address of a list's page that begins after `before`, with the same filters.
pub(super) fn older(list: &str, filters: &[(&str, &String)], before: impl Display) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    let encoded = |text: &str| -> String {
        let one = |byte| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") };
        text.bytes().map(one).collect()
    };
    let filters: String = filters.iter().map(|(name, value)| format!("{name}={}&", encoded(value))).collect();
    format!("{list}?{filters}before={before}")
}

impl<S: Sync> FromRequestParts<S> for FormFields {
    type Rejection = StatusCode;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, StatusCode> {
        Ok(parts.extensions.get().cloned().unwrap_or_default())
    }
}
