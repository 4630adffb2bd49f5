//! Whether the database is consistent: every index and table by amcheck, and no foreign key without its row.

use deskgate_tests::Postgres;
use serde_json::Value;

const INDEXES_QUERY: &str = "SELECT c.oid::regclass::text AS name, c.oid::int8 AS oid FROM pg_class c \
    JOIN pg_am a ON a.oid = c.relam AND a.amname = 'btree' JOIN pg_namespace n ON n.oid = c.relnamespace \
    WHERE c.relkind = 'i' AND n.nspname NOT IN ('pg_toast')";
const TABLES_QUERY: &str = "SELECT c.oid::regclass::text AS name, c.oid::int8 AS oid FROM pg_class c \
    JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.relkind = 'r' AND n.nspname = 'public'";
/// Each foreign key with the join of its two tables and the condition that it is set.
const FOREIGN_KEYS_QUERY: &str = "SELECT conname AS name, conrelid::regclass::text AS child, confrelid::regclass::text AS parent, \
    (SELECT string_agg(format('p.%I = c.%I', pa.attname, ca.attname), ' AND ') \
        FROM unnest(conkey, confkey) AS k(c, p) \
        JOIN pg_attribute ca ON ca.attrelid = conrelid AND ca.attnum = k.c \
        JOIN pg_attribute pa ON pa.attrelid = confrelid AND pa.attnum = k.p) AS joined, \
    (SELECT string_agg(format('c.%I IS NOT NULL', ca.attname), ' AND ') \
        FROM unnest(conkey) AS k(c) JOIN pg_attribute ca ON ca.attrelid = conrelid AND ca.attnum = k.c) AS set \
    FROM pg_constraint WHERE contype = 'f'";

/// Everything that is wrong with it, in words; also if nothing was checked.
pub(crate) async fn flaws(postgres: &Postgres) -> Vec<String> {
    let mut flaws = Vec::new();
    postgres.change("CREATE EXTENSION IF NOT EXISTS amcheck").await;
    let (indexes, tables, keys) = (
        postgres.rows(INDEXES_QUERY).await,
        postgres.rows(TABLES_QUERY).await,
        postgres.rows(FOREIGN_KEYS_QUERY).await,
    );
    if indexes.is_empty() || tables.is_empty() || keys.is_empty() {
        flaws.push(format!(
            "{} indexes, {} tables and {} foreign keys are too few to be judged",
            indexes.len(),
            tables.len(),
            keys.len()
        ));
    }
    for index in &indexes {
        // Every row of the table must be in the index too.
        let check = format!("SELECT bt_index_check({}::regclass, true)", index["oid"]);
        if let Err(error) = postgres.try_run(&check).await {
            flaws.push(format!("index {}: {error}", text(index, "name")));
        }
    }
    for table in &tables {
        let check = format!("SELECT * FROM verify_heapam({}::regclass)", table["oid"]);
        let found = postgres.rows(&check).await;
        flaws.extend(found.iter().map(|flaw| format!("table {}: {flaw}", text(table, "name"))));
    }
    for key in &keys {
        let [child, parent, joined, set] = ["child", "parent", "joined", "set"].map(|name| text(key, name));
        let orphans = format!(
            "SELECT count(*) AS n FROM {child} c WHERE {set} AND NOT EXISTS (SELECT FROM {parent} p WHERE {joined})"
        );
        let orphans = postgres.rows(&orphans).await[0]["n"].as_u64();
        if orphans != Some(0) {
            flaws.push(format!("foreign key {}: {orphans:?} rows point to nothing", text(key, "name")));
        }
    }
    flaws
}

/// The rows of every table, as text.
pub(crate) async fn everything(postgres: &Postgres) -> Vec<(String, String)> {
    let mut everything = Vec::new();
    for table in postgres.rows(TABLES_QUERY).await {
        let name = text(&table, "name").to_owned();
        let rows = postgres.rows(&format!("SELECT * FROM {name}")).await;
        everything.push((name, rows.iter().map(|row| format!("{row}\n")).collect()));
    }
    everything
}

fn text<'a>(row: &'a Value, name: &str) -> &'a str {
    row[name].as_str().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_row_that_points_to_nothing_is_seen() {
        let postgres = Postgres::shared().await;
        postgres.change("CREATE TABLE owners (id int PRIMARY KEY)").await;
        postgres.change("CREATE TABLE things (id int PRIMARY KEY, owner int REFERENCES owners)").await;
        postgres.change("INSERT INTO owners VALUES (1)").await;
        postgres.change("INSERT INTO things VALUES (1, 1), (2, NULL)").await;
        assert_eq!(flaws(&postgres).await, Vec::<String>::new());
        // The rule's check is disabled, as a storage fault would do.
        postgres.change("ALTER TABLE owners DISABLE TRIGGER ALL").await;
        postgres.change("DELETE FROM owners").await;
        let found = flaws(&postgres).await;
        assert!(found.len() == 1 && found[0].contains("things_owner_fkey"), "{found:?}");
    }
}
