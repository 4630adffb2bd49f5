//! Columns that are more than a number or a text.

use deskgate_protocol::canonical::Sha256Digest;
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

/// A count; 0 where nothing was counted.
pub(super) fn count(row: &Row, column: &str) -> Result<u32, Error> {
    Ok(u32::try_from(row.try_get::<_, Option<i64>>(column)?.unwrap_or(0)).unwrap_or(u32::MAX))
}

/// A stored digest.
pub(super) fn digest(bytes: &[u8]) -> Result<Sha256Digest, Error> {
    bytes.try_into().map(Sha256Digest).map_err(|_| Error::Data("a digest has not 32 bytes".to_owned()))
}
