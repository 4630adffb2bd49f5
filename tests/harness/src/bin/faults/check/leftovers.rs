//! I27: no bytes are left that nobody knows, neither on a device nor at the gateways, and all are there that somebody does.

use super::{Observations, Violation};

pub(super) fn check(witnesses: &Observations) -> Vec<Violation> {
    let evidence = &witnesses.evidence;
    evidence.copies.iter().chain(&evidence.objects).map(|flaw| Violation::of("I27", None, flaw.clone())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_on_a_device_and_an_object_that_nobody_knows_are_found() {
        let mut witnesses = Observations::default();
        assert_eq!(check(&witnesses), []);
        witnesses.evidence.copies.push("a copy".to_owned());
        witnesses.evidence.objects.push("an object".to_owned());
        assert_eq!(check(&witnesses).len(), 2);
    }
}
