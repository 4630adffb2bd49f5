-- Messages that wait for their conversation: runs that are queued and cannot be claimed until it is their turn.

-- Whether the run waits for the messages before it. It is the conversation's active run from the moment on when it does not.
ALTER TABLE runs ADD COLUMN awaits_turn boolean NOT NULL DEFAULT false;
ALTER TABLE run_queue ADD COLUMN awaits_turn boolean NOT NULL DEFAULT false;
-- Of a run that awaits its turn.
ALTER TABLE run_queue ADD COLUMN conversation_id uuid;

-- A claim reads past none of those that wait, however many there are; counts and lists read both kinds.
CREATE INDEX run_queue_of_device ON run_queue (device_id, awaits_turn, created_at, run_id) WHERE offered_until IS NULL;
DROP INDEX run_queue_to_claim;
CREATE INDEX run_queue_of_conversation ON run_queue (conversation_id, created_at, run_id) WHERE awaits_turn;

CREATE OR REPLACE FUNCTION queue_accepted_runs() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO run_queue (run_id, device_id, app_id, endpoint_id, created_at, queue_expires_at, offered_until, awaits_turn,
        conversation_id)
    SELECT run_id, device_id, app_id, endpoint_id, created_at, queue_expires_at, offered_until, awaits_turn,
        CASE WHEN awaits_turn THEN conversation_id END
    FROM accepted WHERE state = 'queued';
    RETURN NULL;
END $$;

CREATE OR REPLACE FUNCTION follow_changed_runs() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    -- The queue. Runs come back to it, too.
    DELETE FROM run_queue WHERE run_id = ANY (ARRAY(
        SELECT run_id FROM after WHERE state <> 'queued' INTERSECT SELECT run_id FROM before WHERE state = 'queued'));
    INSERT INTO run_queue AS q (run_id, device_id, app_id, endpoint_id, created_at, queue_expires_at, offered_until,
        awaits_turn, conversation_id)
    SELECT run_id, device_id, app_id, endpoint_id, created_at, queue_expires_at, offered_until, awaits_turn,
        CASE WHEN awaits_turn THEN conversation_id END
    FROM after WHERE state = 'queued'
    ON CONFLICT (run_id) DO UPDATE SET device_id = excluded.device_id, app_id = excluded.app_id,
        endpoint_id = excluded.endpoint_id, created_at = excluded.created_at,
        queue_expires_at = excluded.queue_expires_at, offered_until = excluded.offered_until,
        awaits_turn = excluded.awaits_turn, conversation_id = excluded.conversation_id
    WHERE (q.*) IS DISTINCT FROM (excluded.*);
    -- The counts of runs that end.
    INSERT INTO run_counts AS c (device_id, what, began_at, app_id, bucket, writer, count)
    SELECT r.device_id, n.what, n.began_at, r.app_id, n.bucket, pg_backend_pid(), sum(n.by)::integer
    FROM after r CROSS JOIN LATERAL counts_of(ROW(r.*)::runs) n
    WHERE r.finished_at IS NOT NULL AND n.what IS NOT NULL
        AND r.run_id = ANY (ARRAY(SELECT run_id FROM before WHERE finished_at IS NULL))
    GROUP BY r.device_id, n.what, n.began_at, r.app_id, n.bucket
    ON CONFLICT (device_id, what, began_at, app_id, bucket, writer) DO UPDATE SET count = c.count + excluded.count;
    RETURN NULL;
END $$;

CREATE OR REPLACE FUNCTION refill_run_queue() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    TRUNCATE run_queue;
    INSERT INTO run_queue (run_id, device_id, app_id, endpoint_id, created_at, queue_expires_at, offered_until, awaits_turn,
        conversation_id)
    SELECT run_id, device_id, app_id, endpoint_id, created_at, queue_expires_at, offered_until, awaits_turn,
        CASE WHEN awaits_turn THEN conversation_id END
    FROM runs WHERE state = 'queued';
END $$;

-- The conversation passes from the run that has ended to the oldest message that waits. It is locked before a message is
-- sought, so none that was accepted is missed; one that has ended meanwhile, or in the same statement, is passed over. A run
-- that awaits its turn ends without a lock on its conversation: otherwise the two could wait for each other.
CREATE FUNCTION pass_conversation_on(conversation uuid, ended uuid) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    waiting uuid;
    next_run uuid;
    device uuid;
BEGIN
    PERFORM FROM conversations WHERE conversation_id = conversation AND active_run_id = ended FOR NO KEY UPDATE;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    FOR waiting IN SELECT run_id FROM run_queue WHERE conversation_id = conversation AND awaits_turn
        ORDER BY created_at, run_id
    LOOP
        UPDATE runs SET awaits_turn = false WHERE run_id = waiting AND awaits_turn AND state = 'queued'
        RETURNING run_id, device_id INTO next_run, device;
        EXIT WHEN next_run IS NOT NULL;
    END LOOP;
    UPDATE conversations SET active_run_id = next_run, updated_at = greatest(now(), updated_at)
    WHERE conversation_id = conversation;
    IF next_run IS NOT NULL THEN
        -- To every gateway, in the form of its listener: the device's session looks at its queue.
        PERFORM pg_notify('deskgate', E'\nqueue:dev_' || replace(device::text, '-', ''));
    END IF;
END $$;

CREATE OR REPLACE FUNCTION settle_ended_run() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.conversation_id IS NOT NULL AND NOT OLD.awaits_turn THEN
        PERFORM pass_conversation_on(NEW.conversation_id, NEW.run_id);
    END IF;
    UPDATE control_operations SET state = 'completed', completed_at = now(), run_state = NEW.state,
        outcome = CASE
            -- As text: an error with a \u0000 in it is JSON, but no member of it can be taken out.
            WHEN NEW.error::text LIKE '{"code":"device_removed"%' THEN 'outcome_unknown'
            WHEN NEW.state = 'cancelled' THEN 'stopped'
            ELSE 'already_final' END
    WHERE operation_id = NEW.stop_operation_id AND completed_at IS NULL;
    RETURN NULL;
END $$;

-- No claim takes a message before its turn, also none of the program before this one.
CREATE FUNCTION leave_it_queued() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RETURN NULL;
END $$;
CREATE TRIGGER keep_turns BEFORE UPDATE OF offered_until ON runs FOR EACH ROW
    WHEN (OLD.awaits_turn AND NEW.awaits_turn AND NEW.offered_until IS NOT NULL)
    EXECUTE FUNCTION leave_it_queued();

-- An event that interrupts a conversation stops a run.
ALTER TABLE activity
    DROP CONSTRAINT activity_asked_by_check,
    ADD CONSTRAINT activity_asked_by_check
        CHECK (asked_by IN ('page', 'cli', 'agent', 'key', 'webhook', 'administrator')) NOT VALID;
ALTER TABLE activity VALIDATE CONSTRAINT activity_asked_by_check;
