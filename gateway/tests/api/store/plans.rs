//! A desktop user's lists are found by an index of their own, however many rows others have.

use deskgate_gateway::store::device_lists::DeviceConversationQuery;
use deskgate_protocol::ConversationId;
use deskgate_protocol::management::ListDeliveries;

use super::{TestStore, quoted};
use crate::support::gateway::DeviceFixture;
use crate::support::until;

#[tokio::test]
async fn a_devices_conversations_and_their_messages_are_found_without_reading_those_of_others() {
    let test_store = TestStore::new().await;
    let others = DeviceFixture::pair(&test_store.store).await;
    let mut messages = Vec::new();
    for _ in 0..3 {
        messages.insert(0, test_store.queue().await);
    }
    let TestStore { database, store, device } = test_store;
    for (of, count) in [(&device, 2), (&others, 1000)] {
        let endpoint = quoted(of.endpoint.uuid());
        let rows = format!(
            "INSERT INTO conversations (conversation_id, app_id, subject, endpoint_id, device_id, conversation_key)
            SELECT gen_random_uuid(), app_id, 'anna', endpoint_id, device_id, number
            FROM endpoints, generate_series(1, {count}) number WHERE endpoint_id = {endpoint}"
        );
        database.execute(&rows).await;
    }
    let page = store
        .conversations_of_device(device.device_id, &DeviceConversationQuery::default(), 10)
        .await
        .expect("read")
        .entries;
    assert_eq!(page.len(), 2);
    let first: ConversationId = page[0].conversation.conversation_id;
    let said = format!(
        "UPDATE runs SET conversation_id = {}, generation = 1 WHERE run_id <> {}",
        quoted(first.uuid()),
        quoted(messages.pop().expect("the oldest").uuid())
    );
    database.execute(&said).await;
    let found = store.runs_of_conversation(&page[0], 10).await.expect("read");
    assert_eq!(found.iter().map(|stored| stored.run.run_id).collect::<Vec<_>>(), messages);
    assert!(found.iter().all(|stored| stored.run.input.is_none()));

    // Closed connections have reported everything to the server.
    drop((store, device, others));
    for index in ["conversations_by_device", "runs_by_conversation"] {
        let read = format!("SELECT sum(idx_tup_read) FROM pg_stat_user_indexes WHERE indexrelname = '{index}'");
        until(index, async || database.value(&read).await == "2").await;
    }
    let past_them = "SELECT sum(idx_scan) FROM pg_stat_user_indexes
        WHERE indexrelname IN ('conversations_pkey', 'runs_by_caller')";
    assert_eq!(database.value(past_them).await, "0");
}

#[tokio::test]
async fn a_devices_deliveries_are_found_without_reading_those_of_others() {
    let test_store = TestStore::new().await;
    let others = DeviceFixture::pair(&test_store.store).await;
    let TestStore { database, store, device } = test_store;
    // Those of others are newer.
    for (of, count, newer) in [(&device, 3, 1), (&others, 2000, 2)] {
        let (app, to) = (quoted(of.app.id.uuid()), quoted(uuid::Uuid::from_u128(newer)));
        let rows = format!(
            "WITH there AS (
                INSERT INTO destinations (destination_id, app_id, kind, url, host, types, sealed_secret)
                VALUES ({to}, {app}, 'callback', 'https://a.example/', 'a.example', '{{run.succeeded}}', ''))
            INSERT INTO deliveries (delivery_id, destination_id, app_id, event_id, type, event_at, data)
            SELECT ('{newer:08}' || lpad(to_hex(number), 24, '0'))::uuid, {to}, {app}, gen_random_uuid(), 'webhook.test', now(), '{{}}'
            FROM generate_series(1, {count}) number"
        );
        database.execute(&rows).await;
    }
    database.execute("ANALYZE deliveries").await;
    let read = "SELECT sum(idx_tup_read) + (SELECT seq_tup_read FROM pg_stat_user_tables WHERE relname = 'deliveries')
        FROM pg_stat_user_indexes WHERE relname = 'deliveries'";
    let looks = async || database.value(read).await.parse::<u64>().expect("a number");
    let before = looks().await;
    let sought = ListDeliveries { limit: 2, ..ListDeliveries::default() };
    let page = store.own_deliveries(Some(device.device_id), &sought).await.expect("read");
    assert_eq!(page.deliveries.len(), 2);
    let rest = ListDeliveries { before: page.next, ..sought };
    let rest = store.own_deliveries(Some(device.device_id), &rest).await.expect("read");
    assert_eq!((rest.deliveries.len(), rest.next), (1, None));
    let anybodys = store.own_deliveries(None, &sought).await.expect("read");
    assert!(anybodys.deliveries.iter().all(|own| own.app_id == others.app.id) && anybodys.next.is_some());

    // Closed connections have reported everything to the server.
    drop((store, device, others));
    until("the reads to be told", async || looks().await >= before + 8).await;
    assert!(looks().await < before + 40, "three pages read {} entries", looks().await - before);
}
