//! Configuration: flags over environment over the TOML file over defaults.
//!
//! Every setting stands in [`SETTINGS`] with its default and its text; the example file, the configuration page and the
//! check for unknown keys are all made from that list.
//!
//! | file | what it does |
//! |---|---|
//! | `acme` | certificates from a certificate authority |
//! | `destinations` | which addresses may be connected to where others choose the destination |
//! | `settings` | every setting, and the example file |
//! | `error` | the origin of a value, and errors of a configuration |
//! | `hosted` | the issuer of the accounts that devices use |
//! | `listeners` | addresses, TLS, trusted proxies |
//! | `limits` | callers' limits, and the control channel's timings |
//! | `secrets` | what can hold a secret: the database's URL, the control token |

mod acme;
mod destinations;
mod error;
mod hosted;
mod limits;
mod listeners;
mod secrets;
mod settings;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

pub use acme::{AcmeSettings, AcmeTimings, ExternalAccount};
pub use error::{ConfigError, Origin};
pub use hosted::{Algorithm, HostedSettings, is_guarded};
use secrets::has_password;
pub use secrets::read_secret;
pub use settings::{SETTINGS, Setting, example};

use crate::encryption;
use crate::storage::{InvalidPlace, StoragePlace};

/// Every setting's value with its origin.
#[derive(Clone, Debug)]
pub struct Config {
    values: BTreeMap<&'static str, (String, Origin)>,
    /// The folder of secret files: systemd's folder of this service's credentials, or the one beside the file that was
    /// read.
    secrets: Option<PathBuf>,
}

/// The default path of the file.
pub const DEFAULT_CONFIG_FILE: &str = "/etc/deskgate/gateway.toml";

impl Config {
    /// Reads the file (`None`: the default path, if it exists), then the environment, then `flags` as `key=value`.
    ///
    /// # Errors
    /// The file cannot be read, a setting is unknown, or `database.url` in the file or a flag holds a password.
    pub fn load(
        file: Option<&Path>,
        environment: impl Iterator<Item = (String, String)>,
        flags: &[String],
    ) -> Result<Self, ConfigError> {
        let defaults = SETTINGS.iter().map(|s| (s.key, (s.default.to_owned(), Origin::Default)));
        let mut config = Self { values: defaults.collect(), secrets: None };
        match file {
            Some(path) => config.read_file(path)?,
            None if Path::new(DEFAULT_CONFIG_FILE).exists() => config.read_file(Path::new(DEFAULT_CONFIG_FILE))?,
            None => {}
        }
        for (name, value) in environment {
            if name == "CREDENTIALS_DIRECTORY" {
                config.secrets = Some(value.into());
                continue;
            }
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
        let table: toml::Table = text.parse().map_err(|error: toml::de::Error| {
            let mut what = error.to_string();
            if error.message().contains("duplicate key") {
                what.push_str("Each section and each setting stands in the file once: add to the one that is there.");
            }
            problem(what)
        })?;
        let mut flat = Vec::new();
        flatten("", &table, &mut flat);
        for (key, value) in flat {
            if key == "database.url" && has_password(&value) {
                return Err(ConfigError::PasswordInFile);
            }
            self.set(&key, value, Origin::File(path.to_owned()))?;
        }
        self.secrets = path.parent().map(|folder| folder.join("secrets"));
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
        self.text(key).parse().map_err(|_| self.needed(key, wanted))
    }

    fn needed(&self, key: &'static str, wanted: &str) -> ConfigError {
        self.refused(key, &format!("{wanted} is needed"))
    }

    fn refused(&self, key: &'static str, problem: &str) -> ConfigError {
        let (value, origin) = self.entry(key);
        ConfigError::Value { key, value: value.clone(), origin: origin.to_string(), problem: problem.to_owned() }
    }

    fn path(&self, key: &'static str) -> Option<PathBuf> {
        Some(self.text(key)).filter(|text| !text.is_empty()).map(PathBuf::from)
    }

    /// The folder of the gateway's durable files.
    pub fn state_dir(&self) -> PathBuf {
        PathBuf::from(self.text("state_dir"))
    }

    /// The file of the key that encrypts private values in the database.
    pub fn seal_file(&self) -> PathBuf {
        self.path("seal_file").unwrap_or_else(|| self.state_dir().join(encryption::KEY_FILE_NAME))
    }

    /// Where the bytes of files and artifacts are.
    ///
    /// # Errors
    /// [`ConfigError::Value`]: it is neither a folder's absolute path nor a bucket's URL.
    pub fn storage(&self) -> Result<StoragePlace, ConfigError> {
        match self.text("storage.url") {
            "" => Ok(StoragePlace::in_state_dir(&self.state_dir())),
            text => text.parse().map_err(|error: InvalidPlace| self.refused("storage.url", &error.to_string())),
        }
    }

    /// The folder of its sockets.
    pub fn run_dir(&self) -> PathBuf {
        PathBuf::from(self.text("run_dir"))
    }

    /// The path of the control socket.
    pub fn control_socket(&self) -> PathBuf {
        self.path("control.socket").unwrap_or_else(|| self.run_dir().join("control.sock"))
    }

    /// The path of the administrator's socket.
    pub fn admin_socket(&self) -> PathBuf {
        self.path("admin.socket").unwrap_or_else(|| self.run_dir().join("admin.sock"))
    }

    /// Checks every setting, so that a mistake shows at the start and not at first use.
    ///
    /// # Errors
    /// A value is not usable.
    pub fn check(&self) -> Result<(), ConfigError> {
        self.listen()?;
        self.storage()?;
        self.tls_files()?;
        self.acme()?;
        self.callback_addresses()?;
        self.hosted()?;
        self.trusted_proxies()?;
        self.forwarded_header()?;
        self.balancers("server")?;
        self.balancers("ssh")?;
        self.ssh_listen()?;
        self.sshd_host_keys()?;
        self.ops_listen()?;
        self.public_url()?;
        self.listeners_are_apart()?;
        self.drain()?;
        self.admin_group()?;
        self.limits()?;
        self.session_timings()?;
        if let Err(error) = tracing_subscriber::EnvFilter::try_new(self.text("log.filter")) {
            let problem = format!("{error}. It looks like info,deskgate_gateway=debug");
            return Err(self.refused("log.filter", &problem));
        }
        match self.text("log.format") {
            "auto" | "text" | "json" | "journald" => Ok(()),
            _ => Err(self.needed("log.format", "auto, text, json or journald")),
        }
    }

    /// Every setting as `key = value  # origin`, with passwords masked.
    pub fn show(&self) -> Vec<(&'static str, String, String)> {
        let shown = |setting: &Setting| {
            let (value, origin) = self.entry(setting.key);
            match (setting.key, self.credential_for(setting.key)) {
                // No file is configured, and a credential exists.
                (key, Some(path)) => (key, path.display().to_string(), "credential".to_owned()),
                ("database.url", None) if has_password(value) => {
                    ("database.url", "(set, with a password)".to_owned(), origin.to_string())
                }
                (key, None) => (key, value.clone(), origin.to_string()),
            }
        };
        SETTINGS.iter().map(shown).collect()
    }
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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    pub(super) fn load(file: &str, environment: &[(&str, &str)], flags: &[&str]) -> Result<Config, ConfigError> {
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
        assert_eq!(config.session_timings().unwrap().lease, Duration::from_millis(50000));
        assert_eq!(config.limits().unwrap().retention, Duration::from_secs(86400));
        assert_eq!(config.session_timings().unwrap().offer, Duration::from_secs(15));
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
    fn a_section_that_was_added_below_the_one_that_is_there_is_an_error_that_says_what_to_do() {
        let error = load("[server]\nlisten = \"127.0.0.1:1\"\n[server]\n", &[], &[]).unwrap_err().to_string();
        assert!(error.contains("line 3") && error.contains("add to the one that is there"), "{error}");
    }
}
