//! How many descriptors the process may have open: each connection takes one.
//!
//! Systems give a process few at first and let it take more. A gateway that keeps to the few turns
//! callers away long before its own limit of connections does.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// For what is no caller's connection: the database's, devices', listeners, files.
const RESERVED_DESCRIPTORS: u64 = 512;

/// How many the process may have, and how many a listener with all its connections needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DescriptorLimit {
    /// How many it may have at most, if there is a limit.
    pub allowed: Option<u64>,
    /// How many it may need.
    pub needed: u64,
}

impl DescriptorLimit {
    /// What is so, for so many connections. Changes nothing.
    pub fn for_connections(connections: usize) -> Self {
        Self { allowed: getrlimit(Resource::Nofile).maximum, needed: connections as u64 + RESERVED_DESCRIPTORS }
    }

    /// Takes as many as the process may have.
    pub fn take(self) -> std::io::Result<()> {
        let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
        Ok(setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum })?)
    }

    /// Whether these are enough; if not, what to do.
    pub fn are_enough(self) -> Result<Self, String> {
        let Self { allowed, needed } = self;
        match allowed {
            Some(allowed) if allowed < needed => Err(format!(
                "the process may open {allowed} descriptors, and with all its connections it needs {needed}. Raise the \
                 hard limit: LimitNOFILE={needed} in the systemd unit, or `ulimit -Hn {needed}`"
            )),
            _ => Ok(self),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn too_few_are_told_with_what_to_do() {
        let of = |allowed| DescriptorLimit { allowed, needed: 10_512 };
        assert!(of(None).are_enough().is_ok() && of(Some(10_512)).are_enough().is_ok());
        let told = of(Some(4096)).are_enough().unwrap_err();
        assert!(told.contains("4096") && told.contains("LimitNOFILE=10512"), "{told}");
    }
}
