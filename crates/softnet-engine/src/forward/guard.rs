//! Port security: a port's owner sends from its own addresses only, and floods at a limited rate.
//! For tenants who do not trust each other.
//!
//! A guarded port's frames go by rules (`by_rules`); other ports pay nothing. What cannot be
//! judged is dropped. With restricted IP addresses these hold:
//! - An ARP probe (RFC 5227) and duplicate address detection (RFC 4862), which have no source
//!   address yet, are for an address of the port's own.
//! - A DHCP client's broadcast may come from 0.0.0.0. From `::` may come what a host without an
//!   address sends: router solicitations, reports of multicast listeners.
//! - The link-local IPv6 address made of the frame's own Ethernet source (RFC 4291, appendix A) is
//!   the port's, if it has IPv6 addresses at all.
//! - What only routers and DHCP servers send is dropped, and so is what is neither ARP nor IP.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::bridge::{Destination, addresses};
use super::mac_limit::MacLimit;
use super::storm::{Storm, StormLimits};
use softnet::mem::Packet;
use softnet::stats::DropReason;
use softnet::time::Time;
use softnet::wire::{Claim, EthernetAddress, LinkLayerAddresses, Message, Neighbour, sender};
use softnet_tc::Prefix;

/// Most source addresses that [`PortSecurity::max_macs`] may allow: each packet looks through them.
pub const MAX_MACS: u16 = 256;

/// Frames that a port may send into its bridge. By default any.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PortSecurity {
    /// Ethernet addresses of the port; none: any.
    pub allowed_macs: Vec<EthernetAddress>,
    /// IP addresses of the port; none: any. Without one of a family that family is not allowed.
    pub allowed_ips: Vec<Prefix>,
    /// Source addresses at a time, at most [`MAX_MACS`]. An address counts until it was not seen
    /// for 300 seconds, or the link goes down.
    pub max_macs: Option<u16>,
    /// Wire packets that are flooded.
    pub storm: StormLimits,
}

/// The check of what a port received.
#[derive(Debug)]
pub(crate) struct Guard {
    macs: Vec<EthernetAddress>,
    ips: Vec<Prefix>,
    limit: Option<MacLimit>,
    storm: Storm,
}

impl Guard {
    /// `None` if anything may be sent.
    pub(crate) fn new(security: &PortSecurity) -> Option<Guard> {
        (*security != PortSecurity::default()).then(|| Guard {
            macs: security.allowed_macs.clone(),
            ips: security.allowed_ips.clone(),
            limit: security
                .max_macs
                .map(|max| MacLimit::new(max.min(MAX_MACS))),
            storm: Storm::new(security.storm),
        })
    }

    /// `Ok` if a packet's source may send it.
    pub(super) fn check(&self, packet: &Packet, now: Time) -> Result<(), DropReason> {
        let (_, source) = addresses(packet)?;
        if !self.macs.is_empty() || !self.ips.is_empty() {
            self.check_sender(packet)?;
        }
        match &self.limit {
            Some(limit) if !limit.admits(source, now) => Err(DropReason::MacLimit),
            _ => Ok(()),
        }
    }

    /// `Ok` if wire packets may be flooded.
    pub(super) fn check_flood(
        &self,
        to: Destination,
        wire_packets: u64,
        now: Time,
    ) -> Result<(), DropReason> {
        match self.storm.admits(to, wire_packets, now) {
            true => Ok(()),
            false => Err(DropReason::Storm),
        }
    }

    /// Forgets the source addresses that were seen.
    pub(crate) fn forget(&self) {
        self.limit.iter().for_each(MacLimit::clear);
    }

    fn check_sender(&self, packet: &Packet) -> Result<(), DropReason> {
        let sender = sender(packet.data(), packet.len())?;
        self.check_mac(sender.mac)?;
        match sender.claim {
            Claim::Arp { mac, .. } => self.check_mac(mac)?,
            Claim::Ipv6 {
                message: Message::Neighbour(neighbour),
                ..
            } => {
                let mut link_layer = link_layer(neighbour).into_iter().flatten();
                link_layer.try_for_each(|mac| self.check_mac(mac))?;
            }
            _ => {}
        }
        if self.ips.is_empty() {
            return Ok(());
        }
        match sender.claim {
            // A probe claims its target.
            Claim::Arp { ip, target, .. } if ip.is_unspecified() => self.check_ip(target.into()),
            Claim::Arp { ip, .. } => self.check_ip(ip.into()),
            Claim::Ipv4 {
                source,
                destination,
                udp,
            } => self.check_ipv4(source, destination, udp),
            Claim::Ipv6 { source, message } => self.check_ipv6(sender.mac, source, message),
            Claim::Other => Err(DropReason::ProtoFilter),
        }
    }

    fn check_mac(&self, mac: EthernetAddress) -> Result<(), DropReason> {
        match self.macs.is_empty() || self.macs.contains(&mac) {
            true => Ok(()),
            false => Err(DropReason::MacSpoof),
        }
    }

    fn check_ip(&self, address: IpAddr) -> Result<(), DropReason> {
        match self.ips.iter().any(|prefix| prefix.contains(address)) {
            true => Ok(()),
            false => Err(DropReason::IpSpoof),
        }
    }

    /// As [`check_ip`](Self::check_ip), of what has this Ethernet address.
    fn check_ipv6_of(&self, mac: EthernetAddress, address: Ipv6Addr) -> Result<(), DropReason> {
        let own = address == link_local(mac) && self.has_family(false);
        if own {
            Ok(())
        } else {
            self.check_ip(address.into())
        }
    }

    fn has_family(&self, ipv4: bool) -> bool {
        self.ips.iter().any(|prefix| prefix.is_ipv4() == ipv4)
    }

    fn check_ipv4(
        &self,
        source: Ipv4Addr,
        destination: Ipv4Addr,
        udp: Option<(u16, u16)>,
    ) -> Result<(), DropReason> {
        const SERVER: u16 = 67;
        const CLIENT: u16 = 68;
        let discovers = destination.is_broadcast() && udp == Some((CLIENT, SERVER));
        if !(source.is_unspecified() && discovers && self.has_family(true)) {
            self.check_ip(source.into())?;
        }
        match udp {
            // From any port: clients do not look at it.
            Some((_, CLIENT)) => Err(DropReason::ProtoFilter),
            _ => Ok(()),
        }
    }

    fn check_ipv6(
        &self,
        mac: EthernetAddress,
        source: Ipv6Addr,
        message: Message<'_>,
    ) -> Result<(), DropReason> {
        /// DHCPv6.
        const CLIENT: u16 = 546;
        if source.is_unspecified() {
            return match message {
                Message::Neighbour(Neighbour::Solicitation(target, _)) => {
                    self.check_ipv6_of(mac, target)
                }
                // Reports of multicast listeners (RFC 2710, RFC 3810).
                Message::Neighbour(Neighbour::RouterSolicitation(_))
                | Message::Icmp(131 | 132 | 143)
                    if self.has_family(false) =>
                {
                    Ok(())
                }
                _ => Err(DropReason::IpSpoof),
            };
        }
        self.check_ipv6_of(mac, source)?;
        match message {
            Message::Neighbour(Neighbour::Advertisement(target, _)) => {
                self.check_ipv6_of(mac, target)
            }
            Message::Neighbour(Neighbour::RouterAdvertisement(_) | Neighbour::Redirect)
            | Message::Udp(_, CLIENT) => Err(DropReason::ProtoFilter),
            _ => Ok(()),
        }
    }
}

/// The addresses that a message says are its sender's. A redirect gives another router's.
fn link_layer(neighbour: Neighbour<'_>) -> Option<LinkLayerAddresses<'_>> {
    match neighbour {
        Neighbour::RouterSolicitation(addresses)
        | Neighbour::RouterAdvertisement(addresses)
        | Neighbour::Solicitation(_, addresses)
        | Neighbour::Advertisement(_, addresses) => Some(addresses),
        Neighbour::Redirect => None,
    }
}

/// The link-local address that an interface with this Ethernet address makes of it (RFC 4291,
/// appendix A).
pub(super) fn link_local(mac: EthernetAddress) -> Ipv6Addr {
    let [a, b, c, d, e, f] = mac.0;
    let word = |high, low| u16::from_be_bytes([high, low]);
    let [first, second] = [word(a ^ 2, b), word(c, 0xff)];
    Ipv6Addr::new(0xfe80, 0, 0, 0, first, second, word(0xfe, d), word(e, f))
}
