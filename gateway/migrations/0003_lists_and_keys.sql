-- Lists of a caller's runs, what is left of runs that were deleted, and what keys and applications are limited to.

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

ALTER TABLE applications ADD COLUMN disabled_at timestamptz;
-- Empty: a key is good from everywhere. Ranges of addresses, as in 10.0.0.0/8.
ALTER TABLE application_keys ADD COLUMN allowed_cidrs text[] NOT NULL DEFAULT '{}';
-- Written once a minute at most, and only as true as that.
ALTER TABLE application_keys ADD COLUMN last_used_at timestamptz;
