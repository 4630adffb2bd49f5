//! The effect logs: files that only tools append to and only this module reads; and the files of jobs that need
//! approval.

use std::collections::BTreeSet;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::history::Clock;

/// Its name in a service's folder.
pub(crate) const LOG_FILE_NAME: &str = "ledger";

/// One line that a tool wrote.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Effect {
    pub(crate) job: String,
    /// The number of the job's call.
    pub(crate) call: usize,
    pub(crate) at: u64,
}

/// All lines of the effect log in a folder.
pub(crate) fn read(folder: &Path, clock: Clock) -> Vec<Effect> {
    let text = std::fs::read_to_string(folder.join(LOG_FILE_NAME)).unwrap_or_default();
    text.lines().map(|line| entry(line, clock).unwrap_or_else(|| panic!("the ledger says: {line}"))).collect()
}

/// The file that a job writes after its approval.
pub(crate) fn asked(job: &str) -> String {
    format!("{job}.asked")
}

/// The jobs that wrote such a file in a folder.
pub(crate) fn read_asked(folder: &Path) -> BTreeSet<String> {
    let files = std::fs::read_dir(folder).expect("the service's folder is there");
    let names = files.filter_map(|file| file.ok()?.file_name().into_string().ok());
    names.filter_map(|name| name.strip_suffix(".asked").map(str::to_owned)).collect()
}

fn entry(line: &str, clock: Clock) -> Option<Effect> {
    let (token, at) = line.split_once(' ')?;
    let (job, call) = token.rsplit_once('.')?;
    Some(Effect { job: job.to_owned(), call: call.parse().ok()?, at: clock.at(at.parse().ok()?) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_names_its_job_and_call() {
        let entry = entry("j-1.2.0 0", Clock::start()).expect("an entry");
        assert_eq!((entry.job.as_str(), entry.call, entry.at), ("j-1.2", 0, 0));
    }
}
