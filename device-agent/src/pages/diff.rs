//! Differences as they are shown: lines with their numbers, and the words that changed in them.

use serde::Deserialize;
use similar::{ChangeTag, TextDiff};

use deskgate_program::visible;

/// Lines that are longer get no marks: looking for words in them takes time.
const MAX_MARKED_LINE_BYTES: usize = 2_000;
/// Lines that share less than this get no marks: everything in them would be marked.
const MIN_SHARED: f32 = 0.4;
/// The bytes of a page that a row takes beside its text.
const ROW_BYTES: usize = 80;
/// The most pairs of lines that are marked in one difference.
const MAX_MARKED_PAIRS: usize = 200;

/// A difference in the unified format, read.
#[derive(Debug, Default)]
pub(super) struct Difference {
    pub(super) rows: Vec<DiffRow>,
    /// How many lines it adds ...
    pub(super) added: usize,
    /// ... and removes.
    pub(super) removed: usize,
    /// Where the two layouts are chosen, if they can be.
    pub(super) layouts: Option<Layouts>,
}

/// How a difference is laid out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum DiffLayout {
    /// What goes above what comes.
    #[default]
    Unified,
    /// Before at the left, afterwards at the right.
    Split,
}

/// A line as it was beside the line as it will be.
pub(super) struct Sides<'a> {
    /// What stands for both sides, and is no line of either.
    pub(super) across: Option<&'a DiffRow>,
    /// Before and afterwards; `None` where there is nothing.
    pub(super) lines: [Option<Side<'a>>; 2],
}

/// A line on one side, with its number there.
#[derive(Clone, Copy)]
pub(super) struct Side<'a> {
    pub(super) number: Option<usize>,
    pub(super) row: &'a DiffRow,
}

impl<'a> Side<'a> {
    fn before(row: &'a DiffRow) -> Option<Self> {
        Some(Self { number: row.old, row })
    }

    fn after(row: &'a DiffRow) -> Option<Self> {
        Some(Self { number: row.new, row })
    }
}

/// The addresses of a page's two layouts, and which it has.
#[derive(Clone, Debug)]
pub(super) struct Layouts {
    pub(super) chosen: DiffLayout,
    pub(super) unified: String,
    pub(super) split: String,
}

impl Layouts {
    /// Those of a page whose address ends in `query` (such as `decided=true`, or nothing) and `place` (`#…`, or nothing).
    pub(super) fn of(chosen: DiffLayout, query: &str, place: &str) -> Self {
        let and = if query.is_empty() { "" } else { "&" };
        let unified = if query.is_empty() { format!("?diff=unified{place}") } else { format!("?{query}{place}") };
        Self { chosen, unified, split: format!("?{query}{and}diff=split{place}") }
    }
}

/// One row.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct DiffRow {
    pub(super) kind: RowKind,
    /// The line's number before; `None` for one that is new.
    pub(super) old: Option<usize>,
    /// Its number afterwards; `None` for one that goes.
    pub(super) new: Option<usize>,
    pub(super) parts: Vec<DiffPart>,
}

/// What a row is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RowKind {
    Same,
    Added,
    Removed,
    /// Lines without change that are not shown, or a remark about the file.
    Skip,
    /// What says that the difference goes on.
    Cut,
}

/// A part of a line.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct DiffPart {
    pub(super) text: String,
    /// Whether it is what changed in the line.
    pub(super) is_marked: bool,
}

impl DiffRow {
    fn new(kind: RowKind, old: Option<usize>, new: Option<usize>, text: &str) -> Self {
        let text = visible::line(text.strip_suffix('\r').unwrap_or(text));
        Self { kind, old, new, parts: vec![DiffPart { text, is_marked: false }] }
    }

    /// The class of the style sheet.
    pub(super) fn class(&self) -> &'static str {
        match self.kind {
            RowKind::Same => "same",
            RowKind::Added => "add",
            RowKind::Removed => "del",
            RowKind::Skip => "skip-lines",
            RowKind::Cut => "cut-off",
        }
    }

    /// The sign before the line, so that colour does not tell alone.
    pub(super) fn sign(&self) -> &'static str {
        match self.kind {
            RowKind::Same => "",
            RowKind::Added => "+",
            RowKind::Removed => "−",
            RowKind::Skip => "⋯",
            RowKind::Cut => "!",
        }
    }

    fn text(&self) -> &str {
        self.parts.first().map_or("", |part| &part.text)
    }
}

impl Difference {
    /// Reads a difference as [`PlanPreview::Change`](crate::local::PlanPreview) has it.
    pub(super) fn read(text: &str) -> Self {
        let mut difference = Self::default();
        let (mut old, mut new) = (0, 0);
        for line in text.trim_end_matches('\n').split('\n') {
            let row = match line.as_bytes().first() {
                // The header names the file, which stands above.
                _ if difference.rows.is_empty()
                    && old + new == 0
                    && (line.starts_with("--- ") || line.starts_with("+++ ")) =>
                {
                    continue;
                }
                Some(b'@') => {
                    let [from, to] = begins_at(line);
                    let skipped = from.saturating_sub(old.max(1));
                    (old, new) = (from, to);
                    if skipped == 0 {
                        continue;
                    }
                    let text = if skipped == 1 {
                        "1 line without change".to_owned()
                    } else {
                        format!("{skipped} lines without change")
                    };
                    DiffRow::new(RowKind::Skip, None, None, &text)
                }
                Some(b'+') => {
                    difference.added += 1;
                    new += 1;
                    DiffRow::new(RowKind::Added, None, Some(new - 1), &line[1..])
                }
                Some(b'-') => {
                    difference.removed += 1;
                    old += 1;
                    DiffRow::new(RowKind::Removed, Some(old - 1), None, &line[1..])
                }
                Some(b' ') => {
                    (old, new) = (old + 1, new + 1);
                    DiffRow::new(RowKind::Same, Some(old - 1), Some(new - 1), &line[1..])
                }
                Some(b'(') => DiffRow::new(RowKind::Cut, None, None, line),
                _ => DiffRow::new(RowKind::Skip, None, None, line.trim_start_matches("\\ ")),
            };
            difference.rows.push(row);
        }
        difference.mark_words();
        difference
    }

    /// Whether what was stands beside what will be.
    pub(super) fn is_split(&self) -> bool {
        self.layouts.as_ref().is_some_and(|layouts| layouts.chosen == DiffLayout::Split)
    }

    /// The rows side by side: what goes beside what comes in its place.
    pub(super) fn sides(&self) -> Vec<Sides<'_>> {
        let (mut sides, mut at) = (Vec::new(), 0);
        while at < self.rows.len() {
            let count =
                |from: usize, kind: RowKind| self.rows[from..].iter().take_while(|row| row.kind == kind).count();
            let removed = count(at, RowKind::Removed);
            let added = count(at + removed, RowKind::Added);
            if removed + added == 0 {
                let row = &self.rows[at];
                sides.push(match row.kind {
                    RowKind::Skip | RowKind::Cut => Sides { across: Some(row), lines: [None; 2] },
                    _ => Sides { across: None, lines: [Side::before(row), Side::after(row)] },
                });
                at += 1;
            }
            let (old, new) = (&self.rows[at..at + removed], &self.rows[at + removed..at + removed + added]);
            let lines = (0..removed.max(added))
                .map(|place| [old.get(place).and_then(Side::before), new.get(place).and_then(Side::after)]);
            sides.extend(lines.map(|lines| Sides { across: None, lines }));
            at += removed + added;
        }
        sides
    }

    /// Whether the difference goes on where it ends here.
    pub(super) fn goes_on(&self) -> bool {
        self.rows.last().is_some_and(|row| row.kind == RowKind::Cut)
    }

    /// At most so many rows, for a preview; and how many are left out.
    pub(super) fn cut(mut self, rows: usize) -> (Self, usize) {
        let left_out = self.rows.len().saturating_sub(rows);
        self.rows.truncate(rows);
        (self, left_out)
    }

    /// About how many bytes of a page it takes.
    pub(super) fn page_bytes(&self) -> usize {
        self.rows
            .iter()
            .map(|row| ROW_BYTES + row.parts.iter().map(|part| html_bytes(&part.text) + 11).sum::<usize>())
            .sum()
    }

    /// Marks the words that changed where lines were replaced one for one.
    fn mark_words(&mut self) {
        let (mut at, mut pairs) = (0, 0);
        while at < self.rows.len() {
            let count =
                |from: usize, kind: RowKind| self.rows[from..].iter().take_while(|row| row.kind == kind).count();
            let removed = count(at, RowKind::Removed);
            let added = count(at + removed, RowKind::Added);
            for place in at..at + removed.min(added) {
                if pairs == MAX_MARKED_PAIRS {
                    return;
                }
                pairs += 1;
                self.mark_pair(place, place + removed);
            }
            at += (removed + added).max(1);
        }
    }

    fn mark_pair(&mut self, removed: usize, added: usize) {
        let (before, after) = (self.rows[removed].text(), self.rows[added].text());
        if before.len().max(after.len()) > MAX_MARKED_LINE_BYTES {
            return;
        }
        let words = TextDiff::from_words(before, after);
        if words.ratio() < MIN_SHARED {
            return;
        }
        let (mut old, mut new): (Vec<DiffPart>, Vec<DiffPart>) = (Vec::new(), Vec::new());
        for change in words.iter_all_changes() {
            let is_marked = change.tag() != ChangeTag::Equal;
            let takes = |parts: &mut Vec<DiffPart>| match parts.last_mut() {
                Some(last) if last.is_marked == is_marked => last.text += change.value(),
                _ => parts.push(DiffPart { text: change.value().to_owned(), is_marked }),
            };
            if change.tag() != ChangeTag::Insert {
                takes(&mut old);
            }
            if change.tag() != ChangeTag::Delete {
                takes(&mut new);
            }
        }
        (self.rows[removed].parts, self.rows[added].parts) = (old, new);
    }
}

/// How many bytes a text takes in a page: some of its characters are written as five.
pub(super) fn html_bytes(text: &str) -> usize {
    text.len() + 4 * text.bytes().filter(|byte| b"<>&\"'".contains(byte)).count()
}

/// Where a hunk begins before and afterwards: `@@ -2,7 +2,7 @@`.
fn begins_at(line: &str) -> [usize; 2] {
    let number = |sign: char| {
        let digits = line.split(sign).nth(1).unwrap_or_default();
        let digits: String = digits.chars().take_while(char::is_ascii_digit).collect();
        digits.parse().unwrap_or(0)
    };
    [number('-'), number('+')]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str) -> Vec<String> {
        let number = |number: Option<usize>| number.map(|number| number.to_string()).unwrap_or_default();
        let part = |part: &DiffPart| if part.is_marked { format!("[{}]", part.text) } else { part.text.clone() };
        let row = |row: &DiffRow| {
            let text: String = row.parts.iter().map(part).collect();
            format!("{}/{}{} {text}", number(row.old), number(row.new), row.sign())
        };
        Difference::read(text).rows.iter().map(row).collect()
    }

    #[test]
    fn lines_have_their_numbers_and_changed_words_are_marked() {
        let text = "--- a/x\n+++ b/x\n@@ -3,4 +3,5 @@\n three\n-the sum is 12 EUR\n+the sum is 21 EUR\n+due now\n five\n@@ -20 +21 @@\n-a\n+b\n\\ No newline at end of file\n";
        let expected = [
            "/⋯ 2 lines without change",
            "3/3 three",
            "4/− the sum is [12] EUR",
            "/4+ the sum is [21] EUR",
            "/5+ due now",
            "5/6 five",
            "/⋯ 14 lines without change",
            "20/− a",
            "/21+ b",
            "/⋯ No newline at end of file",
        ];
        assert_eq!(shown(text), expected);
        let difference = Difference::read(text);
        assert_eq!((difference.added, difference.removed), (3, 2));
        let (cut, left_out) = difference.cut(4);
        assert_eq!((cut.rows.len(), left_out), (4, 6));
    }

    #[test]
    fn side_by_side_what_goes_stands_beside_what_comes_in_its_place() {
        let text = "@@ -3,4 +3,5 @@\n three\n-four\n+vier\n+due\n five\n-six\n";
        let difference = Difference::read(text);
        let side = |side: Option<Side<'_>>| side.map_or("-".to_owned(), |side| side.row.text().to_owned());
        let mut sides = difference.sides().into_iter();
        assert_eq!(sides.next().and_then(|sides| sides.across).map(DiffRow::text), Some("2 lines without change"));
        let sides: Vec<_> = sides.map(|sides| sides.lines.map(side)).collect();
        let expected = [["three", "three"], ["four", "vier"], ["-", "due"], ["five", "five"], ["six", "-"]];
        assert_eq!(sides, expected);
        let layouts = Layouts::of(DiffLayout::Split, "decided=true", "#apr_1");
        assert_eq!(
            (layouts.unified.as_str(), layouts.split.as_str()),
            ("?decided=true#apr_1", "?decided=true&diff=split#apr_1")
        );
        let layouts = Layouts::of(DiffLayout::Unified, "", "");
        assert_eq!((layouts.unified.as_str(), layouts.split.as_str()), ("?diff=unified", "?diff=split"));
    }

    #[test]
    fn a_new_file_is_lines_that_are_added_also_where_they_look_like_signs() {
        let text = "--- /dev/null\n+++ b/x\n@@ -0,0 +1,3 @@\n+one\n+++ two\n+@@ three\n";
        assert_eq!(shown(text), ["/1+ one", "/2+ ++ two", "/3+ @@ three"]);
        let same = " --- x";
        assert_eq!(shown(&format!("@@ -1 +1,2 @@\n{same}\n+-- y\n")), ["1/1 --- x", "/2+ -- y"]);
    }

    #[test]
    fn lines_that_share_little_and_long_ones_are_not_marked() {
        assert_eq!(shown("@@ -1 +1 @@\n-abc def\n+uvw xyz\n"), ["1/− abc def", "/1+ uvw xyz"]);
        let long = "word ".repeat(1_000);
        let rows = shown(&format!("@@ -1 +1 @@\n-{long}a\n+{long}b\n"));
        assert!(rows.iter().all(|row| !row.contains('[')));
        let cut = Difference::read(
            "@@ -0,0 +1,9 @@\n+a\n(the difference goes on for 8 more lines, which are not shown here)\n",
        );
        assert!(cut.goes_on() && cut.rows[1].sign() == "!");
    }
}
