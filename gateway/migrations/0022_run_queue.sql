-- The queue: a narrow row for each run that waits for a start, beside its wide record.

-- Queued runs are claimed, expired and counted here, and every statement about one run finds it by its key. `runs` keeps
-- what has ended, too: what is believed of its few queued rows is wrong most of the time, and plans that were made while
-- nothing waited read the whole queue. Triggers keep this table, whichever statement, of this program or of the one
-- before it, changes a run. A run is always locked before its row here.
CREATE TABLE run_queue (
    run_id           uuid        PRIMARY KEY,
    device_id        uuid        NOT NULL,
    app_id           uuid        NOT NULL,
    endpoint_id      uuid        NOT NULL,
    created_at       timestamptz NOT NULL,
    queue_expires_at timestamptz NOT NULL,
    -- While offered and not yet accepted.
    offered_until    timestamptz
);
CREATE INDEX run_queue_to_claim ON run_queue (device_id, created_at, run_id) WHERE offered_until IS NULL;
CREATE INDEX run_queue_offered ON run_queue (offered_until) WHERE offered_until IS NOT NULL;
CREATE INDEX run_queue_to_expire ON run_queue (queue_expires_at);

-- No run may be written before the triggers are there.
LOCK TABLE runs IN ACCESS EXCLUSIVE MODE;

CREATE FUNCTION queue_accepted_runs() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO run_queue (run_id, device_id, app_id, endpoint_id, created_at, queue_expires_at, offered_until)
    SELECT run_id, device_id, app_id, endpoint_id, created_at, queue_expires_at, offered_until
    FROM accepted WHERE state = 'queued';
    RETURN NULL;
END $$;
CREATE TRIGGER queue_accepted_runs AFTER INSERT ON runs REFERENCING NEW TABLE AS accepted
    FOR EACH STATEMENT EXECUTE FUNCTION queue_accepted_runs();

CREATE FUNCTION move_queued_run() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'DELETE' OR NEW.state <> 'queued' THEN
        DELETE FROM run_queue WHERE run_id = OLD.run_id;
    ELSIF OLD.state = 'queued' THEN
        UPDATE run_queue SET device_id = NEW.device_id, app_id = NEW.app_id, endpoint_id = NEW.endpoint_id,
            created_at = NEW.created_at, queue_expires_at = NEW.queue_expires_at, offered_until = NEW.offered_until
        WHERE run_id = NEW.run_id;
    ELSE
        INSERT INTO run_queue (run_id, device_id, app_id, endpoint_id, created_at, queue_expires_at, offered_until)
        VALUES (NEW.run_id, NEW.device_id, NEW.app_id, NEW.endpoint_id, NEW.created_at, NEW.queue_expires_at,
            NEW.offered_until);
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER move_queued_run
    AFTER UPDATE OF state, device_id, app_id, endpoint_id, created_at, queue_expires_at, offered_until ON runs FOR EACH ROW
    WHEN ((OLD.state = 'queued') <> (NEW.state = 'queued') OR NEW.state = 'queued' AND
        (NEW.device_id, NEW.app_id, NEW.endpoint_id, NEW.created_at, NEW.queue_expires_at, NEW.offered_until)
        IS DISTINCT FROM
        (OLD.device_id, OLD.app_id, OLD.endpoint_id, OLD.created_at, OLD.queue_expires_at, OLD.offered_until))
    EXECUTE FUNCTION move_queued_run();
CREATE TRIGGER drop_queued_run AFTER DELETE ON runs FOR EACH ROW WHEN (OLD.state = 'queued')
    EXECUTE FUNCTION move_queued_run();

-- Makes the queue from the runs: here, and when a backup's rows were put back.
CREATE FUNCTION refill_run_queue() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    TRUNCATE run_queue;
    INSERT INTO run_queue (run_id, device_id, app_id, endpoint_id, created_at, queue_expires_at, offered_until)
    SELECT run_id, device_id, app_id, endpoint_id, created_at, queue_expires_at, offered_until
    FROM runs WHERE state = 'queued';
END $$;
SELECT refill_run_queue();

-- They could only mislead: with them a start read the whole queue to find its one run.
DROP INDEX runs_to_claim;
DROP INDEX runs_offered;
DROP INDEX runs_to_expire;
