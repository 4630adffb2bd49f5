//! Checks that a device authenticates to no server with an unknown host key: neither in place of a pinned key, nor when
//! no key is known.

use super::{Observations, Violation};

pub(super) fn check(witnesses: &Observations) -> Vec<Violation> {
    let let_in = witnesses.evidence.impostor.iter();
    let_in
        .map(|line| Violation::of("host key", None, format!("a device went to a server that is not its own: {line}")))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::samples::texts;
    use super::*;

    #[test]
    fn a_device_that_goes_to_another_server_is_found() {
        let mut witnesses = Observations::default();
        assert_eq!(check(&witnesses), []);
        witnesses.evidence.impostor.push("Accepted publickey".to_owned());
        assert!(texts(&check(&witnesses)).contains("not its own: Accepted publickey"));
    }
}
