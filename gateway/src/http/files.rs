//! Files: uploading one, reading about it, deleting it.

use std::sync::Arc;

use axum::Json;
use axum::body::Body;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, RawQuery, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::Response;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use deskgate_protocol::FileId;
use deskgate_protocol::canonical::Sha256Digest;
use deskgate_protocol::file::{File, UNKNOWN_MEDIA_TYPE};
use deskgate_protocol::management::Scope;
use http_body_util::BodyExt;
use tokio::time::timeout;

use super::created::created_response;
use super::error::Error;
use super::openapi::examples;
use super::openapi::pages::FilePage;
use super::openapi::refusals::{COMMON_CODES, refusals};
use super::paging::{ListPage, PageRequest};
use super::problems::Code;
use super::query::QueryParameters;
use super::request_body::{ReceivedRequest, is_identity};
use super::runs::identifier;
use super::{Api, caller};
use crate::domain::access::AuthenticatedRequest;
use crate::domain::files::{MAX_UPLOAD_DURATION, Upload, UploadRequest};
use crate::domain::refusal::Refusal;

/// The bytes of a file or an artifact.
#[derive(utoipa::ToSchema)]
#[schema(value_type = String, format = Binary)]
pub(super) struct FileBytes(#[expect(dead_code)] Vec<u8>);

refusals!(
    UploadRefusals = COMMON_CODES,
    &[
        Code::IdempotencyKeyInvalid,
        Code::IdempotencyKeyReused,
        Code::BodyTimeout,
        Code::BodyIncomplete,
        Code::PayloadTooLarge,
        Code::UnsupportedMediaType,
        Code::InvalidInput,
        Code::InvalidName,
        Code::DigestMismatch,
        Code::TooManyUploads,
        Code::StorageFull,
        Code::StorageUnavailable,
        Code::Draining,
    ]
);

/// Uploads a file.
///
/// The body is the file itself, as `curl --data-binary @file` sends it, of at most 64 MiB. 201 means that it is stored durably. Give it to
/// a run as `input.files`; a file that no run has is deleted after a day. With `Content-Digest` (RFC 9530, `sha-256`) other bytes than
/// those are refused. With an `Idempotency-Key` a repetition answers with the same file. Needs the scope `files:write`.
#[utoipa::path(
    post,
    path = "/api/v1/files",
    operation_id = "upload_file",
    tag = "Files",
    params(
        ("name" = String, Query, min_length = 1, max_length = 120, description = "Its name: 1 to 120 bytes of UTF-8, without `/`, `\\` and characters that are not seen."),
        ("Content-Digest" = Option<String>, Header, pattern = "^sha-256=:[A-Za-z0-9+/]{42}[AEIMQUYcgkosw048]=:$", description = "The SHA-256 of the body, as `sha-256=:BASE64:`."),
        ("Idempotency-Key" = Option<String>, Header, min_length = 1, max_length = 255, pattern = "^[!#-~]{1,255}$", description = "Your own name for this upload."),
    ),
    request_body(content = FileBytes, content_type = "application/octet-stream", description = "The file's bytes. `Content-Type` says what it is; nobody looks into it."),
    responses(
        (
            status = 201,
            description = "The file is stored.",
            body = File,
            headers(
                ("Location" = String, description = "The path of the file."),
                ("Idempotency-Replayed" = String, description = "`true`: the file was uploaded before."),
            ),
            example = json!(examples::file()),
        ),
        UploadRefusals,
    ),
)]
pub(super) async fn upload(
    State(api): State<Arc<Api>>,
    authenticated: AuthenticatedRequest,
    RawQuery(query): RawQuery,
    ReceivedRequest { headers, body }: ReceivedRequest,
) -> Result<Response, Error> {
    api.admits()?;
    let caller = authenticated.authorise_work(&[Scope::FilesWrite])?;
    let query = QueryParameters::read(query.as_deref(), &["name"])?;
    let name =
        query.text("name").ok_or_else(|| Error::invalid_parameter("name", "name is missing: the file's name."))?;
    let request = UploadRequest {
        name: name.to_owned(),
        media_type: media_type(&headers)?,
        size: announced_size(&headers),
        sha256: content_digest(&headers)?,
        idempotency_key: caller::optional_idempotency_key(&headers)?,
    };
    let mut upload = api.files.begin(&caller, request).await?;
    timeout(MAX_UPLOAD_DURATION, receive(&api, body, &mut upload))
        .await
        .unwrap_or_else(|_| Err(Error::body_timeout(MAX_UPLOAD_DURATION.as_secs())))?;
    let uploaded = upload.finish(&caller).await?;
    let location = format!("/api/v1/files/{}", uploaded.file.file_id);
    Ok(created_response(StatusCode::CREATED, &location, &uploaded.file, uploaded.replayed))
}

/// Takes the body as it comes; each part must come within the time for a body.
async fn receive(api: &Api, mut body: Body, upload: &mut Upload) -> Result<(), Error> {
    loop {
        let frame = match timeout(api.listener.body, body.frame()).await {
            Err(_) => return Err(Error::body_timeout(api.listener.body.as_secs())),
            Ok(None) => return Ok(()),
            Ok(Some(Err(_))) => return Err(Error::body_incomplete()),
            Ok(Some(Ok(frame))) => frame,
        };
        if let Ok(bytes) = frame.into_data() {
            upload.write(bytes).await?;
        }
    }
}

/// What the file is, as its caller says.
fn media_type(headers: &HeaderMap) -> Result<String, Error> {
    if headers.get_all(header::CONTENT_ENCODING).iter().any(|coding| !is_identity(coding)) {
        return Err(Error::unsupported_content_encoding());
    }
    let mut types = headers.get_all(header::CONTENT_TYPE).iter();
    match (types.next(), types.next()) {
        (None, _) => Ok(UNKNOWN_MEDIA_TYPE.to_owned()),
        (Some(form), None) if form.as_bytes().to_ascii_lowercase().starts_with(b"multipart/form-data") => {
            Err(Error::form_for_file())
        }
        (Some(only), None) => Ok(only.to_str().unwrap_or_default().trim().to_owned()),
        (Some(_), Some(_)) => Err(Error::invalid_header("Content-Type", "Content-Type was sent more than once.")),
    }
}

fn announced_size(headers: &HeaderMap) -> Option<u64> {
    headers.get(header::CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

/// The SHA-256 of a Content-Digest (RFC 9530, section 2): a dictionary of byte sequences. Other digests are passed over.
fn content_digest(headers: &HeaderMap) -> Result<Option<Sha256Digest>, Error> {
    let wrong = || Error::invalid_header("Content-Digest", "Content-Digest is written sha-256=:BASE64: with 32 bytes.");
    let mut found = None;
    for sent in headers.get_all("content-digest") {
        for entry in sent.to_str().map_err(|_| wrong())?.split(',') {
            let (algorithm, value) = entry.trim().split_once('=').ok_or_else(wrong)?;
            if algorithm == "sha-256" {
                let value = value.split(';').next().unwrap_or_default().trim();
                let value = value.strip_prefix(':').and_then(|rest| rest.strip_suffix(':')).ok_or_else(wrong)?;
                let bytes = STANDARD.decode(value).map_err(|_| wrong())?;
                found = Some(Sha256Digest(bytes.try_into().map_err(|_| wrong())?));
            }
        }
    }
    Ok(found)
}

/// A Content-Digest of this SHA-256.
pub(super) fn content_digest_of(sha256: &Sha256Digest) -> HeaderValue {
    let text = format!("sha-256=:{}:", STANDARD.encode(sha256.0));
    HeaderValue::from_str(&text).expect("base64 makes a header value")
}

refusals!(ReadRefusals = COMMON_CODES, &[Code::NotFound]);

/// Reads about a file.
///
/// Its bytes are not given back: they are for runs. Needs the scope `files:write`.
#[utoipa::path(
    get,
    path = "/api/v1/files/{file_id}",
    operation_id = "read_file",
    tag = "Files",
    params(("file_id" = FileId, Path, description = "The file, as its upload was answered with.")),
    responses((status = 200, description = "The file.", body = File, example = json!(examples::file())), ReadRefusals),
)]
pub(super) async fn read(
    State(api): State<Arc<Api>>,
    authenticated: AuthenticatedRequest,
    file_id: Result<Path<String>, PathRejection>,
) -> Result<Json<File>, Error> {
    let caller = authenticated.authorise(Scope::FilesWrite)?;
    Ok(Json(api.files.read(&caller, identifier(file_id)?).await?))
}

refusals!(ListRefusals = COMMON_CODES, &[Code::InvalidInput, Code::InvalidCursor]);

/// Lists files, newest first.
///
/// These are the files of this application and subject that are there. Needs the scope `files:write`.
#[utoipa::path(
    get,
    path = "/api/v1/files",
    operation_id = "list_files",
    tag = "Files",
    params(
        ("limit" = Option<u32>, Query, minimum = 1, maximum = 100, description = "Entries in a page; 20 if absent."),
        ("cursor" = Option<String>, Query, description = "The `next_cursor` of the page before."),
    ),
    responses((status = 200, description = "A page.", body = FilePage, example = json!(examples::files())), ListRefusals),
)]
pub(super) async fn list(
    State(api): State<Arc<Api>>,
    authenticated: AuthenticatedRequest,
    RawQuery(query): RawQuery,
) -> Result<Json<ListPage<File>>, Error> {
    let caller = authenticated.authorise(Scope::FilesWrite)?;
    let query = QueryParameters::read(query.as_deref(), &["limit", "cursor"])?;
    let paging = PageRequest::read("files", &caller, &query)?;
    Ok(paging.page(api.files.list(&caller, paging.before, paging.limit).await?))
}

refusals!(DeleteRefusals = COMMON_CODES, &[Code::NotFound, Code::FileInUse]);

/// Deletes a file.
///
/// One that a run has is deleted with the last run that has it, not before. Needs the scope `files:write`.
#[utoipa::path(
    delete,
    path = "/api/v1/files/{file_id}",
    operation_id = "delete_file",
    tag = "Files",
    params(("file_id" = FileId, Path, description = "The file.")),
    responses((status = 204, description = "The file is gone."), DeleteRefusals),
)]
pub(super) async fn delete(
    State(api): State<Arc<Api>>,
    authenticated: AuthenticatedRequest,
    file_id: Result<Path<String>, PathRejection>,
) -> Result<StatusCode, Error> {
    let caller = authenticated.authorise(Scope::FilesWrite)?;
    let file_id = identifier::<FileId>(file_id).map_err(|_: Refusal| Refusal::NotFound)?;
    api.files.delete(&caller, file_id).await?;
    Ok(StatusCode::NO_CONTENT)
}
