-- Data beside the texts of runs, by schemas of services and of callers.

-- The data that a run's result must have: {"name", "schema"}. A run keeps its own, whatever becomes of its service.
ALTER TABLE runs ADD COLUMN output json;
-- The data that a service takes and gives, and whether a run may bring a schema of its own. What an older device published
-- says nothing of schemas, and takes none.
ALTER TABLE endpoints ADD COLUMN input_schema json, ADD COLUMN output_schema json,
    ADD COLUMN caller_schema boolean NOT NULL DEFAULT false;
