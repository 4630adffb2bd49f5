//! The table on screen, and in `target/hostile`.

use std::path::Path;

use anyhow::Context;
use deskgate_harness::report::machine;
use serde_json::json;

use crate::behaviour::{Row, visible};

/// How wide a cell of the table may be, in characters.
const MAX_CELL_CHARS: usize = 60;

/// Writes the table, and says whether every behaviour was delivered and none had an effect.
pub(crate) fn write(rows: &[Row], folder: &Path) -> anyhow::Result<bool> {
    let text = table(rows);
    print!("{text}");
    let path = folder.join("table.txt");
    std::fs::write(&path, &text).with_context(|| path.display().to_string())?;
    let path = folder.join("results.json");
    let results = json!({ "machine": machine(), "behaviours": rows });
    std::fs::write(&path, serde_json::to_string_pretty(&results)?).with_context(|| path.display().to_string())?;
    Ok(!rows.is_empty() && rows.iter().all(Row::holds))
}

/// The whole table, with its sums at the end.
fn table(rows: &[Row]) -> String {
    let mut text = String::new();
    for row in rows {
        let came = match &row.evidence {
            Ok(evidence) => shown(evidence),
            Err(error) => format!("NOT DELIVERED: {}", shown(error)),
        };
        text += &format!("{:<8} {:<58} {:>6} ms  {came}\n", row.side, row.name, row.took_ms);
        for effect in &row.effects {
            text += &format!("{:<8} EFFECT: {}\n", "", visible(effect));
        }
    }
    for side in ["gateway", "device"] {
        let rows: Vec<_> = rows.iter().filter(|row| row.side == side).collect();
        if rows.is_empty() {
            continue;
        }
        let missing = rows.iter().filter(|row| row.evidence.is_err()).count();
        let effects = rows.iter().filter(|row| !row.effects.is_empty()).count();
        text += &format!(
            "hostile {side}: {} behaviours tried, {missing} not delivered, {effects} had an effect\n",
            rows.len()
        );
    }
    text
}

/// A cell: one line, cut.
fn shown(text: &str) -> String {
    let text = visible(text);
    match text.char_indices().nth(MAX_CELL_CHARS) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(evidence: Result<String, String>, effects: &[&str]) -> Row {
        let effects = effects.iter().map(|text| (*text).to_owned()).collect();
        Row { side: "device", name: "n".into(), promise: "p".into(), evidence, effects, took_ms: 1 }
    }

    #[test]
    fn a_table_counts_what_was_not_delivered_and_what_had_an_effect() {
        let rows =
            [row(Ok("answered".into()), &[]), row(Err("silent".into()), &[]), row(Ok(String::new()), &["a\u{1b}b"])];
        let text = table(&rows);
        assert!(text.contains("3 behaviours tried, 1 not delivered, 1 had an effect"), "{text}");
        assert!(text.contains("EFFECT: a·b") && text.contains("NOT DELIVERED: silent"), "{text}");
        assert_eq!(rows.iter().filter(|row| row.holds()).count(), 1);
    }
}
