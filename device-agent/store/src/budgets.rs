//! Budgets of a month, and what is spent of each.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use deskgate_definition::{Budget, BudgetScope, BudgetStatus, Spending};
use deskgate_protocol::ids::EndpointId;
use rusqlite::{Transaction, params};

use super::spending::{columns, spending};
use super::{Error, Ledger, Store};

impl Store {
    /// Sets the budget of each month, in place of the one before.
    ///
    /// # Errors
    /// The database cannot be written.
    pub async fn set_budget(&self, scope: BudgetScope, budget: Budget) -> Result<(), Error> {
        let has_no_budget = Arc::clone(&self.has_no_budget);
        self.durably(move |tx| {
            has_no_budget.store(false, Ordering::Relaxed);
            let sql = "INSERT OR REPLACE INTO budget (scope, budget) VALUES (?1, ?2)";
            tx.execute(sql, params![text(&scope), text(&budget)])?;
            Ok(())
        })
        .await
    }

    /// Removes the budget of each month, if there is one.
    ///
    /// # Errors
    /// The database cannot be written.
    pub async fn remove_budget(&self, scope: BudgetScope) -> Result<(), Error> {
        self.durably(move |tx| remove(tx, scope)).await
    }

    /// All budgets, with what was spent of them in a month (`2026-11`).
    ///
    /// # Errors
    /// The database cannot be read, or an entry is damaged.
    pub async fn budgets(&self, month: String) -> Result<Vec<BudgetStatus>, Error> {
        self.lazily(move |tx| statuses(tx, &month)).await
    }
}

impl Ledger {
    /// The budgets that hold for a run of this service, with what was spent of them in a month, this run included. Before
    /// each model call, so where none is set the database is asked once.
    ///
    /// # Errors
    /// The database cannot be read, or an entry is damaged.
    pub async fn budgets(&self, endpoint_id: EndpointId, month: String) -> Result<Vec<BudgetStatus>, Error> {
        if self.store.has_no_budget.load(Ordering::Relaxed) {
            return Ok(Vec::new());
        }
        let has_no_budget = Arc::clone(&self.store.has_no_budget);
        self.store
            .lazily(move |tx| {
                let mut statuses = statuses(tx, &month)?;
                if statuses.is_empty() {
                    has_no_budget.store(true, Ordering::Relaxed);
                    return Ok(statuses);
                }
                let sql = "SELECT app_id FROM service WHERE endpoint_id = ?1";
                let app: Option<String> = rusqlite::OptionalExtension::optional(
                    tx.prepare_cached(sql)?.query_row([endpoint_id.to_string()], |row| row.get(0)),
                )?;
                statuses.retain(|status| match status.scope {
                    BudgetScope::Device => true,
                    BudgetScope::Application(app_id) => app.as_deref() == Some(app_id.to_string().as_str()),
                    BudgetScope::Service(service) => service == endpoint_id,
                });
                Ok(statuses)
            })
            .await
    }
}

/// Removes a budget in a transaction that does more.
pub(super) fn remove(tx: &Transaction<'_>, scope: BudgetScope) -> Result<(), Error> {
    tx.execute("DELETE FROM budget WHERE scope = ?1", [text(&scope)])?;
    Ok(())
}

/// Passes a budget on to another scope that has none.
pub(super) fn pass_on(tx: &Transaction<'_>, from: BudgetScope, to: BudgetScope) -> Result<(), Error> {
    tx.execute("UPDATE budget SET scope = ?2 WHERE scope = ?1", [text(&from), text(&to)])?;
    Ok(())
}

fn statuses(tx: &Transaction<'_>, month: &str) -> Result<Vec<BudgetStatus>, Error> {
    let mut listed = tx.prepare_cached("SELECT scope, budget FROM budget ORDER BY scope")?;
    let rows = listed.query_map([], |row| Ok((row.get::<_, String>(0)?, row.get::<_, String>(1)?)))?;
    let mut statuses = Vec::new();
    for row in rows {
        let (scope, budget) = row?;
        let scope = serde_json::from_str(&scope).map_err(|_| Error::damaged("a budget")(scope))?;
        let budget = serde_json::from_str(&budget).map_err(|_| Error::damaged("a budget")(budget))?;
        statuses.push(BudgetStatus { scope, budget, spent: spent(tx, month, &scope)? });
    }
    Ok(statuses)
}

fn spent(tx: &Transaction<'_>, month: &str, scope: &BudgetScope) -> Result<Spending, Error> {
    let (of, key) = match scope {
        BudgetScope::Device => ("", None),
        BudgetScope::Application(app_id) => {
            ("JOIN service s USING (endpoint_id) WHERE s.app_id", Some(app_id.to_string()))
        }
        BudgetScope::Service(endpoint_id) => ("WHERE m.endpoint_id", Some(endpoint_id.to_string())),
    };
    let of = match key {
        None => "WHERE ?2 IS NULL".to_owned(),
        Some(_) => format!("{of} = ?2"),
    };
    let sums = columns(|column| format!("coalesce(sum(m.{column}), 0)"));
    let sql = format!("SELECT {sums} FROM month_spending m {of} AND m.month = ?1");
    Ok(tx.prepare_cached(&sql)?.query_row(params![month, key], |row| spending(row, 0))?)
}

fn text(value: &impl serde::Serialize) -> String {
    serde_json::to_string(value).expect("identifiers and numbers are JSON")
}

#[cfg(test)]
mod tests {
    use deskgate_definition::MicroUsd;
    use deskgate_protocol::ids::{ApplicationId, RunId};

    use super::*;

    #[tokio::test]
    async fn each_budget_knows_what_its_scope_spent_in_the_month() {
        let folder = tempfile::tempdir().expect("a folder");
        let store = Store::open(folder.path().join("agent.db")).await.expect("opens");
        let (mine, other) = (EndpointId::new(), EndpointId::new());
        let limit = |tokens| Budget { tokens: Some(tokens), cost: None };
        let ledger = store.ledger(RunId::new(), 1);
        let november = || "2026-11".to_owned();
        assert_eq!(ledger.budgets(mine, november()).await.expect("read"), []);
        store.set_budget(BudgetScope::Device, limit(1)).await.expect("written");
        store.set_budget(BudgetScope::Device, limit(1000)).await.expect("replaced");
        store.set_budget(BudgetScope::Service(other), limit(7)).await.expect("written");
        store.set_budget(BudgetScope::Application(ApplicationId::new()), limit(8)).await.expect("written");
        let call = Spending { input_tokens: 10, output_tokens: 1, cost: MicroUsd(5), ..Spending::default() };
        for (service, month) in [(mine, "2026-11"), (other, "2026-11"), (other, "2026-10")] {
            ledger.spend(service, month.to_owned(), call).await;
        }
        let held = ledger.budgets(mine, november()).await.expect("read");
        assert_eq!(held.len(), 1, "{held:?}");
        assert_eq!((held[0].scope, held[0].budget, held[0].spent.tokens()), (BudgetScope::Device, limit(1000), 22));
        let all = store.budgets(november()).await.expect("read");
        let of_other = all.iter().find(|status| status.scope == BudgetScope::Service(other)).expect("listed");
        assert_eq!((all.len(), of_other.spent.tokens(), of_other.spent.cost), (3, 11, MicroUsd(5)));
        for _ in 0..2 {
            store.remove_budget(BudgetScope::Device).await.expect("removed");
        }
        assert_eq!(store.budgets(november()).await.expect("read").len(), 2);
    }
}
