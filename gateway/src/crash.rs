//! Where a test can have a program die: right before and right after what must be neither lost nor done twice.
//!
//! Only with the feature `crash-points`, with which nobody but the fault harness builds. There `DESKGATE_CRASH_AT` names a
//! point and the how-manieth time it is passed, as in `after attempts::record 3`: the process kills itself then and there, as
//! by `kill -9`. In the file that `DESKGATE_CRASH_LOG` names stands each point that was passed, once, and the one that
//! struck. Without the feature nothing of this is in a program.

/// What follows is not done yet.
#[inline]
pub fn before(what: &str) {
    pass("before", what);
}

/// What it names is done, and nobody was told.
#[inline]
pub fn after(what: &str) {
    pass("after", what);
}

/// The name of a statement: what stands behind its first `--`.
#[inline]
pub fn statement(sql: &str) -> &str {
    match sql.strip_prefix("-- ") {
        Some(named) if cfg!(feature = "crash-points") => named.lines().next().unwrap_or_default().trim(),
        _ => "",
    }
}

/// The name of the function that a closure stands in: its module's last word and its own.
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
    use std::collections::BTreeMap;
    use std::io::Write;
    use std::sync::Mutex;

    static PASSED: Mutex<BTreeMap<String, u64>> = Mutex::new(BTreeMap::new());
    if what.is_empty() {
        return;
    }
    let point = format!("{when} {what}");
    let mut passed = PASSED.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let times = passed.entry(point.clone()).or_default();
    *times += 1;
    let strikes = std::env::var("DESKGATE_CRASH_AT").is_ok_and(|at| at == format!("{point} {times}"));
    if (*times == 1 || strikes)
        && let Ok(log) = std::env::var("DESKGATE_CRASH_LOG")
    {
        let word = if strikes { "struck" } else { "passed" };
        let file = std::fs::OpenOptions::new().append(true).create(true).open(log);
        // A harness that cannot read what struck does not count it.
        let _ = file.and_then(|mut file| writeln!(file, "{word} {point}"));
    }
    if strikes {
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
