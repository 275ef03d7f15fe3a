//! Kernel interfaces: what `ip link` and `ip address` do, for the drivers that make one.
//!
//! A [`Links`] speaks rtnetlink with the namespace in which it was opened, whatever thread uses
//! it.

use std::io;
use std::net::IpAddr;
use std::os::fd::OwnedFd;

use netlink_packet_core::{
    NLM_F_ACK, NLM_F_CREATE, NLM_F_EXCL, NLM_F_REQUEST, NetlinkMessage, NetlinkPayload,
};
use netlink_packet_route::address::{
    AddressAttribute, AddressFlags, AddressHeaderFlags, AddressMessage,
};
use netlink_packet_route::link::{LinkAttribute, LinkFlags, LinkMessage};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, SocketFlags, SocketType, netdevice, netlink};
use softnet_engine::LinkState;

use crate::{InterfaceAddress, InterfaceRoute};

/// Why an interface could not be configured.
#[derive(Debug, thiserror::Error)]
pub enum LinkError {
    /// No netlink socket could be opened.
    #[error("cannot open a netlink socket")]
    Socket(#[source] io::Error),
    /// There is no such interface in the namespace.
    #[error("there is no interface '{0}' in this network namespace")]
    NotFound(String),
    /// The kernel refused the request.
    #[error("cannot {what}")]
    Refused {
        /// The request in words.
        what: String,
        /// The kernel's error.
        source: io::Error,
    },
}

/// The interfaces of one network namespace.
#[derive(Debug)]
pub struct Links {
    socket: OwnedFd,
    sequence: u32,
}

impl From<Links> for OwnedFd {
    fn from(links: Links) -> OwnedFd {
        links.socket
    }
}

impl From<OwnedFd> for Links {
    /// Links of the namespace in which the socket was opened, by one that has asked nothing.
    fn from(socket: OwnedFd) -> Links {
        Links {
            socket,
            sequence: 0,
        }
    }
}

impl Links {
    /// The links of the calling thread's namespace.
    ///
    /// # Errors
    /// [`LinkError::Socket`].
    pub fn open() -> Result<Links, LinkError> {
        let socket = socket(SocketFlags::empty(), 0)?;
        Ok(Links {
            socket,
            sequence: 0,
        })
    }

    /// The index of the interface `name`.
    ///
    /// # Errors
    /// [`LinkError::NotFound`].
    pub fn index(&self, name: &str) -> Result<u32, LinkError> {
        netdevice::name_to_index(&self.socket, name)
            .map_err(|_| LinkError::NotFound(name.to_owned()))
    }

    /// Takes the interface up or down.
    ///
    /// # Errors
    /// [`LinkError::Refused`].
    pub fn set_up(&mut self, index: u32, up: bool) -> Result<(), LinkError> {
        let mut link = message(index);
        link.header.change_mask = LinkFlags::Up;
        link.header.flags = if up {
            LinkFlags::Up
        } else {
            LinkFlags::empty()
        };
        let what = if up {
            "take the interface up"
        } else {
            "take the interface down"
        };
        self.request(RouteNetlinkMessage::SetLink(link), 0, || what.to_owned())
    }

    /// Takes the loopback interface up.
    ///
    /// # Errors
    /// [`LinkError`].
    pub fn loopback_up(&mut self) -> Result<(), LinkError> {
        let index = self.index("lo")?;
        self.set_up(index, true)
    }

    /// Gives the interface a carrier, or takes it: without one the kernel sends nothing to it. Its
    /// driver must allow that, as TAP devices do.
    ///
    /// # Errors
    /// [`LinkError::Refused`].
    pub fn set_carrier(&mut self, index: u32, on: bool) -> Result<(), LinkError> {
        self.set(index, LinkAttribute::Carrier(on.into()), || {
            format!("switch the carrier {}", if on { "on" } else { "off" })
        })
    }

    /// Sets the longest IP packet, in bytes.
    ///
    /// # Errors
    /// [`LinkError::Refused`] if it is outside the device's range.
    pub fn set_mtu(&mut self, index: u32, mtu: u32) -> Result<(), LinkError> {
        self.set(index, LinkAttribute::Mtu(mtu), || {
            format!("set the MTU to {mtu}")
        })
    }

    /// Sets the Ethernet address.
    ///
    /// # Errors
    /// [`LinkError::Refused`], for a multicast or zero address too.
    pub fn set_mac(&mut self, index: u32, mac: [u8; 6]) -> Result<(), LinkError> {
        self.set(index, LinkAttribute::Address(mac.to_vec()), || {
            format!("set the Ethernet address to {mac:02x?}")
        })
    }

    /// Sets the length of the transmit queue, in packets. For a TAP device that is how much waits
    /// to be read, per queue.
    ///
    /// # Errors
    /// [`LinkError::Refused`].
    pub fn set_tx_queue_len(&mut self, index: u32, packets: u32) -> Result<(), LinkError> {
        self.set(index, LinkAttribute::TxQueueLen(packets), || {
            format!("set the queue length to {packets}")
        })
    }

    /// Sets the longest large frame that the kernel hands to the device, in bytes; it cuts longer
    /// ones itself.
    ///
    /// # Errors
    /// [`LinkError::Refused`].
    pub fn set_gso_max_size(&mut self, index: u32, bytes: u32) -> Result<(), LinkError> {
        self.set(index, LinkAttribute::GsoMaxSize(bytes), || {
            format!("set the size of large frames to {bytes}")
        })
    }

    /// Adds an address; its network becomes reachable when the interface is up. IPv6 addresses are
    /// usable at once (no duplicate address detection).
    ///
    /// # Errors
    /// [`LinkError::Refused`] if the interface has it already, or IPv6 is off.
    pub fn add_address(&mut self, index: u32, address: InterfaceAddress) -> Result<(), LinkError> {
        let mut m = AddressMessage::default();
        m.header.index = index;
        m.header.prefix_len = address.prefix();
        m.header.family = match address.ip() {
            IpAddr::V4(_) => AddressFamily::Inet,
            IpAddr::V6(_) => AddressFamily::Inet6,
        };
        if address.ip().is_ipv6() {
            m.header.flags = AddressHeaderFlags::Nodad;
            m.attributes
                .push(AddressAttribute::Flags(AddressFlags::Nodad));
        }
        m.attributes.push(AddressAttribute::Address(address.ip()));
        m.attributes.push(AddressAttribute::Local(address.ip()));
        m.attributes
            .extend(address.broadcast().map(AddressAttribute::Broadcast));
        self.request(
            RouteNetlinkMessage::NewAddress(m),
            NLM_F_CREATE | NLM_F_EXCL,
            || format!("add the address {address}"),
        )
    }

    /// Adds a route through an interface that is up.
    ///
    /// # Errors
    /// [`LinkError::Refused`] if there is one to the same network, or the router is not reached
    /// through the interface.
    pub fn add_route(&mut self, index: u32, route: InterfaceRoute) -> Result<(), LinkError> {
        let message = RouteNetlinkMessage::NewRoute(route.message(index));
        self.request(message, NLM_F_CREATE | NLM_F_EXCL, || {
            format!("add the route {route}")
        })
    }

    /// Removes the interface.
    ///
    /// # Errors
    /// [`LinkError::Refused`].
    pub fn delete(&mut self, index: u32) -> Result<(), LinkError> {
        let request = RouteNetlinkMessage::DelLink(message(index));
        self.request(request, 0, || "remove the interface".to_owned())
    }

    /// Drops of the device itself so far: of frames received, and of frames to send.
    ///
    /// # Errors
    /// [`LinkError::Refused`] if it is gone.
    pub fn dropped(&mut self, index: u32) -> Result<(u64, u64), LinkError> {
        const WHAT: &str = "read the interface's counters";
        let link = self.get(index, WHAT)?;
        let counters = link
            .attributes
            .iter()
            .find_map(|attribute| match attribute {
                LinkAttribute::Stats64(stats) => Some((stats.rx_dropped, stats.tx_dropped)),
                _ => None,
            });
        counters.ok_or_else(|| LinkError::Refused {
            what: WHAT.to_owned(),
            source: io::Error::from(io::ErrorKind::Unsupported),
        })
    }

    /// The state of an interface, asked for by its index: a name that its owner may change while
    /// it is asked would have the kernel look for a module of that name.
    pub(crate) fn state(&mut self, index: u32) -> Result<LinkState, LinkError> {
        let link = self.get(index, "read the interface's state")?;
        let mtu = link
            .attributes
            .iter()
            .find_map(|attribute| match attribute {
                LinkAttribute::Mtu(mtu) => Some(*mtu),
                _ => None,
            });
        Ok(LinkState {
            up: link.header.flags.contains(LinkFlags::Up),
            mtu,
            features: None,
        })
    }

    /// The Ethernet address of an interface.
    pub(crate) fn mac(&mut self, index: u32) -> Result<Option<[u8; 6]>, LinkError> {
        let link = self.get(index, "read the interface's address")?;
        let mut attributes = link.attributes.iter();
        Ok(attributes.find_map(|attribute| match attribute {
            LinkAttribute::Address(address) => address.as_slice().try_into().ok(),
            _ => None,
        }))
    }

    fn get(&mut self, index: u32, what: &str) -> Result<LinkMessage, LinkError> {
        let refused = |source| LinkError::Refused {
            what: what.to_owned(),
            source,
        };
        let request = RouteNetlinkMessage::GetLink(message(index));
        match self.exchange(request, 0).map_err(refused)? {
            Some(RouteNetlinkMessage::NewLink(link)) => Ok(link),
            _ => Err(refused(io::Error::from(io::ErrorKind::InvalidData))),
        }
    }

    fn set(
        &mut self,
        index: u32,
        attribute: LinkAttribute,
        what: impl FnOnce() -> String,
    ) -> Result<(), LinkError> {
        let mut link = message(index);
        link.attributes.push(attribute);
        self.request(RouteNetlinkMessage::SetLink(link), 0, what)
    }

    /// Sends one request and waits for the kernel's answer to it.
    fn request(
        &mut self,
        request: RouteNetlinkMessage,
        flags: u16,
        what: impl FnOnce() -> String,
    ) -> Result<(), LinkError> {
        self.exchange(request, NLM_F_ACK | flags)
            .map(drop)
            .map_err(|source| LinkError::Refused {
                what: what(),
                source,
            })
    }

    /// The kernel's answer; none if that is its consent alone.
    fn exchange(
        &mut self,
        request: RouteNetlinkMessage,
        flags: u16,
    ) -> io::Result<Option<RouteNetlinkMessage>> {
        self.sequence = self.sequence.wrapping_add(1);
        let mut message = NetlinkMessage::from(request);
        message.header.flags = NLM_F_REQUEST | flags;
        message.header.sequence_number = self.sequence;
        message.finalize();
        let mut bytes = vec![0; message.buffer_len()];
        message.serialize(&mut bytes);
        rustix::io::retry_on_intr(|| rustix::net::send(&self.socket, &bytes, SendFlags::empty()))?;
        let mut answer = [0; 8192];
        loop {
            let (n, _) = rustix::io::retry_on_intr(|| {
                rustix::net::recv(&self.socket, &mut answer[..], RecvFlags::empty())
            })?;
            let answer = NetlinkMessage::<RouteNetlinkMessage>::deserialize(&answer[..n])
                .map_err(|e| io::Error::new(io::ErrorKind::InvalidData, e.to_string()))?;
            if answer.header.sequence_number != self.sequence {
                continue;
            }
            match answer.payload {
                NetlinkPayload::Error(error) => {
                    return match error.code {
                        None => Ok(None),
                        Some(code) => Err(io::Error::from_raw_os_error(-code.get())),
                    };
                }
                NetlinkPayload::InnerMessage(answer) => return Ok(Some(answer)),
                other => {
                    let text = format!("unexpected answer of type {}", other.message_type());
                    return Err(io::Error::new(io::ErrorKind::InvalidData, text));
                }
            }
        }
    }
}

/// A netlink socket of the calling thread's namespace that hears from the kernel alone.
pub(crate) fn socket(flags: SocketFlags, groups: u32) -> Result<OwnedFd, LinkError> {
    let open = || {
        let socket = rustix::net::socket_with(
            rustix::net::AddressFamily::NETLINK,
            SocketType::RAW,
            SocketFlags::CLOEXEC | flags,
            None, // protocol 0 is NETLINK_ROUTE
        )?;
        rustix::net::bind(&socket, &netlink::SocketAddrNetlink::new(0, groups))?;
        rustix::net::connect(&socket, &netlink::SocketAddrNetlink::new(0, 0))?;
        Ok(socket)
    };
    open().map_err(|e: Errno| LinkError::Socket(e.into()))
}

fn message(index: u32) -> LinkMessage {
    let mut link = LinkMessage::default();
    link.header.index = index;
    link
}
