//! The shelves: a folder in each service's folder in which every call of a job that spreads leaves marks, and a witness
//! that the kernel tells of them in one order.
//!
//! A file `job-7.41.2.page` is read by the third call of the answer 41 to job-7: it is opened and closed. A command there
//! makes `job-7.41.2.begun` and `job-7.41.2.ended`.

use std::collections::BTreeMap;
use std::mem::MaybeUninit;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};
use serde::{Deserialize, Serialize};

use crate::history::Clock;

/// Its name in a service's folder.
pub(crate) const SHELF_NAME: &str = "shelf";

/// A call of a tool, from mark to mark.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct CallSpan {
    pub(crate) job: String,
    /// The model's answer that asked for it.
    pub(crate) answer: u64,
    /// Its place among the calls of that answer.
    pub(crate) index: usize,
    /// Whether it may write.
    pub(crate) writes: bool,
    /// The places of its marks among all marks; no last one if its process was killed.
    pub(crate) begun: usize,
    pub(crate) ended: Option<usize>,
    pub(crate) at: u64,
}

/// The witness of some shelves.
pub(crate) struct Shelves {
    marks: Arc<Mutex<Vec<(String, u64)>>>,
}

/// The shelf in a service's folder.
pub(crate) fn shelf(folder: &Path) -> PathBuf {
    folder.join(SHELF_NAME)
}

impl Shelves {
    /// Watches the shelves in these folders from now on.
    pub(crate) fn watch(clock: Clock, folders: &[PathBuf]) -> Self {
        let marks = Arc::<Mutex<Vec<(String, u64)>>>::default();
        let told = inotify::init(CreateFlags::CLOEXEC).expect("the kernel tells of files");
        for folder in folders {
            let kinds = WatchFlags::CREATE | WatchFlags::OPEN | WatchFlags::CLOSE_NOWRITE;
            inotify::add_watch(&told, shelf(folder), kinds).expect("the shelf is there");
        }
        let noted = marks.clone();
        // It ends with the program.
        std::thread::spawn(move || {
            let mut room = [MaybeUninit::uninit(); 64 * 1024];
            let mut reader = inotify::Reader::new(told, &mut room);
            while let Ok(event) = reader.next() {
                let name = event.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
                let what = match event.events() {
                    kinds if kinds.contains(ReadFlags::QUEUE_OVERFLOW) => "lost",
                    kinds if kinds.contains(ReadFlags::OPEN) => "opened",
                    kinds if kinds.contains(ReadFlags::CLOSE_NOWRITE) => "closed",
                    _ => "made",
                };
                lock(&noted).push((format!("{what} {name}"), clock.now()));
            }
        });
        Self { marks }
    }

    /// Writes all marks to a file in a folder.
    pub(crate) fn keep(&self, folder: &Path) {
        let text: String = lock(&self.marks).iter().map(|(told, at)| format!("{at} {told}\n")).collect();
        std::fs::write(folder.join("shelves.txt"), text).expect("the report's folder can be written");
    }

    /// The calls that have left marks.
    pub(crate) fn spans(&self) -> Vec<CallSpan> {
        spans(&lock(&self.marks))
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The calls of which these marks tell, each with its time.
fn spans(marks: &[(String, u64)]) -> Vec<CallSpan> {
    let mut spans: BTreeMap<&str, CallSpan> = BTreeMap::new();
    for (place, (told, at)) in marks.iter().enumerate() {
        let (what, name) = told.split_once(' ').unwrap_or_default();
        assert_ne!(what, "lost", "the kernel told of more files than could be noted");
        let Some((mark, kind)) = name.rsplit_once('.') else { continue };
        let Some(fresh) = named(mark) else { continue };
        let writes = kind != "page";
        // A page that somebody has open while it is laid down is closed here, and is no call.
        if what == "closed" && !spans.contains_key(mark) {
            continue;
        }
        let span = spans.entry(mark).or_insert(CallSpan { writes, begun: place, at: *at, ..fresh });
        match (what, kind) {
            ("closed", "page") | ("made", "ended") => span.ended = Some(place),
            ("opened", "page") => span.ended = None,
            _ => {}
        }
    }
    spans.into_values().collect()
}

/// The call that a mark names.
fn named(mark: &str) -> Option<CallSpan> {
    let mut parts = mark.rsplitn(3, '.');
    let (index, answer) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
    Some(CallSpan { job: parts.next()?.to_owned(), answer, index, ..CallSpan::default() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_lasts_from_mark_to_mark_and_a_read_as_long_as_its_file_is_open() {
        let told = [
            "closed j-1.4.0.page",
            "opened j-1.4.0.page",
            "closed j-1.4.0.page",
            "opened j-1.4.0.page",
            "made j-1.4.1.begun",
            "opened j-1.4.1.begun",
            "closed j-1.4.0.page",
            "made j-1.4.1.ended",
            "made j-1.4.2.begun",
            "opened ",
        ];
        let told: Vec<_> = told.iter().map(|mark| ((*mark).to_owned(), 9)).collect();
        let of = |index, writes, begun, ended| {
            let job = "j-1".to_owned();
            CallSpan { job, answer: 4, index, writes, begun, ended, at: 9 }
        };
        assert_eq!(spans(&told), [of(0, false, 1, Some(6)), of(1, true, 4, Some(7)), of(2, true, 8, None)]);
    }

    #[test]
    fn the_kernel_tells_of_files_in_the_order_in_which_they_were_used() {
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::create_dir(shelf(folder.path())).expect("fresh");
        std::fs::write(folder.path().join("new"), "text").expect("writable");
        let shelves = Shelves::watch(Clock::start(), &[folder.path().to_owned()]);
        let page = shelf(folder.path()).join("j.1.0.page");
        std::fs::rename(folder.path().join("new"), &page).expect("one file system");
        std::fs::read(page).expect("readable");
        for mark in ["begun", "ended"] {
            std::fs::write(shelf(folder.path()).join(format!("j.1.1.{mark}")), "").expect("writable");
        }
        let begun = std::time::Instant::now();
        let mut spans = shelves.spans();
        while spans.get(1).is_none_or(|span| span.ended.is_none()) && begun.elapsed().as_secs() < 10 {
            std::thread::yield_now();
            spans = shelves.spans();
        }
        let seen: Vec<_> = spans.iter().map(|span| (span.index, span.writes, span.ended.is_some())).collect();
        assert_eq!(seen, [(0, false, true), (1, true, true)]);
        assert!(spans[0].ended < Some(spans[1].begun), "{spans:?}");
    }
}
