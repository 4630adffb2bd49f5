//! A database that is made beside the gateway's, on the same server, and dropped again.

use tokio_postgres::error::SqlState;

use super::BackupError;
use crate::store::Database;

/// A database to be thrown away. Its name says whose it is, if this program dies before it could be.
pub struct ScratchDatabase {
    beside: Database,
    name: String,
    database: Database,
}

impl ScratchDatabase {
    /// Makes one on the server of `beside`, whose account must be allowed to.
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

    /// It.
    pub fn database(&self) -> &Database {
        &self.database
    }

    /// Drops it, whoever is still connected.
    pub async fn remove(self) -> Result<(), BackupError> {
        let (client, _driver) = self.beside.connect().await?;
        Ok(client.batch_execute(&format!("DROP DATABASE {} WITH (FORCE)", self.name)).await?)
    }
}
