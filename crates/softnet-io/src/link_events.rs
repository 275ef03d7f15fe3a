//! Events of a kernel interface: that it changed, and what it is like now.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{RecvFlags, SocketFlags, netdevice};

use crate::LinkError;
use crate::link::socket;
use crate::tap::sys;

/// Tells that an interface of one network namespace changed, and what it is like now.
///
/// The content of reports is not used: reports are lost when the buffer is full, older ones are
/// read after that, and who is privileged in the namespace can send some. The state is asked for.
#[derive(Debug)]
pub(crate) struct LinkEvents {
    socket: OwnedFd,
}

impl From<LinkEvents> for OwnedFd {
    fn from(events: LinkEvents) -> OwnedFd {
        events.socket
    }
}

impl From<OwnedFd> for LinkEvents {
    fn from(socket: OwnedFd) -> LinkEvents {
        LinkEvents { socket }
    }
}

impl LinkEvents {
    /// Events of an interface of the calling thread's namespace, from now on.
    pub(crate) fn open(index: u32) -> Result<LinkEvents, LinkError> {
        /// `RTMGRP_LINK` of `linux/rtnetlink.h`.
        const LINK: u32 = 1;
        let socket = socket(SocketFlags::NONBLOCK, LINK)?;
        // Where a namespace has a thousand of them, each would hear of all others.
        sys::hear_of(socket.as_fd(), index).map_err(|e| LinkError::Socket(e.into()))?;
        Ok(LinkEvents { socket })
    }

    /// Readable when something changed.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Reads reports, so that the file is readable no longer; true if there were some. After so
    /// many it stays readable, for the next call: its caller has other work.
    pub(crate) fn drain(&self) -> bool {
        const REPORTS: usize = 32;
        let mut reported = false;
        for _ in 0..REPORTS {
            match rustix::net::recv(&self.socket, &mut [0; 1], RecvFlags::empty()) {
                // The rest of the report is thrown away. `NOBUFS`: some were lost, others wait.
                Ok(_) | Err(Errno::NOBUFS) => reported = true,
                Err(Errno::INTR) => {}
                Err(_) => break,
            }
        }
        reported
    }

    /// An interface's state now. Does not wait for the kernel's lock of all interfaces, as a
    /// netlink request does. For a thread without capabilities: see
    /// [`Links::state`](crate::Links::state).
    pub(crate) fn state(&self, index: u32) -> Seen {
        let socket = self.socket.as_fd();
        // Again if it was renamed meanwhile.
        for _ in 0..4 {
            let Ok(name) = netdevice::index_to_name_inlined(socket, index) else {
                return Seen::Gone;
            };
            let (flags, mtu) = (sys::flags(socket, &name), sys::mtu(socket, &name));
            if let (Ok(flags), Ok(mtu)) = (flags, mtu)
                && netdevice::name_to_index(socket, name.as_str()) == Ok(index)
            {
                return Seen::Is(InterfaceState {
                    up: flags & libc::IFF_UP != 0,
                    running: flags & libc::IFF_RUNNING != 0,
                    mtu: u32::try_from(mtu).ok(),
                });
            }
        }
        Seen::Renamed
    }

    /// Speed of an interface's medium in bytes per second, if it has one and that is known. Waits
    /// for the kernel's lock of all interfaces.
    pub(crate) fn speed(&self, index: u32) -> Option<u64> {
        let socket = self.socket.as_fd();
        let name = netdevice::index_to_name_inlined(socket, index).ok()?;
        let speed = sys::speed(socket, &name)?;
        // Unless another has its name by now.
        (netdevice::name_to_index(socket, name.as_str()) == Ok(index)).then_some(speed)
    }
}

/// The result of a look at an interface.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Seen {
    /// It is there.
    Is(InterfaceState),
    /// It is being renamed: for some milliseconds nothing is found by its new name. The end of that
    /// is reported.
    Renamed,
    /// It is not in this namespace.
    Gone,
}

/// The state of an interface.
#[derive(Clone, Copy, Debug)]
pub(crate) struct InterfaceState {
    /// Taken up by its administrator.
    pub(crate) up: bool,
    /// It is up and has a carrier.
    pub(crate) running: bool,
    /// Longest IP packet in bytes.
    pub(crate) mtu: Option<u32>,
}
