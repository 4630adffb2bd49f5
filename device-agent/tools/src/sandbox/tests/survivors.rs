//! No process outlives its call: not in the background, not detached, not stopped, not by ignoring signals.

use super::*;

/// Processes that run (a dead one is not counted) and have this argument. A test's arguments are its own numbers.
pub(super) fn with_argument(argument: &str) -> Vec<String> {
    let entries = std::fs::read_dir("/proc").expect("Linux");
    let of = |entry: std::io::Result<std::fs::DirEntry>| {
        let line = std::fs::read_to_string(entry.ok()?.path().join("cmdline")).ok()?;
        line.split('\0').any(|word| word == argument).then_some(line)
    };
    entries.filter_map(of).collect()
}

pub(super) fn wait_for(what: &str, is: impl Fn() -> bool) {
    let until = Instant::now() + Duration::from_secs(30);
    while !is() {
        assert!(Instant::now() < until, "{what}");
        std::thread::yield_now();
    }
}

#[test]
fn what_was_left_in_the_background_ends_with_its_call() {
    let ways = [
        "sleep NUMBER &",
        "sleep NUMBER & disown",
        "nohup sleep NUMBER >/dev/null 2>&1 &",
        "setsid sleep NUMBER >/dev/null 2>&1 &",
        "(setsid sh -c 'setsid sleep NUMBER & exit' >/dev/null 2>&1 &)",
        "(trap '' TERM HUP INT; sleep NUMBER >/dev/null 2>&1 &)",
        "sleep NUMBER & kill -STOP $!",
    ];
    let site = SandboxSite::new();
    let sandbox = site.usual();
    for (at, way) in ways.into_iter().enumerate() {
        let number = format!("31415{at}");
        let started = Instant::now();
        assert_eq!(ok(&sandbox, &(way.replace("NUMBER", &number) + "\necho done")), "done\n");
        assert!(started.elapsed() < Duration::from_secs(20), "{way}");
        assert!(with_argument(&number).is_empty(), "{way}");
    }
}

/// Five generations; each starts the next, and none ends by itself.
const GENERATIONS: &str = "
cat >/tmp/tree <<'END'
TRAP
if [ $1 -gt 1 ]; then setsid sh /tmp/tree $(($1 - 1)) & fi
STOP
while :; do sleep NUMBER; done
END
sh /tmp/tree 5";

#[test]
fn a_stop_in_the_middle_of_five_generations_leaves_nothing_within_three_seconds() {
    let site = SandboxSite::new();
    let sandbox = site.usual();
    let kinds = [("", "", "161801"), ("trap '' TERM", "", "161802"), ("", "[ $1 -lt 5 ] && kill -STOP $$", "161803")];
    for (trap, stop_itself, number) in kinds {
        let command = GENERATIONS.replace("TRAP", trap).replace("STOP", stop_itself).replace("NUMBER", number);
        let stop = CancellationToken::new();
        std::thread::scope(|scope| {
            let call = scope.spawn(|| sandbox.run(&command, COMMAND_TIMEOUT, &stop));
            // A generation that has stopped itself sleeps nowhere.
            let generations = |number: &str| with_argument("/tmp/tree").len().max(with_argument(number).len());
            wait_for("five generations stand", || generations(number) >= 5);
            let asked = Instant::now();
            stop.cancel();
            let (_, ending) = call.join().expect("no panic").expect("stands");
            assert!(asked.elapsed() < Duration::from_secs(3), "{trap:?}: {:?}", asked.elapsed());
            assert_eq!(ending, CommandEnd::Ended(KillReason::Stopped));
            assert!(with_argument(number).is_empty() && with_argument("/tmp/tree").is_empty(), "{trap:?}");
        });
    }
}

#[test]
fn time_ends_a_command_that_closed_its_output_and_goes_on() {
    let site = SandboxSite::new();
    let sandbox = site.usual();
    let command = "echo begun; exec >&- 2>&-; sleep 577215";
    let (said, ending) = sandbox.run(command, Duration::from_millis(500), &CancellationToken::new()).expect("stands");
    assert_eq!((said.text().as_str(), ending), ("begun\n", CommandEnd::Ended(KillReason::Time)));
    assert!(with_argument("577215").is_empty());
}

#[test]
fn a_command_that_is_asked_to_end_may_tidy_up() {
    let site = SandboxSite::new();
    let command = "trap 'echo tidied; exit' TERM; while :; do sleep 0.1; done";
    let (said, ending) =
        site.usual().run(command, Duration::from_millis(500), &CancellationToken::new()).expect("stands");
    assert_eq!((said.text().lines().last(), ending), (Some("tidied"), CommandEnd::Ended(KillReason::Time)));
}
