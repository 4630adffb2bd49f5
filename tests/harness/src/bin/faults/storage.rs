//! The bytes of files and artifacts: whether the gateways' folder has exactly those that their tables know, and what is left of runs
//! on devices.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;

use deskgate_tests::Postgres;
use tokio::time::{Instant, sleep};

use crate::evidence::bare;
use crate::testbed::Testbed;

/// How long what is to be deleted may take: upkeep comes by every two seconds, and devices try again after fifteen at most.
const TIDY_TIMEOUT: Duration = Duration::from_secs(40);
const POLL_INTERVAL: Duration = Duration::from_millis(250);
/// Bytes of a chunk; the last one of an object has fewer.
const CHUNK_BYTES: u64 = 4 * 1024 * 1024;
/// The folders of a device with copies that are to be sent, and with files of runs.
const COPY_FOLDERS: [&str; 2] = ["outbox", "files"];

/// Objects with what knows them. An upload that a gateway died in is known for two hours, and what was let go of before it was whole
/// for five minutes.
const OBJECTS_QUERY: &str = "SELECT object_id AS id, size, stored_at IS NOT NULL AS stored, released_at IS NOT NULL AS released, \
    EXISTS (SELECT FROM files f WHERE f.file_id = o.object_id) AS is_file FROM objects o";
const ARTIFACTS_QUERY: &str =
    "SELECT a->>'artifact_id' AS id FROM runs, json_array_elements(artifacts) a WHERE a->>'state' = 'stored'";

/// One object of the table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct ObjectRow {
    size: u64,
    is_stored: bool,
    is_released: bool,
    is_file: bool,
}

/// The sizes of an object's chunks, by their numbers.
type Chunks = BTreeMap<u64, u64>;

/// What is wrong with the gateways' storage, in words, once everything that was let go of is deleted or its time is over.
pub(crate) async fn flaws(testbed: &Testbed) -> Vec<String> {
    let deadline = Instant::now() + TIDY_TIMEOUT;
    loop {
        let (chunks, (objects, artifacts)) = (chunks(testbed.storage()), rows(&testbed.postgres).await);
        let flaws = compare(&objects, &artifacts, &chunks);
        if flaws.is_empty() || Instant::now() > deadline {
            return flaws;
        }
        sleep(POLL_INTERVAL).await;
    }
}

async fn rows(postgres: &Postgres) -> (BTreeMap<String, ObjectRow>, BTreeSet<String>) {
    let id = |row: &serde_json::Value| bare(row["id"].as_str().unwrap_or_default());
    let is = |row: &serde_json::Value, name: &str| row[name] == true;
    let object = |row: &serde_json::Value| ObjectRow {
        size: row["size"].as_u64().unwrap_or_default(),
        is_stored: is(row, "stored"),
        is_released: is(row, "released"),
        is_file: is(row, "is_file"),
    };
    let objects = postgres.rows(OBJECTS_QUERY).await.iter().map(|row| (id(row), object(row))).collect();
    (objects, postgres.rows(ARTIFACTS_QUERY).await.iter().map(id).collect())
}

/// The chunks of each object in a folder.
fn chunks(folder: &Path) -> BTreeMap<String, Chunks> {
    let list = |folder: &Path| std::fs::read_dir(folder).into_iter().flatten().flatten().collect::<Vec<_>>();
    let name = |entry: &std::fs::DirEntry| entry.file_name().to_string_lossy().into_owned();
    // A name that is no number is a chunk that a gateway died in; it goes with its object.
    let chunk = |entry: &std::fs::DirEntry| Some((name(entry).parse().ok()?, entry.metadata().ok()?.len()));
    let object = |entry: &std::fs::DirEntry| (name(entry), list(&entry.path()).iter().filter_map(chunk).collect());
    list(folder).iter().map(object).collect()
}

fn compare(
    objects: &BTreeMap<String, ObjectRow>,
    artifacts: &BTreeSet<String>,
    chunks: &BTreeMap<String, Chunks>,
) -> Vec<String> {
    let unknown = chunks.keys().filter(|id| !objects.contains_key(*id));
    let mut flaws: Vec<_> = unknown.map(|id| format!("object {id} lies in storage, and no row knows it")).collect();
    let lost = artifacts.iter().filter(|id| !objects.contains_key(*id));
    flaws.extend(lost.map(|id| format!("artifact {id} is listed as stored, and has no object")));
    let nothing = Chunks::new();
    for (id, object) in objects {
        let ObjectRow { size, is_stored, is_released, is_file } = *object;
        let is_known = is_file || artifacts.contains(id);
        let found = chunks.get(id).unwrap_or(&nothing);
        let whole =
            (0..size.div_ceil(CHUNK_BYTES)).map(|number| (number, (size - number * CHUNK_BYTES).min(CHUNK_BYTES)));
        let flaw = match (is_stored, is_released) {
            (true, true) => "was let go of, and is still there".to_owned(),
            (true, false) if !is_known => "is stored, and neither a file nor an artifact knows it".to_owned(),
            (true, false) if *found != whole.collect::<Chunks>() => {
                format!("has {size} bytes, and in storage there are {found:?}")
            }
            (false, _) if is_known => "is known as a file or an artifact, and is not stored".to_owned(),
            _ => continue,
        };
        flaws.push(format!("object {id} {flaw}"));
    }
    flaws
}

/// What is left on the devices of what runs were given and handed out, in words, once no run is under way.
pub(crate) async fn copies(testbed: &Testbed) -> Vec<String> {
    let deadline = Instant::now() + TIDY_TIMEOUT;
    loop {
        let mut left = Vec::new();
        for desktop in &testbed.desktops {
            let home = desktop.device.read().await.home();
            for folder in COPY_FOLDERS {
                let entries = std::fs::read_dir(home.join(folder)).into_iter().flatten().flatten();
                let name = |entry: std::fs::DirEntry| entry.file_name().to_string_lossy().into_owned();
                left.extend(entries.map(|entry| format!("{} has {} in its {folder}", desktop.name(), name(entry))));
            }
        }
        if left.is_empty() || Instant::now() > deadline {
            return left;
        }
        sleep(POLL_INTERVAL).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(object: Option<ObjectRow>, is_artifact: bool, sizes: &[u64]) -> String {
        let id = || "a1".to_owned();
        let objects = object.map(|object| (id(), object)).into_iter().collect();
        let artifacts = is_artifact.then(id).into_iter().collect();
        let found: Chunks = sizes.iter().copied().enumerate().map(|(number, size)| (number as u64, size)).collect();
        let chunks = if sizes.is_empty() { BTreeMap::new() } else { BTreeMap::from([(id(), found)]) };
        compare(&objects, &artifacts, &chunks).join("\n")
    }

    #[test]
    fn bytes_that_nobody_knows_and_rows_without_their_bytes_are_found() {
        let file = ObjectRow { size: CHUNK_BYTES + 1, is_stored: true, is_file: true, ..ObjectRow::default() };
        let nobodys = ObjectRow { is_file: false, ..file.clone() };
        let empty = ObjectRow { size: 0, ..file.clone() };
        let under_way = ObjectRow { is_stored: false, is_file: false, ..file.clone() };
        for (object, is_artifact, sizes) in [
            (&file, false, &[CHUNK_BYTES, 1][..]),
            (&nobodys, true, &[CHUNK_BYTES, 1]),
            (&empty, false, &[]),
            (&under_way, false, &[CHUNK_BYTES]),
        ] {
            assert_eq!(told(Some(object.clone()), is_artifact, sizes), "");
        }
        for sizes in [&[CHUNK_BYTES][..], &[CHUNK_BYTES, 2], &[CHUNK_BYTES, 1, 0], &[]] {
            assert!(told(Some(file.clone()), false, sizes).contains("in storage there are"), "{sizes:?}");
        }
        assert!(told(None, false, &[1]).contains("no row knows it"));
        assert!(told(None, true, &[]).contains("has no object"));
        assert!(told(Some(nobodys), false, &[CHUNK_BYTES, 1]).contains("neither a file nor an artifact"));
        assert!(told(Some(ObjectRow { is_released: true, ..file }), false, &[]).contains("let go of"));
        assert!(told(Some(under_way), true, &[]).contains("is not stored"));
    }

    #[test]
    fn chunks_are_read_from_a_folder() {
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::create_dir(folder.path().join("a1")).expect("made");
        std::fs::write(folder.path().join("a1/0"), "xy").expect("written");
        std::fs::write(folder.path().join("a1/1#7"), "z").expect("written");
        assert_eq!(chunks(folder.path()), BTreeMap::from([("a1".to_owned(), BTreeMap::from([(0, 2)]))]));
    }
}
