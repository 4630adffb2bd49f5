//! `connection`: how the gateway is reached. Each mode has a draft of its own.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};
use deskgate_program::exit::{Exit, Failure};
use deskgate_program::output::Output;
use deskgate_program::terminal;

use super::no_secret;
use super::socket::{AgentClient, failure};
use crate::local::{
    AccountStatus, AccountView, CancelSignIn, DiscardConnection, GetAccount, GetConnection, SaveConnection, SignIn,
    SignInPrompt, SignOut, TestConnection,
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
        /// Which mode
        #[arg(long)]
        mode: ModeName,
    },
    /// Change a mode's fields and make them active; with --draft only change them
    Save(ConnectionSaveArgs),
    /// Throw a mode's draft away
    Discard {
        /// Which mode
        #[arg(long)]
        mode: ModeName,
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

/// `deskgate connection save`
#[derive(Debug, Args)]
pub(super) struct ConnectionSaveArgs {
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
    /// remote: the host key's fingerprint, as the administrator gave it to you
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
}

pub(super) async fn run(agent: AgentClient, command: ConnectionCommand, out: Output) -> Result<(), Failure> {
    match command {
        ConnectionCommand::Show => {
            let connection = agent.request(GetConnection {}).await?;
            out.result("connection/1", &connection, || show(&connection));
        }
        ConnectionCommand::Discard { mode } => {
            let connection = agent.request(DiscardConnection { mode: mode.into() }).await?;
            out.result("connection/1", &connection, || "The draft is gone.".to_owned());
        }
        ConnectionCommand::Test { mode } => {
            let tested = agent.request(TestConnection { mode: mode.into() }).await?;
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
        ConnectionCommand::Save(save) => {
            let draft_only = save.draft;
            let connection = agent.request(request(save)?).await?;
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
    let account = loop {
        tokio::select! {
            () = tokio::time::sleep(SIGN_IN_POLL_INTERVAL) => {}
            _ = tokio::signal::ctrl_c() => {
                agent.request(CancelSignIn {}).await?;
                return Err(Failure::new(Exit::Refused, "Nobody was signed in."));
            }
        }
        let account = agent.request(GetAccount {}).await?;
        if !matches!(account.standing, AccountStatus::Waiting { .. }) {
            break account;
        }
    };
    match &account.standing {
        AccountStatus::SignedIn { .. } => {
            out.result("account/1", &account, || standing(&account));
            Ok(())
        }
        _ => Err(Failure::new(Exit::NotAuthorised, standing(&account))),
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

fn request(save: ConnectionSaveArgs) -> Result<SaveConnection, Failure> {
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
    let control_token = match &save.token_file {
        None => None,
        Some(path) if path.as_os_str() == "-" => Some(std::io::read_to_string(std::io::stdin())),
        Some(path) => Some(std::fs::read_to_string(path)),
    };
    let control_token = control_token.transpose().map_err(|error| {
        let path = save.token_file.as_deref().unwrap_or(std::path::Path::new("-"));
        Failure::new(Exit::Failed, format!("{}: {error}", path.display()))
    })?;
    let known_hosts = save.known_hosts.map(std::path::absolute).transpose();
    let known_hosts = known_hosts.map_err(|error| Failure::new(Exit::Usage, format!("--known-hosts: {error}")))?;
    Ok(SaveConnection {
        mode: save.mode.into(),
        edit: ConnectionEdit {
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

fn show(connection: &settings::ConnectionSettings) -> String {
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
