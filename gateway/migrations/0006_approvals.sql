-- Approvals that runs wait for, and outcomes that a restarted device cannot tell.

-- All three are null in nearly every row, so that an acceptance writes nothing more than before.
ALTER TABLE runs
    -- The request that is open at the device; kept while the run is in doubt or being stopped, for the device
    -- does not send again what was acknowledged.
    ADD open_approval   uuid,
    -- From when its time to execute counts, if not from its start: until then it may wait for the open request, or
    -- waited for the last one; or it began again then.
    ADD waited_until    timestamptz,
    -- The newest attempt of which its device said that it does not know what it changed.
    ADD unknown_attempt integer,
    ADD CONSTRAINT what_awaits_approval_has_a_request CHECK (state <> 'awaiting_approval' OR open_approval IS NOT NULL);
