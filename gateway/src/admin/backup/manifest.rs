//! What stands in a backup's folder: the dump, the manifest of what it contains and lacks, and the proof of both.
//!
//! The proof is an HMAC over manifest and dump, with a key that is derived from the sealing key. It is checked over all of
//! both before anything of them is parsed.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use deskgate_program::exit::{Exit, Failure};
use deskgate_protocol::VERSION;
use ring::digest::{Context, SHA256};
use ring::hmac;
use serde::{Deserialize, Serialize};

use super::{at, failed};
use crate::config::Config;
use crate::encryption::{BackupKey, EncryptionError};
use crate::storage::StoragePlace;
use crate::store::backup::{BackupContents, BackupError};
use crate::store::migrate::{self, MigrateError};

pub(super) const DUMP_FILE: &str = "database.dump";
const MANIFEST_FILE: &str = "backup.json";
const PROOF_FILE: &str = "backup.hmac";
/// What the proof's line begins with.
const PROOF_KIND: &str = "hmac-sha-256";
/// Hexadecimal digits of the code.
const CODE_CHARS: usize = 64;
/// More than a manifest of a hundred tables has.
const MAX_MANIFEST_BYTES: u64 = 1024 * 1024;
/// More than a proof has.
const MAX_PROOF_BYTES: u64 = 1024;

/// The manifest of a backup.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct BackupManifest {
    schema: String,
    /// The version of the program that created it.
    version: String,
    #[serde(flatten)]
    pub(super) contents: BackupContents,
    /// The dump's length and SHA-256.
    bytes: u64,
    sha256: String,
    /// What a working gateway needs besides, and where it was.
    pub(super) not_included: Vec<ExcludedItem>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct ExcludedItem {
    pub(super) what: String,
    pub(super) place: String,
}

/// Whether a backup is known to come from this installation, unaltered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum BackupOrigin {
    /// Its proof was made with this installation's key.
    Proven,
    /// Nobody knows; it was accepted all the same.
    Unproven,
}

/// Writes manifest and proof beside the dump.
pub(super) fn write(config: &Config, folder: &Path, contents: BackupContents) -> Result<BackupManifest, Failure> {
    let key = key(config)?;
    let dump = folder.join(DUMP_FILE);
    let file = File::open(&dump).map_err(at(&dump))?;
    file.sync_all().map_err(at(&dump))?;
    let (bytes, sha256) = digest(file).map_err(at(&dump))?;
    let (schema, version) = ("backup/1".to_owned(), VERSION.to_owned());
    let page = BackupManifest { schema, version, contents, bytes, sha256, not_included: besides(config) };
    let text = serde_json::to_string_pretty(&page).map_err(|error| Failure::new(Exit::Failed, error.to_string()))?;
    let text = format!("{text}\n");
    let proof = File::open(&dump).and_then(|file| code(&key, text.as_bytes(), file)).map_err(at(&dump))?;
    let proof = format!("{PROOF_KIND} {} {proof}\n", key.id());
    for (name, text) in [(MANIFEST_FILE, text), (PROOF_FILE, proof)] {
        let path = folder.join(name);
        let mut file = private(&path)?;
        file.write_all(text.as_bytes()).and_then(|()| file.sync_all()).map_err(at(&path))?;
    }
    Ok(page)
}

/// The key of backups, before anything is written.
pub(super) fn key(config: &Config) -> Result<BackupKey, Failure> {
    BackupKey::load(&config.seal_file()).map_err(|error| {
        let text =
            format!("{error}. A backup is authenticated with a key made from it; the gateway makes it when it starts");
        Failure::new(Exit::NotSetUp, text)
    })
}

/// Creates a file that only its owner can read.
pub(super) fn private(path: &Path) -> Result<File, Failure> {
    File::options().write(true).create_new(true).mode(0o600).open(path).map_err(at(path))
}

fn digest(file: impl Read) -> io::Result<(u64, String)> {
    let (mut context, mut bytes) = (Context::new(&SHA256), 0);
    each_piece(file, |piece| {
        context.update(piece);
        bytes += piece.len() as u64;
    })?;
    Ok((bytes, hex(context.finish().as_ref())))
}

/// The authentication code of a manifest and a dump.
fn code(key: &BackupKey, manifest: &[u8], dump: impl Read) -> io::Result<String> {
    let mut context: hmac::Context = key.begin();
    context.update(&(manifest.len() as u64).to_be_bytes());
    context.update(manifest);
    each_piece(dump, |piece| context.update(piece))?;
    Ok(hex(context.sign().as_ref()))
}

fn each_piece(mut file: impl Read, mut take: impl FnMut(&[u8])) -> io::Result<()> {
    let mut piece = vec![0; 64 * 1024];
    loop {
        match file.read(&mut piece)? {
            0 => return Ok(()),
            length => take(&piece[..length]),
        }
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// What a gateway needs besides its database.
fn besides(config: &Config) -> Vec<ExcludedItem> {
    let state = |name: &str| config.state_dir().join(name).display().to_string();
    let of = |what: &str, place: String| ExcludedItem { what: what.to_owned(), place };
    let token = config
        .control_token_file()
        .map_or_else(|| state(deskgate_program::token::CONTROL_TOKEN_FILE), |path| path.display().to_string());
    let objects = match config.storage() {
        Ok(StoragePlace::Folder(folder)) => folder.display().to_string(),
        Ok(StoragePlace::Bucket(url)) => url.to_string(),
        Err(_) => state("objects"),
    };
    vec![
        of("the bytes of files and artifacts: copy them after the backup", objects),
        of(
            "the sealing key, without which callbacks and webhooks need new secrets and nobody can tell whether this \
             backup is genuine",
            config.seal_file().display().to_string(),
        ),
        of("the control token, which desktops present", token),
        of("the SSH host key, which desktops have pinned", state("ssh_host_ed25519_key")),
        of("the configuration and its secrets, certificates", "where you keep them".to_owned()),
        of("what services are made of, and what they did", "on the desktops".to_owned()),
    ]
}

/// Checks the proof, then reads the manifest, and checks that the dump is the one it describes. `unproven`: a backup
/// whose origin nobody knows is accepted.
pub(super) fn read(config: &Config, folder: &Path, unproven: bool) -> Result<(BackupManifest, BackupOrigin), Failure> {
    let (page, dump) = (folder.join(MANIFEST_FILE), folder.join(DUMP_FILE));
    let mut text = Vec::new();
    File::open(&page).and_then(|file| file.take(MAX_MANIFEST_BYTES).read_to_end(&mut text)).map_err(at(&page))?;
    let origin = origin(config, folder, &text, unproven)?;
    let no_backup = |error| Failure::new(Exit::Failed, format!("{}: {error}; this is no backup", page.display()));
    let read: BackupManifest = serde_json::from_slice(&text).map_err(no_backup)?;
    let found = File::open(&dump).and_then(digest).map_err(at(&dump))?;
    if found != (read.bytes, read.sha256.clone()) {
        return Err(altered(&dump));
    }
    if read.contents.migration > migrate::newest() {
        return Err(failed(BackupError::Schema(MigrateError::Ahead {
            applied: read.contents.migration,
            known: migrate::newest(),
        })));
    }
    Ok((read, origin))
}

fn altered(file: &Path) -> Failure {
    Failure::new(Exit::Failed, format!("{} is not what was written; it was damaged or altered", file.display()))
}

/// Checks the proof over everything. One that this installation's key does not fit is a reason to ask for `unproven`;
/// one that it fits and that is wrong is refused in any case.
fn origin(config: &Config, folder: &Path, manifest: &[u8], unproven: bool) -> Result<BackupOrigin, Failure> {
    let path = folder.join(PROOF_FILE);
    let accepted = |why: String| match unproven {
        true => Ok(BackupOrigin::Unproven),
        false => Err(Failure::new(
            Exit::Refused,
            format!(
                "{why}\nNo changes were made. If there is no other way and you trust whoever had this folder: \
                 --unproven-origin takes its rows all the same, and nothing else of it"
            ),
        )),
    };
    let mut proof = String::new();
    match File::open(&path).and_then(|file| file.take(MAX_PROOF_BYTES).read_to_string(&mut proof)) {
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return accepted(format!(
                "{} is not there: this backup is older than proofs, or somebody took it away.",
                path.display()
            ));
        }
        Err(error) => return Err(at(&path)(error)),
    }
    let mut words = proof.split_whitespace();
    let (Some(PROOF_KIND), Some(id), Some(code), None) = (words.next(), words.next(), words.next(), words.next())
    else {
        return Err(altered(&path));
    };
    if code.len() != CODE_CHARS {
        return Err(altered(&path));
    }
    let seal = config.seal_file();
    let put_back = format!("If you kept the sealing key of that time, put it there first: {}", seal.display());
    let key = match BackupKey::load(&seal) {
        Ok(key) => key,
        Err(EncryptionError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
            return accepted(format!("There is no sealing key here to check this backup with. {put_back}"));
        }
        Err(error) => return Err(Failure::new(Exit::NotSetUp, error.to_string())),
    };
    if key.id() != id {
        return accepted(format!("This backup was made with another sealing key than the one here. {put_back}"));
    }
    let dump = folder.join(DUMP_FILE);
    let found = File::open(&dump).and_then(|file| self::code(&key, manifest, file)).map_err(at(&dump))?;
    match found == code {
        true => Ok(BackupOrigin::Proven),
        false => Err(altered_file(folder, manifest)),
    }
}

/// Names the file that is another one: the dump, if the manifest describes another dump; otherwise the manifest.
fn altered_file(folder: &Path, manifest: &[u8]) -> Failure {
    let dump = folder.join(DUMP_FILE);
    let described = serde_json::from_slice::<BackupManifest>(manifest).ok();
    let found = File::open(&dump).and_then(digest).ok();
    let is_described = described.zip(found).is_some_and(|(page, found)| found == (page.bytes, page.sha256));
    altered(&if is_described { folder.join(MANIFEST_FILE) } else { dump })
}
