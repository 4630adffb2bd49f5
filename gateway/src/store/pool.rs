//! Opens the database: TLS, the pools, and the checks that refuse one that may lose a 202.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use deadpool_postgres::{Manager, ManagerConfig, Pool, RecyclingMethod, Runtime};
use tokio_postgres::Config;
use tokio_postgres::config::{Host, SslMode};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::backup::BackupError;
use super::migrate::{self, MigrateError, SchemaStatus};
use super::{Error, Store};
use crate::metrics::Metrics;
use crate::notify::ChangeNotifier;

/// The files in which systems keep their trusted certificates.
const SYSTEM_ROOT_FILES: [&str; 3] =
    ["/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem"];

fn system_roots() -> Option<PathBuf> {
    SYSTEM_ROOT_FILES.map(PathBuf::from).into_iter().find(|path| path.exists())
}

/// Planning an admission takes longer than admitting, and the values do not change the plan.
const GENERIC_PLANS_OPTION: &str = "-c plan_cache_mode=force_generic_plan";
/// Lists read only the rows that they show. A bitmap scan reads all matches first, which before a table's first
/// statistics looks cheap.
const NO_BITMAP_SCAN_OPTION: &str = "-c enable_bitmapscan=off";

/// The address of the database.
#[derive(Clone)]
pub struct Database {
    /// How to connect.
    config: Config,
    /// Past a connection pooler, for LISTEN.
    listen: Config,
    tls: MakeRustlsConnect,
    ca_file: Option<PathBuf>,
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
    /// system's.
    ///
    /// # Errors
    /// The address or `ca_file` is not usable.
    pub fn new(url: &str, listen_url: Option<&str>, ca_file: Option<&PathBuf>) -> Result<Self, DatabaseOpenError> {
        let read =
            |url: &str| url.parse::<Config>().map_err(|error| DatabaseOpenError::Url(super::error::describe(&error)));
        Ok(Self {
            config: read(url)?,
            listen: read(listen_url.unwrap_or(url))?,
            tls: tls(ca_file)?,
            ca_file: ca_file.cloned(),
        })
    }

    /// Another database of the same server and account.
    pub(super) fn on_same_server(&self, name: &str) -> Self {
        let mut other = self.clone();
        other.config.dbname(name);
        other.listen.dbname(name);
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
        let mode = match (config.get_ssl_mode(), &self.ca_file) {
            (SslMode::Disable, _) => "disable",
            // libpq's own "require" accepts any certificate, and this program does not.
            (SslMode::Require, _) => "verify-full",
            _ => "prefer",
        };
        let ca_file = self.ca_file.clone().or_else(|| (mode == "verify-full").then(system_roots).flatten());
        let ca_file = ca_file.map(|path| path.display().to_string());
        let fields = [
            ("host", Some(hosts.join(","))),
            ("port", Some(ports.join(","))),
            ("user", config.get_user().map(str::to_owned)),
            ("dbname", config.get_dbname().map(str::to_owned)),
            ("password", password.map(|password| password.into_owned())),
            ("options", config.get_options().map(str::to_owned)),
            ("sslmode", Some(mode.to_owned())),
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
    pub(super) async fn connect_to_listen(
        &self,
    ) -> Result<
        (
            tokio_postgres::Client,
            tokio_postgres::Connection<tokio_postgres::Socket, impl tokio_postgres::tls::TlsStream + Unpin + use<>>,
        ),
        tokio_postgres::Error,
    > {
        let mut config = self.listen.clone();
        config.connect_timeout(Duration::from_secs(5)).application_name("deskgate-gateway listen");
        notice_silence(&mut config);
        config.connect(self.tls.clone()).await
    }

    /// One connection outside of the pool, for migrations, checks and backups, driven by the returned task.
    ///
    /// # Errors
    /// The server cannot be reached, or refuses the connection.
    pub async fn connect(&self) -> Result<(tokio_postgres::Client, tokio_util::task::AbortOnDropHandle<()>), Error> {
        let mut config = self.config.clone();
        config.connect_timeout(Duration::from_secs(5)).application_name("deskgate-gateway migrate");
        let (client, connection) = config.connect(self.tls.clone()).await?;
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
        check_server(&client).await?;
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
            durable: self.pool(16, GENERIC_PLANS_OPTION),
            relaxed: self.pool(6, &format!("{GENERIC_PLANS_OPTION} -c synchronous_commit=off")),
            filtered: self.pool(4, NO_BITMAP_SCAN_OPTION),
            wake,
            meters: Metrics::default(),
        })
    }

    fn pool(&self, size: usize, options: &str) -> Pool {
        let mut config = self.config.clone();
        let own = config.get_options().unwrap_or_default().to_owned();
        // Every frequent statement has its index. But a plan may be made once and kept, and one made while a table was
        // small would read all of it ever after: hence no sequential scans.
        config
            .options(format!(
                "{own} {options} -c statement_timeout=10s -c idle_in_transaction_session_timeout=10s -c jit=off \
                 -c enable_seqscan=off"
            ))
            .connect_timeout(Duration::from_secs(2))
            .application_name("deskgate-gateway");
        notice_silence(&mut config);
        let recycling = ManagerConfig { recycling_method: RecyclingMethod::Fast };
        Pool::builder(Manager::from_config(config, self.tls.clone(), recycling))
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
pub(crate) async fn check_server(client: &tokio_postgres::Client) -> Result<String, DatabaseOpenError> {
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

fn tls(ca_file: Option<&PathBuf>) -> Result<MakeRustlsConnect, DatabaseOpenError> {
    use rustls_pki_types::pem::PemObject;
    let mut roots = rustls::RootCertStore::empty();
    match ca_file {
        Some(path) => {
            let problem = |problem: String| DatabaseOpenError::CaFile { path: path.clone(), problem };
            let certificates =
                rustls_pki_types::CertificateDer::pem_file_iter(path).map_err(|e| problem(e.to_string()))?;
            for certificate in certificates {
                let certificate = certificate.map_err(|e| problem(e.to_string()))?;
                roots.add(certificate).map_err(|e| problem(e.to_string()))?;
            }
            if roots.is_empty() {
                return Err(problem("it holds no certificate".to_owned()));
            }
        }
        None => {
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        }
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("ring offers the default protocol versions")
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(MakeRustlsConnect::new(config))
}
