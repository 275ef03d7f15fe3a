//! Kernel interfaces: what `ip link` and `ip address` do, for the drivers that make one.
//!
//! A [`Links`] speaks rtnetlink with the namespace in which it was opened, whatever thread uses
//! it.

use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::str::FromStr;

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
use serde::{Deserialize, Serialize};
use softnet_engine::LinkState;

use crate::InterfaceRoute;
use crate::tap::sys;

/// An IP address with the length of its network's prefix, as in `10.9.0.1/24`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct InterfaceAddress {
    ip: IpAddr,
    prefix: u8,
}

/// Not an address with a prefix.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is not an IP address with a prefix length such as 10.9.0.1/24 or fd00::1/64")]
pub struct BadAddress(String);

impl InterfaceAddress {
    /// `prefix` is in bits: at most 32 for IPv4, 128 for IPv6.
    ///
    /// # Errors
    /// [`BadAddress`] if the prefix is longer than the address.
    pub fn new(ip: IpAddr, prefix: u8) -> Result<InterfaceAddress, BadAddress> {
        if prefix > if ip.is_ipv4() { 32 } else { 128 } {
            return Err(BadAddress(format!("{ip}/{prefix}")));
        }
        Ok(InterfaceAddress { ip, prefix })
    }

    /// The network of so many bits that an address is in.
    pub(crate) fn network(ip: IpAddr, prefix: u8) -> InterfaceAddress {
        let ip = match ip {
            IpAddr::V4(ip) => {
                let host = u32::MAX.checked_shr(prefix.into()).unwrap_or(0);
                Ipv4Addr::from_bits(ip.to_bits() & !host).into()
            }
            IpAddr::V6(ip) => {
                let host = u128::MAX.checked_shr(prefix.into()).unwrap_or(0);
                Ipv6Addr::from_bits(ip.to_bits() & !host).into()
            }
        };
        InterfaceAddress { ip, prefix }
    }

    /// The address.
    pub fn ip(&self) -> IpAddr {
        self.ip
    }

    /// Bits of the network's prefix.
    pub fn prefix(&self) -> u8 {
        self.prefix
    }

    /// The network's broadcast address: IPv4 only, and not for networks of one or two addresses
    /// (RFC 3021).
    fn broadcast(&self) -> Option<Ipv4Addr> {
        match self.ip {
            IpAddr::V4(ip) if self.prefix < 31 => Some(Ipv4Addr::from_bits(
                ip.to_bits() | (u32::MAX >> self.prefix),
            )),
            _ => None,
        }
    }
}

impl From<InterfaceAddress> for String {
    fn from(address: InterfaceAddress) -> String {
        address.to_string()
    }
}

impl TryFrom<String> for InterfaceAddress {
    type Error = BadAddress;
    fn try_from(text: String) -> Result<Self, BadAddress> {
        text.parse()
    }
}

impl FromStr for InterfaceAddress {
    type Err = BadAddress;
    fn from_str(text: &str) -> Result<Self, BadAddress> {
        let bad = || BadAddress(text.to_owned());
        let (ip, prefix) = text.split_once('/').ok_or_else(bad)?;
        let ip = ip.parse().map_err(|_| bad())?;
        InterfaceAddress::new(ip, prefix.parse().map_err(|_| bad())?).map_err(|_| bad())
    }
}

impl fmt::Display for InterfaceAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.ip, self.prefix)
    }
}

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
        m.header.prefix_len = address.prefix;
        m.header.family = match address.ip {
            IpAddr::V4(_) => AddressFamily::Inet,
            IpAddr::V6(_) => AddressFamily::Inet6,
        };
        if address.ip.is_ipv6() {
            m.header.flags = AddressHeaderFlags::Nodad;
            m.attributes
                .push(AddressAttribute::Flags(AddressFlags::Nodad));
        }
        m.attributes.push(AddressAttribute::Address(address.ip));
        m.attributes.push(AddressAttribute::Local(address.ip));
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
fn socket(flags: SocketFlags, groups: u32) -> Result<OwnedFd, LinkError> {
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
    /// netlink request does. For a thread without capabilities: see [`Links::state`].
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

fn message(index: u32) -> LinkMessage {
    let mut link = LinkMessage::default();
    link.header.index = index;
    link
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_parsed_and_printed() {
        for text in [
            "10.9.0.1/24",
            "0.0.0.0/0",
            "192.168.1.1/32",
            "fd00::1/64",
            "::1/128",
        ] {
            assert_eq!(
                text.parse::<InterfaceAddress>().map(|a| a.to_string()),
                Ok(text.into())
            );
        }
        for text in [
            "10.9.0.1",
            "10.9.0.1/33",
            "fd00::1/129",
            "/24",
            "10.9.0/24",
            "a/b",
            "1.2.3.4/-1",
            "",
        ] {
            assert_eq!(
                text.parse::<InterfaceAddress>(),
                Err(BadAddress(text.into())),
                "{text}"
            );
        }
    }

    #[test]
    fn the_broadcast_address_has_all_host_bits_set() {
        let of = |text: &str| {
            text.parse::<InterfaceAddress>()
                .ok()
                .and_then(|a| a.broadcast())
        };
        assert_eq!(of("10.9.0.1/24"), Some(Ipv4Addr::new(10, 9, 0, 255)));
        assert_eq!(of("10.9.0.1/30"), Some(Ipv4Addr::new(10, 9, 0, 3)));
        assert_eq!(of("10.9.0.1/0"), Some(Ipv4Addr::BROADCAST));
        assert_eq!(of("10.9.0.1/31"), None);
        assert_eq!(of("fd00::1/64"), None);
    }
}
