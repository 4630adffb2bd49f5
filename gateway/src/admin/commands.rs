//! The administrator's commands: what each asks the running gateway, and prints.

use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use clap::Subcommand;
use deskgate_protocol::DeviceId;
use deskgate_protocol::management::Application;
use serde_json::json;

use super::client::{done, find, find_or_ask, risk, send_request, unexpected};
use super::{
    AdminReply, AdminRequest, DeviceView, PairingDetails, applications, deliveries, host_key, invitations, runs,
    storage,
};
use deskgate_program::exit::{Exit, Failure};
use deskgate_program::look::Cell;
use deskgate_program::output::Output;
use deskgate_program::records::{self, Detail};
use deskgate_program::{terminal, text_file};

/// `deskgate-gateway admin …`
#[derive(Debug, Subcommand)]
pub enum AdminCommand {
    /// Paired devices
    #[command(subcommand)]
    Device(DeviceCommand),
    /// The private control token
    #[command(subcommand)]
    Token(TokenCommand),
    /// The SSH host key's fingerprint, for the desktop user to compare; and a new key
    HostKey {
        /// Without one, the key is shown.
        #[command(subcommand)]
        command: Option<host_key::HostKeyCommand>,
    },
    /// The hosts that callbacks may go to
    #[command(subcommand)]
    Allowlist(deliveries::AllowlistCommand),
    /// What receivers of callbacks were told
    #[command(subcommand)]
    Delivery(deliveries::DeliveryCommand),
    /// Applications of all devices
    #[command(subcommand)]
    App(applications::AppCommand),
    /// Runs of all devices
    #[command(subcommand)]
    Run(runs::RunCommand),
    /// Where the bytes of files and artifacts are kept
    #[command(subcommand)]
    Storage(storage::StorageCommand),
}

/// `deskgate-gateway admin device …`
#[derive(Debug, Subcommand)]
pub enum DeviceCommand {
    /// Pair the device of an identity file that `deskgate identity export` wrote
    Add {
        /// The file; - for standard input
        file: PathBuf,
        /// Print the line for ~/.ssh/authorized_keys of the tunnel's account
        #[arg(long)]
        print_authorized_keys: bool,
    },
    /// Invite a device by one line, which its user pastes; then confirm it
    Invite(invitations::InviteArgs),
    /// Invitations, newest first, and the devices that came with them
    Invitations,
    /// Confirm the device that came with an invitation, by the short code that its user reads out
    Confirm {
        /// The short code, as in 1A2B-3C4D-5E6F-7A8B
        code: String,
        /// Print the line for ~/.ssh/authorized_keys of the tunnel's account
        #[arg(long)]
        print_authorized_keys: bool,
    },
    /// Refuse an invitation, and whoever came with it
    Refuse {
        /// The short code of the device that came, or the invitation's identifier
        invitation: String,
    },
    /// Devices, newest first
    List {
        /// At most so many
        #[arg(long, default_value_t = 100)]
        limit: u32,
        /// Only devices that were paired before this one
        #[arg(long, value_name = "DEVICE")]
        before: Option<DeviceId>,
    },
    /// One device
    Show {
        /// Its name or identifier
        device: Option<String>,
    },
    /// End a device: its key is refused, its queued runs are cancelled, its started runs fail
    Revoke {
        /// Its name or identifier
        device: Option<String>,
        /// Disable its applications too: a device that is never paired again needs none
        #[arg(long)]
        disable_applications: bool,
        /// Accept what that does to its runs: interrupt-runs
        #[arg(long, value_name = "RISK")]
        accept_risk: Option<String>,
    },
    /// Give a device another name
    Rename {
        /// Its name or identifier
        device: Option<String>,
        /// Its new name
        name: Option<String>,
    },
}

/// `deskgate-gateway admin token …`
#[derive(Debug, Subcommand)]
pub enum TokenCommand {
    /// Make a new control token; older ones go on for the overlap
    #[command(alias = "rotate")]
    Roll {
        /// The file to write it to, mode 0600
        #[arg(long, value_name = "FILE")]
        to: Option<PathBuf>,
        /// Hours that older tokens go on
        #[arg(long, default_value_t = 24)]
        overlap_hours: u64,
    },
}

/// Runs an administrator's command.
///
/// # Errors
/// `Exit::CannotReach`: the gateway is not running, or its database does not answer. `Exit::NotAuthorised`: the user
/// may not use the administrator's socket. `Exit::Usage`: the accepted risk is not the one of this command.
/// `Exit::Refused`: the risk was not accepted, or the gateway refuses the request in its present state.
/// `Exit::NotSetUp`: the command is about host keys, and the gateway has no SSH listener. `Exit::Pending`: the desktop
/// has not confirmed a stop in time. `Exit::Failed`: the gateway finds a value invalid, nothing has this name or
/// identifier, several devices have this name, a file cannot be read or written, or the answer is of another kind.
pub async fn run(socket: &Path, command: AdminCommand, out: Output) -> Result<(), Failure> {
    match command {
        AdminCommand::Device(DeviceCommand::Add { file, print_authorized_keys }) => {
            add(socket, &file, print_authorized_keys, out).await
        }
        AdminCommand::Device(DeviceCommand::Invite(invite)) => invitations::invite(socket, invite, out).await,
        AdminCommand::Device(DeviceCommand::Invitations) => invitations::show(socket, out).await,
        AdminCommand::Device(DeviceCommand::Confirm { code, print_authorized_keys }) => {
            invitations::confirm(socket, &code, print_authorized_keys, out).await
        }
        AdminCommand::Device(DeviceCommand::Refuse { invitation }) => {
            invitations::refuse(socket, &invitation, out).await
        }
        AdminCommand::Device(DeviceCommand::List { limit, before }) => {
            let AdminReply::Devices { devices, next } =
                send_request(socket, AdminRequest::DeviceList { limit: Some(limit), before }).await?
            else {
                return Err(Failure::new(Exit::Failed, "the gateway answered something else"));
            };
            let value = json!({ "devices": devices, "next": next });
            out.result("devices/1", &value, || list(&devices) + &records::older(next));
            Ok(())
        }
        AdminCommand::Device(DeviceCommand::Show { device }) => {
            let command = "deskgate-gateway admin device show DEVICE";
            let device = find_or_ask(socket, device.as_deref(), command).await?;
            out.result("device/1", &device, || show(&device));
            Ok(())
        }
        AdminCommand::Device(DeviceCommand::Revoke { device, disable_applications, accept_risk }) => {
            let command = "deskgate-gateway admin device revoke DEVICE";
            let device = find_or_ask(socket, device.as_deref(), command).await?;
            if !risk(accept_risk.as_deref(), "interrupt-runs")? {
                return Err(Failure::new(
                    Exit::Refused,
                    format!(
                        "Revoking {} ends every run it has not finished. No changes were made.\nTo go on: deskgate-gateway \
                         admin device revoke {} --accept-risk=interrupt-runs",
                        device.name, device.device_id
                    ),
                ));
            }
            let asked = AdminRequest::DeviceRevoke { device_id: device.device_id, disable_applications };
            let AdminReply::Revoked { applications } = send_request(socket, asked).await? else {
                return Err(Failure::new(Exit::Failed, "the gateway answered something else"));
            };
            let short = |app: &Application| json!({ "name": app.name, "state": app.state });
            let ended: Vec<_> = applications.iter().map(short).collect();
            out.result("device/1", &json!({ "device_id": device.device_id, "applications": ended }), || {
                let line = |app: &Application| format!("\n{} is {}.", app.name, app.state);
                format!("{} is revoked.{}", device.name, applications.iter().map(line).collect::<String>())
            });
            Ok(())
        }
        AdminCommand::Device(DeviceCommand::Rename { device, name }) => {
            let command = "deskgate-gateway admin device rename DEVICE NAME";
            // With one word nobody knows whether it is the old name or the new one.
            let Some((device, name)) = device.zip(name) else {
                return find_or_ask(socket, None, command).await.map(drop);
            };
            let device_id = find(socket, &device).await?.device_id;
            done(socket, AdminRequest::DeviceRename { device_id, name: name.clone() }).await?;
            out.result("device/1", &json!({ "device_id": device_id, "name": name }), || {
                format!("{device} is now {name}.")
            });
            Ok(())
        }
        AdminCommand::Token(TokenCommand::Roll { to, overlap_hours }) => {
            rotate(socket, to.as_deref(), overlap_hours, out).await
        }
        AdminCommand::Allowlist(command) => deliveries::allowlist(socket, command, out).await,
        AdminCommand::Delivery(command) => deliveries::delivery(socket, command, out).await,
        AdminCommand::App(command) => applications::run(socket, command, out).await,
        AdminCommand::Run(command) => runs::run(socket, command, out).await,
        AdminCommand::Storage(command) => storage::run(socket, command, out).await,
        AdminCommand::HostKey { command } => host_key::run(socket, command, out).await,
    }
}

/// `deskgate-gateway reload`
///
/// # Errors
/// `Exit::CannotReach`: the gateway is not running. `Exit::NotAuthorised`: the user may not use the administrator's
/// socket. `Exit::Failed`: the connection breaks, or the answer is of another kind. If the gateway cannot reload, the
/// exit code of its refusal.
pub async fn reload(socket: &Path, out: Output) -> Result<(), Failure> {
    match send_request(socket, AdminRequest::Reload).await? {
        AdminReply::Reloaded { what } => {
            out.result("reload/1", &json!({ "what": what }), || what.clone());
            Ok(())
        }
        other => Err(unexpected(&other)),
    }
}

async fn add(socket: &Path, file: &Path, print_authorized_keys: bool, out: Output) -> Result<(), Failure> {
    let file =
        text_file::read(file).map_err(|error| Failure::new(Exit::Failed, format!("{}: {error}", file.display())))?;
    let (device, details) = match send_request(socket, AdminRequest::DeviceAdd { file }).await? {
        AdminReply::Paired(paired) => (paired.device, paired.details),
        other => return Err(unexpected(&other)),
    };
    let line = authorized_keys(&device);
    if print_authorized_keys && !out.json {
        terminal::print(&line);
        return Ok(());
    }
    let value = json!({ "device": device, "details": details, "authorized_keys": line });
    out.result("paired/1", &value, || paired(&device, &details));
    Ok(())
}

/// The line by which the server's own sshd lets a paired device through.
pub(super) fn authorized_keys(device: &DeviceView) -> String {
    format!("restrict,port-forwarding {} {}", device.public_key, device.device_id)
}

fn paired(device: &DeviceView, details: &PairingDetails) -> String {
    let or = |value: &Option<String>, otherwise: &str| value.clone().unwrap_or_else(|| otherwise.to_owned());
    format!(
        "Paired {} ({})\nFingerprint  {}\nShort code   {}\nCompare it with what `deskgate identity show` prints on the desktop.\n\n\
         The desktop user needs:\n  SSH address           {}\n  host key fingerprint  {}\n  control socket        {}\n  \
         public address        {}\n  control token         in {} on this server; hand it over privately\n",
        device.name,
        device.device_id,
        device.fingerprint,
        device.short_code,
        or(&details.ssh_address, "this server's sshd"),
        or(&details.host_key_fingerprint, "as printed by: ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub"),
        or(&details.control_socket, "none is configured"),
        details.address,
        or(&details.token_file, "the file it was configured with"),
    )
}

fn list(devices: &[DeviceView]) -> String {
    records::list(
        devices,
        "No device is paired. Invite one: deskgate-gateway admin device invite",
        &["NAME", "STATE", "VERSION", "LAST SEEN", "ID", "ACCOUNT", "NOTE"],
        |device| {
            vec![
                device.name.clone().into(),
                device.state.clone().into(),
                device.version.clone().unwrap_or_default().into(),
                device.last_seen_at.into(),
                Cell::id(device.device_id),
                device.account.clone().unwrap_or_default().into(),
                device.note.clone().unwrap_or_default().into(),
            ]
        },
    )
}

fn show(device: &DeviceView) -> String {
    Detail::new(&device.name)
        .field("identifier", device.device_id)
        .field("fingerprint", &device.fingerprint)
        .field("short code", &device.short_code)
        .field("state", &device.state)
        .fields("account", device.account.as_ref())
        .fields("note", device.note.as_ref())
        .fields("version", device.version.as_ref())
        .fields("last seen", device.last_seen_at)
        .field("paired", device.paired_at)
        .text()
}

async fn rotate(socket: &Path, to: Option<&Path>, overlap_hours: u64, out: Output) -> Result<(), Failure> {
    // The file is created first: a token that cannot be stored must not be created.
    let file = to.map(|path| {
        let made = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
        made.map_err(|error| Failure::new(Exit::Failed, format!("{}: {error}. No changes were made", path.display())))
    });
    let file = file.transpose()?;
    let answer = send_request(
        socket,
        AdminRequest::TokenRotate { overlap_s: overlap_hours.saturating_mul(3600), to_file: to.is_some() },
    )
    .await;
    let token = answer.and_then(|answer| match answer {
        AdminReply::Token { text, kept_in } => Ok((text, kept_in)),
        other => Err(unexpected(&other)),
    });
    let (text, kept_in) = match token {
        Ok(token) => token,
        Err(failure) => {
            if let Some(path) = to {
                let _ = std::fs::remove_file(path);
            }
            return Err(failure);
        }
    };
    if let Some(mut file) = file {
        let written = writeln!(file, "{text}").and_then(|()| file.sync_all());
        written.map_err(|error| Failure::new(Exit::Failed, format!("the new token could not be written: {error}")))?;
    }
    let written_to = to.map(|path| path.display().to_string()).or(kept_in);
    let value = json!({ "written_to": written_to, "overlap_hours": overlap_hours });
    out.result("token/1", &value, || {
        format!(
            "A new control token is in {}. Older ones go on for {overlap_hours} hours: hand the new one to every desktop user.",
            written_to.unwrap_or_default()
        )
    });
    Ok(())
}
