-- Devices that announce their sleep.

-- Since when the newest session's device sleeps, as it announced; null while it is awake, or away without a word.
ALTER TABLE devices ADD COLUMN asleep_since timestamptz;
