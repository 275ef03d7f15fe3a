//! Lists of system calls: what each kind of thread is refused, and what it still can do.

use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::thread;

use libc::{EPERM, c_long};
use rustix::net::{SendFlags, send};
use softnet_io::rights::{Threads, filter_thread};

/// Runs `f` on a thread with the list of a kind.
fn filtered<T: Send>(kind: Threads, f: impl FnOnce() -> T + Send) -> T {
    thread::scope(|scope| {
        let thread = scope.spawn(|| {
            filter_thread(kind).expect("the system filters system calls");
            f()
        });
        thread.join().expect("it does not panic")
    })
}

/// A call, and arguments with which the kernel refuses it otherwise than a filter does, or does
/// nothing.
type Call = (&'static str, c_long, [usize; 4]);

/// No file, address, process or name.
const NONE: usize = usize::MAX;

const FORBIDDEN: &[Call] = &[
    ("execve", libc::SYS_execve, [0, 0, 0, 0]),
    ("execveat", libc::SYS_execveat, [NONE, 0, 0, 0]),
    ("ptrace", libc::SYS_ptrace, [NONE, 0, 0, 0]),
    ("process_vm_readv", libc::SYS_process_vm_readv, [0, 0, 0, 0]),
    (
        "process_vm_writev",
        libc::SYS_process_vm_writev,
        [0, 0, 0, 0],
    ),
    ("socket", libc::SYS_socket, [NONE, NONE, NONE, 0]),
    ("connect", libc::SYS_connect, [NONE, 0, 0, 0]),
    ("listen", libc::SYS_listen, [NONE, 0, 0, 0]),
    (
        "sendto to connect",
        libc::SYS_sendto,
        [NONE, 0, 0, libc::MSG_FASTOPEN as usize],
    ),
    (
        "sendmsg to connect",
        libc::SYS_sendmsg,
        [
            NONE,
            0,
            (libc::MSG_FASTOPEN | libc::MSG_NOSIGNAL) as usize,
            0,
        ],
    ),
    (
        "sendmmsg to connect",
        libc::SYS_sendmmsg,
        [NONE, 0, 0, libc::MSG_FASTOPEN as usize],
    ),
    ("setns", libc::SYS_setns, [NONE, 0, 0, 0]),
    ("unshare", libc::SYS_unshare, [0, 0, 0, 0]),
    ("mount", libc::SYS_mount, [0, 0, 0, 0]),
    ("bpf", libc::SYS_bpf, [NONE, 0, 0, 0]),
    ("perf_event_open", libc::SYS_perf_event_open, [0, 0, 0, 0]),
    ("init_module", libc::SYS_init_module, [0, 0, 0, 0]),
    ("kill", libc::SYS_kill, [0x7fff_ffff, 0, 0, 0]),
    ("tgkill", libc::SYS_tgkill, [0x7fff_ffff, 1, 0, 0]),
    ("setuid", libc::SYS_setresuid, [NONE, NONE, NONE, 0]),
    ("unlinkat", libc::SYS_unlinkat, [NONE, 0, 0, 0]),
    ("renameat", libc::SYS_renameat2, [NONE, 0, NONE, 0]),
    ("mkdirat", libc::SYS_mkdirat, [NONE, 0, 0, 0]),
    ("fchmodat", libc::SYS_fchmodat, [NONE, 0, 0, 0]),
    ("io_uring_setup", libc::SYS_io_uring_setup, [0, 0, 0, 0]),
    (
        "open to write",
        libc::SYS_openat,
        [NONE, 0, libc::O_WRONLY as usize, 0],
    ),
    (
        "open to make",
        libc::SYS_openat,
        [NONE, 0, libc::O_CREAT as usize, 0],
    ),
    ("openat2", libc::SYS_openat2, [NONE, 0, 0, 0]),
    (
        "code",
        libc::SYS_mprotect,
        [0, 0, libc::PROT_EXEC as usize, 0],
    ),
    ("TIOCSTI", libc::SYS_ioctl, [NONE, 0x5412, 0, 0]),
    ("TUNSETIFF", libc::SYS_ioctl, [NONE, 0x4004_54ca, 0, 0]),
    (
        "dumpable",
        libc::SYS_prctl,
        [libc::PR_SET_PDEATHSIG as usize, 0, 0, 0],
    ),
];

/// Forbidden to threads that hear of the network or of guests, besides.
const FORBIDDEN_TO_PORTS: &[Call] = &[
    ("open", libc::SYS_openat, [NONE, 0, 0, 0]),
    ("bind", libc::SYS_bind, [NONE, 0, 0, 0]),
    (
        "a thread",
        libc::SYS_clone,
        [libc::CLONE_THREAD as usize, 0, 0, 0],
    ),
    ("stat", libc::SYS_newfstatat, [NONE, 0, 0, 0]),
    ("wait", libc::SYS_wait4, [NONE - 5, 0, 0, 0]),
];

const FORBIDDEN_TO_WORKERS: &[Call] = &[
    ("accept", libc::SYS_accept4, [NONE, 0, 0, 0]),
    ("memfd_create", libc::SYS_memfd_create, [0, 0, 0, 0]),
];

const FORBIDDEN_TO_CAPTURES: &[Call] = &[
    ("read", libc::SYS_read, [NONE, 0, 0, 0]),
    ("recvmsg", libc::SYS_recvmsg, [NONE, 0, 0, 0]),
    ("setsockopt", libc::SYS_setsockopt, [NONE, 0, 0, 0]),
];

/// The error number of a call.
fn errno((_, number, [a, b, c, d]): Call) -> i32 {
    // SAFETY: the arguments name no memory and no process; the calls of the tables above fail, or
    // do nothing, whatever else they are.
    let result = unsafe { libc::syscall(number, a, b, c, d) };
    match result {
        -1 => std::io::Error::last_os_error().raw_os_error().unwrap_or(0),
        _ => 0,
    }
}

#[test]
fn each_kind_of_thread_is_refused_what_is_not_its_work() {
    for (kind, tables) in [
        (Threads::All, &[FORBIDDEN][..]),
        (Threads::Port, &[FORBIDDEN, FORBIDDEN_TO_PORTS]),
        (
            Threads::Worker,
            &[FORBIDDEN, FORBIDDEN_TO_PORTS, FORBIDDEN_TO_WORKERS],
        ),
        (
            Threads::Capture,
            &[
                FORBIDDEN,
                FORBIDDEN_TO_PORTS,
                FORBIDDEN_TO_WORKERS,
                FORBIDDEN_TO_CAPTURES,
            ],
        ),
    ] {
        filtered(kind, || {
            for &call in tables.iter().copied().flatten() {
                assert_eq!(errno(call), EPERM, "{kind:?}: {}", call.0);
            }
        });
    }
    // By the lists: without one, these say something else, whoever runs this.
    let by_others = [
        "setuid",
        "mount",
        "init_module",
        "perf_event_open",
        "bpf",
        "unshare",
    ];
    for &call in FORBIDDEN.iter().chain(FORBIDDEN_TO_WORKERS) {
        if !by_others.contains(&call.0) && call.0 != "io_uring_setup" {
            assert_ne!(errno(call), EPERM, "{}", call.0);
        }
    }
}

#[test]
fn all_threads_read_files_and_start_threads() {
    filtered(Threads::All, || {
        let mut text = String::new();
        let mut file = File::open("/proc/thread-self/status").expect("to read");
        file.read_to_string(&mut text).expect("text");
        assert!(text.contains("NoNewPrivs:\t1"), "{text}");
        assert!(File::create("/tmp/softnet-made").is_err());
        let told = thread::spawn(|| 7).join().expect("a thread");
        assert_eq!(told, 7);
        let processes = std::process::Command::new("true").status();
        assert!(processes.is_err(), "a process was started");
    });
}

#[test]
fn a_worker_reads_writes_and_allocates() {
    let (mut one, mut other) = UnixStream::pair().expect("a pair");
    filtered(Threads::Worker, move || {
        one.write_all(b"frame").expect("written");
        let mut bytes = [0; 5];
        other.read_exact(&mut bytes).expect("read");
        assert_eq!(&bytes, b"frame");
        assert_eq!(send(&one, b"x", SendFlags::NOSIGNAL), Ok(1));
        // More than an allocator has at hand.
        let memory = vec![1_u8; 64 << 20];
        assert_eq!(memory.iter().map(|&b| u64::from(b)).sum::<u64>(), 64 << 20);
        assert!(File::open("/proc/self/status").is_err());
        assert!(thread::Builder::new().spawn(|| ()).is_err());
    });
}

/// The lists are of threads: others are as they were.
#[test]
fn other_threads_are_as_they_were() {
    filtered(Threads::Worker, || ());
    assert!(File::open("/proc/self/status").is_ok());
    assert!(std::process::Command::new("true").status().is_ok());
}
