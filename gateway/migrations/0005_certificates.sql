-- Certificates that a certificate authority issued for the public listener (ACME, RFC 8555), shared by all replicas.
-- Private keys are sealed with a key that is not in the database.

CREATE TABLE acme_accounts (
    directory_url text NOT NULL,
    contact text NOT NULL,
    -- The account's address and private key, sealed.
    sealed bytea NOT NULL,
    PRIMARY KEY (directory_url, contact)
);

-- One row for each set of domains (sorted, with commas) of an authority.
CREATE TABLE acme_certificates (
    directory_url text NOT NULL,
    domains text NOT NULL,
    -- The newest certificate with those between it and its root, PEM; nothing before the first.
    chain text,
    sealed_key bytea,
    valid_from timestamptz,
    valid_until timestamptz,
    -- Counts certificates, for whoever looks into it.
    version integer NOT NULL DEFAULT 0,
    -- Nobody orders before this time: one replica is at it, or the last order was not long ago.
    next_turn timestamptz NOT NULL,
    ordering boolean NOT NULL DEFAULT true,
    failures integer NOT NULL DEFAULT 0,
    problem text,
    PRIMARY KEY (directory_url, domains)
);

-- What an authority that asks about a domain must be shown, by whichever replica it reaches (RFC 8737).
CREATE TABLE acme_challenges (
    domain text PRIMARY KEY,
    digest bytea NOT NULL,
    expires_at timestamptz NOT NULL
);
