//! Protected paths below the top of the working directory, and the folders above them: no command moves them, and none
//! puts a link where a later sandbox is mounted.

use super::*;

fn text(site: &SandboxSite, name: &str) -> String {
    std::fs::read_to_string(site.path(name)).expect("stands")
}

#[test]
fn what_is_protected_below_a_subfolder_stays_where_it_is_and_as_it_is() {
    let site = SandboxSite::new();
    for place in ["in/deep/er/guarded", "in/vendor/lib/.git"] {
        std::fs::create_dir_all(site.path(place)).expect("creates");
        std::fs::write(site.path(place).join("file"), "as it was").expect("writes");
    }
    let sandbox = site.usual();
    let exchange = "mv deep old && mkdir -p deep/er/guarded
        mv deep/er deep/old && mkdir -p deep/er/guarded
        mv vendor/lib vendor/old && mkdir -p vendor/lib/.git
        rm -rf deep vendor
        true";
    ok(&sandbox, exchange);
    let change = "for at in $(find . -name file); do (echo changed >$at) 2>/dev/null && echo $at; done; true";
    assert_eq!(ok(&sandbox, change), "", "the next command can change none, wherever it is now");
    for place in ["in/deep/er/guarded/file", "in/vendor/lib/.git/file"] {
        assert_eq!(text(&site, place), "as it was");
    }
    ok(&sandbox, "echo new >deep/er/file && mkdir vendor/more && mv vendor/more vendor/other && rm -r vendor/other");
    assert_eq!(text(&site, "in/deep/er/file"), "new\n", "the folders themselves are the command's");
}

#[test]
fn below_tmp_no_command_leaves_a_link_that_leads_the_next_sandbox_out() {
    let site = SandboxSite::new();
    let folder = tempfile::tempdir_in("/tmp").expect("a folder");
    let directory = folder.path().join("deep/in");
    std::fs::create_dir_all(&directory).expect("creates");
    let sandbox = site.open(&directory, Network::None, CommandLimits::default()).expect("a sandbox stands");
    // The path at which bubblewrap has the computer's own files while it mounts.
    let outside = format!("/oldroot{}", site.path("out").display());
    let folder = folder.path().display();
    let plant = format!(
        "mv {folder}/deep {folder}/old; ln -s {outside} {folder}/deep; mv {folder} /tmp/old; ln -s {outside} {folder}; true"
    );
    ok(&sandbox, &plant);
    let _ = sandbox.run("true", COMMAND_TIMEOUT, &CancellationToken::new());
    let left: Vec<_> =
        std::fs::read_dir(site.path("out")).expect("stands").map(|e| e.expect("stands").file_name()).collect();
    assert_eq!(left, ["file"]);
    assert_eq!(
        ok(&sandbox, "pwd; echo new >file; cat file; echo mine >/tmp/note"),
        format!("{}\nnew\n", directory.display())
    );
    assert!(directory.join("file").exists());
}

#[test]
fn many_repositories_below_are_all_protected_and_too_many_are_a_reason_to_run_nothing() {
    let site = SandboxSite::new();
    let add = |number: usize| std::fs::create_dir_all(site.path(&format!("in/{number}/.git"))).expect("creates");
    (0..256).for_each(add);
    assert_eq!(
        ok(&site.usual(), "for at in */.git; do touch $at/x 2>/dev/null && echo $at; done; ls | wc -l"),
        "256\n"
    );
    add(256);
    let opened = site.open(&site.path("in"), Network::None, CommandLimits::default());
    assert!(matches!(opened, Err(SandboxError::ManyPlaces(_))));
}
