//! A service taken away from its callers, for a time or until it is published again.
//!
//! From the commit of `unpublish` on it accepts nothing. Submissions that were being accepted in that moment are waited
//! for; then every run of it is ended, or asked to stop, as when an application is disabled. Whatever the gateway that
//! began it has left is done by upkeep.

use std::time::Duration;

use deskgate_protocol::management::{ActivityKind, PublishedEndpoint, UnpublishingPreview};
use deskgate_protocol::{DeviceId, EndpointId};
use tokio::time::sleep;
use tokio_postgres::Row;

use super::activity::{ActivityEntry, Owner};
use super::applications::{LIVE_KEY_CONDITION, UNFINISHED_RUNS_SQL};
use super::columns::count;
use super::disabling::{ACCEPTANCE_POLL_INTERVAL, MAX_ROUNDS, STOP_NEEDED_CONDITION};
use super::endpoints::{ENDPOINT_COLUMNS, published};
use super::{Error, Store};

impl Store {
    /// What unpublishing a service of this device would end.
    ///
    /// # Errors
    /// The database does not answer, or refuses the statement.
    pub async fn preview_unpublishing(
        &self,
        device_id: DeviceId,
        endpoint_id: EndpointId,
    ) -> Result<Option<UnpublishingPreview>, Error> {
        let sql = format!(
            "-- unpublishing::preview
            SELECT {ENDPOINT_COLUMNS}, n.*,
                (SELECT count(*) FROM conversations c WHERE c.app_id = e.app_id AND c.endpoint_id = e.endpoint_id)
                    AS conversations,
                (SELECT count(*) FROM application_keys k
                 WHERE k.app_id = e.app_id AND k.endpoints = ARRAY[e.endpoint_id] AND {LIVE_KEY_CONDITION}) AS keys,
                (SELECT count(*) FROM webhooks w WHERE w.endpoint_id = e.endpoint_id AND w.removed_at IS NULL) AS webhooks
            FROM endpoints e JOIN applications a ON a.app_id = e.app_id CROSS JOIN LATERAL (
                SELECT count(*) FILTER (WHERE u.state = 'queued') AS runs_queued,
                    count(*) FILTER (WHERE u.state <> 'queued') AS runs_in_progress
                FROM {UNFINISHED_RUNS_SQL} u WHERE u.endpoint_id = e.endpoint_id) n
            WHERE e.device_id = $1 AND e.endpoint_id = $2"
        );
        let Some(row) = self.durable_opt(&sql, &[&device_id.uuid(), &endpoint_id.uuid()]).await? else {
            return Ok(None);
        };
        Ok(Some(UnpublishingPreview {
            endpoint: published(&row)?,
            runs_queued: count(&row, "runs_queued")?,
            runs_in_progress: count(&row, "runs_in_progress")?,
            conversations: count(&row, "conversations")?,
            keys: count(&row, "keys")?,
            webhooks: count(&row, "webhooks")?,
        }))
    }

    /// Unpublishes a service of this device, and tells its runs to end. One that is closed already has no run left to
    /// tell. `retention`: how long the runs that end by it are kept.
    ///
    /// # Errors
    /// The database does not answer, or refuses the statement.
    pub async fn unpublish(
        &self,
        owner: Owner,
        endpoint_id: EndpointId,
        retention: Duration,
    ) -> Result<Option<PublishedEndpoint>, Error> {
        let sql = format!(
            "-- unpublishing::unpublish
            WITH was AS (
                SELECT endpoint_id AS id, closed_at IS NULL AS fresh FROM endpoints
                WHERE device_id = $1 AND endpoint_id = $2 FOR UPDATE)
            UPDATE endpoints e SET closed_at = coalesce(e.closed_at, now()),
                unpublished_at = coalesce(e.unpublished_at, now()),
                runs_to_tell_as = CASE WHEN fresh THEN $3 ELSE e.runs_to_tell_as END
            FROM was WHERE e.endpoint_id = id
            RETURNING {ENDPOINT_COLUMNS}, fresh, e.runs_to_tell_as IS NOT NULL AS is_to_tell"
        );
        let (device, endpoint, stops_as) = (owner.device_id.uuid(), endpoint_id.uuid(), owner.stops_as());
        let did = did(ActivityKind::ServiceUnpublished);
        let row = self.execute_with_activity(owner, &sql, &[&device, &endpoint, &stops_as.as_str()], did).await?;
        let Some(row) = row else { return Ok(None) };
        if row.try_get("is_to_tell")? && self.accepted_meanwhile().await? {
            for _ in 0..MAX_ROUNDS {
                let told = self.tell_runs_of_what_ended(retention).await?;
                if told == 0 && self.note_runs_of_services_told(Some(endpoint_id)).await? > 0 {
                    break;
                }
                if told == 0 {
                    // Rows that another transaction has locked were left to the next round.
                    sleep(ACCEPTANCE_POLL_INTERVAL).await;
                }
            }
        }
        Ok(Some(published(&row)?))
    }

    /// Notes that all runs of an unpublished service were told to end; without one, of all that were unpublished longer
    /// ago than an acceptance takes. Returns of how many.
    ///
    /// # Errors
    /// The database does not answer, or refuses the statement.
    pub async fn note_runs_of_services_told(&self, endpoint_id: Option<EndpointId>) -> Result<usize, Error> {
        let sql = format!(
            "-- unpublishing::note_runs_told
            UPDATE endpoints e SET runs_to_tell_as = NULL
            WHERE runs_to_tell_as IS NOT NULL
                AND CASE WHEN $1::uuid IS NULL THEN unpublished_at < now() - interval '30 seconds' ELSE endpoint_id = $1 END
                AND NOT EXISTS (SELECT FROM applications a CROSS JOIN LATERAL {UNFINISHED_RUNS_SQL} u
                    WHERE a.app_id = e.app_id AND u.endpoint_id = e.endpoint_id AND {STOP_NEEDED_CONDITION})
            RETURNING 1"
        );
        Ok(self.durable_rows(&sql, &[&endpoint_id.map(EndpointId::uuid)]).await?.len())
    }

    /// Enables or disables a service of this device. `None` if it has no such published service.
    ///
    /// # Errors
    /// The database does not answer, or refuses the statement.
    pub async fn enable_endpoint(
        &self,
        owner: Owner,
        endpoint_id: EndpointId,
        enabled: bool,
    ) -> Result<Option<PublishedEndpoint>, Error> {
        let sql = format!(
            "-- unpublishing::enable
            WITH was AS (
                SELECT endpoint_id AS id, (disabled_at IS NULL) <> $3 AS fresh FROM endpoints
                WHERE device_id = $1 AND endpoint_id = $2 AND closed_at IS NULL FOR UPDATE)
            UPDATE endpoints e SET disabled_at = CASE WHEN NOT $3 THEN coalesce(e.disabled_at, now()) END
            FROM was WHERE e.endpoint_id = id RETURNING {ENDPOINT_COLUMNS}, fresh"
        );
        let what = if enabled { ActivityKind::ServiceEnabled } else { ActivityKind::ServiceDisabled };
        let (device, endpoint) = (owner.device_id.uuid(), endpoint_id.uuid());
        self.execute_with_activity(owner, &sql, &[&device, &endpoint, &enabled], did(what))
            .await?
            .as_ref()
            .map(published)
            .transpose()
    }
}

/// The record of what a statement did, if it changed something.
fn did(what: ActivityKind) -> impl Fn(&Row) -> Result<Option<ActivityEntry>, Error> {
    move |row| {
        if !row.try_get::<_, bool>("fresh")? {
            return Ok(None);
        }
        let PublishedEndpoint { app_id, endpoint_id, name, .. } = published(row)?;
        Ok(Some(ActivityEntry { app_id: Some(app_id), what, about: Some(endpoint_id.to_string()), name: Some(name) }))
    }
}
