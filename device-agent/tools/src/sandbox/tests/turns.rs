//! Commands of several runs in one folder.

use super::*;

#[test]
fn one_command_at_a_time_works_in_a_folder_and_whoever_waits_can_be_stopped_and_has_a_time() {
    let (site, elsewhere) = (SandboxSite::new(), SandboxSite::new());
    std::fs::create_dir(site.path("in/inner")).expect("creates");
    let (one, other) = (site.usual(), site.usual());
    let inner = site.open(&site.path("in/inner"), Network::None, CommandLimits::default()).expect("a sandbox stands");
    let long = "echo one begins >>log; until [ -e go ]; do sleep 0.02; done; echo one ends >>log";
    std::thread::scope(|scope| {
        scope.spawn(|| ok(&one, long));
        survivors::wait_for("the first command begins", || site.path("in/log").exists());
        let stopped = CancellationToken::new();
        stopped.cancel();
        for waits in [&other, &inner] {
            let busy = waits.run("echo early >>log", Duration::from_millis(200), &CancellationToken::new());
            assert!(matches!(busy, Err(SandboxError::Busy)));
            let (said, ending) = waits.run("echo early >>log", COMMAND_TIMEOUT, &stopped).expect("it waits");
            assert_eq!((said.text().as_str(), ending), ("", CommandEnd::Ended(KillReason::Stopped)));
        }
        ok(&elsewhere.usual(), "true");
        drop(site.usual());
        std::fs::write(site.path("in/go"), "").expect("writes");
        ok(&other, "echo other >>log");
    });
    assert_eq!(std::fs::read_to_string(site.path("in/log")).expect("stands"), "one begins\none ends\nother\n");
    assert!(!site.path("in/inner/log").exists());
}
