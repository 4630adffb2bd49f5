//! The device key: made once, kept in a 0600 file, shown never.
