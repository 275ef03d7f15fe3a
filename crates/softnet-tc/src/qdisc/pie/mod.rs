//! `pie`: a FIFO whose delay is kept at a target by drops at its end (tc-pie(8), RFC 8033). The
//! [law] is that of `fq_pie`, too.
//!
//! A packet's time in the queue counts from the sender's push, or from its enqueue if it has a
//! departure time.

pub(crate) mod law;
#[cfg(all(test, not(any(loom, miri))))]
mod tests;

use softnet::mem::PacketList;
use softnet::qdisc::{Cx, Next, Peek, Qdisc, QdiscStats, Verdict};
use softnet::stats::DropReason;
use softnet::time::Time;

use crate::account::{Xstat, Xstats};
use crate::handle::Handle;
use crate::qdisc::aqm::{mark_ce, stamp};
use crate::qdisc::kind::{Kind, QdiscSpec};
use crate::qdisc::option::{Attribute, Form, QdiscOption, Wire, options, parameters};
use crate::qdisc::spec::QdiscEnv;
use law::{Law, Pie as State};

pub use law::PieLawSpec;

/// Percent of the probability up to which packets are marked (RFC 8033 5.1).
const MARKS: u32 = 10;

parameters! {
    /// Parameters of `pie`. Defaults are the kernel's.
    pub struct PieSpec {
        /// Frames that may wait.
        pub limit: u32 = 1000,
        /// Target, gains and marking.
        pub law: PieLawSpec = PieLawSpec::default(),
    }
}

/// `pie`: a FIFO whose delay is kept at a target (tc-pie(8)).
#[derive(Debug)]
pub struct Pie {
    limit: u64,
    law: Law,
    state: State,
    queue: PacketList,
    stats: QdiscStats,
    packets_in: u64,
    dropped: u64,
    overlimit: u64,
    longest: u64,
    marks: u64,
    xstats: Xstats,
}

/// Statistics of its own, as `tc -s` names them. Times are in nanoseconds.
const XSTATS: [Xstat; 9] = [
    Xstat::Prob,
    Xstat::PieDelay,
    Xstat::AvgDqRate,
    Xstat::DqRateEstimating,
    Xstat::PacketsIn,
    Xstat::Dropped,
    Xstat::OverLimit,
    Xstat::MaxQueue,
    Xstat::EcnMark,
];

impl Kind for Pie {
    type Spec = PieSpec;
    const NAME: &'static str = "pie";
    const OPTIONS: &'static [QdiscOption] = options! { QdiscSpec::Pie(s) =>
        /// a time; the delay that is aimed at
        "target": Form::Time => s.law.target; attr = Some(Attribute::new(1, Wire::TickMicros)),
        /// packets
        "limit": Form::Size => s.limit; attr = Some(Attribute::new(2, Wire::U32)),
        /// a time between two updates of the probability
        "tupdate": Form::Time => s.law.tupdate; attr = Some(Attribute::new(3, Wire::Micros)),
        /// gain for the distance from the target, in 1/16 Hz
        "alpha": Form::Number("a number from 0 to 4294967295", 0, u32::MAX as u64)
            => s.law.alpha; wrong = "-1"; attr = Some(Attribute::new(4, Wire::U32)),
        /// gain for the change of the delay, in 1/16 Hz
        "beta": Form::Number("a number from 0 to 4294967295", 0, u32::MAX as u64)
            => s.law.beta; wrong = "-1"; attr = Some(Attribute::new(5, Wire::U32)),
        /// mark ECN-capable packets instead of dropping them, up to a probability of 10 %
        "ecn": Form::Flag => s.law.ecn; attr = Some(Attribute::new(6, Wire::U32)),
        /// drop smaller packets less often
        "bytemode": Form::Flag => s.law.bytemode; attr = Some(Attribute::new(7, Wire::U32)),
        /// estimate the delay from the rate at which packets leave
        "dq_rate_estimator": Form::Flag => s.law.dq_rate_estimator;
            attr = Some(Attribute::new(8, Wire::U32)),
    };

    fn make(spec: &PieSpec, _: Handle, env: &QdiscEnv) -> Pie {
        let pie = Pie {
            limit: spec.limit.into(),
            law: Law::new(&spec.law, env),
            state: State::default(),
            queue: PacketList::new(),
            stats: QdiscStats::default(),
            packets_in: 0,
            dropped: 0,
            overlimit: 0,
            longest: 0,
            marks: 0,
            xstats: Xstats::new(&XSTATS),
        };
        pie.publish();
        pie
    }

    /// Drops the oldest packets beyond the new limit.
    fn change(&mut self, spec: &PieSpec, cx: &mut Cx) {
        self.begin(cx.now);
        self.limit = spec.limit.into();
        self.law.change(&spec.law);
        self.state.restart();
        while self.stats.qlen > self.limit
            && let Some(packet) = self.queue.pop_front()
        {
            self.stats.count_dropped(&packet);
            cx.dropped.push(packet, DropReason::QdiscLimit);
        }
        self.publish();
    }

    fn xstats(&self) -> Option<&Xstats> {
        Some(&self.xstats)
    }
}

impl Pie {
    fn begin(&mut self, now: Time) {
        self.law.begin(now);
        self.state.catch_up(&self.law, self.stats.backlog);
    }

    fn publish(&self) {
        self.xstats.set([
            self.state.prob << 8,
            self.state.delay_nanos(),
            self.law.rate(&self.state),
            self.law.spec.dq_rate_estimator.into(),
            self.packets_in,
            self.dropped,
            self.overlimit,
            self.longest,
            self.marks,
        ]);
    }
}

impl Qdisc for Pie {
    fn enqueue(&mut self, packets: &mut PacketList, cx: &mut Cx) -> Verdict {
        self.begin(cx.now);
        let mut verdict = Verdict::Queued;
        while let Some(mut packet) = packets.pop_front() {
            let mut reason = None;
            if self.stats.qlen >= self.limit {
                self.overlimit += 1;
                reason = Some(DropReason::QdiscLimit);
            } else if (self.state).drops(&mut self.law, self.stats.backlog, packet.wire_len()) {
                if self.law.marks(&self.state, MARKS) && mark_ce(&mut packet, &cx.pool) {
                    self.marks += 1;
                } else {
                    reason = Some(DropReason::QdiscCongested);
                }
            }
            if let Some(reason) = reason {
                self.dropped += 1;
                self.state.dropped();
                self.stats.drops += 1;
                cx.dropped.push(packet, reason);
                verdict = Verdict::Dropped;
                continue;
            }
            self.packets_in += 1;
            self.longest = self.longest.max(self.stats.qlen);
            stamp(&mut packet, cx.now);
            self.stats.count_queued(&packet);
            self.queue.push_back(packet);
        }
        self.publish();
        verdict
    }

    fn dequeue(&mut self, budget: usize, out: &mut PacketList, cx: &mut Cx) -> Next {
        self.begin(cx.now);
        let end = self.stats.packets + budget as u64;
        while self.stats.packets < end
            && let Some(packet) = self.queue.pop_front()
        {
            self.stats.count_dequeued(&packet);
            let (bytes, came) = (packet.wire_len(), packet.timestamp());
            self.state.left(&self.law, bytes, came, self.stats.backlog);
            out.push_back(packet);
        }
        self.publish();
        if self.queue.is_empty() {
            Next::Idle
        } else {
            Next::Ready
        }
    }

    fn peek(&self, _: Time) -> Peek {
        let first = self.queue.front();
        first.map_or(Peek::Idle, |packet| Peek::Packet(packet.into()))
    }

    fn drain(&mut self, out: &mut PacketList) {
        self.stats.count_drained();
        out.append(&mut self.queue);
        self.state.reset();
        self.publish();
    }

    fn wants_enqueue_time(&self) -> bool {
        true
    }

    fn stats(&self) -> &QdiscStats {
        &self.stats
    }
}
