-- Files that callers give to runs, and artifacts that runs hand out. Their bytes lie outside of the database, in a folder or a
-- bucket; what stands here says which are there.

-- The bytes of one file or artifact. The row is there before its bytes and goes after them, so none are ever left behind.
CREATE TABLE objects (
    object_id   uuid        PRIMARY KEY,
    app_id      uuid        NOT NULL REFERENCES applications,
    -- The device and the run that hand it out; null for a caller's file.
    device_id   uuid        REFERENCES devices,
    run_id      uuid,
    -- Bytes; until they are stored, the most that may come.
    size        bigint      NOT NULL CHECK (size >= 0),
    -- Both null until all bytes are stored.
    sha256      bytea       CHECK (octet_length(sha256) = 32),
    stored_at   timestamptz CHECK ((stored_at IS NULL) = (sha256 IS NULL)),
    created_at  timestamptz NOT NULL DEFAULT now(),
    -- When nothing needed it any more: its bytes are deleted, and then this row.
    released_at timestamptz
);
CREATE INDEX objects_of_application ON objects (app_id) INCLUDE (size) WHERE released_at IS NULL;
CREATE INDEX objects_of_device ON objects (device_id) INCLUDE (size) WHERE released_at IS NULL AND device_id IS NOT NULL;
CREATE INDEX objects_of_run ON objects (run_id) WHERE run_id IS NOT NULL;
CREATE INDEX objects_arriving ON objects (created_at) WHERE stored_at IS NULL AND released_at IS NULL;
CREATE INDEX objects_released ON objects (released_at) WHERE released_at IS NOT NULL;

-- A file that a caller uploaded. Its bytes are the object of the same number.
CREATE TABLE files (
    file_id     uuid        PRIMARY KEY REFERENCES objects,
    app_id      uuid        NOT NULL REFERENCES applications,
    subject     text        NOT NULL,
    name        text        NOT NULL,
    media_type  text        NOT NULL,
    created_at  timestamptz NOT NULL DEFAULT now(),
    -- When it is deleted unless a run has it; then it is looked at again later.
    expires_at  timestamptz NOT NULL,
    -- The request that uploaded it, if it had an Idempotency-Key.
    identity    bytea       UNIQUE,
    fingerprint bytea       NOT NULL
);
CREATE INDEX files_of_caller ON files (app_id, subject, created_at DESC, file_id DESC);
CREATE INDEX files_due ON files (expires_at);

-- Which runs have which files.
CREATE TABLE run_files (
    run_id  uuid NOT NULL,
    file_id uuid NOT NULL REFERENCES files,
    PRIMARY KEY (run_id, file_id)
);
CREATE INDEX run_files_of_file ON run_files (file_id);

-- What a run handed out: [{"artifact_id", "name", "media_type", "size", "sha256", "state"}].
ALTER TABLE runs ADD COLUMN artifacts json;
-- Whether a service takes files. What an older device published takes none.
ALTER TABLE endpoints ADD COLUMN takes_files boolean NOT NULL DEFAULT false;
