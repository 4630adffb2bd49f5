-- Lists of a caller's runs.

-- Every acceptance pays for each index, so this one takes the place of runs_by_device: the desktop's own list
-- is rarely looked at and goes by the identifiers, which sort by creation.
CREATE INDEX runs_by_caller ON runs (app_id, subject, created_at, run_id);
DROP INDEX runs_by_device;
