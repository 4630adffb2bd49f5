//! Resets a conversation without messages from every gateway at once, each time in its present generation. One reset
//! wins, or all get the same operation.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use tokio::time::sleep;

use super::{ApiReply, ApiRequest, Caller, CallerContext, converser};
use crate::history::AnswerContent;
use crate::testbed::REPLICA_COUNT;

/// Races while the pass is open.
pub(crate) async fn work(business: Arc<CallerContext>, name: String, desktop: usize) {
    let mut caller = business.caller(&name);
    let Some(conversation) = converser::open(&mut caller, desktop, "a race").await else { return };
    while business.is_open() {
        let seen = caller.retry(&converser::looks(desktop, &conversation)).await.map(|reply| reply.seen);
        if let Some(AnswerContent::Conversation { generation, .. }) = seen {
            race(&mut caller, desktop, &conversation, generation).await;
        }
        sleep(Duration::from_millis(caller.dice.within(50, 300))).await;
    }
}

/// Runs one race, and waits until its resets are completed.
async fn race(caller: &mut Caller, desktop: usize, conversation: &str, generation: u64) {
    let operation = caller.next_operation();
    let requests: [ApiRequest; REPLICA_COUNT] =
        std::array::from_fn(|_| converser::resets(caller, desktop, conversation, generation));
    let asked = requests.iter().enumerate().map(|(replica, request)| caller.ask(operation, request, replica));
    let begun = |reply: ApiReply| match reply.seen {
        AnswerContent::Operation { operation_id, .. } => Some(operation_id),
        _ => None,
    };
    let begun: BTreeSet<_> = join_all(asked).await.into_iter().flatten().filter_map(begun).collect();
    for operation_id in begun {
        caller.completed(desktop, &operation_id).await;
    }
}
