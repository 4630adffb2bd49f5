-- Who did what to a device's applications, and from where keys are used.

CREATE TABLE activity (
    -- Sorts by time.
    activity_id uuid        PRIMARY KEY,
    device_id   uuid        NOT NULL REFERENCES devices,
    -- Null: about all of the device's.
    app_id      uuid,
    at          timestamptz NOT NULL DEFAULT now(),
    asked_by    text        NOT NULL CHECK (asked_by IN ('page', 'cli', 'agent', 'key')),
    -- Which key, if one asked.
    key_id      uuid,
    what        text        NOT NULL,
    -- The key, service, run or conversation, as its identifier is written.
    about       text,
    -- Its name in that moment, or the application's.
    name        text,
    CHECK ((asked_by = 'key') = (key_id IS NOT NULL))
);
CREATE INDEX activity_by_device ON activity (device_id, activity_id);
CREATE INDEX activity_by_application ON activity (app_id, activity_id) WHERE app_id IS NOT NULL;
CREATE INDEX activity_to_forget ON activity (at);

ALTER TABLE application_keys
    -- The address of the last use that was noted; none before it is kept.
    ADD last_address   text,
    -- When it was last another one than before.
    ADD new_address_at timestamptz;
