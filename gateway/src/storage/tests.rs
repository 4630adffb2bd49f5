use deskgate_protocol::canonical::Sha256Digest;
use proptest::prelude::*;
use tokio::runtime::Runtime;

use super::*;

fn folder() -> (tempfile::TempDir, ObjectStorage) {
    let folder = tempfile::tempdir().expect("made");
    let storage = StoragePlace::Folder(folder.path().join("objects")).open().expect("opened");
    (folder, storage)
}

fn some_bytes(length: usize) -> Vec<u8> {
    (0..length).map(|place| (place * 31 % 251) as u8).collect()
}

async fn read(storage: &ObjectStorage, object_id: Uuid, size: u64, from: u64) -> Result<Vec<u8>, StorageError> {
    storage.read(object_id, size, from).try_collect::<Vec<_>>().await.map(|pieces| pieces.concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn bytes_come_back_from_any_place_on_whatever_pieces_they_came_in(
        length in prop_oneof![0..3usize, 0..9 * 1024 * 1024usize, (1..3usize).prop_map(|chunks| chunks * CHUNK_BYTES)],
        pieces in proptest::collection::vec(1..3_000_000usize, 1..6),
        broken in any::<bool>(),
        from in 0.0..=1.0f64,
    ) {
        Runtime::new().expect("a runtime").block_on(async {
            let (_folder, storage) = folder();
            let (object_id, bytes) = (Uuid::now_v7(), some_bytes(length));
            let mut writer = storage.write(object_id);
            let (mut sent, mut sizes) = (0, pieces.iter().cycle());
            while sent < length {
                let piece = (*sizes.next().expect("endless")).min(length - sent);
                writer.write(Bytes::copy_from_slice(&bytes[sent..sent + piece])).await.expect("taken");
                sent += piece;
                if broken && sent >= length / 2 && sent < length {
                    writer.leave().await;
                    let chunks = storage.stored_chunks(object_id).await.expect("counted");
                    writer = storage.resume(object_id, chunks).await.expect("goes on");
                    sent = usize::try_from(writer.size()).expect("small");
                    assert_eq!(sent % CHUNK_BYTES, 0);
                    writer.write(Bytes::copy_from_slice(&bytes[sent..])).await.expect("taken");
                    break;
                }
            }
            let stored = writer.finish().await.expect("stored");
            assert_eq!(stored, ObjectDigest { size: length as u64, sha256: Sha256Digest::of(&bytes) });
            let from = (length as f64 * from) as usize;
            assert!(read(&storage, object_id, stored.size, from as u64).await.expect("read") == bytes[from..]);
            storage.delete(object_id, stored.size).await.expect("deleted");
            storage.delete(object_id, stored.size).await.expect("again");
            if length > 0 {
                assert!(matches!(read(&storage, object_id, stored.size, 0).await, Err(StorageError::Missing(_))));
            }
        });
    }
}

#[tokio::test]
async fn a_folder_is_left_empty_and_is_nobody_elses_to_read() {
    use std::os::unix::fs::PermissionsExt;
    let (folder, storage) = folder();
    storage.probe().await.expect("works");
    let objects = folder.path().join("objects");
    assert_eq!(std::fs::metadata(&objects).expect("there").permissions().mode() & 0o777, 0o700);
    assert_eq!(std::fs::read_dir(&objects).expect("readable").count(), 0);
}

#[tokio::test]
async fn more_bytes_than_the_limit_are_refused_before_they_are_stored() {
    let (_folder, storage) = folder();
    let mut writer = storage.write(Uuid::now_v7()).with_limit(3);
    writer.write(Bytes::from_static(b"abc")).await.expect("taken");
    assert!(matches!(writer.write(Bytes::from_static(b"d")).await, Err(WriteError::TooMany(3))));
}

#[tokio::test]
async fn a_chunk_that_is_shorter_than_it_was_is_not_read_as_if_it_were_whole() {
    let (folder, storage) = folder();
    let object_id = Uuid::now_v7();
    let mut writer = storage.write(object_id);
    writer.write(Bytes::from_static(b"abcdef")).await.expect("taken");
    writer.finish().await.expect("stored");
    std::fs::write(folder.path().join("objects").join(object_id.simple().to_string()).join("0"), "abc").expect("cut");
    assert!(matches!(read(&storage, object_id, 6, 0).await, Err(StorageError::Missing(_))));
}

#[test]
fn a_place_is_a_folder_or_a_bucket_and_has_no_credentials() {
    let place = |text: &str| text.parse::<StoragePlace>();
    assert_eq!(place("/srv/x").expect("a folder"), StoragePlace::Folder("/srv/x".into()));
    assert_eq!(place("file:///srv/x").expect("a folder"), StoragePlace::Folder("/srv/x".into()));
    assert!(matches!(place("s3://bucket/some/prefix"), Ok(StoragePlace::Bucket(_))));
    assert!(matches!(place("s3://key:secret@bucket"), Err(InvalidPlace::HasCredentials)));
    assert!(matches!(place("az://container?sig=x"), Err(InvalidPlace::HasCredentials)));
    for text in ["", "x", "folder/x", "s3://", "http://bucket", "gs:bucket"] {
        assert!(matches!(place(text), Err(InvalidPlace::Unknown)), "{text}");
    }
}
