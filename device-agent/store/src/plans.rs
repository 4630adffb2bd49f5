//! Query plans: statements must not read more as audit and requests grow over a year, because one thread serves all
//! callers.

use super::{Store, approvals, audit, calls, ledger, receipts};

/// The query plan of a statement, from SQLite.
async fn steps(store: &Store, sql: String) -> Vec<String> {
    let explained = format!("EXPLAIN QUERY PLAN {sql}");
    store
        .lazily(move |tx| {
            let mut statement = tx.prepare(&explained)?;
            let mut rows = statement.raw_query();
            let mut steps = Vec::new();
            while let Some(row) = rows.next()? {
                steps.push(row.get("detail")?);
            }
            Ok(steps)
        })
        .await
        .expect("a plan")
}

#[tokio::test]
async fn no_statement_about_requests_or_the_audit_reads_all_of_them() {
    let home = tempfile::tempdir().expect("temporary folder");
    let store = Store::open(home.path().join("deskgate.db")).await.expect("opens");
    // The first two read the few waiting rows; the third reads the first rows of an index, in its order.
    for (sql, index) in [
        (approvals::WAITING_SQL.to_owned(), "approval_waiting"),
        (approvals::waiting(), "approval_waiting"),
        (approvals::answered(), "approval_answered"),
        (approvals::WAITING_OF_RUN_SQL.to_owned(), "approval_"),
        (approvals::of_run(), "approval_by_run"),
        (ledger::ASKED_CALL_SQL.to_owned(), "approval_by_run"),
        (ledger::UNCERTAIN_CALL_SQL.to_owned(), "intent"),
        (audit::newest(true), "audit_by_run"),
        (audit::DELETE_OLD_ROWS_SQL.to_owned(), "audit_by_age"),
        (audit::DELETE_OLD_REQUESTS_SQL.to_owned(), "approval_by_age"),
        (receipts::DELETE_OLD_RECEIPTS_SQL.to_owned(), "receipt_by_age"),
        (calls::delete_old_calls(), "run_call_by_age"),
        (calls::forget_old_requests(), "approval_with_content"),
    ] {
        let steps = steps(&store, sql.clone()).await;
        let uses_index = |step: &String| step.contains("INDEX") && step.contains(index);
        assert!(steps.iter().any(uses_index), "{sql}: {steps:?}");
        let reads_all = |step: &String| {
            let table = ["SCAN approval", "SCAN audit", "SCAN intent"].iter().any(|scan| step.starts_with(scan));
            let few = step.contains("approval_waiting") || step.contains("approval_answered");
            table && !few
        };
        assert!(!steps.iter().any(reads_all), "{sql}: {steps:?}");
        let sorts = steps.iter().any(|step| step.contains("TEMP B-TREE"));
        assert!(!sorts || index == "approval_waiting", "{sql} sorts what may be many: {steps:?}");
    }
    // All runs' newest rows are read in the order of the table itself, and no further than requested.
    assert_eq!(steps(&store, audit::newest(false)).await, ["SCAN audit"]);
    assert_eq!(steps(&store, receipts::LAST_RECEIPT_SQL.to_owned()).await, ["SCAN receipt"]);
    let page = steps(&store, receipts::RECEIPT_PAGE_SQL.to_owned()).await;
    assert_eq!(page, ["SEARCH receipt USING INTEGER PRIMARY KEY (rowid>?)"]);
}
