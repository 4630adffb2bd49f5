//! The private server's configuration: durable, small, quick to recover, closed to the network.

use std::path::Path;

/// The settings, given on the command line at each start so that none can be left over in a file.
pub(super) fn settings(socket_dir: &Path) -> Vec<String> {
    let mut settings: Vec<String> = SERVER_SETTINGS.iter().map(|(name, value)| format!("{name}={value}")).collect();
    settings.push(format!("unix_socket_directories={}", quoted(socket_dir)));
    settings
}

/// The access rules: the account we run as, authenticated by the kernel; and with its password the account that is made
/// for one restore, and no other has one. TCP has no line.
pub(super) const PG_HBA: &str = "# Written by Deskgate at each start; changes are lost.\n\
    local all deskgate peer map=deskgate\n\
    local all all scram-sha-256\n";

/// The map that [`PG_HBA`] names: this account of the system is the database's one user.
pub(super) fn pg_ident(account_name: &str) -> String {
    let name = account_name.replace('"', "\"\"");
    format!("# Written by Deskgate at each start; changes are lost.\ndeskgate \"{name}\" {}\n", super::USER_NAME)
}

const SERVER_SETTINGS: &[(&str, &str)] = &[
    ("cluster_name", "deskgate"),
    ("listen_addresses", ""),
    ("port", super::SOCKET_PORT_TEXT),
    ("unix_socket_permissions", "0700"),
    ("max_connections", "100"),
    // A run answered with 202 must survive a power cut.
    ("fsync", "on"),
    ("full_page_writes", "on"),
    ("synchronous_commit", "on"),
    // The server has no replicas, and backups are dumps.
    ("wal_level", "minimal"),
    ("max_wal_senders", "0"),
    // Recycled segments make commits cheap; the upper bound keeps recovery after a crash short.
    ("min_wal_size", "128MB"),
    ("max_wal_size", "512MB"),
    ("wal_buffers", "4MB"),
    // The number of commits at the same time follows what a sync takes.
    ("track_wal_io_timing", "on"),
    ("shared_buffers", "128MB"),
    ("work_mem", "4MB"),
    ("maintenance_work_mem", "32MB"),
    ("max_worker_processes", "2"),
    // Parallel workers need /dev/shm, which containers keep at 64 MB; our queries are small.
    ("max_parallel_workers_per_gather", "0"),
    ("max_parallel_maintenance_workers", "0"),
    ("jit", "off"),
    // The rows of queue tables are replaced all day.
    ("autovacuum_naptime", "15s"),
    ("timezone", "UTC"),
    // The log is a stream that the gateway bounds. Statements, their parameters and the DETAIL
    // lines that repeat a row's values stay out of it.
    ("logging_collector", "off"),
    ("log_destination", "stderr"),
    ("log_timezone", "UTC"),
    ("log_line_prefix", "%m [%p] "),
    ("log_checkpoints", "off"),
    ("log_min_messages", "warning"),
    ("log_min_error_statement", "panic"),
    ("log_parameter_max_length_on_error", "0"),
    ("log_error_verbosity", "terse"),
];

/// A path as an element of a list setting, where commas separate and quotes protect.
fn quoted(path: &Path) -> String {
    format!("\"{}\"", path.display().to_string().replace('"', "\"\""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_with_quotes_and_commas_stay_one_name() {
        assert_eq!(quoted(Path::new("/run/a,b\"c")), "\"/run/a,b\"\"c\"");
        assert!(pg_ident("o\"dd name").contains("deskgate \"o\"\"dd name\" deskgate\n"));
    }
}
