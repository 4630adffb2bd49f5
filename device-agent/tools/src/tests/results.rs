//! The results of the tools on ordinary files and on unusual ones.

use std::time::{Duration, SystemTime};

use serde_json::json;

use super::*;

fn folder(files: &[(&str, &str)]) -> TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    for (name, text) in files {
        write(&folder.path().join(name), text);
    }
    folder
}

#[tokio::test]
async fn read_numbers_lines_and_goes_on_where_it_was_told_to() {
    let text: String = (1..=2500).map(|n| format!("line {n}\r\n")).collect();
    let folder = folder(&[("a.txt", &text), ("last.txt", "one\ntwo")]);
    let read = |arguments| ok(folder.path(), "Read", arguments);
    let first = read(json!({ "file_path": "a.txt" })).await;
    assert!(first.starts_with("     1\tline 1\n     2\tline 2\n"), "{}", &first[..60]);
    assert!(
        first.ends_with("  2000\tline 2000\n\n(lines 1 to 2000 are shown and more follow: go on with offset 2001)")
    );
    let second = read(json!({ "file_path": "a.txt", "offset": 2001 })).await;
    assert!(second.starts_with("  2001\tline 2001\n") && second.ends_with("  2500\tline 2500"));
    let some = read(json!({ "file_path": "a.txt", "offset": 7, "limit": 2 })).await;
    assert_eq!(some, "     7\tline 7\n     8\tline 8\n\n(lines 7 to 8 are shown and more follow: go on with offset 9)");
    // Exactly to the end: no further line and no notice.
    assert_eq!(read(json!({ "file_path": "last.txt", "limit": 2 })).await, "     1\tone\n     2\ttwo");
    let beyond = refused(folder.path(), "Read", json!({ "file_path": "last.txt", "offset": 3 })).await;
    assert_eq!(beyond, "The file has 2 lines; there is no line 3.");
}

#[tokio::test]
async fn read_cuts_long_lines_and_long_outputs_and_says_so() {
    let folder = folder(&[
        ("long.txt", &format!("{}\nshort\n", "é".repeat(9000))),
        ("wide.txt", &format!("{}\n", "x".repeat(1500)).repeat(100)),
    ]);
    let long = ok(folder.path(), "Read", json!({ "file_path": "long.txt" })).await;
    assert_eq!(long, format!("     1\t{}… [line cut]\n     2\tshort", "é".repeat(2000)));
    let wide = ok(folder.path(), "Read", json!({ "file_path": "wide.txt" })).await;
    assert!(
        wide.len() <= 64 * 1024 && wide.contains("more follow: go on with offset 43)"),
        "{}",
        &wide[wide.len() - 90..]
    );
}

#[tokio::test]
async fn read_says_what_is_wrong_with_a_file_that_has_no_text() {
    let folder = folder(&[("empty", ""), ("sub/file", "x")]);
    write(&folder.path().join("nul"), b"text\0text");
    write(&folder.path().join("picture.PNG"), b"\x89PNG\r\n\x1a\nmore");
    write(&folder.path().join("torn.jpg"), b"\0torn");
    write(&folder.path().join("paper.pdf"), b"%PDF-1.7\n");
    write(&folder.path().join("noise"), [0xff, 0xfe, 0x80, 0x81].repeat(100));
    write(&folder.path().join("latin1"), b"caf\xe9 au lait, s'il vous pla\xeet\n");
    assert_eq!(ok(folder.path(), "Read", json!({ "file_path": "empty" })).await, "(The file is empty.)");
    assert!(ok(folder.path(), "Read", json!({ "file_path": "latin1" })).await.contains("caf\u{fffd} au lait"));
    for (path, because) in [
        ("picture.PNG", "an image, which the model of this service does not read"),
        ("torn.jpg", "a damaged image"),
        ("paper.pdf", "a PDF document, which the model of this service does not read"),
        ("nul", "binary"),
        ("noise", "binary"),
        ("sub", "Use Glob"),
        ("sub/file/x", "not a directory"),
        ("none/x", "directory does not exist"),
    ] {
        let told = refused(folder.path(), "Read", json!({ "file_path": path })).await;
        assert!(told.contains(because), "{path}: {told}");
    }
}

#[tokio::test]
async fn read_suggests_the_name_that_was_meant() {
    let folder = folder(&[("docs/handbook.md", ""), ("docs/other.md", "")]);
    let told = refused(folder.path(), "Read", json!({ "file_path": "docs/handbok.md" })).await;
    assert!(told.ends_with("Did you mean docs/handbook.md?"), "{told}");
}

#[tokio::test]
async fn a_huge_file_is_read_from_its_beginning_and_its_depths_are_left_to_grep() {
    let folder = folder(&[]);
    let path = folder.path().join("huge.log");
    write(&path, "first\nsecond\n");
    // A hole of a terabyte behind two lines: loading it would end the process.
    std::fs::OpenOptions::new().write(true).open(&path).expect("opens").set_len(1 << 40).expect("grows");
    write(&folder.path().join("text.log"), format!("{}\n", "0123456789abcdef".repeat(1000)).repeat(4000));
    let beginning = ok(folder.path(), "Read", json!({ "file_path": "text.log", "limit": 1 })).await;
    assert!(beginning.starts_with("     1\t0123456789abcdef"));
    let told = refused(folder.path(), "Read", json!({ "file_path": "text.log", "offset": 3999 })).await;
    assert!(told.contains("50 MiB") && told.contains("Grep"), "{told}");
    assert!(refused(folder.path(), "Read", json!({ "file_path": "huge.log" })).await.contains("binary"));
    // Grep skips it as binary as well, without scanning the hole; and it searches the other to its end.
    let count = ok(folder.path(), "Grep", json!({ "pattern": "^[0-9a-f]+$", "output_mode": "count" })).await;
    assert_eq!(count, "text.log:4000");
}

#[tokio::test]
async fn grep_has_three_modes_and_the_switches_of_its_namesake() {
    let folder = folder(&[("a.rs", "one\nTwo\nthree\nfour two\n"), ("b.md", "two\n"), ("c.md", "none\n")]);
    let grep = |arguments| ok(folder.path(), "Grep", arguments);
    assert_eq!(grep(json!({ "pattern": "two" })).await, "a.rs\nb.md");
    assert_eq!(grep(json!({ "pattern": "two", "-i": true, "output_mode": "count" })).await, "a.rs:2\nb.md:1");
    assert_eq!(grep(json!({ "pattern": "two", "output_mode": "content" })).await, "a.rs:4:four two\nb.md:1:two");
    assert_eq!(
        grep(json!({ "pattern": "two", "type": "rust", "output_mode": "content", "-n": false })).await,
        "a.rs:four two"
    );
    assert_eq!(grep(json!({ "pattern": "two", "glob": "*.md" })).await, "b.md");
    assert_eq!(grep(json!({ "pattern": "two", "glob": "!*.md" })).await, "a.rs");
    assert_eq!(
        grep(json!({ "pattern": "Two", "output_mode": "content", "-C": 1 })).await,
        "a.rs-1-one\na.rs:2:Two\na.rs-3-three"
    );
    assert_eq!(
        grep(json!({ "pattern": "one|four", "output_mode": "content", "-A": 0, "-B": 1, "path": "a.rs" })).await,
        "a.rs:1:one\n--\na.rs-3-three\na.rs:4:four two"
    );
    assert_eq!(
        grep(json!({ "pattern": "one.Two", "multiline": true, "output_mode": "content" })).await,
        "a.rs:1:one\na.rs:2:Two"
    );
    assert_eq!(grep(json!({ "pattern": "one\nTwo", "multiline": true, "output_mode": "count" })).await, "a.rs:2");
    assert_eq!(grep(json!({ "pattern": "zebra" })).await, "(no matches found)");
    assert!(refused(folder.path(), "Grep", json!({ "pattern": "x", "type": "klingon" })).await.contains("type"));
    assert!(refused(folder.path(), "Grep", json!({ "pattern": "a\nb" })).await.contains("regular expression"));
}

#[tokio::test]
async fn grep_stops_at_its_limit_and_says_so() {
    let folder =
        folder(&[("a.txt", &"match\n".repeat(1000)), ("b.txt", &format!("{}\n", "x".repeat(900)).repeat(200))]);
    let grep = |arguments| ok(folder.path(), "Grep", arguments);
    let default = grep(json!({ "pattern": "match", "output_mode": "content" })).await;
    assert!(default.ends_with("a.txt:250:match\n\n(cut after 250 lines: there may be more)"));
    let three = grep(json!({ "pattern": "match", "output_mode": "content", "head_limit": 3 })).await;
    assert_eq!(three.lines().count(), 5, "{three}");
    let all = grep(json!({ "pattern": "match", "output_mode": "content", "head_limit": 0 })).await;
    assert!(all.ends_with("a.txt:1000:match"));
    let wide = grep(json!({ "pattern": "x", "output_mode": "content", "head_limit": 0, "path": "b.txt" })).await;
    assert!(wide.len() <= 64 * 1024 && wide.contains("(cut after"));
}

#[tokio::test]
async fn ignored_and_hidden_files_are_skipped_as_ripgrep_skips_them() {
    let folder = folder(&[
        (".gitignore", "target/\n*.log\n!keep.log\n/only-here\n"),
        ("sub/.gitignore", "local.txt\n"),
        (".ignore", "extra.txt\n"),
        ("a.txt", "x"),
        ("extra.txt", "x"),
        ("noise.log", "x"),
        ("keep.log", "x"),
        ("only-here", "x"),
        ("sub/only-here", "x"),
        ("sub/local.txt", "x"),
        ("sub/deep/local.txt", "x"),
        ("sub/deep/noise.log", "x"),
        ("target/built.txt", "x"),
        (".hidden/a.txt", "x"),
        (".git/config", "x"),
    ]);
    let grep = |arguments| ok(folder.path(), "Grep", arguments);
    assert_eq!(grep(json!({ "pattern": "x" })).await, "a.txt\nkeep.log\nsub/only-here");
    // Rules from above apply to a walk that begins below.
    assert_eq!(grep(json!({ "pattern": "x", "path": "sub" })).await, "sub/only-here");
    assert_eq!(ok(folder.path(), "Glob", json!({ "pattern": "*", "path": "sub/deep" })).await, "(no files found)");
    // A file that is named directly is searched in any case.
    assert_eq!(grep(json!({ "pattern": "x", "path": "noise.log" })).await, "noise.log");
    assert_eq!(ok(folder.path(), "Glob", json!({ "pattern": ".hidden/*" })).await, ".hidden/a.txt");
    assert_eq!(ok(folder.path(), "Glob", json!({ "pattern": ".git/*" })).await, "(no files found)");
}

#[tokio::test]
async fn glob_lists_the_newest_first_and_says_how_many_there_are() {
    let folder = tempfile::tempdir().expect("a folder");
    let base = SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000);
    for n in 0..130_u64 {
        let path = folder.path().join(format!("d{}/f{n}.txt", n % 3));
        write(&path, "x");
        let file = std::fs::OpenOptions::new().write(true).open(&path).expect("opens");
        file.set_modified(base + Duration::from_secs(n)).expect("sets the time");
    }
    let listed = ok(folder.path(), "Glob", json!({ "pattern": "*.txt" })).await;
    let lines: Vec<_> = listed.lines().collect();
    assert_eq!(lines[..3], ["d0/f129.txt", "d2/f128.txt", "d1/f127.txt"]);
    assert_eq!(lines[99..], ["d0/f30.txt", "", "(the newest 100 of 130 files: use a narrower pattern or path)"]);
    let two = ok(folder.path(), "Glob", json!({ "pattern": "d[01]/f{1,3}.txt" })).await;
    assert_eq!(two, "d0/f3.txt\nd1/f1.txt");
    assert!(refused(folder.path(), "Glob", json!({ "pattern": "" })).await.contains("empty"));
}

#[tokio::test]
async fn the_schemas_name_exactly_the_parameters_that_are_taken() {
    let folder = folder(&[("a.txt", "x\n")]);
    let toolbox = toolbox(folder.path());
    for spec in toolbox.specs() {
        assert_eq!(spec.parameters["additionalProperties"], false);
        let mut arguments = serde_json::Map::new();
        for (name, property) in spec.parameters["properties"].as_object().expect("properties") {
            let value = match (name.as_str(), property["type"].as_str()) {
                ("output_mode", _) => json!("content"),
                ("type", _) => json!("txt"),
                ("path", _) if spec.name == "Glob" => json!("."),
                ("old_string", _) => json!("x"),
                ("new_string", _) => json!("y"),
                (_, Some("string")) => json!("a.txt"),
                (_, Some("integer")) => json!(1),
                (_, Some("boolean")) => json!(true),
                other => panic!("{other:?}"),
            };
            arguments.insert(name.clone(), value);
        }
        let stop = CancellationToken::new();
        let output = toolbox.call(&spec.name, arguments.clone().into(), stop).await.expect("stands");
        assert!(!output.is_error, "{}: {}", spec.name, output.text);
        arguments.insert("surprise".into(), json!(1));
        assert!(refused(folder.path(), &spec.name, arguments.into()).await.contains("surprise"));
    }
}
