//! Names of files that somebody chose to do harm: refused, or safe wherever a name stands.

use std::path::{Component, Path};

use deskgate_protocol::file::{MAX_FILE_NAME_BYTES, check_file_name, unique_name};
use deskgate_protocol::hidden::hidden;

const NAMES: &[(&str, bool)] = &include!("list.rs");

#[test]
fn a_name_is_refused_with_a_reason_or_is_one_name_in_a_folder_and_on_one_line() {
    for (name, is_taken) in NAMES {
        let checked = check_file_name(name);
        assert_eq!(checked.is_ok(), *is_taken, "{name:?}: {checked:?}");
        match checked {
            Ok(()) => is_safe(name),
            // The reason is shown where the name would have been.
            Err(reason) => assert!(!reason.is_empty() && hidden(&reason).next().is_none(), "{name:?}: {reason:?}"),
        }
    }
}

#[test]
fn the_same_name_again_is_as_safe() {
    for (name, _) in NAMES.iter().filter(|(_, is_taken)| *is_taken) {
        let long = format!("{}{name}", "ä".repeat((MAX_FILE_NAME_BYTES - name.len()) / 2));
        for name in [*name, &long] {
            let again = unique_name(name, |other| other == name);
            assert_eq!(check_file_name(&again), Ok(()), "{name:?} became {again:?}");
            is_safe(&again);
        }
    }
}

fn is_safe(name: &str) {
    let path = Path::new("/folder").join(name);
    let parts: Vec<_> = path.components().skip(2).collect();
    assert_eq!(parts, [Component::Normal(name.as_ref())], "{name:?}");
    assert!(name.len() <= MAX_FILE_NAME_BYTES && !name.contains(['/', '\\']), "{name:?}");
    assert!(!name.chars().any(char::is_control) && name.lines().count() == 1, "{name:?}");
    assert_eq!(hidden(name).next(), None, "{name:?}");
}
