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
        ok(&site.usual(), "for at in */.git; do touch $at/x 2>/dev/null && echo $at; done; ls -d */ | wc -l"),
        "256\n"
    );
    add(256);
    let opened = site.open(&site.path("in"), Network::None, CommandLimits::default());
    assert!(matches!(opened, Err(SandboxError::ManyPlaces(_))));
}

/// The names in the working directory.
fn names(site: &SandboxSite) -> Vec<String> {
    let names = std::fs::read_dir(site.path("in")).expect("stands");
    let mut names: Vec<_> =
        names.map(|entry| entry.expect("stands").file_name().into_string().expect("plain names")).collect();
    names.sort();
    names
}

#[test]
fn no_command_makes_what_programs_of_the_owner_run_and_git_does_not_list_what_stands_for_it() {
    let site = SandboxSite::new();
    let sandbox = site.usual();
    for name in deskgate_definition::PROTECTED_NAMES {
        let place = if name.ends_with('/') { format!("{name}file") } else { name.to_owned() };
        let bare = name.trim_end_matches('/');
        let attempts = format!(
            "(echo x >{place}) 2>/dev/null && echo written
             (rm -rf {bare}; mv {bare} old; ln -sf target {bare}; mkdir -p {bare} && echo x >{bare}/x) 2>/dev/null && echo replaced
             (touch other && mv -f other {bare}) 2>/dev/null && [ ! -d {bare} ] && echo moved; rm -f other; true"
        );
        assert_eq!(ok(&sandbox, &attempts), "", "{name}");
    }
    assert_eq!(names(&site), [""; 0], "nothing stands there when no command runs");
    // A repository whose owner has not ignored any of them.
    std::fs::create_dir_all(site.path("in/.git/objects")).expect("creates");
    std::fs::create_dir_all(site.path("in/.git/refs/heads")).expect("creates");
    std::fs::write(site.path("in/.git/HEAD"), "ref: refs/heads/main\n").expect("writes");
    std::fs::write(site.path("in/.envrc"), "export A=1\n").expect("writes");
    assert_eq!(ok(&sandbox, "git status --short"), "?? .envrc\n");
    assert_eq!(run(&sandbox, "echo B=2 >>.envrc").0.matches("Read-only file system").count(), 1);
    assert_eq!(text(&site, "in/.envrc"), "export A=1\n");
}

#[test]
fn what_a_command_makes_under_a_name_that_the_owner_protects_is_renamed_and_it_is_told() {
    let site = SandboxSite::new();
    let sandbox = site.usual();
    assert_eq!(run(&sandbox, "echo x >guarded").0.matches("Read-only file system").count(), 1, "at the top it stands");
    let said = ok(&sandbox, "mkdir -p sub/guarded && echo x >sub/guarded/a; ln -s a sub/Guarded; echo done");
    assert!(said.starts_with("done\n"), "{said}");
    assert!(
        said.contains("protects sub/guarded, which was not there") && said.contains("guarded.by-command-1"),
        "{said}"
    );
    assert!(site.path("in/sub/guarded").symlink_metadata().is_err());
    assert!(site.path("in/sub/Guarded").symlink_metadata().is_err(), "in whatever case");
    assert_eq!(text(&site, "in/sub/guarded.by-command-1/a"), "x\n");
    // What was there before is not touched: it is mounted from the next run on.
    std::fs::create_dir(site.path("in/sub/guarded")).expect("creates");
    assert_eq!(ok(&sandbox, "echo more; mkdir other"), "more\n");
    assert!(site.path("in/sub/guarded").is_dir());
}

#[test]
fn where_a_pattern_covers_a_whole_folder_what_is_made_there_comes_to_the_top() {
    let site = SandboxSite::new();
    std::fs::create_dir(site.path("in/docs")).expect("creates");
    let own = site.path("own");
    let patterns = ["docs/*".to_owned()];
    let directory = site.path("in");
    let options = WorkspaceOptions { protected: &patterns, ..WorkspaceOptions::of(&directory, &own) };
    let workspace = Arc::new(Workspace::open(options).expect("opens"));
    let sandbox = Sandbox::open(workspace, &own, Network::None, CommandLimits::default()).expect("a sandbox stands");
    let said = ok(&sandbox, "echo x >docs/a; echo y >docs/b");
    assert_eq!(said.matches("was renamed to by-command-").count(), 2, "{said}");
    assert_eq!(names(&site), ["by-command-1", "by-command-2", "docs"]);
    assert_eq!(std::fs::read_dir(site.path("in/docs")).expect("stands").count(), 0);
}
