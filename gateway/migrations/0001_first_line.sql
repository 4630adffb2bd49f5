-- From a paired device to a finished run.

-- All replicas on one database are one gateway.
CREATE TABLE gateway (
    singleton  boolean     PRIMARY KEY DEFAULT true CHECK (singleton),
    gateway_id uuid        NOT NULL DEFAULT gen_random_uuid(),
    created_at timestamptz NOT NULL DEFAULT now()
);
INSERT INTO gateway DEFAULT VALUES;

-- Digests of the private control tokens that open the control channel.
CREATE TABLE control_tokens (
    digest     bytea       PRIMARY KEY CHECK (octet_length(digest) = 32),
    created_at timestamptz NOT NULL DEFAULT now(),
    expires_at timestamptz
);

CREATE TABLE devices (
    device_id         uuid        PRIMARY KEY,
    name              text        NOT NULL,
    public_key        text        NOT NULL UNIQUE,
    paired_at         timestamptz NOT NULL DEFAULT now(),
    revoked_at        timestamptz,
    -- Raised by every session; only the newest may act.
    epoch             bigint      NOT NULL DEFAULT 0,
    -- The session that is up; null once it said goodbye.
    connected_epoch   bigint,
    -- Until when the device is believed to work on what it started.
    lease_expires_at  timestamptz,
    last_seen_at      timestamptz,
    device_version    text,
    -- The last refusal since the last welcome, as it was sent.
    refusal           json,
    access_enabled    boolean     NOT NULL DEFAULT false,
    access_changed_at timestamptz
);

CREATE TABLE applications (
    app_id     uuid        PRIMARY KEY,
    device_id  uuid        NOT NULL REFERENCES devices,
    name       text        NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    UNIQUE (device_id, name)
);

CREATE TABLE application_keys (
    key_id        uuid        PRIMARY KEY,
    app_id        uuid        NOT NULL REFERENCES applications,
    name          text        NOT NULL,
    last4         text        NOT NULL,
    digest        bytea       NOT NULL CHECK (octet_length(digest) = 32),
    scopes        text[]      NOT NULL,
    -- Empty: not limited to some services.
    endpoints     uuid[]      NOT NULL DEFAULT '{}',
    fixed_subject text,
    created_at    timestamptz NOT NULL DEFAULT now(),
    expires_at    timestamptz,
    revoked_at    timestamptz
);
CREATE INDEX application_keys_by_application ON application_keys (app_id);

-- The public face of published services; the definitions stay on the devices.
CREATE TABLE endpoints (
    endpoint_id       uuid        PRIMARY KEY,
    app_id            uuid        NOT NULL REFERENCES applications,
    device_id         uuid        NOT NULL REFERENCES devices,
    name              text        NOT NULL,
    description       text        NOT NULL,
    version           integer     NOT NULL CHECK (version >= 1),
    definition_sha256 bytea       NOT NULL CHECK (octet_length(definition_sha256) = 32),
    published_at      timestamptz NOT NULL DEFAULT now(),
    UNIQUE (app_id, name)
);
CREATE INDEX endpoints_by_device ON endpoints (device_id);

-- The busiest tables carry no foreign keys: each would cost an acceptance as much as the rest of its
-- checks. The statements that write here read the endpoint, or the run, in the same moment; endpoints
-- are never deleted, and whoever deletes a run deletes its events.
CREATE TABLE runs (
    run_id            uuid        PRIMARY KEY,
    app_id            uuid        NOT NULL,
    subject           text        NOT NULL,
    endpoint_id       uuid        NOT NULL,
    endpoint_version  integer     NOT NULL,
    definition_sha256 bytea       NOT NULL,
    device_id         uuid        NOT NULL,
    -- SHA-256 over (application, subject, method and target, Idempotency-Key).
    identity          bytea       NOT NULL UNIQUE,
    -- SHA-256 of the body's canonical JSON.
    fingerprint       bytea       NOT NULL,
    input             json        NOT NULL,
    metadata          json        NOT NULL,
    max_duration_s    integer     NOT NULL,
    traceparent       text,
    state             text        NOT NULL DEFAULT 'queued' CHECK (state IN (
        'queued', 'running', 'awaiting_approval', 'awaiting_reconciliation', 'cancelling',
        'succeeded', 'failed', 'cancelled', 'expired')),
    -- Which hand-over to the device this is; frames of another one change nothing.
    attempt           integer     NOT NULL DEFAULT 0,
    -- The session that holds the attempt.
    epoch             bigint      NOT NULL DEFAULT 0,
    -- While offered and not yet accepted.
    offered_until     timestamptz,
    -- The number of the device's last stored event in this attempt.
    device_seq        bigint      NOT NULL DEFAULT 0,
    last_sequence     bigint      NOT NULL DEFAULT 1,
    result            json,
    error             json,
    usage             json,
    created_at        timestamptz NOT NULL DEFAULT now(),
    queue_expires_at  timestamptz NOT NULL,
    started_at        timestamptz,
    finished_at       timestamptz,
    purge_at          timestamptz,
    CONSTRAINT final_states_have_an_end CHECK (
        (state IN ('succeeded', 'failed', 'cancelled', 'expired')) = (finished_at IS NOT NULL)
        AND (finished_at IS NULL) = (purge_at IS NULL)),
    CONSTRAINT success_has_a_result CHECK ((state = 'succeeded') = (result IS NOT NULL)),
    CONSTRAINT failure_has_an_error CHECK (state <> 'failed' OR error IS NOT NULL),
    CONSTRAINT only_queued_runs_are_offered CHECK (state = 'queued' OR offered_until IS NULL)
);
CREATE INDEX runs_to_claim ON runs (device_id, created_at, run_id) WHERE state = 'queued' AND offered_until IS NULL;
CREATE INDEX runs_offered ON runs (offered_until) WHERE offered_until IS NOT NULL;
CREATE INDEX runs_started ON runs (device_id)
    WHERE state IN ('running', 'awaiting_approval', 'awaiting_reconciliation', 'cancelling');
CREATE INDEX runs_to_expire ON runs (queue_expires_at) WHERE state = 'queued';
CREATE INDEX runs_by_device ON runs (device_id, created_at, run_id);

CREATE TABLE run_events (
    run_id     uuid        NOT NULL,
    sequence   bigint      NOT NULL CHECK (sequence >= 1),
    event_id   uuid        NOT NULL,
    type       text        NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    data       json        NOT NULL,
    PRIMARY KEY (run_id, sequence)
);
