//! Opens the database: TLS, the pools, and the checks that refuse one that may lose a 202.

use std::path::PathBuf;
use std::time::Duration;

use deadpool_postgres::{Manager, ManagerConfig, Pool, RecyclingMethod, Runtime};
use tokio_postgres::Config;
use tokio_postgres::config::Host;

use super::backup::BackupError;
use super::connecting::{self, Dialler, Driver, SessionConnector};
use super::migrate::{self, MigrateError, SchemaStatus};
use super::tls_mode::{TlsMode, split_address};
use super::{Error, Store};
use crate::metrics::Metrics;
use crate::notify::ChangeNotifier;

/// Every frequent statement has its index. But a plan may be made once and kept, and one made while a table was small
/// would read all of it ever after: hence no sequential scans.
macro_rules! common_settings {
    () => {
        "SET statement_timeout = '10s'; SET idle_in_transaction_session_timeout = '10s'; SET jit = off; \
         SET enable_seqscan = off"
    };
}

/// Planning an admission takes longer than admitting, and the values do not change the plan.
macro_rules! generic_plans {
    () => {
        "SET plan_cache_mode = force_generic_plan;"
    };
}
/// Lists read only the rows that they show. A bitmap scan reads all matches first, which before a table's first
/// statistics looks cheap.
const FILTERED_SETTINGS: &str = concat!("SET enable_bitmapscan = off;", common_settings!());
const DURABLE_SETTINGS: &str = concat!(generic_plans!(), common_settings!());
const RELAXED_SETTINGS: &str = concat!(generic_plans!(), "SET synchronous_commit = off;", common_settings!());

/// The address of the database.
#[derive(Clone)]
pub struct Database {
    /// How to connect.
    config: Config,
    /// Past a connection pooler, for LISTEN.
    listen: Config,
    /// How the server is recognised.
    tls: TlsMode,
    dialler: Dialler,
    listen_dialler: Dialler,
}

/// Why a database cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum DatabaseOpenError {
    /// The address cannot be parsed.
    #[error("database.url cannot be understood: {0}. It looks like postgres://user@host/database?sslmode=require")]
    Url(String),
    /// The file with certificate authorities cannot be used.
    #[error("database.ca_file {path}: {problem}")]
    CaFile {
        /// The file.
        path: PathBuf,
        /// The fault of the file.
        problem: String,
    },
    /// The server is too old.
    #[error("PostgreSQL {0} is too old; 15 or newer is needed")]
    TooOld(String),
    /// A commit would not be safe.
    #[error("this database runs with {setting} = {value}: a run could be lost after its 202. Set {setting} = on")]
    NotDurable {
        /// The setting.
        setting: &'static str,
        /// Its value.
        value: String,
    },
    /// A pooler shares the sessions of the server.
    #[error(
        "a connection pooler in transaction mode is before this database: statements of one connection run in changing \
         sessions of the server, and prepared statements, settings and LISTEN would be lost. Set pool_mode = session \
         for this database in the pooler, or let database.url lead past it"
    )]
    SharedSessions,
    /// The schema is older than the program.
    #[error("the database is at migration {applied}, this program needs {known}: run `deskgate-gateway migrate run`")]
    Behind {
        /// The database's newest version.
        applied: i32,
        /// The program's newest version.
        known: i32,
    },
    /// The schema cannot be used.
    #[error(transparent)]
    Migrate(#[from] MigrateError),
}

impl From<tokio_postgres::Error> for DatabaseOpenError {
    fn from(error: tokio_postgres::Error) -> Self {
        Self::Migrate(MigrateError::Store(error.into()))
    }
}

impl From<Error> for DatabaseOpenError {
    fn from(error: Error) -> Self {
        Self::Migrate(MigrateError::Store(error))
    }
}

impl Database {
    /// Parses the address, without a connection. `ca_file` holds PEM certificates that are trusted instead of the
    /// system's; `sslrootcert` in the address has precedence.
    ///
    /// # Errors
    /// The address or `ca_file` is not usable.
    pub fn new(url: &str, listen_url: Option<&str>, ca_file: Option<&PathBuf>) -> Result<Self, DatabaseOpenError> {
        let read = |url: &str| {
            let (rest, sslmode, sslrootcert) = split_address(url);
            let config =
                rest.parse::<Config>().map_err(|error| DatabaseOpenError::Url(super::error::describe(&error)))?;
            let tls = TlsMode::new(sslmode.as_deref(), sslrootcert.as_deref(), ca_file)?;
            let modes = tls.dial_modes(connecting::is_local(&config));
            Ok::<_, DatabaseOpenError>((Dialler { tls: tls.connector()?, modes }, config, tls))
        };
        let (dialler, config, tls) = read(url)?;
        let (listen_dialler, listen, _) = read(listen_url.unwrap_or(url))?;
        Ok(Self { config, listen, tls, dialler, listen_dialler })
    }

    /// What somebody on the way to the server can do, if it is on another computer.
    pub(crate) fn weakness(&self) -> Option<String> {
        let is_here = |host: &Host| match host {
            Host::Unix(_) => true,
            Host::Tcp(name) => {
                let name = name.trim_matches(['[', ']']);
                name == "localhost" || name.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
            }
        };
        let is_local = self.config.get_hosts().iter().all(is_here);
        let weakness = self.tls.weakness().filter(|_| !is_local)?;
        Some(format!("the connection to {} {weakness}", self.host()))
    }

    /// Another database of the same server and account.
    pub(super) fn on_same_server(&self, name: &str) -> Self {
        let mut other = self.clone();
        other.config.dbname(name);
        other.listen.dbname(name);
        other
    }

    /// The same database by another account.
    pub(super) fn as_account(&self, name: &str, password: &str) -> Self {
        let mut other = self.clone();
        for config in [&mut other.config, &mut other.listen] {
            config.user(name).password(password);
        }
        other
    }

    /// The hosts it names, for logs. Never the password.
    pub fn host(&self) -> String {
        let hosts: Vec<_> = self.config.get_hosts().iter().map(host).collect();
        hosts.join(",")
    }

    /// The address as libpq reads it from a service file, with its password.
    pub(super) fn service(&self) -> Result<String, BackupError> {
        let config = &self.config;
        let hosts: Vec<_> = config.get_hosts().iter().map(host).collect();
        let ports: Vec<_> = config.get_ports().iter().map(u16::to_string).collect();
        let password = config.get_password().map(String::from_utf8_lossy);
        let (mode, ca_file) = self.tls.for_libpq();
        let ca_file = ca_file.map(|path| path.display().to_string());
        let fields = [
            ("host", Some(hosts.join(","))),
            ("port", Some(ports.join(","))),
            ("user", config.get_user().map(str::to_owned)),
            ("dbname", config.get_dbname().map(str::to_owned)),
            ("password", password.map(|password| password.into_owned())),
            ("options", config.get_options().map(str::to_owned)),
            ("sslmode", Some(mode.as_str().to_owned())),
            ("sslrootcert", ca_file),
        ];
        let mut lines = String::new();
        for (name, value) in fields {
            let Some(value) = value.filter(|value| !value.is_empty()) else { continue };
            if value.contains(['\n', '\r']) {
                return Err(BackupError::Address(name));
            }
            lines += &format!("{name}={value}\n");
        }
        Ok(lines)
    }

    /// One connection of its own, with the future that drives it.
    pub(super) async fn connect_to_listen(&self) -> Result<(tokio_postgres::Client, Driver), tokio_postgres::Error> {
        let mut config = self.listen.clone();
        config.connect_timeout(Duration::from_secs(5)).application_name("deskgate-gateway listen");
        notice_silence(&mut config);
        self.listen_dialler.dial(&config).await
    }

    /// One connection outside of the pool, for migrations, checks and backups, driven by the returned task.
    ///
    /// # Errors
    /// The server cannot be reached, or refuses the connection.
    pub async fn connect(&self) -> Result<(tokio_postgres::Client, tokio_util::task::AbortOnDropHandle<()>), Error> {
        let mut config = self.config.clone();
        config.connect_timeout(Duration::from_secs(5)).application_name("deskgate-gateway migrate");
        let (client, connection) = self.dialler.dial(&config).await?;
        let driver = tokio::spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!(%error, "the connection ended");
            }
        });
        Ok((client, tokio_util::task::AbortOnDropHandle::new(driver)))
    }

    /// Opens the pools after checking version, durability and schema. `migrate` applies missing migrations instead of
    /// refusing.
    ///
    /// # Errors
    /// See [`DatabaseOpenError`].
    pub async fn open(&self, migrate: bool, wake: ChangeNotifier) -> Result<Store, DatabaseOpenError> {
        let (mut client, _driver) = self.connect().await?;
        self.check(&client).await?;
        if migrate {
            migrate::run(&mut client).await?;
        }
        match migrate::schema_status(&client).await? {
            SchemaStatus::Current => {}
            SchemaStatus::Behind { applied } => {
                return Err(DatabaseOpenError::Behind { applied, known: migrate::newest() });
            }
            SchemaStatus::Ahead { applied } => {
                return Err(MigrateError::Ahead { applied, known: migrate::newest() }.into());
            }
        }
        Ok(Store {
            durable: self.pool(16, DURABLE_SETTINGS),
            relaxed: self.pool(6, RELAXED_SETTINGS),
            filtered: self.pool(4, FILTERED_SETTINGS),
            wake,
            meters: Metrics::default(),
            quotas: super::quotas::Quotas::default(),
            disk: super::disk::DiskWatch::default(),
            run_reads: super::runs::RunReads::default(),
        })
    }

    /// Checks that the server is new enough and durable, and each connection a session of its own. Returns its version.
    ///
    /// # Errors
    /// [`DatabaseOpenError`]: it is not, or does not answer.
    pub async fn check(&self, client: &tokio_postgres::Client) -> Result<String, DatabaseOpenError> {
        let (other, _driver) = self.connect().await?;
        connecting::refuse_shared_sessions(client, &other).await?;
        check_server(client).await
    }

    fn pool(&self, size: usize, settings: &'static str) -> Pool {
        let mut config = self.config.clone();
        config.connect_timeout(Duration::from_secs(2)).application_name("deskgate-gateway");
        notice_silence(&mut config);
        let recycling = ManagerConfig { recycling_method: RecyclingMethod::Fast };
        let connector = SessionConnector { dialler: self.dialler.clone(), settings };
        Pool::builder(Manager::from_connect(config, connector, recycling))
            .max_size(size)
            .runtime(Runtime::Tokio1)
            .wait_timeout(Some(Duration::from_secs(2)))
            .create_timeout(Some(Duration::from_secs(2)))
            .build()
            .expect("a runtime is given, which is all that building a pool checks")
    }
}

fn host(host: &Host) -> String {
    match host {
        Host::Tcp(name) => name.clone(),
        Host::Unix(path) => path.display().to_string(),
    }
}

/// Detects a vanished server within seconds, not after a quarter of an hour.
fn notice_silence(config: &mut Config) {
    config
        .tcp_user_timeout(Duration::from_secs(10))
        .keepalives_idle(Duration::from_secs(10))
        .keepalives_interval(Duration::from_secs(5))
        .keepalives_retries(3);
}

/// Checks that a server is new enough and durable. Returns its version.
async fn check_server(client: &tokio_postgres::Client) -> Result<String, DatabaseOpenError> {
    let row = client
        .query_one(
            "SELECT current_setting('server_version_num')::int, current_setting('server_version'),
                    current_setting('fsync'), current_setting('synchronous_commit')",
            &[],
        )
        .await?;
    if row.get::<_, i32>(0) < 150_000 {
        return Err(DatabaseOpenError::TooOld(row.get(1)));
    }
    for (setting, value) in [("fsync", row.get::<_, String>(2)), ("synchronous_commit", row.get(3))] {
        if value == "off" {
            return Err(DatabaseOpenError::NotDurable { setting, value });
        }
    }
    Ok(row.get(1))
}

/// Seconds by which the server's clock is ahead of this computer's.
pub(crate) async fn clock_skew(client: &tokio_postgres::Client) -> Result<f64, Error> {
    let asked = jiff::Timestamp::now();
    let row = client.query_one("SELECT clock_timestamp()", &[]).await?;
    // The answer is from about the middle of its round trip.
    let took = jiff::Timestamp::now().duration_since(asked).as_secs_f64();
    Ok(row.try_get::<_, jiff::Timestamp>(0)?.duration_since(asked).as_secs_f64() - took / 2.0)
}
