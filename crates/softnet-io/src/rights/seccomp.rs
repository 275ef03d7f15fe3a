//! Lists of system calls that threads may make. Any other fails with `EPERM`, so that a library
//! that tries something new goes on without it.
//!
//! There is one address space: who can write memory of a worker can have another thread make a
//! call. So the list of all threads is what a memory error gives in the end, and those of workers
//! and ports, which read what guests and networks say, are what it gives at once.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};

use libc::c_long;
use seccompiler::{
    BackendError, BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition,
    SeccompFilter, SeccompRule, apply_filter,
};

/// A kind of threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Threads {
    /// Every thread: serving clients, reading the configuration file, starting threads. No file is
    /// made or written but those that are open, no socket made, no program started.
    All,
    /// A driver's own, which talks to what is behind a port. No file is opened, no thread started.
    Port,
    /// Captures, which send to who asked for them, and wait: nothing is read.
    Capture,
    /// Workers: what is open is read and written, memory mapped and given back.
    Worker,
}

/// Calls that every thread may make, whatever the arguments but for `MSG_FASTOPEN`: to send, wait,
/// free memory, tell workers, and end. Of the lists, a capture's thread has this one alone.
const CAPTURE: &[c_long] = &[
    libc::SYS_write,
    libc::SYS_sendto,
    libc::SYS_sendmsg,
    libc::SYS_ppoll,
    libc::SYS_futex,
    libc::SYS_membarrier,
    libc::SYS_close,
    libc::SYS_brk,
    libc::SYS_munmap,
    libc::SYS_mremap,
    libc::SYS_madvise,
    libc::SYS_clock_gettime,
    libc::SYS_clock_nanosleep,
    libc::SYS_nanosleep,
    libc::SYS_sched_yield,
    libc::SYS_sched_getaffinity,
    libc::SYS_getcpu,
    libc::SYS_getrandom,
    libc::SYS_gettid,
    libc::SYS_getpid,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_sigaltstack,
    libc::SYS_restart_syscall,
    libc::SYS_rseq,
    libc::SYS_set_robust_list,
    libc::SYS_exit,
    libc::SYS_exit_group,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_poll,
];

/// Calls that workers, ports' threads and all others may make besides.
const WORKER: &[c_long] = &[
    libc::SYS_read,
    libc::SYS_readv,
    libc::SYS_writev,
    libc::SYS_pread64,
    libc::SYS_pwrite64,
    libc::SYS_recvfrom,
    libc::SYS_recvmsg,
    libc::SYS_recvmmsg,
    libc::SYS_sendmmsg,
    libc::SYS_shutdown,
    libc::SYS_timerfd_settime,
    libc::SYS_getsockopt,
    libc::SYS_setsockopt,
    libc::SYS_epoll_ctl,
    libc::SYS_epoll_pwait,
    libc::SYS_epoll_pwait2,
    libc::SYS_fcntl,
    libc::SYS_dup,
    libc::SYS_clock_getres,
    libc::SYS_gettimeofday,
    libc::SYS_sched_setattr,
    libc::SYS_sched_getattr,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_epoll_wait,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_time,
];

/// Calls that ports' threads may make besides.
const PORT: &[c_long] = &[
    libc::SYS_accept,
    libc::SYS_accept4,
    libc::SYS_getsockname,
    libc::SYS_getpeername,
    libc::SYS_fstat,
    libc::SYS_fstatfs,
    libc::SYS_lseek,
    libc::SYS_eventfd2,
    libc::SYS_memfd_create,
    libc::SYS_ftruncate,
    // Of `/proc/self/fd`: kinds of the files that came.
    libc::SYS_readlinkat,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_readlink,
    libc::SYS_epoll_create1,
    libc::SYS_timerfd_create,
    libc::SYS_sched_setaffinity,
];

/// Calls that all threads may make besides.
const ALL: &[c_long] = &[
    libc::SYS_bind,
    libc::SYS_socketpair,
    libc::SYS_pipe2,
    libc::SYS_dup3,
    libc::SYS_fallocate,
    libc::SYS_fsync,
    libc::SYS_fdatasync,
    libc::SYS_getdents64,
    libc::SYS_newfstatat,
    libc::SYS_statx,
    libc::SYS_statfs,
    libc::SYS_faccessat,
    libc::SYS_faccessat2,
    libc::SYS_getcwd,
    libc::SYS_uname,
    libc::SYS_sysinfo,
    libc::SYS_getrusage,
    libc::SYS_times,
    libc::SYS_getuid,
    libc::SYS_geteuid,
    libc::SYS_getgid,
    libc::SYS_getegid,
    libc::SYS_getppid,
    libc::SYS_capget,
    libc::SYS_capset,
    libc::SYS_wait4,
    libc::SYS_waitid,
    libc::SYS_set_tid_address,
    libc::SYS_sched_getscheduler,
    libc::SYS_sched_getparam,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_access,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_stat,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_lstat,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_pipe,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_dup2,
];

/// Questions about interfaces, sockets and terminals.
const IOCTLS: &[u64] = &[
    // Of `linux/sockios.h`.
    0x8910, // SIOCGIFNAME
    0x8912, // SIOCGIFCONF
    0x8913, // SIOCGIFFLAGS
    0x8921, // SIOCGIFMTU
    0x8927, // SIOCGIFHWADDR
    0x8933, // SIOCGIFINDEX
    0x8942, // SIOCGIFTXQLEN
    0x8946, // SIOCETHTOOL: setting something takes CAP_NET_ADMIN
    // Of `asm-generic/ioctls.h`.
    0x5401, // TCGETS
    0x5413, // TIOCGWINSZ
    0x541b, // FIONREAD
    0x5421, // FIONBIO
    0x5450, // FIONCLEX
    0x5451, // FIOCLEX
];

/// `prctl` with these only.
const PRCTLS: &[i32] = &[
    libc::PR_SET_NAME,
    libc::PR_GET_NAME,
    libc::PR_SET_TIMERSLACK,
    libc::PR_GET_TIMERSLACK,
    libc::PR_SET_NO_NEW_PRIVS,
    libc::PR_GET_NO_NEW_PRIVS,
    libc::PR_GET_SECCOMP,
    libc::PR_GET_DUMPABLE,
    // Names of memory areas, which allocators and thread libraries give.
    0x5356_4d41,
];

type Rules = BTreeMap<c_long, Vec<SeccompRule>>;

impl Threads {
    fn rules(self) -> Result<Rules, BackendError> {
        let mut rules = Rules::new();
        let mut allow = |calls: &[c_long]| rules.extend(calls.iter().map(|&call| (call, vec![])));
        allow(CAPTURE);
        if self != Threads::Capture {
            allow(WORKER);
        }
        if matches!(self, Threads::Port | Threads::All) {
            allow(PORT);
        }
        if self == Threads::All {
            allow(ALL);
        }
        let masked = |arg, mask: i32, value: i32| {
            let mask = u64::from(mask.cast_unsigned());
            let value = u64::from(value.cast_unsigned());
            let op = SeccompCmpOp::MaskedEq(mask);
            let condition = SeccompCondition::new(arg, SeccompCmpArgLen::Dword, op, value)?;
            SeccompRule::new(vec![condition])
        };
        let equal = |arg, length, value| {
            let condition = SeccompCondition::new(arg, length, SeccompCmpOp::Eq, value)?;
            SeccompRule::new(vec![condition])
        };
        let dword = SeccompCmpArgLen::Dword;
        // No connections, which this flag makes by sending.
        for (call, flags) in [
            (libc::SYS_sendto, 3),
            (libc::SYS_sendmsg, 2),
            (libc::SYS_sendmmsg, 3),
        ] {
            // Captures have not all of them.
            if let Some(allowed) = rules.get_mut(&call) {
                allowed.push(masked(flags, libc::MSG_FASTOPEN, 0)?);
            }
        }
        // No new code.
        for call in [libc::SYS_mmap, libc::SYS_mprotect] {
            rules.insert(call, vec![masked(2, libc::PROT_EXEC, 0)?]);
        }
        let ioctls = IOCTLS.iter().map(|&ioctl| equal(1, dword.clone(), ioctl));
        rules.insert(libc::SYS_ioctl, ioctls.collect::<Result<_, _>>()?);
        // Signals to this process alone.
        let own = u64::from(std::process::id());
        let own = vec![equal(0, dword.clone(), own)?];
        rules.insert(libc::SYS_tgkill, own);
        let prctl = |&prctl: &i32| equal(0, dword.clone(), u64::from(prctl.cast_unsigned()));
        let prctls = PRCTLS.iter().map(prctl);
        rules.insert(libc::SYS_prctl, prctls.collect::<Result<_, _>>()?);
        if self == Threads::All {
            // Threads alone, in the namespaces of this one.
            let namespaces = libc::CLONE_NEWUSER
                | libc::CLONE_NEWNS
                | libc::CLONE_NEWNET
                | libc::CLONE_NEWPID
                | libc::CLONE_NEWIPC
                | libc::CLONE_NEWUTS
                | libc::CLONE_NEWCGROUP;
            let thread = libc::CLONE_THREAD | libc::CLONE_VM;
            let thread = masked(0, thread | namespaces, thread)?;
            rules.insert(libc::SYS_clone, vec![thread]);
            // To read.
            let write = libc::O_ACCMODE | libc::O_CREAT | libc::O_TRUNC | libc::O_TMPFILE;
            let write = write & !libc::O_DIRECTORY;
            rules.insert(libc::SYS_openat, vec![masked(2, write, 0)?]);
            #[cfg(target_arch = "x86_64")]
            rules.insert(libc::SYS_open, vec![masked(1, write, 0)?]);
            // Limits are read, not set.
            let none = equal(2, SeccompCmpArgLen::Qword, 0)?;
            rules.insert(libc::SYS_prlimit64, vec![none]);
            // Threads give themselves narrower lists.
            let filter = u64::from(libc::SECCOMP_SET_MODE_FILTER);
            rules.insert(libc::SYS_seccomp, vec![equal(0, dword, filter)?]);
        }
        Ok(rules)
    }

    fn program(self) -> Result<BpfProgram, BackendError> {
        let refused = SeccompAction::Errno(libc::EPERM.cast_unsigned());
        compile(self.rules()?, refused, SeccompAction::Allow)
    }
}

/// `clone3` has its flags in memory, where no filter sees them. Libraries take `clone` instead.
fn without_clone3() -> Result<BpfProgram, BackendError> {
    let rules = Rules::from([(libc::SYS_clone3, vec![])]);
    let missing = SeccompAction::Errno(libc::ENOSYS.cast_unsigned());
    compile(rules, SeccompAction::Allow, missing)
}

fn compile(
    rules: Rules,
    otherwise: SeccompAction,
    matching: SeccompAction,
) -> Result<BpfProgram, BackendError> {
    let machine = std::env::consts::ARCH.try_into()?;
    SeccompFilter::new(rules, otherwise, matching, machine)?.try_into()
}

/// Gives the calling thread, and threads that it starts, the list of its kind, for good. It has no
/// new privileges then (`no_new_privs`).
///
/// # Errors
/// If the system has no such lists. The thread may be partly restricted then.
pub fn filter_thread(kind: Threads) -> Result<(), seccompiler::Error> {
    apply_filter(&kind.program()?)?;
    match kind {
        // Last, as of two refusals the younger filter's is the one that is seen.
        Threads::All => apply_filter(&without_clone3()?),
        Threads::Port | Threads::Worker | Threads::Capture => Ok(()),
    }
}

/// Set when this process's threads are to have their lists.
static FILTERED: AtomicBool = AtomicBool::new(false);

/// Has threads that start from now on give themselves their lists.
pub(super) fn filter_threads() {
    // Threads are started after it.
    FILTERED.store(true, Ordering::Release);
}

fn start(kind: Threads) {
    // Where there is no helper, a port's thread does by itself what one would do for it.
    let does_all = kind == Threads::Port && super::client::helper().is_none();
    if FILTERED.load(Ordering::Acquire) && !does_all {
        // A system without has been told of when the process gave itself its own.
        let _ = filter_thread(kind);
    }
}

/// A worker has started.
pub(crate) fn worker_thread() {
    start(Threads::Worker);
}

/// A capture's thread has started.
pub fn capture_thread() {
    start(Threads::Capture);
}

/// A driver's own thread has started.
pub(crate) fn port_thread() {
    start(Threads::Port);
}
