-- A draft that its owner tries has a row like an unpublished service, of version 0. Runs of version 0 are of drafts.
ALTER TABLE endpoints DROP CONSTRAINT endpoints_version_check;
ALTER TABLE endpoints ADD CONSTRAINT endpoints_version_check
    CHECK (version >= 1 OR (version = 0 AND unpublished_at IS NOT NULL));
