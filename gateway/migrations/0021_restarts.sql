-- How often a run that had begun was begun again. Callers see one more as its `attempt`, once it began at all. The column
-- `attempt` numbers offers, refused ones too, so that no frame about one can be taken for another.
ALTER TABLE runs ADD COLUMN restarts integer NOT NULL DEFAULT 0;
-- What callers were told before stays. What a restore added to the number was never an offer.
UPDATE runs SET restarts = attempt % 1000000 - 1 WHERE started_at IS NOT NULL AND attempt % 1000000 > 1;

-- The journal that the device named last.
ALTER TABLE devices ADD COLUMN journal_id uuid;
-- The one that it had at the time of the backup that was restored, until it comes with another one: what that journal never
-- had did not begin since.
ALTER TABLE devices ADD COLUMN restored_journal_id uuid;
