//! `backup create|verify|restore`: a folder with a dump of the database, and a manifest of what it contains and lacks, both
//! authenticated (`manifest`).
//!
//! The encryption key, the control token and the host key are excluded: with both the database and the key, all
//! encrypted values can be read, so they are kept apart. Each command says where they are.

mod manifest;

use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use clap::Subcommand;
use serde_json::json;

use super::client::{risk, send_request, unexpected};
use super::status::fetch_status;
use super::{AdminReply, AdminRequest};
use crate::config::Config;
use crate::store::backup::{self, BackupError, RestoreReport, ScratchDatabase, TableCounts};
use crate::store::cluster::{self, Cluster, ClusterError};
use crate::store::migrate::MigrateError;
use crate::store::{Database, DatabaseOpenError};
use deskgate_program::exit::{Exit, Failure};
use deskgate_program::output::Output;
use manifest::{BackupManifest, BackupOrigin, DUMP_FILE, ExcludedItem, private};

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
        /// Accept a backup whose origin cannot be checked: its sealing key is not here, or it is older than proofs
        #[arg(long)]
        unproven_origin: bool,
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
        /// Accept a backup whose origin cannot be checked: its sealing key is not here, or it is older than proofs.
        /// Whoever had the folder may have changed any row in it, such as whose keys are good
        #[arg(long)]
        unproven_origin: bool,
    },
}

/// Runs a command about backups.
///
/// # Errors
/// `Exit::Usage`: the accepted risk is not the one of this command. `Exit::NotSetUp`: the settings of the database
/// cannot be used, the private cluster cannot be started, a program of PostgreSQL is missing, the account may not create
/// databases, or can do more than own tables and there is no other; or the sealing key cannot be read.
/// `Exit::CannotReach`: the database does not answer. `Exit::NotAuthorised`: the user may not use the
/// administrator's socket. `Exit::Refused`: the private cluster is in use and its gateway does not answer; the origin of
/// a backup cannot be checked and that was not accepted; or a restore
/// finds that a gateway runs, that the database is not empty and the risk was not accepted, or that a gateway was at
/// work when a backup was made that is said to be the last state. `Exit::VersionMismatch`: the backup is of a newer
/// program. `Exit::CheckFailed`: the rows that were restored for a check are not those of the backup. `Exit::Failed`:
/// the folder of a new backup exists, a file cannot be read or written, the backup is damaged or altered, the schema cannot
/// be used, or `pg_dump` or `pg_restore` fails.
pub async fn run(socket: &Path, config: &Config, command: BackupCommand, out: Output) -> Result<(), Failure> {
    match command {
        BackupCommand::Create { folder } => create(socket, config, &folder, out).await,
        BackupCommand::Verify { folder, on_database_server, unproven_origin } => {
            verify(config, &folder, on_database_server, unproven_origin, out).await
        }
        BackupCommand::Restore { folder, accept_risk, nothing_ran_since, unproven_origin } => {
            let replace = risk(accept_risk.as_deref(), "replace-database")?;
            let wanted = RestoreOptions { replace, nothing_ran_since, unproven_origin };
            restore(socket, config, &folder, wanted, out).await
        }
    }
}

/// What the administrator allows a restore.
#[derive(Clone, Copy, Debug)]
struct RestoreOptions {
    /// To replace what is in the database.
    replace: bool,
    /// To go on with runs as they were.
    nothing_ran_since: bool,
    /// To take a backup whose origin nobody knows.
    unproven_origin: bool,
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
                cluster::not_roots_in_anothers(&config.state_dir())
                    .map_err(|error| Failure::new(Exit::NotSetUp, error.to_string()))?;
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
        BackupError::NoProgram { .. } | BackupError::MayNotCreate | BackupError::Privileged { .. } => Exit::NotSetUp,
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
    // A mistake there shows before the work.
    manifest::key(config)?;
    let dump = folder.join(DUMP_FILE);
    drop(private(&dump)?);
    let contents = backup::take(database, &dump).await.map_err(failed)?;
    manifest::write(config, folder, contents)
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

/// What is to be known of where a backup came from.
fn of_origin(origin: BackupOrigin) -> &'static str {
    match origin {
        BackupOrigin::Proven => "",
        BackupOrigin::Unproven => {
            "Where this backup comes from is not proven: whoever had it may have changed any row. Only rows were taken from \
             it.\n"
        }
    }
}

/// A folder that is deleted when this is dropped.
struct TemporaryFolder(PathBuf);

impl Drop for TemporaryFolder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

async fn verify(config: &Config, folder: &Path, on_server: bool, unproven: bool, out: Output) -> Result<(), Failure> {
    let (page, origin) = manifest::read(config, folder, unproven)?;
    let counted = match on_server {
        true => tried_on_server(config, folder, &page).await?,
        false => tried_apart(config, folder, &page).await?,
    };
    let differing = differences(&page.contents.tables, &counted);
    out.result("backup-verified/1", &json!({ "backup": page, "origin": origin, "differences": differing }), || {
        match differing.is_empty() {
            true => {
                let origin = of_origin(origin);
                format!("Restored into a throw-away database, and every row is there:\n{}{origin}", in_it(&page))
            }
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
    backup::restore(database, &folder.join(DUMP_FILE), &page.contents, true).await.map_err(failed)?;
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
    wanted: RestoreOptions,
    out: Output,
) -> Result<(), Failure> {
    let RestoreOptions { replace, nothing_ran_since, unproven_origin } = wanted;
    let (page, origin) = manifest::read(config, folder, unproven_origin)?;
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
    let value = json!({ "backup": page, "origin": origin, "runs_in_doubt": in_doubt });
    out.result("backup-restored/1", &value, || {
        format!(
            "Restored:\n{}{}{in_doubt} runs that had not ended await reconciliation: what became of them since is not known \
             here. Those that had not begun are queued again when their desktop is back and says that it never had them; \
             about the others its owner decides: deskgate run settle. See: deskgate-gateway admin run list --state \
             awaiting_reconciliation\n\nWhat was done after {} is undone: devices, keys and tokens that were revoked since \
             are good again, and requests that were accepted since are not known any more. Look at `admin device list` \
             before the gateway is started.\nThe sealing key must be the one of that time: {}",
            in_it(&page),
            of_origin(origin),
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
    let sessions = backup::still_in_use(&client).await.map_err(failed)?;
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
    backup::restore(database, &folder.join(DUMP_FILE), &page.contents, unchanged).await.map_err(failed)
}
