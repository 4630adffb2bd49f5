-- Counts of runs, for the desktop's overview.

-- Written when a run ends, in the same commit: what is not there is counted among the runs that have not ended.
-- So an acceptance pays nothing for it, and no index on runs is needed to look back.
CREATE TABLE run_counts (
    device_id uuid        NOT NULL,
    -- Runs 'accepted' and 'left' (the queue: started, or ended without) by the hour; ended, as their state says, and
    -- 'took', by the day; both in UTC.
    what      text        NOT NULL,
    began_at  timestamptz NOT NULL,
    app_id    uuid        NOT NULL,
    -- Of 'took': the logarithm of the milliseconds to the base 1.1.
    bucket    integer     NOT NULL,
    -- The process that counts. Each has rows of its own, so that no commit waits for another one's.
    writer    integer     NOT NULL,
    count     integer     NOT NULL,
    PRIMARY KEY (device_id, what, began_at, app_id, bucket, writer)
) WITH (fillfactor = 70);
CREATE INDEX run_counts_to_forget ON run_counts (began_at);

-- What each ended run counts as.
CREATE FUNCTION counts_of(ended runs) RETURNS TABLE (what text, began_at timestamptz, bucket integer)
LANGUAGE sql STABLE AS $$
    VALUES ('accepted', date_trunc('hour', ended.created_at, 'UTC'), 0),
        ('left', date_trunc('hour', coalesce(ended.started_at, ended.finished_at), 'UTC'), 0),
        (ended.state, date_trunc('day', ended.finished_at, 'UTC'), 0),
        (CASE WHEN ended.started_at IS NOT NULL THEN 'took' END, date_trunc('day', ended.finished_at, 'UTC'),
            floor(ln(greatest(1, 1000 * extract(epoch FROM ended.finished_at - ended.started_at)::float8))
                / ln(1.1::float8))::integer)
$$;

CREATE FUNCTION count_ended_run() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO run_counts AS c (device_id, what, began_at, app_id, bucket, writer, count)
    SELECT NEW.device_id, n.what, n.began_at, NEW.app_id, n.bucket, pg_backend_pid(), 1
    FROM counts_of(NEW) n WHERE n.what IS NOT NULL
    ON CONFLICT (device_id, what, began_at, app_id, bucket, writer) DO UPDATE SET count = c.count + 1;
    RETURN NULL;
END $$;

CREATE TRIGGER count_ended_run AFTER UPDATE OF finished_at ON runs FOR EACH ROW
    WHEN (OLD.finished_at IS NULL AND NEW.finished_at IS NOT NULL)
    EXECUTE FUNCTION count_ended_run();

INSERT INTO run_counts (device_id, what, began_at, app_id, bucket, writer, count)
SELECT r.device_id, n.what, n.began_at, r.app_id, n.bucket, 0, count(*)
FROM runs r CROSS JOIN LATERAL counts_of(r) n
WHERE r.finished_at > now() - interval '8 days' AND n.what IS NOT NULL
GROUP BY r.device_id, n.what, n.began_at, r.app_id, n.bucket;
