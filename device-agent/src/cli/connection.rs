//! `connection`: how the gateway is reached. Each mode has a draft of its own.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};
use deskgate_program::confirmation::Confirmation;
use deskgate_program::exit::{Exit, Failure};
use deskgate_program::output::Output;
use deskgate_program::terminal;
use deskgate_protocol::GatewayId;
use serde::Serialize;

use super::ctrl_c::CtrlC;
use super::key_file::text_of;
use super::no_secret;
use super::socket::{AgentClient, failure};
use crate::local::{
    AcceptGateway, AccountStatus, AccountView, CancelSignIn, DiscardConnection, DropHostKeys, GetAccount,
    GetConnection, GetHostKeys, HostKeysView, LeftBehind, PreviewLeaving, SaveConnection, SignIn, SignInPrompt,
    SignOut, TestConnection,
};
use crate::settings::{self, ConnectionEdit};
use deskgate_program::visible;

/// `deskgate connection …`
#[derive(Debug, Subcommand)]
pub(super) enum ConnectionCommand {
    /// Show the active connection, and the drafts
    Show,
    /// Make one connection with a mode's draft and say what came of it
    Test {
        /// Which mode [default: the active one]
        #[arg(long)]
        mode: Option<ModeName>,
    },
    /// Change a mode's fields and make them active; with --draft only change them
    #[command(alias = "save")]
    Set(ConnectionSetArgs),
    /// Throw a mode's draft away
    Discard {
        /// Which mode
        #[arg(long)]
        mode: ModeName,
    },
    /// Drop the host keys that the remote gateway announced: the pinned one alone is trusted from now on
    DropHostKeys {
        #[command(flatten)]
        confirmation: Confirmation,
    },
    /// Accept that another gateway answers at the connection's address, as `deskgate doctor` names it
    AcceptGateway {
        /// The gateway's identifier
        #[arg(value_name = "GATEWAY")]
        gateway_id: GatewayId,
    },
    /// hosted: sign in with an account of the gateway's issuer. Shows an address and a code, and waits
    SignIn {
        /// The gateway's public address, with its https; kept as the draft. Without it that of the draft, or the saved one
        #[arg(long, value_name = "ADDRESS")]
        gateway_address: Option<String>,
        /// Show address and code, and leave the waiting to the agent
        #[arg(long)]
        no_wait: bool,
    },
    /// hosted: sign out, and have the issuer forget this device's tokens
    SignOut,
    /// hosted: who is signed in
    Account,
}

/// The modes.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(super) enum ModeName {
    /// The gateway runs inside the agent, on loopback
    Builtin,
    /// The gateway runs on a server, reached over SSH
    Remote,
    /// The gateway is somebody else's, reached with an account
    Hosted,
}

impl From<ModeName> for settings::Mode {
    fn from(mode: ModeName) -> Self {
        match mode {
            ModeName::Builtin => Self::BuiltIn,
            ModeName::Remote => Self::Remote,
            ModeName::Hosted => Self::Hosted,
        }
    }
}

/// `deskgate connection set`
#[derive(Debug, Args)]
pub(super) struct ConnectionSetArgs {
    /// Which mode. Another one than before pauses access
    #[arg(long)]
    mode: ModeName,
    /// Keep the fields as a draft, without making them active
    #[arg(long)]
    draft: bool,
    /// builtin: where the API listens, such as 127.0.0.1:8080
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<String>,
    /// remote: what to dial, host or host:port
    #[arg(long, value_name = "HOST:PORT")]
    ssh_address: Option<String>,
    /// remote: the account on the server
    #[arg(long, value_name = "NAME")]
    ssh_user: Option<String>,
    /// remote: the control socket's path on the server
    #[arg(long, value_name = "PATH")]
    control_socket: Option<String>,
    /// remote: the host key's fingerprint, as the administrator gave it to you. It alone is trusted from then on: keys
    /// that the gateway announced before are dropped
    #[arg(long, value_name = "SHA256:…", conflicts_with = "known_hosts")]
    host_key: Option<String>,
    /// remote: or the known-hosts file that holds the host key
    #[arg(long, value_name = "FILE")]
    known_hosts: Option<PathBuf>,
    /// remote: a file with the private control token; - for standard input. Without it the saved one stays
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// hosted: the gateway's public address, with its https
    #[arg(long, value_name = "ADDRESS")]
    gateway_address: Option<String>,
    /// Accept what that does to runs in progress: abandon-runs
    #[arg(long, value_name = "RISK")]
    accept_risk: Option<String>,
    #[command(flatten)]
    confirmation: Confirmation,
}

pub(super) async fn run(agent: AgentClient, command: ConnectionCommand, out: Output) -> Result<(), Failure> {
    match command {
        ConnectionCommand::Show => {
            let connection = agent.request(GetConnection {}).await?;
            let host_keys = agent.request(GetHostKeys {}).await?;
            let shown = ShownConnection { connection: &connection, host_keys: &host_keys };
            out.result("connection/1", &shown, || show(&connection, &host_keys));
        }
        ConnectionCommand::DropHostKeys { confirmation } => return drop_host_keys(agent, confirmation, out).await,
        ConnectionCommand::Discard { mode } => {
            let connection = agent.request(DiscardConnection { mode: mode.into() }).await?;
            out.result("connection/1", &connection, || "The draft is gone.".to_owned());
        }
        ConnectionCommand::Test { mode } => {
            let mode = match mode {
                Some(mode) => mode.into(),
                None => agent.request(GetConnection {}).await?.mode,
            };
            let tested = agent.request(TestConnection { mode }).await?;
            if let Some(no) = tested.failed.clone() {
                if out.json {
                    out.result("connection-test/1", &tested, String::new);
                }
                return Err(failure(no));
            }
            out.result("connection-test/1", &tested, || {
                let version = tested.gateway_version.as_deref().unwrap_or("unknown");
                let device = tested.device_id.map(|id| id.to_string()).unwrap_or_default();
                format!("{} let this device in: gateway {version}, device {device}", tested.address)
            });
        }
        ConnectionCommand::AcceptGateway { gateway_id } => {
            let accepted = agent.request(AcceptGateway { gateway_id }).await?;
            out.result("accepted-gateway/1", &accepted, || {
                format!("{gateway_id} is this device's gateway now. It is dialled at once: deskgate status")
            });
        }
        ConnectionCommand::Set(save) => {
            let (draft_only, confirmation) = (save.draft, save.confirmation);
            let save = request(save)?;
            if !draft_only {
                let leaving = PreviewLeaving { mode: save.mode, edit: save.edit.clone() };
                let left = agent.request(leaving).await?.filter(|left| left.applications > 0);
                if let Some(left) = left {
                    confirmation.confirm(&format!(
                        "Go to another gateway? {} {}\nAccess is paused until you enable it there.",
                        left.words(),
                        LeftBehind::AFTERWARDS
                    ))?;
                }
            }
            let connection = agent.request(save).await?;
            out.result("connection/1", &connection, || match draft_only {
                true => "The draft is kept. Nothing else changed.".to_owned(),
                false => format!("Active: {} mode. See: deskgate status", connection.mode),
            });
        }
        ConnectionCommand::SignIn { gateway_address, no_wait } => {
            return sign_in(agent, gateway_address, no_wait, out).await;
        }
        ConnectionCommand::SignOut => {
            let account = agent.request(SignOut {}).await?;
            out.result("account/1", &account, || match &account.not_told {
                None => "Signed out. The issuer was told.".to_owned(),
                Some(why) => format!("Signed out here. The issuer was not told: {}", visible::line(why)),
            });
        }
        ConnectionCommand::Account => {
            let account = agent.request(GetAccount {}).await?;
            out.result("account/1", &account, || standing(&account));
        }
    }
    Ok(())
}

/// A connection's settings, with the host keys that the remote gateway is recognised by.
#[derive(Serialize)]
struct ShownConnection<'a> {
    #[serde(flatten)]
    connection: &'a settings::ConnectionSettings,
    host_keys: &'a HostKeysView,
}

async fn drop_host_keys(agent: AgentClient, confirmation: Confirmation, out: Output) -> Result<(), Failure> {
    let before = agent.request(GetHostKeys {}).await?;
    let Some(pinned) = &before.pinned else {
        return Err(Failure::new(
            Exit::Refused,
            "no fingerprint is pinned, so no announced host key is followed; a known-hosts file is its owner's",
        ));
    };
    let is_followed = before.followed.iter().any(|key| key.fingerprint == *pinned);
    if !before.followed.is_empty() && !is_followed {
        let followed: Vec<_> = before.followed.iter().map(ToString::to_string).collect();
        confirmation.confirm(&format!(
            "The gateway shows one of these keys now:\n  {}\nand not the pinned one any more:\n  {pinned}\nWithout \
             them the connection is blocked until you pin the key that it shows. To trust that one alone, pin it \
             instead: deskgate connection set --mode remote --host-key SHA256:…",
            followed.join("\n  ")
        ))?;
    }
    let now = agent.request(DropHostKeys {}).await?;
    out.result("host-keys/1", &now, || {
        format!(
            "{} announced host keys were dropped. Trusted is the pinned one: {pinned}\nWhat a gateway with that key \
             announces from now on is followed again. See: deskgate status",
            before.followed.len()
        )
    });
    Ok(())
}

/// How often the agent is polled for the user's sign-in.
const SIGN_IN_POLL_INTERVAL: Duration = Duration::from_millis(500);

async fn sign_in(
    agent: AgentClient,
    gateway_address: Option<String>,
    no_wait: bool,
    out: Output,
) -> Result<(), Failure> {
    if gateway_address.is_some() {
        no_secret("--gateway-address", gateway_address.as_deref().unwrap_or_default())?;
        let edit = ConnectionEdit { gateway_address, ..ConnectionEdit::default() };
        let mode = settings::Mode::Hosted;
        let draft = SaveConnection { mode, edit, control_token: None, draft_only: true, abandon_runs: false };
        agent.request(draft).await?;
    }
    let before = since(&agent.request(GetAccount {}).await?);
    let invitation = agent.request(SignIn {}).await?;
    if no_wait {
        out.result("sign-in/1", &invitation, || invited(&invitation));
        return Ok(());
    }
    if !out.json {
        terminal::print(&format!(
            "{}\nWaiting for you until {}; Ctrl-C stops.",
            invited(&invitation),
            invitation.expires_at
        ));
    }
    let mut ctrl_c = CtrlC::answered()?;
    let account = loop {
        tokio::select! {
            () = tokio::time::sleep(SIGN_IN_POLL_INTERVAL) => {}
            () = ctrl_c.pressed() => {
                agent.request(CancelSignIn {}).await?;
                return Err(Failure::new(Exit::Refused, "Nobody was signed in."));
            }
        }
        let account = agent.request(GetAccount {}).await?;
        if !matches!(account.standing, AccountStatus::Waiting { .. }) {
            break account;
        }
    };
    came_of(before, &account)?;
    out.result("account/1", &account, || standing(&account));
    Ok(())
}

/// Whether a sign-in that ended made somebody signed in; `before`: since when somebody was.
fn came_of(before: Option<deskgate_protocol::Timestamp>, account: &AccountView) -> Result<(), Failure> {
    let signed_in = since(account);
    if signed_in.is_some() && signed_in != before {
        return Ok(());
    }
    let why = visible::line(account.sign_in_failed.as_deref().unwrap_or("the sign-in was cancelled")).to_string();
    let kept = match signed_in {
        Some(since) => format!("\nThe sign-in from {since} is still in use."),
        None => String::new(),
    };
    Err(Failure::new(Exit::NotAuthorised, format!("Not signed in: {}.{kept}", why.trim_end_matches('.'))))
}

/// Since when somebody is signed in.
fn since(account: &AccountView) -> Option<deskgate_protocol::Timestamp> {
    match &account.standing {
        AccountStatus::SignedIn { since, .. } => Some(*since),
        _ => None,
    }
}

fn invited(invitation: &SignInPrompt) -> String {
    let SignInPrompt { verification_uri, verification_uri_complete, user_code, .. } = invitation;
    let complete = verification_uri_complete.as_ref().map(|uri| format!("\nor, with the code in it: {uri}"));
    format!("Open {verification_uri} in a browser\nand enter the code {user_code}{}", complete.unwrap_or_default())
}

fn standing(account: &AccountView) -> String {
    let Some(gateway) = &account.gateway else {
        return "No hosted gateway is set up: deskgate connection sign-in --gateway-address https://…".to_owned();
    };
    match &account.standing {
        AccountStatus::SignedOut { why: None } => format!("Nobody is signed in at {gateway}."),
        AccountStatus::SignedOut { why: Some(why) } => {
            format!("Nobody is signed in at {gateway}: {}.", visible::line(why))
        }
        AccountStatus::Waiting { invitation } => format!("A sign-in at {gateway} waits.\n{}", invited(invitation)),
        AccountStatus::SignedIn { issuer, since, trouble } => {
            let trouble = trouble.as_ref().map(|trouble| format!("\n{}", visible::line(trouble))).unwrap_or_default();
            format!("Signed in at {gateway} with an account of {} since {since}.{trouble}", visible::line(issuer))
        }
        AccountStatus::Refused { issuer, why } => {
            let (issuer, why) = (visible::line(issuer), visible::line(why));
            format!("The sign-in at {gateway} is over: {issuer} refuses to renew it ({why}). Sign in again.")
        }
    }
}

fn request(save: ConnectionSetArgs) -> Result<SaveConnection, Failure> {
    for (flag, text) in [
        ("--listen", &save.listen),
        ("--ssh-address", &save.ssh_address),
        ("--ssh-user", &save.ssh_user),
        ("--control-socket", &save.control_socket),
        ("--host-key", &save.host_key),
        ("--gateway-address", &save.gateway_address),
    ] {
        no_secret(flag, text.as_deref().unwrap_or_default())?;
    }
    let control_token = save.token_file.as_deref().map(text_of).transpose()?;
    let known_hosts = save.known_hosts.map(std::path::absolute).transpose();
    let known_hosts = known_hosts.map_err(|error| Failure::new(Exit::Usage, format!("--known-hosts: {error}")))?;
    Ok(SaveConnection {
        mode: save.mode.into(),
        edit: ConnectionEdit {
            pins: save.host_key.is_some() || known_hosts.is_some(),
            listen: save.listen,
            ssh_address: save.ssh_address,
            ssh_user: save.ssh_user,
            control_socket: save.control_socket,
            host_key: save.host_key,
            known_hosts,
            gateway_address: save.gateway_address,
        },
        control_token,
        draft_only: save.draft,
        abandon_runs: save.accept_risk.as_deref() == Some("abandon-runs"),
    })
}

fn show(connection: &settings::ConnectionSettings, host_keys: &HostKeysView) -> String {
    let remote = |fields: &settings::Remote| {
        let pin = match (&fields.host_key, &fields.known_hosts) {
            (Some(fingerprint), _) => fingerprint.clone(),
            (None, Some(file)) => format!("in {}", file.display()),
            (None, None) => "none".to_owned(),
        };
        format!("{}@{}, socket {}, host key {pin}", fields.ssh_user, fields.ssh_address, fields.control_socket)
    };
    let mut text = format!(
        "mode          {}\nbuiltin       listens on {}\nremote        {}\n",
        connection.mode,
        connection.saved.builtin.listen,
        if connection.saved.remote.ssh_address.is_empty() {
            "not set up".to_owned()
        } else {
            remote(&connection.saved.remote)
        },
    );
    for key in &host_keys.followed {
        text += &format!("followed key  {key}\n");
    }
    if let Some(why) = &host_keys.unreadable {
        text += &format!("followed key  unknown: {why}\n");
    }
    let hosted = &connection.saved.hosted.gateway_address;
    text += &format!("hosted        {}\n", if hosted.is_empty() { "not set up" } else { hosted });
    if let Some(draft) = &connection.builtin_draft {
        text += &format!("builtin draft listens on {}\n", draft.listen);
    }
    if let Some(draft) = &connection.remote_draft {
        text += &format!("remote draft  {}\n", remote(draft));
    }
    if let Some(draft) = &connection.hosted_draft {
        text += &format!("hosted draft  {}\n", draft.gateway_address);
    }
    text
}

#[cfg(test)]
mod tests {
    use deskgate_protocol::Timestamp;

    use super::*;

    #[test]
    fn a_sign_in_that_failed_is_a_failure_whoever_was_signed_in_before() {
        let moment = |text: &str| text.parse::<Timestamp>().expect("a time");
        let (early, late) = (moment("2026-11-01T00:00:00Z"), moment("2026-11-02T00:00:00Z"));
        let view = |since: Option<Timestamp>, failed: Option<&str>| AccountView {
            gateway: None,
            standing: match since {
                Some(since) => {
                    AccountStatus::SignedIn { issuer: "https://id.example.com".to_owned(), since, trouble: None }
                }
                None => AccountStatus::SignedOut { why: None },
            },
            sign_in_failed: failed.map(str::to_owned),
            not_told: None,
        };
        assert!(came_of(None, &view(Some(early), None)).is_ok());
        assert!(came_of(Some(early), &view(Some(late), None)).is_ok());
        let expired = "the code expired before anybody signed in with it; sign in again";
        for (before, account, says) in [
            (None, view(None, Some(expired)), "the code expired"),
            (Some(early), view(Some(early), Some(expired)), "is still in use"),
            (Some(early), view(Some(early), None), "the sign-in was cancelled"),
        ] {
            let failure = came_of(before, &account).expect_err("nobody signed in anew");
            assert_eq!(failure.exit, Exit::NotAuthorised);
            assert!(failure.message.starts_with("Not signed in: ") && failure.message.contains(says), "{failure:?}");
        }
    }
}
