-- Conversations, and the control operations on them and on runs.

CREATE TABLE conversations (
    conversation_id    uuid        PRIMARY KEY,
    app_id             uuid        NOT NULL REFERENCES applications,
    subject            text        NOT NULL,
    endpoint_id        uuid        NOT NULL REFERENCES endpoints,
    device_id          uuid        NOT NULL REFERENCES devices,
    conversation_key   text        NOT NULL,
    generation         integer     NOT NULL DEFAULT 1 CHECK (generation >= 1),
    -- The one run that is not final yet.
    active_run_id      uuid,
    -- The reset that the device has not acknowledged yet.
    reset_operation_id uuid,
    created_at         timestamptz NOT NULL DEFAULT now(),
    updated_at         timestamptz NOT NULL DEFAULT now(),
    UNIQUE (app_id, subject, endpoint_id, conversation_key),
    CONSTRAINT one_thing_at_a_time CHECK (active_run_id IS NULL OR reset_operation_id IS NULL)
);
CREATE INDEX conversations_by_caller ON conversations (app_id, subject, created_at, conversation_id);
-- What a desktop user sees of all applications.
CREATE INDEX conversations_by_device ON conversations (device_id, conversation_id);

CREATE TABLE control_operations (
    operation_id    uuid        PRIMARY KEY,
    app_id          uuid        NOT NULL REFERENCES applications,
    subject         text        NOT NULL,
    endpoint_id     uuid        NOT NULL REFERENCES endpoints,
    device_id       uuid        NOT NULL REFERENCES devices,
    kind            text        NOT NULL CHECK (kind IN ('run.stop', 'conversation.reset')),
    run_id          uuid,
    conversation_id uuid        REFERENCES conversations,
    -- Of a reset: the generation that it closes.
    generation      integer,
    reason          text,
    state           text        NOT NULL DEFAULT 'pending' CHECK (state IN (
        'pending', 'delivered', 'completed', 'failed')),
    outcome         text        CHECK (outcome IN ('stopped', 'already_final', 'outcome_unknown', 'reset')),
    run_state       text,
    error           text,
    -- The session that was told of it; another one is told again.
    delivered_epoch bigint,
    created_at      timestamptz NOT NULL DEFAULT now(),
    delivered_at    timestamptz,
    completed_at    timestamptz,
    CONSTRAINT a_kind_has_its_target CHECK (
        (kind = 'run.stop') = (run_id IS NOT NULL)
        AND (kind = 'conversation.reset') = (conversation_id IS NOT NULL AND generation IS NOT NULL)),
    CONSTRAINT ended_operations_have_an_end CHECK (
        (state IN ('completed', 'failed')) = (completed_at IS NOT NULL)
        AND (state = 'completed') = (outcome IS NOT NULL)
        AND (state = 'failed') = (error IS NOT NULL))
);
CREATE INDEX control_operations_open ON control_operations (device_id, created_at) WHERE completed_at IS NULL;
CREATE INDEX control_operations_to_forget ON control_operations (completed_at) WHERE kind = 'conversation.reset';
-- A run's operations go when it is deleted.
CREATE INDEX control_operations_by_run ON control_operations (run_id) WHERE run_id IS NOT NULL;

-- Requests that made no run of their own, by their identity: what a repetition is answered with.
CREATE TABLE request_identities (
    -- SHA-256 over (application, subject, method and target, Idempotency-Key).
    identity        bytea       PRIMARY KEY,
    -- SHA-256 of the body's canonical JSON.
    fingerprint     bytea       NOT NULL,
    conversation_id uuid        REFERENCES conversations,
    operation_id    uuid        REFERENCES control_operations ON DELETE CASCADE,
    -- Whether the request made what it was answered with.
    made            boolean     NOT NULL,
    created_at      timestamptz NOT NULL DEFAULT now(),
    CHECK ((conversation_id IS NULL) <> (operation_id IS NULL))
);
CREATE INDEX request_identities_of_openings ON request_identities (created_at) WHERE conversation_id IS NOT NULL;
CREATE INDEX request_identities_by_operation ON request_identities (operation_id) WHERE operation_id IS NOT NULL;

ALTER TABLE runs
    ADD conversation_id   uuid,
    ADD generation        integer,
    ADD stop_operation_id uuid,
    ADD stop_requested_at timestamptz,
    ADD stop_requested_by text CHECK (stop_requested_by IN ('application', 'desktop_user')),
    ADD CONSTRAINT a_message_has_a_generation CHECK ((conversation_id IS NULL) = (generation IS NULL)),
    ADD CONSTRAINT a_stop_has_its_members CHECK (
        (stop_operation_id IS NULL) = (stop_requested_at IS NULL)
        AND (stop_operation_id IS NULL) = (stop_requested_by IS NULL));

-- Only messages pay for it; runs without a conversation do not come here.
CREATE INDEX runs_by_conversation ON runs (conversation_id, created_at, run_id) WHERE conversation_id IS NOT NULL;

-- A run that ends releases its conversation and completes its stop in the same commit. Runs end in many
-- statements, so it is done here, where none can forget it; runs that have neither do not come here.
CREATE FUNCTION settle_ended_run() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    UPDATE conversations SET active_run_id = NULL, updated_at = now()
    WHERE conversation_id = NEW.conversation_id AND active_run_id = NEW.run_id;
    UPDATE control_operations SET state = 'completed', completed_at = now(), run_state = NEW.state,
        outcome = CASE
            -- As text: an error with a \u0000 in it is JSON, but no member of it can be taken out.
            WHEN NEW.error::text LIKE '{"code":"device_removed"%' THEN 'outcome_unknown'
            WHEN NEW.state = 'cancelled' THEN 'stopped'
            ELSE 'already_final' END
    WHERE operation_id = NEW.stop_operation_id AND completed_at IS NULL;
    RETURN NULL;
END $$;

CREATE TRIGGER settle_ended_run AFTER UPDATE OF finished_at ON runs FOR EACH ROW
    WHEN (OLD.finished_at IS NULL AND NEW.finished_at IS NOT NULL
        AND (NEW.conversation_id IS NOT NULL OR NEW.stop_operation_id IS NOT NULL))
    EXECUTE FUNCTION settle_ended_run();
