//! A database connection on which a test records the executed statements.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::task::JoinSet;

use super::cluster::TestDatabase;

/// The statements executed since the last look.
pub(crate) struct StatementTap {
    heard: StatementLog,
    dir: TempDir,
    url: String,
    _tapping: JoinSet<()>,
}

type StatementLog = Arc<Mutex<Vec<String>>>;

impl StatementTap {
    pub(crate) fn on(database: &TestDatabase) -> Self {
        let (dir, heard) = (tempfile::tempdir().expect("a temporary directory"), StatementLog::default());
        let real = database.socket();
        let socket = dir.path().join(real.file_name().expect("a socket has a name"));
        let listener = tokio::net::UnixListener::bind(socket).expect("a socket");
        let mut tapping = JoinSet::new();
        let told = heard.clone();
        tapping.spawn(async move {
            let mut lines = JoinSet::new();
            while let Ok((gateway, _)) = listener.accept().await {
                lines.spawn(line(gateway, real.clone(), told.clone()));
            }
        });
        Self { heard, dir, url: database.url(), _tapping: tapping }
    }

    /// The address of the database, through this connection.
    pub(crate) fn url(&self) -> String {
        let (_, rest) = self.url.split_once('@').expect("a user and a host");
        let (_, rest) = rest.split_once(':').expect("a port");
        let (user, _) = self.url.split_once('@').expect("a user and a host");
        let host = self.dir.path().to_str().expect("UTF-8").replace('/', "%2F");
        format!("{user}@{host}:{rest}")
    }

    /// The names of the statements that were executed, in their order, and forgets them.
    pub(crate) fn take(&self) -> Vec<String> {
        std::mem::take(&mut *self.heard.lock().expect("nobody panicked"))
    }
}

async fn line(gateway: UnixStream, database: PathBuf, heard: StatementLog) {
    let database = UnixStream::connect(database).await.expect("the database is there");
    let ((from_gateway, mut to_gateway), (mut from_database, to_database)) =
        (gateway.into_split(), database.into_split());
    tokio::select! {
        _ = copy(&mut from_database, &mut to_gateway) => {}
        _ = listen(from_gateway, to_database, heard) => {}
    }
}

/// 80877103, in the place of a version.
const SSL_REQUEST: [u8; 4] = 80_877_103_u32.to_be_bytes();

/// Passes messages on (PostgreSQL's protocol, section 55.7), and records the statements they execute.
async fn listen(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, heard: StatementLog) -> std::io::Result<()> {
    loop {
        let length = from.read_u32().await?;
        let mut greeting = vec![0; length as usize - 4];
        from.read_exact(&mut greeting).await?;
        to.write_u32(length).await?;
        to.write_all(&greeting).await?;
        // A client that may use TLS asks for it first, and greets then.
        if greeting != SSL_REQUEST {
            break;
        }
    }
    let mut prepared = HashMap::new();
    loop {
        let (kind, length) = (from.read_u8().await?, from.read_u32().await?);
        let mut body = vec![0; length as usize - 4];
        from.read_exact(&mut body).await?;
        let mut texts = body.split(|byte| *byte == 0).map(|text| String::from_utf8_lossy(text).into_owned());
        let mut text = || texts.next().unwrap_or_default();
        match kind {
            // Parse: a name, and the statement that it is to have.
            b'P' => drop(prepared.insert(text(), name(&text()))),
            // Bind: a portal, and the name of the statement.
            b'B' => {
                let (_portal, statement) = (text(), text());
                let name = prepared.get(&statement).cloned().unwrap_or_default();
                heard.lock().expect("nobody panicked").push(name);
            }
            // A statement without parameters.
            b'Q' => heard.lock().expect("nobody panicked").push(name(&text())),
            _ => {}
        }
        to.write_u8(kind).await?;
        to.write_u32(length).await?;
        to.write_all(&body).await?;
    }
}

/// The store's name of a statement, or its text.
fn name(sql: &str) -> String {
    let named = sql.split_once("-- ").map_or(sql, |(_, name)| name);
    named.split_whitespace().next().unwrap_or_default().to_owned()
}
