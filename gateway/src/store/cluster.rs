//! A private PostgreSQL cluster of our own.
