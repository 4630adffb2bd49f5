//! The gateway's program: its roles, logging, signals and exit codes.

#![warn(clippy::print_stdout, clippy::print_stderr)]

use std::ffi::OsString;
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};
use deskgate_gateway::admin::backup::{self, BackupCommand};
use deskgate_gateway::admin::check;
use deskgate_gateway::admin::commands::{self, AdminCommand};
use deskgate_gateway::admin::{bundle, doctor, status, upgrade};
use deskgate_gateway::config::{self, Config};
use deskgate_gateway::descriptors::DescriptorLimit;
use deskgate_gateway::help::HELP;
use deskgate_gateway::http::{openapi, server};
use deskgate_gateway::log;
use deskgate_gateway::sd_notify::ServiceNotifier;
use deskgate_gateway::signals::{SignalAction, Signals};
use deskgate_gateway::store::Database;
use deskgate_gateway::store::migrate::{self, MIGRATIONS, MigrateError, SchemaStatus};
use deskgate_gateway::{DatabaseSettings, Gateway, Settings, hosted};
use deskgate_program::exit;
use deskgate_program::exit::{Exit, Failure};
use deskgate_program::log_buffer::LogGuard;
use deskgate_program::output::Output;
use deskgate_program::terminal;
use deskgate_program::{man, token};
use serde_json::json;
use tracing_subscriber::EnvFilter;

#[derive(Debug, Parser)]
#[command(
    name = "deskgate-gateway",
    version,
    about = "Accepts work for desktop assistants, queues it, hands it out, reports."
)]
struct Cli {
    /// The configuration file [default: /etc/deskgate/gateway.toml, if there is one]
    #[arg(long, global = true, env = "DESKGATE_CONFIG", value_name = "FILE")]
    config: Option<PathBuf>,
    /// Override one setting, as in server.listen=127.0.0.1:9000; may be repeated. Not for secrets
    #[arg(long, global = true, value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// The running gateway's administrator socket [default: from the configuration]
    #[arg(long, global = true, value_name = "PATH")]
    socket: Option<PathBuf>,
    /// Print one JSON object
    #[arg(long, global = true)]
    json: bool,
    /// How the log is written: auto, text, json or journald; the same as --set log.format=…
    #[arg(long, global = true, value_name = "FORMAT")]
    log_format: Option<String>,
    /// Print failures only
    #[arg(long, short, global = true)]
    quiet: bool,
    #[command(subcommand)]
    role: Role,
}

#[derive(Debug, Subcommand)]
enum Role {
    /// Run the gateway
    Serve {
        /// Apply missing migrations first
        #[arg(long)]
        migrate: bool,
    },
    /// Look at configuration, directories, keys, TLS, sockets, database and clock; 10 if something fails
    Check {
        /// For the service manager: end with 3 or 7 if a start would be in vain, and wait for no database
        #[arg(long)]
        startup: bool,
    },
    /// What `check` looks at, the running gateway, and its public address from outside; 10 if something fails
    Doctor {
        /// The public address to call [default: the one that the gateway names]
        #[arg(long, value_name = "URL")]
        url: Option<String>,
    },
    /// How the running gateway is
    Status,
    /// Whether the running gateway is alive, for containers: 0 or 1
    Healthcheck,
    /// Whether the running gateway can accept work: 0 or 1
    Ready,
    /// Have the running gateway read its certificate again
    Reload,
    /// Whether this program can take the running gateway's place: devices and migrations; 7 if something does not fit
    UpgradeCheck,
    /// The database's schema
    #[command(subcommand)]
    Migrate(MigrateCommand),
    /// Backups of the database
    #[command(subcommand)]
    Backup(BackupCommand),
    /// Write what helps others to help you into one text file, without secrets
    Bundle(bundle::BundleArgs),
    /// The configuration
    #[command(subcommand)]
    Config(ConfigCommand),
    /// Speak to the running gateway as its administrator
    #[command(subcommand)]
    Admin(AdminCommand),
    /// Print the version
    Version,
    /// Write the manual pages into a folder
    Man {
        /// The folder
        folder: PathBuf,
    },
    /// Print the OpenAPI document of the HTTP API
    Openapi,
    /// Print a completion script
    Completions {
        /// For which shell
        shell: clap_complete::Shell,
    },
    /// Explain the exit codes
    #[command(after_help = exit::EXIT_CODE_TABLE)]
    ExitCodes,
}

#[derive(Debug, Subcommand)]
enum MigrateCommand {
    /// What is applied and what is missing
    Status,
    /// Print the missing migrations
    Plan,
    /// Apply the missing migrations
    Run,
}

#[derive(Debug, Subcommand)]
enum ConfigCommand {
    /// Every setting's value
    Show {
        /// And where it came from
        #[arg(long)]
        origin: bool,
    },
    /// The commented example file
    Example,
}

fn main() -> ExitCode {
    let cli: Cli = HELP.parse(Cli::command());
    let out = Output { json: cli.json, quiet: cli.quiet };
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return fail(out, &Failure::new(Exit::Failed, format!("cannot start: {error}"))),
    };
    match runtime.block_on(run(cli, out)) {
        Ok(()) => Exit::Done.into(),
        Err(failure) => fail(out, &failure),
    }
}

fn fail(out: Output, failure: &Failure) -> ExitCode {
    out.failure(failure);
    failure.exit.into()
}

async fn run(cli: Cli, out: Output) -> Result<(), Failure> {
    let load = || {
        // All settings are text, so other variables are skipped.
        let text = |(name, value): (OsString, OsString)| Some((name.into_string().ok()?, value.into_string().ok()?));
        let environment = std::env::vars_os().filter_map(text).filter(|(name, _)| name != "DESKGATE_HOME");
        let format = cli.log_format.iter().map(|format| format!("log.format={format}"));
        let flags: Vec<_> = cli.set.iter().cloned().chain(format).collect();
        Config::load(cli.config.as_deref(), environment, &flags).map_err(not_set_up)
    };
    let socket = || load().map(|config| cli.socket.clone().unwrap_or_else(|| config.admin_socket()));
    match cli.role {
        Role::Serve { migrate } => serve(load()?, migrate).await,
        Role::Check { startup } => {
            let findings = check::run(&load()?, descriptors()).await;
            out.result("check/1", &json!({ "findings": findings }), || check::show(&findings));
            if startup { check::at_startup(&findings) } else { check::verdict(&findings) }
        }
        Role::Doctor { url } => doctor::run(&socket()?, &load()?, url.as_deref(), descriptors(), out).await,
        Role::Status => status::status(&socket()?, out).await,
        Role::Healthcheck => ask(&load()?, "/livez", out).await,
        Role::Ready => ask(&load()?, "/readyz?verbose", out).await,
        Role::Reload => commands::reload(&socket()?, out).await,
        Role::Backup(command) => backup::run(&socket()?, &load()?, command, out).await,
        Role::Bundle(make) => {
            let (socket, config) = (socket()?, load()?);
            let metrics = match config.ops_listen() {
                Ok(Some(listener)) => {
                    deskgate_gateway::ops::health_check::send_request(listener, "/metrics").await.ok()
                }
                _ => None,
            };
            bundle::run(make, &socket, &config, descriptors(), metrics, out).await
        }
        Role::UpgradeCheck => upgrade::check(&socket()?, &load()?, out).await,
        Role::Admin(command) => commands::run(&socket()?, command, out).await,
        Role::Migrate(command) => migrate(&load()?, command, out).await,
        Role::Config(ConfigCommand::Example) => {
            terminal::print_document(config::example().as_bytes());
            Ok(())
        }
        Role::Config(ConfigCommand::Show { origin }) => {
            let rows = load()?.show();
            let settings: serde_json::Map<_, _> = rows
                .iter()
                .map(|(key, value, origin)| ((*key).to_owned(), json!({ "value": value, "origin": origin })))
                .collect();
            out.result("config/1", &json!({ "settings": settings }), || {
                let line = |(key, value, from): &(&str, String, String)| match origin {
                    true => format!("{key} = {value:?}  # {from}\n"),
                    false => format!("{key} = {value:?}\n"),
                };
                rows.iter().map(line).collect()
            });
            Ok(())
        }
        Role::Version => {
            let value = json!({ "version": deskgate_protocol::VERSION, "protocol": deskgate_protocol::PROTOCOL_RANGE });
            out.result("version/1", &value, || format!("deskgate-gateway {}", deskgate_protocol::VERSION));
            Ok(())
        }
        Role::Openapi => {
            terminal::print_document(openapi::json().as_bytes());
            Ok(())
        }
        Role::Man { folder } => man::write(Cli::command(), &folder, out),
        Role::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "deskgate-gateway", &mut script);
            terminal::print_document(&script);
            Ok(())
        }
        Role::ExitCodes => {
            terminal::print(exit::EXIT_CODE_TABLE);
            Ok(())
        }
    }
}

async fn ask(config: &Config, path: &str, out: Output) -> Result<(), Failure> {
    let failed = |message: String| Failure::new(Exit::Failed, message);
    let listener = config.ops_listen().map_err(not_set_up)?;
    let listener = listener.ok_or_else(|| failed("ops.listen is empty: there is nobody to ask".to_owned()))?;
    let answer = deskgate_gateway::ops::health_check::send_request(listener, path).await.map_err(failed)?;
    out.result("health/1", &json!({ "answer": answer }), || answer.clone());
    Ok(())
}

fn not_set_up(error: impl std::fmt::Display) -> Failure {
    Failure::new(Exit::NotSetUp, error.to_string())
}

async fn serve(config: Config, migrate: bool) -> Result<(), Failure> {
    config.check().map_err(not_set_up)?;
    let _log = start_log(&config)?;
    let settings = settings(&config, migrate)?;
    take_descriptors();
    for (directory, mode) in [(config.state_dir(), 0o700), (config.run_dir(), 0o750)] {
        std::fs::DirBuilder::new().recursive(true).mode(mode).create(&directory).map_err(|error| {
            not_set_up(format!("{}: {error}. The gateway must be able to write there", directory.display()))
        })?;
    }
    let database = settings.database.as_ref().map_or("a private cluster", |_| "external");
    let mut signals = Signals::new().map_err(|error| Failure::new(Exit::Failed, error.to_string()))?;
    let gateway = tokio::select! {
        started = Gateway::start(settings) => started.map_err(Failure::from)?,
        () = signals.stop() => return Ok(()),
    };
    let addresses = gateway.addresses();
    tracing::info!(
        version = deskgate_protocol::VERSION,
        http = %addresses.http,
        ssh = addresses.ssh.map(tracing::field::display),
        ops = addresses.ops.map(tracing::field::display),
        database,
        migration = migrate::newest(),
        protocol = deskgate_protocol::PROTOCOL_RANGE.max,
        "gateway ready"
    );
    let broken = gateway.broken();
    let outcome = loop {
        tokio::select! {
            told = signals.next() => match told {
                SignalAction::Stop => break Ok(()),
                // The error is in the log, and the old state stays.
                SignalAction::Reload => drop(gateway.reload()),
            },
            () = broken.cancelled() => {
                break Err(Failure::new(Exit::Failed, "a part of the gateway broke; see the log"));
            }
        }
    };
    tracing::info!("gateway stopping");
    tokio::select! {
        () = gateway.stop() => {}
        () = signals.stop() => {
            return Err(Failure::new(Exit::Interrupted, "told to stop a second time: not everything was finished"));
        }
    }
    tracing::info!("gateway stopped");
    outcome
}

/// The descriptors that the gateway may need.
fn descriptors() -> DescriptorLimit {
    DescriptorLimit::for_connections(server::ListenerLimits::default().connections)
}

/// Raises the limit. A gateway with too few still serves the callers it can.
fn take_descriptors() {
    if let Err(error) = descriptors().take() {
        tracing::warn!(%error, "the limit of open descriptors could not be raised");
    }
    if let Err(problem) = descriptors().are_enough() {
        tracing::warn!(problem, "descriptors may run out");
    }
}

fn settings(config: &Config, migrate: bool) -> Result<Settings, Failure> {
    let text = |key| Some(config.text(key)).filter(|text| !text.is_empty()).map(str::to_owned);
    let database = config.database_url().map_err(not_set_up)?;
    let listen_url = config.listen_url().map_err(not_set_up)?;
    let control_token = config.control_token_file().map(|path| token::load(&path)).transpose().map_err(not_set_up)?;
    Ok(Settings {
        state_dir: config.state_dir(),
        seal_file: config.seal_file(),
        storage: config.storage().map_err(not_set_up)?,
        manager: ServiceNotifier::find(|name| std::env::var_os(name)),
        callbacks_ca_file: text("callbacks.ca_file").map(PathBuf::from),
        callback_addresses: config.callback_addresses().map_err(not_set_up)?,
        is_built_in: false,
        listen: config.listen().map_err(not_set_up)?,
        tls: config.tls_files().map_err(not_set_up)?,
        acme: config.acme().map_err(not_set_up)?,
        trusted_proxies: config.trusted_proxies().map_err(not_set_up)?,
        balancers: config.balancers("server").map_err(not_set_up)?,
        sshd_host_keys: config.sshd_host_keys().map_err(not_set_up)?,
        ssh_balancers: config.balancers("ssh").map_err(not_set_up)?,
        forwarded_header: config.forwarded_header().map_err(not_set_up)?,
        public_url: text("server.public_url").map(|url| url.trim_end_matches('/').to_owned()),
        ssh_listen: config.ssh_listen().map_err(not_set_up)?,
        hosted: config.hosted().map_err(not_set_up)?,
        issuer_clocks: hosted::JwksTimings::default(),
        drain: config.drain().map_err(not_set_up)?,
        ops_listen: config.ops_listen().map_err(not_set_up)?,
        ssh_public_address: text("ssh.public_address"),
        control_socket: Some(config.control_socket()),
        control_connections: config.control_connections().map_err(not_set_up)?,
        admin_socket: Some(config.admin_socket()),
        admin_group: config.admin_group().map_err(not_set_up)?,
        control_token,
        database: database.map(|url| DatabaseSettings { url, listen_url, ca_file: config.ca_file(), migrate }),
        limits: config.limits().map_err(not_set_up)?,
        clocks: config.session_timings().map_err(not_set_up)?,
    })
}

async fn migrate(config: &Config, command: MigrateCommand, out: Output) -> Result<(), Failure> {
    let url = config.database_url().map_err(not_set_up)?;
    let url =
        url.ok_or_else(|| not_set_up("no database is configured: a private cluster is migrated whenever it starts"))?;
    let database = Database::new(&url, None, config.ca_file().as_ref()).map_err(not_set_up)?;
    let unreachable = |error: deskgate_gateway::store::Error| Failure::new(Exit::CannotReach, error.to_string());
    let (mut client, _driver) = database.connect().await.map_err(unreachable)?;
    let failed = |error: MigrateError| match error {
        MigrateError::Ahead { .. } => Failure::new(Exit::VersionMismatch, error.to_string()),
        MigrateError::Store(error) => unreachable(error),
        other => Failure::new(Exit::Failed, other.to_string()),
    };
    let standing = migrate::schema_status(&client).await.map_err(failed)?;
    let applied = match standing {
        SchemaStatus::Current => migrate::newest(),
        SchemaStatus::Behind { applied } | SchemaStatus::Ahead { applied } => applied,
    };
    match command {
        MigrateCommand::Status => {
            let value = json!({ "applied": applied, "known": migrate::newest() });
            out.result("migrate/1", &value, || format!("migration {applied} of {}", migrate::newest()));
            if applied > migrate::newest() {
                Err(failed(MigrateError::Ahead { applied, known: migrate::newest() }))
            } else {
                Ok(())
            }
        }
        MigrateCommand::Plan => {
            for migration in MIGRATIONS.iter().filter(|migration| migration.version > applied) {
                terminal::print(&format!("-- {:04} {}\n{}", migration.version, migration.name, migration.sql));
            }
            Ok(())
        }
        MigrateCommand::Run => {
            database.check(&client).await.map_err(not_set_up)?;
            let now = migrate::run(&mut client).await.map_err(failed)?;
            out.result("migrate/1", &json!({ "applied_now": now }), || match now.len() {
                0 => "nothing to do".to_owned(),
                count => format!("applied {count} migration(s)"),
            });
            Ok(())
        }
    }
}

fn start_log(config: &Config) -> Result<LogGuard, Failure> {
    let filter = EnvFilter::try_new(config.text("log.filter"))
        .map_err(|error| not_set_up(format!("log.filter = {:?}: {error}", config.text("log.filter"))))?;
    log::start(config.text("log.format"), filter).map_err(|error| Failure::new(Exit::Failed, error.to_string()))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use deskgate_program::printed;

    use super::*;

    #[test]
    fn every_command_is_in_one_group() {
        let mut root = Cli::command();
        root.build();
        assert_eq!(HELP.problems(&root), Vec::<String>::new());
    }

    #[test]
    fn every_command_that_is_printed_works_as_printed() {
        let here = Path::new(env!("CARGO_MANIFEST_DIR"));
        let (mut all, mut count) = (Vec::new(), 0);
        for place in
            ["src", "../program/src/records", "../device-agent/src", "../docs", "../README.md", "../deploy/README.md"]
        {
            let (found, problems) = printed::check(&Cli::command(), &here.join(place));
            count += found;
            all.extend(problems);
        }
        assert!(count > 80, "{count} are found");
        assert!(all.is_empty(), "{}", all.join("\n"));
    }
}
