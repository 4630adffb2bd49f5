//! Deliveries: the list, their attempts, and sending again.

use askama::Template;
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Redirect, Response};
use deskgate_protocol::Timestamp;
use deskgate_protocol::delivery::{Delivery, DeliveryErrorCode, DeliveryState};
use deskgate_protocol::ids::{ApplicationId, DeliveryId};
use deskgate_protocol::management::{
    DeliveryAttempt, DeliveryDetail, DestinationKind, ListDeliveries, OwnDelivery, RecoverDeliveries, ResendDelivery,
    ShowDelivery,
};
use serde::Deserialize;

use super::auth::Visitor;
use super::fields::{FormFields, older};
use super::frame::{Frame, Section};
use super::labels::{DurationText, Shape, TimeLabel};
use super::overview::Names;
use super::{PageError, Pages};
use crate::local::ErrorReplyCode;

/// How many deliveries one page shows.
const DELIVERIES_PER_PAGE: u32 = 50;

/// A delivery with its names.
pub(super) struct DeliveryRow {
    pub(super) own: OwnDelivery,
    pub(super) application: String,
}

impl DeliveryRow {
    pub(super) fn new(own: OwnDelivery, names: &Names) -> Self {
        Self { application: names.application(own.app_id), own }
    }

    pub(super) fn delivery(&self) -> &Delivery {
        &self.own.delivery
    }

    pub(super) fn state(&self) -> (Shape, &'static str) {
        let delivery = self.delivery();
        match (delivery.state, delivery.attempt, self.last()) {
            (DeliveryState::Pending, 0, _) => (Shape::Waiting, "Pending"),
            (DeliveryState::Pending, _, None) => (Shape::Active, "Under way"),
            (DeliveryState::Pending, ..) => (Shape::Bad, "Failed, tried again"),
            (DeliveryState::Delivered, ..) => (Shape::Good, "Delivered"),
            (DeliveryState::Exhausted, ..) => (Shape::Bad, "Failed for good"),
            (DeliveryState::Discarded, ..) => (Shape::Over, "Discarded"),
        }
    }

    /// The result of the last attempt.
    pub(super) fn last(&self) -> Option<String> {
        let delivery = self.delivery();
        came(delivery.status_code, delivery.error_code)
    }

    pub(super) fn to_listener(&self) -> bool {
        self.own.to == DestinationKind::Listener
    }
}

fn came(status: Option<u16>, error: Option<DeliveryErrorCode>) -> Option<String> {
    match (status, error) {
        (Some(status), _) => Some(status.to_string()),
        (None, Some(error)) => Some(meaning(error).to_owned()),
        (None, None) => None,
    }
}

/// Why there was no answer, in words for people.
fn meaning(error: DeliveryErrorCode) -> &'static str {
    match error {
        DeliveryErrorCode::HostNotAllowed => "its host is not allowed",
        DeliveryErrorCode::HostNotPublic => "its name leads to an address that is not public",
        DeliveryErrorCode::DnsFailed => "DNS lookup failed",
        DeliveryErrorCode::ConnectFailed => "nothing takes connections there",
        DeliveryErrorCode::ConnectTimeout => "the connection took too long",
        DeliveryErrorCode::CertificateInvalid => "its certificate is not good for its name",
        DeliveryErrorCode::TlsFailed => "no secure connection",
        DeliveryErrorCode::Timeout => "no answer in time",
        DeliveryErrorCode::BadAnswer => "the answer is not HTTP",
        DeliveryErrorCode::Misconfigured => "its address or secret cannot be used",
        DeliveryErrorCode::TooLarge => "too large for a listener",
    }
}

/// The filter of the list. An empty field is ignored.
#[derive(Debug, Default, Deserialize)]
pub(super) struct DeliveriesQuery {
    #[serde(default)]
    before: String,
    #[serde(default)]
    state: String,
    #[serde(default)]
    app: String,
    #[serde(default)]
    run: String,
}

impl DeliveriesQuery {
    /// The request; an invalid value counts as empty.
    fn request(&self) -> ListDeliveries {
        ListDeliveries {
            limit: DELIVERIES_PER_PAGE,
            before: self.before.parse().ok(),
            app_id: self.app.parse().ok(),
            run_id: self.run.parse().ok(),
            state: self.state.parse().ok(),
        }
    }

    fn is_narrow(&self) -> bool {
        [&self.state, &self.app, &self.run].iter().any(|field| !field.is_empty())
    }

    /// The address of the page that begins at `before`, with the same filters.
    fn from(&self, before: DeliveryId) -> String {
        older("/deliveries", &[("state", &self.state), ("app", &self.app), ("run", &self.run)], before)
    }
}

#[derive(Template)]
#[template(path = "deliveries.html")]
struct DeliveriesPage {
    frame: Frame,
    rows: Vec<DeliveryRow>,
    older: Option<String>,
    filter: DeliveriesQuery,
    names: Names,
}

impl DeliveriesPage {
    /// Whether it shows the newest, which change.
    fn first(&self) -> bool {
        self.filter.before.is_empty()
    }

    fn states(&self) -> impl Iterator<Item = (DeliveryState, &'static str, bool)> {
        let word = |state| match state {
            DeliveryState::Pending => "Pending",
            DeliveryState::Delivered => "Delivered",
            DeliveryState::Exhausted => "Failed for good",
            DeliveryState::Discarded => "Discarded",
        };
        DeliveryState::ALL.iter().map(move |state| (*state, word(*state), state.as_str() == self.filter.state))
    }
}

/// `GET /deliveries`
pub(super) async fn list(
    State(pages): State<Pages>,
    visitor: Visitor,
    Query(filter): Query<DeliveriesQuery>,
) -> Result<Response, PageError> {
    let (frame, names, page) = tokio::join!(
        Frame::new(&pages, &visitor, Section::Deliveries, "Deliveries"),
        Names::new(&pages),
        pages.handler().manage(filter.request())
    );
    let page = page?;
    let older = page.next.map(|before| filter.from(before));
    let rows = page.deliveries.into_iter().map(|own| DeliveryRow::new(own, &names)).collect();
    Ok(super::html(StatusCode::OK, &DeliveriesPage { frame, rows, older, filter, names }))
}

#[derive(Template)]
#[template(path = "delivery.html")]
struct DeliveryPage {
    frame: Frame,
    row: DeliveryRow,
    attempts: Vec<AttemptRow>,
}

/// The width of the picture of attempts, in its own units.
const PICTURE_WIDTH: i64 = 600;
/// A narrower bar could not be seen.
const MIN_BAR_WIDTH: i64 = 4;

/// One attempt in the picture, or the next one.
struct AttemptBar {
    class: &'static str,
    x: i64,
    width: i64,
}

impl DeliveryPage {
    /// From the queueing to the last thing that happened or will happen.
    fn span(&self) -> (i64, i64) {
        let at = |time: Timestamp| time.0.as_millisecond();
        let from = at(self.row.delivery().created_at);
        let ends =
            self.attempts.iter().map(|row| at(row.attempt.started_at) + row.attempt.duration_ms.map_or(0, i64::from));
        let to = ends.chain(self.row.delivery().next_attempt_at.map(at)).max().unwrap_or(from);
        (from, to.max(from + 1))
    }

    /// The attempts where they stand in time.
    fn bars(&self) -> Vec<AttemptBar> {
        let (from, to) = self.span();
        let room = PICTURE_WIDTH - MIN_BAR_WIDTH;
        let place = |at: i64| (at - from).clamp(0, to - from) * room / (to - from);
        let bar = |row: &AttemptRow| {
            let began = row.attempt.started_at.0.as_millisecond();
            let width = row.attempt.duration_ms.map_or(0, |ms| i64::from(ms) * room / (to - from)).max(MIN_BAR_WIDTH);
            let x = place(began);
            AttemptBar { class: row.shape().class(), x, width: width.min(PICTURE_WIDTH - x) }
        };
        let next = self.row.delivery().next_attempt_at.filter(|_| !self.attempts.is_empty());
        let next =
            next.map(|at| AttemptBar { class: "waiting", x: place(at.0.as_millisecond()), width: MIN_BAR_WIDTH });
        self.attempts.iter().map(bar).chain(next).collect()
    }

    /// How long it is, for people.
    fn length(&self) -> DurationText {
        let (from, to) = self.span();
        DurationText((to - from) / 1000)
    }

    /// The picture in words.
    fn sentence(&self) -> String {
        let good = self.attempts.iter().filter(|row| row.shape() == Shape::Good).count();
        let next = if self.row.delivery().next_attempt_at.is_some() { ", and the next one is to come" } else { "" };
        let all = self.attempts.len();
        format!(
            "{all} {} in {}, {good} of them taken{next}",
            if all == 1 { "attempt" } else { "attempts" },
            self.length()
        )
    }
}

/// One attempt in the table.
struct AttemptRow {
    attempt: DeliveryAttempt,
}

impl AttemptRow {
    fn came(&self) -> String {
        let DeliveryAttempt { status_code, error_code, duration_ms, .. } = self.attempt;
        let unknown = if duration_ms.is_none() { "under way, or cut off" } else { "nothing" };
        came(status_code, error_code).unwrap_or_else(|| unknown.to_owned())
    }

    fn shape(&self) -> Shape {
        let good = self.attempt.status_code.is_some_and(|status| (200..300).contains(&status));
        if good { Shape::Good } else { Shape::Bad }
    }

    fn answer(&self) -> Option<&str> {
        self.attempt.answer.as_deref()
    }
}

async fn find(pages: &Pages, delivery_id: DeliveryId) -> Result<DeliveryDetail, PageError> {
    Ok(pages.handler().manage(ShowDelivery { delivery_id, wait_s: 0, seen: 0 }).await?)
}

/// `GET /deliveries/{id}`
pub(super) async fn show(
    State(pages): State<Pages>,
    visitor: Visitor,
    Path(delivery_id): Path<DeliveryId>,
) -> Result<Response, PageError> {
    let title = format!("Delivery {delivery_id}");
    let (frame, names) = tokio::join!(Frame::new(&pages, &visitor, Section::Deliveries, title), Names::new(&pages));
    let DeliveryDetail { delivery, attempts } = find(&pages, delivery_id).await?;
    let attempts = attempts.into_iter().map(|attempt| AttemptRow { attempt }).collect();
    Ok(super::html(StatusCode::OK, &DeliveryPage { frame, row: DeliveryRow::new(delivery, &names), attempts }))
}

#[derive(Template)]
#[template(path = "delivery-resend.html")]
struct ResendQuestion {
    frame: Frame,
    row: DeliveryRow,
}

/// `GET /deliveries/{id}/resend`: the question before it.
pub(super) async fn ask_resend(
    State(pages): State<Pages>,
    visitor: Visitor,
    Path(delivery_id): Path<DeliveryId>,
) -> Result<Response, PageError> {
    let (frame, names) =
        tokio::join!(Frame::new(&pages, &visitor, Section::Deliveries, "Send again?"), Names::new(&pages));
    let row = DeliveryRow::new(find(&pages, delivery_id).await?.delivery, &names);
    Ok(super::html(StatusCode::OK, &ResendQuestion { frame, row }))
}

/// `POST /deliveries/{id}/resend`
pub(super) async fn resend(
    State(pages): State<Pages>,
    Path(delivery_id): Path<DeliveryId>,
) -> Result<Redirect, PageError> {
    pages.handler().manage(ResendDelivery { delivery_id }).await?;
    Ok(Redirect::to(&format!("/deliveries/{delivery_id}")))
}

#[derive(Template)]
#[template(path = "deliveries-recover.html")]
struct RecoverQuestion {
    frame: Frame,
    names: Names,
    fields: FormFields,
    /// The deliveries that would be sent again, once that was requested.
    found: Option<RecoveryPreview>,
    problem: Option<String>,
}

struct RecoveryPreview {
    application: String,
    since: Timestamp,
    count: u32,
}

/// `GET /deliveries/recover`: for which application, since when.
pub(super) async fn ask_recover(
    State(pages): State<Pages>,
    visitor: Visitor,
    Query(filter): Query<DeliveriesQuery>,
) -> Response {
    let day_ago = Timestamp::now().0 - std::time::Duration::from_secs(24 * 3600);
    let fields = [("app", filter.app), ("since", day_ago.strftime("%Y-%m-%dT%H:%M").to_string())];
    let fields = FormFields(fields.map(|(name, value)| (name.to_owned(), value)).to_vec());
    question(&pages, &visitor, fields, None, None).await
}

async fn question(
    pages: &Pages,
    visitor: &Visitor,
    fields: FormFields,
    found: Option<RecoveryPreview>,
    problem: Option<String>,
) -> Response {
    let (frame, names) =
        tokio::join!(Frame::new(pages, visitor, Section::Deliveries, "Recover failed deliveries"), Names::new(pages));
    let status = if problem.is_some() { StatusCode::UNPROCESSABLE_ENTITY } else { StatusCode::OK };
    super::html(status, &RecoverQuestion { frame, names, fields, found, problem })
}

/// `POST /deliveries/recover`: first shows how many there are, and sends them once confirmed.
pub(super) async fn recover(
    State(pages): State<Pages>,
    visitor: Visitor,
    fields: FormFields,
) -> Result<Response, PageError> {
    let request = match recovery(&fields) {
        Ok(request) => request,
        Err(problem) => return Ok(question(&pages, &visitor, fields, None, Some(problem)).await),
    };
    match pages.handler().manage(request).await {
        Ok(_) if !request.only_count => {
            Ok(Redirect::to(&format!("/deliveries?app={}", request.app_id)).into_response())
        }
        Ok(counted) => {
            let application = Names::new(&pages).await.application(request.app_id);
            let found = RecoveryPreview { application, since: request.since, count: counted.deliveries };
            Ok(question(&pages, &visitor, fields, Some(found), None).await)
        }
        Err(no) if matches!(no.code, ErrorReplyCode::Invalid | ErrorReplyCode::Refused | ErrorReplyCode::NotFound) => {
            Ok(question(&pages, &visitor, fields, None, Some(no.message)).await)
        }
        Err(no) => Err(PageError(no)),
    }
}

fn recovery(fields: &FormFields) -> Result<RecoverDeliveries, String> {
    let app_id: ApplicationId = fields.get("app").parse().map_err(|_| "Choose an application.".to_owned())?;
    let since = fields.get("since").trim();
    // In the format of a browser's field, in UTC.
    let since = [format!("{since}:00Z"), format!("{since}Z"), since.to_owned()];
    let since = since.iter().find_map(|text| text.parse().ok());
    let since = since.ok_or("Since: a day and a time are needed, such as 2026-11-21T09:00.")?;
    Ok(RecoverDeliveries { app_id, since, only_count: fields.get("confirmed") != "yes" })
}
