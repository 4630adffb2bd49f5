//! Connections to the database: dialled in the modes of `sslmode`, with this program's session settings, and not through
//! a pooler that shares sessions.

use futures_util::future::BoxFuture;
use tokio::task::JoinHandle;
use tokio_postgres::config::{Host, SslMode};
use tokio_postgres::tls::MakeTlsConnect;
use tokio_postgres::{Client, Config, Connection, Error, SimpleQueryMessage, Socket};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::DatabaseOpenError;

/// A connection, before it is driven.
pub(super) type Driver = Connection<Socket, <MakeRustlsConnect as MakeTlsConnect<Socket>>::Stream>;

/// The modes in which a server is dialled, one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct DialModes {
    pub(super) first: SslMode,
    pub(super) second: Option<SslMode>,
}

/// Dials in these modes.
#[derive(Clone)]
pub(super) struct Dialler {
    pub(super) tls: MakeRustlsConnect,
    pub(super) modes: DialModes,
}

impl Dialler {
    /// Opens a connection.
    pub(super) async fn dial(&self, config: &Config) -> Result<(Client, Driver), Error> {
        // Boxed: the set-up of a connection is large, and over soon.
        let dial = |mode| {
            let (mut config, tls) = (config.clone(), self.tls.clone());
            Box::pin(async move { config.ssl_mode(mode).connect(tls).await })
        };
        let DialModes { first, second } = self.modes;
        match (dial(first).await, second) {
            (Ok(connected), _) => Ok(connected),
            (Err(error), None) => Err(error),
            (Err(error), Some(second)) => dial(second).await.map_err(|again| {
                // The attempt with TLS is the one that the server should have taken.
                if second == SslMode::Disable { error } else { again }
            }),
        }
    }
}

/// Whether only sockets of this computer are dialled.
pub(super) fn is_local(config: &Config) -> bool {
    let unix = |host: &Host| matches!(host, Host::Unix(_));
    config.get_hostaddrs().is_empty() && config.get_hosts().iter().all(unix)
}

/// Opens the connections of a pool, each with these settings.
///
/// They are set by a statement: a pooler refuses a connection that brings them along.
pub(super) struct SessionConnector {
    pub(super) dialler: Dialler,
    pub(super) settings: &'static str,
}

impl deadpool_postgres::Connect for SessionConnector {
    fn connect(&self, config: &Config) -> BoxFuture<'_, Result<(Client, JoinHandle<()>), Error>> {
        let config = config.clone();
        Box::pin(async move {
            let (client, connection) = self.dialler.dial(&config).await?;
            let driver = tokio::spawn(async move {
                if let Err(error) = connection.await {
                    tracing::debug!(%error, "a connection to the database ended");
                }
            });
            match client.batch_execute(self.settings).await {
                Ok(()) => Ok((client, driver)),
                Err(error) => {
                    driver.abort();
                    Err(error)
                }
            }
        })
    }
}

/// Refuses a pooler that gives each transaction another session of the server.
///
/// Prepared statements, settings and LISTEN belong to a session, so statements would fail now and then. While `other`
/// has a transaction open, `one` is asked several times in which process of the server it is: its own session stays the
/// same, a shared one moves. Only simple statements are sent, which every pooler passes on.
pub(super) async fn refuse_shared_sessions(one: &Client, other: &Client) -> Result<(), DatabaseOpenError> {
    let mut seen = vec![server_process(one).await?];
    if other.batch_execute("BEGIN").await.is_err() {
        return Err(DatabaseOpenError::SharedSessions);
    }
    let held = server_process(other).await?;
    seen.extend([server_process(one).await?, server_process(one).await?]);
    other.batch_execute("ROLLBACK").await?;
    seen.extend([server_process(one).await?, server_process(one).await?]);
    let first = &seen[0];
    if held == *first || seen.iter().any(|process| process != first) {
        return Err(DatabaseOpenError::SharedSessions);
    }
    Ok(())
}

async fn server_process(client: &Client) -> Result<String, Error> {
    let answer = client.simple_query("SELECT pg_backend_pid()").await?;
    let process = answer.iter().find_map(|message| match message {
        SimpleQueryMessage::Row(row) => row.get(0).map(str::to_owned),
        _ => None,
    });
    Ok(process.unwrap_or_default())
}
