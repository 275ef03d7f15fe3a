//! Why packets die. Every packet that Softnet frees without delivering it is counted under exactly
//! one reason.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arc_swap::ArcSwapOption;

use super::Tap;
use crate::mem::Packet;
use crate::probes;
use crate::sync::PerCpu;
use crate::wire::WireError;

macro_rules! drop_reasons {
    ($($(#[doc = $doc:literal])+ $name:ident = $text:literal,)+) => {
        /// The reason a packet was dropped. Names follow the kernel's `SKB_DROP_REASON_*` where
        /// there is one.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u8)]
        #[non_exhaustive]
        pub enum DropReason { $($(#[doc = $doc])+ $name,)+ }

        impl DropReason {
            /// All reasons, in the order of their numbers.
            pub const ALL: &'static [DropReason] = &[$(DropReason::$name,)+];

            /// The stable name printed in statistics.
            pub const fn name(self) -> &'static str {
                match self { $(DropReason::$name => $text,)+ }
            }

            /// The reason in a sentence or two, for people.
            pub const fn meaning(self) -> &'static str {
                match self { $(DropReason::$name => concat!($($doc),+).trim_ascii(),)+ }
            }
        }
    };
}

drop_reasons! {
    /// Shorter than an Ethernet header.
    Runt = "runt",
    /// A header (VLAN, IP, TCP, UDP) runs past the end of the packet or contradicts itself.
    BadHeader = "bad_header",
    /// The frame's virtio-net segmentation fields do not fit the frame.
    BadGso = "bad_gso",
    /// The frame claims smaller or more wire packets than any honest stack makes: under 8 bytes of
    /// TCP payload each, or more than 128 datagrams. Counted as one packet.
    GsoSize = "gso_size",
    /// The frame's virtio-net checksum fields point outside the frame.
    BadChecksumOffload = "bad_csum_offload",
    /// Longer than a driver's buffers, than the protocol allows, or than the MTU of a virtual
    /// machine's port.
    TooLong = "too_long",
    /// No buffer was left in the pool.
    NoBuffer = "no_buffer",
    /// The port's queues hold their share of the buffers; the rest is for other ports.
    BufferQuota = "buffer_quota",
    /// The qdisc's limit was reached.
    QdiscLimit = "qdisc_limit",
    /// The packet had waited too long, and was dropped to slow its sender down (CoDel;
    /// `QDISC_CONGESTED`).
    QdiscCongested = "qdisc_congested",
    /// The packet's flow has as many packets as a flow may have, or no flow is left for it
    /// (`FQ_FLOW_LIMIT`).
    FqFlowLimit = "fq_flow_limit",
    /// The packet's departure time is too far in the future (`FQ_HORIZON_LIMIT`).
    FqHorizonLimit = "fq_horizon_limit",
    /// `netem` lost it, as it was told to.
    NetemLoss = "netem_loss",
    /// The qdisc can never send it (longer than its bucket).
    QdiscOversize = "qdisc_oversize",
    /// It leads to no class of a qdisc that has no class for what is left over.
    NoClass = "no_class",
    /// `cake` with `ack-filter`: a later acknowledgment says the same and more.
    AckFilter = "ack_filter",
    /// A filter's action said so.
    FilterDrop = "filter_drop",
    /// A filter's action took it out (`TC_ACT_STOLEN`, `TC_ACT_QUEUED`, `TC_ACT_TRAP`).
    FilterStolen = "filter_stolen",
    /// Filters sent it back or to another chain too often (`TC_RECLASSIFY_LOOP`).
    ReclassifyLoop = "reclassify_loop",
    /// Too many packets waited to be adopted (`QDISC_BURST_DROP`).
    QdiscBurst = "qdisc_burst",
    /// The queue was emptied: device taken down, qdisc replaced, engine stopped.
    QdiscReset = "qdisc_reset",
    /// Longer than the sending device's MTU and not segmentable.
    Mtu = "mtu",
    /// The sending device is down or gone.
    DeviceDown = "device_down",
    /// The driver or the kernel refused the packet for good.
    DriverRefused = "driver_refused",
    /// The switch found the destination behind the port of arrival.
    Sameport = "same_port",
    /// The source address may not be used (multicast or zero).
    BadSource = "bad_source",
    /// A link-local control frame (01:80:C2:00:00:0X) that bridges must not forward (IEEE 802.1D
    /// 7.12.6).
    LinkLocal = "link_local",
    /// The backlog of the worker that the packet was for is full (`CPU_BACKLOG`).
    CpuBacklog = "cpu_backlog",
    /// The backlog of the worker that the packet was for is half full, and the packet's flow had
    /// more than half of the latest packets (`skb_flow_limit`).
    FlowLimit = "flow_limit",
    /// The frame's VLAN is none of the port of arrival, or of the only port that it is for.
    VlanFilter = "vlan_filter",
    /// The port of arrival and the only port that the frame is for are both isolated.
    Isolated = "isolated",
    /// The source address, or one that ARP or neighbour discovery advertises, is not among those
    /// allowed at the port; or the port is locked, and the address is not known to be behind it.
    MacSpoof = "mac_spoof",
    /// The port has as many source addresses as it may have, and this is another one.
    MacLimit = "mac_limit",
    /// The IP source address, or one that ARP or neighbour discovery claims, is none of the port's.
    IpSpoof = "ip_spoof",
    /// The port's IP addresses are restricted, and the packet is neither ARP nor IP, or it is what
    /// only routers and DHCP servers send.
    ProtoFilter = "proto_filter",
    /// The port's broadcasts, multicasts or frames to unknown stations exceed their rate.
    Storm = "storm",
    /// There is nowhere to send the packet: its port belongs to no bridge, no other port takes such
    /// a packet, or it is for the bridge itself, behind which there is no host.
    NoForward = "no_forward",
    /// An action sends to a device that the sender is sending to already.
    MirredLoop = "mirred_loop",
    /// Too many actions send within each other (the kernel's `MIRRED_NEST_LIMIT`).
    MirredNest = "mirred_nest",
    /// The packet went through a backlog by actions too often (the kernel's `MIRRED_DEFER_LIMIT`).
    MirredDefer = "mirred_defer",
    /// Devices without a queue send through each other too deeply, or in a loop.
    RecursionLimit = "recursion_limit",
}

impl fmt::Display for DropReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl From<WireError> for DropReason {
    fn from(error: WireError) -> DropReason {
        match error {
            WireError::Runt => DropReason::Runt,
            WireError::BadHeader => DropReason::BadHeader,
            WireError::BadGso => DropReason::BadGso,
            WireError::GsoSize => DropReason::GsoSize,
            WireError::BadChecksumOffload => DropReason::BadChecksumOffload,
        }
    }
}

/// Dropped packets by reason. Any thread may add; a reader never stops a writer.
#[derive(Debug, Default)]
pub struct DropCounters {
    counts: PerCpu<{ DropReason::ALL.len() }>,
    /// There is a tap. Relaxed: who reads the old value came before the change.
    tapped: AtomicBool,
    tap: ArcSwapOption<Arc<dyn Tap>>,
}

impl DropCounters {
    /// All zero.
    pub fn new() -> Self {
        Self::default()
    }

    /// Counts `packets` wire packets dropped for `reason`, of which nothing is left to look at.
    pub fn add(&self, reason: DropReason, packets: u64) {
        self.count(reason, packets);
        if packets > 0
            && let Some(tap) = self.tap()
        {
            tap.unseen(packets);
        }
    }

    /// Counts packets that are dropped for `reason`. The caller frees them.
    pub fn lose<'a>(&self, reason: DropReason, packets: impl IntoIterator<Item = &'a Packet>) {
        let tap = self.tap();
        let mut sum = 0;
        for packet in packets {
            sum += packet.wire_packets();
            if let Some(tap) = &tap {
                tap.dropped(packet, None, reason);
            }
        }
        self.count(reason, sum);
    }

    pub(super) fn count(&self, reason: DropReason, packets: u64) {
        probes::packet_drop(reason, packets);
        self.counts.add(reason as usize, packets);
    }

    /// The tap that is shown what is counted here, if there is one.
    #[doc(hidden)]
    pub fn tap(&self) -> Option<Arc<dyn Tap>> {
        if !self.tapped.load(Ordering::Relaxed) {
            return None;
        }
        self.tap.load().as_deref().cloned()
    }

    pub(crate) fn set_tap(&self, tap: Option<Arc<dyn Tap>>) {
        self.tapped.store(tap.is_some(), Ordering::Relaxed);
        self.tap.store(tap.map(Arc::new));
    }

    /// The count for one reason.
    pub fn get(&self, reason: DropReason) -> u64 {
        self.counts.sum(reason as usize)
    }

    /// All reasons together.
    pub fn total(&self) -> u64 {
        DropReason::ALL.iter().map(|&r| self.get(r)).sum()
    }

    /// The reasons that occurred, with their counts.
    pub fn nonzero(&self) -> Vec<(DropReason, u64)> {
        DropReason::ALL
            .iter()
            .map(|&r| (r, self.get(r)))
            .filter(|&(_, n)| n != 0)
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn meanings_are_sentences() {
        let meaning = DropReason::TooLong.meaning();
        let start =
            "Longer than a driver's buffers, than the protocol allows, or than the MTU of a";
        assert_eq!(meaning, format!("{start} virtual machine's port."));
        for reason in DropReason::ALL {
            let meaning = reason.meaning();
            assert!(
                meaning.ends_with('.') && !meaning.contains("  "),
                "{reason}"
            );
        }
    }
}
