-- The form in which a callback's receiver is told how runs ended.
ALTER TABLE destinations ADD COLUMN format text NOT NULL DEFAULT 'deskgate' CHECK (format IN ('deskgate', 'openai'));
