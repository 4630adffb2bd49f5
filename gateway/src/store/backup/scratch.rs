//! A temporary database beside the gateway's, on the same server.

use tokio_postgres::error::SqlState;

use super::BackupError;
use crate::store::Database;

/// A temporary database. Its name shows its origin, if this program dies before it is dropped.
pub struct ScratchDatabase {
    beside: Database,
    name: String,
    database: Database,
}

impl ScratchDatabase {
    /// Creates one on the server of `beside`, whose account must be allowed to.
    ///
    /// # Errors
    /// [`BackupError::MayNotCreate`]: the account may not create databases. [`BackupError::Store`]: the database does
    /// not answer, or refuses the statement.
    pub async fn create(beside: &Database) -> Result<Self, BackupError> {
        let name = format!("deskgate_verify_{:032x}", rand::random::<u128>());
        let (client, _driver) = beside.connect().await?;
        let created = client.batch_execute(&format!("CREATE DATABASE {name} TEMPLATE template0")).await;
        created.map_err(|error| match error.code() {
            Some(&SqlState::INSUFFICIENT_PRIVILEGE) => BackupError::MayNotCreate,
            _ => error.into(),
        })?;
        Ok(Self { beside: beside.clone(), database: beside.on_same_server(&name), name })
    }

    /// Its address.
    pub fn database(&self) -> &Database {
        &self.database
    }

    /// Drops it, even with open connections.
    ///
    /// The server first waits for them by itself: ours are still ending, and where they only took on their account
    /// (`options=-c role=…`), that account may not end them.
    ///
    /// # Errors
    /// The database does not answer, or refuses the statement.
    pub async fn remove(self) -> Result<(), BackupError> {
        let (client, _driver) = self.beside.connect().await?;
        let drop = format!("DROP DATABASE {}", self.name);
        match client.batch_execute(&drop).await {
            Err(error) if error.code() == Some(&SqlState::OBJECT_IN_USE) => {
                Ok(client.batch_execute(&format!("{drop} WITH (FORCE)")).await?)
            }
            dropped => Ok(dropped?),
        }
    }
}
