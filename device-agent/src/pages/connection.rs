//! The connection to the gateway: a draft for each mode, test results, and this device's identity.

use std::path::PathBuf;

use askama::Template;
use axum::extract::{Query, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Redirect, Response};
use deskgate_protocol::identity::IdentityFile;
use serde::Deserialize;

use super::auth::Visitor;
use super::fields::FormFields;
use super::form_errors::{FormErrors, failed, without_secrets};
use super::frame::{Frame, Section};
use super::hops::{self, Hop};
use super::labels::{Shape, TimeLabel};
use super::live::Topic;
use super::qr_code::QrImage;
use super::{PageError, Pages};
use crate::local::{
    AccountStatus, AccountView, CancelPairing, CancelSignIn, ConnectStage, ConnectionTestResult, DiscardConnection,
    DropHostKeys, ErrorReply, ErrorReplyCode, GetAccount, GetBelongings, GetConnection, GetHostKeys, GetIdentity,
    GetPairing, GetSettings, HostKeys, HostKeysView, LeftBehind, LineView, ListServices, Pair, PairingView,
    PreviewLeaving, SaveConnection, SignIn, SignInPrompt, SignOut, TestConnection,
};
use crate::settings::{ConnectionEdit, ConnectionSettings, Mode};

/// The fields of every mode, by their names in the agent.
const CONNECTION_FIELDS: &[&str] = &[
    "listen",
    "ssh-address",
    "ssh-user",
    "control-socket",
    "host-key",
    "known-hosts",
    "control-token",
    "gateway-address",
    "invitation",
];

/// The shown mode, and what was just done.
#[derive(Debug, Default, Deserialize)]
pub(super) struct ConnectionQuery {
    #[serde(default)]
    mode: String,
    #[serde(default)]
    said: String,
}

fn mode(text: &str) -> Option<Mode> {
    Mode::ALL.into_iter().find(|mode| mode.to_string() == text)
}

#[derive(Template)]
#[template(path = "connection.html")]
struct ConnectionPage {
    frame: Frame,
    /// The stations of a request's path.
    hops: Vec<Hop>,
    mode: Mode,
    connection: ConnectionSettings,
    fields: FormFields,
    wrong: FormErrors,
    said: Option<&'static str>,
    tested: Option<ConnectionTestResult>,
    identity: IdentityFile,
    account: AccountView,
    host_keys: HostKeysView,
    token_saved: bool,
    token_draft: bool,
    pairing: PairingView,
    /// What a pairing would leave behind.
    left: LeftBehind,
}

impl ConnectionPage {
    async fn new(pages: &Pages, visitor: &Visitor, mode: Option<Mode>) -> Result<Self, PageError> {
        let handler = pages.handler();
        let (frame, services, connection, identity, settings, account, host_keys) = tokio::join!(
            Frame::new(pages, visitor, Section::Connection, "Connection"),
            handler.request(ListServices {}),
            handler.request(GetConnection {}),
            handler.request(GetIdentity {}),
            handler.request(GetSettings {}),
            handler.request(GetAccount {}),
            handler.request(GetHostKeys {}),
        );
        let (connection, identity, secrets) = (connection?, identity?, settings?.secrets);
        let saved = |name: &str| secrets.iter().any(|place| place.saved && place.path.ends_with(name));
        let mode = mode.unwrap_or(connection.mode);
        let pairing = handler.request(GetPairing {}).await?;
        let left = handler.request(GetBelongings {}).await?;
        Ok(Self {
            pairing,
            left,
            hops: hops::of(&frame, &services.unwrap_or_default()),
            frame,
            mode,
            fields: written(&connection, mode),
            connection,
            wrong: FormErrors::default(),
            said: None,
            tested: None,
            identity,
            account: account?,
            host_keys: host_keys?,
            token_saved: saved("control_token"),
            token_draft: saved("control_token.draft"),
        })
    }

    /// The tabs: the mode, its name, and whether it is shown, in force, edited.
    fn modes(&self) -> [(Mode, &'static str, bool, bool, bool); 3] {
        [(Mode::BuiltIn, "Built-in"), (Mode::Remote, "Remote gateway"), (Mode::Hosted, "Hosted")]
            .map(|(mode, name)| (mode, name, mode == self.mode, mode == self.connection.mode, self.has_draft(mode)))
    }

    fn has_draft(&self, mode: Mode) -> bool {
        match mode {
            Mode::BuiltIn => self.connection.builtin_draft.is_some(),
            Mode::Remote => self.connection.remote_draft.is_some() || self.token_draft,
            Mode::Hosted => self.connection.hosted_draft.is_some(),
        }
    }

    fn remote(&self) -> bool {
        self.mode == Mode::Remote
    }

    /// Whether an invitation is the main way: no server was entered yet.
    fn pairs_first(&self) -> bool {
        self.remote() && self.connection.saved.remote.ssh_address.is_empty()
    }

    fn hosted(&self) -> bool {
        self.mode == Mode::Hosted
    }

    /// The account's status, for a person.
    fn signed_in(&self) -> (Shape, String) {
        if let (AccountStatus::SignedIn { issuer, .. }, Some(why)) =
            (&self.account.standing, &self.account.sign_in_failed)
        {
            let text = format!("Still signed in with an account of {issuer}, as before. The new sign-in failed: {why}");
            return (Shape::Bad, text);
        }
        match &self.account.standing {
            AccountStatus::SignedOut { why: None } => (Shape::Unknown, "Nobody is signed in".to_owned()),
            AccountStatus::SignedOut { why: Some(why) } => (Shape::Bad, format!("Nobody is signed in: {}", why)),
            AccountStatus::Waiting { .. } => (Shape::Waiting, "A sign-in waits for you".to_owned()),
            AccountStatus::SignedIn { issuer, trouble: None, .. } => {
                (Shape::Good, format!("Signed in with an account of {}", issuer))
            }
            AccountStatus::SignedIn { trouble: Some(trouble), .. } => (Shape::Bad, trouble.clone()),
            AccountStatus::Refused { issuer, why } => {
                (Shape::Bad, format!("The sign-in is over: {issuer} refuses to renew it ({why})"))
            }
        }
    }

    fn invitation(&self) -> Option<&SignInPrompt> {
        match &self.account.standing {
            AccountStatus::Waiting { invitation } => Some(invitation),
            _ => None,
        }
    }

    /// Whether the user can sign out.
    fn can_sign_out(&self) -> bool {
        matches!(self.account.standing, AccountStatus::SignedIn { .. } | AccountStatus::Refused { .. })
    }

    /// The placeholder of the token's field.
    fn token_hint(&self) -> &'static str {
        match (self.token_draft, self.token_saved) {
            (true, _) => "in the draft · leave blank to keep",
            (false, true) => "saved · leave blank to keep",
            (false, false) => "dgt_…",
        }
    }

    /// The facts about the connection in force.
    fn facts(&self) -> Vec<(&'static str, String)> {
        let mut facts = Vec::new();
        let Some(status) = &self.frame.status else { return facts };
        if let LineView::Connected { gateway_version, device_id, .. } = &status.line {
            facts.push(("Gateway version", gateway_version.clone()));
            facts.push(("This device at the gateway", device_id.to_string()));
        }
        facts.extend(status.followed_host_keys.iter().map(|key| ("Host key, as announced", key.to_string())));
        if let Some(access) = &status.access {
            facts.push(("Callers use", access.address.clone()));
        }
        if status.gateway_is_silent {
            facts.push(("Requests", "the gateway keeps the connection and does not answer".to_owned()));
        }
        facts
    }

    /// The keys to compare, if the dialled server is not the pinned one.
    fn host_keys(&self) -> Option<&HostKeys> {
        match &self.frame.status.as_ref()?.line {
            LineView::Disconnected { host_keys, .. } => host_keys.as_ref(),
            _ => None,
        }
    }

    /// Whether the remote gateway's announced keys are trusted in place of the pinned one, as far as is known.
    fn follows_keys(&self) -> bool {
        !self.host_keys.followed.is_empty() || self.host_keys.unreadable.is_some()
    }

    /// The identity file's text.
    fn identity_text(&self) -> String {
        serde_json::to_string_pretty(&self.identity).unwrap_or_default()
    }

    /// The same as a QR code.
    fn code(&self) -> Option<QrImage> {
        QrImage::of(&serde_json::to_string(&self.identity).ok()?)
    }

    /// When the session was opened.
    fn since(&self) -> Option<String> {
        match &self.frame.status.as_ref()?.line {
            LineView::Connected { since, .. } => Some(TimeLabel(since).to_string()),
            _ => None,
        }
    }

    /// The stages of a test.
    fn steps(&self, tested: &ConnectionTestResult) -> Vec<(Shape, &'static str, String)> {
        let hosted = self.hosted();
        let step = |stage: ConnectStage| {
            let (name, detail) = match stage {
                ConnectStage::Address => ("Something answers", tested.address.clone()),
                ConnectStage::Certificate => ("Certificate is trusted", String::new()),
                ConnectStage::HostKey => ("Host key is the right one", String::new()),
                ConnectStage::DeviceKey => ("Server lets this device's key in", String::new()),
                ConnectStage::Conduct => ("Server opens nothing on this device", String::new()),
                ConnectStage::Socket if hosted => ("A hosted gateway answers there", String::new()),
                ConnectStage::Socket => ("A gateway answers at the control socket", String::new()),
                ConnectStage::Account => ("Somebody is signed in", String::new()),
                ConnectStage::Issuer => ("The issuer of accounts gives a token", String::new()),
                ConnectStage::AccessToken => ("Access token is accepted", String::new()),
                ConnectStage::Token => ("Control token is accepted", String::new()),
                ConnectStage::Gateway => ("It is the gateway that this device knows", String::new()),
                ConnectStage::Version => ("Version matches", tested.gateway_version.clone().unwrap_or_default()),
                ConnectStage::Device => {
                    ("Gateway knows this device", tested.device_id.map(|id| id.to_string()).unwrap_or_default())
                }
            };
            let shape = match stage {
                _ if tested.passed.contains(&stage) => Shape::Good,
                _ if tested.failed_at == Some(stage) => Shape::Bad,
                _ => Shape::Unknown,
            };
            (shape, name, detail)
        };
        let stages = if hosted { ConnectStage::HOSTED } else { ConnectStage::REMOTE };
        stages.iter().copied().map(step).collect()
    }

    fn label(field: &str) -> &'static str {
        match field {
            "listen" => "Address",
            "ssh-address" => "SSH address",
            "ssh-user" => "SSH user",
            "control-socket" => "Control socket",
            "host-key" => "Host key",
            "known-hosts" => "Known-hosts file",
            "gateway-address" => "Gateway address",
            "invitation" => "Invitation",
            _ => "Control token",
        }
    }
}

/// A mode's fields: its draft, or what is saved.
fn written(connection: &ConnectionSettings, mode: Mode) -> FormFields {
    let field = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    match mode {
        Mode::BuiltIn => {
            let saved = connection.builtin_draft.as_ref().unwrap_or(&connection.saved.builtin);
            FormFields(vec![field("listen", &saved.listen)])
        }
        Mode::Remote => {
            let saved = connection.remote_draft.as_ref().unwrap_or(&connection.saved.remote);
            let known_hosts = saved.known_hosts.as_deref().map(|path| path.to_string_lossy()).unwrap_or_default();
            FormFields(vec![
                field("ssh-address", &saved.ssh_address),
                field("ssh-user", &saved.ssh_user),
                field("control-socket", &saved.control_socket),
                field("host-key", saved.host_key.as_deref().unwrap_or_default()),
                field("known-hosts", &known_hosts),
            ])
        }
        Mode::Hosted => {
            let saved = connection.hosted_draft.as_ref().unwrap_or(&connection.saved.hosted);
            FormFields(vec![field("gateway-address", &saved.gateway_address)])
        }
    }
}

/// The changes of a form to a draft.
fn edit(mode: Mode, fields: &FormFields) -> ConnectionEdit {
    let text = |name| Some(fields.get(name).trim().to_owned());
    match mode {
        Mode::BuiltIn => ConnectionEdit { listen: text("listen"), ..ConnectionEdit::default() },
        Mode::Remote => ConnectionEdit {
            ssh_address: text("ssh-address"),
            ssh_user: text("ssh-user"),
            control_socket: text("control-socket"),
            host_key: text("host-key"),
            known_hosts: text("known-hosts").map(PathBuf::from),
            ..ConnectionEdit::default()
        },
        Mode::Hosted => ConnectionEdit { gateway_address: text("gateway-address"), ..ConnectionEdit::default() },
    }
}

/// `GET /connection`
pub(super) async fn show(
    State(pages): State<Pages>,
    visitor: Visitor,
    Query(place): Query<ConnectionQuery>,
) -> Result<Response, PageError> {
    let said = match place.said.as_str() {
        "saved" => Some("Saved, and active now."),
        "draft" => Some("The draft is kept. Nothing else changed."),
        "discarded" => Some("The draft is gone."),
        "host-keys-dropped" => Some("The announced host keys are dropped. The pinned one alone is trusted."),
        "signed-out" => Some("Signed out, and the issuer was told."),
        "signed-out-here" => Some("Signed out here. The issuer was not told; its own pages end what is left."),
        _ => None,
    };
    let page = ConnectionPage::new(&pages, &visitor, mode(&place.mode)).await?;
    Ok(super::html(StatusCode::OK, &ConnectionPage { said, ..page }))
}

/// `POST /connection`: handles each of the form's buttons.
pub(super) async fn change(
    State(pages): State<Pages>,
    visitor: Visitor,
    fields: FormFields,
) -> Result<Response, PageError> {
    let mode = chosen(&fields)?;
    match pressed(&pages, mode, &fields).await {
        Ok(FormOutcome::At(address)) => {
            pages.live().changed(Topic::Status);
            Ok(Redirect::to(&address).into_response())
        }
        Ok(FormOutcome::Tested(tested)) => {
            let page = ConnectionPage::new(&pages, &visitor, Some(mode)).await?;
            Ok(super::html(StatusCode::OK, &ConnectionPage { tested: Some(tested), ..page }))
        }
        Err(no) => again(&pages, &visitor, mode, Some(&fields), no).await,
    }
}

/// `POST /connection/pair`: begins to pair by an invitation.
pub(super) async fn pair(
    State(pages): State<Pages>,
    visitor: Visitor,
    fields: FormFields,
) -> Result<Response, PageError> {
    let line = fields.get("invitation").to_owned();
    let begun = pages.handler().request(Pair { line, abandon_runs: fields.get("abandon") == "yes" }).await;
    pages.live().changed(Topic::Status);
    match begun {
        Ok(_) => Ok(Redirect::to("/connection?mode=remote#pair").into_response()),
        Err(no) => again(&pages, &visitor, Mode::Remote, None, no).await,
    }
}

/// `POST /connection/pair/cancel`
pub(super) async fn cancel_pairing(State(pages): State<Pages>, _: FormFields) -> Result<Redirect, PageError> {
    pages.handler().request(CancelPairing {}).await?;
    pages.live().changed(Topic::Status);
    Ok(Redirect::to("/connection?mode=remote#pair"))
}

/// The result of a button.
enum FormOutcome {
    At(String),
    Tested(ConnectionTestResult),
}

async fn pressed(pages: &Pages, mode: Mode, fields: &FormFields) -> Result<FormOutcome, ErrorReply> {
    let handler = pages.handler();
    if fields.get("do") == "cancel" {
        return Ok(FormOutcome::At(cancelled(pages, mode, fields).await?));
    }
    // The typed values are kept as a draft in any case, also when another mode is looked at.
    handler.request(save(mode, edit(mode, fields), fields.filled("control-token"), true, false)).await?;
    match fields.get("do") {
        to if to.strip_prefix("to-").and_then(self::mode).is_some() => {
            return Ok(FormOutcome::At(format!("/connection?mode={}", to.trim_start_matches("to-"))));
        }
        "draft" => return Ok(FormOutcome::At(format!("/connection?mode={mode}&said=draft"))),
        "sign-in" => {
            handler.request(SignIn {}).await?;
            return Ok(FormOutcome::At(format!("/connection?mode={mode}#account")));
        }
        "stop-waiting" => {
            handler.request(CancelSignIn {}).await?;
            return Ok(FormOutcome::At(format!("/connection?mode={mode}#account")));
        }
        "sign-out" => {
            let told = handler.request(SignOut {}).await?.not_told.is_none();
            let said = if told { "signed-out" } else { "signed-out-here" };
            return Ok(FormOutcome::At(format!("/connection?mode={mode}&said={said}")));
        }
        "drop-host-keys" => {
            handler.request(DropHostKeys {}).await?;
            return Ok(FormOutcome::At(format!("/connection?mode={mode}&said=host-keys-dropped")));
        }
        "test" => return Ok(FormOutcome::Tested(handler.request(TestConnection { mode }).await?)),
        _ => {}
    }
    if leaves(pages, mode).await.is_some() {
        return Ok(FormOutcome::At(format!("/connection/abandon?mode={mode}")));
    }
    handler.request(save(mode, ConnectionEdit::default(), None, false, false)).await?;
    Ok(FormOutcome::At(format!("/connection?mode={mode}&said=saved")))
}

/// Where Cancel leads: away, or to the question if something would be lost.
async fn cancelled(pages: &Pages, mode: Mode, fields: &FormFields) -> Result<String, ErrorReply> {
    let handler = pages.handler();
    let connection = handler.request(GetConnection {}).await?;
    let written = written(&connection, mode);
    let typed = written.0.iter().any(|(name, value)| fields.get(name).trim() != value)
        || fields.filled("control-token").is_some();
    if typed {
        // Kept, so that the question can be declined without loss; except for an invalid token.
        let keep = |token| handler.request(save(mode, edit(mode, fields), token, true, false));
        if keep(fields.filled("control-token")).await.is_err() {
            keep(None).await?;
        }
    }
    let drafted = match mode {
        Mode::BuiltIn => connection.builtin_draft.is_some(),
        Mode::Remote => connection.remote_draft.is_some() || handler.has_token_draft(),
        Mode::Hosted => connection.hosted_draft.is_some(),
    };
    Ok(if typed || drafted { format!("/connection/discard?mode={mode}") } else { "/connection".to_owned() })
}

fn save(
    mode: Mode,
    edit: ConnectionEdit,
    control_token: Option<String>,
    draft_only: bool,
    abandon_runs: bool,
) -> SaveConnection {
    SaveConnection { mode, edit, control_token, draft_only, abandon_runs }
}

/// What a mode's draft leaves behind, if it leads to another gateway.
async fn leaves(pages: &Pages, mode: Mode) -> Option<LeftBehind> {
    let leaving = PreviewLeaving { mode, edit: ConnectionEdit::default() };
    pages.handler().request(leaving).await.ok().flatten().filter(|left| !left.is_nothing())
}

/// The page again, with the submitted values.
async fn again(
    pages: &Pages,
    visitor: &Visitor,
    mode: Mode,
    fields: Option<&FormFields>,
    no: ErrorReply,
) -> Result<Response, PageError> {
    let page = ConnectionPage::new(pages, visitor, Some(mode)).await?;
    let (status, wrong) = failed(&no, CONNECTION_FIELDS);
    let fields = fields.map_or(page.fields, without_secrets);
    Ok(super::html(status, &ConnectionPage { fields, wrong, ..page }))
}

fn chosen(fields: &FormFields) -> Result<Mode, ErrorReply> {
    let message = || "A connection is built-in, remote or hosted.".to_owned();
    mode(fields.get("mode")).ok_or_else(|| ErrorReply { code: ErrorReplyCode::Invalid, message: message() })
}

#[derive(Template)]
#[template(path = "connection-abandon.html")]
struct AbandonQuestion {
    frame: Frame,
    mode: Mode,
    left: Option<LeftBehind>,
}

impl AbandonQuestion {
    fn runs(&self) -> u32 {
        self.left.map_or(0, |left| left.runs)
    }

    /// What belongs to the present gateway.
    fn belongs(&self) -> Option<String> {
        self.left.filter(|left| left.applications > 0).map(|left| left.words())
    }
}

/// `GET /connection/abandon`: the question before another gateway is gone to.
pub(super) async fn ask_abandon(
    State(pages): State<Pages>,
    visitor: Visitor,
    Query(place): Query<ConnectionQuery>,
) -> Result<Response, PageError> {
    let connection = pages.handler().request(GetConnection {}).await?;
    let mode = mode(&place.mode).unwrap_or(connection.mode);
    let left = leaves(&pages, mode).await;
    let frame = Frame::new(&pages, &visitor, Section::Connection, "Leave the present gateway?").await;
    Ok(super::html(StatusCode::OK, &AbandonQuestion { frame, mode, left }))
}

/// `POST /connection/abandon`: makes the draft active, and leaves behind what belongs to the present gateway.
pub(super) async fn abandon(
    State(pages): State<Pages>,
    visitor: Visitor,
    fields: FormFields,
) -> Result<Response, PageError> {
    let mode = chosen(&fields)?;
    match pages.handler().request(save(mode, ConnectionEdit::default(), None, false, true)).await {
        Ok(_) => {
            pages.live().changed(Topic::Status);
            Ok(Redirect::to(&format!("/connection?mode={mode}&said=saved")).into_response())
        }
        Err(no) => again(&pages, &visitor, mode, None, no).await,
    }
}

#[derive(Template)]
#[template(path = "connection-discard.html")]
struct DiscardQuestion {
    frame: Frame,
    mode: Mode,
}

/// `GET /connection/discard`: the question before it.
pub(super) async fn ask_discard(
    State(pages): State<Pages>,
    visitor: Visitor,
    Query(place): Query<ConnectionQuery>,
) -> Result<Response, PageError> {
    let mode = mode(&place.mode).unwrap_or_default();
    let frame = Frame::new(&pages, &visitor, Section::Connection, "Discard the draft?").await;
    Ok(super::html(StatusCode::OK, &DiscardQuestion { frame, mode }))
}

/// `POST /connection/discard`
pub(super) async fn discard(State(pages): State<Pages>, fields: FormFields) -> Result<Redirect, PageError> {
    let mode = chosen(&fields)?;
    pages.handler().request(DiscardConnection { mode }).await?;
    Ok(Redirect::to(&format!("/connection?mode={mode}&said=discarded")))
}

/// `GET /connection/identity.json`: the file that the gateway's administrator pairs this device with.
pub(super) async fn identity(State(pages): State<Pages>, _: Visitor) -> Result<Response, PageError> {
    let identity = pages.handler().request(GetIdentity {}).await?;
    let text = serde_json::to_string_pretty(&identity).map_err(|error| ErrorReply {
        code: ErrorReplyCode::Failed,
        message: format!("the identity cannot be written: {error}"),
    })?;
    let kind = HeaderValue::from_static("application/json");
    let name = HeaderValue::from_static("attachment; filename=\"deskgate-identity.json\"");
    Ok(([(header::CONTENT_TYPE, kind), (header::CONTENT_DISPOSITION, name)], format!("{text}\n")).into_response())
}
