//! Owns the active runs; the only one who talks to `link`.
