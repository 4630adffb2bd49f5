-- Devices of a hosted gateway belong to an account of its issuer. A device without one was paired by the administrator.

ALTER TABLE devices
    ADD COLUMN account_issuer  text,
    ADD COLUMN account_subject text,
    ADD CHECK ((account_issuer IS NULL) = (account_subject IS NULL));

-- How many an account has.
CREATE INDEX devices_by_account ON devices (account_issuer, account_subject) WHERE account_issuer IS NOT NULL;
