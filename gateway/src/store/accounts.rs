//! Devices that came with an account of a hosted gateway's issuer.

use std::fmt;

use deskgate_protocol::DeviceId;
use deskgate_protocol::identity::PublicKey;
use tokio_postgres::Row;

use super::{Error, Store, commit, with_timeout};

/// An account: an issuer, and the subject there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Account {
    /// The issuer (`iss`).
    pub issuer: String,
    /// Its permanent name there (`sub`).
    pub subject: String,
}

impl fmt::Display for Account {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at {}", self.subject, self.issuer)
    }
}

impl Store {
    /// Pairs a key with the account that it comes with, unless it was paired before or the account has the most devices
    /// it may. Whether it is paired now is for the next session to find.
    ///
    /// # Errors
    /// The database does not answer, or refuses the statement.
    pub async fn pair_with_account(
        &self,
        name: &str,
        public_key: &PublicKey,
        account: &Account,
        most: u32,
    ) -> Result<(), Error> {
        with_timeout(async {
            let mut client = self.client().await?;
            let transaction = client.transaction().await?;
            // Two keys that arrive at once are counted one after the other.
            let sql = "-- accounts::one_at_a_time
                SELECT pg_advisory_xact_lock(hashtextextended($1 || chr(10) || $2, 0))";
            transaction.query_one(sql, &[&account.issuer, &account.subject]).await?;
            let sql = "-- accounts::pair
                INSERT INTO devices (device_id, name, public_key, account_issuer, account_subject)
                SELECT $1::uuid, $2, $3, $4, $5 WHERE $6 > (SELECT count(*) FROM devices
                    WHERE account_issuer = $4 AND account_subject = $5 AND revoked_at IS NULL)
                ON CONFLICT (public_key) DO NOTHING";
            let (id, key, most) = (DeviceId::new().uuid(), public_key.to_string(), i64::from(most));
            transaction.execute(sql, &[&id, &name, &key, &account.issuer, &account.subject, &most]).await?;
            commit(transaction, "accounts::pair").await?;
            client.give_back();
            Ok(())
        })
        .await
    }
}

/// The account in a row of devices.
pub(super) fn account(row: &Row) -> Result<Option<Account>, Error> {
    let (issuer, subject): (Option<_>, Option<_>) = (row.try_get("account_issuer")?, row.try_get("account_subject")?);
    Ok(issuer.zip(subject).map(|(issuer, subject)| Account { issuer, subject }))
}
