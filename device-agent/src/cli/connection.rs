//! `connection`: how the gateway is reached. Each mode has a draft of its own.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use deskgate_gateway::exit::{Exit, Failure};
use deskgate_gateway::output::Output;

use super::no_secret;
use super::socket::{Agent, failure};
use crate::local::{DiscardConnection, GetConnection, SaveConnection, TestConnection};
use crate::settings::{self, Edit};

/// `deskgate connection …`
#[derive(Debug, Subcommand)]
pub(super) enum Connection {
    /// Show what is in force, and the drafts
    Show,
    /// Make one connection with a mode's draft and say what came of it
    Test {
        /// Which mode
        #[arg(long)]
        mode: Mode,
    },
    /// Change a mode's fields and put them in force; with --draft only change them
    Save(Save),
    /// Throw a mode's draft away
    Discard {
        /// Which mode
        #[arg(long)]
        mode: Mode,
    },
}

/// The modes.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(super) enum Mode {
    /// The gateway runs inside the agent, on loopback
    Builtin,
    /// The gateway runs on a server, reached over SSH
    Remote,
}

impl From<Mode> for settings::Mode {
    fn from(mode: Mode) -> Self {
        match mode {
            Mode::Builtin => Self::BuiltIn,
            Mode::Remote => Self::Remote,
        }
    }
}

/// `deskgate connection save`
#[derive(Debug, Args)]
pub(super) struct Save {
    /// Which mode. Another one than before pauses access
    #[arg(long)]
    mode: Mode,
    /// Keep the fields as a draft, and put nothing in force
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
    /// Accept what that does to runs in progress: abandon-runs
    #[arg(long, value_name = "RISK")]
    accept_risk: Option<String>,
}

pub(super) async fn run(agent: Agent, command: Connection, out: Output) -> Result<(), Failure> {
    match command {
        Connection::Show => {
            let connection = agent.ask(GetConnection {}).await?;
            out.result("connection/1", &connection, || show(&connection));
        }
        Connection::Discard { mode } => {
            let connection = agent.ask(DiscardConnection { mode: mode.into() }).await?;
            out.result("connection/1", &connection, || "The draft is gone.".to_owned());
        }
        Connection::Test { mode } => {
            let tested = agent.ask(TestConnection { mode: mode.into() }).await?;
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
        Connection::Save(save) => {
            let draft_only = save.draft;
            let connection = agent.ask(request(save)?).await?;
            out.result("connection/1", &connection, || match draft_only {
                true => "The draft is kept. Nothing else changed.".to_owned(),
                false => format!("In force: {} mode. See: deskgate status", connection.mode),
            });
        }
    }
    Ok(())
}

fn request(save: Save) -> Result<SaveConnection, Failure> {
    for (flag, text) in [
        ("--listen", &save.listen),
        ("--ssh-address", &save.ssh_address),
        ("--ssh-user", &save.ssh_user),
        ("--control-socket", &save.control_socket),
        ("--host-key", &save.host_key),
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
        edit: Edit {
            listen: save.listen,
            ssh_address: save.ssh_address,
            ssh_user: save.ssh_user,
            control_socket: save.control_socket,
            host_key: save.host_key,
            known_hosts,
        },
        control_token,
        draft_only: save.draft,
        abandon_runs: save.accept_risk.as_deref() == Some("abandon-runs"),
    })
}

fn show(connection: &settings::Connection) -> String {
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
    if let Some(draft) = &connection.builtin_draft {
        text += &format!("builtin draft listens on {}\n", draft.listen);
    }
    if let Some(draft) = &connection.remote_draft {
        text += &format!("remote draft  {}\n", remote(draft));
    }
    text
}
