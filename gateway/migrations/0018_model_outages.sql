-- Since when the model of a running attempt cannot be used; null in nearly every row.
ALTER TABLE runs ADD COLUMN model_unavailable_since timestamptz;
