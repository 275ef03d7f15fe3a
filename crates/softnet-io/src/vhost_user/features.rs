//! Features: what is offered to the guest and to the front end, and what of it concerns packets.

use softnet::tx::Features;

/// Virtio features, by the number of their bits.
pub(super) mod virtio {
    pub(crate) const CSUM: u64 = 1 << 0;
    pub(crate) const GUEST_CSUM: u64 = 1 << 1;
    pub(crate) const MTU: u64 = 1 << 3;
    pub(crate) const GUEST_TSO4: u64 = 1 << 7;
    pub(crate) const GUEST_TSO6: u64 = 1 << 8;
    pub(crate) const GUEST_ECN: u64 = 1 << 9;
    pub(crate) const HOST_TSO4: u64 = 1 << 11;
    pub(crate) const HOST_TSO6: u64 = 1 << 12;
    pub(crate) const HOST_ECN: u64 = 1 << 13;
    pub(crate) const MRG_RXBUF: u64 = 1 << 15;
    pub(crate) const MQ: u64 = 1 << 22;
    pub(crate) const ANY_LAYOUT: u64 = 1 << 27;
    pub(crate) const INDIRECT_DESC: u64 = 1 << 28;
    pub(crate) const EVENT_IDX: u64 = 1 << 29;
    pub(crate) const PROTOCOL_FEATURES: u64 = 1 << 30;
    pub(crate) const VERSION_1: u64 = 1 << 32;
    pub(crate) const RING_PACKED: u64 = 1 << 34;
    pub(crate) const IN_ORDER: u64 = 1 << 35;
    pub(crate) const GUEST_USO4: u64 = 1 << 54;
    pub(crate) const GUEST_USO6: u64 = 1 << 55;
    pub(crate) const HOST_USO: u64 = 1 << 56;
}

/// Offloads that a guest may be sent: it is told once what is sent, and cannot say later that it
/// does not want it any more.
const TO_GUEST: u64 = virtio::GUEST_CSUM
    | virtio::GUEST_TSO4
    | virtio::GUEST_TSO6
    | virtio::GUEST_ECN
    | virtio::GUEST_USO4
    | virtio::GUEST_USO6;

/// Features that are offered to the guest. `guest_offloads`: with large frames and missing
/// checksums in what it receives.
pub(super) fn offered(guest_offloads: bool) -> u64 {
    if guest_offloads {
        OFFERED
    } else {
        OFFERED & !TO_GUEST
    }
}

const OFFERED: u64 = virtio::CSUM
    | virtio::GUEST_CSUM
    | virtio::MTU
    | virtio::GUEST_TSO4
    | virtio::GUEST_TSO6
    | virtio::GUEST_ECN
    | virtio::HOST_TSO4
    | virtio::HOST_TSO6
    | virtio::HOST_ECN
    | virtio::MRG_RXBUF
    | virtio::MQ
    | virtio::ANY_LAYOUT
    | virtio::INDIRECT_DESC
    | virtio::EVENT_IDX
    | virtio::PROTOCOL_FEATURES
    | virtio::VERSION_1
    | virtio::RING_PACKED
    | virtio::IN_ORDER
    | virtio::GUEST_USO4
    | virtio::GUEST_USO6
    | virtio::HOST_USO;

/// Protocol features.
pub(super) mod extension {
    pub(crate) const MQ: u64 = 1 << 0;
    pub(crate) const REPLY_ACK: u64 = 1 << 3;
    pub(crate) const MTU: u64 = 1 << 4;
    pub(crate) const RESET_DEVICE: u64 = 1 << 13;
    pub(crate) const CONFIGURE_MEM_SLOTS: u64 = 1 << 15;
    pub(crate) const STATUS: u64 = 1 << 16;
}

/// Protocol features that are offered to the front end.
pub(super) const PROTOCOL: u64 = extension::MQ
    | extension::REPLY_ACK
    | extension::MTU
    | extension::RESET_DEVICE
    | extension::CONFIGURE_MEM_SLOTS
    | extension::STATUS;

/// Offloads that a guest takes which has acknowledged `features`.
pub(super) fn taken(features: u64) -> Features {
    let has = |bits| features & bits == bits;
    let checksum = has(virtio::GUEST_CSUM);
    Features {
        checksum,
        tso4: checksum && has(virtio::GUEST_TSO4),
        tso6: checksum && has(virtio::GUEST_TSO6),
        ecn: has(virtio::GUEST_ECN),
        uso: checksum && has(virtio::GUEST_USO4 | virtio::GUEST_USO6),
        scatter_gather: true,
        mtu: 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A guest without receive offloads is offered nothing to receive, and all the rest.
    #[test]
    fn receive_offloads_are_offered_or_not() {
        let all = taken(offered(true));
        assert!(all.checksum && all.tso4 && all.tso6 && all.uso && all.ecn);
        let none = taken(offered(false));
        assert!(!(none.checksum || none.tso4 || none.tso6 || none.uso || none.ecn));
        assert_eq!(offered(true) & !offered(false), TO_GUEST);
    }
}
