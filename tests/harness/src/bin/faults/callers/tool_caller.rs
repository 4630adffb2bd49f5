//! Adds notes one after the other through the service whose tool is on another server.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::sleep;

use super::{ApiReply, CallerContext, submission_to, submitter};
use crate::testbed::CALLER_INPUT;

/// Submits while the pass is open, and waits for the end of each run.
pub(crate) async fn work(business: Arc<CallerContext>, name: String, desktop: usize) {
    let mut caller = business.caller(&name);
    while business.is_open() {
        let job = business.fresh_job();
        let text = format!("job={job} plan=note delay=0 note={CALLER_INPUT}");
        let request = submission_to(&caller.service(desktop).noting_id, desktop, &job, &text, false);
        let Some(run_id) = caller.retry(&request).await.as_ref().and_then(ApiReply::run_id) else { continue };
        submitter::ends(&mut caller.fork("wait"), desktop, &run_id, false).await;
        sleep(Duration::from_millis(caller.dice.within(50, 500))).await;
    }
}
