-- When the caller deleted the content of an ended run. Input and result stay as empty texts, for programs that know
-- nothing of this.
ALTER TABLE runs ADD COLUMN content_deleted_at timestamptz,
    ADD CONSTRAINT only_ended_runs_lose_content CHECK (content_deleted_at IS NULL OR finished_at IS NOT NULL) NOT VALID;
