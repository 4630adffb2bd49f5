//! F13: the gateways' writes fail at random with the errors of a lost race, at the statement or at its commit.

use anyhow::{Context, ensure};
use deskgate_tests::{Postgres, until};
use std::time::Duration;
use tokio::time::sleep;

use super::one_of;
use crate::plan::PlannedFault;
use crate::testbed::Testbed;

/// The schema of all objects of this fault, so that one statement removes them.
const SCHEMA_NAME: &str = "lost_races";
/// The percentages of failing statements. At a commit each changed row counts once.
const STATEMENT_FAILURE_PERCENTS: [u32; 4] = [3, 10, 25, 60];
const ROW_FAILURE_PERCENTS: [u32; 4] = [1, 3, 8, 20];
/// Tables that are written to, except the one that only migrations write.
const TABLES_QUERY: &str = "SELECT quote_ident(tablename) AS name FROM pg_tables \
    WHERE schemaname = 'public' AND tablename <> 'deskgate_migrations' ORDER BY tablename";

/// Makes a share of all writes fail for as long as planned: half with a serialization failure, half with a deadlock.
pub(crate) async fn lose(testbed: &Testbed, planned: &PlannedFault) -> anyhow::Result<String> {
    let postgres = &testbed.postgres;
    let at_commit = !planned.manner.is_multiple_of(2);
    let shares = if at_commit { ROW_FAILURE_PERCENTS } else { STATEMENT_FAILURE_PERCENTS };
    let share = shares[one_of(planned.manner / 2, shares.len())];
    insist(postgres, &function(share)).await;
    let tables = postgres.rows(TABLES_QUERY).await;
    for table in &tables {
        let name = table["name"].as_str().context("a table has a name")?;
        insist(postgres, &trigger(name, at_commit)).await;
    }
    sleep(Duration::from_millis(planned.lasts_ms)).await;
    let lost = postgres.rows(&format!("SELECT last_value - 1 AS n FROM {SCHEMA_NAME}.count")).await[0]["n"].as_u64();
    for table in &tables {
        let name = table["name"].as_str().context("a table has a name")?;
        insist(postgres, &format!("DROP TRIGGER IF EXISTS {SCHEMA_NAME} ON {name}")).await;
    }
    insist(postgres, &format!("DROP SCHEMA IF EXISTS {SCHEMA_NAME} CASCADE")).await;
    let (lost, when) = (lost.unwrap_or_default(), if at_commit { "rows at their commit" } else { "statements" });
    ensure!(lost > 0, "nobody wrote anything that could fail");
    Ok(format!(
        "{lost} times one of {} tables failed for {} ms: {share} of a hundred {when}",
        tables.len(),
        planned.lasts_ms
    ))
}

/// A sequence counts the failures, because it is not rolled back with the failed transaction.
fn function(share: u32) -> String {
    format!(
        "DROP SCHEMA IF EXISTS {SCHEMA_NAME} CASCADE; CREATE SCHEMA {SCHEMA_NAME}; \
         CREATE SEQUENCE {SCHEMA_NAME}.count; SELECT nextval('{SCHEMA_NAME}.count'); \
         CREATE FUNCTION {SCHEMA_NAME}.lose() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN \
             IF random() * 100 < {share} THEN \
                 PERFORM nextval('{SCHEMA_NAME}.count'); \
                 IF random() < 0.5 THEN \
                     RAISE 'could not serialize access, on purpose' USING ERRCODE = 'serialization_failure'; \
                 END IF; \
                 RAISE 'deadlock detected, on purpose' USING ERRCODE = 'deadlock_detected'; \
             END IF; \
             RETURN NULL; \
         END $$"
    )
}

fn trigger(table: &str, at_commit: bool) -> String {
    let again = format!("DROP TRIGGER IF EXISTS {SCHEMA_NAME} ON {table}; ");
    let made = if at_commit {
        format!(
            "CREATE CONSTRAINT TRIGGER {SCHEMA_NAME} AFTER INSERT OR UPDATE OR DELETE ON {table} \
             DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION {SCHEMA_NAME}.lose()"
        )
    } else {
        format!(
            "CREATE TRIGGER {SCHEMA_NAME} BEFORE INSERT OR UPDATE OR DELETE ON {table} \
             FOR EACH STATEMENT EXECUTE FUNCTION {SCHEMA_NAME}.lose()"
        )
    };
    again + &made
}

/// Schema changes wait for the table's users and may themselves lose a race, so they are repeated with a short timeout.
async fn insist(postgres: &Postgres, statements: &str) {
    let statements = format!("SET lock_timeout = '300ms'; {statements}");
    until("the tables to be changed", async || postgres.try_run(&statements).await.map_err(|error| error.to_string()))
        .await;
}
