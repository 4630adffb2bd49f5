//! Keeps the walls between the rooms: reads who names whom, and fails on an arrow that is not allowed.
//!
//! The rules are in `rules.rs`; ARCHITECTURE.md says why they are as they are.

mod planted;
mod references;
mod rules;
mod words;

use std::path::{Path, PathBuf};

use references::{Reference, references};
use rules::{CRATES, CrateRules, ENTRY_MODULES, IMPURE_STD_MODULES, PURITY_RULES, ROOT_MODULES};

/// Checks one file, and says for each forbidden arrow: where, what, and which rule.
/// `dependencies` are the crates its package may name.
fn check(part: &CrateRules, file: &str, text: &str, dependencies: &[String]) -> Vec<String> {
    let module = module_of(part, file);
    let room = match module.first() {
        Some(room) => room.as_str(),
        None if file.ends_with("/main.rs") => "main",
        None => "lib",
    };
    let arrows = part.rooms.iter().find(|(name, _)| *name == room).map(|(_, arrows)| *arrows);
    let mut broken = Vec::new();
    if arrows.is_none() && !ROOT_MODULES.contains(&room) && !part.rooms.is_empty() {
        broken.push(format!("{file}:1: the room \"{room}\" has no rules; add them to tests/tests/walls/rules.rs"));
    }
    for mut reference in references(text, &module) {
        if reference.path[0] == part.own_crate {
            "crate".clone_into(&mut reference.path[0]);
        }
        let rule = forbidden_arrow(part, room, arrows, &reference)
            .or_else(|| forbidden_crate(part, room, &reference))
            .or_else(|| impurity(file, &reference, dependencies));
        if let Some(rule) = rule {
            broken.push(format!("{file}:{}: {room} names {}: {rule}", reference.line, reference.path.join("::")));
        }
    }
    broken
}

/// `gateway/src/http/runs.rs` is `["http", "runs"]`; the roots are empty.
fn module_of(part: &CrateRules, file: &str) -> Vec<String> {
    let inside = file.trim_start_matches(part.folder).trim_start_matches("/src/").trim_end_matches(".rs");
    let inside = inside.strip_suffix("/mod").unwrap_or(inside);
    if ROOT_MODULES.contains(&inside) { Vec::new() } else { inside.split('/').map(str::to_owned).collect() }
}

fn forbidden_arrow(part: &CrateRules, room: &str, arrows: Option<&[&str]>, reference: &Reference) -> Option<String> {
    let arrows = arrows?;
    let (first, inside) = reference.path.split_first()?;
    if first != "crate" {
        return None;
    }
    let Some(target) = inside.first().filter(|target| part.rooms.iter().any(|(name, _)| name == target)) else {
        return Some("the composition root knows all and is known by none".to_owned());
    };
    if target == room || arrows.iter().any(|arrow| begins_with(inside, arrow)) {
        return None;
    }
    if ENTRY_MODULES.contains(&room) && ENTRY_MODULES.contains(&target.as_str()) {
        return Some("doors never import each other".to_owned());
    }
    let known = if arrows.is_empty() { "nobody else".to_owned() } else { arrows.join(", ") };
    Some(format!("{room} may know {known}"))
}

fn begins_with(path: &[String], prefix: &str) -> bool {
    let mut path = path.iter();
    prefix.split("::").all(|step| path.next().is_some_and(|own| own == step))
}

fn forbidden_crate(part: &CrateRules, room: &str, reference: &Reference) -> Option<String> {
    let keeper =
        part.owned_crates.iter().find(|keeper| keeper.crates.iter().any(|kept| begins_with(&reference.path, kept)))?;
    // A root may call its own module of that name; what it may not do is import the crate.
    let is_own_room = ROOT_MODULES.contains(&room) && part.rooms.iter().any(|(name, _)| *name == reference.path[0]);
    (!keeper.rooms.contains(&room) && !is_own_room).then(|| keeper.rule.to_owned())
}

fn impurity(file: &str, reference: &Reference, dependencies: &[String]) -> Option<String> {
    let pure = PURITY_RULES.iter().find(|pure| file.starts_with(pure.files))?;
    let (first, inside) = reference.path.split_first()?;
    let is_allowed = match first.as_str() {
        "std" => inside.first().is_none_or(|step| !IMPURE_STD_MODULES.contains(&step.as_str())),
        "crate" => pure.modules.is_empty() || pure.modules.iter().any(|allowed| begins_with(inside, allowed)),
        other => pure.crates.contains(&other) || !dependencies.iter().any(|dependency| dependency == other),
    };
    (!is_allowed).then(|| pure.rule.to_owned())
}

/// The names under `[dependencies]`, as they are written in code.
fn dependencies(manifest: &str) -> Vec<String> {
    let own = manifest.lines().skip_while(|line| line.trim() != "[dependencies]").skip(1);
    own.take_while(|line| !line.starts_with('['))
        .filter_map(|line| line.split(['.', '=', ' ']).next().filter(|name| !name.is_empty()))
        .map(|name| name.replace('-', "_"))
        .collect()
}

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).expect("a folder of the repository") {
        let path = entry.expect("readable").path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

#[test]
fn no_room_knows_more_than_it_may() {
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the repository");
    let mut broken = Vec::new();
    for part in &CRATES {
        let folder = repository.join(part.folder);
        let manifest = std::fs::read_to_string(folder.join("Cargo.toml")).expect("a package");
        let dependencies = dependencies(&manifest);
        let mut files = Vec::new();
        sources(&folder.join("src"), &mut files);
        files.sort();
        assert!(!files.is_empty() && !dependencies.is_empty(), "the check sees {}", part.folder);
        for path in files {
            let name = path.strip_prefix(repository).expect("inside").to_str().expect("UTF-8").to_owned();
            broken.extend(check(part, &name, &std::fs::read_to_string(&path).expect("text"), &dependencies));
        }
    }
    assert!(broken.is_empty(), "forbidden arrows:\n{}\n", broken.join("\n"));
}

/// The room that an arrow leads to: `domain::devices` leads to `domain`.
fn target(arrow: &'static str) -> &'static str {
    arrow.split("::").next().unwrap_or(arrow)
}

/// A circle among the rooms of a table, if there is one: each knows the next, and the last the first.
fn circle(rooms: &[(&'static str, &'static [&'static str])]) -> Option<Vec<&'static str>> {
    fn visit(
        room: &'static str,
        rooms: &[(&'static str, &'static [&'static str])],
        way: &mut Vec<&'static str>,
        done: &mut Vec<&'static str>,
    ) -> Option<Vec<&'static str>> {
        if let Some(at) = way.iter().position(|passed| *passed == room) {
            return Some(way[at..].to_vec());
        }
        if done.contains(&room) {
            return None;
        }
        way.push(room);
        let arrows = rooms.iter().find(|(name, _)| *name == room).map_or(&[][..], |(_, arrows)| arrows);
        let found = arrows.iter().find_map(|arrow| visit(target(arrow), rooms, way, done));
        way.pop();
        done.push(room);
        found
    }
    rooms.iter().find_map(|(room, _)| visit(room, rooms, &mut Vec::new(), &mut Vec::new()))
}

/// What a table of rules says of rooms that do not exist, and of arrows that nobody uses.
fn dead_rules(part: &CrateRules, existing: &[String], used: &[(String, Vec<String>)]) -> Vec<String> {
    let exists = |room: &str| existing.iter().any(|known| known == room);
    let mut dead = Vec::new();
    for (room, arrows) in part.rooms {
        if !exists(room) {
            dead.push(format!("{}: there is no room {room}", part.folder));
        }
        for arrow in *arrows {
            if !exists(target(arrow)) {
                dead.push(format!("{}: {room} may know {arrow}, and there is no such room", part.folder));
            } else if !used.iter().any(|(from, path)| from == room && begins_with(path, arrow)) {
                dead.push(format!("{}: {room} may know {arrow}, and does not", part.folder));
            }
        }
    }
    for keeper in part.owned_crates {
        for room in keeper.rooms.iter().filter(|room| !ROOT_MODULES.contains(*room) && !exists(room)) {
            dead.push(format!("{}: \"{}\" speaks of a room {room} that does not exist", part.folder, keeper.rule));
        }
    }
    dead
}

#[test]
fn no_table_has_a_circle_or_a_rule_that_is_dead() {
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the repository");
    let mut wrong = Vec::new();
    for part in &CRATES {
        wrong.extend(circle(part.rooms).map(|rooms| format!("{}: a circle: {}", part.folder, rooms.join(" → "))));
        let mut files = Vec::new();
        sources(&repository.join(part.folder).join("src"), &mut files);
        let (mut existing, mut used) = (Vec::new(), Vec::new());
        for path in files {
            let name = path.strip_prefix(repository).expect("inside").to_str().expect("UTF-8").to_owned();
            let module = module_of(part, &name);
            let Some(room) = module.first().cloned() else { continue };
            for mut reference in references(&std::fs::read_to_string(&path).expect("text"), &module) {
                if reference.path[0] == "crate" {
                    used.push((room.clone(), reference.path.split_off(1)));
                }
            }
            existing.push(room);
        }
        wrong.extend(dead_rules(part, &existing, &used));
    }
    assert!(wrong.is_empty(), "wrong rules:\n{}\n", wrong.join("\n"));
}

#[test]
fn the_protocol_depends_on_no_runtime() {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).join("../protocol/Cargo.toml");
    let dependencies = dependencies(&std::fs::read_to_string(manifest).expect("a package"));
    let strangers: Vec<_> =
        dependencies.iter().filter(|name| !PURITY_RULES[0].crates.contains(&name.as_str())).collect();
    assert!(strangers.is_empty(), "{}: {strangers:?}", PURITY_RULES[0].rule);
}

#[cfg(test)]
mod samples {
    use super::*;
    use rules::CrateOwnership;

    fn gateway(file: &str, text: &str) -> Vec<String> {
        check(&CRATES[0], &format!("gateway/src/{file}"), text, &["tokio".to_owned()])
    }

    fn device(file: &str, text: &str) -> Vec<String> {
        check(&CRATES[1], &format!("device-agent/src/{file}"), text, &["tokio".to_owned()])
    }

    fn protocol(text: &str) -> Vec<String> {
        let protocol = CRATES.iter().find(|part| part.folder == "protocol").expect("a part");
        check(protocol, "protocol/src/run/mod.rs", text, &["tokio".to_owned(), "serde".to_owned()])
    }

    #[test]
    fn a_forbidden_arrow_is_named_with_its_file_line_and_rule() {
        let broken = gateway("http/runs.rs", "//! Runs.\n\nuse crate::control::Session;\n");
        let expected = "gateway/src/http/runs.rs:3: http names crate::control::Session: doors never import each other";
        assert_eq!(broken, [expected]);
    }

    #[test]
    fn every_way_of_naming_a_room_counts() {
        for text in [
            "use crate::domain::Store;",
            "use crate::{notify::ChangeNotifier, domain::{self, Store}};",
            "use super::super::domain::Store;",
            "fn f() { let row = crate::domain::load(); }",
            "fn f(domain: &crate::domain::Store) {}",
            "mod tests { use super::super::super::domain::Store; }",
            "pub use crate::domain as hidden;",
            "use deskgate_gateway::domain::Store;",
            "fn f() { self::super::super::domain::load() }",
        ] {
            assert_eq!(gateway("store/runs.rs", text).len(), 1 + usize::from(text.contains("self,")), "{text}");
        }
        assert!(gateway("http/runs.rs", "use crate::domain::Store;").is_empty());
    }

    #[test]
    fn comments_strings_and_ones_own_modules_are_no_imports() {
        let text = r####"
            //! Not `use crate::admin::Store;` and not russh::client.
            /* use crate::admin::Store; /* nested */ use russh::client; */
            use super::caller::Caller;
            const A: &str = "use crate::admin::Store; \" russh::client";
            const B: &str = r#"crate::admin::Store " russh::client"#;
            const C: (char, u8) = ('"', b'"');
            fn f<'a>(text: &'a str) -> impl Sized + use<'a> { Vec::<u8>::new() }
            const D: char = '\''; const E: &[u8] = b"tokio_postgres::Client";
            mod tests { use super::*; }
        "####;
        assert_eq!(gateway("http/runs.rs", text), Vec::<String>::new());
    }

    #[test]
    fn a_crate_is_named_by_its_keeper_only() {
        assert!(gateway("store/runs.rs", "use tokio_postgres::Row;").is_empty());
        for (file, text) in [
            ("domain/runs.rs", "use tokio_postgres::Row;"),
            ("lib.rs", "fn f() { deadpool_postgres::Pool::builder(); }"),
            ("control/session.rs", "use russh::server;"),
            ("control/session.rs", "extern crate russh;"),
            ("domain/runs.rs", "fn f() -> axum::http::StatusCode { }"),
            ("control/session.rs", "use ::http::StatusCode;"),
        ] {
            assert_eq!(gateway(file, text).len(), 1, "{file}: {text}");
        }
        assert_eq!(device("executor/mod.rs", "use deskgate_gateway::store::Store;").len(), 1);
        assert!(device("link/builtin.rs", "use deskgate_gateway::tunnel::ByteStream;").is_empty());
        assert!(device("cli/app.rs", "use deskgate_program::exit::Exit;").is_empty());
        assert_eq!(device("cli/app.rs", "use deskgate_program::token;").len(), 1);
    }

    #[test]
    fn the_root_knows_all_and_nobody_knows_the_root() {
        assert!(gateway("lib.rs", "use crate::http::Http; use store::Store; fn f() { http::serve() }").is_empty());
        for text in ["use crate::Gateway;", "use crate::*;", "use super::super::Gateway;"] {
            let broken = gateway("http/runs.rs", text);
            assert!(broken.len() == 1 && broken[0].contains("composition root"), "{broken:?}");
        }
    }

    #[test]
    fn an_arrow_to_one_module_allows_no_other() {
        assert!(gateway("hosted/mod.rs", "use crate::domain::accounts::Account;").is_empty());
        assert_eq!(gateway("hosted/mod.rs", "use crate::domain::runs::Run;").len(), 1);
    }

    #[test]
    fn a_new_room_without_rules_is_noticed() {
        let broken = gateway("lounge.rs", "");
        assert!(broken.len() == 1 && broken[0].contains("\"lounge\" has no rules"), "{broken:?}");
        assert_eq!(gateway("lounge/mod.rs", "").len(), 1);
    }

    #[test]
    fn what_decides_touches_nothing() {
        assert!(device("executor/turn.rs", "use super::outcome; use std::time::Duration;").is_empty());
        for text in ["use tokio::sync::mpsc;", "use std::fs::File;", "use super::drive;", "use crate::services::Tool;"]
        {
            assert_eq!(device("executor/turn.rs", text).len(), 1, "{text}");
        }
        assert!(device("executor/drive.rs", "use tokio::sync::mpsc;").is_empty());
        assert!(protocol("use serde::Serialize; use crate::ids::RunId; use super::x;").is_empty());
        assert_eq!(protocol("use tokio::sync::mpsc; fn f() { std::fs::read() }").len(), 2);
    }

    #[test]
    fn a_circle_a_room_that_does_not_exist_and_an_arrow_that_nobody_uses_are_named() {
        assert_eq!(circle(&[("a", &["b"]), ("b", &["c::d"]), ("c", &["b"])]), Some(vec!["b", "c"]));
        assert_eq!(circle(&[("a", &["b", "c"]), ("b", &["c"]), ("c", &[])]), None);
        let keepers = &[CrateOwnership { crates: &["x"], rooms: &["lib", "gone"], rule: "only gone" }];
        let part = CrateRules {
            folder: "p",
            own_crate: "p",
            rooms: &[("a", &["b", "clock"]), ("attic", &[])],
            owned_crates: keepers,
        };
        let dead = dead_rules(&part, &["a".to_owned(), "b".to_owned()], &[]);
        let expected = ["a may know b, and does not", "a may know clock", "no room attic", "a room gone"];
        assert_eq!(dead.len(), expected.len(), "{dead:?}");
        for part in expected {
            assert!(dead.iter().any(|line| line.contains(part)), "{part}: {dead:?}");
        }
    }

    #[test]
    fn dependencies_are_read_in_each_notation() {
        let manifest = "[package]\nname = \"x\"\n[dependencies]\na-b.workspace = true\nc = \"1\"\n\n[lints]\nd = 1\n";
        assert_eq!(dependencies(manifest), ["a_b", "c"]);
    }
}
