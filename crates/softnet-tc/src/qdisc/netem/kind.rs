//! Parameters and options of `netem`.

use std::time::Duration;

use softnet::qdisc::Cx;

use super::distribution::Distribution;
use super::loss::{Loss, LossModel};
use super::queue::TimeQueue;
use super::random::{Correlated, Prng};
use super::slot::{SlotSpec, Slots};
use super::{Counts, Draws, NAMES, Netem};
use crate::account::{Children, Xstats};
use crate::handle::Handle;
use crate::qdisc::kind::{Kind, QdiscSpec, parts};
use crate::qdisc::option::{Form, QdiscOption, Unset, options, parameters};
use crate::qdisc::spec::{QdiscEnv, SpecError};
use crate::units::MAX_RATE;

/// Longest jitter (`INT_MAX` nanoseconds).
const MAX_JITTER: Duration = Duration::from_nanos(i32::MAX as u64);
/// Longest delay: what a configuration file can say to the nanosecond.
const MAX_DELAY: Duration = Duration::from_nanos(1 << 53);
/// Most packets and bytes of a slot (`INT_MAX`).
const MAX_SLOT: u32 = i32::MAX as u32;

parameters! {
    /// Parameters of a link with errors. Probabilities and correlations are of 2^32 - 1, which is
    /// always.
    pub struct NetemSpec {
        /// Frames that wait at most.
        pub limit: u32 = 1000,
        /// Delay of each packet.
        pub delay: Duration = Duration::ZERO,
        /// Deviation from the delay, at most 2.147483647 s.
        pub jitter: Duration = Duration::ZERO,
        /// Correlation of a packet's deviation with that of the packet before.
        pub delay_correlation: u32 = 0,
        /// Distribution of the deviation. `None`: all from `-jitter` to `jitter` are as likely.
        pub distribution: Option<Distribution> = None,
        /// Probability of loss, with [`LossModel::Random`].
        pub loss: u32 = 0,
        /// Correlation of losses, with [`LossModel::Random`].
        pub loss_correlation: u32 = 0,
        /// Model of loss.
        pub loss_model: LossModel = LossModel::Random,
        /// Packets that can carry it are marked (ECN) instead of lost.
        pub ecn: bool = false,
        /// Probability of a copy.
        pub duplicate: u32 = 0,
        /// Correlation of copies.
        pub duplicate_correlation: u32 = 0,
        /// Probability of a changed bit.
        pub corrupt: u32 = 0,
        /// Correlation of changed bits.
        pub corrupt_correlation: u32 = 0,
        /// Probability of leaving at once, for each packet from number `gap` on.
        pub reorder: u32 = 0,
        /// Correlation of leaving at once.
        pub reorder_correlation: u32 = 0,
        /// Packets of which one may leave at once; 0: none does.
        pub gap: u32 = 0,
        /// Bytes per second; 0: the link takes no time.
        pub rate: u64 = 0,
        /// Bytes that each packet takes on the link besides its own.
        pub packet_overhead: i32 = 0,
        /// Bytes of a cell, if the link has cells: a packet takes whole ones.
        pub cell_size: u32 = 0,
        /// Bytes that each cell takes on the link besides its own.
        pub cell_overhead: i32 = 0,
        /// Slots.
        pub slot: SlotSpec = SlotSpec::default(),
        /// Distribution of the time between slots.
        pub slot_distribution: Option<Distribution> = None,
        /// Seed of the random numbers. `None`: another one each time.
        pub seed: Option<u64> = None,
    }
}

impl NetemSpec {
    /// Nanoseconds that a packet takes on the link (`packet_time_ns`).
    pub(super) fn time_on_link(&self, len: u64) -> i64 {
        let len = i128::from(len) + i128::from(self.packet_overhead);
        let mut len = len.max(0);
        if self.cell_size > 0 {
            let cells = (len as u128).div_ceil(self.cell_size.into()) as i128;
            let cell = i128::from(self.cell_size) + i128::from(self.cell_overhead);
            len = cells * cell.max(0);
        }
        let time = len as u128 * 1_000_000_000 / u128::from(self.rate.max(1));
        i64::try_from(time).unwrap_or(i64::MAX)
    }

    /// True if a packet of a large frame may fare otherwise than the one before it.
    fn cuts(&self) -> bool {
        let chances = [self.loss, self.duplicate, self.corrupt, self.gap];
        chances.iter().any(|&chance| chance != 0)
            || self.loss_model != LossModel::Random
            || !self.jitter.is_zero()
            || self.rate > 0
            || self.slot.is_on()
    }
}

impl Draws {
    fn new(spec: &NetemSpec, seed: u64) -> Draws {
        let mut other = Prng::seeded(!seed);
        let mut of = |rho| Correlated::new(rho, other.next());
        Draws {
            prng: Prng::seeded(seed),
            delay: of(spec.delay_correlation),
            loss: of(spec.loss_correlation),
            duplicate: of(spec.duplicate_correlation),
            reorder: of(spec.reorder_correlation),
            corrupt: of(spec.corrupt_correlation),
            other,
        }
    }

    /// Goes on with other correlations.
    fn change(&mut self, spec: &NetemSpec) {
        self.delay.set(spec.delay_correlation);
        self.loss.set(spec.loss_correlation);
        self.duplicate.set(spec.duplicate_correlation);
        self.reorder.set(spec.reorder_correlation);
        self.corrupt.set(spec.corrupt_correlation);
    }
}

impl Kind for Netem {
    type Spec = NetemSpec;
    const NAME: &'static str = "netem";
    const OPTIONS: &'static [QdiscOption] = options! { QdiscSpec::Netem(s) =>
        /// packets that wait at most, 0 to 4294967295
        "limit": Form::Size => s.limit,
        /// a time; the delay of each packet
        "delay": Form::Time => s.delay,
        /// a time up to `"2147483647ns"`; how far a packet's delay may be from `delay`
        "jitter": Form::Time => s.jitter,
        /// a probability, like `"25%"`; how much a packet's delay resembles that of the packet
        /// before
        "delay_correlation": Form::Percent => s.delay_correlation,
        /// `"normal"`, `"pareto"`, `"paretonormal"`, or a list of 1 to 16384 numbers, in units of
        /// 1/8192 of `jitter`, each as likely; how delays are spread
        "distribution": Form::Own; unset = Unset::Words("evenly, from `-jitter` to `jitter`");
            wrong = "\"laplace\"",
        /// a probability; packets that are lost
        "loss": Form::Percent => s.loss,
        /// a probability; how much a loss resembles the one before
        "loss_correlation": Form::Percent => s.loss_correlation,
        /// five probabilities, P13, P31, P32, P23 and P14 of tc's `loss state`; losses by a Markov
        /// chain, in place of `loss`
        "loss_state": Form::Own; unset = Unset::Words("none"); wrong = "[\"1%\"]",
        /// four probabilities, p, r, 1-h and 1-k of tc's `loss gemodel`; losses by Gilbert and
        /// Elliot's model, in place of `loss`
        "loss_gemodel": Form::Own; unset = Unset::Words("none"); wrong = "[\"1%\"]",
        /// `true` marks packets that can carry it (ECN) instead of losing them
        "ecn": Form::Flag => s.ecn,
        /// a probability; packets that come twice
        "duplicate": Form::Percent => s.duplicate,
        /// a probability; how much a copy resembles the one before
        "duplicate_correlation": Form::Percent => s.duplicate_correlation,
        /// a probability; packets of which a bit is changed
        "corrupt": Form::Percent => s.corrupt,
        /// a probability; how much a change resembles the one before
        "corrupt_correlation": Form::Percent => s.corrupt_correlation,
        /// a probability; packets that leave at once, before those that wait for their `delay`
        "reorder": Form::Percent => s.reorder,
        /// a probability; how much leaving at once resembles the time before
        "reorder_correlation": Form::Percent => s.reorder_correlation,
        /// packets of which one may leave at once, 0 to 4294967295; at least 1 with `reorder`. By
        /// itself one in `gap` does
        "gap": Form::Number("a number of packets", 0, 4_294_967_295) => s.gap,
        /// a rate; how fast the link takes packets, one after the other. 0: at once
        "rate": Form::Rate => s.rate,
        /// bytes that each packet takes on the link besides its own, -2147483648 to 2147483647
        "packet_overhead": Form::Own; unset = Unset::Words("`0`"); wrong = "\"x\"",
        /// bytes of a cell of the link, 0 to 4294967295; 0: it has none
        "cell_size": Form::Size => s.cell_size,
        /// bytes that each cell takes on the link besides its own, -2147483648 to 2147483647
        "cell_overhead": Form::Own; unset = Unset::Words("`0`"); wrong = "\"x\"",
        /// a time; packets leave in slots, at least so long apart
        "slot_min": Form::Time => s.slot.min,
        /// a time; slots are at most so long apart
        "slot_max": Form::Time => s.slot.max; unset = Unset::Words("as `slot_min`"),
        /// as `distribution`, of the time between slots, in units of 1/8192 of `slot_jitter`
        "slot_distribution": Form::Own; unset = Unset::Words("evenly, from `slot_min` to \
            `slot_max`"); wrong = "\"laplace\"",
        /// a time; the mean between slots, with `slot_distribution`
        "slot_delay": Form::Time => s.slot.delay,
        /// a time up to `"2147483647ns"`; the deviation from it
        "slot_jitter": Form::Time => s.slot.jitter,
        /// packets that leave in a slot, 0 to 2147483647; 0: any number
        "slot_packets": Form::Size => s.slot.packets,
        /// bytes that leave in a slot, 0 to 2147483647; 0: any number
        "slot_bytes": Form::Size => s.slot.bytes,
        /// a number; the same one gives the same losses, delays and changes
        "seed": Form::Own; unset = Unset::Words("another one each time"); wrong = "-1",
    };

    fn check(spec: &NetemSpec) -> Result<(), SpecError> {
        let wrong = |parameter, reason| Err(SpecError::parameter("netem", parameter, reason));
        for (name, time, most) in [
            ("delay", spec.delay, MAX_DELAY),
            ("jitter", spec.jitter, MAX_JITTER),
            ("slot_min", spec.slot.min, MAX_DELAY),
            ("slot_max", spec.slot.max, MAX_DELAY),
            ("slot_delay", spec.slot.delay, MAX_DELAY),
            ("slot_jitter", spec.slot.jitter, MAX_JITTER),
        ] {
            if time > most {
                return wrong(
                    name,
                    if most == MAX_JITTER {
                        "must be at most 2147483647ns"
                    } else {
                        "must be at most 104 days"
                    },
                );
            }
        }
        if spec.rate > MAX_RATE {
            return wrong("rate", "must be at most 1 Tbyte/s");
        }
        if spec.slot.min > spec.slot.max {
            return wrong("slot_max", "must be at least slot_min");
        }
        if spec.slot.packets > MAX_SLOT {
            return wrong("slot_packets", "must be at most 2147483647");
        }
        if spec.slot.bytes > MAX_SLOT {
            return wrong("slot_bytes", "must be at most 2147483647");
        }
        Ok(())
    }

    fn make(spec: &NetemSpec, _: Handle, env: &QdiscEnv) -> Netem {
        let index = env.instance.as_ref().map_or(0, |instance| instance.index);
        // The first, which may be the only one, has the kernel's numbers.
        let seed = spec.seed.unwrap_or(env.seed);
        let seed = seed.wrapping_add((index as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let child = Netem::default_child(spec, env).make(Handle::NONE, env);
        Netem {
            spec: spec.clone(),
            cuts: spec.cuts(),
            draws: Draws::new(spec, seed),
            loss: Loss::new(&spec.loss_model),
            counter: 0,
            front: Default::default(),
            queue: TimeQueue::default(),
            slots: Slots::new(&spec.slot, 0),
            class: Children::new([child]),
            counts: Counts::default(),
            xstats: Xstats::new(&NAMES),
        }
    }

    /// Holds for what comes. A new seed starts the random numbers anew.
    fn change(&mut self, spec: &NetemSpec, cx: &mut Cx) {
        match spec.seed.filter(|_| spec.seed != self.spec.seed) {
            Some(seed) => self.draws = Draws::new(spec, seed),
            None => self.draws.change(spec),
        }
        if spec.slot != self.spec.slot {
            self.slots = Slots::new(&spec.slot, cx.now.nanos());
        }
        self.loss = Loss::new(&spec.loss_model);
        self.counter = 0;
        self.cuts = spec.cuts();
        self.spec = spec.clone();
    }

    fn classes(_: &NetemSpec) -> u16 {
        1
    }

    /// None: packets leave when they are due.
    fn default_child(_: &NetemSpec, _: &QdiscEnv) -> QdiscSpec {
        QdiscSpec::Noqueue
    }

    parts!(class);

    fn xstats(&self) -> Option<&Xstats> {
        Some(&self.xstats)
    }

    fn flows(&self) -> u64 {
        let own = u64::from(self.queue.first().is_some() || !self.front.is_empty());
        self.class.flows().max(own)
    }
}
