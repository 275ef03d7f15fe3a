//! Scheduling classes for worker threads: a raised one for what the kernel does in softirq, and
//! the normal one for what it leaves to ksoftirqd.

#![allow(
    unsafe_code,
    reason = "sched_setattr(2) has no safe wrapper that takes a slice"
)]

use std::io;
use std::thread;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::thread::{CapabilitySet, CapabilitySets, set_capabilities};

/// Slice of a worker in a normal class, ns: the shortest that the system grants. One that wakes
/// has then an early deadline, and preempts a program with the usual slice of 3 ms.
const SLICE: u64 = 100_000;
/// Lowest of the realtime priorities: above every normal thread, below all that somebody gave a
/// priority on purpose.
const PRIORITY: u32 = 1;
/// Highest of the nice levels, and the limit that allows it (RLIMIT_NICE: 20 minus the level).
const NICE: i32 = -20;
const NICE_LIMIT: u64 = 40;

/// Class that a worker has while it is raised.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scheduling {
    /// `SCHED_RR`, priority 1: ahead of all normal threads. Needs RLIMIT_RTPRIO of 1 or
    /// CAP_SYS_NICE.
    Realtime,
    /// `SCHED_OTHER`, nice level -20, with a slice of 100 µs. Needs RLIMIT_NICE of 40 or
    /// CAP_SYS_NICE.
    Nice,
    /// `SCHED_OTHER` with a slice of 100 µs. Needs no right.
    Normal,
}

/// A class that workers may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Allowed {
    class: Scheduling,
    /// They keep CAP_SYS_NICE for it.
    keeps_nice: bool,
}

impl Allowed {
    /// The class that everybody may have.
    pub const NORMAL: Allowed = Allowed {
        class: Scheduling::Normal,
        keeps_nice: false,
    };

    /// The class.
    pub fn class(self) -> Scheduling {
        self.class
    }

    /// Workers keep CAP_SYS_NICE, as the limit cannot be raised.
    pub fn keeps_nice(self) -> bool {
        self.keeps_nice
    }

    /// Capabilities that a worker keeps.
    pub(crate) fn kept(self) -> CapabilitySet {
        match self.keeps_nice {
            true => CapabilitySet::SYS_NICE,
            false => CapabilitySet::empty(),
        }
    }

    /// Leaves the calling thread no capabilities but the one that it keeps.
    pub(crate) fn drop_capabilities(self) {
        let kept = self.kept();
        // To give up capabilities is always allowed, but for a seccomp filter.
        let _ = set_capabilities(
            None,
            CapabilitySets {
                effective: kept,
                permitted: kept,
                inheritable: CapabilitySet::empty(),
            },
        );
    }

    fn attempt(self) -> io::Result<()> {
        let attempt = thread::Builder::new().spawn(move || {
            self.drop_capabilities();
            self.class.raise()
        })?;
        attempt
            .join()
            .unwrap_or_else(|_| Err(io::Error::other("the thread that tried it panicked")))
    }
}

impl Scheduling {
    /// All, best first.
    pub const ALL: [Scheduling; 3] = [Scheduling::Realtime, Scheduling::Nice, Scheduling::Normal];

    /// The class that workers may have: `wanted`, or the best without it; else the next after that
    /// one. Also why not those before. Only for one that is wanted do workers keep a capability.
    /// Blocks for a moment: it tries, on a thread.
    pub fn best(wanted: Option<Scheduling>) -> (Allowed, Vec<(Scheduling, io::Error)>) {
        let first = wanted.unwrap_or(Scheduling::ALL[0]);
        let mut refused = Vec::new();
        for class in Scheduling::ALL {
            if class as u8 >= first as u8 {
                match class.allow(wanted == Some(class)) {
                    Ok(allowed) => return (allowed, refused),
                    Err(error) => refused.push((class, error)),
                }
            }
        }
        (Allowed::NORMAL, refused)
    }

    /// Name, as in the configuration.
    pub fn name(self) -> &'static str {
        match self {
            Scheduling::Realtime => "realtime",
            Scheduling::Nice => "nice",
            Scheduling::Normal => "normal",
        }
    }

    /// Right that a process needs for it: a limit, as `prlimit` and systemd name it, or a
    /// capability: one that raises the limit, or one that workers keep where the class is wanted.
    pub fn needs(self) -> &'static str {
        match self {
            Scheduling::Realtime => {
                "RLIMIT_RTPRIO of 1 (systemd: LimitRTPRIO=1), CAP_SYS_RESOURCE or CAP_SYS_NICE"
            }
            Scheduling::Nice => {
                "RLIMIT_NICE of 40 (systemd: LimitNICE=-20), CAP_SYS_RESOURCE or CAP_SYS_NICE"
            }
            Scheduling::Normal => "no right",
        }
    }

    /// Tries whether workers may have this class: without any capability, having raised the
    /// process's limits if it may; else, if `keep`, with CAP_SYS_NICE.
    fn allow(self, keep: bool) -> io::Result<Allowed> {
        let (resource, least) = match self {
            Scheduling::Realtime => (Resource::Rtprio, u64::from(PRIORITY)),
            Scheduling::Nice => (Resource::Nice, NICE_LIMIT),
            Scheduling::Normal => return Ok(Allowed::NORMAL),
        };
        let limit = getrlimit(resource);
        if limit.current.is_some_and(|current| current < least) {
            let raised = Rlimit {
                current: Some(least),
                maximum: limit.maximum.map(|maximum| maximum.max(least)),
            };
            // If refused, the attempt below says what that means.
            let _ = setrlimit(resource, raised);
        }
        let without = Allowed {
            class: self,
            keeps_nice: false,
        };
        let with = Allowed {
            class: self,
            keeps_nice: true,
        };
        match without.attempt() {
            Err(_) if keep && with.attempt().is_ok() => Ok(with),
            result => result.map(|()| without),
        }
    }

    /// Gives the calling thread this class.
    ///
    /// # Errors
    /// If the thread may not have it.
    pub(crate) fn raise(self) -> io::Result<()> {
        self.set(0)
    }

    /// Gives a thread of this process the normal class, by number; 0 is the calling thread.
    ///
    /// # Errors
    /// None that is known: everybody may lower a thread of his own.
    pub(crate) fn lower(thread: i32) -> io::Result<()> {
        Scheduling::Normal.set(thread)
    }

    fn set(self, thread: i32) -> io::Result<()> {
        let (policy, nice, priority, slice) = match self {
            Scheduling::Realtime => (libc::SCHED_RR, 0, PRIORITY, 0),
            Scheduling::Nice => (libc::SCHED_OTHER, NICE, 0, SLICE),
            Scheduling::Normal => (libc::SCHED_OTHER, 0, 0, SLICE),
        };
        let attr = libc::sched_attr {
            size: size_of::<libc::sched_attr>() as u32,
            sched_policy: policy as u32,
            sched_flags: 0,
            sched_nice: nice,
            sched_priority: priority,
            sched_runtime: slice,
            sched_deadline: 0,
            sched_period: 0,
        };
        // SAFETY: the kernel reads `size` bytes of the structure, which is initialised.
        let result = unsafe { libc::syscall(libc::SYS_sched_setattr, thread, &raw const attr, 0) };
        if result == 0 {
            Ok(())
        } else {
            Err(io::Error::last_os_error())
        }
    }
}
