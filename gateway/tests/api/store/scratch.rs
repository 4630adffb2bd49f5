//! Temporary databases of backups are gone afterwards, whoever still looks into them.

use deskgate_gateway::store::Database;
use deskgate_gateway::store::backup::ScratchDatabase;

use crate::support::cluster::TestDatabase;
use crate::support::until;

/// How many databases of that name there are.
async fn count(database: &TestDatabase, name: &str) -> String {
    database.value(&format!("SELECT count(*) FROM pg_database WHERE datname = '{name}'")).await
}

async fn name_of(scratch: &ScratchDatabase) -> String {
    let (client, _driver) = scratch.database().connect().await.expect("connected");
    client.query_one("SELECT current_database()::text", &[]).await.expect("answered").get(0)
}

#[tokio::test]
async fn a_connection_that_its_account_may_not_end_is_waited_for() {
    let database = TestDatabase::new().await;
    let role = format!("limited_{}", uuid::Uuid::now_v7().simple());
    database.execute(&format!("CREATE ROLE {role} CREATEDB")).await;
    // The session is a superuser's who took on the account.
    let url = format!("{}?options=-c%20role%3D{role}", database.url());
    let beside = Database::new(&url, None, None).expect("a URL");
    let scratch = ScratchDatabase::create(&beside).await.expect("created");
    let name = name_of(&scratch).await;
    let open = scratch.database().connect().await.expect("connected");

    let removal = tokio::spawn(scratch.remove());
    let waits =
        format!("SELECT count(*) FROM pg_stat_activity WHERE state = 'active' AND query = 'DROP DATABASE {name}'");
    until("the database to wait for its connection", async || database.value(&waits).await == "1").await;
    drop(open);
    removal.await.expect("no panic").expect("dropped");
    assert_eq!(count(&database, &name).await, "0");
    database.execute(&format!("DROP ROLE {role}")).await;
}

#[tokio::test]
async fn a_connection_that_stays_is_ended() {
    let database = TestDatabase::new().await;
    let beside = Database::new(&database.url(), None, None).expect("a URL");
    let scratch = ScratchDatabase::create(&beside).await.expect("created");
    let name = name_of(&scratch).await;
    let _open = scratch.database().connect().await.expect("connected");
    scratch.remove().await.expect("dropped");
    assert_eq!(count(&database, &name).await, "0");
}
