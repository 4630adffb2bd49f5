//! The settings of gateways under load.

/// Settings that lift the limits, which are not what is measured.
pub const UNLIMITED_SETTINGS: [&str; 5] = [
    "limits.keys_per_application=1000",
    "limits.waiting_runs_per_application=100000000",
    "limits.requests_per_second=1000000",
    "limits.burst=1000000",
    "limits.streams_per_application=100000",
];
