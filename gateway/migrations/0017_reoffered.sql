-- Whether this attempt was begun because the one before had been cut off, and its offer is not accepted yet: only then can a
-- device that knows nothing of it be offered it again. Accepted, it may be executed by a copy of the device that has another
-- journal.
ALTER TABLE runs ADD COLUMN is_reoffered boolean NOT NULL DEFAULT false;
