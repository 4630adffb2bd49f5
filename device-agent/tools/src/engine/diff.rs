//! The difference that a change makes, for a person's decision.

use std::path::Path;
use std::time::Duration;

use similar::TextDiff;

use super::display;

/// The size limit of a difference with its notice, in bytes.
const MAX_DIFF_BYTES: usize = 64 * 1024;
/// Bytes reserved for the notice.
const NOTICE_RESERVE_BYTES: usize = 256;
/// After this time the difference may be longer than needed, but stays correct.
const DIFF_TIMEOUT: Duration = Duration::from_millis(500);
/// How many unchanged lines are shown around each change.
const CONTEXT_LINES: usize = 3;

/// The unified format. Characters that would hide something are escaped. A notice marks a cut.
pub(crate) fn unified(path: &Path, before: Option<&str>, after: &str) -> String {
    let name = display::name(path);
    let old = before.map_or("/dev/null".to_owned(), |_| format!("a/{name}"));
    let (before, after) = same_ends(before.unwrap_or_default(), after);
    // Only a line feed ends a line here: a carriage return in the middle should be visible.
    let lines = |text| str::split_inclusive(text, '\n').collect::<Vec<_>>();
    let (before, after) = (lines(&before), lines(&after));
    let differ = TextDiff::configure().timeout(DIFF_TIMEOUT).newline_terminated(true).diff_slices(&before, &after);
    let whole = differ.unified_diff().context_radius(CONTEXT_LINES).header(&old, &format!("b/{name}")).to_string();
    let mut text = String::new();
    let mut left = whole.lines().count();
    for line in whole.split_terminator('\n') {
        let line = display::visible(line);
        if text.len() + line.len() >= MAX_DIFF_BYTES - NOTICE_RESERVE_BYTES {
            return format!("{text}(the difference goes on for {left} more lines, which are not shown here)\n");
        }
        text.push_str(&line);
        text.push('\n');
        left -= 1;
    }
    text
}

/// Without carriage returns if every line of both has one: they would only be noise.
fn same_ends<'a>(before: &'a str, after: &'a str) -> (std::borrow::Cow<'a, str>, std::borrow::Cow<'a, str>) {
    let all = |text: &str| text.matches('\n').count() == text.matches("\r\n").count();
    if before.contains('\r') && all(before) && all(after) {
        return (before.replace("\r\n", "\n").into(), after.replace("\r\n", "\n").into());
    }
    (before.into(), after.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_is_shown_with_its_surroundings_and_a_new_file_as_such() {
        let text = unified(Path::new("a.txt"), Some("1\n2\n3\n4\n5\n6\n7\n8\n9\n"), "1\n2\n3\n4\nfive\n6\n7\n8\n9\n");
        assert_eq!(text, "--- a/a.txt\n+++ b/a.txt\n@@ -2,7 +2,7 @@\n 2\n 3\n 4\n-5\n+five\n 6\n 7\n 8\n");
        let text = unified(Path::new("new"), None, "one");
        assert_eq!(text, "--- /dev/null\n+++ b/new\n@@ -0,0 +1 @@\n+one\n\\ No newline at end of file\n");
    }

    #[test]
    fn nothing_is_hidden_by_characters_that_a_terminal_acts_on() {
        let text = unified(Path::new("a"), Some("x\n"), "\u{1b}[2Kx\u{202e}\r\ty\n");
        assert!(text.contains("+\\u{1b}[2Kx\\u{202e}\\r\ty\n"), "{text}");
        // The same line ends on both sides are left out; different ones are shown.
        assert!(!unified(Path::new("a"), Some("x\r\ny\r\n"), "x\r\nz\r\n").contains("\\r"));
        assert!(unified(Path::new("a"), Some("x\r\n"), "x\n").contains("-x\\r\n+x\n"));
    }

    #[test]
    fn a_difference_without_end_is_cut_and_says_so() {
        let text = unified(Path::new("a"), None, &"line\n".repeat(100_000));
        assert!(text.len() <= MAX_DIFF_BYTES && text.ends_with("more lines, which are not shown here)\n"));
        let wide = unified(Path::new("a"), None, &"x".repeat(5_000_000));
        assert!(wide.len() <= MAX_DIFF_BYTES && wide.contains("not shown"), "{}", wide.len());
    }
}
