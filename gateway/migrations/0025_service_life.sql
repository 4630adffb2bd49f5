-- Services that are disabled for a time, or unpublished.

ALTER TABLE endpoints
    -- Since when it accepts no new work, because its owner disabled it.
    ADD disabled_at timestamptz,
    -- Since when it is not published any more. Then closed_at is set too, by which every program refuses its calls.
    ADD unpublished_at timestamptz,
    -- As whom its runs are still to be told to end, after it was unpublished.
    ADD runs_to_tell_as text;
-- The name of a closed service is free.
ALTER TABLE endpoints DROP CONSTRAINT endpoints_app_id_name_key;
CREATE UNIQUE INDEX endpoints_by_name ON endpoints (app_id, name) WHERE closed_at IS NULL;
CREATE INDEX endpoints_by_application ON endpoints (app_id);
CREATE INDEX endpoints_to_tell ON endpoints (endpoint_id) WHERE runs_to_tell_as IS NOT NULL;
