//! A stop interrupts a search at any point, and skipped parts are reported.

use std::time::{Duration, Instant};

use serde_json::json;

use super::*;

/// Waits until this process has read some of a file, which is open for reading.
async fn until_it_is_read(path: &Path) {
    let begun = || {
        let open = std::fs::read_dir("/proc/self/fd").expect("listed").filter_map(Result::ok);
        let ours = open.filter(|entry| std::fs::read_link(entry.path()).is_ok_and(|target| target == path));
        ours.map(|entry| Path::new("/proc/self/fdinfo").join(entry.file_name())).any(|info| {
            let info = std::fs::read_to_string(info).unwrap_or_default();
            info.strip_prefix("pos:").is_some_and(|rest| !rest.trim_start().starts_with("0\n"))
        })
    };
    while !begun() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// Ones and zeros that repeat nowhere soon: no automaton of bounded size remembers which follow which.
fn noise(bytes: usize) -> Vec<u8> {
    let mut state = 88_172_645_463_325_252_u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        b'0' + (state >> 33 & 1) as u8
    };
    (0..bytes).map(|_| next()).collect()
}

#[tokio::test]
async fn a_search_that_is_stopped_answers_at_once_however_slow_its_pattern_is_on_its_lines() {
    let place = place();
    let inside = place.path().join("in").canonicalize().expect("there");
    let lines = noise(4 << 20).chunks(1 << 18).map(|line| [line, b"\n"].concat()).collect::<Vec<_>>().concat();
    for (file, text) in [("lines.txt", lines), ("line.txt", noise(4 << 20))] {
        let path = inside.join(file);
        write(&path, text);
        let stop = CancellationToken::new();
        let arguments = json!({ "pattern": "(?-u)1[01]{20}x", "path": file });
        let call = tokio::spawn(toolbox(&inside).call("Grep", arguments, stop.clone()));
        until_it_is_read(&path).await;
        assert!(!call.is_finished(), "it takes longer than that");
        let since = Instant::now();
        stop.cancel();
        let output = call.await.expect("no panic").expect("stands");
        let took = since.elapsed();
        assert!(output.is_error && output.text.contains("stopped"), "{}", output.text);
        // A hundredth of this on an idle computer.
        assert!(took < Duration::from_millis(500), "{file}: {took:?}");
    }
}

#[tokio::test]
async fn a_line_without_an_end_is_searched_up_to_a_bound_which_is_said_and_the_next_ones_as_ever() {
    let place = place();
    let inside = place.path().join("in");
    let long = [b"first ".to_vec(), vec![b'x'; 3 << 20], b" last\nneedle\n".to_vec()].concat();
    write(&inside.join("long.txt"), &long);
    write(&inside.join("short.txt"), "last\n");
    let grep = |pattern: &str| {
        let arguments = json!({ "pattern": pattern, "output_mode": "content", "head_limit": 9 });
        let inside = inside.clone();
        async move { ok(&inside, "Grep", arguments).await }
    };
    let said = "(1 files have lines of more than 1 MiB: no more of each was searched)";
    assert_eq!(grep("needle").await, format!("long.txt:2:needle\n\n{said}"));
    assert_eq!(grep("last").await, format!("short.txt:1:last\n\n{said}"));
    assert!(grep("^first").await.starts_with("long.txt:1:first xxx"));
    // Across lines the whole file is searched.
    let arguments = json!({ "pattern": "last\nneedle", "multiline": true, "output_mode": "count" });
    assert_eq!(ok(&inside, "Grep", arguments).await, "long.txt:2");
}
