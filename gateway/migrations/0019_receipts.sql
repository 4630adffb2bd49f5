-- What the device signed about how a run ended, as a compact JWS. A foreign text: bounded, and judged by its readers.
ALTER TABLE runs ADD COLUMN receipt text CHECK (octet_length(receipt) <= 65536);
