//! Writes to the guest's event descriptors (`call`), which the front end may make block.
//!
//! The file is the front end's as much as ours: it can fill the counter and then clear
//! `O_NONBLOCK`, after which a write waits for ever, and the worker's other ports with it. So a
//! thread watches those that write: one that is in the same write for two of its ticks gets a
//! signal, upon which the write fails with `EINTR`. A write to an event descriptor that does not
//! have to wait never does, so this happens to nobody else. Nor has a write to be short that does
//! not wait: the kernel tells all who watch the file, and the front end may have half a million
//! copies of it in epoll instances. One that has used the CPU meanwhile is [`Late::Slow`].
//!
//! **Who is idle costs nothing.** The watching thread rests while nobody writes. A writer says that
//! it writes *and then* asks whether the thread rests; the thread says that it rests *and then*
//! asks who writes. Each is a store and a later load of another location with a full fence between,
//! so one of the two sees the other, and no write is unwatched ([`Rest`]).
//!
//! **Who writes wakes nobody.** It sets a timer, which ends the rest a tick later: before that
//! there is nothing to see. To wake a thread takes longer than the write, and would be done while
//! the guest waits for it.

#![allow(unsafe_code, reason = "sends a signal to a thread, and handles it")]

use std::os::fd::OwnedFd;
use std::sync::{Arc, LazyLock, Mutex, Once, OnceLock, PoisonError};
use std::time::Duration;

use rustix::io::Errno;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};
use softnet::sync::primitive::{AtomicBool, AtomicU64, Ordering, fence};

/// Interval at which the writers are looked at while there are any.
const TICK: Duration = Duration::from_millis(5);
/// Ignored where nobody handles it, so one too many does no harm.
const SIGNAL: libc::c_int = libc::SIGURG;

/// A write that took long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Late {
    /// It had to wait: the front end made the descriptor block.
    Blocked,
    /// It was work all the time between two ticks. That is so as well if the CPU had to handle
    /// interrupts for so long, which is rare.
    Slow,
}

/// A thread that writes.
#[derive(Debug)]
struct Writer {
    /// Odd: it is in a write.
    writes: AtomicU64,
    /// The last write that used the CPU from one tick to the next.
    slow: AtomicU64,
    thread: libc::pid_t,
    /// The clock of the CPU time that the thread has used.
    clock: libc::clockid_t,
}

/// True while the watching thread rests; see the module.
#[derive(Debug)]
struct Rest(AtomicBool);

impl Rest {
    fn new() -> Rest {
        Rest(AtomicBool::new(false))
    }

    /// For a writer that has said that it writes. True: it must set the watching thread's timer.
    fn is_to_end(&self) -> bool {
        fence(Ordering::SeqCst);
        let rests = self.0.load(Ordering::Relaxed);
        if rests {
            self.end();
        }
        rests
    }

    /// For the watching thread. `quiet`: whether nobody writes. False: it is not to rest.
    fn begin(&self, quiet: impl FnOnce() -> bool) -> bool {
        self.0.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        let quiet = quiet();
        if !quiet {
            self.end();
        }
        quiet
    }

    /// For the watching thread: returns when the rest has ended. `expire` waits for the timer.
    ///
    /// Two writers may have set it: its end may be from the rest before. Who sets it has ended the
    /// rest before that; the timer's lock orders the two.
    fn wait(&self, mut expire: impl FnMut()) {
        while self.is_on() {
            expire();
        }
    }

    fn is_on(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    fn end(&self) {
        self.0.store(false, Ordering::Relaxed);
    }
}

/// The thread that watches them.
struct Watch {
    writers: Mutex<Vec<Arc<Writer>>>,
    rest: Rest,
    /// Ends the rest. None, without which the thread never rests: the system had no file left.
    timer: Option<OwnedFd>,
    started: Once,
}

static WATCH: LazyLock<Watch> = LazyLock::new(|| Watch {
    writers: Mutex::new(Vec::new()),
    rest: Rest::new(),
    timer: timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::CLOEXEC).ok(),
    started: Once::new(),
});

thread_local! {
    static WRITER: Registered = Registered(WATCH.register());
}

/// This thread, until it ends.
struct Registered(Arc<Writer>);

impl Drop for Registered {
    fn drop(&mut self) {
        let mut writers = WATCH.writers.lock().unwrap_or_else(PoisonError::into_inner);
        writers.retain(|writer| !Arc::ptr_eq(writer, &self.0));
    }
}

/// Starts what watches writers. Writers may not be allowed to start threads.
pub(super) fn prepare() {
    WATCH.start();
}

/// Tells the guest. Waits for three [ticks](TICK) at most, the first in a rest that ends.
pub(super) fn call(event: &OwnedFd) -> Result<(), Late> {
    watched(|| rustix::io::write(event, &1_u64.to_ne_bytes()))
}

fn watched(write: impl FnOnce() -> Result<usize, Errno>) -> Result<(), Late> {
    WRITER.with(|Registered(writer)| {
        // Written by this thread alone.
        let writes = writer.writes.load(Ordering::Relaxed);
        writer.writes.store(writes + 1, Ordering::Relaxed);
        if WATCH.rest.is_to_end() {
            WATCH.set_timer();
        }
        // It fails otherwise if the counter is at its end, in which case the guest has been told.
        let result = write();
        writer.writes.store(writes + 2, Ordering::Release);
        match result {
            Err(Errno::INTR) => Err(Late::Blocked),
            _ if writer.slow.load(Ordering::Relaxed) == writes + 1 => Err(Late::Slow),
            _ => Ok(()),
        }
    })
}

impl Watch {
    /// The calling thread; the watching one is started if it is the first.
    fn register(&'static self) -> Arc<Writer> {
        let writer = Arc::new(Writer {
            writes: AtomicU64::new(0),
            slow: AtomicU64::new(0),
            clock: cpu_clock(),
            thread: rustix::thread::gettid().as_raw_nonzero().get(),
        });
        take_signals();
        let mut writers = self.writers.lock().unwrap_or_else(PoisonError::into_inner);
        writers.push(writer.clone());
        drop(writers);
        self.start();
        writer
    }

    /// Starts the watching thread, unless it runs.
    fn start(&'static self) {
        self.started.call_once(|| {
            let thread = std::thread::Builder::new().name("vhost-call".into());
            let thread = thread.spawn(|| {
                crate::rights::port_thread();
                self.run();
            });
            // As for other threads: without it the engine is not to work.
            thread.expect("the system has threads left");
        });
    }

    /// Has the watching thread's rest end in a tick.
    #[cold]
    fn set_timer(&self) {
        let once = Itimerspec {
            it_interval: Timespec {
                tv_sec: 0,
                tv_nsec: 0,
            },
            it_value: Timespec {
                tv_sec: 0,
                tv_nsec: TICK.subsec_nanos().into(),
            },
        };
        if let Some(timer) = &self.timer {
            // It fails for times that are none.
            let _ = timerfd_settime(timer, TimerfdTimerFlags::empty(), &once);
        }
    }

    fn run(&self) {
        let mut before: Vec<Seen> = Vec::new();
        loop {
            let now = self.look();
            for seen in now.iter().filter(|seen| seen.is_in_write()) {
                let same = |then: &&Seen| then.is_same(seen);
                if let Some(then) = before.iter().find(same) {
                    seen.writer.interrupt();
                    if seen.run_time.saturating_sub(then.run_time) >= TICK / 2 {
                        seen.writer.slow.store(seen.writes, Ordering::Relaxed);
                    }
                }
            }
            let idle = is_same(&before, &now) && !now.iter().any(Seen::is_in_write);
            before = now;
            if !(idle && self.rest(&before)) {
                std::thread::sleep(TICK);
            }
        }
    }

    /// The present state of each writer.
    fn look(&self) -> Vec<Seen> {
        let writers = self.writers.lock().unwrap_or_else(PoisonError::into_inner);
        writers.iter().map(Seen::new).collect()
    }

    /// Waits until a tick after somebody has begun to write; see the module. False: somebody
    /// writes already, or there is no timer.
    fn rest(&self, seen: &[Seen]) -> bool {
        let Some(timer) = &self.timer else {
            return false;
        };
        if !self.rest.begin(|| is_same(seen, &self.look())) {
            return false;
        }
        self.rest.wait(|| {
            let _ = rustix::io::read(timer, &mut [0; 8]);
        });
        true
    }
}

/// A writer's state at one time.
#[derive(Debug)]
struct Seen {
    writer: Arc<Writer>,
    writes: u64,
    /// For how long it had run. Zero if it was not in a write.
    run_time: Duration,
}

impl Seen {
    fn new(writer: &Arc<Writer>) -> Seen {
        let mut seen = Seen {
            writer: writer.clone(),
            writes: writer.writes.load(Ordering::Acquire),
            run_time: Duration::ZERO,
        };
        if seen.is_in_write() {
            seen.run_time = run_time(writer.clock);
        }
        seen
    }

    fn is_in_write(&self) -> bool {
        self.writes % 2 == 1
    }

    fn is_same(&self, other: &Seen) -> bool {
        Arc::ptr_eq(&self.writer, &other.writer) && self.writes == other.writes
    }
}

fn is_same(some: &[Seen], others: &[Seen]) -> bool {
    some.len() == others.len() && some.iter().zip(others).all(|(a, b)| a.is_same(b))
}

/// The calling thread's clock.
fn cpu_clock() -> libc::clockid_t {
    let mut clock = libc::CLOCK_MONOTONIC;
    // SAFETY: the thread runs, and the place is there. If it fails the place stays as it is: all
    // time is then taken for the thread's.
    unsafe { libc::pthread_getcpuclockid(libc::pthread_self(), &raw mut clock) };
    clock
}

/// Zero if the thread has ended.
fn run_time(clock: libc::clockid_t) -> Duration {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the place is there.
    unsafe { libc::clock_gettime(clock, &raw mut time) };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

impl Writer {
    fn interrupt(&self) {
        let process = rustix::process::getpid().as_raw_nonzero().get();
        // SAFETY: sends a signal that has a handler. If the thread has just ended, and another has
        // its number, that one's system call is interrupted.
        unsafe { libc::syscall(libc::SYS_tgkill, process, self.thread, SIGNAL) };
    }
}

/// Has a signal interrupt what the calling thread waits in.
fn take_signals() {
    extern "C" fn nothing(_: libc::c_int) {}
    static INSTALLED: OnceLock<()> = OnceLock::new();
    let handler: extern "C" fn(libc::c_int) = nothing;
    INSTALLED.get_or_init(|| {
        // SAFETY: zeroes are an action without flags (so that calls are not repeated) and with an
        // empty mask.
        let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
        action.sa_sigaction = handler as libc::sighandler_t;
        // SAFETY: the handler has the signature of one without SA_SIGINFO, and does nothing.
        unsafe { libc::sigaction(SIGNAL, &raw const action, std::ptr::null_mut()) };
    });
    // SAFETY: the set is emptied before it is used; the mask is this thread's.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        libc::sigaddset(&raw mut set, SIGNAL);
        libc::pthread_sigmask(libc::SIG_UNBLOCK, &raw const set, std::ptr::null_mut());
    }
}

#[cfg(all(test, loom))]
mod models;

#[cfg(all(test, not(loom), not(miri)))]
mod tests {
    use std::sync::mpsc;
    use std::time::Instant;

    use rustix::event::{EventfdFlags, eventfd};

    use super::*;

    /// A write that waits is ended, also if it is what ends the watching thread's rest.
    #[test]
    fn a_write_that_waits_is_ended_after_a_rest() {
        prepare();
        let full = Arc::new(eventfd(0, EventfdFlags::CLOEXEC).unwrap());
        rustix::io::write(&*full, &(u64::MAX - 1).to_ne_bytes()).unwrap();
        for _ in 0..3 {
            // Other tests may write all the time.
            let end = Instant::now() + Duration::from_secs(5);
            while !WATCH.rest.is_on() && Instant::now() < end {
                std::thread::sleep(TICK);
            }
            let (done, result) = mpsc::channel();
            let full = full.clone();
            std::thread::spawn(move || done.send(call(&full)));
            let result = result.recv_timeout(Duration::from_secs(60));
            assert_eq!(result, Ok(Err(Late::Blocked)));
        }
    }

    /// A write that is work for two ticks is noticed. One that waits in the kernel is not work.
    #[test]
    fn a_write_that_uses_the_cpu_is_slow() {
        let work = || {
            let end = Instant::now() + Duration::from_secs(20);
            let slow = || WRITER.with(|Registered(it)| it.slow.load(Ordering::Relaxed));
            let before = slow();
            while slow() == before && Instant::now() < end {}
            Ok(8)
        };
        let wait = || {
            std::thread::sleep(TICK * 10);
            Ok(8)
        };
        for _ in 0..2 {
            assert_eq!(watched(work), Err(Late::Slow));
            // Time that the host takes from this machine counts as the thread's.
            assert!((0..5).any(|_| watched(wait).is_ok()));
        }
        assert_eq!(watched(|| Err(Errno::INTR)), Err(Late::Blocked));
    }
}
