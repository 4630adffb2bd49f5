//! `backup create|verify|restore`: a folder with a dump of the database, and a manifest of what it contains and lacks.
//!
//! The encryption key, the control token and the host key are excluded: with both the database and the key, all
//! encrypted values can be read, so they are kept apart. Each command says where they are.

use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use clap::Subcommand;
use deskgate_protocol::VERSION;
use ring::digest::{Context, SHA256};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::client::{risk, send_request, unexpected};
use super::status::fetch_status;
use super::{AdminReply, AdminRequest};
use crate::config::Config;
use crate::store::backup::{self, BackupContents, BackupError, RestoreReport, ScratchDatabase, TableCounts};
use crate::store::cluster::{self, Cluster, ClusterError};
use crate::store::migrate::{self, MigrateError};
use crate::store::{Database, DatabaseOpenError};
use deskgate_program::exit::{Exit, Failure};
use deskgate_program::output::Output;

/// `deskgate-gateway backup …`
#[derive(Debug, Subcommand)]
pub enum BackupCommand {
    /// Write a backup into a new folder; the gateway may go on meanwhile
    Create {
        /// The folder, which must not exist
        folder: PathBuf,
    },
    /// Put a backup into a throw-away database and compare what is in it with what was
    Verify {
        /// The folder
        folder: PathBuf,
        /// Make that database on the server of `database.url`, and drop it afterwards: where no PostgreSQL server is
        /// installed, as in a container. The gateway's account must be allowed to create databases
        #[arg(long)]
        on_database_server: bool,
    },
    /// Put a backup back. No gateway may run on the database
    Restore {
        /// The folder
        folder: PathBuf,
        /// Accept that what is in the database now is replaced: replace-database
        #[arg(long, value_name = "RISK")]
        accept_risk: Option<String>,
        /// Nothing has run since a backup that was made while the gateway was stopped: go on with its runs as if nothing
        /// had happened, instead of holding them for their owners' decision
        #[arg(long)]
        nothing_ran_since: bool,
    },
}

const MANIFEST_FILE: &str = "backup.json";
const DUMP_FILE: &str = "database.dump";

/// The manifest of a backup.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct BackupManifest {
    schema: String,
    /// The version of the program that created it.
    version: String,
    #[serde(flatten)]
    contents: BackupContents,
    /// The dump's length and SHA-256.
    bytes: u64,
    sha256: String,
    /// What a working gateway needs besides, and where it was.
    not_included: Vec<ExcludedItem>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct ExcludedItem {
    what: String,
    place: String,
}

/// Runs a command about backups.
///
/// # Errors
/// `Exit::Usage`: the accepted risk is not the one of this command. `Exit::NotSetUp`: the settings of the database
/// cannot be used, the private cluster cannot be started, a program of PostgreSQL is missing, or the account may not
/// create databases. `Exit::CannotReach`: the database does not answer. `Exit::NotAuthorised`: the user may not use the
/// administrator's socket. `Exit::Refused`: the private cluster is in use and its gateway does not answer; or a restore
/// finds that a gateway runs, that the database is not empty and the risk was not accepted, or that a gateway was at
/// work when a backup was made that is said to be the last state. `Exit::VersionMismatch`: the backup is of a newer
/// program. `Exit::CheckFailed`: the rows that were restored for a check are not those of the backup. `Exit::Failed`:
/// the folder of a new backup exists, a file cannot be read or written, the backup is damaged, the schema cannot be
/// used, or `pg_dump` or `pg_restore` fails.
pub async fn run(socket: &Path, config: &Config, command: BackupCommand, out: Output) -> Result<(), Failure> {
    match command {
        BackupCommand::Create { folder } => create(socket, config, &folder, out).await,
        BackupCommand::Verify { folder, on_database_server } => verify(config, &folder, on_database_server, out).await,
        BackupCommand::Restore { folder, accept_risk, nothing_ran_since } => {
            let replace = risk(accept_risk.as_deref(), "replace-database")?;
            restore(socket, config, &folder, replace, nothing_ran_since, out).await
        }
    }
}

/// A database, and the private cluster that was started for it.
struct BackupDatabase {
    database: Database,
    cluster: Option<Cluster>,
}

impl BackupDatabase {
    /// The configured database, or the private cluster: of the running gateway, or started for this command.
    async fn find(socket: &Path, config: &Config) -> Result<Self, Failure> {
        if let Some(url) = config.database_url().map_err(|error| Failure::new(Exit::NotSetUp, error.to_string()))? {
            return Ok(Self { database: opened(&url, config)?, cluster: None });
        }
        match send_request(socket, AdminRequest::PrivateCluster).await {
            Ok(AdminReply::PrivateCluster { url: Some(url) }) => {
                Ok(Self { database: opened(&url, config)?, cluster: None })
            }
            Ok(other) => Err(unexpected(&other)),
            Err(failure) if failure.exit == Exit::CannotReach => Self::start(config).await,
            Err(failure) => Err(failure),
        }
    }

    /// Starts the private cluster, which must not be running.
    async fn start(config: &Config) -> Result<Self, Failure> {
        let cluster =
            Cluster::start(cluster::ClusterConfig::new(config.state_dir())).await.map_err(|error| match error {
                ClusterError::InUse { .. } => {
                    Failure::new(Exit::Refused, format!("{error}. Stop the gateway first, or wait until it answers"))
                }
                error => Failure::new(Exit::NotSetUp, error.to_string()),
            })?;
        Ok(Self { database: opened(&cluster.url(), config)?, cluster: Some(cluster) })
    }

    async fn leave(self) {
        if let Some(cluster) = self.cluster {
            cluster.stop().await;
        }
    }
}

fn opened(url: &str, config: &Config) -> Result<Database, Failure> {
    let wrong = |error: DatabaseOpenError| Failure::new(Exit::NotSetUp, error.to_string());
    Database::new(url, None, config.ca_file().as_ref()).map_err(wrong)
}

fn failed(error: BackupError) -> Failure {
    let exit = match &error {
        BackupError::NoProgram { .. } | BackupError::MayNotCreate => Exit::NotSetUp,
        BackupError::Store(_) => Exit::CannotReach,
        BackupError::Schema(MigrateError::Ahead { .. }) => Exit::VersionMismatch,
        _ => Exit::Failed,
    };
    Failure::new(exit, error.to_string())
}

fn at(path: &Path) -> impl FnOnce(std::io::Error) -> Failure {
    move |error| Failure::new(Exit::Failed, format!("{}: {error}", path.display()))
}

async fn create(socket: &Path, config: &Config, folder: &Path, out: Output) -> Result<(), Failure> {
    if folder.exists() {
        return Err(Failure::new(Exit::Failed, format!("{} is there already; name a new folder", folder.display())));
    }
    let reached = BackupDatabase::find(socket, config).await?;
    // Under another name first: a file with the right name is complete.
    let partial = folder.with_extension(format!("{}.partial", std::process::id()));
    let written = write(&reached.database, config, &partial).await;
    reached.leave().await;
    let named = written.and_then(|page| std::fs::rename(&partial, folder).map(|()| page).map_err(at(folder)));
    let page = named.inspect_err(|_| drop(std::fs::remove_dir_all(&partial)))?;
    out.result("backup/1", &json!({ "folder": folder, "backup": page }), || {
        let mut text = format!("{} holds\n{}", folder.display(), in_it(&page));
        text += "\nNot in it, and to be kept elsewhere:\n";
        for ExcludedItem { what, place } in &page.not_included {
            text += &format!("  {what}: {place}\n");
        }
        text + &format!("\nTry it: deskgate-gateway backup verify {}", folder.display())
    });
    Ok(())
}

async fn write(database: &Database, config: &Config, folder: &Path) -> Result<BackupManifest, Failure> {
    std::fs::DirBuilder::new().mode(0o700).create(folder).map_err(at(folder))?;
    let dump = folder.join(DUMP_FILE);
    drop(private(&dump)?);
    let contents = backup::take(database, &dump).await.map_err(failed)?;
    let file = File::open(&dump).map_err(at(&dump))?;
    file.sync_all().map_err(at(&dump))?;
    let (bytes, sha256) = digest(file).map_err(at(&dump))?;
    let (schema, version) = ("backup/1".to_owned(), VERSION.to_owned());
    let page = BackupManifest { schema, version, contents, bytes, sha256, not_included: besides(config) };
    let text = serde_json::to_string_pretty(&page).map_err(|error| Failure::new(Exit::Failed, error.to_string()))?;
    let path = folder.join(MANIFEST_FILE);
    let mut file = private(&path)?;
    writeln!(file, "{text}").and_then(|()| file.sync_all()).map_err(at(&path))?;
    Ok(page)
}

fn private(path: &Path) -> Result<File, Failure> {
    File::options().write(true).create_new(true).mode(0o600).open(path).map_err(at(path))
}

fn digest(mut file: impl Read) -> std::io::Result<(u64, String)> {
    let (mut context, mut bytes, mut piece) = (Context::new(&SHA256), 0, vec![0; 64 * 1024]);
    loop {
        match file.read(&mut piece)? {
            0 => break,
            length => {
                context.update(&piece[..length]);
                bytes += length as u64;
            }
        }
    }
    let hex = context.finish().as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
    Ok((bytes, hex))
}

/// What a gateway needs besides its database.
fn besides(config: &Config) -> Vec<ExcludedItem> {
    let state = |name: &str| config.state_dir().join(name).display().to_string();
    let of = |what: &str, place: String| ExcludedItem { what: what.to_owned(), place };
    let token = config
        .control_token_file()
        .map_or_else(|| state(deskgate_program::token::CONTROL_TOKEN_FILE), |path| path.display().to_string());
    vec![
        of(
            "the sealing key, without which callbacks and webhooks need new secrets",
            config.seal_file().display().to_string(),
        ),
        of("the control token, which desktops present", token),
        of("the SSH host key, which desktops have pinned", state("ssh_host_ed25519_key")),
        of("the configuration and its secrets, certificates", "where you keep them".to_owned()),
        of("what services are made of, and what they did", "on the desktops".to_owned()),
    ]
}

fn in_it(page: &BackupManifest) -> String {
    let contents = &page.contents;
    let rows: i64 = contents.tables.values().sum();
    let of = |table: &str| contents.tables.get(table).copied().unwrap_or_default();
    format!(
        "  the database of {} as of {} (migration {}, PostgreSQL {}): {rows} rows in {} tables;\n  {} devices, {} \
         applications, {} runs, of which {} had not ended; keys as digests, secrets sealed\n",
        contents.gateway_id,
        contents.taken_at,
        contents.migration,
        contents.postgres,
        contents.tables.len(),
        of("devices"),
        of("applications"),
        of("runs"),
        contents.open_runs,
    )
}

/// Reads the manifest, and checks that the dump is the one it describes.
fn read(folder: &Path) -> Result<BackupManifest, Failure> {
    let (page, dump) = (folder.join(MANIFEST_FILE), folder.join(DUMP_FILE));
    let text = std::fs::read_to_string(&page).map_err(at(&page))?;
    let no_backup = |error| Failure::new(Exit::Failed, format!("{}: {error}; this is no backup", page.display()));
    let read: BackupManifest = serde_json::from_str(&text).map_err(no_backup)?;
    let found = File::open(&dump).and_then(digest).map_err(at(&dump))?;
    if found != (read.bytes, read.sha256.clone()) {
        return Err(Failure::new(Exit::Failed, format!("{} is not what was written; it was damaged", dump.display())));
    }
    if read.contents.migration > migrate::newest() {
        return Err(failed(BackupError::Schema(MigrateError::Ahead {
            applied: read.contents.migration,
            known: migrate::newest(),
        })));
    }
    Ok(read)
}

/// A folder that is deleted when this is dropped.
struct TemporaryFolder(PathBuf);

impl Drop for TemporaryFolder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

async fn verify(config: &Config, folder: &Path, on_server: bool, out: Output) -> Result<(), Failure> {
    let page = read(folder)?;
    let counted = match on_server {
        true => tried_on_server(config, folder, &page).await?,
        false => tried_apart(config, folder, &page).await?,
    };
    let differing = differences(&page.contents.tables, &counted);
    out.result("backup-verified/1", &json!({ "backup": page, "differences": differing }), || {
        match differing.is_empty() {
            true => format!("Restored into a throw-away database, and every row is there:\n{}", in_it(&page)),
            false => differing.join("\n"),
        }
    });
    match differing.is_empty() {
        true => Ok(()),
        false => Err(Failure::new(Exit::CheckFailed, "what was restored is not what was backed up")),
    }
}

/// The dump's contents, read with a temporary cluster.
async fn tried_apart(config: &Config, folder: &Path, page: &BackupManifest) -> Result<TableCounts, Failure> {
    let place = TemporaryFolder(std::env::temp_dir().join(format!("deskgate-verify-{:032x}", rand::random::<u128>())));
    let cluster = Cluster::start(cluster::ClusterConfig::new(&place.0)).await.map_err(|error| {
        let text = match &error {
            ClusterError::NoBinaries { .. } if matches!(config.database_url(), Ok(Some(_))) => {
                "no PostgreSQL server is installed here. Restore it on the server of database.url instead: add \
                 --on-database-server"
                    .to_owned()
            }
            error => error.to_string(),
        };
        Failure::new(Exit::NotSetUp, text)
    })?;
    let sockets = cluster.socket_dir().to_owned();
    let database = Database::new(&cluster.url(), None, None);
    let counted = match &database {
        Ok(database) => tried(database, folder, page).await,
        Err(error) => Err(Failure::new(Exit::Failed, error.to_string())),
    };
    cluster.stop().await;
    // It is never started again.
    let _ = std::fs::remove_dir_all(sockets);
    counted
}

/// The dump's contents, read with a temporary database beside the gateway's.
async fn tried_on_server(config: &Config, folder: &Path, page: &BackupManifest) -> Result<TableCounts, Failure> {
    let url = config.database_url().map_err(|error| Failure::new(Exit::NotSetUp, error.to_string()))?;
    let url = url.ok_or_else(|| {
        Failure::new(
            Exit::NotSetUp,
            "there is no server of yours: database.url is not set. Leave --on-database-server out",
        )
    })?;
    let scratch = ScratchDatabase::create(&opened(&url, config)?).await.map_err(failed)?;
    let counted = tried(scratch.database(), folder, page).await;
    let dropped = scratch.remove().await.map_err(failed);
    let counted = counted?;
    dropped.map(|()| counted)
}

async fn tried(database: &Database, folder: &Path, page: &BackupManifest) -> Result<TableCounts, Failure> {
    backup::restore(database, &folder.join(DUMP_FILE), page.contents.taken_at, true).await.map_err(failed)?;
    let (client, _driver) = database.connect().await.map_err(|error| failed(error.into()))?;
    backup::count(&client).await.map_err(failed)
}

fn differences(wanted: &TableCounts, found: &TableCounts) -> Vec<String> {
    let names: std::collections::BTreeSet<_> = wanted.keys().chain(found.keys()).collect();
    let rows = |tables: &TableCounts, name: &str| tables.get(name).map_or("missing".to_owned(), i64::to_string);
    let differing = names.into_iter().filter(|name| wanted.get(*name) != found.get(*name));
    differing.map(|name| format!("{name}: {} rows, {} in the backup", rows(found, name), rows(wanted, name))).collect()
}

async fn restore(
    socket: &Path,
    config: &Config,
    folder: &Path,
    replace: bool,
    nothing_ran_since: bool,
    out: Output,
) -> Result<(), Failure> {
    let page = read(folder)?;
    let refused = |why: String| Err(Failure::new(Exit::Refused, format!("{why}\nNo changes were made.")));
    if nothing_ran_since && !page.contents.at_rest {
        return refused("A gateway was running when this backup was made, so its runs went on afterwards.".to_owned());
    }
    if fetch_status(socket).await.is_ok() {
        return refused("The gateway runs. Stop it first: sudo systemctl stop deskgate-gateway".to_owned());
    }
    let reached = BackupDatabase::find(socket, config).await?;
    let restored = put_back(&reached.database, folder, &page, replace, nothing_ran_since).await;
    reached.leave().await;
    let RestoreReport { in_doubt } = restored?;
    let value = json!({ "backup": page, "runs_in_doubt": in_doubt });
    out.result("backup-restored/1", &value, || {
        format!(
            "Restored:\n{}{in_doubt} runs that had not ended await reconciliation: what became of them since is not known \
             here, and nothing of them is executed again. See: deskgate-gateway admin run list --state \
             awaiting_reconciliation\n\nWhat was done after {} is undone: devices, keys and tokens that were revoked since \
             are good again, and requests that were accepted since are not known any more. Look at `admin device list` \
             before the gateway is started.\nThe sealing key must be the one of that time: {}",
            in_it(&page),
            page.contents.taken_at,
            config.seal_file().display(),
        )
    });
    Ok(())
}

async fn put_back(
    database: &Database,
    folder: &Path,
    page: &BackupManifest,
    replace: bool,
    unchanged: bool,
) -> Result<RestoreReport, Failure> {
    let refused = |why: String| Err(Failure::new(Exit::Refused, format!("{why}\nNo changes were made.")));
    let (client, driver) = database.connect().await.map_err(|error| failed(error.into()))?;
    let sessions = backup::in_use(&client).await.map_err(failed)?;
    if sessions > 0 {
        return refused(format!(
            "A gateway works on {} ({sessions} connections). Stop every replica first.",
            database.host()
        ));
    }
    if !replace && !backup::is_empty(&client).await.map_err(failed)? {
        return refused(format!(
            "The database on {} is not empty. To replace what is in it: --accept-risk=replace-database",
            database.host()
        ));
    }
    drop((client, driver));
    backup::restore(database, &folder.join(DUMP_FILE), page.contents.taken_at, unchanged).await.map_err(failed)
}
