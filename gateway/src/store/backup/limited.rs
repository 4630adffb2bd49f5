//! The account that puts a backup's data back: one that can own tables, and nothing else on the server.
//!
//! Where the gateway's own account is more than that, as in a private cluster, an account is made for one restore. It
//! connects for itself: what a session only took on (`SET ROLE`) could be put off again.

use tokio_postgres::Client;

use super::BackupError;
use crate::store::{Database, Error};

/// Whether the account of this connection can do more than own tables. Members of these roles read, write or run what
/// is on the server's own disk.
const IS_PRIVILEGED_SQL: &str = "-- backup::is_privileged
    SELECT quote_ident(current_user), rolsuper OR rolcreaterole OR rolreplication OR rolbypassrls
        OR pg_has_role(current_user, 'pg_execute_server_program', 'MEMBER')
        OR pg_has_role(current_user, 'pg_read_server_files', 'MEMBER')
        OR pg_has_role(current_user, 'pg_write_server_files', 'MEMBER')
    FROM pg_roles WHERE rolname = current_user";

/// The account for one restore.
pub(super) struct LimitedAccount {
    /// The database, by that account.
    pub(super) database: Database,
    /// Its name, if it was made for this.
    made: Option<String>,
    /// The gateway's own account, as SQL.
    owner: String,
}

impl LimitedAccount {
    /// The gateway's own account, if it is limited; otherwise a new one.
    pub(super) async fn find(database: &Database, client: &Client) -> Result<Self, BackupError> {
        let (owner, is_privileged) = account_of(client).await?;
        if !is_privileged {
            return Ok(Self { database: database.clone(), made: None, owner });
        }
        let name = format!("deskgate_restore_{:032x}", rand::random::<u128>());
        // It can be used for as long as the restore takes, and from nowhere but here.
        let password = format!("{:032x}{:032x}", rand::random::<u128>(), rand::random::<u128>());
        let sql = format!(
            "CREATE ROLE {name} LOGIN NOSUPERUSER NOCREATEDB NOCREATEROLE NOREPLICATION NOBYPASSRLS NOINHERIT
                PASSWORD '{password}'; GRANT {name} TO CURRENT_USER"
        );
        let refused = |why: String| BackupError::Privileged { account: owner.clone(), why };
        client.batch_execute(&sql).await.map_err(|error| refused(Error::from(error).to_string()))?;
        let limited = Self { database: database.as_account(&name, &password), made: Some(name), owner: owner.clone() };
        let tried = async {
            let (connected, _driver) = limited.database.connect().await.map_err(|error| error.to_string())?;
            match account_of(&connected).await {
                Ok((_, false)) => Ok(()),
                Ok((name, true)) => Err(format!("{name}, which was made for it, is not limited")),
                Err(error) => Err(error.to_string()),
            }
        };
        let tried: Result<(), String> = tried.await;
        if let Err(why) = tried {
            limited.leave(client).await;
            return Err(refused(why));
        }
        Ok(limited)
    }

    /// What follows `CREATE SCHEMA public`, so that it belongs to this account.
    pub(super) fn authorization(&self) -> String {
        self.made.as_ref().map(|name| format!(" AUTHORIZATION {name}")).unwrap_or_default()
    }

    /// Gives what it made to the gateway's own account.
    pub(super) async fn hand_over(&self, client: &Client) -> Result<(), BackupError> {
        if let Some(name) = &self.made {
            client.batch_execute(&format!("REASSIGN OWNED BY {name} TO {}", self.owner)).await?;
        }
        Ok(())
    }

    /// Removes the account, if it was made for this, with what it still owns.
    pub(super) async fn leave(self, client: &Client) {
        let Some(name) = self.made else { return };
        let gone = client.batch_execute(&format!("DROP OWNED BY {name} CASCADE; DROP ROLE {name}")).await;
        if let Err(error) = gone {
            tracing::warn!(account = name, %error, "an account that was made for a restore is still there; drop it");
        }
    }
}

async fn account_of(client: &Client) -> Result<(String, bool), BackupError> {
    let row = client.query_one(IS_PRIVILEGED_SQL, &[]).await?;
    Ok((row.try_get(0)?, row.try_get(1)?))
}
