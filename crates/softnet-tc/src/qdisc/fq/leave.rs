//! Packets that leave: which band's and flow's turn it is, and when a flow may send.

use std::cmp::Reverse;

use softnet::mem::{Packet, PacketList};
use softnet::qdisc::{Cx, Next, QdiscStats};
use softnet::time::Time;

use super::publish::Counters;
use super::spec::BANDS;
use super::table::{Flow, State};
use super::{Fq, SECOND};
use crate::qdisc::aqm::{mark_ce, nanos};
use crate::qdisc::drr::{Emptied, Flows as _};

impl Fq {
    /// Brings throttled flows back that are due, at most so many.
    pub(super) fn release(&mut self, most: usize) {
        for n in 0..most {
            let Some(&Reverse((time, index))) = self.timers.peek() else {
                return;
            };
            if time > self.now {
                return;
            }
            if n == 0 {
                let latency = &mut self.counters.latency;
                *latency = *latency - *latency / 8 + nanos(self.now.since(time)) / 8;
            }
            self.timers.pop();
            let flow = self.flows.at(index);
            flow.state = State::Listed;
            let band = usize::from(flow.band);
            self.bands[band].rounds.add_old(&mut self.flows, index);
        }
    }

    /// The band that sends next: it has flows, and credit.
    #[inline]
    pub(super) fn select_band(&mut self) -> Option<usize> {
        loop {
            let band = &self.bands[self.turn];
            if band.credit > 0 && !band.rounds.is_empty() {
                return Some(self.turn);
            }
            if self.listed() == 0 {
                return None;
            }
            self.turn = (self.turn + 1) % BANDS;
            let band = &mut self.bands[self.turn];
            band.credit = (band.credit + band.weight).min(band.weight);
        }
    }

    /// Takes packets of the flow whose turn it is, as long as flow and band may send, until there
    /// are `budget` wire packets or more in `taken`. Takes none if none is due.
    #[inline]
    pub(super) fn pop(
        &mut self,
        band: usize,
        budget: u64,
        taken: &mut QdiscStats,
        out: &mut PacketList,
        cx: &Cx,
    ) {
        let now = self.now;
        let Fq {
            spec,
            flows,
            bands,
            timers,
            counters,
            last,
            priorities,
            ..
        } = self;
        let rounds = &mut bands[band].rounds;
        let stays = |flow: &Flow| usize::from(flow.band) == band;
        let Some(index) = rounds.select_if(flows, self.quantum, stays) else {
            return;
        };
        let many = flows.has_many();
        if many {
            flows.fetch_behind(index);
        }
        let flow = flows.at(index);
        let own = usize::from(flow.band);
        if flow.credit <= 0 {
            flow.credit += self.quantum;
            rounds.remove(flows);
            bands[own].rounds.add_old(flows, index);
            return;
        }
        let Some(first) = flow.packets.front() else {
            if rounds.empty(flows) == Emptied::Kept {
                bands[own].rounds.add_old(flows, index);
            } else {
                flows.at(index).set_idle(now);
            }
            return;
        };
        let due = |flow: &Flow, first: &Packet| first.timestamp().max(flow.time_next);
        let time = due(flow, first);
        if time > now {
            rounds.remove(flows);
            let flow = flows.at(index);
            flow.state = State::Throttled;
            flow.time_next = time;
            timers.push(Reverse((time, index)));
            counters.throttled += 1;
            return;
        }
        while flow.credit > 0
            && bands[band].credit > 0
            && taken.queued < budget
            && let Some(first) = flow.packets.front()
        {
            let due = due(flow, first);
            if due > now {
                break;
            }
            let Some(mut packet) = flow.packets.pop_front() else {
                break;
            };
            match flow.packets.front() {
                // It is likely to be the next one of all.
                Some(next) if many => next.prefetch(),
                Some(_) => (),
                None if flow.timed => {
                    flow.timed = false;
                    last.remove(&index);
                }
                None => (),
            }
            taken.count_queued(&packet);
            let bytes = packet.wire_len();
            let late = |threshold| now.since(due) > threshold;
            if spec.ce_threshold.is_some_and(late) {
                counters.ce_marks += u64::from(mark_ce(&mut packet, &cx.pool));
            }
            let cost = i32::try_from(bytes).unwrap_or(i32::MAX);
            flow.credit = flow.credit.saturating_sub(cost);
            bands[band].credit -= i64::from(cost);
            let priority = (packet.priority() & 15) as usize;
            priorities[priority] -= 1;
            bands[usize::from(spec.priomap[priority])].len -= 1;
            if let Some(rate) = spec.maxrate
                && spec.is_paced()
            {
                let paced = if packet.departure_time().is_some() {
                    // By itself, as it was to leave by itself.
                    Some(bytes)
                } else if rate <= spec.low_rate_threshold {
                    flow.credit = 0;
                    Some(bytes)
                } else {
                    (flow.credit <= 0).then(|| bytes.max(self.quantum as u64))
                };
                if let Some(bytes) = paced {
                    pace(flow, bytes, rate, now, counters);
                }
            }
            out.push_back(packet);
        }
    }

    /// When the next packet may leave, if none may now.
    pub(super) fn next(&self) -> Next {
        match self.timers.peek() {
            _ if self.stats.qlen == 0 => Next::Idle,
            Some(&Reverse((time, _))) if self.listed() == 0 && time > self.now => {
                Next::At(time + self.spec.timer_slack)
            }
            _ => Next::Ready,
        }
    }
}

/// Says when the next packet of a flow may leave, after so many bytes.
fn pace(flow: &mut Flow, bytes: u64, rate: u64, now: Time, counters: &mut Counters) {
    let mut delay = bytes.saturating_mul(SECOND) / rate;
    if delay > SECOND {
        delay = SECOND;
        counters.too_long += 1;
    }
    if flow.time_next != Time::ZERO {
        // It left late: make up for it, by half of the delay at most.
        let late = nanos(now.since(flow.time_next));
        delay -= late.min(delay / 2);
    }
    flow.time_next = now.plus_nanos(delay);
}
