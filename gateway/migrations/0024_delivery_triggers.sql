-- The deliveries of new events, queued once for each statement instead of once for each event.

-- By itself: a migration that locks runs and run_events could wait for a statement that locks them the other way round.
DROP TRIGGER queue_deliveries_of_event ON run_events;
DROP FUNCTION queue_deliveries_of_event();

CREATE FUNCTION queue_deliveries_of_events() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    -- Lateral, each by its key.
    INSERT INTO deliveries (delivery_id, destination_id, app_id, subject, event_id, run_id, sequence, type, event_at,
        traceparent)
    SELECT new_delivery_id(), d.destination_id, r.app_id, r.subject, e.event_id, e.run_id, e.sequence, e.type,
        e.created_at, r.traceparent
    FROM added e CROSS JOIN LATERAL (
        SELECT app_id, subject, traceparent FROM runs WHERE run_id = e.run_id OFFSET 0) r CROSS JOIN LATERAL (
        SELECT destination_id FROM destinations
        WHERE app_id = r.app_id AND disabled_at IS NULL AND coalesce(expires_at, 'infinity') > now()
            AND e.type = ANY (types) OFFSET 0) d
    WHERE e.type <> 'run.accepted' AND e.type LIKE 'run.%';
    RETURN NULL;
END $$;
CREATE TRIGGER queue_deliveries_of_events AFTER INSERT ON run_events REFERENCING NEW TABLE AS added
    FOR EACH STATEMENT EXECUTE FUNCTION queue_deliveries_of_events();
