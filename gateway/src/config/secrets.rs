//! The settings that can hold a secret: the database's URL, and the control token's file.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use super::{Config, ConfigError, Origin};

impl Config {
    /// The URL of the database, from any of its allowed sources. `None`: a private cluster.
    ///
    /// # Errors
    /// [`ConfigError::File`]: the file that holds the URL cannot be read.
    pub fn database_url(&self) -> Result<Option<String>, ConfigError> {
        let (url, origin) = self.entry("database.url");
        let file = self.path("database.url_file").or_else(|| self.credential("database_url"));
        match file {
            // A database that is named for this one call takes precedence.
            _ if !url.is_empty() && matches!(origin, Origin::Flag | Origin::Environment(_)) => Ok(Some(url.clone())),
            Some(file) => read_secret(&file).map(Some),
            None => Ok(Some(url.clone()).filter(|url| !url.is_empty())),
        }
    }

    /// The URL for LISTEN, if it is another one.
    ///
    /// # Errors
    /// [`ConfigError::File`]: the file that holds the URL cannot be read.
    pub fn listen_url(&self) -> Result<Option<String>, ConfigError> {
        self.path("database.listen_url_file").map(|file| read_secret(&file)).transpose()
    }

    /// Certificates to trust for the database.
    pub fn ca_file(&self) -> Option<PathBuf> {
        self.path("database.ca_file")
    }

    /// The file with the control token, if it is not the gateway's own.
    pub fn control_token_file(&self) -> Option<PathBuf> {
        self.path("control.token_file").or_else(|| self.credential("control_token"))
    }
}

/// Whether a database's URL holds a password, in any part in which a client would find one: before the first `@`, in a
/// parameter, however it is written, or behind a keyword, with blanks before its `=`.
pub(super) fn has_password(url: &str) -> bool {
    let before = url.split_once("://").and_then(|(_, rest)| rest.split_once('@'));
    let mut parameters = url.split('?').skip(1).flat_map(|query| url::form_urlencoded::parse(query.as_bytes()));
    let mut keywords = url.match_indices(PASSWORD_PARAMETER).map(|(place, word)| &url[place + word.len()..]);
    before.is_some_and(|(user, _)| user.contains(':'))
        || parameters.any(|(name, _)| name == PASSWORD_PARAMETER)
        || keywords.any(|rest| rest.trim_start().starts_with('='))
}

/// The name of a parameter or keyword with a password.
const PASSWORD_PARAMETER: &str = "password";

/// The setting that names a credential's file, and the credential that stands in for it.
const CREDENTIALS: [(&str, &str); 2] = [("database.url_file", "database_url"), ("control.token_file", "control_token")];

impl Config {
    /// The credential that is used because this setting is empty.
    pub(super) fn credential_for(&self, key: &str) -> Option<PathBuf> {
        let (key, name) = CREDENTIALS.into_iter().find(|(setting, _)| *setting == key)?;
        self.text(key).is_empty().then(|| self.credential(name)).flatten()
    }

    /// A file that systemd gave this service, or, for a command of an administrator, the one that it is made from: so
    /// both mean the same database. A unit gives an empty one where there is none.
    fn credential(&self, name: &str) -> Option<PathBuf> {
        let path = self.secrets.as_ref()?.join(name);
        match std::fs::read(&path) {
            Ok(bytes) => (!bytes.trim_ascii().is_empty()).then_some(path),
            Err(error) if error.kind() == ErrorKind::NotFound => None,
            // The reader then fails, instead of using another database.
            Err(_) => Some(path),
        }
    }
}

/// The text of a secret's file, without the line end.
///
/// # Errors
/// [`ConfigError::File`]: the file cannot be read, or is not UTF-8.
pub fn read_secret(path: &Path) -> Result<String, ConfigError> {
    let text = std::fs::read_to_string(path)
        .map_err(|error| ConfigError::File { path: path.to_owned(), problem: error.to_string() })?;
    Ok(text.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::super::tests::load;
    use super::*;

    #[test]
    fn a_password_in_the_file_is_refused_and_one_from_the_environment_is_masked() {
        let refused = load("[database]\nurl = \"postgres://me:hunter2@db/x\"", &[], &[]).unwrap_err();
        assert!(matches!(refused, ConfigError::PasswordInFile), "{refused}");
        let config = load("", &[("DATABASE_URL", "postgres://me:hunter2@db/x")], &[]).unwrap();
        assert!(!format!("{:?}", config.show()).contains("hunter2"));
        assert!(load("[database]\nurl = \"postgres://me@db/x\"", &[], &[]).is_ok());
        assert!(load("[database]\nurl = \"postgres://me@db/passwords\"", &[], &[]).is_ok());
        for url in [
            "postgres://me:hunt/er2@db/x",
            "postgres://me:hunt?er2@db/x",
            "postgres://me@db/x?pass%77ord=hunter2",
            "host=db user=me password = hunter2",
        ] {
            assert!(load(&format!("[database]\nurl = \"{url}\""), &[], &[]).is_err(), "{url}");
            assert!(load("", &[], &[&format!("database.url={url}")]).is_err(), "{url}");
            let config = load("", &[("DATABASE_URL", url)], &[]).unwrap();
            assert!(!format!("{:?}", config.show()).contains("er2"), "{url}");
        }
    }

    #[test]
    fn a_secret_beside_the_file_is_the_services_and_one_that_cannot_be_read_is_no_other_database() {
        let folder = tempfile::tempdir().unwrap();
        let (file, secret) = (folder.path().join("gateway.toml"), folder.path().join("secrets/database_url"));
        let config = |environment: &[(&str, &str)]| {
            let environment = environment.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
            Config::load(Some(&file), environment, &[]).unwrap()
        };
        std::fs::write(&file, "").unwrap();
        assert_eq!(config(&[]).database_url().unwrap(), None);
        std::fs::create_dir(folder.path().join("secrets")).unwrap();
        std::fs::write(&secret, "postgres://me:hunter2@db/x\n").unwrap();
        assert_eq!(config(&[]).database_url().unwrap().as_deref(), Some("postgres://me:hunter2@db/x"));
        assert!(!format!("{:?}", config(&[]).show()).contains("hunter2"));
        let given = tempfile::tempdir().unwrap();
        let given = [("CREDENTIALS_DIRECTORY", given.path().to_str().unwrap())];
        assert_eq!(config(&given).database_url().unwrap(), None, "the service has what it is given, and nothing else");
        std::fs::write(&secret, "\n").unwrap();
        assert_eq!(config(&[]).database_url().unwrap(), None);
        std::fs::remove_file(&secret).unwrap();
        std::fs::create_dir(&secret).unwrap();
        assert!(config(&[]).database_url().is_err());
    }
}
