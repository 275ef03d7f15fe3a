//! The interface behind a port that uses one which is there: whether it is up and has a carrier,
//! its MTU, and its speed.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use rustix::io::Errno;
use rustix::net::netdevice::{self, InlinedName};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};
use softnet_engine::LinkState;

use crate::link_events::{LinkEvents, Seen};
use crate::rights::Subject;
use crate::tap::sys;
use crate::{LinkError, Links, NetnsSpec};

/// Why an interface that is there cannot be used, by whatever driver.
#[derive(Debug, thiserror::Error)]
pub enum InterfaceError {
    /// There is no such interface, or it cannot be watched.
    #[error(transparent)]
    Link(#[from] LinkError),
    /// Frames of another kind.
    #[error("the interface '{0}' is not an Ethernet device")]
    NotEthernet(String),
    /// The user may not.
    #[error("not allowed to use the interface '{interface}': {needs}")]
    NotAllowed {
        /// The interface.
        interface: String,
        /// Rights that the driver takes.
        needs: &'static str,
    },
    /// The kernel refused a step.
    #[error("cannot use the interface '{interface}': {what} was refused")]
    Refused {
        /// The interface.
        interface: String,
        /// The step.
        what: &'static str,
        /// The kernel's reason.
        source: io::Error,
    },
}

/// An interface as a driver opens it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ToOpen<'a> {
    /// Name of the interface.
    pub(crate) interface: &'a str,
    /// Rights that the driver takes, for errors.
    pub(crate) needs: &'static str,
}

/// An Ethernet interface of the calling thread's namespace.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) index: u32,
    pub(crate) name: InlinedName,
    /// Tells of changes since it was found.
    pub(crate) events: LinkEvents,
}

impl ToOpen<'_> {
    /// A step that was refused.
    pub(crate) fn refused(self, what: &'static str) -> impl Fn(Errno) -> InterfaceError {
        move |source| {
            let interface = self.interface.to_owned();
            match source {
                Errno::PERM | Errno::ACCESS => InterfaceError::NotAllowed {
                    interface,
                    needs: self.needs,
                },
                source => InterfaceError::Refused {
                    interface,
                    what,
                    source: source.into(),
                },
            }
        }
    }

    /// Looks it up in the calling thread's namespace.
    pub(crate) fn find(self) -> Result<Found, InterfaceError> {
        let index = Links::open()?.index(self.interface)?;
        // Before anything is asked, so that no change is missed.
        let events = LinkEvents::open(index)?;
        let name = netdevice::index_to_name_inlined(events.fd(), index)
            .map_err(self.refused("the interface's name"))?;
        let kind = sys::hardware_type(events.fd(), &name)
            .map_err(self.refused("the interface's type"))?;
        if kind != libc::ARPHRD_ETHER {
            return Err(InterfaceError::NotEthernet(self.interface.to_owned()));
        }
        Ok(Found {
            index,
            name,
            events,
        })
    }

    /// A socket of packets, which receives none until it is bound.
    pub(crate) fn packet_socket(self) -> Result<OwnedFd, InterfaceError> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        // Protocol 0 receives nothing.
        socket_with(AddressFamily::PACKET, SocketType::RAW, flags, None)
            .map_err(self.refused("a packet socket"))
    }
}

/// The thing that a configuration has to name before the interface is opened.
pub(crate) fn subject(netns: Option<&NetnsSpec>, interface: &str) -> Subject {
    Subject::Interface(netns.cloned(), interface.to_owned())
}

/// An interface that is watched.
#[derive(Debug)]
pub(crate) struct Interface {
    index: u32,
    /// True while frames are delivered: [`state`](Interface::state) for transmit queues. Says
    /// nothing about other memory, so access is Relaxed, as with `gone`.
    up: AtomicBool,
    /// The interface was deleted, or moved to another namespace.
    gone: AtomicBool,
    /// The speed that it told last; 0: none. Relaxed, too.
    speed: AtomicU64,
    /// Something was reported since it was asked for its speed, or it was up and told none then.
    /// Relaxed: who sees this asks the kernel, which had changed it before it said so.
    reported: AtomicBool,
    events: LinkEvents,
}

impl Interface {
    /// To be made before an XDP program is attached: that resets some interfaces, which tell no
    /// speed for a while.
    pub(crate) fn new(index: u32, events: LinkEvents) -> Interface {
        Interface {
            index,
            up: AtomicBool::new(true),
            gone: AtomicBool::new(false),
            speed: AtomicU64::new(events.speed(index).unwrap_or(0)),
            reported: AtomicBool::new(true),
            events,
        }
    }

    pub(crate) fn is_up(&self) -> bool {
        self.up.load(Ordering::Relaxed)
    }

    pub(crate) fn is_gone(&self) -> bool {
        self.gone.load(Ordering::Relaxed)
    }

    /// Speed of its medium in bytes per second, if it has told one: the last one, where it tells
    /// none now. Waits for the kernel's lock of all interfaces.
    pub(crate) fn speed(&self) -> Option<u64> {
        // In this order: what is reported later is asked for again.
        self.reported.store(false, Ordering::Relaxed);
        let now = self.events.speed(self.index);
        if now.is_none() && self.is_up() {
            // Some have a carrier before they know their speed.
            self.reported.store(true, Ordering::Relaxed);
        }
        told(&self.speed, now)
    }

    /// See [`Link::may_have_another_speed`](softnet_engine::Link::may_have_another_speed).
    pub(crate) fn may_have_another_speed(&self) -> bool {
        self.reported.load(Ordering::Relaxed)
    }

    /// Readable when something changed.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.events.fd()
    }

    /// The state now. Consumes what made the file readable.
    pub(crate) fn state(&self) -> LinkState {
        // In this order: what changes later is reported again.
        if self.events.drain() {
            self.reported.store(true, Ordering::Relaxed);
        }
        let (up, mtu) = match self.events.state(self.index) {
            Seen::Is(state) => (state.up && state.running, state.mtu),
            Seen::Renamed => (self.is_up(), None),
            Seen::Gone => {
                self.gone.store(true, Ordering::Relaxed);
                (false, None)
            }
        };
        let state = LinkState {
            up,
            mtu,
            features: None,
        };
        self.up.store(state.up, Ordering::Relaxed);
        state
    }
}

/// The speed that was told last, where none is told now.
fn told(last: &AtomicU64, now: Option<u64>) -> Option<u64> {
    if let Some(speed) = now {
        last.store(speed, Ordering::Relaxed);
    }
    Some(last.load(Ordering::Relaxed)).filter(|&speed| speed > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_speed_is_known_until_another_is_told() {
        let last = AtomicU64::new(0);
        let known = [None, Some(5), None, Some(7)].map(|now| told(&last, now));
        assert_eq!(known, [None, Some(5), Some(5), Some(7)]);
    }
}
