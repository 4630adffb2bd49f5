//! End-to-end promises, with the real binaries.
