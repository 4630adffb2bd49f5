-- Invitations of devices by the administrator.

CREATE TABLE invitations (
    invitation_id uuid PRIMARY KEY,
    -- What the administrator calls it.
    note text,
    -- Of the secret that the invited device shows, which is kept nowhere.
    secret_digest bytea NOT NULL UNIQUE,
    -- The SSH key by which it gets through the tunnel, as OpenSSH writes it.
    tunnel_key text NOT NULL UNIQUE,
    created_at timestamptz NOT NULL DEFAULT now(),
    expires_at timestamptz NOT NULL,
    -- The device that came with it last: its key, its name, its version, and when.
    public_key text,
    device_name text,
    device_version text,
    came_at timestamptz,
    -- The administrator's one answer.
    confirmed_at timestamptz,
    refused_at timestamptz,
    CHECK (confirmed_at IS NULL OR refused_at IS NULL),
    CHECK (confirmed_at IS NULL OR public_key IS NOT NULL)
);
CREATE INDEX invitations_by_age ON invitations (created_at);
