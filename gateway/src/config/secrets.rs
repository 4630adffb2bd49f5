//! The settings that can hold a secret: the database's URL, and the control token's file.

use std::path::{Path, PathBuf};

use super::{Config, ConfigError, Origin};

impl Config {
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
}

/// Whether a database's URL holds a password, in any place where one can stand.
pub(super) fn has_password(url: &str) -> bool {
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
    use super::super::tests::load;
    use super::*;

    #[test]
    fn a_password_in_the_file_is_refused_and_one_from_the_environment_is_masked() {
        let refused = load("[database]\nurl = \"postgres://me:hunter2@db/x\"", &[], &[]).unwrap_err();
        assert!(matches!(refused, ConfigError::PasswordInFile), "{refused}");
        let config = load("", &[("DATABASE_URL", "postgres://me:hunter2@db/x")], &[]).unwrap();
        assert!(!format!("{:?}", config.show()).contains("hunter2"));
        assert!(load("[database]\nurl = \"postgres://me@db/x\"", &[], &[]).is_ok());
    }
}
