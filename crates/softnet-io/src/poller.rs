//! Where a worker sleeps: epoll over the files of its queues, an eventfd to be woken by, timeouts
//! to the nanosecond.
//!
//! Blocks in [`Sleep::sleep`] only.

#![allow(
    unsafe_code,
    reason = "epoll_pwait2(2) has no safe wrapper with sub-millisecond timeouts"
)]

use std::io;
use std::num::NonZeroU64;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};

use rustix::event::{EventfdFlags, epoll, eventfd};
use rustix::io::Errno;
use rustix::thread::CpuSet;
use rustix::time::Timespec;
use softnet::time::Time;
use softnet::tx::{Interest, RingFile, Wake};
use softnet_engine::rx::Sleep;

use crate::scheduling::{Allowed, Scheduling};

/// Events taken at once; more wait for the next look (the list is served in turn, so none
/// starves).
const EVENTS: usize = 64;
/// The token of our own; [`Poller::watch`] refuses it.
const WAKE: u64 = u64::MAX;

/// A [`Sleep`] made of epoll.
#[derive(Debug)]
pub struct Poller {
    epoll: OwnedFd,
    waker: Arc<EventWaker>,
    /// The CPU that the thread runs on; the system's choice if none.
    cpu: Option<usize>,
    /// Class of the thread while it is raised; the system's choice if none.
    scheduling: Option<Allowed>,
    /// Number of the thread, for others to lower it; 0 before it has started.
    thread: Arc<AtomicI32>,
}

/// The eventfd that wakes a [`Poller`].
#[derive(Debug)]
struct EventWaker {
    eventfd: OwnedFd,
}

impl Wake for EventWaker {
    fn wake(&self) {
        // It can fail in one way, a counter at its end (2^64 wake-ups), in which case the sleeper
        // is woken all the same.
        let _ = rustix::io::write(&self.eventfd, &1u64.to_ne_bytes());
    }
}

impl Poller {
    /// A place to sleep for one thread.
    ///
    /// # Errors
    /// If the system has no file descriptors left.
    pub fn new() -> io::Result<Poller> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let eventfd = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        // Edge-triggered: each write is reported once, and no thread has to read the counter back
        // to zero.
        let flags = epoll::EventFlags::IN | epoll::EventFlags::ET;
        epoll::add(&epoll, &eventfd, epoll::EventData::new_u64(WAKE), flags)?;
        let waker = Arc::new(EventWaker { eventfd });
        Ok(Poller {
            epoll,
            waker,
            cpu: None,
            scheduling: None,
            thread: Arc::default(),
        })
    }

    /// Has the worker's thread work in this class, for a bounded time after each sleep, and in the
    /// normal class then. See [`Scheduling::best`].
    #[must_use]
    pub fn scheduled(mut self, scheduling: Allowed) -> Poller {
        self.scheduling = Some(scheduling);
        self
    }

    /// Ties the worker's thread to CPU `cpu`. Without effect if it may not run there.
    #[must_use]
    pub fn on_cpu(mut self, cpu: usize) -> Poller {
        self.cpu = Some(cpu);
        self
    }

    fn add(&self, fd: BorrowedFd<'_>, token: usize, flags: epoll::EventFlags) -> io::Result<()> {
        let token = token as u64;
        if token == WAKE {
            return Err(io::Error::from(io::ErrorKind::InvalidInput));
        }
        let data = epoll::EventData::new_u64(token);
        Ok(epoll::add(&self.epoll, fd, data, flags)?)
    }

    /// Waits; `None` is for ever.
    fn wait(&mut self, timeout: Option<Timespec>, events: &mut Events) -> Result<usize, Errno> {
        const NOW: Timespec = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        match timeout {
            None => epoll_wait(&self.epoll, -1, events),
            Some(NOW) => epoll_wait(&self.epoll, 0, events),
            Some(timeout) => match epoll_pwait2(&self.epoll, timeout, events) {
                // Before Linux 5.11, or behind a seccomp filter: up to a millisecond late.
                Err(Errno::NOSYS | Errno::PERM) => {
                    let millis =
                        timeout.tv_sec.saturating_mul(1000) + timeout.tv_nsec / 1_000_000 + 1;
                    let millis = i32::try_from(millis).unwrap_or(i32::MAX);
                    epoll_wait(&self.epoll, millis, events)
                }
                other => other,
            },
        }
    }
}

impl Sleep for Poller {
    /// The thread has no capabilities from then on, as no driver needs any to move packets, unless
    /// it keeps one for its [class](Scheduling). With
    /// `CAP_NET_ADMIN` an interface that is renamed while a worker asks for its state would make
    /// the kernel load a module of that name, and the worker wait for it.
    fn start(&mut self) {
        // Harmless if refused: time-outs are then up to 50 µs late.
        let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
        if let Some(cpu) = self.cpu.filter(|&cpu| cpu < CpuSet::MAX_CPU) {
            let mut cpus = CpuSet::new();
            cpus.set(cpu);
            let _ = rustix::thread::sched_setaffinity(None, &cpus);
        }
        self.scheduling
            .unwrap_or(Allowed::NORMAL)
            .drop_capabilities();
        let thread = rustix::thread::gettid().as_raw_nonzero().get();
        self.thread.store(thread, Ordering::Relaxed);
        crate::rights::worker_thread();
        self.raise();
    }

    fn raise(&mut self) {
        if let Some(scheduling) = self.scheduling {
            // If refused, the thread stays in the class that it has.
            let _ = scheduling.class().raise();
        }
    }

    fn lower(&mut self) {
        if self.scheduling.is_some_and(|s| s != Allowed::NORMAL) {
            let _ = Scheduling::lower(0);
        }
    }

    fn lower_from_elsewhere(&self) -> Box<dyn Fn() + Send + Sync> {
        let thread = self.thread.clone();
        Box::new(move || {
            let thread = thread.load(Ordering::Relaxed);
            if thread != 0 {
                let _ = Scheduling::lower(thread);
            }
        })
    }

    fn watch(&mut self, fd: BorrowedFd<'_>, token: usize) -> io::Result<()> {
        self.add(fd, token, epoll::EventFlags::IN)
    }

    fn watch_ring(&mut self, file: &RingFile, token: usize) -> io::Result<()> {
        let interest = match file.interest {
            Interest::Readable => epoll::EventFlags::IN,
            Interest::Writable => epoll::EventFlags::OUT,
        };
        self.add(file.fd.as_fd(), token, interest | epoll::EventFlags::ET)
    }

    fn unwatch(&mut self, fd: BorrowedFd<'_>) {
        // It fails only if the file was not watched, which is what is wanted.
        let _ = epoll::delete(&self.epoll, fd);
    }

    fn sleep(&mut self, now: Time, until: Option<Time>, ready: &mut Vec<usize>) {
        let timeout = until.map(|until| {
            let left = until.since(now);
            Timespec {
                tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
                tv_nsec: left.subsec_nanos().into(),
            }
        });
        let mut events: Events = [EMPTY; EVENTS];
        // Interrupted by a signal, or refused: the caller looks at everything again, as after any
        // wake-up.
        let n = self.wait(timeout, &mut events).unwrap_or(0);
        let tokens = events[..n]
            .iter()
            .map(|e| e.u64)
            .filter(|&token| token != WAKE);
        ready.extend(tokens.filter_map(|token| usize::try_from(token).ok()));
    }

    fn yield_cpu(&mut self) {
        rustix::thread::sched_yield();
    }

    fn waker(&self) -> Arc<dyn Wake> {
        self.waker.clone()
    }
}

type Events = [libc::epoll_event; EVENTS];
const EMPTY: libc::epoll_event = libc::epoll_event { events: 0, u64: 0 };

fn epoll_wait(epoll: &OwnedFd, timeout_ms: i32, events: &mut Events) -> Result<usize, Errno> {
    // SAFETY: the kernel writes at most EVENTS events to the array.
    let n = unsafe {
        libc::epoll_wait(
            epoll.as_raw_fd(),
            events.as_mut_ptr(),
            EVENTS as i32,
            timeout_ms,
        )
    };
    usize::try_from(n).map_err(|_| last_error())
}

fn epoll_pwait2(epoll: &OwnedFd, timeout: Timespec, events: &mut Events) -> Result<usize, Errno> {
    /// `struct __kernel_timespec`: 64 bits on every machine.
    #[repr(C)]
    struct KernelTimespec {
        seconds: i64,
        nanoseconds: i64,
    }
    let timeout = KernelTimespec {
        seconds: timeout.tv_sec,
        nanoseconds: timeout.tv_nsec,
    };
    // SAFETY: the kernel writes at most EVENTS events to the array and reads the timeout; no
    // signal mask is given.
    let n = unsafe {
        libc::syscall(
            libc::SYS_epoll_pwait2,
            epoll.as_raw_fd(),
            events.as_mut_ptr(),
            EVENTS,
            &raw const timeout,
            std::ptr::null::<libc::sigset_t>(),
            0usize,
        )
    };
    usize::try_from(n).map_err(|_| last_error())
}

fn last_error() -> Errno {
    io::Error::last_os_error()
        .raw_os_error()
        .map_or(Errno::INVAL, Errno::from_raw_os_error)
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;
    use std::time::{Duration, Instant};

    use super::*;

    fn sleep(poller: &mut Poller, until: Option<Time>) -> Vec<usize> {
        let mut ready = Vec::new();
        poller.sleep(Time::ZERO, until, &mut ready);
        ready
    }

    fn check(mut poller: Poller) {
        let (a, a_writer) = rustix::pipe::pipe().unwrap();
        let (b, b_writer) = rustix::pipe::pipe().unwrap();
        poller.watch(a.as_fd(), 7).unwrap();
        poller.watch(b.as_fd(), 0).unwrap();
        assert_eq!(sleep(&mut poller, Some(Time::ZERO)), Vec::<usize>::new());

        // A timeout is never cut short, and a leftover timer of one sleep does not end the next.
        let start = Instant::now();
        assert_eq!(sleep(&mut poller, Some(Time(300_000))), Vec::<usize>::new());
        assert!(start.elapsed() >= Duration::from_micros(300));
        rustix::io::write(&a_writer, b"x").unwrap();
        assert_eq!(sleep(&mut poller, Some(Time(100_000))), [7]);
        rustix::io::read(&a, &mut [0u8; 8]).unwrap();
        std::thread::sleep(Duration::from_millis(1));
        let start = Instant::now();
        assert_eq!(
            sleep(&mut poller, Some(Time(5_000_000))),
            Vec::<usize>::new()
        );
        assert!(start.elapsed() >= Duration::from_millis(5));

        // Level-triggered.
        rustix::io::write(&b_writer, b"x").unwrap();
        assert_eq!(sleep(&mut poller, None), [0]);
        assert_eq!(sleep(&mut poller, None), [0]);
        poller.unwatch(b.as_fd());
        assert_eq!(sleep(&mut poller, Some(Time::ZERO)), Vec::<usize>::new());

        // A wake-up before the sleep ends it, once, and is no ready file.
        let waker = poller.waker();
        waker.wake();
        waker.wake();
        assert_eq!(sleep(&mut poller, None), Vec::<usize>::new());
        let start = Instant::now();
        assert_eq!(
            sleep(&mut poller, Some(Time(2_000_000))),
            Vec::<usize>::new()
        );
        assert!(start.elapsed() >= Duration::from_millis(2));

        // And one from another thread ends a sleep without a timeout.
        std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(Duration::from_millis(5));
                waker.wake();
            });
            assert_eq!(sleep(&mut poller, None), Vec::<usize>::new());
        });
    }

    #[test]
    fn sleeps_and_wakes() {
        check(Poller::new().unwrap());
    }

    /// The thread that sleeps runs where it is told to, and the one that made the poller does not.
    #[test]
    fn a_thread_is_tied_to_a_cpu() {
        let cpus = || rustix::thread::sched_getaffinity(None).unwrap();
        let before = cpus();
        let last = (0..CpuSet::MAX_CPU)
            .rfind(|&cpu| before.is_set(cpu))
            .unwrap();
        let mut poller = Poller::new().unwrap().on_cpu(last);
        std::thread::spawn(move || {
            poller.start();
            let cpus = cpus();
            assert!(cpus.is_set(last) && cpus.count() == 1);
        })
        .join()
        .unwrap();
        assert_eq!(cpus(), before);
        std::thread::spawn(move || {
            Poller::new().unwrap().on_cpu(usize::MAX).start();
            assert_eq!(cpus(), before, "there is no such CPU");
        })
        .join()
        .unwrap();
    }

    #[test]
    fn reserved_tokens_are_refused() {
        let (a, _writer) = rustix::pipe::pipe().unwrap();
        assert!(Poller::new().unwrap().watch(a.as_fd(), usize::MAX).is_err());
    }
}
