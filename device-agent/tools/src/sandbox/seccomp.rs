//! The filter of system calls: those that no command needs, and those that have led out of namespaces before.
//!
//! The namespaces confine; this removes the parts of the kernel that attacks on them need. A denied call answers "not
//! permitted". The filter is for the machine's own calls: those of another architecture, and the x32 ones, end the
//! process.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Seek, Write};

use deskgate_definition::Network;
use rustix::fs::{MemfdFlags, memfd_create};
use seccompiler::SeccompCmpArgLen::Dword;
use seccompiler::SeccompCmpOp::{Eq, MaskedEq, Ne};
use seccompiler::{BackendError, BpfProgram, SeccompAction, SeccompCondition, SeccompFilter, SeccompRule, sock_filter};

/// Why the filter cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum FilterError {
    /// The crate cannot make one, for example for this architecture.
    #[error("no filter of system calls can be made: {0}")]
    Rules(#[from] BackendError),
    /// It cannot be written for bubblewrap.
    #[error("the filter of system calls cannot be stored: {0}")]
    Io(#[from] std::io::Error),
}

/// The filter in a memory file, positioned at its beginning, for bubblewrap.
pub(super) fn filter(network: Network) -> Result<File, FilterError> {
    let mut file = File::from(memfd_create("filter", MemfdFlags::CLOEXEC).map_err(std::io::Error::from)?);
    for instruction in program(network)? {
        file.write_all(&instruction.code.to_ne_bytes())?;
        file.write_all(&[instruction.jt, instruction.jf])?;
        file.write_all(&instruction.k.to_ne_bytes())?;
    }
    file.rewind()?;
    Ok(file)
}

fn program(network: Network) -> Result<BpfProgram, BackendError> {
    let arch = std::env::consts::ARCH.try_into()?;
    let denied = SeccompAction::Errno(libc::EPERM.unsigned_abs());
    let mut rules: BTreeMap<_, _> = denied_calls().map(|call| (call, Vec::new())).collect();
    rules.extend(modes()?);
    rules.extend([
        (libc::SYS_clone, namespaces()?),
        (libc::SYS_socket, sockets(network)?),
        (libc::SYS_socketpair, vec![rule(&[(0, Ne, AF_UNIX)])?]),
        // Typing into the terminal, in two ways.
        (libc::SYS_ioctl, vec![rule(&[(1, Eq, 0x5412)])?, rule(&[(1, Eq, 0x541c)])?]),
        // Querying the personality, and setting the usual one, changes nothing.
        (libc::SYS_personality, vec![rule(&[(0, Ne, 0), (0, Ne, 0xffff_ffff)])?]),
    ]);
    let listed: BpfProgram = SeccompFilter::new(rules, SeccompAction::Allow, denied, arch)?.try_into()?;
    Ok(preamble().into_iter().chain(listed).collect())
}

/// A rule that matches when every condition does: which argument, how it compares, with what.
fn rule(conditions: &[(u8, seccompiler::SeccompCmpOp, u64)]) -> Result<SeccompRule, BackendError> {
    let condition = |(index, operator, value): &(u8, seccompiler::SeccompCmpOp, u64)| {
        SeccompCondition::new(*index, Dword, operator.clone(), *value)
    };
    SeccompRule::new(conditions.iter().map(condition).collect::<Result<_, _>>()?)
}

/// One rule for each flag of `clone` that creates a namespace: mount, cgroup, UTS, IPC, user, PID, network.
fn namespaces() -> Result<Vec<SeccompRule>, BackendError> {
    let flags = [0x0002_0000, 0x0200_0000, 0x0400_0000, 0x0800_0000, 0x1000_0000, 0x2000_0000, 0x4000_0000];
    flags.into_iter().map(|flag| rule(&[(0, MaskedEq(flag), flag)])).collect()
}

/// The calls that set a file's mode, with a rule for each way to set the set-user-ID or set-group-ID bit: such a file
/// in the working directory would lend the owner's rights to every other user of the computer.
fn modes() -> Result<Vec<(i64, Vec<SeccompRule>)>, BackendError> {
    const CREATE_FLAGS: [u64; 2] = [libc::O_CREAT as u64, (libc::O_TMPFILE & !libc::O_DIRECTORY) as u64];
    const SETID_BITS: [u64; 2] = [libc::S_ISUID as u64, libc::S_ISGID as u64];
    let mode = |at| SETID_BITS.iter().map(|bit| rule(&[(at, MaskedEq(*bit), *bit)])).collect::<Result<Vec<_>, _>>();
    // Without a flag that creates something the argument is unused and may hold any value.
    let creation = |flags, at| {
        let both = CREATE_FLAGS.iter().flat_map(|flag| SETID_BITS.iter().map(move |bit| (*flag, *bit)));
        both.map(|(flag, bit)| rule(&[(flags, MaskedEq(flag), flag), (at, MaskedEq(bit), bit)]))
            .collect::<Result<Vec<_>, _>>()
    };
    let mut calls = vec![
        (libc::SYS_fchmod, mode(1)?),
        (libc::SYS_fchmodat, mode(2)?),
        (FCHMODAT2, mode(2)?),
        (libc::SYS_mknodat, mode(2)?),
        (libc::SYS_openat, creation(2, 3)?),
    ];
    #[cfg(target_arch = "x86_64")]
    calls.extend([
        (libc::SYS_chmod, mode(1)?),
        (libc::SYS_creat, mode(1)?),
        (libc::SYS_mknod, mode(1)?),
        (libc::SYS_open, creation(1, 2)?),
    ]);
    Ok(calls)
}

/// Newer than the crate's list; the same number on every architecture.
const FCHMODAT2: i64 = 452;

/// The socket families that programs use. With the host's network, its abstract sockets would be reachable (the
/// display, the session's bus), so Unix sockets cannot be created there; socket pairs can.
fn sockets(network: Network) -> Result<Vec<SeccompRule>, BackendError> {
    let usual = [AF_UNIX, AF_INET, AF_INET6, AF_NETLINK];
    let mut rules = vec![
        rule(&usual.map(|family| (0, Ne, family)))?,
        // Of netlink, only queries about addresses and routes.
        rule(&[(0, Eq, AF_NETLINK), (2, Ne, 0)])?,
    ];
    if network == Network::Host {
        rules.push(rule(&[(0, Eq, AF_UNIX)])?);
    }
    Ok(rules)
}

/// What the crate cannot express: a call with the x32 mark ends the process. `clone3` and `openat2`, whose flags a
/// filter cannot see, count as missing from this kernel, so that programs use the older calls.
fn preamble() -> [sock_filter; 7] {
    const LOAD: u16 = 0x20;
    const JUMP: u16 = 0x05;
    const JUMP_EQUAL: u16 = 0x15;
    const JUMP_AT_LEAST: u16 = 0x35;
    const RETURN: u16 = 0x06;
    const X32: u32 = 0x4000_0000;
    let step = |code, jt, jf, k| sock_filter { code, jt, jf, k };
    let number = |call: i64| u32::try_from(call).expect("the numbers of system calls are small");
    [
        step(LOAD, 0, 0, 0),
        step(JUMP_EQUAL, 3, 0, number(libc::SYS_clone3)),
        step(JUMP_EQUAL, 2, 0, number(libc::SYS_openat2)),
        step(JUMP_AT_LEAST, 2, 0, X32),
        step(JUMP, 0, 0, 2),
        step(RETURN, 0, 0, libc::SECCOMP_RET_ERRNO | libc::ENOSYS.unsigned_abs()),
        step(RETURN, 0, 0, libc::SECCOMP_RET_KILL_PROCESS),
    ]
}

const AF_UNIX: u64 = 1;
const AF_INET: u64 = 2;
const AF_INET6: u64 = 10;
const AF_NETLINK: u64 = 16;

fn denied_calls() -> impl Iterator<Item = i64> {
    let common = [
        // File systems and their roots.
        libc::SYS_mount,
        libc::SYS_umount2,
        libc::SYS_pivot_root,
        libc::SYS_chroot,
        libc::SYS_move_mount,
        libc::SYS_open_tree,
        libc::SYS_fsopen,
        libc::SYS_fsconfig,
        libc::SYS_fsmount,
        libc::SYS_fspick,
        libc::SYS_mount_setattr,
        libc::SYS_name_to_handle_at,
        libc::SYS_open_by_handle_at,
        libc::SYS_fanotify_init,
        libc::SYS_quotactl,
        libc::SYS_swapon,
        libc::SYS_swapoff,
        // Namespaces.
        libc::SYS_unshare,
        libc::SYS_setns,
        // Other processes.
        libc::SYS_ptrace,
        libc::SYS_process_vm_readv,
        libc::SYS_process_vm_writev,
        libc::SYS_process_madvise,
        libc::SYS_pidfd_getfd,
        libc::SYS_kcmp,
        libc::SYS_move_pages,
        libc::SYS_migrate_pages,
        // Keyrings, which no namespace divides.
        libc::SYS_keyctl,
        libc::SYS_add_key,
        libc::SYS_request_key,
        // Large parts of the kernel with past vulnerabilities.
        libc::SYS_bpf,
        libc::SYS_perf_event_open,
        libc::SYS_userfaultfd,
        libc::SYS_io_uring_setup,
        libc::SYS_io_uring_enter,
        libc::SYS_io_uring_register,
        // The machine itself.
        libc::SYS_kexec_load,
        libc::SYS_init_module,
        libc::SYS_finit_module,
        libc::SYS_delete_module,
        libc::SYS_reboot,
        libc::SYS_syslog,
        libc::SYS_acct,
        libc::SYS_settimeofday,
        libc::SYS_clock_settime,
        libc::SYS_clock_adjtime,
        libc::SYS_adjtimex,
        libc::SYS_sethostname,
        libc::SYS_setdomainname,
        libc::SYS_vhangup,
    ];
    #[cfg(target_arch = "x86_64")]
    let own = [libc::SYS_kexec_file_load, libc::SYS_iopl, libc::SYS_ioperm, libc::SYS_modify_ldt, libc::SYS_uselib];
    #[cfg(not(target_arch = "x86_64"))]
    let own = [];
    common.into_iter().chain(own)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_filter_fits_into_what_the_kernel_takes() {
        for network in [Network::None, Network::Host] {
            let length = filter(network).expect("this architecture is known").metadata().expect("it is open").len();
            assert!(length.is_multiple_of(8) && (8 * 50..8 * 4096).contains(&length), "{length} bytes");
        }
    }
}
