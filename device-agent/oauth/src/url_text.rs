//! Addresses as text in files: `#[serde(with = "deskgate_oauth::url_text")]`.

use reqwest::Url;
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serializer};

/// Writes an address as its text.
///
/// # Errors
/// The serializer's own.
pub fn serialize<S: Serializer>(url: &Url, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(url.as_str())
}

/// Reads an address.
///
/// # Errors
/// The text is no address.
pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Url, D::Error> {
    String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
}

/// The same for an address that may be absent.
pub mod optional {
    use reqwest::Url;
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    /// Writes an address as its text.
    ///
    /// # Errors
    /// The serializer's own.
    pub fn serialize<S: Serializer>(url: &Option<Url>, serializer: S) -> Result<S::Ok, S::Error> {
        url.as_ref().map(Url::as_str).serialize(serializer)
    }

    /// Reads an address.
    ///
    /// # Errors
    /// The text is no address.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Url>, D::Error> {
        let text = Option::<String>::deserialize(deserializer)?;
        text.map(|text| text.parse().map_err(D::Error::custom)).transpose()
    }
}
