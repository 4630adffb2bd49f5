-- Of which host key a device was last told through the gateway's own SSH listener: the announced one, or else the one
-- that is shown; its fingerprint, as `ssh-keygen -l` prints it. 'sshd': it came in through the server's own sshd, whose key
-- is another. Who replaces the key learns from it whom that would lock out.
ALTER TABLE devices ADD COLUMN told_host_key text;
