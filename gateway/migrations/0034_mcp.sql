-- Services as tools of MCP. A tool's name is given when its service is first published, and kept whatever the service is called
-- later; only its owner changes it. Two tools of an application never have the same one.
ALTER TABLE endpoints
    ADD COLUMN tool_name        text,
    -- What the owner chose, if anything.
    ADD COLUMN chosen_tool_name text,
    -- Whether its assistant can only read.
    ADD COLUMN read_only        boolean NOT NULL DEFAULT false;

CREATE FUNCTION name_tool() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    -- A program of before this migration proposes none.
    wanted text := coalesce(NEW.chosen_tool_name, NEW.tool_name,
        'ask_' || coalesce(nullif(btrim(left(regexp_replace(lower(NEW.name), '[^a-z0-9]+', '_', 'g'), 56), '_'), ''), 'service'));
    free   text := wanted;
    number int  := 2;
BEGIN
    -- Two that are named at once take their names one after the other.
    PERFORM pg_advisory_xact_lock(hashtextextended(NEW.app_id::text, 34));
    WHILE EXISTS (SELECT FROM endpoints e
        WHERE e.app_id = NEW.app_id AND e.tool_name = free AND e.endpoint_id <> NEW.endpoint_id) LOOP
        free := left(wanted, 60) || '_' || number;
        number := number + 1;
    END LOOP;
    NEW.tool_name := free;
    RETURN NEW;
END $$;
CREATE TRIGGER name_new_tool BEFORE INSERT ON endpoints FOR EACH ROW WHEN (NEW.version > 0) EXECUTE FUNCTION name_tool();
CREATE TRIGGER name_tool BEFORE UPDATE ON endpoints FOR EACH ROW WHEN (NEW.version > 0 AND (OLD.tool_name IS NULL
    OR NEW.chosen_tool_name IS NOT NULL AND NEW.chosen_tool_name IS DISTINCT FROM OLD.chosen_tool_name))
    EXECUTE FUNCTION name_tool();
UPDATE endpoints SET read_only = false WHERE version > 0;
CREATE UNIQUE INDEX endpoints_tool_names ON endpoints (app_id, tool_name);

-- The calls of MCP that are under way, so that a client of before 2026-07-28 can cancel one by its number, at any gateway. The
-- digest is of application key, subject, session and number.
CREATE TABLE mcp_calls (
    call_digest bytea       PRIMARY KEY,
    run_id      uuid        NOT NULL,
    made_at     timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX mcp_calls_to_forget ON mcp_calls (made_at);

-- How many assistants that call each other stand before a run. See the header Deskgate-Depth.
ALTER TABLE runs ADD COLUMN depth smallint NOT NULL DEFAULT 0;
