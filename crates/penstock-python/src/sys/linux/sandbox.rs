//! Confines a process by Landlock, a filter of system calls, and limits.

use landlock::{
    ABI, Access, AccessFs, AccessNet, CompatLevel, Compatible, LandlockStatus, PathBeneath, Ruleset,
    RulesetAttr, RulesetCreatedAttr, RulesetError, Scope, path_beneath_rules,
};
use penstock_core::engine::handle;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::sys::confinement::Confinement;

/// Chosen: time after SIGXCPU in which a program can say why it ends.
const LAST_WORDS_S: u64 = 5;
/// Chosen: FFmpeg has some ten descriptors while it decodes one file.
const DESCRIPTORS: u64 = 64;
/// What we know to ask of Landlock. A kernel with less is asked for what it has.
const KNOWN: ABI = ABI::V7;

/// Confines this process, for ever, and the programs that it will run. It must have one thread only: the kernel confines
/// the calling thread and those that it starts.
///
/// Returns a word for each thing that the kernel cannot do: "files", "truncation", "signals", "system calls", "privileges",
/// "limits", or "threads" if there were others.
pub(crate) fn confine(confinement: &Confinement<'_>) -> Vec<&'static str> {
    let mut missing = Vec::new();
    if rustix::thread::set_no_new_privs(true).is_err() {
        missing.push("privileges");
    }
    if set_limits(confinement).is_err() {
        missing.push("limits");
    }
    if std::fs::read_dir("/proc/self/task").map_or(0, Iterator::count) != 1 {
        missing.push("threads");
    }
    missing.extend(missing_in(restrict(confinement).unwrap_or(ABI::Unsupported)));
    if !system_calls::filter() {
        missing.push("system calls");
    }
    missing
}

/// Lowers the limits. One that is lower already stays.
fn set_limits(confinement: &Confinement<'_>) -> rustix::io::Result<()> {
    let cpu_s = confinement.cpu.as_secs();
    for (resource, soft, hard) in [
        (Resource::Data, confinement.memory_bytes, confinement.memory_bytes),
        (Resource::Cpu, cpu_s, cpu_s.saturating_add(LAST_WORDS_S)),
        (Resource::Nofile, DESCRIPTORS, DESCRIPTORS),
        (Resource::Core, 0, 0),
        (Resource::Fsize, 0, 0),
    ] {
        let most = getrlimit(resource).maximum.unwrap_or(u64::MAX);
        let limit = Rlimit { current: Some(soft.min(most)), maximum: Some(hard.min(most)) };
        setrlimit(resource, limit)?;
    }
    Ok(())
}

/// Restricts this thread by Landlock. Returns the version of the kernel's Landlock.
fn restrict(confinement: &Confinement<'_>) -> Result<ABI, RulesetError> {
    let readable = AccessFs::from_read(KNOWN);
    let mut ruleset = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::from_all(KNOWN))?
        .handle_access(AccessNet::from_all(KNOWN))?
        .scope(Scope::from_all(KNOWN))?
        .create()?
        .add_rules(path_beneath_rules(confinement.readable, readable))?;
    // SAFETY: it is not -1. The caller keeps it open during the call, and the kernel refuses a number that is closed.
    let source = unsafe { handle::borrow(confinement.source) };
    // The kernel refuses a rule for a file in memory, which it lets every process open that has a descriptor.
    let _ = (&mut ruleset).add_rule(PathBeneath::new(source, AccessFs::ReadFile));
    Ok(match ruleset.restrict_self()?.landlock {
        LandlockStatus::Available { effective_abi, .. } => effective_abi,
        _ => ABI::Unsupported,
    })
}

/// What this version of Landlock cannot do. TCP (4) and abstract sockets (6) are none of it: the filter allows no socket.
fn missing_in(version: ABI) -> impl Iterator<Item = &'static str> {
    [("files", ABI::V1), ("truncation", ABI::V3), ("signals", ABI::V6)]
        .into_iter()
        .filter(move |&(_, since)| version < since)
        .map(|(name, _)| name)
}

/// A filter of system calls (seccomp(2)) against what Landlock lets through.
mod system_calls {
    use libc::{
        BPF_ABS, BPF_JEQ, BPF_JGE, BPF_JMP, BPF_K, BPF_LD, BPF_RET, BPF_W, c_long, sock_filter, sock_fprog,
    };

    /// Landlock 7 confines TCP and abstract sockets, but neither UDP nor sockets by path, behind which a session's D-Bus or
    /// Docker runs any program. System V's and POSIX's messages and memory belong to all processes of a user; keys, too.
    /// Whoever owns a file may change its mode, owner, times and attributes, and truncate it before version 3.
    #[rustfmt::skip]
    const DENIED: &[c_long] = &[
        libc::SYS_socket, libc::SYS_io_uring_setup,
        libc::SYS_mq_open, libc::SYS_msgget, libc::SYS_semget, libc::SYS_shmget, libc::SYS_shmat,
        libc::SYS_add_key, libc::SYS_request_key, libc::SYS_keyctl,
        libc::SYS_ptrace, libc::SYS_process_vm_readv, libc::SYS_process_vm_writev,
        libc::SYS_truncate,
        libc::SYS_fchmod, libc::SYS_fchmodat, libc::SYS_fchown, libc::SYS_fchownat,
        libc::SYS_utimensat,
        libc::SYS_setxattr, libc::SYS_lsetxattr, libc::SYS_fsetxattr,
        libc::SYS_removexattr, libc::SYS_lremovexattr, libc::SYS_fremovexattr,
        #[cfg(target_arch = "x86_64")] libc::SYS_chmod,
        #[cfg(target_arch = "x86_64")] libc::SYS_chown,
        #[cfg(target_arch = "x86_64")] libc::SYS_lchown,
        #[cfg(target_arch = "x86_64")] libc::SYS_utime,
        #[cfg(target_arch = "x86_64")] libc::SYS_utimes,
        #[cfg(target_arch = "x86_64")] libc::SYS_futimesat,
        SYS_FCHMODAT2, SYS_SETXATTRAT, SYS_REMOVEXATTRAT,
    ];
    // Since Linux 6.6 and 6.13, the same numbers on all architectures. libc has them for some.
    const SYS_FCHMODAT2: c_long = 452;
    const SYS_SETXATTRAT: c_long = 463;
    const SYS_REMOVEXATTRAT: c_long = 466;

    /// `AUDIT_ARCH_X86_64` and `AUDIT_ARCH_AARCH64` in linux/audit.h; None where we do not know the kernel's other interfaces.
    const ARCHITECTURE: Option<u32> = if cfg!(target_arch = "x86_64") {
        Some(0xC000_003E)
    } else if cfg!(target_arch = "aarch64") {
        Some(0xC000_00B7)
    } else {
        None
    };
    /// `__X32_SYSCALL_BIT` in asm/unistd.h: x86-64's second set of numbers. Other architectures have none so high.
    const SECOND_SET: u32 = 0x4000_0000;
    // Offsets in `struct seccomp_data` (linux/seccomp.h).
    const NUMBER_AT: u32 = 0;
    const ARCHITECTURE_AT: u32 = 4;

    /// Filters the system calls of this thread. Returns whether the kernel does it.
    pub(super) fn filter() -> bool {
        let Some(architecture) = ARCHITECTURE else { return false };
        let program = program(architecture);
        let filter = sock_fprog { len: program.len() as u16, filter: program.as_ptr().cast_mut() };
        // Without SPEC_ALLOW, Linux before 5.16 turns off speculation past stores, which slows decoders down.
        // SAFETY: the kernel copies the program during the call.
        let refused = unsafe {
            libc::syscall(
                libc::SYS_seccomp,
                libc::SECCOMP_SET_MODE_FILTER,
                libc::SECCOMP_FILTER_FLAG_SPEC_ALLOW,
                &raw const filter,
            )
        };
        refused == 0
    }

    /// Refuses the calls of other architectures and those above, and allows all others.
    fn program(architecture: u32) -> Vec<sock_filter> {
        let denied = DENIED.iter().map(|&number| number as u32);
        let mut program = vec![
            load(ARCHITECTURE_AT),
            jump(BPF_JEQ, architecture, 1, 0),
            answer(libc::SECCOMP_RET_ERRNO | libc::EACCES as u32),
            load(NUMBER_AT),
        ];
        let tests = [(BPF_JGE, SECOND_SET)].into_iter().chain(denied.map(|number| (BPF_JEQ, number)));
        let count = DENIED.len() + 1;
        for (place, (test, number)) in tests.enumerate() {
            // Past the other tests and the answer that allows.
            program.push(jump(test, number, (count - place) as u8, 0));
        }
        program.push(answer(libc::SECCOMP_RET_ALLOW));
        program.push(answer(libc::SECCOMP_RET_ERRNO | libc::EACCES as u32));
        program
    }

    fn load(offset: u32) -> sock_filter {
        sock_filter { code: (BPF_LD | BPF_W | BPF_ABS) as u16, jt: 0, jf: 0, k: offset }
    }

    fn jump(test: u32, operand: u32, if_true: u8, if_false: u8) -> sock_filter {
        sock_filter { code: (BPF_JMP | test | BPF_K) as u16, jt: if_true, jf: if_false, k: operand }
    }

    fn answer(value: u32) -> sock_filter {
        sock_filter { code: (BPF_RET | BPF_K) as u16, jt: 0, jf: 0, k: value }
    }
}
