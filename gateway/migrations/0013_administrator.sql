-- The server's administrator disables applications and cancels runs, and is named for it.

-- Not validated: what is there already met a narrower condition, and is not read for it.
ALTER TABLE activity
    DROP CONSTRAINT activity_asked_by_check,
    ADD CONSTRAINT activity_asked_by_check
        CHECK (asked_by IN ('page', 'cli', 'agent', 'key', 'administrator')) NOT VALID;

ALTER TABLE runs
    DROP CONSTRAINT runs_stop_requested_by_check,
    ADD CONSTRAINT runs_stop_requested_by_check
        CHECK (stop_requested_by IN ('application', 'desktop_user', 'administrator')) NOT VALID;

-- In whose name what an application had under way is stopped.
ALTER TABLE applications ADD disabled_by text NOT NULL DEFAULT 'desktop_user';
