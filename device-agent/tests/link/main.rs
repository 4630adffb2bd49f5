//! The link against real servers: the gateway's own SSH listener, and OpenSSH's sshd.

#![allow(unreachable_pub)] // helpers of a test binary: nothing outside can reach them anyway

mod attack;
mod balancer;
mod host_key;
mod hosted;
mod hostile;
mod openssh_client;
mod openssh_server;
mod own_tunnel;
mod retry;
mod session;
mod sign_in;
mod speed;
mod support;
