//! What a command prints: text for people, or one JSON object with its schema's name.

use serde::Serialize;
use serde_json::{Value, json};

use deskgate_protocol::Timestamp;

use crate::exit::Failure;
use crate::look::{Cell, Look, Tone, painted};
use crate::terminal;

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

    /// Tells why a command failed, on stderr: its message for people, an object with the schema `error/1` for programs.
    pub fn failure(self, failure: &Failure) {
        let Failure { exit, message } = failure;
        if self.json {
            terminal::report_json(
                &json!({ "schema": "error/1", "code": exit.as_str(), "exit": *exit as u8, "message": message }),
            );
        } else if !message.is_empty() {
            terminal::report(message);
        }
    }
}

/// Columns, each as wide as its widest cell. A cell is one line: what would break it is made visible. On a terminal times are ages,
/// identifiers short, and states have colours.
pub fn table<C: Into<Cell>>(heading: &[&str], rows: Vec<Vec<C>>) -> String {
    let rows = rows.into_iter().map(|row| row.into_iter().map(Into::into).collect()).collect();
    laid_out(heading, rows, Look::current(), Timestamp::now())
}

fn laid_out(heading: &[&str], rows: Vec<Vec<Cell>>, look: Look, now: Timestamp) -> String {
    let shown = |cell: &Cell| (cell.text(look, now), cell.tone());
    let head = heading.iter().map(|name| ((*name).to_owned(), Some(Tone::Quiet))).collect();
    let lines: Vec<Vec<_>> =
        std::iter::once(head).chain(rows.iter().map(|row| row.iter().map(shown).collect())).collect();
    let width = |column: usize| {
        let cells = lines.iter().filter_map(|line| line.get(column)).map(|(text, _)| text.chars().count());
        cells.max().unwrap_or(0)
    };
    let widths: Vec<_> = (0..heading.len()).map(width).collect();
    let mut text = String::new();
    for line in lines {
        // Nothing stands behind the last cell that has a text.
        let filled = line.iter().rposition(|(text, _)| !text.is_empty()).map_or(0, |last| last + 1);
        let cells = line.iter().zip(&widths).take(filled).enumerate().map(|(column, ((text, tone), width))| {
            let room = if column + 1 < filled { width - text.chars().count() } else { 0 };
            painted(text, *tone, look) + &" ".repeat(room)
        });
        text += &(cells.collect::<Vec<_>>().join("  ") + "\n");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_is_exact_in_a_pipe_and_short_on_a_terminal() {
        let now = "2026-11-21T12:00:00Z".parse::<Timestamp>().expect("a time");
        let row = || {
            let id = Cell::id("run_0192a7c41f3b7d2e8a90b1c2d3e4a4f7");
            vec![Cell::toned("failed", Tone::Failed), Cell::from(now), Cell::from("two\nlines"), id, Cell::from("")]
        };
        let heading = ["STATE", "WHEN", "ASKED", "ID", "NOTE"];
        let exact = laid_out(&heading, vec![row()], Look::EXACT, now);
        let line = |cells: [&str; 5]| {
            let [state, when, asked, id, note] = cells;
            format!("{state:6}  {when:24}  {asked:16}  {id:36}  {note}").trim_end().to_owned() + "\n"
        };
        let id = "run_0192a7c41f3b7d2e8a90b1c2d3e4a4f7";
        assert_eq!(exact, line(heading) + &line(["failed", "2026-11-21T12:00:00.000Z", "two<U+000A>lines", id, ""]));
        let short = laid_out(&heading, vec![row()], Look { is_short: true, has_colours: false }, now);
        assert_eq!(short, "STATE   WHEN  ASKED             ID     NOTE\nfailed  now   two<U+000A>lines  …a4f7\n");
    }
}
