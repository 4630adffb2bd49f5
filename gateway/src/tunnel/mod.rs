//! SSH: paired devices come in here, and each yields one byte stream.
