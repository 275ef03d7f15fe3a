//! Packets that come: whether there is room, which flow they are of, and where in it they go.

use softnet::mem::{Packet, PacketList};
use softnet::qdisc::QdiscStats;
use softnet::stats::DropReason;
use softnet::time::Time;

use super::table::{FETCHED, State};
use super::{FETCHED_FROM, Fq};
use crate::qdisc::drr::Flows as _;
use crate::qdisc::flow_hash::flow_hash;

impl Fq {
    /// Notes when a packet is to leave. False: too late to wait for.
    #[inline]
    fn set_time(&mut self, packet: &mut Packet) -> bool {
        match packet.departure_time() {
            Some(time) if time > self.now => self.check_horizon(packet, time),
            // Due since then.
            Some(_) => true,
            None => {
                // Due since it came, for `ce_threshold`.
                packet.set_timestamp(self.now);
                true
            }
        }
    }

    #[cold]
    fn check_horizon(&mut self, packet: &mut Packet, time: Time) -> bool {
        let horizon = self.now + self.spec.horizon;
        if time <= horizon {
            return true;
        }
        if self.spec.horizon_drop {
            self.counters.horizon_drops += 1;
            return false;
        }
        self.counters.horizon_caps += 1;
        packet.set_departure_time(horizon);
        true
    }

    /// Queues a packet, or says why not. Returns its flow. What is queued is counted in `added`.
    #[inline]
    pub(super) fn push(
        &mut self,
        mut packet: Packet,
        added: &mut QdiscStats,
    ) -> Result<u32, (Packet, DropReason)> {
        let band = self.spec.priomap[(packet.priority() & 15) as usize];
        if self.bands[usize::from(band)].len >= self.spec.limit.into() {
            self.bands[usize::from(band)].drops += 1;
            return Err((packet, DropReason::QdiscLimit));
        }
        if !self.set_time(&mut packet) {
            return Err((packet, DropReason::FqHorizonLimit));
        }
        let Some(index) = self.flow_of(&mut packet) else {
            return Err((packet, DropReason::FqFlowLimit));
        };
        if self.flows.at(index).packets.len() >= self.spec.flow_limit as usize {
            self.counters.flow_limit += 1;
            return Err((packet, DropReason::FqFlowLimit));
        }
        self.append(index, packet, added);
        Ok(index)
    }

    /// False if the next packet of a list says that it is not of this flow.
    #[inline]
    pub(super) fn may_follow(&mut self, index: u32, packets: &PacketList) -> bool {
        let mask = self.spec.orphan_mask;
        let key = self.flows.at(index).key;
        let hash = packets.front().and_then(Packet::flow_hash);
        hash.is_none_or(|hash| hash & mask == key)
    }

    /// Queues the packets of a list that follow one of this flow, as long as they are of the same
    /// flow and priority, have no departure times and there is room: what [`push`](Fq::push) would
    /// do, with one look at the flow. Returns how many, and the packet behind them.
    #[inline]
    pub(super) fn push_run(
        &mut self,
        index: u32,
        priority: u32,
        packets: &mut PacketList,
        added: &mut QdiscStats,
    ) -> (usize, Option<Packet>) {
        let now = self.now;
        let mask = self.spec.orphan_mask;
        let band = &mut self.bands[usize::from(self.spec.priomap[(priority & 15) as usize])];
        let flow = self.flows.at(index);
        let key = flow.key;
        let of_band = u64::from(self.spec.limit).saturating_sub(band.len);
        let of_flow = u64::from(self.spec.flow_limit).saturating_sub(flow.packets.len() as u64);
        let room = if flow.timed { 0 } else { of_band.min(of_flow) };
        let (mut len, mut next) = (0, None);
        let run = std::iter::from_fn(|| {
            let mut packet = packets.pop_front()?;
            let goes_on = len < room
                && packet.priority() == priority
                && packet.departure_time().is_none()
                && flow_hash(&mut packet) & mask == key;
            if !goes_on {
                next = Some(packet);
                return None;
            }
            packet.set_timestamp(now);
            added.count_queued(&packet);
            len += 1;
            Some(packet)
        });
        flow.packets.extend(run);
        band.len += len;
        self.priorities[(priority & 15) as usize] += len;
        (len as usize, next)
    }

    /// The flow of a packet. `None`: there are too many.
    #[inline]
    pub(super) fn flow_of(&mut self, packet: &mut Packet) -> Option<u32> {
        let key = flow_hash(packet) & self.spec.orphan_mask;
        let index = self.flows.find_or_add(key, self.initial_quantum, self.now);
        self.counters.no_flow += u64::from(index.is_none());
        index
    }

    /// Asks for the flows of the first packets of a list, as far as those say which they are.
    #[inline]
    pub(super) fn fetch(&self, packets: &PacketList) {
        if packets.len() >= FETCHED_FROM && self.flows.has_many() {
            let mask = self.spec.orphan_mask;
            let hashes = packets.iter().take(FETCHED).filter_map(Packet::flow_hash);
            self.flows.fetch(hashes.map(|hash| hash & mask));
        }
    }

    /// Queues a packet of a flow whose packets need not be in the order in which they came.
    #[cold]
    fn sort_in(&mut self, index: u32, packet: Packet) {
        let flow = self.flows.at(index);
        let time = packet.timestamp();
        let none = if flow.packets.is_empty() {
            Time::ZERO
        } else {
            // Without a departure time: due when it came.
            self.now
        };
        let last = self.last.get(&index).copied().filter(|_| flow.timed);
        let last = last.unwrap_or(none);
        flow.timed = true;
        self.last.insert(index, last.max(time));
        if time >= last {
            flow.packets.push_back(packet);
            return;
        }
        let earlier = flow.packets.iter();
        let earlier = earlier.take_while(|other| other.timestamp() <= time);
        let (count, mut sorted) = (earlier.count(), PacketList::new());
        flow.packets.split_front(count, &mut sorted);
        sorted.push_back(packet);
        sorted.append(&mut flow.packets);
        flow.packets = sorted;
    }

    /// Queues a packet in a flow.
    #[inline]
    pub(super) fn append(&mut self, index: u32, packet: Packet, added: &mut QdiscStats) {
        let priority = (packet.priority() & 15) as usize;
        let band = self.spec.priomap[priority];
        let flow = self.flows.at(index);
        flow.band = band;
        added.count_queued(&packet);
        if flow.timed || packet.departure_time().is_some() {
            self.sort_in(index, packet);
        } else {
            flow.packets.push_back(packet);
        }
        self.priorities[priority] += 1;
        self.bands[usize::from(band)].len += 1;
        let flow = self.flows.at(index);
        if flow.state == State::Idle {
            flow.state = State::Listed;
            if flow.idle_ticks(self.now) > self.refill_ticks {
                flow.credit = flow.credit.max(self.quantum);
            }
            let rounds = &mut self.bands[usize::from(band)].rounds;
            rounds.add_new(&mut self.flows, index);
        }
    }
}
