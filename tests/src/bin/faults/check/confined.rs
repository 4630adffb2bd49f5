//! No tool reads what lies beside its folder, by whatever path the model asks for it.

use super::{Violation, Witnesses};

pub(super) fn check(witnesses: &Witnesses) -> Vec<Violation> {
    let shown = witnesses.turns.iter().filter(|turn| turn.is_shown);
    let text = |job: &str| format!("{job} showed its model a file that lies beside the folder");
    shown.map(|turn| Violation::of("folder", turn.begun, text(&turn.job))).collect()
}

#[cfg(test)]
mod tests {
    use super::super::told::texts;
    use super::*;
    use crate::scene::model::Turn;

    #[test]
    fn a_model_that_was_shown_what_lies_beside_is_found() {
        let told = |is_shown| {
            let turn = Turn { job: "j".to_owned(), is_shown, ..Turn::default() };
            Witnesses { turns: vec![turn], ..Witnesses::default() }
        };
        assert_eq!(check(&told(false)), []);
        assert!(texts(&check(&told(true))).contains("j showed its model a file"));
    }
}
