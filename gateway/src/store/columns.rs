//! Columns that are more than a number or a text.

use serde::de::DeserializeOwned;
use tokio_postgres::Row;

use super::Error;

/// A JSON column.
pub(super) fn json<T: DeserializeOwned>(row: &Row, column: &str) -> Result<Option<T>, Error> {
    let value: Option<tokio_postgres::types::Json<T>> = row.try_get(column)?;
    Ok(value.map(|json| json.0))
}

/// A word that both the tables and the protocol know.
pub(super) fn word<T: std::str::FromStr>(text: &str) -> Result<T, Error> {
    text.parse().map_err(|_| Error::Data(format!("unknown word {text:?}")))
}
