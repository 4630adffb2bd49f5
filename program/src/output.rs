//! What a command prints: text for people, or one JSON object with its schema's name.

use serde::Serialize;
use serde_json::{Value, json};

use crate::{terminal, visible};

/// How a command prints.
#[derive(Clone, Copy, Debug)]
pub struct Output {
    /// Whether to print JSON for programs.
    pub json: bool,
    /// Whether to print failures only.
    pub quiet: bool,
}

impl Output {
    /// Prints a result: `text` for people, `value` under `schema` for programs.
    pub fn result(self, schema: &str, value: &impl Serialize, text: impl FnOnce() -> String) {
        if self.json {
            let mut object = json!({ "schema": schema });
            match serde_json::to_value(value) {
                Ok(Value::Object(members)) => {
                    if let Value::Object(object) = &mut object {
                        object.extend(members);
                    }
                }
                Ok(other) => object["value"] = other,
                // Every printed value consists of text, numbers and lists.
                Err(error) => object["error"] = error.to_string().into(),
            }
            terminal::print_json(&object);
        } else if !self.quiet {
            terminal::print(text().trim_end());
        }
    }
}

/// Columns, each as wide as its widest cell. A cell is one line: what would break it is made visible.
pub fn table(heading: &[&str], rows: &[Vec<String>]) -> String {
    let rows: Vec<Vec<String>> = rows.iter().map(|row| row.iter().map(|cell| visible::line(cell)).collect()).collect();
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count());
        cells.chain([heading[column].len()]).max().unwrap_or(0)
    };
    let widths: Vec<_> = (0..heading.len()).map(width).collect();
    let line = |cells: Vec<&str>| {
        let padded: Vec<_> = cells.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}")).collect();
        padded.join("  ").trim_end().to_owned() + "\n"
    };
    let mut text = line(heading.to_vec());
    for row in &rows {
        text += &line(row.iter().map(String::as_str).collect());
    }
    text
}
