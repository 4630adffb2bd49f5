-- Counts runs when they are accepted, so that nobody has to look through the queue to know how long it is.

-- Beside what migrations/0008 says, run_counts has 'open': what was accepted and has not ended, under the epoch, and
-- never forgotten. The statements that accept runs add to it and to 'accepted'; what ends one takes from it.

DROP FUNCTION counts_of(runs);

-- What each ended run counts as, and by how much.
CREATE FUNCTION counts_of(ended runs) RETURNS TABLE (what text, began_at timestamptz, bucket integer, by integer)
LANGUAGE sql STABLE AS $$
    VALUES ('open', 'epoch'::timestamptz, 0, -1),
        ('left', date_trunc('hour', coalesce(ended.started_at, ended.finished_at), 'UTC'), 0, 1),
        (ended.state, date_trunc('day', ended.finished_at, 'UTC'), 0, 1),
        (CASE WHEN ended.started_at IS NOT NULL THEN 'took' END, date_trunc('day', ended.finished_at, 'UTC'),
            floor(ln(greatest(1, 1000 * extract(epoch FROM ended.finished_at - ended.started_at)::float8))
                / ln(1.1::float8))::integer, 1)
$$;

CREATE OR REPLACE FUNCTION count_ended_run() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO run_counts AS c (device_id, what, began_at, app_id, bucket, writer, count)
    SELECT NEW.device_id, n.what, n.began_at, NEW.app_id, n.bucket, pg_backend_pid(), n.by
    FROM counts_of(NEW) n WHERE n.what IS NOT NULL
    ON CONFLICT (device_id, what, began_at, app_id, bucket, writer) DO UPDATE SET count = c.count + excluded.count;
    RETURN NULL;
END $$;

-- Those that had not ended were not counted at all.
INSERT INTO run_counts AS c (device_id, what, began_at, app_id, bucket, writer, count)
SELECT r.device_id, n.what, n.began_at, r.app_id, 0, 0, count(*)
FROM runs r CROSS JOIN LATERAL (
    VALUES ('open', 'epoch'::timestamptz), ('accepted', date_trunc('hour', r.created_at, 'UTC'))) n (what, began_at)
WHERE r.finished_at IS NULL
GROUP BY r.device_id, n.what, n.began_at, r.app_id
ON CONFLICT (device_id, what, began_at, app_id, bucket, writer) DO UPDATE SET count = c.count + excluded.count;
