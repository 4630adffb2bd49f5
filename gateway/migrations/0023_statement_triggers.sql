-- What follows a change of runs, once for each statement instead of once for each row.

-- Devices' reports of a moment are one statement. With a trigger for each row, a count was updated as often as the
-- statement had runs, each time through all its versions before.
DROP TRIGGER count_ended_run ON runs;
DROP TRIGGER move_queued_run ON runs;
DROP FUNCTION count_ended_run();

-- Neither table is joined with the other one: a plan is kept, whatever number of rows it was made for.
CREATE FUNCTION follow_changed_runs() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    -- The queue. Runs come back to it, too.
    DELETE FROM run_queue WHERE run_id = ANY (ARRAY(
        SELECT run_id FROM after WHERE state <> 'queued' INTERSECT SELECT run_id FROM before WHERE state = 'queued'));
    INSERT INTO run_queue AS q (run_id, device_id, app_id, endpoint_id, created_at, queue_expires_at, offered_until)
    SELECT run_id, device_id, app_id, endpoint_id, created_at, queue_expires_at, offered_until
    FROM after WHERE state = 'queued'
    ON CONFLICT (run_id) DO UPDATE SET device_id = excluded.device_id, app_id = excluded.app_id,
        endpoint_id = excluded.endpoint_id, created_at = excluded.created_at,
        queue_expires_at = excluded.queue_expires_at, offered_until = excluded.offered_until
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
CREATE TRIGGER follow_changed_runs AFTER UPDATE ON runs REFERENCING OLD TABLE AS before NEW TABLE AS after
    FOR EACH STATEMENT EXECUTE FUNCTION follow_changed_runs();
