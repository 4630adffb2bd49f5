//! Crash points: tests let a program die right before and right after an effect that must be neither lost nor done
//! twice.
//!
//! Only with the feature `crash-points`, which only the fault harness builds. In the folder that `CRASH_POINTS_DIR`
//! names, a process notes each point once, when it first passes it, in `PID.passed`. When it reaches the point named in
//! `PID.armed`, such as `after attempts::record`, it kills itself as by `kill -9`, and the file is renamed to
//! `PID.struck`. Without the feature, a program contains none of this.

/// A point before `what` is done.
#[inline]
pub fn before(what: &str) {
    pass("before", what);
}

/// A point after `what` is done and before anybody is notified.
#[inline]
pub fn after(what: &str) {
    pass("after", what);
}

/// The name of a statement: the text after its first `--`.
#[inline]
pub fn statement(sql: &str) -> &str {
    match sql.strip_prefix("-- ") {
        Some(named) if cfg!(feature = "crash-points") => named.lines().next().unwrap_or_default().trim(),
        _ => "",
    }
}

/// The name of the function that contains a closure: its module's last name and its own.
#[inline]
pub fn function<F>(_: &F) -> String {
    if cfg!(feature = "crash-points") { short(std::any::type_name::<F>()) } else { String::new() }
}

fn short(type_name: &str) -> String {
    let mut depth = 0;
    let mut plain = String::new();
    for c in type_name.chars() {
        match c {
            '<' => depth += 1,
            '>' => depth -= 1,
            c if depth == 0 => plain.push(c),
            _ => {}
        }
    }
    let words: Vec<_> = plain.split("::").filter(|word| !word.is_empty() && *word != "{{closure}}").collect();
    words[words.len().saturating_sub(2)..].join("::")
}

#[cfg(not(feature = "crash-points"))]
#[inline]
fn pass(_: &str, _: &str) {}

#[cfg(feature = "crash-points")]
fn pass(when: &str, what: &str) {
    use std::collections::BTreeSet;
    use std::io::Write;
    use std::path::PathBuf;
    use std::sync::{LazyLock, Mutex, PoisonError};

    static POINTS_DIR: LazyLock<Option<PathBuf>> =
        LazyLock::new(|| std::env::var_os("CRASH_POINTS_DIR").map(PathBuf::from));
    static PASSED_POINTS: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
    let Some(folder) = POINTS_DIR.as_ref().filter(|_| !what.is_empty()) else { return };
    let point = format!("{when} {what}");
    let own = |ending: &str| folder.join(format!("{}.{ending}", std::process::id()));
    if PASSED_POINTS.lock().unwrap_or_else(PoisonError::into_inner).insert(point.clone()) {
        let file = std::fs::OpenOptions::new().append(true).create(true).open(own("passed"));
        // A point that cannot be noted is never armed.
        let _ = file.and_then(|mut file| writeln!(file, "{point}"));
    }
    let is_armed = std::fs::read_to_string(own("armed")).is_ok_and(|armed| armed.trim() == point);
    if is_armed && std::fs::rename(own("armed"), own("struck")).is_ok() {
        let _ = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL);
        loop {
            std::thread::park();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_are_named_by_what_is_done_there() {
        let name = "deskgate::store::journal::<impl deskgate::store::Store>::finish::{{closure}}::{{closure}}";
        assert_eq!(short(name), "journal::finish");
        assert_eq!(short("one"), "one");
    }
}
