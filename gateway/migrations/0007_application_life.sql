-- Applications that are disabled for good, and removed.

ALTER TABLE applications
    ADD state text NOT NULL DEFAULT 'active' CHECK (state IN ('active', 'disabling', 'disabled', 'removed')),
    -- Whether all of its runs have ended or were told to stop, and none can come any more.
    ADD runs_told boolean NOT NULL DEFAULT false,
    ADD completed_at timestamptz,
    ADD removed_at timestamptz;
-- Since when nobody can call it, because its application was disabled.
ALTER TABLE endpoints ADD closed_at timestamptz;

-- An application that was disabled could be enabled again; from now on it is on its way to its end.
UPDATE applications SET state = 'disabling' WHERE disabled_at IS NOT NULL;
UPDATE application_keys k SET revoked_at = a.disabled_at
    FROM applications a WHERE a.app_id = k.app_id AND a.state = 'disabling' AND k.revoked_at IS NULL;
UPDATE endpoints e SET closed_at = a.disabled_at FROM applications a WHERE a.app_id = e.app_id AND a.state = 'disabling';

ALTER TABLE applications
    ADD CONSTRAINT each_state_has_its_time CHECK (
        (state = 'active') = (disabled_at IS NULL)
        AND (state IN ('disabled', 'removed')) = (completed_at IS NOT NULL)
        AND (state = 'removed') = (removed_at IS NOT NULL)),
    ADD CONSTRAINT nothing_ends_before_its_runs CHECK (completed_at IS NULL OR runs_told);
-- The name of a removed application is free.
ALTER TABLE applications DROP CONSTRAINT applications_device_id_name_key;
CREATE UNIQUE INDEX applications_by_name ON applications (device_id, name) WHERE state <> 'removed';
CREATE INDEX applications_by_device ON applications (device_id, app_id);
CREATE INDEX applications_to_tell ON applications (device_id) WHERE state = 'disabling' AND NOT runs_told;
