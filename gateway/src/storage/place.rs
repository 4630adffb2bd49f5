//! Where bytes lie: a folder, or a bucket by its URL.

use std::path::{Path as FilePath, PathBuf};
use std::sync::Arc;
#[cfg(feature = "buckets")]
use std::time::Duration;

use object_store::ObjectStore;
use object_store::local::LocalFileSystem;
use object_store::path::Path;
use url::Url;

use super::ObjectStorage;

/// Where bytes lie.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoragePlace {
    /// A folder, which is made if it is not there.
    Folder(PathBuf),
    /// A bucket, and the prefix of its keys: `s3://bucket/prefix`, `gs://…`, `az://container/…`.
    Bucket(Url),
}

/// Why a place cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum InvalidPlace {
    /// The text names none.
    #[error(
        "it looks like s3://bucket/prefix, gs://bucket/prefix, az://container/prefix, or is the absolute path of a folder"
    )]
    Unknown,
    /// A secret stands in it.
    #[error("credentials do not belong into a URL: give them in the environment, as AWS_ACCESS_KEY_ID and the like")]
    HasCredentials,
    /// The program was built without buckets.
    #[error("this program was built without buckets; give the absolute path of a folder")]
    NoBuckets,
    /// The folder cannot be used.
    #[error("{path}: {source}")]
    Folder {
        /// The folder.
        path: PathBuf,
        /// The error of the operating system.
        source: std::io::Error,
    },
    /// What the environment says about the bucket cannot be used.
    #[error("{0}")]
    Bucket(String),
}

impl std::str::FromStr for StoragePlace {
    type Err = InvalidPlace;

    fn from_str(text: &str) -> Result<Self, InvalidPlace> {
        if FilePath::new(text).is_absolute() {
            return Ok(Self::Folder(text.into()));
        }
        let url = Url::parse(text).map_err(|_| InvalidPlace::Unknown)?;
        if !url.username().is_empty() || url.password().is_some() || url.query().is_some() || url.fragment().is_some() {
            return Err(InvalidPlace::HasCredentials);
        }
        match url.scheme() {
            "file" => url.to_file_path().map(Self::Folder).map_err(|()| InvalidPlace::Unknown),
            "s3" | "gs" | "az" if url.host_str().is_none_or(str::is_empty) => Err(InvalidPlace::Unknown),
            "s3" | "gs" | "az" if cfg!(feature = "buckets") => Ok(Self::Bucket(url)),
            "s3" | "gs" | "az" => Err(InvalidPlace::NoBuckets),
            _ => Err(InvalidPlace::Unknown),
        }
    }
}

/// How long a bucket that does not answer is asked again, before whoever waits is told.
#[cfg(feature = "buckets")]
const RETRY_TIMEOUT: Duration = Duration::from_secs(20);
/// The folder's name in the gateway's folder.
const FOLDER_NAME: &str = "objects";

impl StoragePlace {
    /// The folder of a gateway whose settings name no place.
    pub fn in_state_dir(state_dir: &FilePath) -> Self {
        Self::Folder(state_dir.join(FOLDER_NAME))
    }

    /// Opens it. Whether a bucket answers shows with its first use ([`ObjectStorage::probe`]).
    ///
    /// # Errors
    /// The folder cannot be made, or the environment's settings of the bucket cannot be used.
    pub fn open(&self) -> Result<ObjectStorage, InvalidPlace> {
        match self {
            Self::Folder(path) => {
                let failed = |source| InvalidPlace::Folder { path: path.clone(), source };
                make_private(path).map_err(failed)?;
                let folder = LocalFileSystem::new_with_prefix(path);
                let folder = folder.map_err(|error| failed(std::io::Error::other(error)))?.with_fsync(true);
                let place = path.display().to_string();
                Ok(ObjectStorage::new(Arc::new(folder), Path::default(), place, Some(path.clone())))
            }
            Self::Bucket(url) => {
                let root = Path::from_url_path(url.path()).map_err(|error| InvalidPlace::Bucket(error.to_string()))?;
                Ok(ObjectStorage::new(bucket(url)?, root, url.to_string(), None))
            }
        }
    }
}

/// Makes a folder that only its owner can read.
fn make_private(path: &FilePath) -> std::io::Result<()> {
    use std::os::unix::fs::DirBuilderExt;
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// Opens a bucket with the environment's settings: `AWS_…`, `GOOGLE_…`, `AZURE_…`.
#[cfg(feature = "buckets")]
fn bucket(url: &Url) -> Result<Arc<dyn ObjectStore>, InvalidPlace> {
    use object_store::RetryConfig;
    use object_store::aws::AmazonS3Builder;
    use object_store::azure::MicrosoftAzureBuilder;
    use object_store::gcp::GoogleCloudStorageBuilder;

    // Its HTTP client needs one. Fails if another part of the program has installed it, which is as good.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let name = url.host_str().unwrap_or_default();
    let retry = RetryConfig { retry_timeout: RETRY_TIMEOUT, ..RetryConfig::default() };
    let opened: Result<Arc<dyn ObjectStore>, _> = match url.scheme() {
        "s3" => {
            let s3 = AmazonS3Builder::from_env().with_bucket_name(name);
            s3.with_retry(retry).build().map(|store| Arc::new(store) as _)
        }
        "gs" => {
            let gcs = GoogleCloudStorageBuilder::from_env().with_bucket_name(name);
            gcs.with_retry(retry).build().map(|store| Arc::new(store) as _)
        }
        _ => {
            let azure = MicrosoftAzureBuilder::from_env().with_container_name(name);
            azure.with_retry(retry).build().map(|store| Arc::new(store) as _)
        }
    };
    opened.map_err(|error| InvalidPlace::Bucket(super::chain(&error)))
}

/// Built without the feature, no such place is read.
#[cfg(not(feature = "buckets"))]
fn bucket(_: &Url) -> Result<Arc<dyn ObjectStore>, InvalidPlace> {
    Err(InvalidPlace::NoBuckets)
}
