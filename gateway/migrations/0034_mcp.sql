-- How many assistants that call each other stand before a run. See the header Deskgate-Depth. First, as submissions of a program
-- before this one lock runs before services.
ALTER TABLE runs ADD COLUMN depth smallint NOT NULL DEFAULT 0;

-- Services as tools of MCP. A tool's name is given when its service is first published, and kept whatever the service is called
-- later; only its owner changes it. No two tools that can be called at one application have the same one.
ALTER TABLE endpoints
    ADD COLUMN tool_name         text,
    -- What the owner chose, if anything.
    ADD COLUMN chosen_tool_name  text,
    -- The version whose assistant can only read. A program of before this migration says of none that it can.
    ADD COLUMN read_only_version int;

WITH proposed AS (
    SELECT endpoint_id, app_id, closed_at IS NOT NULL AS is_closed, 'ask_' || coalesce(nullif(btrim(left(
        regexp_replace(lower(name), '[^a-z0-9]+', '_', 'g'), 56), '_'), ''), 'service') AS name
    FROM endpoints WHERE version > 0
), numbered AS (
    SELECT endpoint_id, name, row_number() OVER (PARTITION BY app_id, name ORDER BY is_closed, endpoint_id) AS number FROM proposed
), named AS (
    -- One that is called "Invoices 2" may have the name that the second "Invoices" would get.
    SELECT endpoint_id, CASE WHEN number = 1 THEN name ELSE left(name, 50) || '_' || number || '_' || right(endpoint_id::text, 4) END
        AS name FROM numbered
)
UPDATE endpoints e SET tool_name = n.name FROM named n WHERE n.endpoint_id = e.endpoint_id;

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
    WHILE EXISTS (SELECT FROM endpoints e WHERE e.app_id = NEW.app_id AND e.tool_name = free AND e.closed_at IS NULL
        AND e.endpoint_id <> NEW.endpoint_id) LOOP
        free := left(wanted, 60) || '_' || number;
        number := number + 1;
    END LOOP;
    NEW.tool_name := free;
    RETURN NEW;
END $$;
CREATE TRIGGER name_new_tool BEFORE INSERT ON endpoints FOR EACH ROW WHEN (NEW.version > 0) EXECUTE FUNCTION name_tool();
-- One that is published again may find its name taken.
CREATE TRIGGER name_tool BEFORE UPDATE ON endpoints FOR EACH ROW WHEN (NEW.version > 0 AND (OLD.tool_name IS NULL
    OR OLD.closed_at IS NOT NULL AND NEW.closed_at IS NULL
    OR NEW.chosen_tool_name IS NOT NULL AND NEW.chosen_tool_name IS DISTINCT FROM OLD.chosen_tool_name))
    EXECUTE FUNCTION name_tool();
CREATE UNIQUE INDEX endpoints_tool_names ON endpoints (app_id, tool_name) WHERE closed_at IS NULL;

-- The calls of MCP that are under way, so that a client of before 2026-07-28 can cancel one by its number, at any gateway. The
-- digest is of application key, subject, session and number.
CREATE TABLE mcp_calls (
    call_digest     bytea       PRIMARY KEY,
    -- Null: it was cancelled before its run was there.
    run_id          uuid,
    -- The key that the call was given here, if it has no name of its own.
    idempotency_key text,
    is_cancelled    boolean     NOT NULL DEFAULT false,
    made_at         timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX mcp_calls_to_forget ON mcp_calls (made_at);
