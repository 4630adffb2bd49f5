//! The agent's own settings, starting at login, and the paths of its files.

use askama::Template;
use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Redirect, Response};
use deskgate_protocol::control::RefusedCode;
use serde::Deserialize;

use super::auth::Visitor;
use super::fields::FormFields;
use super::form_errors::{FormErrors, failed, without_secrets};
use super::frame::{Frame, Section};
use super::labels::Shape;
use super::live::Topic;
use super::{PageError, Pages};
use crate::local::{
    AwakeStatus, ChangeSettings, ErrorReply, ErrorReplyCode, GetAutostart, GetNotifications, GetSettings, LineView,
    SetAutostart, SetNotifications, SettingsView, autostart,
};
use crate::settings::{KeepAwake, Notifications, Theme};

/// The form's fields, by their names in the agent.
const SETTINGS_FIELDS: &[&str] = &[
    "device-name",
    "slots",
    "pages-port",
    "theme",
    "keep-awake",
    "secrets",
    "keep-runs",
    "keep-conversations",
    "keep-journal",
    "keep-calls",
    "keep-log",
];

/// The sections in their order: where each stands, what it is called, and by which other words it is found.
const SECTIONS: [(&str, &str, &str); 8] = [
    ("computer", "This computer", "name device slots runs at once theme dark light awake sleep port pages"),
    ("autostart", "Start at login", "autostart systemd boot begin"),
    ("notifications", "Notifications", "desktop approvals decision details tell"),
    ("models", "Models and tools", "provider api key mcp server"),
    ("secrets", "Secrets", "keys keyring files mode password token"),
    ("retention", "Retention", "keep days delete runs conversations journal tool calls log"),
    ("browsers", "Browsers", "sign out session sign in"),
    ("about", "Version and updates", "version update upgrade telemetry"),
];

/// What was just done, and what is looked for.
#[derive(Debug, Default, Deserialize)]
pub(super) struct SettingsQuery {
    #[serde(default)]
    said: String,
    #[serde(default)]
    q: String,
}

#[derive(Template)]
#[template(path = "settings.html")]
struct SettingsPage {
    frame: Frame,
    settings: SettingsView,
    fields: FormFields,
    wrong: FormErrors,
    said: Option<&'static str>,
    /// What is looked for; empty: all is shown.
    wanted: String,
    /// The error, if the state is unknown.
    autostart: Result<autostart::AutostartState, String>,
    notifications: Notifications,
}

impl SettingsPage {
    async fn new(pages: &Pages, visitor: &Visitor) -> Result<Self, PageError> {
        let handler = pages.handler();
        let (frame, settings, autostart, notifications) = tokio::join!(
            Frame::new(pages, visitor, Section::Settings, "Settings"),
            handler.request(GetSettings {}),
            handler.request(GetAutostart {}),
            handler.request(GetNotifications {}),
        );
        let (settings, autostart, notifications) = (settings?, autostart.map_err(|no| no.message), notifications?);
        let field = |name: &str, value: String| (name.to_owned(), value);
        let fields = FormFields(vec![
            field("device-name", settings.device_name.clone()),
            field("slots", settings.slots.chosen.to_string()),
            field("pages-port", settings.pages_port.chosen.to_string()),
            field("theme", settings.theme.as_str().to_owned()),
            field("keep-awake", settings.keep_awake.as_str().to_owned()),
        ]);
        let kept = settings.keep.parts().map(|(name, days)| field(name, days.to_string()));
        let fields = FormFields([fields.0, kept.to_vec()].concat());
        Ok(Self {
            frame,
            settings,
            fields,
            wrong: FormErrors::default(),
            said: None,
            wanted: String::new(),
            autostart,
            notifications,
        })
    }

    /// The sections that have all words that are looked for, or begin with one.
    fn sections(&self) -> Vec<(&'static str, &'static str)> {
        let wanted: Vec<_> = self.wanted.split_whitespace().map(str::to_lowercase).collect();
        let has = |title: &str, words: &str| {
            let all = format!("{title} {words}").to_lowercase();
            wanted.iter().all(|wanted| all.split_whitespace().any(|word| word.starts_with(wanted.as_str())))
        };
        SECTIONS
            .into_iter()
            .filter(|(_, title, words)| has(title, words))
            .map(|(place, title, _)| (place, title))
            .collect()
    }

    fn shows(&self, section: &str) -> bool {
        self.sections().iter().any(|(place, _)| *place == section)
    }

    fn themes(&self) -> [(Theme, &'static str, bool); 3] {
        Theme::ALL.map(|theme| {
            let word = match theme {
                Theme::System => "As the system",
                Theme::Light => "Light",
                Theme::Dark => "Dark",
            };
            (theme, word, self.fields.get("theme") == theme.as_str())
        })
    }

    fn wishes(&self) -> [(KeepAwake, &'static str, bool); 3] {
        KeepAwake::ALL.map(|preference| {
            let word = match preference {
                KeepAwake::Always => "Always",
                KeepAwake::OnAc => "On mains only",
                KeepAwake::Never => "Never: sleep may interrupt runs",
            };
            (preference, word, self.fields.get("keep-awake") == preference.as_str())
        })
    }

    fn label(field: &str) -> &'static str {
        match field {
            "device-name" => "Name of this computer",
            "slots" => "Slots",
            "pages-port" => "Port of these pages",
            "keep-awake" => "Kept awake during runs",
            "secrets" => "Secrets",
            "keep-runs" => "Ended runs",
            "keep-conversations" => "Conversations",
            "keep-journal" => "Answers in the journal",
            "keep-calls" => "Tool calls",
            "keep-log" => "The agent's log",
            _ => "Theme",
        }
    }

    /// Whether this version and the gateway's are compatible.
    fn fits(&self) -> (Shape, String) {
        match self.frame.status.as_ref().map(|status| &status.line) {
            Some(LineView::Connected { gateway_version, .. }) => {
                (Shape::Good, format!("The gateway has version {gateway_version}, which goes together with it."))
            }
            Some(LineView::Refused { refused, .. }) if refused.code == RefusedCode::VersionMismatch => {
                (Shape::Bad, format!("The gateway has version {}: {}", refused.gateway_version, refused.message))
            }
            _ => (
                Shape::Unknown,
                "Whether the gateway's version goes together with it is known once it is connected.".to_owned(),
            ),
        }
    }

    /// Whether runs keep the computer awake.
    fn awake(&self) -> (Shape, String) {
        match self.frame.status.as_ref().map(|status| &status.kept_awake) {
            Some(AwakeStatus::Yes) => {
                (Shape::Good, "Yes: it does not fall asleep by itself while a run is running.".to_owned())
            }
            Some(AwakeStatus::NotNeeded) => (
                Shape::Waiting,
                "No run is running now. During runs it is kept awake as chosen, where the system allows it.".to_owned(),
            ),
            Some(AwakeStatus::NotWanted) => (Shape::Paused, "No, as you chose: sleep can interrupt runs.".to_owned()),
            Some(AwakeStatus::No { why }) => (Shape::Bad, format!("No, sleep can interrupt runs: {why}")),
            None => (Shape::Unknown, "Not known while the agent connects.".to_owned()),
        }
    }
}

/// `GET /settings`
pub(super) async fn show(
    State(pages): State<Pages>,
    visitor: Visitor,
    Query(place): Query<SettingsQuery>,
) -> Result<Response, PageError> {
    let said = match place.said.as_str() {
        "saved" => Some("Saved."),
        "enabled" => Some("The agent starts when you log in."),
        "kept" => Some("Saved. What was older is deleted."),
        "moved" => Some("Every key is there now."),
        "disabled" => Some("The agent does not start by itself any more."),
        _ => None,
    };
    let page = SettingsPage::new(&pages, &visitor).await?;
    Ok(super::html(StatusCode::OK, &SettingsPage { said, wanted: place.q, ..page }))
}

/// `POST /settings`
pub(super) async fn change(
    State(pages): State<Pages>,
    visitor: Visitor,
    fields: FormFields,
) -> Result<Response, PageError> {
    let changed = match request(&fields) {
        Ok(request) => pages.handler().request(request).await,
        Err(message) => Err(ErrorReply { code: ErrorReplyCode::Invalid, message }),
    };
    match changed {
        Ok(_) => {
            pages.live().changed(Topic::Status);
            Ok(Redirect::to("/settings?said=saved").into_response())
        }
        Err(no) => again(&pages, &visitor, Some(&fields), no).await,
    }
}

/// The request in the form, or one sentence for each wrong field.
fn request(fields: &FormFields) -> Result<ChangeSettings, String> {
    let text = |name| fields.get(name).trim();
    let slots = text("slots").parse().map_err(|_| format!("slots: {:?} is no number of runs", text("slots")));
    let port = text("pages-port").parse().map_err(|_| format!("pages-port: {:?} is no port", text("pages-port")));
    let theme = text("theme").parse().map_err(|why| format!("theme: {why}"));
    let awake =
        fields.filled("keep-awake").map(|preference| preference.parse().map_err(|why| format!("keep-awake: {why}")));
    match (slots, port, theme, awake.transpose()) {
        (Ok(slots), Ok(port), Ok(theme), Ok(keep_awake)) => Ok(ChangeSettings {
            device_name: Some(text("device-name").to_owned()),
            slots: Some(slots),
            theme: Some(theme),
            pages_port: Some(port),
            keep_awake,
            key_place: None,
        }),
        (slots, port, theme, awake) => {
            let wrong: Vec<_> = [slots.err(), port.err(), theme.err(), awake.err()].into_iter().flatten().collect();
            Err(wrong.join("\n"))
        }
    }
}

/// The page again, with the errors and the submitted values; the other forms show saved values.
pub(super) async fn again(
    pages: &Pages,
    visitor: &Visitor,
    fields: Option<&FormFields>,
    no: ErrorReply,
) -> Result<Response, PageError> {
    let page = SettingsPage::new(pages, visitor).await?;
    let (status, wrong) = failed(&no, SETTINGS_FIELDS);
    let mut sent = fields.map(without_secrets).unwrap_or_default();
    sent.0.extend(page.fields.0);
    let fields = sent;
    Ok(super::html(status, &SettingsPage { fields, wrong, ..page }))
}

/// `POST /settings/autostart`
pub(super) async fn set_autostart(
    State(pages): State<Pages>,
    visitor: Visitor,
    fields: FormFields,
) -> Result<Response, PageError> {
    let enabled = fields.get("enabled") == "yes";
    match pages.handler().request(SetAutostart { enabled }).await {
        Ok(_) => {
            let said = if enabled { "enabled" } else { "disabled" };
            Ok(Redirect::to(&format!("/settings?said={said}")).into_response())
        }
        Err(no) => again(&pages, &visitor, None, no).await,
    }
}

/// `POST /settings/notifications`: an unticked box is not sent.
pub(super) async fn set_notifications(State(pages): State<Pages>, fields: FormFields) -> Result<Redirect, PageError> {
    let ticked = |name| Some(fields.get(name) == "yes");
    pages.handler().request(SetNotifications { on: ticked("approvals"), hide_details: ticked("hide-details") }).await?;
    Ok(Redirect::to("/settings?said=saved"))
}

/// `POST /settings/secrets`: moves every key.
pub(super) async fn move_keys(
    State(pages): State<Pages>,
    visitor: Visitor,
    fields: FormFields,
) -> Result<Response, PageError> {
    let moved = match fields.get("secrets").parse() {
        Ok(place) => {
            pages.handler().request(ChangeSettings { key_place: Some(place), ..ChangeSettings::default() }).await
        }
        Err(why) => Err(ErrorReply { code: ErrorReplyCode::Invalid, message: format!("secrets: {why}") }),
    };
    match moved {
        Ok(_) => {
            pages.live().changed(Topic::Status);
            Ok(Redirect::to("/settings?said=moved#secrets").into_response())
        }
        Err(no) => again(&pages, &visitor, None, no).await,
    }
}

#[derive(Template)]
#[template(path = "settings-sign-out.html")]
struct SignOutQuestion {
    frame: Frame,
}

/// `GET /settings/sign-out`: the question before every browser is signed out.
pub(super) async fn ask_sign_out(State(pages): State<Pages>, visitor: Visitor) -> Response {
    let frame = Frame::new(&pages, &visitor, Section::Settings, "Sign out every browser?").await;
    super::html(StatusCode::OK, &SignOutQuestion { frame })
}
