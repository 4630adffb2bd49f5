//! Names that a person or a model may have meant.

/// Up to three of `names` that resemble `wanted`, best first.
pub(crate) fn similar(wanted: &str, names: impl Iterator<Item = String>) -> Vec<String> {
    let wanted = wanted.to_lowercase();
    let mut scored: Vec<_> =
        names.filter_map(|name| distance(&wanted, &name.to_lowercase()).map(|far| (far, name))).collect();
    scored.sort();
    scored.into_iter().take(3).map(|(_, name)| name).collect()
}

/// The distance of two lower-case names; `None` if they have nothing in common.
fn distance(wanted: &str, name: &str) -> Option<usize> {
    let stem = |name: &str| name.rsplit_once('.').map_or(name.to_owned(), |(stem, _)| stem.to_owned());
    if wanted.is_empty() || name.len() > 255 || wanted.len() > 255 {
        None
    } else if stem(wanted) == stem(name) {
        Some(0)
    } else {
        let edits = edits(wanted, name);
        let close = edits <= wanted.chars().count().div_ceil(4);
        let part = wanted.len() >= 3 && name.len() >= 3 && (name.contains(wanted) || wanted.contains(name));
        (close || part).then_some(edits)
    }
}

/// The Levenshtein distance: insertions, deletions and replacements.
fn edits(from: &str, to: &str) -> usize {
    let to: Vec<char> = to.chars().collect();
    let mut row: Vec<usize> = (0..=to.len()).collect();
    for (i, a) in from.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, b) in to.iter().enumerate() {
            let replaced = diagonal + usize::from(a != *b);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[to.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn among(wanted: &str) -> Vec<String> {
        similar(wanted, ["README.md", "main.rs", "maintenance.txt", "zebra"].map(str::to_owned).into_iter())
    }

    #[test]
    fn a_slip_another_ending_or_a_part_of_a_name_is_found() {
        assert_eq!(among("readme.txt"), ["README.md"]);
        assert_eq!(among("READNE.md"), ["README.md"]);
        assert_eq!(among("main"), ["main.rs", "maintenance.txt"]);
        assert_eq!(among("quite-another"), [] as [&str; 0]);
    }

    #[test]
    fn edits_are_counted() {
        assert_eq!(edits("kitten", "sitting"), 3);
        assert_eq!(edits("", "abc"), 3);
        assert_eq!(edits("same", "same"), 0);
    }
}
