-- An invitation gives its device one control token, again until the device has used it.

-- The token, encrypted, for a device whose answer got lost; and its digest, by which its first use is seen.
ALTER TABLE invitations ADD COLUMN token_sealed bytea;
ALTER TABLE invitations ADD COLUMN token_digest bytea;
-- When the device first came with that token. From then on the invitation is of no use.
ALTER TABLE invitations ADD COLUMN paired_at timestamptz;
CREATE INDEX invitations_to_pair ON invitations (token_digest) WHERE paired_at IS NULL AND token_digest IS NOT NULL;
