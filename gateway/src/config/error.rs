//! The origin of a setting's value, and errors of a configuration.

use std::path::PathBuf;

/// The origin of a value.
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
        /// The file.
        path: PathBuf,
        /// The reason, for people.
        problem: String,
    },
    /// The setting does not exist.
    #[error("{origin}: there is no setting {key:?}{}", suggestion.as_ref().map(|s| format!("; did you mean {s:?}?")).unwrap_or_default())]
    Unknown {
        /// The origin of the key.
        origin: String,
        /// The key.
        key: String,
        /// The nearest real one.
        suggestion: Option<String>,
    },
    /// A value is not usable.
    #[error("{key} = {value:?} ({origin}): {problem}")]
    Value {
        /// The setting.
        key: &'static str,
        /// Its value.
        value: String,
        /// The origin of the value.
        origin: String,
        /// The reason, for people.
        problem: String,
    },
    /// A password in the file.
    #[error(
        "database.url holds a password. Put the URL into a file with mode 0600 and name that file in database.url_file"
    )]
    PasswordInFile,
}
