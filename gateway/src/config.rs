//! Configuration: flags over environment over the TOML file over defaults.
//!
//! Every setting stands in [`SETTINGS`] with its default and its text; the example file, the page
//! about configuration and the check for unknown keys are all made from that list.

mod listeners;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::domain::Limits;
use crate::domain::bodies::MAX_BODY;
use crate::domain::devices::Clocks;
use crate::domain::rates::Rate;

/// One setting.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    /// Its dotted key.
    pub key: &'static str,
    /// Its default, as text.
    pub default: &'static str,
    /// What it is for.
    pub about: &'static str,
}

const fn setting(key: &'static str, default: &'static str, about: &'static str) -> Setting {
    Setting { key, default, about }
}

/// Every setting, in the order of the example file.
pub const SETTINGS: &[Setting] = &[
    setting(
        "state_dir",
        "/var/lib/deskgate",
        "Where the gateway keeps its keys, its control token and its private database.",
    ),
    setting("run_dir", "/run/deskgate", "Where its sockets are."),
    setting(
        "server.listen",
        "127.0.0.1:8484",
        "The address of the public API. Beyond loopback it needs server.tls, or proxies that do TLS in server.trusted_proxies.",
    ),
    setting(
        "server.public_url",
        "",
        "What backends use, without /api/v1, such as https://gateway.example.com. Empty: the listening address.",
    ),
    setting(
        "server.tls.cert_file",
        "",
        "The certificate and those between it and its root, PEM. Read again on SIGHUP and `deskgate-gateway reload`. Empty: plain HTTP.",
    ),
    setting("server.tls.key_file", "", "Its private key, PEM, in a file that others cannot read."),
    setting(
        "server.trusted_proxies",
        "",
        "Addresses or ranges of the proxies before this gateway, with commas. What they say in X-Forwarded-For, or else in Forwarded, is believed. Without server.tls nobody else may connect beyond loopback.",
    ),
    setting(
        "server.drain_ms",
        "1000",
        "Milliseconds between the word to stop and the end of listening. In them nothing is admitted and /readyz says no, so that a load balancer finds out.",
    ),
    setting(
        "ops.listen",
        "127.0.0.1:8485",
        "The address of /livez, /readyz and /metrics, for this machine's own people: it asks nobody who they are. Empty: none.",
    ),
    setting(
        "ssh.listen",
        "",
        "The address of the gateway's own SSH listener for devices, such as 0.0.0.0:7822. Empty: none; devices come in through the server's sshd.",
    ),
    setting("ssh.public_address", "", "What devices dial, host:port. Empty: the listening address."),
    setting("control.socket", "", "The private control socket, mode 0660. Empty: control.sock in run_dir."),
    setting(
        "control.token_file",
        "",
        "A file with the private control token. Empty: the credential control_token, or control_token in state_dir, which is made.",
    ),
    setting("control.heartbeat_ms", "15000", "Milliseconds between two pings to a device."),
    setting("control.lease_ms", "45000", "Milliseconds of silence after which started runs await reconciliation."),
    setting("control.offer_ms", "15000", "Milliseconds a device has to accept an offered run."),
    setting("admin.socket", "", "The administrator's socket, mode 0660. Empty: admin.sock in run_dir."),
    setting(
        "database.url",
        "",
        "PostgreSQL 15 or newer, without a password. Empty: a private cluster in state_dir. DATABASE_URL is read too.",
    ),
    setting(
        "database.url_file",
        "",
        "A file with the URL, when it holds a password. The credential database_url is read too.",
    ),
    setting("database.listen_url_file", "", "A file with the URL for LISTEN, when a connection pooler stands between."),
    setting("database.ca_file", "", "PEM certificates to trust for TLS to the database instead of the system's."),
    setting("limits.waiting_runs_per_application", "10000", "Runs of one application that may wait for a start."),
    setting(
        "limits.requests_per_second",
        "50",
        "Requests a second that each application key may make in the long run.",
    ),
    setting("limits.burst", "200", "Requests that a key may make at once after a while of silence."),
    setting(
        "limits.streams_per_application",
        "1000",
        "Event streams of one application that may be open on this gateway.",
    ),
    setting(
        "limits.bodies_per_key",
        "256",
        "Requests with a body of one key that may be under way on this gateway at once. Beyond them none is read.",
    ),
    setting(
        "limits.body_bytes_per_key",
        "33554432",
        "Bytes that these bodies may have together. At least 1048576, the largest body; one that does not announce its length counts as that.",
    ),
    setting("limits.retention_days", "30", "Days that ended runs are kept."),
    setting(
        "limits.concurrent_commits",
        "2",
        "Commits of submissions that may be under way at once. More help where a sync is slow.",
    ),
    setting("log.format", "auto", "auto, text or json. auto: text on a terminal, otherwise json."),
    setting("log.filter", "info", "What is logged, as in info,deskgate_gateway=debug."),
];

/// Where a value came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// Built in.
    Default,
    /// The file.
    File(PathBuf),
    /// An environment variable.
    Environment(String),
    /// The command line.
    Flag,
}

impl std::fmt::Display for Origin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::File(path) => write!(f, "{}", path.display()),
            Self::Environment(name) => write!(f, "{name}"),
            Self::Flag => f.write_str("command line"),
        }
    }
}

/// What is wrong with a configuration.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("{path}: {problem}")]
    File {
        /// Which file.
        path: PathBuf,
        /// Why.
        problem: String,
    },
    /// No such setting.
    #[error("{origin}: there is no setting {key:?}{}", suggestion.as_ref().map(|s| format!("; did you mean {s:?}?")).unwrap_or_default())]
    Unknown {
        /// Where it stands.
        origin: String,
        /// The key.
        key: String,
        /// The nearest real one.
        suggestion: Option<String>,
    },
    /// A value that cannot be used.
    #[error("{key} = {value:?} ({origin}): {problem}")]
    Value {
        /// The setting.
        key: &'static str,
        /// Its value.
        value: String,
        /// Where it stands.
        origin: String,
        /// Why not.
        problem: String,
    },
    /// A password in the file.
    #[error(
        "database.url holds a password. Put the URL into a file with mode 0600 and name that file in database.url_file"
    )]
    PasswordInFile,
}

/// Every setting's value with its origin.
#[derive(Clone, Debug)]
pub struct Config {
    values: BTreeMap<&'static str, (String, Origin)>,
}

/// More than one machine can answer in a second.
const HIGHEST_RATE: u32 = 1_000_000;
/// An hour. Whatever is lost for longer should have been noticed.
const LONGEST_CLOCK_MS: u64 = 3_600_000;

/// The default place of the file.
pub const FILE: &str = "/etc/deskgate/gateway.toml";

impl Config {
    /// Reads the file (`None`: the default place, if there is one), then the environment, then
    /// `flags` as `key=value`.
    pub fn load(
        file: Option<&Path>,
        environment: impl Iterator<Item = (String, String)>,
        flags: &[String],
    ) -> Result<Self, ConfigError> {
        let defaults = SETTINGS.iter().map(|s| (s.key, (s.default.to_owned(), Origin::Default)));
        let mut config = Self { values: defaults.collect() };
        match file {
            Some(path) => config.read_file(path)?,
            None if Path::new(FILE).exists() => config.read_file(Path::new(FILE))?,
            None => {}
        }
        for (name, value) in environment {
            let key = match name.strip_prefix("DESKGATE_") {
                Some("CONFIG") => continue,
                Some(rest) => rest.to_lowercase().replace("__", "."),
                None if name == "DATABASE_URL" => "database.url".to_owned(),
                None => continue,
            };
            config.set(&key, value, Origin::Environment(name))?;
        }
        for flag in flags {
            let (key, value) = flag.split_once('=').unwrap_or((flag, ""));
            if key.trim() == "database.url" && has_password(value) {
                return Err(ConfigError::PasswordInFile);
            }
            config.set(key.trim(), value.trim().to_owned(), Origin::Flag)?;
        }
        Ok(config)
    }

    fn read_file(&mut self, path: &Path) -> Result<(), ConfigError> {
        let problem = |problem: String| ConfigError::File { path: path.to_owned(), problem };
        let text = std::fs::read_to_string(path).map_err(|error| problem(error.to_string()))?;
        let table: toml::Table = text.parse().map_err(|error: toml::de::Error| problem(error.to_string()))?;
        let mut flat = Vec::new();
        flatten("", &table, &mut flat);
        for (key, value) in flat {
            if key == "database.url" && has_password(&value) {
                return Err(ConfigError::PasswordInFile);
            }
            self.set(&key, value, Origin::File(path.to_owned()))?;
        }
        Ok(())
    }

    fn set(&mut self, key: &str, value: String, origin: Origin) -> Result<(), ConfigError> {
        match SETTINGS.iter().find(|setting| setting.key == key) {
            Some(setting) => {
                self.values.insert(setting.key, (value, origin));
                Ok(())
            }
            None => {
                let distance = |setting: &&Setting| strsim::damerau_levenshtein(setting.key, key);
                let nearest = SETTINGS.iter().min_by_key(distance).filter(|setting| distance(setting) <= 4);
                let suggestion = nearest.map(|setting| setting.key.to_owned());
                Err(ConfigError::Unknown { origin: origin.to_string(), key: key.to_owned(), suggestion })
            }
        }
    }

    /// A setting's text; empty when it is not set.
    pub fn text(&self, key: &'static str) -> &str {
        &self.entry(key).0
    }

    fn entry(&self, key: &'static str) -> &(String, Origin) {
        self.values.get(key).unwrap_or_else(|| unreachable!("{key} stands in SETTINGS, of which every one has a value"))
    }

    fn parse<T: std::str::FromStr>(&self, key: &'static str, wanted: &str) -> Result<T, ConfigError> {
        let (value, origin) = self.entry(key);
        value.parse().map_err(|_| ConfigError::Value {
            key,
            value: value.clone(),
            origin: origin.to_string(),
            problem: format!("{wanted} is needed"),
        })
    }

    fn refused(&self, key: &'static str, problem: &str) -> ConfigError {
        let (value, origin) = self.entry(key);
        ConfigError::Value { key, value: value.clone(), origin: origin.to_string(), problem: problem.to_owned() }
    }

    fn path(&self, key: &'static str) -> Option<PathBuf> {
        Some(self.text(key)).filter(|text| !text.is_empty()).map(PathBuf::from)
    }

    /// Where the gateway keeps what it must not lose.
    pub fn state_dir(&self) -> PathBuf {
        PathBuf::from(self.text("state_dir"))
    }

    /// Where its sockets are.
    pub fn run_dir(&self) -> PathBuf {
        PathBuf::from(self.text("run_dir"))
    }

    /// The control socket.
    pub fn control_socket(&self) -> PathBuf {
        self.path("control.socket").unwrap_or_else(|| self.run_dir().join("control.sock"))
    }

    /// The administrator's socket.
    pub fn admin_socket(&self) -> PathBuf {
        self.path("admin.socket").unwrap_or_else(|| self.run_dir().join("admin.sock"))
    }

    /// The URL of the database, from wherever it is allowed to stand. `None`: a private cluster.
    pub fn database_url(&self) -> Result<Option<String>, ConfigError> {
        let (url, origin) = self.entry("database.url");
        let file = self.path("database.url_file").or_else(|| credential("database_url"));
        match file {
            // Whoever names a database for this one call means that one.
            _ if !url.is_empty() && matches!(origin, Origin::Flag | Origin::Environment(_)) => Ok(Some(url.clone())),
            Some(file) => read_secret(&file).map(Some),
            None => Ok(Some(url.clone()).filter(|url| !url.is_empty())),
        }
    }

    /// The URL for LISTEN, if it is another one.
    pub fn listen_url(&self) -> Result<Option<String>, ConfigError> {
        self.path("database.listen_url_file").map(|file| read_secret(&file)).transpose()
    }

    /// Certificates to trust for the database.
    pub fn ca_file(&self) -> Option<PathBuf> {
        self.path("database.ca_file")
    }

    /// The file with the control token, if it is not the gateway's own.
    pub fn control_token_file(&self) -> Option<PathBuf> {
        self.path("control.token_file").or_else(|| credential("control_token"))
    }

    /// What callers can meet.
    pub fn limits(&self) -> Result<Limits, ConfigError> {
        let days: u32 = self.parse("limits.retention_days", "a whole number of days")?;
        Ok(Limits {
            waiting_runs_per_application: self.parse("limits.waiting_runs_per_application", "a whole number")?,
            rate: Rate { per_second: self.rate("limits.requests_per_second")?, burst: self.rate("limits.burst")? },
            retention: Duration::from_secs(u64::from(days) * 24 * 3600),
            streams_per_application: self.parse("limits.streams_per_application", "a whole number")?,
            bodies_per_key: self.at_least("limits.bodies_per_key", 1)?,
            body_bytes_per_key: self.at_least("limits.body_bytes_per_key", MAX_BODY)?,
            concurrent_commits: self.parse("limits.concurrent_commits", "a whole number")?,
        })
    }

    fn at_least(&self, key: &'static str, least: usize) -> Result<usize, ConfigError> {
        let wanted = format!("a whole number from {least}");
        let number = self.parse(key, &wanted)?;
        if number >= least { Ok(number) } else { Err(self.refused(key, &format!("{wanted} is needed"))) }
    }

    fn rate(&self, key: &'static str) -> Result<NonZeroU32, ConfigError> {
        let wanted = format!("a whole number from 1 to {HIGHEST_RATE}");
        let number: NonZeroU32 = self.parse(key, &wanted)?;
        if number.get() <= HIGHEST_RATE { Ok(number) } else { self.parse::<Impossible>(key, &wanted).map(|_| number) }
    }

    /// The times of the control channel.
    pub fn clocks(&self) -> Result<Clocks, ConfigError> {
        let time = |key, least: u64| {
            let wanted = format!("a whole number of milliseconds from {least} to {LONGEST_CLOCK_MS}");
            match self.parse::<u64>(key, &wanted)? {
                number if (least..=LONGEST_CLOCK_MS).contains(&number) => Ok(Duration::from_millis(number)),
                _ => self.parse::<Impossible>(key, &wanted).map(|_| Duration::ZERO),
            }
        };
        let heartbeat = time("control.heartbeat_ms", 10)?;
        let two_heartbeats = u64::try_from(heartbeat.as_millis() * 2).unwrap_or(u64::MAX);
        Ok(Clocks { heartbeat, lease: time("control.lease_ms", two_heartbeats)?, offer: time("control.offer_ms", 10)? })
    }

    /// Checks every setting, so that a mistake shows at the start and not at first use.
    pub fn check(&self) -> Result<(), ConfigError> {
        self.listen()?;
        self.tls_files()?;
        self.trusted_proxies()?;
        self.ssh_listen()?;
        self.ops_listen()?;
        self.drain()?;
        self.limits()?;
        self.clocks()?;
        match self.text("log.format") {
            "auto" | "text" | "json" => Ok(()),
            _ => self.parse::<Impossible>("log.format", "auto, text or json").map(drop),
        }
    }

    /// Every setting as `key = value  # origin`, with passwords masked.
    pub fn show(&self) -> Vec<(&'static str, String, String)> {
        let masked = |key: &str, value: &str| match key {
            "database.url" if has_password(value) => "(set, with a password)".to_owned(),
            _ => value.to_owned(),
        };
        SETTINGS.iter().map(|s| (s.key, masked(s.key, self.text(s.key)), self.entry(s.key).1.to_string())).collect()
    }
}

/// Nothing parses as this: it makes an error of a value that is none of the allowed words.
struct Impossible;

impl std::str::FromStr for Impossible {
    type Err = ();

    fn from_str(_: &str) -> Result<Self, ()> {
        Err(())
    }
}

/// The commented example file.
pub fn example() -> String {
    let mut text = "# Configuration of the Deskgate gateway. Every setting with its default.\n".to_owned();
    let mut section = "";
    for setting in SETTINGS {
        let (table, name) = setting.key.split_once('.').unwrap_or(("", setting.key));
        if table != section {
            // Writing to a String cannot fail.
            let _ = write!(text, "\n[{table}]\n");
            section = table;
        }
        let plain = setting.default.parse::<u64>().is_ok();
        let value = if plain { setting.default.to_owned() } else { format!("{:?}", setting.default) };
        let _ = write!(text, "# {}\n#{name} = {value}\n", setting.about);
    }
    text
}

fn flatten(prefix: &str, table: &toml::Table, flat: &mut Vec<(String, String)>) {
    for (name, value) in table {
        let key = if prefix.is_empty() { name.clone() } else { format!("{prefix}.{name}") };
        match value {
            toml::Value::Table(inner) => flatten(&key, inner, flat),
            toml::Value::String(text) => flat.push((key, text.clone())),
            toml::Value::Array(parts) if parts.iter().all(toml::Value::is_str) => {
                let texts: Vec<_> = parts.iter().filter_map(toml::Value::as_str).collect();
                flat.push((key, texts.join(",")));
            }
            other => flat.push((key, other.to_string())),
        }
    }
}

fn has_password(url: &str) -> bool {
    let authority = url.split_once("://").map_or("", |(_, rest)| rest.split(['/', '?']).next().unwrap_or_default());
    let in_authority = authority.rsplit_once('@').is_some_and(|(user, _)| user.contains(':'));
    in_authority || url.contains("password=")
}

/// A file that systemd made for this service.
fn credential(name: &str) -> Option<PathBuf> {
    let path = PathBuf::from(std::env::var_os("CREDENTIALS_DIRECTORY")?).join(name);
    path.exists().then_some(path)
}

/// The text of a secret's file, without the line end.
pub fn read_secret(path: &Path) -> Result<String, ConfigError> {
    let text = std::fs::read_to_string(path)
        .map_err(|error| ConfigError::File { path: path.to_owned(), problem: error.to_string() })?;
    Ok(text.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(file: &str, environment: &[(&str, &str)], flags: &[&str]) -> Result<Config, ConfigError> {
        let path = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(path.path(), file).unwrap();
        let environment = environment.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        let flags: Vec<_> = flags.iter().map(|flag| (*flag).to_owned()).collect();
        Config::load(Some(path.path()), environment, &flags)
    }

    #[test]
    fn flags_win_over_environment_over_file_over_default() {
        let file = "[server]\nlisten = \"127.0.0.1:1\"\n[control]\nlease_ms = 40000\n[limits]\nretention_days = 1\n";
        let environment = [("DESKGATE_SERVER__LISTEN", "127.0.0.1:2"), ("DESKGATE_CONTROL__LEASE_MS", "50000")];
        let config = load(file, &environment, &["server.listen=127.0.0.1:3"]).unwrap();
        assert_eq!(config.listen().unwrap().port(), 3);
        assert_eq!(config.clocks().unwrap().lease, Duration::from_millis(50000));
        assert_eq!(config.limits().unwrap().retention, Duration::from_secs(86400));
        assert_eq!(config.clocks().unwrap().offer, Duration::from_secs(15));
        let origins: Vec<_> =
            config.show().into_iter().filter(|(.., origin)| origin != "default").map(|row| row.0).collect();
        assert_eq!(origins, ["server.listen", "control.lease_ms", "limits.retention_days"]);
    }

    #[test]
    fn an_unknown_key_is_an_error_with_the_nearest_real_one() {
        let error = load("[server]\nlistne = \"127.0.0.1:1\"", &[], &[]).unwrap_err().to_string();
        assert!(error.ends_with("there is no setting \"server.listne\"; did you mean \"server.listen\"?"), "{error}");
        assert!(load("", &[("DESKGATE_SERVER__LISTNE", "x")], &[]).is_err());
    }

    #[test]
    fn a_password_in_the_file_is_refused_and_one_from_the_environment_is_masked() {
        let refused = load("[database]\nurl = \"postgres://me:hunter2@db/x\"", &[], &[]).unwrap_err();
        assert!(matches!(refused, ConfigError::PasswordInFile), "{refused}");
        let config = load("", &[("DATABASE_URL", "postgres://me:hunter2@db/x")], &[]).unwrap();
        assert!(!format!("{:?}", config.show()).contains("hunter2"));
        assert!(load("[database]\nurl = \"postgres://me@db/x\"", &[], &[]).is_ok());
    }

    #[test]
    fn clocks_that_could_not_work_are_refused() {
        let clocks = |flags: &[&str]| load("", &[], flags).unwrap().clocks();
        assert!(clocks(&["control.heartbeat_ms=0"]).is_err());
        assert!(clocks(&["control.lease_ms=1000"]).unwrap_err().to_string().contains("from 30000"));
        assert!(clocks(&["control.heartbeat_ms=100", "control.lease_ms=300"]).is_ok());
    }

    #[test]
    fn rates_that_let_nothing_through_or_cannot_be_counted_are_refused() {
        let limits = |flag: &str| load("", &[], &[flag]).unwrap().limits();
        assert!(limits("limits.burst=0").is_err());
        assert!(limits("limits.requests_per_second=1000001").unwrap_err().to_string().contains("from 1 to 1000000"));
        assert_eq!(limits("limits.burst=7").unwrap().rate.burst.get(), 7);
    }

    #[test]
    fn plain_http_beyond_loopback_needs_proxies_and_the_refusal_names_both_ways() {
        let plain = "[server]\nlisten = \"0.0.0.0:80\"\n";
        let error = load(plain, &[], &[]).unwrap().listen().unwrap_err().to_string();
        assert!(error.contains("server.tls.cert_file") && error.contains("server.trusted_proxies"), "{error}");
        let behind = format!("{plain}trusted_proxies = [\"10.0.0.0/8\", \"::1\"]\n");
        let config = load(&behind, &[], &[]).unwrap();
        assert!(config.listen().is_ok() && config.trusted_proxies().unwrap().contain([10, 1, 2, 3].into()));
        let with_tls = format!("{plain}[server.tls]\ncert_file = \"/a\"\nkey_file = \"/b\"\n");
        assert!(load(&with_tls, &[], &[]).unwrap().listen().is_ok());
        let half = format!("{plain}[server.tls]\ncert_file = \"/a\"\n");
        assert!(load(&half, &[], &[]).unwrap().listen().unwrap_err().to_string().contains("server.tls.key_file"));
        assert!(load("[server]\ntrusted_proxies = \"10.0.0.0/99\"", &[], &[]).unwrap().check().is_err());
    }

    #[test]
    fn the_example_file_in_deploy_is_what_the_program_prints() {
        let file = include_str!("../../deploy/gateway.example.toml");
        assert!(file == example(), "run: deskgate-gateway config example > deploy/gateway.example.toml");
    }

    #[test]
    fn the_example_with_every_comment_removed_is_a_valid_file_of_defaults() {
        let uncommented: String = example()
            .lines()
            .map(|line| line.strip_prefix('#').filter(|rest| !rest.starts_with(' ')).unwrap_or(line).to_owned() + "\n")
            .collect();
        let config = load(&uncommented, &[], &[]).unwrap();
        config.check().unwrap();
        for setting in SETTINGS {
            assert_eq!(config.text(setting.key), setting.default, "{}", setting.key);
        }
    }
}
