//! Checks of configuration and surroundings before the gateway starts.

use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

use jiff::Timestamp;
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;
use serde::{Deserialize, Serialize};

use crate::config::Config;
use crate::descriptors::DescriptorLimit;
use crate::encryption::DataCipher;
use crate::store::Database;
use crate::store::migrate::{self, SchemaStatus};
use crate::tls;
use deskgate_program::exit::{Exit, Failure};
use deskgate_program::output::table;
use deskgate_program::token;

/// How one check ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum CheckStatus {
    /// The check found nothing wrong.
    Pass,
    /// Good for now; the finding says what to do.
    Warn,
    /// Not good; the finding says what to do.
    Fail,
    /// Skipped; the finding says why.
    Skip,
}

/// The result of one check.
#[derive(Clone, Debug, Serialize)]
pub struct Finding {
    /// The name of the check.
    pub name: &'static str,
    /// How the check ended.
    pub verdict: CheckStatus,
    /// What was found, and what to do next.
    pub detail: String,
    /// The exit code of a gateway that fails at it.
    #[serde(skip)]
    pub exit: Exit,
}

impl Finding {
    pub(super) fn new(name: &'static str, verdict: CheckStatus, detail: impl Into<String>) -> Self {
        Self { name, verdict, detail: detail.into(), exit: Exit::NotSetUp }
    }

    fn of<T>(name: &'static str, result: Result<T, impl std::fmt::Display>, good: impl FnOnce(T) -> String) -> Self {
        match result {
            Ok(value) => Self::new(name, CheckStatus::Pass, good(value)),
            Err(error) => Self::new(name, CheckStatus::Fail, error.to_string()),
        }
    }

    fn ending(self, exit: Exit) -> Self {
        Self { exit, ..self }
    }
}

/// Runs every check; `descriptors` are those of a gateway that was started here.
pub async fn run(config: &Config, descriptors: DescriptorLimit) -> Vec<Finding> {
    let mut findings = vec![
        Finding::of("configuration", config.check(), |()| "every setting can be used".to_owned()),
        Finding::of("state directory", writable(&config.state_dir()), |()| config.state_dir().display().to_string()),
        run_directory(config),
        control_token(config),
        sealing_key(config),
        certificate(config),
        open_files(descriptors),
        socket("control socket", &config.control_socket()),
        socket("administrator's socket", &config.admin_socket()),
    ];
    findings.extend(database(config).await);
    findings
}

/// What keeps a gateway from starting: the worst finding, as the start itself would end. A database that does not
/// answer yet is no reason.
///
/// # Errors
/// A check failed, other than those that end with `Exit::CannotReach`. The exit code is `Exit::VersionMismatch` if any
/// of them has it, otherwise that of the first.
pub fn at_startup(findings: &[Finding]) -> Result<(), Failure> {
    let hopeless = |finding: &&Finding| finding.verdict == CheckStatus::Fail && finding.exit != Exit::CannotReach;
    let found: Vec<_> = findings.iter().filter(hopeless).collect();
    let Some(first) = found.first() else { return Ok(()) };
    let mismatch = found.iter().any(|finding| finding.exit == Exit::VersionMismatch);
    let exit = if mismatch { Exit::VersionMismatch } else { first.exit };
    let lines: Vec<_> = found.iter().map(|finding| format!("{}: {}", finding.name, finding.detail)).collect();
    Err(Failure::new(exit, lines.join("\n")))
}

/// Fails with 10 if any check failed.
///
/// # Errors
/// `Exit::CheckFailed`: at least one check failed.
pub fn verdict(findings: &[Finding]) -> Result<(), Failure> {
    match findings.iter().filter(|finding| finding.verdict == CheckStatus::Fail).count() {
        0 => Ok(()),
        failed => Err(Failure::new(Exit::CheckFailed, format!("{failed} of the checks failed"))),
    }
}

/// The findings as text for people.
pub fn show(findings: &[Finding]) -> String {
    let row = |f: &Finding| vec![format!("{:?}", f.verdict).to_uppercase(), f.name.to_owned(), f.detail.clone()];
    table(&["", "", ""], &findings.iter().map(row).collect::<Vec<_>>()).trim_start().to_owned()
}

fn writable(path: &Path) -> Result<(), String> {
    let probe = path.join(format!(".check.{}", std::process::id()));
    std::fs::write(&probe, b"")
        .and_then(|()| std::fs::remove_file(&probe))
        .map_err(|error| format!("{}: {error}. The gateway must be able to write there", path.display()))
}

/// The folder is gone after each boot, and the service creates it again.
fn run_directory(config: &Config) -> Finding {
    let (name, path) = ("run directory", config.run_dir());
    match path.exists() {
        true => Finding::of(name, writable(&path), |()| path.display().to_string()),
        false => Finding::new(name, CheckStatus::Skip, format!("{} is made when the gateway starts", path.display())),
    }
}

fn open_files(descriptors: DescriptorLimit) -> Finding {
    Finding::of("descriptors", descriptors.are_enough(), |DescriptorLimit { allowed, needed }| {
        let allowed = allowed.map_or("any number".to_owned(), |allowed| allowed.to_string());
        format!("{allowed} allowed, {needed} needed at most")
    })
    // Callers are refused, and everything else works.
    .ending(Exit::CannotReach)
}

fn control_token(config: &Config) -> Finding {
    let name = "control token";
    let own = config.state_dir().join(token::CONTROL_TOKEN_FILE);
    match config.control_token_file() {
        Some(path) => Finding::of(name, token::load(&path), |_| path.display().to_string()),
        None if own.exists() => Finding::of(name, token::load(&own), |_| own.display().to_string()),
        None => Finding::new(name, CheckStatus::Skip, format!("{} is made at the first start", own.display())),
    }
}

fn sealing_key(config: &Config) -> Finding {
    let (name, path) = ("sealing key", config.seal_file());
    match path.exists() {
        true => Finding::of(name, DataCipher::load(&path), |_| format!("{}; keep a copy of it", path.display())),
        false => Finding::new(name, CheckStatus::Skip, format!("{} is made at the first start", path.display())),
    }
}

/// Which users the mode of a socket's file lets in.
fn socket(name: &'static str, path: &Path) -> Finding {
    let Ok(file) = std::fs::symlink_metadata(path) else {
        return Finding::new(name, CheckStatus::Skip, format!("{} is made when the gateway starts", path.display()));
    };
    let mode = file.mode() & 0o777;
    if !file.file_type().is_socket() {
        let detail = format!("{} is no socket; the gateway does not start while it is there", path.display());
        return Finding::new(name, CheckStatus::Fail, detail);
    }
    let detail = format!("{}, mode {mode:04o}, group {}", path.display(), file.gid());
    match mode & 0o007 {
        0 => Finding::new(name, CheckStatus::Pass, detail),
        _ => Finding::new(name, CheckStatus::Fail, format!("{detail}: everybody may come in. Restart the gateway"))
            .ending(Exit::CannotReach),
    }
}

fn certificate(config: &Config) -> Finding {
    let name = "TLS";
    match config.tls_files() {
        Ok(Some(files)) => match tls::read(&files) {
            Ok(_) => expiry(name, &files.certificate),
            Err(error) => Finding::new(name, CheckStatus::Fail, error.to_string()),
        },
        Ok(None) => authority(config),
        Err(error) => Finding::new(name, CheckStatus::Fail, error.to_string()),
    }
}

/// An expired certificate keeps no gateway from starting.
fn expiry(name: &'static str, path: &Path) -> Finding {
    let first = CertificateDer::pem_file_iter(path).ok().and_then(|mut chain| chain.next()?.ok());
    let until = first.and_then(|certificate| tls::not_after(&certificate));
    judge_expiry(name, &path.display().to_string(), until).ending(Exit::CannotReach)
}

/// Days before the end in which a missing renewal should be noticed.
const EXPIRY_WARNING_DAYS: i64 = 14;

/// How long `what` is still valid.
pub(super) fn judge_expiry(name: &'static str, what: &str, until: Option<Timestamp>) -> Finding {
    let Some(until) = until else { return Finding::new(name, CheckStatus::Pass, what) };
    let days = until.duration_since(Timestamp::now()).as_hours().div_euclid(24);
    match days {
        ..0 => Finding::new(name, CheckStatus::Fail, format!("{what}: expired on {until}. Renew it")),
        0..EXPIRY_WARNING_DAYS => Finding::new(name, CheckStatus::Warn, format!("{what}: {days} d are left. Renew it")),
        _ => Finding::new(name, CheckStatus::Pass, format!("{what}, good for {days} d")),
    }
}

/// Whether the authority issues anything shows in the running gateway: `status`, or `ready`.
fn authority(config: &Config) -> Finding {
    let name = "TLS";
    match config.acme() {
        Ok(Some(acme)) => {
            let readable = acme.ca_file.as_ref().map_or(Ok(()), |path| tls::root(path).map(drop));
            let detail = format!("{} issues for {}", acme.directory_url, acme.domains.join(", "));
            Finding::of(name, readable, |()| detail)
        }
        Ok(None) => Finding::new(name, CheckStatus::Skip, "no certificate is configured: plain HTTP"),
        Err(error) => Finding::new(name, CheckStatus::Fail, error.to_string()),
    }
}

/// Seconds that the clocks of two machines may differ without harm to signatures and certificates.
const MAX_CLOCK_SKEW_S: f64 = 30.0;

async fn database(config: &Config) -> Vec<Finding> {
    let name = "database";
    let url = match config.database_url() {
        Ok(Some(url)) => url,
        Ok(None) => {
            let found = crate::store::cluster::find_programs(&config.state_dir());
            return vec![Finding::of(name, found, |()| "a private cluster is started with the gateway".to_owned())];
        }
        Err(error) => return vec![Finding::new(name, CheckStatus::Fail, error.to_string())],
    };
    let database = match Database::new(&url, None, config.ca_file().as_ref()) {
        Ok(database) => database,
        Err(error) => return vec![Finding::new(name, CheckStatus::Fail, error.to_string())],
    };
    let (client, _driver) = match database.connect().await {
        Ok(connected) => connected,
        Err(error) => return vec![Finding::new(name, CheckStatus::Fail, error.to_string()).ending(Exit::CannotReach)],
    };
    let server = crate::store::check_server(&client).await;
    let mut findings = vec![Finding::of("PostgreSQL", server, |version| version)];
    findings.push(match migrate::schema_status(&client).await {
        Ok(SchemaStatus::Current) => Finding::new(name, CheckStatus::Pass, "reached, and its schema is current"),
        Ok(SchemaStatus::Behind { applied }) => {
            let detail = format!("migration {applied} of {}: run `deskgate-gateway migrate run`", migrate::newest());
            Finding::new(name, CheckStatus::Fail, detail).ending(Exit::VersionMismatch)
        }
        Ok(SchemaStatus::Ahead { applied }) => {
            let detail = format!("migration {applied}, this program knows {}: upgrade it", migrate::newest());
            Finding::new(name, CheckStatus::Fail, detail).ending(Exit::VersionMismatch)
        }
        Err(error) => Finding::new(name, CheckStatus::Fail, error.to_string()),
    });
    if let Ok(skew) = crate::store::clock_skew(&client).await {
        let detail = format!("{:.1} s from the database's", skew.abs());
        let verdict = if skew.abs() <= MAX_CLOCK_SKEW_S { CheckStatus::Pass } else { CheckStatus::Fail };
        let next = if skew.abs() <= MAX_CLOCK_SKEW_S { "" } else { ": set both by NTP, or signatures look old" };
        findings.push(Finding::new("clock", verdict, format!("{detail}{next}")).ending(Exit::CannotReach));
    }
    findings
}
