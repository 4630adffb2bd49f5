//! `upgrade-check`: what would not fit if this program replaced the running gateway.

use std::path::Path;

use deskgate_protocol::{Half, VERSION, versions_match};
use serde::Serialize;
use serde_json::json;

use super::client::devices;
use super::status::fetch_status;
use crate::config::Config;
use crate::store::Database;
use crate::store::devices::{DeviceVersion, device_versions};
use crate::store::migrate::{self, SchemaStatus};
use deskgate_program::exit::{Exit, Failure};
use deskgate_program::output::{Output, table};

/// A device's compatibility with this program.
#[derive(Clone, Debug, Serialize)]
struct DeviceCompatibility {
    name: String,
    version: Option<String>,
    /// Absent for a device that never connected.
    fits: Option<bool>,
    /// The half that is older.
    upgrade: Option<Half>,
}

/// The state of the running gateway and its database.
struct RunningGateway {
    running: Option<String>,
    devices: Vec<DeviceVersion>,
    applied: Option<i32>,
    /// A private cluster is migrated when the gateway starts.
    by_itself: bool,
}

/// Checks, prints the result, and ends with 7 if something does not match.
///
/// # Errors
/// `Exit::VersionMismatch`: a device would be refused, a newer program migrated the database, or migrations are missing
/// that the start does not apply. `Exit::NotSetUp`: the settings of the database cannot be used. `Exit::CannotReach`:
/// the database does not answer; or none is configured, and the gateway that runs the private cluster does not answer.
/// `Exit::NotAuthorised`: the latter is to be asked, and the user may not use the administrator's socket.
/// `Exit::Failed`: the schema cannot be compared with this program, or the answer is of another kind.
pub async fn check(socket: &Path, config: &Config, out: Output) -> Result<(), Failure> {
    let found = look(socket, config).await?;
    let devices: Vec<_> = found.devices.iter().map(judge).collect();
    let refused = devices.iter().filter(|device| device.fits == Some(false)).count();
    let known = migrate::newest();
    let missing = found.applied.map_or(0, |applied| (known - applied).max(0));
    let ahead = found.applied.is_some_and(|applied| applied > known);
    let value = json!({
        "version": VERSION, "running": found.running, "devices": devices,
        "migration": { "applied": found.applied, "known": known, "by_itself": found.by_itself },
    });
    out.result("upgrade-check/1", &value, || show(&found, &devices, missing));
    let mut wrong = Vec::new();
    if refused > 0 {
        wrong.push(format!(
            "{refused} of {} devices would be refused: major and minor version must be equal on both sides",
            devices.len()
        ));
    }
    if ahead {
        wrong.push(format!("the database was migrated by a newer program; this one knows {known} migrations"));
    } else if missing > 0 && !found.by_itself {
        wrong.push(format!(
            "{missing} migrations are missing, without which this program does not start. The running one goes on \
             after them: deskgate-gateway migrate run"
        ));
    }
    if wrong.is_empty() { Ok(()) } else { Err(Failure::new(Exit::VersionMismatch, wrong.join("\n"))) }
}

async fn look(socket: &Path, config: &Config) -> Result<RunningGateway, Failure> {
    let status = fetch_status(socket).await;
    let url = config.database_url().map_err(|error| Failure::new(Exit::NotSetUp, error.to_string()))?;
    let Some(url) = url else {
        // Only the gateway can query its private cluster.
        let status = status?;
        let known = devices(socket).await?.into_iter().filter(|device| device.state != "revoked");
        return Ok(RunningGateway {
            running: Some(status.version),
            devices: known.map(|device| DeviceVersion { name: device.name, version: device.version }).collect(),
            applied: status.migration,
            by_itself: true,
        });
    };
    let unreachable = |error: crate::store::Error| Failure::new(Exit::CannotReach, error.to_string());
    let database = Database::new(&url, None, config.ca_file().as_ref());
    let database = database.map_err(|error| Failure::new(Exit::NotSetUp, error.to_string()))?;
    let (client, _driver) = database.connect().await.map_err(unreachable)?;
    let standing = migrate::schema_status(&client).await;
    let applied = match standing.map_err(|error| Failure::new(Exit::Failed, error.to_string()))? {
        SchemaStatus::Current => migrate::newest(),
        SchemaStatus::Behind { applied } | SchemaStatus::Ahead { applied } => applied,
    };
    let devices = if applied > 0 { device_versions(&client).await.map_err(unreachable)? } else { Vec::new() };
    Ok(RunningGateway {
        running: status.ok().map(|status| status.version),
        devices,
        applied: Some(applied),
        by_itself: false,
    })
}

fn judge(device: &DeviceVersion) -> DeviceCompatibility {
    let verdict = device.version.as_deref().map(|version| versions_match(VERSION, version));
    DeviceCompatibility {
        name: device.name.clone(),
        version: device.version.clone(),
        fits: verdict.map(|verdict| verdict.is_ok()),
        upgrade: verdict.and_then(Result::err),
    }
}

fn show(found: &RunningGateway, devices: &[DeviceCompatibility], missing: i32) -> String {
    let running = found.running.as_deref().unwrap_or("not running");
    let mut text = format!("this program  {VERSION}\nthe gateway   {running}\n");
    text += &match (missing, found.by_itself) {
        (0, _) => "migrations    none is missing\n".to_owned(),
        (missing, true) => format!("migrations    {missing} are applied by the first start of this program\n"),
        (missing, false) => format!("migrations    {missing} are missing: deskgate-gateway migrate plan\n"),
    };
    let row = |device: &DeviceCompatibility| {
        let verdict = match (device.fits, device.upgrade) {
            (None, _) => "was never here",
            (Some(true), _) => "fits",
            (Some(false), Some(Half::Gateway)) => "would be refused: it is newer than this program",
            (Some(false), _) => "would be refused: upgrade it together with the gateway",
        };
        vec![device.name.clone(), device.version.clone().unwrap_or_default(), verdict.to_owned()]
    };
    text + &table(&["DEVICE", "VERSION", ""], devices.iter().map(row).collect())
}
