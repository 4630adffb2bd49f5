//! What models used up, for the owner: of each of the newest runs, and of each service in each month.

use deskgate_definition::MicroUsd;
pub use deskgate_definition::Spending;
use deskgate_protocol::ids::{ApplicationId, EndpointId, RunId};
use rusqlite::{OptionalExtension, Transaction, params};
use serde::{Deserialize, Serialize};

use super::{Error, Ledger, Store};

/// More than any call uses up: what a provider says beyond that is not believed, so that sums stay numbers.
const MAX_AMOUNT: u64 = 1 << 40;

/// How many runs' spending is kept.
const MAX_KEPT_RUNS: i64 = 100_000;

/// What one service used up in one month.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServiceSpending {
    /// The service's application; `None`: it was removed.
    pub app_id: Option<ApplicationId>,
    /// The service.
    pub endpoint_id: EndpointId,
    /// Its name; `None`: it was removed.
    pub service: Option<String>,
    /// How many runs called a model.
    pub runs: u64,
    /// What they used up.
    #[serde(flatten)]
    pub spending: Spending,
}

/// The columns of what was used up, in the order in which they are written and read.
const COLUMNS: [&str; 5] = ["input_tokens", "cached_input_tokens", "output_tokens", "microusd", "unpriced_calls"];

/// The month, as this computer's clock and time zone have it (`2026-11`).
pub fn this_month() -> String {
    jiff::Zoned::now().strftime("%Y-%m").to_string()
}

impl Ledger {
    /// Queues what model calls of this run used up in a month (`2026-11`), to be added. A crash may lose the newest.
    pub async fn spend(&self, endpoint_id: EndpointId, month: String, spent: Spending) {
        let (run_id, endpoint_id) = (self.run_id.to_string(), endpoint_id.to_string());
        let add = columns(|column| format!("{column} = {column} + excluded.{column}"));
        let listed = columns(str::to_owned);
        let work = move |tx: &Transaction<'_>| {
            let amounts = [
                spent.input_tokens,
                spent.cached_input_tokens,
                spent.output_tokens,
                spent.cost.0,
                spent.unpriced_calls,
            ]
            .map(|amount| i64::try_from(amount.min(MAX_AMOUNT)).unwrap_or_default());
            let [input, cached, output, microusd, unpriced] = amounts;
            let is_first: bool = tx
                .prepare_cached(&format!(
                    "INSERT INTO run_spending (run_id, {listed}) VALUES (?1, ?2, ?3, ?4, ?5, ?6)
                    ON CONFLICT (run_id) DO UPDATE SET {add}, calls = calls + 1 RETURNING calls = 1"
                ))?
                .query_row(params![run_id, input, cached, output, microusd, unpriced], |row| row.get(0))?;
            tx.prepare_cached("DELETE FROM run_spending WHERE n <= (SELECT max(n) FROM run_spending) - ?1")?
                .execute([MAX_KEPT_RUNS])?;
            tx.prepare_cached(&format!(
                "INSERT INTO month_spending (month, endpoint_id, runs, {listed}) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)
                ON CONFLICT (month, endpoint_id) DO UPDATE SET {add}, runs = runs + excluded.runs"
            ))?
            .execute(params![month, endpoint_id, is_first, input, cached, output, microusd, unpriced])?;
            Ok(())
        };
        self.store.eventually("what a model call used up", work).await;
    }
}

impl Store {
    /// What a run used up in all its attempts; `None`: no model was called, or the run is too old.
    ///
    /// # Errors
    /// The database cannot be read.
    pub async fn run_spending(&self, run_id: RunId) -> Result<Option<Spending>, Error> {
        let sql = format!("SELECT {} FROM run_spending WHERE run_id = ?1", columns(str::to_owned));
        self.lazily(move |tx| {
            Ok(tx.prepare_cached(&sql)?.query_row([run_id.to_string()], |row| spending(row, 0)).optional()?)
        })
        .await
    }

    /// What each service used up in a month (`2026-11`), the costliest first.
    ///
    /// # Errors
    /// The database cannot be read, or an entry is damaged.
    pub async fn month_spending(&self, month: String) -> Result<Vec<ServiceSpending>, Error> {
        let sql = format!(
            "SELECT s.app_id, m.endpoint_id, s.definition ->> '$.name', m.runs, {} FROM month_spending m LEFT JOIN service s USING (endpoint_id)
            WHERE m.month = ?1 ORDER BY m.microusd DESC, m.input_tokens + m.output_tokens DESC, m.endpoint_id",
            columns(|column| format!("m.{column}"))
        );
        self.lazily(move |tx| {
            let mut statement = tx.prepare_cached(&sql)?;
            let mut rows = statement.query([month])?;
            let mut services = Vec::new();
            while let Some(row) = rows.next()? {
                let (app, endpoint): (Option<String>, String) = (row.get(0)?, row.get(1)?);
                let app_id =
                    app.map(|app| app.parse().map_err(|_| Error::damaged("an application")(app))).transpose()?;
                let endpoint_id = endpoint.parse().map_err(|_| Error::damaged("a service")(endpoint))?;
                let (service, runs) = (row.get(2)?, row.get::<_, i64>(3)?.unsigned_abs());
                services.push(ServiceSpending { app_id, endpoint_id, service, runs, spending: spending(row, 4)? });
            }
            Ok(services)
        })
        .await
    }
}

/// The columns in a statement, each in this form.
pub(crate) fn columns(form: impl FnMut(&'static str) -> String) -> String {
    COLUMNS.map(form).join(", ")
}

/// Reads the columns, which begin at `from`.
pub(crate) fn spending(row: &rusqlite::Row<'_>, from: usize) -> rusqlite::Result<Spending> {
    let amount = |at: usize| row.get::<_, i64>(from + at).map(i64::unsigned_abs);
    Ok(Spending {
        input_tokens: amount(0)?,
        cached_input_tokens: amount(1)?,
        output_tokens: amount(2)?,
        cost: MicroUsd(amount(3)?),
        unpriced_calls: amount(4)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn calls_add_up_for_their_run_and_for_their_service_in_its_month() {
        let folder = tempfile::tempdir().expect("a folder");
        let store = Store::open(folder.path().join("agent.db")).await.expect("opens");
        let (run_id, other, endpoint_id) = (RunId::new(), RunId::new(), EndpointId::new());
        let call = |cost| Spending { input_tokens: 10, output_tokens: 1, cost: MicroUsd(cost), ..Spending::default() };
        let spend = async |run_id: RunId, attempt: u32, month: &str, cost: u64| {
            store.ledger(run_id, attempt).spend(endpoint_id, month.to_owned(), call(cost)).await;
        };
        assert_eq!(store.run_spending(run_id).await.expect("read"), None);
        spend(run_id, 1, "2026-10", 5).await;
        spend(run_id, 2, "2026-11", 7).await;
        spend(other, 1, "2026-11", 100).await;
        let spent = store.run_spending(run_id).await.expect("read").expect("it spent");
        assert_eq!((spent.input_tokens, spent.output_tokens, spent.cost), (20, 2, MicroUsd(12)));
        let month = async |month: &str| store.month_spending(month.to_owned()).await.expect("read");
        let november = month("2026-11").await;
        assert_eq!(
            (november.len(), november[0].spending.cost, november[0].endpoint_id),
            (1, MicroUsd(107), endpoint_id)
        );
        assert_eq!((month("2026-10").await[0].spending.cost, month("2026-12").await.len()), (MicroUsd(5), 0));
    }
}
