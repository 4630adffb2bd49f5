-- A desktop's list of deliveries, newest first: by each of its applications, past nobody else's.
CREATE INDEX deliveries_by_application ON deliveries (app_id, delivery_id);
