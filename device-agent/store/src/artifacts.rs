//! Artifacts: what runs handed out, and what of it is still to be sent.
//!
//! An artifact is written down before the assistant hears that it was handed out, and its run's end is not sent before it is settled:
//! so a restart in between loses none.

use deskgate_protocol::canonical::Sha256Digest;
use deskgate_protocol::file::{Artifact, ArtifactState, MAX_RUN_ARTIFACT_BYTES, MAX_RUN_ARTIFACTS, unique_name};
use deskgate_protocol::ids::{ArtifactId, RunId};
use rusqlite::{Row, Transaction, params};

use super::{Error, Store};

/// An artifact on this device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HandedOut {
    /// The run.
    pub run_id: RunId,
    /// The attempt that handed it out.
    pub attempt: u32,
    /// What the gateway is told of it. While it is not settled, its state is `Missing`.
    pub artifact: Artifact,
    /// Whether the gateway was told, and has its bytes or knows that they are missing.
    pub is_settled: bool,
}

/// Why a run cannot hand out one more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoMoreArtifacts {
    /// It has handed out as many as it may.
    Number,
    /// They would have more bytes than they may.
    Bytes,
}

/// The artifacts of all runs.
#[derive(Clone, Debug)]
pub struct Artifacts(Store);

const COLUMNS: &str = "artifact_id, run_id, attempt, name, media_type, description, size, sha256, state";

impl Artifacts {
    pub(super) fn new(store: Store) -> Self {
        Self(store)
    }

    /// Writes down what a run hands out, under a name that no other of its artifacts has. Returns that name.
    ///
    /// # Errors
    /// The database cannot be read or written.
    pub async fn add(
        &self,
        run_id: RunId,
        attempt: u32,
        artifact: Artifact,
    ) -> Result<Result<String, NoMoreArtifacts>, Error> {
        let sql = "INSERT INTO artifact (artifact_id, run_id, attempt, name, media_type, description, size, sha256, state, kept_from)
                   VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, 'pending', (SELECT now FROM transcript_clock))";
        self.0
            .durably(move |tx| {
                let others = of_run(tx, run_id)?;
                if others.len() >= MAX_RUN_ARTIFACTS {
                    return Ok(Err(NoMoreArtifacts::Number));
                }
                let bytes: u64 = others.iter().map(|other| other.artifact.size).sum();
                if bytes + artifact.size > MAX_RUN_ARTIFACT_BYTES {
                    return Ok(Err(NoMoreArtifacts::Bytes));
                }
                let taken =
                    |name: &str| others.iter().any(|other| other.artifact.name.to_lowercase() == name.to_lowercase());
                let name = unique_name(&artifact.name, taken).into_owned();
                tx.prepare_cached(sql)?.execute(params![
                    artifact.artifact_id.to_string(),
                    run_id.to_string(),
                    attempt,
                    name,
                    artifact.media_type,
                    artifact.description,
                    i64::try_from(artifact.size).unwrap_or(i64::MAX),
                    artifact.sha256.to_string(),
                ])?;
                Ok(Ok(name))
            })
            .await
    }

    /// Those that are still to be sent, oldest first.
    ///
    /// # Errors
    /// The database cannot be read, or an entry is damaged.
    pub async fn unsettled(&self) -> Result<Vec<HandedOut>, Error> {
        let sql = format!("SELECT {COLUMNS} FROM artifact WHERE state = 'pending' ORDER BY artifact_id");
        self.0
            .lazily(move |tx| {
                let mut statement = tx.prepare_cached(&sql)?;
                let mut rows = statement.query([])?;
                let mut found = Vec::new();
                while let Some(row) = rows.next()? {
                    found.push(handed_out(row)?);
                }
                Ok(found)
            })
            .await
    }

    /// Those of a run, oldest first.
    ///
    /// # Errors
    /// The database cannot be read, or an entry is damaged.
    pub async fn of_run(&self, run_id: RunId) -> Result<Vec<HandedOut>, Error> {
        self.0.lazily(move |tx| of_run(tx, run_id)).await
    }

    /// What became of an artifact. One that is settled stays as it is.
    ///
    /// # Errors
    /// The database cannot be written.
    pub async fn settle(&self, artifact_id: ArtifactId, state: ArtifactState) -> Result<(), Error> {
        let sql = "UPDATE artifact SET state = ?2 WHERE artifact_id = ?1 AND state = 'pending'";
        self.0
            .durably(move |tx| {
                tx.prepare_cached(sql)?.execute(params![artifact_id.to_string(), state.as_str()])?;
                Ok(())
            })
            .await
    }

    /// Counts what is left to send of a run that is not this device's any more as missing.
    ///
    /// # Errors
    /// The database cannot be written.
    pub async fn drop_unsettled(&self, run_id: RunId) -> Result<(), Error> {
        let sql = "UPDATE artifact SET state = 'missing' WHERE run_id = ?1 AND state = 'pending'";
        self.0
            .durably(move |tx| {
                tx.prepare_cached(sql)?.execute([run_id.to_string()])?;
                Ok(())
            })
            .await
    }
}

fn of_run(tx: &Transaction<'_>, run_id: RunId) -> Result<Vec<HandedOut>, Error> {
    let mut statement =
        tx.prepare_cached(&format!("SELECT {COLUMNS} FROM artifact WHERE run_id = ?1 ORDER BY artifact_id"))?;
    let mut rows = statement.query([run_id.to_string()])?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        found.push(handed_out(row)?);
    }
    Ok(found)
}

fn handed_out(row: &Row<'_>) -> Result<HandedOut, Error> {
    let text = |column| row.get::<_, String>(column);
    let damaged = |what: &'static str, value: String| Error::damaged("an artifact")(format!("{what} {value}"));
    let state = text("state")?;
    let artifact = Artifact {
        artifact_id: text("artifact_id")?.parse().map_err(|_| damaged("its number", String::new()))?,
        name: text("name")?,
        media_type: text("media_type")?,
        description: row.get("description")?,
        size: row.get::<_, i64>("size")?.unsigned_abs(),
        sha256: text("sha256")?.parse::<Sha256Digest>().map_err(|_| damaged("its digest", String::new()))?,
        state: if state == "stored" { ArtifactState::Stored } else { ArtifactState::Missing },
    };
    Ok(HandedOut {
        run_id: text("run_id")?.parse().map_err(|_| damaged("its run", String::new()))?,
        attempt: row.get("attempt")?,
        artifact,
        is_settled: state != "pending",
    })
}

/// Deletes what ended runs handed out, with their calls.
pub(super) fn delete_old(kept: &str, is_open: &str) -> String {
    format!(
        "DELETE FROM artifact AS o WHERE kept_from < (SELECT now FROM transcript_clock) - {kept} AND NOT {is_open}
             AND state <> 'pending'"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use deskgate_protocol::receipt::jws::ReceiptSigner;

    #[tokio::test]
    async fn what_a_run_hands_out_has_names_of_its_own_and_bounds() {
        let disk = tempfile::tempdir().expect("a folder");
        let store = Store::open(disk.path().join("deskgate.db")).await.expect("opens");
        let artifacts = store.signing_with(ReceiptSigner::from_seed([7; 32])).artifacts();
        let run_id = RunId::new();
        let artifact = |size| Artifact {
            artifact_id: ArtifactId::new(),
            name: "report.csv".to_owned(),
            media_type: "text/csv".to_owned(),
            description: None,
            size,
            sha256: Sha256Digest::of(b"x"),
            state: ArtifactState::Stored,
        };
        let add = async |size| artifacts.add(run_id, 1, artifact(size)).await.expect("written");
        assert_eq!(add(1).await, Ok("report.csv".to_owned()));
        assert_eq!(add(1).await, Ok("report (2).csv".to_owned()));
        assert_eq!(add(MAX_RUN_ARTIFACT_BYTES - 1).await, Err(NoMoreArtifacts::Bytes));
        for _ in 2..MAX_RUN_ARTIFACTS {
            add(0).await.expect("room");
        }
        assert_eq!(add(0).await, Err(NoMoreArtifacts::Number));
        let unsettled = artifacts.unsettled().await.expect("read");
        assert_eq!((unsettled.len(), unsettled[0].is_settled), (MAX_RUN_ARTIFACTS, false));
        artifacts.settle(unsettled[0].artifact.artifact_id, ArtifactState::Stored).await.expect("written");
        artifacts.drop_unsettled(run_id).await.expect("written");
        let states: Vec<_> =
            artifacts.of_run(run_id).await.expect("read").iter().map(|one| one.artifact.state).collect();
        assert_eq!((states[0], states[1]), (ArtifactState::Stored, ArtifactState::Missing));
        assert!(artifacts.unsettled().await.expect("read").is_empty());
    }
}
