//! Checks that no tool reads beside its folder, by any path that the model uses.

use super::{Observations, Violation};

pub(super) fn check(witnesses: &Observations) -> Vec<Violation> {
    let shown = witnesses.turns.iter().filter(|turn| turn.is_shown);
    let text = |job: &str| format!("{job} showed its model a file that lies beside the folder");
    shown.map(|turn| Violation::of("folder", turn.begun, text(&turn.job))).collect()
}

#[cfg(test)]
mod tests {
    use super::super::samples::texts;
    use super::*;
    use crate::testbed::fake_model::ModelTurn;

    #[test]
    fn a_model_that_was_shown_what_lies_beside_is_found() {
        let told = |is_shown| {
            let turn = ModelTurn { job: "j".to_owned(), is_shown, ..ModelTurn::default() };
            Observations { turns: vec![turn], ..Observations::default() }
        };
        assert_eq!(check(&told(false)), []);
        assert!(texts(&check(&told(true))).contains("j showed its model a file"));
    }
}
