//! Checks of configuration and surroundings before the gateway starts.

use std::io::ErrorKind;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

use jiff::Timestamp;
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;
use serde::{Deserialize, Serialize};

use crate::config::Config;
use crate::descriptors::DescriptorLimit;
use crate::encryption::DataCipher;
use crate::storage::StoragePlace;
use crate::store::Database;
use crate::store::disk::DiskRoom;
use crate::store::migrate::{self, SchemaStatus};
use crate::tls;
use deskgate_program::exit::{Exit, Failure};
use deskgate_program::look::{Cell, Tone};
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
        certificate_name(config),
        public_address(config),
        disk(config),
        Finding::of("destinations", config.describe_destinations(), |rules| rules),
        open_files(descriptors),
        socket("control socket", &config.control_socket()),
        socket("administrator's socket", &config.admin_socket()),
    ];
    findings.extend(ports(config));
    findings.push(storage(config).await);
    findings.extend(database(config).await);
    findings
}

/// Whether each listener's address is free, or this gateway's own.
fn ports(config: &Config) -> Vec<Finding> {
    let Ok(listeners) = config.listeners() else { return Vec::new() };
    let runs = match std::os::unix::net::UnixStream::connect(config.admin_socket()) {
        Ok(_) => true,
        // Somebody listens there who does not admit this account.
        Err(error) => error.kind() == ErrorKind::PermissionDenied,
    };
    listeners.into_iter().map(|(key, address)| port(key, address, runs)).collect()
}

fn port(key: &'static str, address: SocketAddr, runs: bool) -> Finding {
    let found = |verdict, detail: &str| {
        // Who has the port may be gone when the gateway starts.
        Finding::new(key, verdict, format!("{address} {detail}")).ending(Exit::CannotReach)
    };
    match TcpListener::bind(address).map_err(|error| error.kind()) {
        Ok(_) => found(CheckStatus::Pass, "is free"),
        Err(ErrorKind::AddrInUse) if runs => found(CheckStatus::Pass, "is in use, and a gateway runs here"),
        Err(ErrorKind::AddrInUse) => {
            found(CheckStatus::Fail, "is in use by another program. See which: ss -ltnp. End it, or name another port")
        }
        Err(ErrorKind::AddrNotAvailable) => {
            found(CheckStatus::Fail, "is no address of this computer. See them: ip address")
        }
        Err(ErrorKind::PermissionDenied) => found(CheckStatus::Skip, "cannot be tried by this account"),
        Err(kind) => found(CheckStatus::Fail, &format!("cannot be used: {kind}")),
    }
}

/// Whether the certificate is for the name that callers use.
fn certificate_name(config: &Config) -> Finding {
    let name = "certificate's name";
    let skipped = |why: &str| Finding::new(name, CheckStatus::Skip, why);
    let Ok(Some(url)) = config.public_url() else { return skipped("server.public_url names no host") };
    let Some(host) = url.host_str() else { return skipped("server.public_url names no host") };
    let host = host.trim_matches(['[', ']']);
    let wrong = |detail: String| {
        let detail = format!("{detail}, and server.public_url has {host}: callers refuse it");
        Finding::new(name, CheckStatus::Fail, detail).ending(Exit::CannotReach)
    };
    match (config.tls_files(), config.acme()) {
        (Ok(Some(files)), _) => {
            let Ok(leaf) = tls::leaf(&files.certificate) else { return skipped("the certificate cannot be read") };
            match tls::is_for(&leaf, host) {
                true => Finding::new(name, CheckStatus::Pass, format!("it is for {host}")),
                // A proxy before this gateway has the certificate that callers see.
                false if config.trusted_proxies().is_ok_and(|proxies| !proxies.is_empty()) => {
                    skipped("callers see that of the proxies before this gateway")
                }
                false => wrong(format!("{} is for another name", files.certificate.display())),
            }
        }
        (_, Ok(Some(acme))) if acme.domains.iter().any(|domain| domain.eq_ignore_ascii_case(host)) => {
            Finding::new(name, CheckStatus::Pass, format!("it is ordered for {host}"))
        }
        (_, Ok(Some(acme))) => wrong(format!("it is ordered for {}", acme.domains.join(", "))),
        _ => skipped("this gateway does no TLS"),
    }
}

/// Whether callers' keys can be read on the way.
fn public_address(config: &Config) -> Finding {
    let name = "public URL";
    let url = match config.public_url() {
        Ok(Some(url)) => url,
        Ok(None) => return Finding::new(name, CheckStatus::Skip, "the listening address is told to desktops"),
        Err(error) => return Finding::new(name, CheckStatus::Fail, error.to_string()),
    };
    let is_loopback = match url.host() {
        Some(url::Host::Domain(domain)) => domain == "localhost",
        Some(url::Host::Ipv4(address)) => address.is_loopback(),
        Some(url::Host::Ipv6(address)) => address.is_loopback(),
        None => false,
    };
    if url.scheme() == "https" || is_loopback {
        return Finding::new(name, CheckStatus::Pass, url.as_str().trim_end_matches('/'));
    }
    let detail = format!("{url} is plain HTTP: keys and results can be read on the way");
    let behind = [config.balancers("server"), config.trusted_proxies()];
    match behind.into_iter().any(|networks| networks.is_ok_and(|some| !some.is_empty())) {
        true => Finding::new(name, CheckStatus::Warn, format!("{detail}, up to the balancer at least")),
        false => {
            Finding::new(name, CheckStatus::Fail, format!("{detail}. Write it with https://")).ending(Exit::CannotReach)
        }
    }
}

/// Room for the gateway's own files, and its own database if it has one.
fn disk(config: &Config) -> Finding {
    let (name, folder) = ("disk", config.state_dir());
    match DiskRoom::of(&folder) {
        Ok(room) => {
            let detail = format!("{} MiB are free at {}", room.free_mib(), folder.display());
            let verdict = match room {
                room if room.is_full() => CheckStatus::Fail,
                room if room.is_low() => CheckStatus::Warn,
                _ => return Finding::new(name, CheckStatus::Pass, detail),
            };
            Finding::new(name, verdict, format!("{detail}. Make room, or give the disk more")).ending(Exit::CannotReach)
        }
        Err(error) => Finding::new(name, CheckStatus::Skip, format!("{}: {error}", folder.display())),
    }
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
    let tone = |verdict: CheckStatus| match verdict {
        CheckStatus::Pass => Tone::Good,
        CheckStatus::Warn => Tone::Attention,
        CheckStatus::Fail => Tone::Failed,
        CheckStatus::Skip => Tone::Quiet,
    };
    let row = |f: &Finding| {
        let verdict = Cell::toned(format!("{:?}", f.verdict).to_uppercase(), tone(f.verdict));
        vec![verdict, f.name.into(), f.detail.clone().into()]
    };
    table(&["", "", ""], findings.iter().map(row).collect()).trim_start().to_owned()
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

/// Whether files can be kept.
async fn storage(config: &Config) -> Finding {
    let name = "files";
    let found = |verdict, detail: String| Finding::new(name, verdict, detail).ending(Exit::CannotReach);
    match config.storage() {
        // The configuration's own finding tells.
        Err(_) => found(CheckStatus::Skip, "storage.url cannot be used".to_owned()),
        Ok(StoragePlace::Folder(path)) if !path.exists() => {
            found(CheckStatus::Skip, format!("{} is made when the gateway starts", path.display()))
        }
        Ok(place) => match place.open() {
            Err(error) => found(CheckStatus::Fail, error.to_string()),
            Ok(storage) => match storage.probe().await {
                Ok(()) => found(CheckStatus::Pass, format!("{} keeps, gives and deletes them", storage.place())),
                Err(error) => {
                    let next = match place {
                        StoragePlace::Folder(_) => "The gateway must be able to write there",
                        StoragePlace::Bucket(_) => {
                            "Are the service's credentials in the environment of this command too?"
                        }
                    };
                    found(CheckStatus::Fail, format!("{}: {error}. {next}", storage.place()))
                }
            },
        },
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
    let server = database.check(&client).await;
    let is_usable = server.is_ok();
    let mut findings = vec![Finding::of("PostgreSQL", server, |version| version)];
    if !is_usable {
        return findings;
    }
    if let Some(weakness) = database.weakness() {
        findings.push(Finding::new("database TLS", CheckStatus::Warn, weakness));
    }
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
