//! epoll, as little of it as the load generators need.

use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::time::Timespec;

/// Events taken at once.
const EVENTS: usize = 256;
/// Time that a wait may take before its caller looks at the clock.
const PATIENCE: Duration = Duration::from_millis(20);

/// Files that are waited for, by number; reported as long as they are ready.
pub(super) struct Events {
    epoll: OwnedFd,
    ready: Vec<Event>,
}

impl Events {
    pub(super) fn new() -> rustix::io::Result<Events> {
        Ok(Events {
            epoll: epoll::create(CreateFlags::CLOEXEC)?,
            ready: Vec::with_capacity(EVENTS),
        })
    }

    pub(super) fn add(
        &self,
        file: impl AsFd,
        number: usize,
        flags: EventFlags,
    ) -> rustix::io::Result<()> {
        epoll::add(&self.epoll, file, EventData::new_u64(number as u64), flags)
    }

    pub(super) fn change(
        &self,
        file: impl AsFd,
        number: usize,
        flags: EventFlags,
    ) -> rustix::io::Result<()> {
        epoll::modify(&self.epoll, file, EventData::new_u64(number as u64), flags)
    }

    /// Waits a moment; the numbers of files that are ready. It may be none.
    pub(super) fn wait(&mut self) -> rustix::io::Result<Vec<usize>> {
        self.ready.clear();
        let timeout = Timespec {
            tv_sec: 0,
            tv_nsec: i64::from(PATIENCE.subsec_nanos()),
        };
        let buffer = rustix::buffer::spare_capacity(&mut self.ready);
        match epoll::wait(&self.epoll, buffer, Some(&timeout)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(other) => return Err(other),
        }
        let numbers = self.ready.iter().map(|event| event.data.u64() as usize);
        Ok(numbers.collect())
    }
}
