//! The number of file descriptors that the process may have open: each connection takes one.
//!
//! Systems give a process few at first and let it raise the limit. A gateway that keeps the first limit refuses callers
//! long before its own limit of connections does.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Descriptors for everything but callers' connections: devices (2,048 on the control socket alone), database, listeners, files.
const RESERVED_DESCRIPTORS: u64 = 4096;

/// The number of descriptors that the process may have, and that a listener with all its connections needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DescriptorLimit {
    /// The most it may have, if there is a limit.
    pub allowed: Option<u64>,
    /// The most it may need.
    pub needed: u64,
}

impl DescriptorLimit {
    /// The current limit, and the need for so many connections. Changes nothing.
    pub fn for_connections(connections: usize) -> Self {
        Self { allowed: getrlimit(Resource::Nofile).maximum, needed: connections as u64 + RESERVED_DESCRIPTORS }
    }

    /// Raises the limit to the most the process may have.
    ///
    /// # Errors
    /// The operating system refuses the new limit.
    pub fn take(self) -> std::io::Result<()> {
        let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
        Ok(setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum })?)
    }

    /// Whether the limit is high enough; if not, what to do.
    ///
    /// # Errors
    /// The process may have fewer descriptors than it needs. The text says what to do.
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
