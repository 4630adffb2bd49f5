//! The hosts that callbacks may go to. Checked again by the statement that claims each attempt.

use deskgate_protocol::management::ActivityKind;

use super::activity::{self, ActivityEntry, Owner};
use super::{Error, Store, commit, with_timeout};

impl Store {
    /// Every allowed host, sorted.
    ///
    /// # Errors
    /// The database does not answer, or refuses the statement.
    pub async fn allowed_hosts(&self) -> Result<Vec<String>, Error> {
        let sql = "-- allowlist::hosts
            SELECT host FROM allowed_hosts ORDER BY host COLLATE \"C\"";
        self.durable_rows(sql, &[]).await?.iter().map(|row| Ok(row.try_get(0)?)).collect()
    }

    /// Allows these hosts and no others; recorded as activity if a person at a device changes something.
    ///
    /// # Errors
    /// The database does not answer, or refuses the statement.
    pub async fn set_allowed_hosts(&self, owner: Option<Owner>, hosts: &[&str]) -> Result<(), Error> {
        with_timeout(async {
            let mut client = self.client().await?;
            let transaction = client.transaction().await?;
            let sql = "-- allowlist::take_away
                DELETE FROM allowed_hosts WHERE host <> ALL($1::text[])";
            let gone = transaction.execute(sql, &[&hosts]).await?;
            let sql = "-- allowlist::add
                INSERT INTO allowed_hosts (host) SELECT unnest($1::text[]) ON CONFLICT DO NOTHING";
            let new = transaction.execute(sql, &[&hosts]).await?;
            if let Some(owner) = owner.filter(|_| gone + new > 0) {
                let (what, name) = (ActivityKind::AllowlistChanged, Some(hosts.join(", ")));
                activity::write(&transaction, owner, &ActivityEntry { app_id: None, what, about: None, name }).await?;
            }
            commit(transaction, "allowlist::set").await?;
            client.give_back();
            Ok(())
        })
        .await
    }

    /// Adds a host. False if it was allowed before.
    ///
    /// # Errors
    /// The database does not answer, or refuses the statement.
    pub async fn allow_host(&self, host: &str) -> Result<bool, Error> {
        let sql = "-- allowlist::allow
            INSERT INTO allowed_hosts (host) VALUES ($1) ON CONFLICT DO NOTHING RETURNING 1";
        Ok(self.durable_opt(sql, &[&host]).await?.is_some())
    }

    /// Removes a host. False if it was not allowed before.
    ///
    /// # Errors
    /// The database does not answer, or refuses the statement.
    pub async fn disallow_host(&self, host: &str) -> Result<bool, Error> {
        let sql = "-- allowlist::disallow
            DELETE FROM allowed_hosts WHERE host = $1 RETURNING 1";
        Ok(self.durable_opt(sql, &[&host]).await?.is_some())
    }
}
