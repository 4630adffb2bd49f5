-- Incoming webhooks, and what they last received.

CREATE TABLE webhooks (
    hook_id          uuid        PRIMARY KEY,
    app_id           uuid        NOT NULL REFERENCES applications,
    endpoint_id      uuid        NOT NULL REFERENCES endpoints,
    -- What its owner chose.
    settings         json        NOT NULL,
    enabled          boolean     NOT NULL DEFAULT true,
    -- Sealed; forgotten when the webhook is removed.
    secret           bytea,
    -- The one before, while it is good too.
    old_secret       bytea,
    old_secret_until timestamptz,
    created_at       timestamptz NOT NULL DEFAULT now(),
    updated_at       timestamptz NOT NULL DEFAULT now(),
    removed_at       timestamptz,
    CHECK ((old_secret IS NULL) = (old_secret_until IS NULL)),
    CHECK ((secret IS NULL) = (removed_at IS NOT NULL)),
    CHECK (removed_at IS NULL OR old_secret IS NULL)
);
CREATE INDEX webhooks_by_application ON webhooks (app_id, hook_id) WHERE removed_at IS NULL;

CREATE TABLE webhook_receipts (
    -- Sorts by time.
    receipt_id  uuid        PRIMARY KEY,
    hook_id     uuid        NOT NULL REFERENCES webhooks,
    received_at timestamptz NOT NULL DEFAULT now(),
    -- Whether its signature was good. Others are kept apart, so that they push out none.
    genuine     boolean     NOT NULL,
    outcome     text        NOT NULL CHECK (outcome IN ('accepted', 'ignored', 'refused', 'repeated')),
    reason      text,
    event_id    text,
    event_type  text,
    run_id      uuid,
    -- Only if the owner wants that, and cut.
    body        text,
    CHECK (genuine OR outcome = 'refused')
);
CREATE INDEX webhook_receipts_by_hook ON webhook_receipts (hook_id, receipt_id);
CREATE INDEX webhook_receipts_to_forget ON webhook_receipts (received_at);
