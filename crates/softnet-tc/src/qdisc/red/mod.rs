//! `red`: Random Early Detection (tc-red(8); Floyd and Jacobson, 1993). Packets are dropped, or
//! marked where they are ECN-capable, by chance before the queue is full, the more often the
//! longer it is on average. The [law](law) is that of the kernel, with its arithmetic.
//!
//! Packets wait in the only class, `:1`: a `bfifo` of `limit` bytes, or whatever is grafted
//! there. Its length is what is averaged, as each packet comes; while it is empty, the average
//! falls by the clock. `adaptive` changes the probability every half second, counted from the
//! first call.
//!
//! Where packets leave by way of a `tbf` the average falls while the queue is empty, too. (The
//! kernel's stays: `tbf` looks for a packet before it takes one, which begins no idle time.) The
//! sender is told of early drops as of others; in the kernel it is told of congestion.
//!
//! A change keeps what is queued and what was grafted. (The kernel's makes a new `bfifo`, and
//! drops both.)

pub(crate) mod law;
mod spec;
#[cfg(all(test, not(any(loom, miri))))]
mod tests;

use softnet::mem::{Packet, PacketList};
use softnet::qdisc::{Cx, Next, Peek, Qdisc, QdiscStats, Verdict};
use softnet::stats::DropReason;
use softnet::time::Time;

use crate::account::{Child, Children, Xstat, Xstats};
use crate::handle::Handle;
use crate::qdisc::aqm::mark_ce;
use crate::qdisc::draws::Draws;
use crate::qdisc::kind::{AnyQdisc, Kind, QdiscSpec, parts};
use crate::qdisc::periods::{EXACT, Periods};
use crate::qdisc::spec::{QdiscEnv, SpecError};
use law::{Action, Average, IdleSince, Law};

pub use law::{RedCurve, red_idle_table, red_probability_log, red_weight};
pub use spec::RedSpec;

/// Time between two changes of the probability.
const ADAPT: u64 = 500_000_000;

/// `red`: Random Early Detection (tc-red(8)).
#[derive(Debug)]
pub struct Red {
    spec: RedSpec,
    law: Law,
    average: Average,
    idle: IdleSince,
    adapt: Periods,
    adapted: u64,
    now: Time,
    draws: Draws,
    class: Children,
    counters: Counters,
    xstats: Xstats,
}

/// Counters beside [`QdiscStats`].
#[derive(Debug, Default)]
struct Counters {
    early: u64,
    marked: u64,
    /// Packets that the class refused.
    refused: u64,
}

/// Statistics of its own, as `tc -s` names them, and the probability at `max`, times `2^32`.
const XSTATS: [Xstat; 4] = [
    Xstat::Marked,
    Xstat::EarlyDrops,
    Xstat::QueueDrops,
    Xstat::MaxP,
];

impl Kind for Red {
    type Spec = RedSpec;
    const NAME: &'static str = "red";
    const OPTIONS: &'static [crate::QdiscOption] = spec::OPTIONS;

    fn check(spec: &RedSpec) -> Result<(), SpecError> {
        spec.check()
    }

    fn make(spec: &RedSpec, _: Handle, env: &QdiscEnv) -> Red {
        let child = Red::default_child(spec, env).make(Handle::NONE, env);
        let red = Red {
            law: Law::new(&spec.curve),
            average: Average::default(),
            idle: None,
            adapt: Periods::new(if spec.adaptive { ADAPT } else { 0 }),
            adapted: 0,
            now: Time::ZERO,
            draws: Draws::new(env.seed),
            class: Children::new([child]),
            counters: Counters::default(),
            xstats: Xstats::new(&XSTATS),
            spec: spec.clone(),
        };
        red.publish();
        red
    }

    /// The average starts afresh, as in the kernel.
    fn change(&mut self, spec: &RedSpec, cx: &mut Cx) {
        self.now = self.now.max(cx.now);
        self.spec = spec.clone();
        self.law = Law::new(&spec.curve);
        self.average = Average::default();
        self.idle = (self.class.stats.qlen == 0).then_some(self.now);
        self.adapt = Periods::new(if spec.adaptive { ADAPT } else { 0 });
        self.adapted = 0;
        self.class.with(0, |child| {
            if child.is_default()
                && let AnyQdisc::Bfifo(queue) = child.qdisc_mut()
            {
                queue.set_limit(spec.limit.into());
            }
        });
        self.publish();
    }

    fn classes(_: &RedSpec) -> u16 {
        1
    }

    fn default_child(spec: &RedSpec, _: &QdiscEnv) -> QdiscSpec {
        let limit = spec.limit.into();
        QdiscSpec::Bfifo { limit }
    }

    parts!(class);

    fn xstats(&self) -> Option<&Xstats> {
        Some(&self.xstats)
    }
}

impl Red {
    fn publish(&self) {
        let counters = &self.counters;
        self.xstats.set([
            counters.marked,
            counters.early,
            counters.refused,
            self.law.max_p().into(),
        ]);
    }

    /// The average as it is at a time.
    fn average_at(&self, now: Time) -> u64 {
        match self.idle {
            Some(since) => {
                let nanos = now.nanos().saturating_sub(since.nanos());
                self.law.after_idle(&self.average, nanos, &self.spec.stab)
            }
            None => self.average.value,
        }
    }

    /// A call comes: the probability is what it would be had it been changed every half second.
    fn begin(&mut self, now: Time) {
        self.now = self.now.max(now);
        let due = self.adapt.due(self.now);
        if self.adapted == due {
            return;
        }
        while self.adapted < due {
            let time = self.adapt.time(self.adapted + 1);
            let before = self.law.max_p();
            self.law.adapt(self.average_at(time));
            self.adapted += 1;
            let since = self
                .idle
                .map_or(u64::MAX, |since| time.nanos().saturating_sub(since.nanos()));
            // An average that stays has the next ones change nothing more, either. One that falls
            // for years does so in steps that nobody waits for.
            if self.law.max_p() == before && since >= self.law.longest_idle() {
                self.adapted = due;
            } else if due - self.adapted > EXACT {
                self.adapted = due - EXACT / 2;
            }
        }
        self.publish();
    }

    /// A packet comes to a class with so many bytes. True if it is let in.
    #[inline]
    fn admit(&mut self, packet: &mut Packet, backlog: u64, cx: &Cx) -> bool {
        match self.idle.take() {
            Some(since) => {
                let nanos = self.now.nanos().saturating_sub(since.nanos());
                self.average.value = self.law.after_idle(&self.average, nanos, &self.spec.stab);
            }
            None => self.law.count(&mut self.average, backlog),
        }
        let action = self.law.decide(&mut self.average, &mut self.draws);
        if action == Action::Pass {
            return true;
        }
        self.class.stats.overlimits += 1;
        let marks = self.spec.ecn && !(action == Action::Forced && self.spec.harddrop);
        if marks && mark_ce(packet, &cx.pool) {
            self.counters.marked += 1;
            return true;
        }
        if marks && self.spec.nodrop {
            return true;
        }
        self.counters.early += 1;
        false
    }

    /// Hands packets to the class.
    fn push(&mut self, packets: &mut PacketList, cx: &mut Cx) -> Verdict {
        if packets.is_empty() {
            return Verdict::Queued;
        }
        let drops = self.class.stats.drops;
        let verdict = self.class.enqueue(0, packets, cx);
        self.counters.refused += self.class.stats.drops - drops;
        verdict
    }
}

impl Qdisc for Red {
    fn enqueue(&mut self, packets: &mut PacketList, cx: &mut Cx) -> Verdict {
        self.begin(cx.now);
        let mut verdict = Verdict::Queued;
        // What the class takes for sure goes to it as one list.
        let own = self.class.get(0).is_some_and(Child::is_default);
        let (mut run, mut bytes) = (PacketList::new(), 0);
        while let Some(mut packet) = packets.pop_front() {
            let len = packet.wire_len();
            if !self.admit(&mut packet, self.class.stats.backlog + bytes, cx) {
                self.class.stats.drops += 1;
                cx.dropped.push(packet, DropReason::QdiscCongested);
                verdict = Verdict::Dropped;
                continue;
            }
            let fits = self.class.stats.backlog + bytes + len <= self.spec.limit.into();
            run.push_back(packet);
            bytes += len;
            if !own || !fits {
                verdict = verdict.max(self.push(&mut run, cx));
                bytes = 0;
            }
        }
        verdict = verdict.max(self.push(&mut run, cx));
        self.publish();
        verdict
    }

    fn dequeue(&mut self, budget: usize, out: &mut PacketList, cx: &mut Cx) -> Next {
        self.begin(cx.now);
        let next = self.class.dequeue(0, budget, out, cx);
        if self.class.stats.qlen == 0 && self.idle.is_none() {
            self.idle = Some(self.now);
        }
        next
    }

    fn peek(&self, now: Time) -> Peek {
        let child = self.class.get(0);
        child.map_or(Peek::Idle, |child| child.peek_only(now))
    }

    fn drain(&mut self, out: &mut PacketList) {
        self.class.drain(out);
        (self.average, self.idle) = (Average::default(), None);
    }

    fn wants_enqueue_time(&self) -> bool {
        self.class.wants_enqueue_time()
    }

    fn stats(&self) -> &QdiscStats {
        &self.class.stats
    }
}
