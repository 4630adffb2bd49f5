//! Conversations: get or create, read.

use deskgate_protocol::conversation::{Conversation, ConversationState};
use deskgate_protocol::management::OwnConversation;
use deskgate_protocol::{ApplicationId, ConversationId, DeviceId, EndpointId, RunId};
use tokio_postgres::types::ToSql;
use tokio_postgres::{Row, Transaction};

use super::columns::word;
use super::endpoints::{EndpointLife, LIFE_SQL};
use super::requests::{self, RequestKey, RequestResult};
use super::{Error, MAX_CONFLICT_RETRIES, Page, PagePosition, Store, commit, with_timeout};

/// A conversation to be opened.
#[derive(Clone, Debug)]
pub struct ConversationOpening {
    /// Its identifier, if it is created.
    pub conversation_id: ConversationId,
    /// The application.
    pub app_id: ApplicationId,
    /// The subject.
    pub subject: String,
    /// The service.
    pub endpoint_id: EndpointId,
    /// The caller's name for it.
    pub conversation_key: String,
    /// The request, if it is to be found again.
    pub request: Option<RequestKey>,
    /// Whether the rate allows a new conversation. The result of an earlier request is found all the same.
    pub within_rate: bool,
}

/// The filter of a caller's list of conversations.
#[derive(Clone, Debug)]
pub struct ConversationQuery<'a> {
    /// The application.
    pub app_id: ApplicationId,
    /// The subject.
    pub subject: &'a str,
    /// Only with these services; empty: with all.
    pub endpoints: Vec<EndpointId>,
    /// Only with this key of the caller.
    pub conversation_key: Option<&'a str>,
    /// Only entries after this position, newest first.
    pub before: Option<PagePosition>,
}

/// The outcome of an opening.
#[derive(Clone, Debug)]
pub enum OpeningOutcome {
    /// The conversation exists.
    There {
        /// Its record.
        conversation: Conversation,
        /// Whether this request, now or when it came first, made it.
        made: bool,
        /// Whether the request was repeated.
        replayed: bool,
    },
    /// The request's identity belongs to another body.
    Reused(RequestResult),
    /// The application has no such published service.
    NoSuchEndpoint,
    /// The application was disabled after its key was checked.
    Disabled,
    /// The desktop user paused access.
    Paused,
    /// The desktop user disabled the service.
    ServiceDisabled,
    /// It would be there, but the request is beyond the rate.
    OverRate,
}

impl Store {
    /// The conversation of this application, subject, service and key; created if it does not exist.
    ///
    /// # Errors
    /// The database does not answer, or refuses the statement. [`Error::Unavailable`]: a twin of the request is faster
    /// at each try.
    pub async fn open_conversation(&self, opening: &ConversationOpening) -> Result<OpeningOutcome, Error> {
        with_timeout(async {
            let mut client = self.client().await?;
            for _ in 0..MAX_CONFLICT_RETRIES {
                let transaction = client.transaction().await?;
                match open(&transaction, opening).await? {
                    Some(opened) => {
                        commit(transaction, "conversations::open").await?;
                        client.give_back();
                        return Ok(opened);
                    }
                    None => transaction.rollback().await?,
                }
            }
            Err(Error::Unavailable("a twin of this request was always faster".to_owned()))
        })
        .await
    }

    /// One conversation of this application and subject.
    ///
    /// # Errors
    /// The database does not answer, or refuses the statement.
    pub async fn conversation(
        &self,
        app_id: ApplicationId,
        subject: &str,
        conversation_id: ConversationId,
    ) -> Result<Option<Conversation>, Error> {
        let sql = "-- conversations::conversation
            SELECT * FROM conversations WHERE conversation_id = $1 AND app_id = $2 AND subject = $3";
        let row = self.durable_opt(sql, &[&conversation_id.uuid(), &app_id.uuid(), &subject]).await?;
        row.as_ref().map(conversation).transpose()
    }

    /// One conversation of this device's applications, of any subject.
    ///
    /// # Errors
    /// The database does not answer, or refuses the statement.
    pub async fn conversation_of_device(
        &self,
        device_id: DeviceId,
        conversation_id: ConversationId,
    ) -> Result<Option<OwnConversation>, Error> {
        let sql = "-- conversations::conversation_of_device
            SELECT * FROM conversations WHERE conversation_id = $1 AND device_id = $2";
        let row = self.durable_opt(sql, &[&conversation_id.uuid(), &device_id.uuid()]).await?;
        row.as_ref().map(own).transpose()
    }

    /// These conversations of any application, in no order: for receivers that subscribed to them.
    ///
    /// # Errors
    /// The database does not answer, or refuses the statement.
    pub async fn conversations_for_deliveries(
        &self,
        conversations: &[ConversationId],
    ) -> Result<Vec<Conversation>, Error> {
        let sql = "-- conversations::told
            SELECT * FROM conversations WHERE conversation_id = ANY($1)";
        let ids: Vec<_> = conversations.iter().map(|id| id.uuid()).collect();
        self.durable_rows(sql, &[&ids]).await?.iter().map(conversation).collect()
    }

    /// A page of a caller's conversations, newest first.
    ///
    /// # Errors
    /// The database does not answer, or refuses the statement.
    pub async fn conversations_of_caller(
        &self,
        sought: &ConversationQuery<'_>,
        limit: u32,
    ) -> Result<Page<Conversation>, Error> {
        let sql = "-- conversations::of_caller
            SELECT * FROM conversations WHERE app_id = $1 AND subject = $2 AND (created_at, conversation_id) < ($3, $4)
                AND ($5::uuid[] IS NULL OR endpoint_id = ANY($5)) AND ($6::text IS NULL OR conversation_key = $6)
            ORDER BY created_at DESC, conversation_id DESC LIMIT $7";
        let before = sought.before.unwrap_or(PagePosition::LIST_START);
        let endpoints: Vec<_> = sought.endpoints.iter().map(|id| id.uuid()).collect();
        let endpoints = Some(endpoints).filter(|endpoints| !endpoints.is_empty());
        // One more shows whether there are more.
        let (app_id, count) = (sought.app_id.uuid(), i64::from(limit) + 1);
        let params: [&(dyn ToSql + Sync); 7] =
            [&app_id, &sought.subject, &before.moment, &before.id, &endpoints, &sought.conversation_key, &count];
        let rows = self.filtered_rows(sql, &params).await?;
        let read = rows.iter().map(conversation).collect::<Result<_, _>>()?;
        let place = |read: &Conversation| PagePosition { moment: read.created_at.0, id: read.conversation_id.uuid() };
        Ok(Page::of(read, limit, place))
    }
}

/// `None` when another commit came between: try again.
async fn open(transaction: &Transaction<'_>, opening: &ConversationOpening) -> Result<Option<OpeningOutcome>, Error> {
    let ConversationOpening { conversation_id, app_id, subject, endpoint_id, conversation_key, request, within_rate } =
        opening;
    if let Some(request) = request
        && let Some(known) = requests::find_request(transaction, request).await?
    {
        return replay(transaction, request, &known).await;
    }
    let sql = format!(
        "-- conversations::create
        INSERT INTO conversations (conversation_id, app_id, subject, endpoint_id, device_id, conversation_key)
        SELECT $1, e.app_id, $3, e.endpoint_id, e.device_id, $5
        FROM endpoints e JOIN devices d ON d.device_id = e.device_id AND d.revoked_at IS NULL
        WHERE e.endpoint_id = $4 AND e.app_id = $2 AND {LIFE_SQL} = 'open' AND d.access_enabled AND $6
        ON CONFLICT (app_id, subject, endpoint_id, conversation_key) DO NOTHING RETURNING *"
    );
    let (id, app, endpoint) = (conversation_id.uuid(), app_id.uuid(), endpoint_id.uuid());
    let made = transaction.query_opt(&sql, &[&id, &app, subject, &endpoint, conversation_key, within_rate]).await?;
    let there = match &made {
        Some(_) => None,
        None => {
            let sql = "-- conversations::by_key
                SELECT * FROM conversations
                WHERE app_id = $1 AND subject = $2 AND endpoint_id = $3 AND conversation_key = $4";
            transaction.query_opt(sql, &[&app, subject, &endpoint, conversation_key]).await?
        }
    };
    let Some(row) = made.as_ref().or(there.as_ref()) else {
        let sql = format!(
            "-- conversations::why_not
            SELECT d.access_enabled, {LIFE_SQL} FROM endpoints e
            JOIN devices d ON d.device_id = e.device_id AND d.revoked_at IS NULL
            WHERE e.endpoint_id = $1 AND e.app_id = $2"
        );
        let Some(row) = transaction.query_opt(&sql, &[&endpoint, &app]).await? else {
            return Ok(Some(OpeningOutcome::NoSuchEndpoint));
        };
        return Ok(match word(row.try_get(1)?)? {
            EndpointLife::Unpublished => Some(OpeningOutcome::NoSuchEndpoint),
            EndpointLife::Closed => Some(OpeningOutcome::Disabled),
            _ if !row.try_get::<_, bool>(0)? => Some(OpeningOutcome::Paused),
            EndpointLife::Disabled => Some(OpeningOutcome::ServiceDisabled),
            EndpointLife::Open => (!within_rate).then_some(OpeningOutcome::OverRate),
        });
    };
    if !within_rate {
        return Ok(Some(OpeningOutcome::OverRate));
    }
    let (conversation, made) = (conversation(row)?, made.is_some());
    let existing = RequestResult::Conversation(conversation.conversation_id);
    let first = match request {
        Some(request) => requests::remember(transaction, request, existing, made).await?,
        None => true,
    };
    Ok(first.then_some(OpeningOutcome::There { conversation, made, replayed: false }))
}

/// `None` when the conversation no longer exists: then the request is not known either.
async fn replay(
    transaction: &Transaction<'_>,
    request: &RequestKey,
    known: &requests::StoredRequest,
) -> Result<Option<OpeningOutcome>, Error> {
    let RequestResult::Conversation(id) = known.existing else {
        return Ok(Some(OpeningOutcome::Reused(known.existing)));
    };
    if known.fingerprint != request.fingerprint {
        return Ok(Some(OpeningOutcome::Reused(known.existing)));
    }
    let sql = "SELECT * FROM conversations WHERE conversation_id = $1 -- conversations::replayed";
    let row = transaction.query_opt(sql, &[&id.uuid()]).await?;
    let there = row.as_ref().map(conversation).transpose()?;
    Ok(there.map(|conversation| OpeningOutcome::There { conversation, made: known.made, replayed: true }))
}

pub(super) fn own(row: &Row) -> Result<OwnConversation, Error> {
    let app_id = row.try_get::<_, uuid::Uuid>("app_id")?.into();
    Ok(OwnConversation { app_id, subject: row.try_get("subject")?, conversation: conversation(row)? })
}

pub(super) fn conversation(row: &Row) -> Result<Conversation, Error> {
    let active_run_id: Option<uuid::Uuid> = row.try_get("active_run_id")?;
    let reset: Option<uuid::Uuid> = row.try_get("reset_operation_id")?;
    Ok(Conversation {
        conversation_id: row.try_get::<_, uuid::Uuid>("conversation_id")?.into(),
        endpoint_id: row.try_get::<_, uuid::Uuid>("endpoint_id")?.into(),
        conversation_key: row.try_get("conversation_key")?,
        generation: row.try_get::<_, i32>("generation")?.unsigned_abs(),
        state: match (active_run_id, reset) {
            (Some(_), _) => ConversationState::Busy,
            (None, Some(_)) => ConversationState::Resetting,
            (None, None) => ConversationState::Idle,
        },
        active_run_id: active_run_id.map(RunId::from),
        created_at: row.try_get::<_, jiff::Timestamp>("created_at")?.into(),
        updated_at: row.try_get::<_, jiff::Timestamp>("updated_at")?.into(),
    })
}
