-- Lists of a caller's runs, and what is left of runs that were deleted.

-- Every acceptance pays for each index, so this one takes the place of runs_by_device: the desktop's own list
-- is rarely looked at and goes by the identifiers, which sort by creation.
CREATE INDEX runs_by_caller ON runs (app_id, subject, created_at, run_id);
DROP INDEX runs_by_device;

-- Runs get into this one when they end.
CREATE INDEX runs_to_purge ON runs (purge_at) WHERE purge_at IS NOT NULL;

-- Just enough to tell its owner, and nobody else, that a run was there.
CREATE TABLE purged_runs (
    run_id      uuid        PRIMARY KEY,
    app_id      uuid        NOT NULL,
    subject     text        NOT NULL,
    endpoint_id uuid        NOT NULL,
    forget_at   timestamptz NOT NULL
);
CREATE INDEX purged_runs_to_forget ON purged_runs (forget_at);
