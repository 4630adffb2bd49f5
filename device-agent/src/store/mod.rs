//! The device's own SQLite database: journal, services, settings.
