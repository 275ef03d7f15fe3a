//! A link as `ip link show` reads it (`rtnl_fill_ifinfo`).

use std::sync::Arc;

use softnet::stats::DropReason;
use softnet_engine::forward::{BridgePortOptions, PortVlans};
use softnet_engine::{BridgeInfo, PortStats};
use softnet_engine::{Devices, Engine, EngineError, LinkInfo, LinkKind, Virtual};
use zerocopy::{Immutable, IntoBytes};

use super::attributes::{ARPHRD_ETHER, ARPHRD_LOOPBACK, iff, ifla, info, oper, tun};
use super::bridge_port::Member;
use super::vlan_link;
use crate::nl::Message;
use crate::nl::headers::IfInfoMsg;

/// `struct rtnl_link_stats64`.
#[derive(Clone, Copy, Debug, Default, IntoBytes, Immutable)]
#[repr(C)]
struct LinkStats64 {
    rx_packets: u64,
    tx_packets: u64,
    rx_bytes: u64,
    tx_bytes: u64,
    rx_errors: u64,
    tx_errors: u64,
    rx_dropped: u64,
    tx_dropped: u64,
    multicast: u64,
    collisions: u64,
    rx_detail: [u64; 6],
    tx_detail: [u64; 5],
    rx_compressed: u64,
    tx_compressed: u64,
    rx_nohandler: u64,
    rx_otherhost_dropped: u64,
}

/// `struct rtnl_link_ifmap`.
#[derive(Clone, Copy, Debug, Default, IntoBytes, Immutable)]
#[repr(C)]
struct IfMap {
    mem_start: u64,
    mem_end: u64,
    base_addr: u64,
    irq: u16,
    dma: u8,
    port: u8,
    pad: [u8; 4],
}

impl LinkStats64 {
    /// The counters of a port. A qdisc's drops are the qdisc's, as in the kernel.
    fn of(port: &PortStats) -> LinkStats64 {
        let mut stats = LinkStats64 {
            rx_packets: port.device.rx_packets,
            tx_packets: port.device.tx_packets,
            rx_bytes: port.device.rx_bytes,
            tx_bytes: port.device.tx_bytes,
            rx_dropped: port.device_drops.rx,
            tx_dropped: port.device_drops.tx,
            ..LinkStats64::default()
        };
        for &(reason, count) in &port.device.drops {
            match reason {
                DropReason::Runt
                | DropReason::BadHeader
                | DropReason::BadGso
                | DropReason::GsoSize
                | DropReason::BadChecksumOffload => stats.rx_errors += count,
                DropReason::QdiscLimit
                | DropReason::QdiscCongested
                | DropReason::FqFlowLimit
                | DropReason::FqHorizonLimit
                | DropReason::QdiscOversize
                | DropReason::NoClass
                | DropReason::FilterDrop
                | DropReason::ReclassifyLoop => {}
                DropReason::QdiscBurst
                | DropReason::QdiscReset
                | DropReason::BufferQuota
                | DropReason::Mtu
                | DropReason::DeviceDown
                | DropReason::DriverRefused
                | DropReason::MirredLoop
                | DropReason::MirredNest
                | DropReason::RecursionLimit => stats.tx_dropped += count,
                _ => stats.rx_dropped += count,
            }
        }
        stats
    }

    /// `struct rtnl_link_stats`: the same without the last, in 32 bits.
    fn narrow(&self) -> [u32; 24] {
        let mut narrow = [0; 24];
        let wide = self.as_bytes().chunks_exact(8);
        for (to, from) in narrow.iter_mut().zip(wide) {
            *to = from
                .first_chunk()
                .map_or(0, |low| u64::from_ne_bytes(*low) as u32);
        }
        narrow
    }
}

/// The flags that all links of a kind have at all times.
pub(super) fn fixed_flags(kind: Option<&str>) -> u32 {
    match kind {
        Some("dummy" | "ifb") => iff::BROADCAST | iff::NOARP,
        Some("lo") => iff::LOOPBACK,
        _ => iff::BROADCAST | iff::MULTICAST,
    }
}

/// A link together with what it has counted.
pub(super) struct Shown<'a, D: Devices> {
    pub(super) link: &'a LinkInfo<D::Spec>,
    engine: &'a Engine<D>,
    stats: PortStats,
    /// Kind of its root qdisc.
    qdisc: &'static str,
    /// True if it delivers frames when it is up.
    carrier: bool,
    /// If it is a bridge, what it is told to do.
    bridge: Option<BridgeInfo>,
    /// If it is part of a bridge, what happens there.
    pub(super) member: Option<Member>,
    /// The VLANs of the port in that bridge.
    member_vlans: Option<Arc<PortVlans>>,
}

impl<'a, D: Devices> Shown<'a, D> {
    pub(super) fn new(
        engine: &'a Engine<D>,
        link: &'a LinkInfo<D::Spec>,
    ) -> Result<Shown<'a, D>, EngineError> {
        let (stats, qdisc, carrier) = match link.kind {
            LinkKind::Port { .. } => {
                let stats = engine.port_stats(link.index)?;
                let kind = engine.read_tree(link.index, |tree, _| match tree.spec().root() {
                    Some(root) => root.qdisc.kind(),
                    None if link.has_default => tree.default_kind(),
                    None => "noop",
                })?;
                let carrier = stats.link.up;
                (stats, kind, carrier)
            }
            LinkKind::Bridge => {
                let links = engine.links();
                let carrier = links
                    .values()
                    .any(|member| member.master == Some(link.index) && member.settings.up);
                let kind = if link.has_default { "noqueue" } else { "noop" };
                (PortStats::default(), kind, carrier)
            }
        };
        let mut shown = Shown {
            link,
            engine,
            stats,
            qdisc,
            carrier,
            bridge: None,
            member: None,
            member_vlans: None,
        };
        if link.is_bridge() {
            shown.bridge = Some(engine.bridge(link.index)?);
        }
        if link.master.is_some() {
            shown.member = shown.member_of(link.master, link.settings.up)?;
            shown.member_vlans = Some(engine.bridge_port(link.index)?.vlans);
        }
        Ok(shown)
    }

    /// As what the link would be part of a bridge while it is up or not. One that it joins does
    /// there what a bridge does by default.
    pub(super) fn member_of(
        &self,
        master: Option<u32>,
        up: bool,
    ) -> Result<Option<Member>, EngineError> {
        let Some(index) = master else {
            return Ok(None);
        };
        let bridge = self.engine.link(index)?;
        if !bridge.is_bridge() {
            return Err(EngineError::NoBridge(bridge.settings.name.clone()));
        }
        let (options, groups) = match self.link.master == master {
            true => {
                let port = self.engine.bridge_port(self.link.index)?;
                (port.options, port.groups)
            }
            false => (BridgePortOptions::default(), 0),
        };
        Ok(Some(Member {
            options,
            groups,
            bridge: bridge.address(),
            forwards: up && self.carrier && bridge.settings.up,
            number: self.link.port_number,
        }))
    }

    /// The VLANs of a bridge or of a port of one.
    pub(super) fn vlans(&self) -> Option<&PortVlans> {
        let own = self.bridge.as_ref().map(|bridge| &bridge.vlans);
        own.or(self.member_vlans.as_deref())
    }

    /// The header of a message of the family `AF_BRIDGE`.
    pub(super) fn bridge_header(&self) -> IfInfoMsg {
        IfInfoMsg {
            family: libc::AF_BRIDGE as u8,
            ..self.header(0, 0)
        }
    }

    pub(super) fn operstate(&self) -> u8 {
        match (self.link.settings.up, self.carrier, self.kind()) {
            (true, true, Some("dummy" | "ifb") | None) => oper::UNKNOWN,
            (true, true, _) => oper::UP,
            _ => oper::DOWN,
        }
    }

    /// The kind, as `type` names it.
    pub(super) fn kind(&self) -> Option<&'static str> {
        match self.link.device() {
            Some(device) => self.engine.devices().kind(device),
            None => Some("bridge"),
        }
    }

    /// The link without a device that it is.
    fn virtual_link(&self) -> Option<Virtual> {
        self.engine.devices().virtual_link(self.link.device()?)
    }

    fn link_type(&self) -> u16 {
        match self.virtual_link() {
            Some(Virtual::Loopback) => ARPHRD_LOOPBACK,
            _ => ARPHRD_ETHER,
        }
    }

    fn running(&self) -> bool {
        self.link.settings.up && self.carrier
    }

    /// The flags of the link.
    fn flags(&self) -> u32 {
        let mut flags = fixed_flags(match self.link_type() {
            ARPHRD_LOOPBACK => Some("lo"),
            _ => self.kind(),
        });
        if self.link.settings.up {
            flags |= iff::UP;
        }
        if self.running() {
            flags |= iff::RUNNING | iff::LOWER_UP;
        }
        flags
    }

    /// The header. `change` says which flags an event is about.
    pub(super) fn header(&self, family: u8, change: u32) -> IfInfoMsg {
        IfInfoMsg {
            family,
            kind: self.link_type(),
            index: self.link.index.cast_signed(),
            flags: self.flags(),
            change,
            ..IfInfoMsg::default()
        }
    }

    /// The attributes of a message with the family `AF_UNSPEC`.
    pub(super) fn put(&self, message: &mut Message<'_>) {
        let settings = &self.link.settings;
        message.put_str(ifla::IFNAME, &settings.name);
        message.put_u32(ifla::TXQLEN, settings.tx_queue_len);
        message.put_u8(ifla::OPERSTATE, self.operstate());
        message.put_u8(ifla::LINKMODE, 0);
        message.put_u32(ifla::MTU, settings.mtu);
        let (least, most) = self.engine.mtus(self.link.device());
        message.put_u32(ifla::MIN_MTU, least);
        message.put_u32(ifla::MAX_MTU, most);
        message.put_u32(ifla::GROUP, settings.group);
        message.put_u32(ifla::PROMISCUITY, u32::from(self.link.master.is_some()));
        message.put_u32(ifla::ALLMULTI, u32::from(self.link.master.is_some()));
        let queues = u32::try_from(self.link.queues()).unwrap_or(u32::MAX);
        message.put_u32(ifla::NUM_TX_QUEUES, queues);
        message.put_u32(ifla::NUM_RX_QUEUES, queues);
        if let Some(parent) = vlan_link::parent(self.engine, self.link) {
            message.put_u32(ifla::LINK, parent);
        }
        if let Some(master) = self.link.master {
            message.put_u32(ifla::MASTER, master);
        }
        message.put_u8(ifla::CARRIER, u8::from(self.running()));
        message.put_str(ifla::QDISC, self.qdisc);
        if !settings.alias.is_empty() {
            message.put_str(ifla::IFALIAS, &settings.alias);
        }
        message.put(ifla::MAP, &IfMap::default());
        message.put_bytes(ifla::ADDRESS, &self.link.address().0);
        let broadcast = match self.link_type() {
            ARPHRD_LOOPBACK => [0; 6],
            _ => [0xff; 6],
        };
        message.put_bytes(ifla::BROADCAST, &broadcast);
        let mut stats = LinkStats64::of(&self.stats);
        if matches!(self.virtual_link(), Some(Virtual::Ifb | Virtual::Loopback)) {
            // What it sends is what it was given.
            (stats.rx_packets, stats.rx_bytes) = (stats.tx_packets, stats.tx_bytes);
        }
        message.put(ifla::STATS64, &stats);
        message.put(ifla::STATS, &stats.narrow());
        message.nest_unless_empty(ifla::LINKINFO, |message| self.put_info(message));
    }

    /// `IFLA_LINKINFO`.
    fn put_info(&self, message: &mut Message<'_>) {
        if let Some(kind) = self.kind() {
            message.put_str(info::KIND, kind);
        }
        if let Some(bridge) = &self.bridge {
            message.nest(info::DATA, |message| {
                super::bridge::put(message, &bridge.options, self.link.address());
            });
        }
        if let Some(Virtual::Vlan { tag, .. }) = self.virtual_link() {
            message.nest(info::DATA, |message| vlan_link::put(tag, message));
        }
        if self.kind() == Some("tun") {
            message.nest(info::DATA, |message| self.put_tun(message));
        }
        if let Some(member) = &self.member {
            message.put_str(info::SLAVE_KIND, "bridge");
            message.nest(info::SLAVE_DATA, |message| member.put(message, self.kind()));
        }
    }

    /// A TAP device as Softnet opens all of them (`tun_fill_info`).
    fn put_tun(&self, message: &mut Message<'_>) {
        let queues = u32::try_from(self.link.queues()).unwrap_or(u32::MAX);
        message.put_u8(tun::TYPE, tun::TAP);
        message.put_u8(tun::PI, 0);
        message.put_u8(tun::VNET_HDR, 1);
        message.put_u8(tun::PERSIST, 0);
        message.put_u8(tun::MULTI_QUEUE, u8::from(queues > 1));
        if queues > 1 {
            message.put_u32(tun::NUM_QUEUES, queues);
            message.put_u32(tun::NUM_DISABLED_QUEUES, 0);
        }
    }
}
