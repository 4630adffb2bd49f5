//! How much one device and one account may make here, enforced where it is made.
//!
//! Only what is in use counts: applications that are not removed, live keys, services and webhooks that are not closed or
//! removed, listeners that poll. What is made and ended again leaves records behind, so what was made within a day is
//! bounded too. What was there before a quota was lowered stays and works.

use deskgate_protocol::ApplicationId;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Row, Transaction};
use uuid::Uuid;

use super::activity::{self, ActivityEntry, Owner};
use super::columns::{count, word};
use super::{Error, Store, commit, with_timeout};

deskgate_protocol::words! {
    /// What is counted, and for whom. Each is a setting of this name in `limits`.
    pub enum QuotaKind {
        /// Applications that are not removed, of one device.
        ApplicationsPerDevice = "applications_per_device",
        /// The same, of all devices of one account.
        ApplicationsPerAccount = "applications_per_account",
        /// Live keys of one application.
        KeysPerApplication = "keys_per_application",
        /// Callable services of one application.
        ServicesPerApplication = "services_per_application",
        /// Callable services of one device.
        ServicesPerDevice = "services_per_device",
        /// The same, of all devices of one account.
        ServicesPerAccount = "services_per_account",
        /// Webhooks of one application that are not removed.
        WebhooksPerApplication = "webhooks_per_application",
        /// Listeners of one application that have not ended.
        ListenersPerApplication = "listeners_per_application",
    }
}

/// How many times its quota a kind may be made within a day, ended ones included.
pub const MADE_PER_DAY: u32 = 10;

/// The most of each kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quotas([u32; QuotaKind::ALL.len()]);

impl Quotas {
    /// For a gateway on the owner's own desktop: against mistakes only.
    pub const OF_OWN_DESKTOP: Self = Self([10_000; QuotaKind::ALL.len()]);

    /// The most of a kind.
    pub fn limit(&self, kind: QuotaKind) -> u32 {
        self.0[kind as usize]
    }

    /// With another limit of this kind.
    #[must_use]
    pub fn with(mut self, kind: QuotaKind, limit: u32) -> Self {
        self.0[kind as usize] = limit;
        self
    }
}

impl Default for Quotas {
    fn default() -> Self {
        Self(QuotaKind::ALL.map(|kind| match kind {
            QuotaKind::ApplicationsPerDevice | QuotaKind::KeysPerApplication => 32,
            QuotaKind::ApplicationsPerAccount | QuotaKind::ServicesPerApplication => 64,
            QuotaKind::ServicesPerDevice => 128,
            QuotaKind::ServicesPerAccount => 256,
            QuotaKind::WebhooksPerApplication => 50,
            QuotaKind::ListenersPerApplication => 8,
        }))
    }
}

/// A quota that leaves no room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QuotaReached {
    /// The quota.
    pub kind: QuotaKind,
    /// The most.
    pub limit: u32,
    /// How many there are; or how many were made within a day, if that is what leaves no room.
    pub used: u32,
    /// Whether too many were made within a day.
    pub is_of_the_day: bool,
}

/// How much of a quota somebody uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QuotaUse {
    /// The quota.
    pub kind: QuotaKind,
    /// Who uses it, for a person.
    pub owner: String,
    /// How many there are.
    pub used: u32,
    /// The most.
    pub limit: u32,
}

/// What is about to be made, and against which quotas it counts.
pub(super) struct Making<'a> {
    pub(super) kinds: &'a [QuotaKind],
    pub(super) app_id: Option<ApplicationId>,
    /// The service that is published, which may be there already; or the key that is rolled.
    pub(super) about: Option<Uuid>,
    /// Whether something else ends in the same moment.
    pub(super) replaces: bool,
}

/// The owner of a device's quotas: its account, or itself.
const ONE_AT_A_TIME_SQL: &str = "-- quotas::one_at_a_time
    SELECT pg_advisory_xact_lock(hashtextextended('deskgate quotas' || chr(10)
        || coalesce(account_issuer || chr(10) || account_subject, device_id::text), 0)) FROM devices WHERE device_id = $1";

/// $1: the device, $2: the application, $3: the service or the rolled key, $4: the kinds.
const COUNTED_SQL: &str = "-- quotas::counted
    WITH family AS (
        SELECT d.device_id FROM devices d JOIN devices o ON o.device_id = $1 AND o.account_issuer = d.account_issuer
            AND o.account_subject = d.account_subject WHERE d.revoked_at IS NULL)
    SELECT * FROM (
        SELECT 'applications_per_device' AS kind, count(*) FILTER (WHERE state <> 'removed') AS used,
            count(*) FILTER (WHERE created_at > now() - interval '1 day') AS of_the_day, false AS is_there
        FROM applications WHERE device_id = $1
        UNION ALL
        SELECT 'applications_per_account', count(*) FILTER (WHERE state <> 'removed'),
            count(*) FILTER (WHERE created_at > now() - interval '1 day'), false
        FROM applications JOIN family USING (device_id)
        UNION ALL
        SELECT 'keys_per_application',
            count(*) FILTER (WHERE k.revoked_at IS NULL AND coalesce(k.expires_at, 'infinity') > now()),
            count(*) FILTER (WHERE k.created_at > now() - interval '1 day'), false
        FROM application_keys k JOIN applications a USING (app_id) WHERE a.device_id = $1
            AND k.app_id = coalesce($2, (SELECT o.app_id FROM application_keys o WHERE o.key_id = $3))
        UNION ALL
        SELECT 'services_per_application', count(*) FILTER (WHERE closed_at IS NULL),
            count(*) FILTER (WHERE published_at > now() - interval '1 day'),
            coalesce(bool_or(endpoint_id = $3 AND closed_at IS NULL), false)
        FROM endpoints WHERE device_id = $1 AND app_id = $2
        UNION ALL
        SELECT 'services_per_device', count(*) FILTER (WHERE closed_at IS NULL),
            count(*) FILTER (WHERE published_at > now() - interval '1 day'),
            coalesce(bool_or(endpoint_id = $3 AND closed_at IS NULL), false)
        FROM endpoints WHERE device_id = $1
        UNION ALL
        SELECT 'services_per_account', count(*) FILTER (WHERE closed_at IS NULL),
            count(*) FILTER (WHERE published_at > now() - interval '1 day'),
            coalesce(bool_or(endpoint_id = $3 AND closed_at IS NULL), false)
        FROM endpoints JOIN family USING (device_id)
        UNION ALL
        SELECT 'webhooks_per_application', count(*) FILTER (WHERE w.removed_at IS NULL),
            count(*) FILTER (WHERE w.created_at > now() - interval '1 day'), false
        FROM webhooks w JOIN applications a USING (app_id) WHERE a.device_id = $1 AND w.app_id = $2
        UNION ALL
        SELECT 'listeners_per_application', count(*) FILTER (WHERE t.expires_at > now()),
            count(*) FILTER (WHERE t.created_at > now() - interval '1 day'), false
        FROM destinations t JOIN applications a USING (app_id)
        WHERE a.device_id = $1 AND t.app_id = $2 AND t.kind = 'listener'
    ) counted WHERE kind = ANY($4)";

/// Those who use most of each quota.
const HIGHEST_SQL: &str = "-- quotas::highest
    WITH paired AS (SELECT * FROM devices WHERE revoked_at IS NULL),
    apps AS (
        SELECT a.app_id, a.name || ' of ' || d.name AS owner, device_id, d.name AS device,
            d.account_subject || ' at ' || d.account_issuer AS account
        FROM applications a JOIN paired d USING (device_id) WHERE a.state <> 'removed'),
    services AS (
        SELECT e.app_id, a.owner, a.device_id, a.device, a.account FROM endpoints e JOIN apps a USING (app_id)
        WHERE e.closed_at IS NULL)
    (SELECT 'applications_per_device' AS kind, min(device) AS owner, count(*) AS used FROM apps
        GROUP BY device_id ORDER BY 3 DESC LIMIT 3)
    UNION ALL
    (SELECT 'applications_per_account', account, count(*) FROM apps WHERE account IS NOT NULL
        GROUP BY account ORDER BY 3 DESC LIMIT 3)
    UNION ALL
    (SELECT 'keys_per_application', min(owner), count(*) FROM application_keys JOIN apps USING (app_id)
        WHERE revoked_at IS NULL AND coalesce(expires_at, 'infinity') > now()
        GROUP BY app_id ORDER BY 3 DESC LIMIT 3)
    UNION ALL
    (SELECT 'services_per_application', min(owner), count(*) FROM services GROUP BY app_id ORDER BY 3 DESC LIMIT 3)
    UNION ALL
    (SELECT 'services_per_device', min(device), count(*) FROM services GROUP BY device_id ORDER BY 3 DESC LIMIT 3)
    UNION ALL
    (SELECT 'services_per_account', account, count(*) FROM services WHERE account IS NOT NULL
        GROUP BY account ORDER BY 3 DESC LIMIT 3)
    UNION ALL
    (SELECT 'webhooks_per_application', min(owner), count(*) FROM webhooks JOIN apps USING (app_id)
        WHERE removed_at IS NULL GROUP BY app_id ORDER BY 3 DESC LIMIT 3)
    UNION ALL
    (SELECT 'listeners_per_application', min(owner), count(*) FROM destinations JOIN apps USING (app_id)
        WHERE kind = 'listener' AND expires_at > now() GROUP BY app_id ORDER BY 3 DESC LIMIT 3)";

impl Store {
    /// The same with other quotas.
    #[must_use]
    pub fn with_quotas(self, quotas: Quotas) -> Self {
        Self { quotas, ..self }
    }

    /// The quotas that this handle enforces.
    pub fn quotas(&self) -> &Quotas {
        &self.quotas
    }

    /// Executes a statement that makes one thing and records it, if the quotas leave room for it. Whoever else makes
    /// something for the same device or account waits until that is committed.
    pub(super) async fn execute_within_quotas(
        &self,
        owner: Owner,
        making: &Making<'_>,
        sql: &str,
        params: &[&(dyn ToSql + Sync)],
        did: impl Fn(&Row) -> Result<Option<ActivityEntry>, Error>,
    ) -> Result<Result<Option<Row>, QuotaReached>, Error> {
        with_timeout(async {
            let mut client = self.client().await?;
            let transaction = client.transaction().await?;
            transaction.query_opt(ONE_AT_A_TIME_SQL, &[&owner.device_id.uuid()]).await?;
            if let Some(reached) = self.reached(&transaction, owner, making).await? {
                transaction.rollback().await?;
                client.give_back();
                return Ok(Err(reached));
            }
            let row = transaction.query_opt(sql, params).await?;
            if let Some(note) = row.as_ref().map(&did).transpose()?.flatten() {
                activity::write(&transaction, owner, &note).await?;
            }
            commit(transaction, "quotas::made").await?;
            client.give_back();
            Ok(Ok(row))
        })
        .await
    }

    async fn reached(
        &self,
        transaction: &Transaction<'_>,
        owner: Owner,
        making: &Making<'_>,
    ) -> Result<Option<QuotaReached>, Error> {
        let kinds: Vec<_> = making.kinds.iter().map(|kind| kind.as_str()).collect();
        let app_id = making.app_id.map(ApplicationId::uuid);
        let params: [&(dyn ToSql + Sync); 4] = [&owner.device_id.uuid(), &app_id, &making.about, &kinds];
        let mut reached = Vec::new();
        for row in transaction.query(COUNTED_SQL, &params).await? {
            let kind: QuotaKind = word(row.try_get("kind")?)?;
            let (limit, used, of_the_day) = (self.quotas.limit(kind), count(&row, "used")?, count(&row, "of_the_day")?);
            if row.try_get("is_there")? {
                continue;
            }
            if used >= limit && !making.replaces {
                reached.push(QuotaReached { kind, limit, used, is_of_the_day: false });
            } else if of_the_day >= limit.saturating_mul(MADE_PER_DAY) {
                reached.push(QuotaReached { kind, limit, used: of_the_day, is_of_the_day: true });
            }
        }
        Ok(reached.into_iter().min_by_key(|reached| reached.kind as usize))
    }

    /// Who uses most of each quota: up to three of each kind, without removed devices.
    ///
    /// # Errors
    /// The database does not answer, or refuses the statement.
    pub async fn highest_use(&self) -> Result<Vec<QuotaUse>, Error> {
        let of_row = |row: &Row| {
            let kind: QuotaKind = word(row.try_get("kind")?)?;
            let (owner, used) = (row.try_get("owner")?, count(row, "used")?);
            Ok(QuotaUse { kind, owner, used, limit: self.quotas.limit(kind) })
        };
        self.relaxed_rows(HIGHEST_SQL, &[]).await?.iter().map(of_row).collect()
    }
}
