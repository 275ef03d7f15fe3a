//! A learning switch (IEEE 802.1D 7.7 to 7.9, without VLANs and spanning tree): unicast to the
//! port where the address was seen, everything else to all other ports. A port never gets its own
//! frame back, and control frames for bridges end here.

use std::time::Duration;

use super::Fdb;
use softnet::mem::Packet;
use softnet::stats::DropReason;
use softnet::time::Time;

/// Where a packet goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Out of this port.
    To(u16),
    /// Out of every port of the bridge but the one it came from.
    Flood,
    /// Nowhere.
    Drop(DropReason),
}

/// A learning switch (IEEE 802.1D 7.7 to 7.9, without VLANs and spanning tree). A port never gets
/// its own frame back; control frames for bridges end here. Shared by all workers.
#[derive(Debug)]
pub struct Bridge {
    name: String,
    fdb: Fdb,
}

impl Bridge {
    /// A bridge that learns about `addresses` addresses and forgets them after `ageing`.
    pub fn new(name: impl Into<String>, addresses: usize, ageing: Duration) -> Bridge {
        Bridge {
            name: name.into(),
            fdb: Fdb::new(addresses, ageing),
        }
    }

    /// The bridge's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The addresses it knows.
    pub fn fdb(&self) -> &Fdb {
        &self.fdb
    }

    /// Learns where the packet came from, if `learn` says so (its port's link is up), and decides
    /// where it goes.
    pub fn decide(&self, packet: &Packet, from: u16, now: Time, learn: bool) -> Verdict {
        let (to, source) = match packet.ethernet() {
            Ok(addresses) => addresses,
            Err(reason) => return Verdict::Drop(reason),
        };
        if source.is_multicast() || source.0 == [0; 6] {
            return Verdict::Drop(DropReason::BadSource);
        }
        if learn {
            self.fdb.learn(source, from, now);
        }
        if to.is_multicast() {
            return if to.is_link_local() {
                Verdict::Drop(DropReason::LinkLocal)
            } else {
                Verdict::Flood
            };
        }
        match self.fdb.lookup(to, now) {
            Some(port) if port == from => Verdict::Drop(DropReason::Sameport),
            Some(port) => Verdict::To(port),
            None => Verdict::Flood,
        }
    }
}
