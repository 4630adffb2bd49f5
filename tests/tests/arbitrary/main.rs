//! Arbitrary input: the judges of the fuzz targets (`fuzz/judges`), with their seeds and random mutations of them.

#[path = "../../../fuzz/bend.rs"]
mod bend;
#[path = "../../../fuzz/judges/mod.rs"]
mod judges;

/// Runs a target's judge with its seeds, and with this many mutated ones.
fn throw(target: &str, cases: u32, judge: fn(&[u8])) {
    bend::throw(target, cases, |bytes| {
        judge(bytes);
        Ok(())
    });
}

#[test]
fn a_frame_that_is_read_is_written_the_same_and_an_error_repeats_nothing() {
    throw("frames", 4000, judges::frames::judge);
}

#[test]
fn a_journal_that_a_bad_disk_changed_is_read_as_it_was_written_or_refused() {
    throw("journal", 400, judges::journal::judge);
}

#[test]
fn a_cursor_reads_back_in_its_own_list_only_however_it_is_bent() {
    throw("cursors", 4000, judges::cursors::judge);
}

#[test]
fn no_private_destination_is_let_through_in_whatever_form() {
    throw("destinations", 4000, judges::destinations::judge);
}

#[test]
fn a_signature_counts_exactly_when_the_secret_made_it() {
    throw("signatures", 2000, judges::signatures::judge);
}

#[test]
fn filter_and_mapping_decide_in_bounded_time_within_bounds_and_the_same_again() {
    throw("mapping", 2000, judges::mapping::judge);
}

#[test]
fn a_configuration_that_passes_its_check_can_be_lived_with_and_hides_its_password() {
    throw("configuration", 1000, judges::configuration::judge);
}

#[test]
fn a_balancer_names_a_client_only_in_a_whole_and_bounded_header() {
    throw("balancers", 4000, judges::balancers::judge);
}

#[test]
fn keys_are_taken_on_nobodys_word_and_no_error_repeats_a_secret() {
    throw("keys", 500, judges::keys::judge);
}

#[test]
fn only_what_a_device_signed_is_a_receipt_and_only_its_own_result_holds() {
    throw("receipts", 2000, judges::receipts::judge);
}

#[test]
fn whatever_tools_are_asked_to_open_lies_in_the_services_folder() {
    throw("paths", 300, judges::paths::judge);
}

#[test]
fn a_schema_and_its_data_are_refused_or_decided_in_bounded_time_and_the_same_again() {
    throw("schemas", 1000, judges::schemas::judge);
}
