-- Requests for work whose client sends no Idempotency-Key, for ten minutes: the key that each was given here, and whether its
-- answer arrived. A client that was cut off, and asks the same again, is given the same key, and finds its run.
CREATE TABLE unkeyed_requests (
    idempotency_key text        PRIMARY KEY,
    -- Of application key, subject, call and body.
    digest          bytea       NOT NULL,
    made_at         timestamptz NOT NULL DEFAULT now(),
    -- When a gateway last said that the request is under way, or how it ended.
    seen_at         timestamptz NOT NULL DEFAULT now(),
    -- How it ended: its answer was written, or its connection was gone before. Null: it is under way, or its gateway is gone.
    is_answered     boolean
);
CREATE INDEX unkeyed_requests_by_digest ON unkeyed_requests (digest, made_at);
CREATE INDEX unkeyed_requests_to_forget ON unkeyed_requests (greatest(made_at, seen_at));
