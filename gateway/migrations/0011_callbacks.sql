-- Callbacks: where an application's events are sent, and what came of each.

CREATE TABLE destinations (
    destination_id    uuid        PRIMARY KEY,
    app_id            uuid        NOT NULL REFERENCES applications,
    -- A callback is a public address; a listener is somebody at the desktop, for as long as they ask.
    kind              text        NOT NULL CHECK (kind IN ('callback', 'listener')),
    url               text,
    -- The name that must be among the allowed hosts.
    host              text        NOT NULL,
    -- The chosen events.
    types             text[]      NOT NULL,
    sealed_secret     bytea       NOT NULL,
    -- The secret before this one, which signs too for a while.
    sealed_old_secret bytea,
    old_secret_until  timestamptz,
    -- Whether the beginning of each answer is kept.
    keep_answers      boolean     NOT NULL DEFAULT false,
    disabled_at       timestamptz,
    disabled_for      text        CHECK (disabled_for IN ('gone', 'failing', 'owner', 'application')),
    -- Since when no attempt succeeded, if one failed since.
    failing_since     timestamptz,
    -- When a listener ends unless it asks before.
    expires_at        timestamptz,
    created_at        timestamptz NOT NULL DEFAULT now(),
    updated_at        timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT a_kind_has_its_members CHECK (
        (kind = 'callback') = (url IS NOT NULL) AND (kind = 'listener') = (expires_at IS NOT NULL)),
    CONSTRAINT what_is_off_has_a_reason CHECK ((disabled_at IS NULL) = (disabled_for IS NULL)),
    CONSTRAINT an_old_secret_has_an_end CHECK ((sealed_old_secret IS NULL) = (old_secret_until IS NULL))
);
CREATE UNIQUE INDEX destinations_callback ON destinations (app_id) WHERE kind = 'callback';
-- Every event looks here, so that what nobody wants to hear of costs one step.
CREATE INDEX destinations_enabled ON destinations (app_id) WHERE disabled_at IS NULL;
-- The same for acceptances, which pay least: few receivers choose them.
CREATE INDEX destinations_of_acceptances ON destinations (app_id)
    WHERE disabled_at IS NULL AND types @> '{run.accepted}';
CREATE INDEX destinations_to_close ON destinations (expires_at) WHERE kind = 'listener';

-- One event on its way to one destination. As runs, these carry no foreign keys: what is written here is read from
-- the run and the destination in the same moment, and nothing deletes a destination before its deliveries.
CREATE TABLE deliveries (
    delivery_id     uuid        PRIMARY KEY,
    destination_id  uuid        NOT NULL,
    app_id          uuid        NOT NULL,
    -- Absent from tests and samples, which are nobody's.
    subject         text,
    event_id        uuid        NOT NULL,
    run_id          uuid,
    conversation_id uuid,
    sequence        bigint,
    type            text        NOT NULL,
    event_at        timestamptz NOT NULL,
    state           text        NOT NULL DEFAULT 'pending' CHECK (state IN (
        'pending', 'delivered', 'exhausted', 'discarded')),
    -- Which attempt was begun last; the outcome of another one changes nothing.
    attempt         integer     NOT NULL DEFAULT 0,
    -- The attempts before somebody asked for it to be sent again; the schedule begins behind them.
    attempts_before integer     NOT NULL DEFAULT 0,
    -- When it is to be attempted; while it is being attempted, when that is given up for lost.
    due_at          timestamptz DEFAULT now(),
    -- Of tests and samples, which tell of nothing that is stored: what they say.
    data            text,
    traceparent     text,
    created_at      timestamptz NOT NULL DEFAULT now(),
    finished_at     timestamptz,
    purge_at        timestamptz,
    CONSTRAINT what_is_pending_is_due CHECK ((state = 'pending') = (due_at IS NOT NULL)),
    CONSTRAINT what_is_not_pending_has_an_end CHECK (
        (state = 'pending') = (finished_at IS NULL) AND (finished_at IS NULL) = (purge_at IS NULL)),
    CONSTRAINT it_tells_of_one_thing CHECK (num_nonnulls(run_id, conversation_id, data) = 1)
);
CREATE INDEX deliveries_due ON deliveries (destination_id, due_at) WHERE state = 'pending';
CREATE INDEX deliveries_by_caller ON deliveries (app_id, subject, created_at, delivery_id);
CREATE INDEX deliveries_by_run ON deliveries (run_id) WHERE run_id IS NOT NULL;
CREATE INDEX deliveries_to_recover ON deliveries (destination_id, event_at) WHERE state = 'exhausted';
CREATE INDEX deliveries_to_purge ON deliveries (purge_at) WHERE purge_at IS NOT NULL;

-- Written when an attempt begins, so that one in which the gateway dies stands here without an outcome.
CREATE TABLE delivery_attempts (
    delivery_id uuid        NOT NULL,
    attempt     integer     NOT NULL,
    host        text        NOT NULL,
    started_at  timestamptz NOT NULL DEFAULT now(),
    took_ms     integer,
    status_code integer,
    error_code  text,
    answer      text,
    PRIMARY KEY (delivery_id, attempt)
);

-- Exact names of hosts that callbacks may go to. Empty: nothing is sent.
CREATE TABLE allowed_hosts (
    host     text        PRIMARY KEY,
    added_at timestamptz NOT NULL DEFAULT now()
);

-- Identifiers that sort by time, as those that the program makes (UUIDv7, RFC 9562): the time in the first 48 bits, and
-- of a random UUID the version 4 made 7.
CREATE FUNCTION new_delivery_id() RETURNS uuid LANGUAGE sql VOLATILE AS $$
    SELECT encode(set_bit(set_bit(overlay(uuid_send(gen_random_uuid())
        PLACING substring(int8send((extract(epoch FROM clock_timestamp()) * 1000)::bigint) FROM 3) FROM 1 FOR 6),
        52, 1), 53, 1), 'hex')::uuid
$$;

-- Events are written in many statements, so their deliveries are queued here, where none can forget it. Acceptances do
-- not come here: the two statements that accept queue what they have to.
CREATE FUNCTION queue_deliveries_of_event() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    -- Looked up first: a plan that is kept, and was made while few had destinations, could read all of them instead.
    r record;
BEGIN
    SELECT app_id, subject, traceparent INTO r FROM runs WHERE run_id = NEW.run_id;
    INSERT INTO deliveries (delivery_id, destination_id, app_id, subject, event_id, run_id, sequence, type, event_at,
        traceparent)
    SELECT new_delivery_id(), d.destination_id, r.app_id, r.subject, NEW.event_id, NEW.run_id, NEW.sequence, NEW.type,
        NEW.created_at, r.traceparent
    FROM destinations d
    WHERE d.app_id = r.app_id AND d.disabled_at IS NULL AND coalesce(d.expires_at, 'infinity') > now()
        AND NEW.type = ANY(d.types);
    RETURN NULL;
END $$;

CREATE TRIGGER queue_deliveries_of_event AFTER INSERT ON run_events FOR EACH ROW
    WHEN (NEW.type <> 'run.accepted' AND NEW.type LIKE 'run.%')
    EXECUTE FUNCTION queue_deliveries_of_event();

-- A completed reset is an event of its conversation.
CREATE FUNCTION queue_deliveries_of_reset() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO deliveries (delivery_id, destination_id, app_id, subject, event_id, conversation_id, type, event_at)
    SELECT new_delivery_id(), d.destination_id, NEW.app_id, NEW.subject, NEW.operation_id, NEW.conversation_id,
        'conversation.reset', NEW.completed_at
    FROM destinations d
    WHERE d.app_id = NEW.app_id AND d.disabled_at IS NULL AND coalesce(d.expires_at, 'infinity') > now()
        AND 'conversation.reset' = ANY(d.types);
    RETURN NULL;
END $$;

CREATE TRIGGER queue_deliveries_of_reset AFTER UPDATE OF completed_at ON control_operations FOR EACH ROW
    WHEN (OLD.completed_at IS NULL AND NEW.completed_at IS NOT NULL AND NEW.outcome = 'reset')
    EXECUTE FUNCTION queue_deliveries_of_reset();
