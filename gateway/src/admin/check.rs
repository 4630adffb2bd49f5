//! Configuration and surroundings, looked at before anything runs.

use std::path::Path;

use serde::Serialize;

use crate::config::Config;
use crate::descriptors::Descriptors;
use crate::store::Database;
use crate::store::migrate::{self, Standing};
use crate::{tls, token};

/// How a look at one thing ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Verdict {
    /// Good.
    Pass,
    /// Not good; the finding says what to do.
    Fail,
    /// Not looked at, and why.
    Skip,
}

/// One look.
#[derive(Clone, Debug, Serialize)]
pub struct Finding {
    /// At what.
    pub name: &'static str,
    /// How it ended.
    pub verdict: Verdict,
    /// What was found, and what to do next.
    pub detail: String,
}

impl Finding {
    fn new(name: &'static str, verdict: Verdict, detail: impl Into<String>) -> Self {
        Self { name, verdict, detail: detail.into() }
    }

    fn of<T>(name: &'static str, result: Result<T, impl std::fmt::Display>, good: impl FnOnce(T) -> String) -> Self {
        match result {
            Ok(value) => Self::new(name, Verdict::Pass, good(value)),
            Err(error) => Self::new(name, Verdict::Fail, error.to_string()),
        }
    }
}

/// Looks at everything; `descriptors` are those of a gateway that was started here.
pub async fn run(config: &Config, descriptors: Descriptors) -> Vec<Finding> {
    vec![
        Finding::of("configuration", config.check(), |()| "every setting can be used".to_owned()),
        Finding::of("state directory", writable(&config.state_dir()), |()| config.state_dir().display().to_string()),
        Finding::of("run directory", writable(&config.run_dir()), |()| config.run_dir().display().to_string()),
        control_token(config),
        certificate(config),
        open_files(descriptors),
        database(config).await,
    ]
}

fn writable(path: &Path) -> Result<(), String> {
    let probe = path.join(format!(".check.{}", std::process::id()));
    std::fs::write(&probe, b"")
        .and_then(|()| std::fs::remove_file(&probe))
        .map_err(|error| format!("{}: {error}. The gateway must be able to write there", path.display()))
}

fn open_files(descriptors: Descriptors) -> Finding {
    Finding::of("descriptors", descriptors.are_enough(), |Descriptors { allowed, needed }| {
        let allowed = allowed.map_or("any number".to_owned(), |allowed| allowed.to_string());
        format!("{allowed} allowed, {needed} needed at most")
    })
}

fn control_token(config: &Config) -> Finding {
    let name = "control token";
    let own = config.state_dir().join(token::FILE);
    match config.control_token_file() {
        Some(path) => Finding::of(name, token::load(&path), |_| path.display().to_string()),
        None if own.exists() => Finding::of(name, token::load(&own), |_| own.display().to_string()),
        None => Finding::new(name, Verdict::Skip, format!("{} is made at the first start", own.display())),
    }
}

fn certificate(config: &Config) -> Finding {
    let name = "TLS";
    match config.tls_files() {
        Ok(Some(files)) => Finding::of(name, tls::read(&files), |_| files.certificate.display().to_string()),
        Ok(None) => authority(config),
        Err(error) => Finding::new(name, Verdict::Fail, error.to_string()),
    }
}

/// Whether it issues anything shows in the running gateway: `status`, or `ready`.
fn authority(config: &Config) -> Finding {
    let name = "TLS";
    match config.acme() {
        Ok(Some(acme)) => {
            let readable = acme.ca_file.as_ref().map_or(Ok(()), |path| tls::root(path).map(drop));
            let detail = format!("{} issues for {}", acme.directory_url, acme.domains.join(", "));
            Finding::of(name, readable, |()| detail)
        }
        Ok(None) => Finding::new(name, Verdict::Skip, "no certificate is configured: plain HTTP"),
        Err(error) => Finding::new(name, Verdict::Fail, error.to_string()),
    }
}

async fn database(config: &Config) -> Finding {
    let name = "database";
    let url = match config.database_url() {
        Ok(Some(url)) => url,
        Ok(None) => return Finding::new(name, Verdict::Skip, "a private cluster is started with the gateway"),
        Err(error) => return Finding::new(name, Verdict::Fail, error.to_string()),
    };
    let look = async || -> Result<Standing, String> {
        let database = Database::new(&url, None, config.ca_file().as_ref()).map_err(|error| error.to_string())?;
        let (client, _driver) = database.connect().await.map_err(|error| error.to_string())?;
        crate::store::check_server(&client).await.map_err(|error| error.to_string())?;
        migrate::standing(&client).await.map_err(|error| error.to_string())
    };
    match look().await {
        Ok(Standing::Current) => Finding::new(name, Verdict::Pass, "reached, and its schema is current"),
        Ok(Standing::Behind { applied }) => {
            let detail = format!("migration {applied} of {}: run `deskgate-gateway migrate run`", migrate::newest());
            Finding::new(name, Verdict::Fail, detail)
        }
        Ok(Standing::Ahead { applied }) => {
            let detail = format!("migration {applied}, this program knows {}: upgrade it", migrate::newest());
            Finding::new(name, Verdict::Fail, detail)
        }
        Err(error) => Finding::new(name, Verdict::Fail, error),
    }
}
