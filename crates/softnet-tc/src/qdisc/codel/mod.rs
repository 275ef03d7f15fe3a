//! `codel`: a FIFO whose delay is kept low (tc-codel(8), RFC 8289). The algorithm is in
//! [`aqm`](crate::qdisc::aqm).

use softnet::mem::PacketList;
use softnet::qdisc::{Cx, Next, Qdisc, QdiscStats, Verdict, WireSum};
use softnet::stats::DropReason;
use softnet::time::Time;

use crate::account::{Xstat, Xstats};
use crate::handle::Handle;
use crate::qdisc::aqm::{Aqm, AqmSpec, Codel as State, stamp};
use crate::qdisc::kind::{Kind, QdiscSpec};
use crate::qdisc::option::{Attribute, Form, QdiscOption, Unset, Wire, options, parameters};
use crate::qdisc::spec::{QdiscEnv, SpecError};

parameters! {
    /// Parameters of `codel`. Defaults are the kernel's.
    pub struct CodelSpec {
        /// Frames that may wait. One that the parent has taken out to look at it (`tbf`, `htb`) is
        /// the parent's.
        pub limit: u32 = 1000,
        /// Target, interval and marking.
        pub aqm: AqmSpec = AqmSpec::default(),
    }
}

/// `codel`: a FIFO whose delay is kept low (tc-codel(8)).
#[derive(Debug)]
pub struct Codel {
    limit: u64,
    aqm: Aqm,
    state: State,
    queue: PacketList,
    stats: QdiscStats,
    limit_drops: u64,
    /// Sojourn time of the packet that left last, in nanoseconds.
    delay: u64,
    xstats: Xstats,
}

/// Statistics of its own, as `tc -s` names them. Times are in nanoseconds.
const XSTATS: [Xstat; 9] = [
    Xstat::Count,
    Xstat::LastCount,
    Xstat::Delay,
    Xstat::Dropping,
    Xstat::DropNext,
    Xstat::MaxPacket,
    Xstat::EcnMark,
    Xstat::DropOverLimit,
    Xstat::CeMark,
];

impl Kind for Codel {
    type Spec = CodelSpec;
    const NAME: &'static str = "codel";
    const OPTIONS: &'static [QdiscOption] = options! { QdiscSpec::Codel(s) =>
        /// a time; the delay that may last
        "target": Form::Time => s.aqm.target; attr = Some(Attribute::new(1, Wire::CodelMicros)),
        /// packets
        "limit": Form::Size => s.limit; attr = Some(Attribute::new(2, Wire::U32)),
        /// a time, about the longest round trip; at least 1us
        "interval": Form::Time => s.aqm.interval;
            attr = Some(Attribute::new(3, Wire::CodelMicros)),
        /// mark ECN-capable packets instead of dropping them
        "ecn": Form::Flag => s.aqm.ecn; attr = Some(Attribute::new(4, Wire::U32)),
        /// a time; ECN-capable packets that waited longer are marked
        "ce_threshold": Form::Time => s.aqm.ce_threshold;
            unset = Unset::Words("none"); attr = Some(Attribute::new(5, Wire::CodelMicros)),
        /// traffic class and mask, like `"0x01/0x03"`, of the packets that `ce_threshold` is for
        "ce_threshold_selector": Form::Own; unset = Unset::Words("all"); wrong = "\"1\"",
    };

    fn check(spec: &CodelSpec) -> Result<(), SpecError> {
        spec.aqm.check("codel")
    }

    fn make(spec: &CodelSpec, _: Handle, env: &QdiscEnv) -> Codel {
        Codel {
            limit: spec.limit.into(),
            aqm: Aqm::new(&spec.aqm, env),
            state: State::default(),
            queue: PacketList::new(),
            stats: QdiscStats::default(),
            limit_drops: 0,
            delay: 0,
            xstats: Xstats::new(&XSTATS),
        }
    }

    /// Drops the oldest packets beyond the new limit.
    fn change(&mut self, spec: &CodelSpec, cx: &mut Cx) {
        self.limit = spec.limit.into();
        self.aqm.change(&spec.aqm);
        while self.stats.qlen > self.limit
            && let Some(packet) = self.queue.pop_front()
        {
            self.stats.count_dropped(&packet);
            self.limit_drops += 1;
            cx.dropped.push(packet, DropReason::QdiscLimit);
        }
        if self.queue.is_empty() {
            // Nothing waits, so nothing has waited too long (BUG-CODEL-2).
            self.state.clear();
        }
        self.publish(cx.now);
    }

    fn xstats(&self) -> Option<&Xstats> {
        Some(&self.xstats)
    }
}

impl Codel {
    fn publish(&self, now: Time) {
        let (count, last_count, drop_next) = self.state.state();
        self.xstats.set([
            count.into(),
            last_count.into(),
            self.delay,
            drop_next.is_some().into(),
            drop_next.map_or(0, |time| time.since(now).as_nanos() as u64),
            self.aqm.max_packet,
            self.aqm.ecn_marks,
            self.limit_drops,
            self.aqm.ce_marks,
        ]);
    }
}

impl Qdisc for Codel {
    fn enqueue(&mut self, packets: &mut PacketList, cx: &mut Cx) -> Verdict {
        let mut verdict = Verdict::Queued;
        while let Some(mut packet) = packets.pop_front() {
            if self.stats.qlen >= self.limit {
                self.stats.drops += 1;
                self.limit_drops += 1;
                cx.dropped.push(packet, DropReason::QdiscLimit);
                verdict = Verdict::Dropped;
                continue;
            }
            stamp(&mut packet, cx.now);
            self.stats.count_queued(&packet);
            self.queue.push_back(packet);
        }
        if verdict == Verdict::Dropped {
            self.publish(cx.now);
        }
        verdict
    }

    #[inline(never)]
    fn try_pass(&mut self, packets: &PacketList, sum: WireSum, cx: &mut Cx) -> bool {
        let passes = self.queue.is_empty()
            && packets.len() as u64 <= self.limit
            && !self.aqm.come_late(packets, cx.now);
        if passes {
            self.state.clear();
            self.stats.count_sent(sum);
        }
        passes
    }

    fn dequeue(&mut self, budget: usize, out: &mut PacketList, cx: &mut Cx) -> Next {
        self.aqm.begin(cx.now);
        let end = self.stats.packets + budget as u64;
        while self.stats.packets < end {
            let Codel {
                state, queue, aqm, ..
            } = self;
            let Some(packet) = state.dequeue(queue, aqm, &mut self.stats, cx) else {
                break;
            };
            self.delay = self.aqm.sojourn(&packet);
            out.push_back(packet);
        }
        self.publish(cx.now);
        if self.queue.is_empty() {
            Next::Idle
        } else {
            Next::Ready
        }
    }

    fn drain(&mut self, out: &mut PacketList) {
        self.stats.count_drained();
        out.append(&mut self.queue);
        self.state = State::default();
    }

    fn wants_enqueue_time(&self) -> bool {
        true
    }

    fn stats(&self) -> &QdiscStats {
        &self.stats
    }
}

#[cfg(all(test, not(any(loom, miri))))]
mod tests;
