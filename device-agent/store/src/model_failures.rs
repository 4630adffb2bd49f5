//! Why models could not be used, for the owner: the failure that ended a run, of the newest such runs.

use deskgate_definition::ModelFailure;
use deskgate_protocol::ids::RunId;
use rusqlite::{OptionalExtension, params};

use super::{Error, Ledger, Store};

/// How many runs' failures are kept.
const MAX_KEPT_FAILURES: i64 = 1_000;

impl Ledger {
    /// Keeps why the model of this run could not be used.
    ///
    /// # Errors
    /// The database cannot be written.
    pub async fn keep_model_failure(&self, failure: ModelFailure) -> Result<(), Error> {
        let run_id = self.run_id.to_string();
        self.store
            .lazily(move |tx| {
                let failure = serde_json::to_string(&failure).expect("texts and numbers are JSON");
                tx.prepare_cached("INSERT OR REPLACE INTO model_failure (run_id, failure) VALUES (?1, ?2)")?
                    .execute(params![run_id, failure])?;
                tx.prepare_cached("DELETE FROM model_failure WHERE n <= (SELECT max(n) FROM model_failure) - ?1")?
                    .execute([MAX_KEPT_FAILURES])?;
                Ok(())
            })
            .await
    }
}

impl Store {
    /// Why the model of a run could not be used; `None`: it could, or the run is too old.
    ///
    /// # Errors
    /// The database cannot be read, or the entry is damaged.
    pub async fn model_failure(&self, run_id: RunId) -> Result<Option<ModelFailure>, Error> {
        self.lazily(move |tx| {
            let kept: Option<String> = tx
                .prepare_cached("SELECT failure FROM model_failure WHERE run_id = ?1")?
                .query_row([run_id.to_string()], |row| row.get(0))
                .optional()?;
            let damaged = || Error::damaged("a failure of a model")(run_id.to_string());
            kept.map(|text| serde_json::from_str(&text).map_err(|_| damaged())).transpose()
        })
        .await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use deskgate_definition::ProviderErrorDetail;
    use deskgate_protocol::Timestamp;

    #[tokio::test]
    async fn the_newest_failure_of_a_run_is_kept_and_old_ones_go() {
        let folder = tempfile::tempdir().expect("a folder");
        let store = Store::open(folder.path().join("agent.db")).await.expect("opens");
        let failure = |message: &str| ModelFailure {
            at: Timestamp::now(),
            provider: "work".to_owned(),
            model: "m-1".to_owned(),
            message: message.to_owned(),
            detail: ProviderErrorDetail { status: Some(400), ..ProviderErrorDetail::default() },
        };
        let first = RunId::new();
        assert_eq!(store.model_failure(first).await.expect("read"), None);
        for message in ["one", "two"] {
            store.ledger(first, 1).keep_model_failure(failure(message)).await.expect("written");
        }
        let kept = store.model_failure(first).await.expect("read").expect("kept");
        assert_eq!((kept.message.as_str(), kept.detail.status), ("two", Some(400)));
        for _ in 0..MAX_KEPT_FAILURES {
            store.ledger(RunId::new(), 1).keep_model_failure(failure("later")).await.expect("written");
        }
        assert_eq!(store.model_failure(first).await.expect("read"), None);
    }
}
