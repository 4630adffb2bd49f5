//! No tool turns a directory into a Git repository, not even step by step: Git would obey its settings and hooks.

use std::os::unix::fs::symlink;

use serde_json::json;

use super::*;

/// The parts that make a directory a Git repository: all of these, in any order.
const REPOSITORY_PARTS: [[&str; 3]; 6] = [
    ["HEAD", "objects/x", "refs/x"],
    ["HEAD", "refs/x", "objects/info/x"],
    ["objects/x", "HEAD", "refs/heads/main"],
    ["refs/x", "HEAD", "objects/x"],
    ["objects/x", "refs/x", "HEAD"],
    ["refs/x", "objects/pack/x/y", "HEAD"],
];

fn piece(path: &str) -> Value {
    json!({ "file_path": path, "content": "ref: refs/heads/main\n" })
}

#[tokio::test]
async fn the_piece_that_would_complete_a_repository_is_refused_and_everything_else_is_written() {
    for base in ["", "sub/", "sub/deep/"] {
        for pieces in REPOSITORY_PARTS {
            let place = place();
            let inside = place.path().join("in");
            let at = |piece: &str| format!("{base}{piece}");
            for path in &pieces[..2] {
                ok(&inside, "Write", piece(&at(path))).await;
            }
            ok(&inside, "Write", piece(&at("config"))).await;
            let before = tree(&inside);
            let third = piece(&at(pieces[2]));
            let planned = toolbox(&inside).plan("Write", &third).expect("a tool").await.expect_err("refused");
            assert!(planned.text.contains("would become a Git repository"), "{}", planned.text);
            assert_eq!(refused(&inside, "Write", third).await, planned.text, "{pieces:?}");
            assert_eq!(tree(&inside), before);
            // The same names side by side in one new directory are only names.
            ok(&inside, "Write", piece(&at("other/HEAD/objects/refs"))).await;
        }
    }
}

#[tokio::test]
async fn a_repository_that_lives_elsewhere_in_part_or_is_spelt_otherwise_is_one_too() {
    let place = place();
    let inside = place.path().join("in");
    for (there, coming) in [
        (vec!["a/commondir"], "a/HEAD"),
        (vec!["b/HEAD"], "b/commondir"),
        (vec!["c/objects/x", "c/refs/x"], "c/head"),
        (vec!["d/HEAD", "d/refs/x"], "d/Objects/x"),
        (vec!["e/HEAD", "e/refs/x"], "e/obj\u{200d}ects./x"),
    ] {
        there.iter().for_each(|path| write(&inside.join(path), "../x\n"));
        assert!(refused(&inside, "Write", piece(coming)).await.contains("Git repository"), "{coming}");
    }
    // Git follows links to its parts.
    write(&inside.join("f/store/x"), "x");
    symlink("store", inside.join("f/objects")).expect("links");
    symlink("store", inside.join("f/refs")).expect("links");
    assert!(refused(&inside, "Write", piece("f/HEAD")).await.contains("Git repository"));
}

#[tokio::test]
async fn a_working_directory_that_became_a_repository_during_the_run_is_left_alone() {
    let place = place();
    let inside = place.path().join("in");
    let toolbox = toolbox(&inside);
    let write_config = || toolbox.call("Write", piece("config"), CancellationToken::new());
    for path in ["HEAD", "objects/x", "refs/x"] {
        write(&inside.join(path), "x");
    }
    let output = write_config().await.expect("stands");
    assert!(output.is_error && output.text.contains("version control"), "{}", output.text);
}

#[tokio::test]
async fn two_calls_at_once_do_not_complete_one_either() {
    let place = place();
    let (mut one, mut none) = (0, 0);
    for round in 0..150 {
        let inside = place.path().join(format!("in/{round}"));
        write(&inside.join("refs/x"), "x");
        let (a, b) = (toolbox(&inside), toolbox(&inside));
        let (a, b) = (
            tokio::spawn(a.call("Write", piece("HEAD"), CancellationToken::new())),
            tokio::spawn(b.call("Write", piece("objects/x"), CancellationToken::new())),
        );
        let made = [a, b].map(|call| async { !call.await.expect("no panic").expect("stands").is_error });
        let made = futures_util::future::join_all(made).await.into_iter().filter(|made| *made).count();
        assert_eq!(["HEAD", "objects/x"].into_iter().filter(|name| inside.join(name).exists()).count(), made);
        match made {
            1 => one += 1,
            0 => none += 1,
            _ => panic!("a repository was made"),
        }
    }
    assert!(one > 0, "{one} rounds left one piece, {none} none");
}
