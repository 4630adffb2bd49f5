//! Forms with files: their fields, and the files in a folder of this form alone, which is removed with it.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use axum::body::Body;
use axum::extract::multipart::{Field, MultipartError};
use axum::extract::{DefaultBodyLimit, FromRequest, FromRequestParts, Multipart, Request};
use axum::http::request::Parts;
use axum::http::{StatusCode, header};
use deskgate_protocol::file::{MAX_FILE_BYTES, MAX_RUN_FILE_BYTES, MAX_RUN_FILES, check_file_name};
use tempfile::TempDir;

use super::auth::{MAX_FORM_BYTES, NO_FORM, NO_TOKEN};
use super::fields::FormFields;

/// The folder of all forms' files, in the agent's own folder.
const UPLOADS_NAME: &str = "uploads";

/// A file of a form.
#[derive(Clone, Debug)]
pub(super) struct FormFile {
    /// Its name, as the browser says.
    pub(super) name: String,
    /// Where it lies for now.
    pub(super) path: PathBuf,
}

/// The files of a form, as the guard has read them. They are removed when the last copy is dropped.
#[derive(Clone, Debug, Default)]
pub(super) struct FormFiles {
    /// The files.
    pub(super) files: Vec<FormFile>,
    /// Why they cannot be used, as a sentence.
    pub(super) problem: Option<String>,
    folder: Option<Arc<TempDir>>,
    bytes: u64,
}

impl<S: Sync> FromRequestParts<S> for FormFiles {
    type Rejection = StatusCode;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, StatusCode> {
        Ok(parts.extensions.get().cloned().unwrap_or_default())
    }
}

/// Whether a request may be a form with files: those of a test run, and no other.
pub(super) fn takes_files(request: &Request) -> bool {
    let kind = request.headers().get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let path = request.uri().path();
    path.starts_with("/services/") && path.ends_with("/try") && kind.starts_with("multipart/form-data")
}

/// Reads a form with files. Nothing of them is kept before the form has shown its token, which stands first.
///
/// # Errors
/// Why it is no form of these pages, as a sentence.
pub(super) async fn read(
    mut request: Request<Body>,
    own_folder: &Path,
    is_token: impl Fn(&str) -> bool,
) -> Result<(FormFields, FormFiles), String> {
    // The limits are those below.
    DefaultBodyLimit::disable().apply(&mut request);
    let mut form = Multipart::from_request(request, &()).await.map_err(|_| NO_FORM.to_owned())?;
    let (mut fields, mut files, mut text_bytes) = (FormFields::default(), FormFiles::default(), 0);
    while let Some(field) = form.next_field().await.map_err(broken)? {
        let Some(name) = field.name().map(str::to_owned) else { continue };
        if field.file_name().is_none() {
            let text = text(field, MAX_FORM_BYTES - text_bytes).await?;
            text_bytes += text.len();
            fields.0.push((name, text));
        } else if is_token(fields.get("token")) {
            files.add(field, own_folder).await?;
        } else {
            return Err(NO_TOKEN.to_owned());
        }
    }
    Ok((fields, files))
}

impl FormFiles {
    /// Keeps a file. What cannot be kept is read all the same: a browser reads no answer before it has sent everything.
    async fn add(&mut self, mut field: Field<'_>, own_folder: &Path) -> Result<(), String> {
        let name = field.file_name().unwrap_or_default().to_owned();
        // No file was chosen.
        let mut target = match name.is_empty() || self.problem.is_some() {
            true => None,
            false => self.begin(&name, own_folder).map_err(|why| self.problem = Some(why)).ok(),
        };
        let mut size = 0;
        while let Some(piece) = field.chunk().await.map_err(broken)? {
            size += piece.len() as u64;
            self.bytes += piece.len() as u64;
            if size > MAX_FILE_BYTES {
                self.refuse(format!("{name:?} is too large: a file has at most {MAX_FILE_BYTES} bytes."));
            } else if self.bytes > MAX_RUN_FILE_BYTES {
                self.refuse(format!("The files of a run have at most {MAX_RUN_FILE_BYTES} bytes together."));
            }
            let Some(mut file) = target.take().filter(|_| self.problem.is_none()) else { continue };
            let writing = tokio::task::spawn_blocking(move || {
                file.write_all(&piece)?;
                Ok::<File, io::Error>(file)
            });
            match writing.await.map_err(io::Error::other).and_then(|written| written) {
                Ok(file) => target = Some(file),
                Err(error) => self.refuse(unkept(error)),
            }
        }
        Ok(())
    }

    fn refuse(&mut self, why: String) {
        self.problem.get_or_insert(why);
    }

    fn begin(&mut self, name: &str, own_folder: &Path) -> Result<File, String> {
        check_file_name(name).map_err(|why| format!("{name:?} cannot be given: {why}."))?;
        if self.files.len() == MAX_RUN_FILES {
            return Err(format!("A run is given at most {MAX_RUN_FILES} files."));
        }
        let folder = match &self.folder {
            Some(folder) => folder,
            None => self.folder.insert(Arc::new(new_folder(own_folder).map_err(unkept)?)),
        };
        // Two files may have the same name.
        let path = folder.path().join(self.files.len().to_string());
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path).map_err(unkept)?;
        self.files.push(FormFile { name: name.to_owned(), path });
        Ok(file)
    }
}

fn unkept(error: io::Error) -> String {
    format!("The files cannot be kept on this computer: {error}.")
}

fn broken(error: MultipartError) -> String {
    format!("The form broke off: {error}.")
}

async fn text(mut field: Field<'_>, room: usize) -> Result<String, String> {
    let mut bytes = Vec::new();
    while let Some(piece) = field.chunk().await.map_err(broken)? {
        if bytes.len() + piece.len() > room {
            return Err("The form is too large.".to_owned());
        }
        bytes.extend_from_slice(&piece);
    }
    String::from_utf8(bytes).map_err(|_| NO_FORM.to_owned())
}

fn new_folder(own_folder: &Path) -> io::Result<TempDir> {
    let all = own_folder.join(UPLOADS_NAME);
    DirBuilder::new().recursive(true).mode(0o700).create(&all)?;
    tempfile::Builder::new().prefix("form-").tempdir_in(all)
}

/// Removes what the forms of killed agents have left.
pub(super) fn tidy(own_folder: &Path) {
    match std::fs::remove_dir_all(own_folder.join(UPLOADS_NAME)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            tracing::warn!(%error, "what forms have left cannot be removed");
        }
        _ => {}
    }
}
