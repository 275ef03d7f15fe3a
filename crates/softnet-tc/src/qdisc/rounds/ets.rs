//! `ets`: bands of which the first are served in strict priority and the others in turn, each as
//! much as its quantum says (tc-ets(8), IEEE 802.1Qaz).
//!
//! A packet's band is found as by `prio`. While a strict band holds its packets back, the bands
//! after it are served.

use softnet::mem::{Packet, PacketList};
use softnet::qdisc::{Cx, Next, Peek, Qdisc, Verdict, WireSum};
use softnet::time::Time;

use super::{QUANTUM, Rounds};
use crate::account::{Child, Children};
use crate::filter::{Filters, Lost};
use crate::handle::Handle;
use crate::qdisc::kind::{Kind, LinkDefaults, QdiscSpec, of_children, parts};
use crate::qdisc::option::{Form, QdiscOption, Unset, options};
use crate::qdisc::sorts::{Sorts, band, named};
use crate::qdisc::spec::{QdiscEnv, SpecError};
use crate::rate::Instance;

/// The most bands (`TCQ_ETS_MAX_BANDS`).
const MAX_BANDS: u16 = 16;

/// Parameters of `ets`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EtsSpec {
    /// Bands, 1 to 16.
    pub bands: u16,
    /// Bands in strict priority, which are the first ones.
    pub strict: u16,
    /// Bytes that each of the other bands may send in a round, 256 to 1 MiB; of bands that are
    /// strict, or do not exist, 0.
    pub quanta: [u32; MAX_BANDS as usize],
    /// Band of each of the 16 priorities (`TC_PRIO_*`).
    pub priomap: [u8; 16],
}

impl Default for EtsSpec {
    fn default() -> EtsSpec {
        EtsSpec::new(&LinkDefaults::default())
    }
}

impl EtsSpec {
    /// Three bands that share a link, a frame each in a round; all packets go to the last one.
    pub fn new(link: &LinkDefaults) -> EtsSpec {
        EtsSpec {
            bands: 3,
            strict: 0,
            quanta: [0; MAX_BANDS as usize],
            priomap: [2; 16],
        }
        .with_quanta(&[], link)
    }

    /// The same bands with these quanta for the first of those that are not strict; the others get
    /// a frame of the link.
    pub fn with_quanta(mut self, quanta: &[u32], link: &LinkDefaults) -> EtsSpec {
        let shared = usize::from(self.strict)..usize::from(self.bands);
        for (band, quantum) in self.quanta.iter_mut().enumerate() {
            *quantum = match band.checked_sub(shared.start) {
                Some(at) if shared.contains(&band) => {
                    let given = quanta.get(at).copied().unwrap_or_else(|| link.frame());
                    EtsSpec::quantum(given)
                }
                _ => 0,
            };
        }
        self
    }

    /// This quantum, or the nearest one that there is (`ets_quantum_parse`).
    pub fn quantum(quantum: u32) -> u32 {
        quantum.clamp(*QUANTUM.start(), *QUANTUM.end())
    }

    /// The quanta of the bands that are not strict.
    pub fn shared(&self) -> &[u32] {
        let shared = usize::from(self.strict)..usize::from(self.bands);
        self.quanta.get(shared).unwrap_or_default()
    }
}

/// `ets`: strict bands, and bands that share what those leave (tc-ets(8)).
#[derive(Debug)]
pub struct Ets {
    handle: Handle,
    /// Frames in a band's own queue: the device's `txqueuelen`.
    band_limit: u32,
    strict: usize,
    priomap: [u8; 16],
    filters: Filters,
    bands: Children,
    rounds: Rounds,
    /// There are others.
    instance: Option<Instance>,
}

impl Kind for Ets {
    type Spec = EtsSpec;
    const NAME: &'static str = "ets";
    const OPTIONS: &'static [QdiscOption] = options! { QdiscSpec::Ets(s) =>
        /// number of bands, 1 to 16
        "bands": Form::Number("a number of bands from 1 to 16", 1, MAX_BANDS as u64)
            => s.bands; unset = Unset::Required("the number of bands", "3"); wrong = "17",
        /// number of bands in strict priority, which are the first ones
        "strict": Form::Number("a number of bands from 0 to 16", 0, MAX_BANDS as u64)
            => s.strict; wrong = "17",
        /// list of sizes: bytes that each of the other bands sends in a round, as far as it goes
        "quanta": Form::Own;
            unset = Unset::Words("a frame of the port's MTU for each"); wrong = "[0]",
        /// list, or text, with the band of each priority 0 to 15, as far as it goes
        "priomap": Form::Own; unset = Unset::Words("the last band for each"); wrong = "[16]",
    };
    const HAS_FILTERS: bool = true;

    fn check(spec: &EtsSpec) -> Result<(), SpecError> {
        let wrong = |parameter, reason: String| {
            let error = SpecError::parameter("ets", parameter, reason);
            Err(error)
        };
        let &EtsSpec { bands, strict, .. } = spec;
        if !(1..=MAX_BANDS).contains(&bands) {
            return wrong("bands", format!("must be 1 to {MAX_BANDS}"));
        }
        if strict > bands {
            return wrong("strict", format!("must be at most {bands}, the bands"));
        }
        if spec
            .shared()
            .iter()
            .any(|quantum| !QUANTUM.contains(quantum))
        {
            return wrong("quanta", "must be between 256 and 1048576 bytes".to_owned());
        }
        let unknown = spec.priomap.iter().find(|&&band| u16::from(band) >= bands);
        match unknown {
            Some(band) => {
                let last = bands - 1;
                let text = format!("refers to band {band}; this qdisc has bands 0 to {last}");
                wrong("priomap", text)
            }
            None => Ok(()),
        }
    }

    fn make(spec: &EtsSpec, handle: Handle, env: &QdiscEnv) -> Ets {
        let band = |_| Ets::default_child(spec, env).make(Handle::NONE, env);
        let mut ets = Ets {
            handle,
            band_limit: env.txqueuelen,
            strict: 0,
            priomap: spec.priomap,
            filters: Filters::default(),
            bands: Children::new((0..spec.bands).map(band)),
            rounds: Rounds::default(),
            instance: env.instance.clone(),
        };
        ets.set(spec);
        ets
    }

    /// Packets in bands that are no more go where their priorities say; those that do not fit are
    /// dropped and counted (the kernel drops all of it).
    fn change(&mut self, spec: &EtsSpec, cx: &mut Cx) {
        let gone = (usize::from(spec.bands)..self.bands.len()).rev();
        let mut removed = self.bands.resize(spec.bands, self.band_limit);
        gone.for_each(|band| self.rounds.leave(band, &self.bands));
        self.set(spec);
        self.sort_again(&mut removed, cx);
    }

    fn classes(spec: &EtsSpec) -> u16 {
        spec.bands
    }

    parts!(bands, filters);

    fn child_changed(&mut self, slot: usize, _: &mut Cx) {
        self.queued(slot);
    }
}

impl Ets {
    /// Takes parameters for the bands that there are.
    fn set(&mut self, spec: &EtsSpec) {
        self.strict = spec.strict.into();
        self.priomap = spec.priomap;
        for band in 0..usize::from(spec.bands) {
            if band < self.strict {
                self.rounds.leave(band, &self.bands);
            } else {
                let quantum = spec.quanta.get(band).copied().unwrap_or(1);
                self.rounds.set(band, quantum);
                self.rounds.update(band, &self.bands);
            }
        }
    }

    fn dequeue_bands(&mut self, budget: usize, out: &mut PacketList, cx: &mut Cx) -> Next {
        let mut left = budget as u64;
        let mut earliest = Time::MAX;
        for band in 0..self.strict.min(self.bands.len()) {
            if self.bands.get(band).is_none_or(Child::is_empty) {
                continue;
            }
            if left == 0 {
                return Next::Ready;
            }
            let before = self.bands.stats.packets;
            let next = self.bands.dequeue(band, left as usize, out, cx);
            left = left.saturating_sub(self.bands.stats.packets.wrapping_sub(before));
            match next {
                Next::Ready => return Next::Ready,
                Next::Idle => {}
                Next::At(time) => earliest = earliest.min(time),
            }
        }
        match self.rounds.dequeue(&mut self.bands, &mut left, out, cx) {
            Next::Ready => Next::Ready,
            Next::At(time) => Next::At(earliest.min(time)),
            Next::Idle if earliest == Time::MAX => Next::Idle,
            Next::Idle => Next::At(earliest),
        }
    }
}

impl Sorts for Ets {
    fn slot(&self, packet: &mut Packet, cx: &mut Cx) -> Result<usize, Lost> {
        let class = match named(packet, self.handle) {
            Some(class) => Some(class),
            None => self.filters.classify(packet, cx).class()?,
        };
        Ok(band(packet, class, &self.priomap, &self.bands))
    }

    fn unfiltered(&self, packet: &Packet) -> Option<usize> {
        let class = named(packet, self.handle);
        Some(band(packet, class, &self.priomap, &self.bands))
    }

    fn classes(&mut self) -> &mut Children {
        &mut self.bands
    }

    fn is_filtered(&self) -> bool {
        !self.filters.is_empty()
    }

    #[inline]
    fn queued(&mut self, slot: usize) {
        if slot >= self.strict {
            self.rounds.update(slot, &self.bands);
        }
    }
}

impl Qdisc for Ets {
    fn enqueue(&mut self, packets: &mut PacketList, cx: &mut Cx) -> Verdict {
        self.sort(packets, cx)
    }

    #[inline(never)]
    fn try_pass(&mut self, packets: &PacketList, sum: WireSum, cx: &mut Cx) -> bool {
        self.pass(packets, sum, cx)
    }

    fn dequeue(&mut self, budget: usize, out: &mut PacketList, cx: &mut Cx) -> Next {
        let next = self.dequeue_bands(budget, out, cx);
        if let Some(instance) = &self.instance {
            instance.announce(next, cx.now);
        }
        next
    }

    fn peek(&self, now: Time) -> Peek {
        let mut earliest = Time::MAX;
        for child in self.bands.iter().take(self.strict) {
            match child.peek_only(now) {
                Peek::Idle => {}
                Peek::At(time) => earliest = earliest.min(time),
                known_or_not => return known_or_not,
            }
        }
        match self.rounds.peek(&self.bands, now) {
            Peek::At(time) => Peek::At(earliest.min(time)),
            Peek::Idle if earliest < Time::MAX => Peek::At(earliest),
            other => other,
        }
    }

    fn drain(&mut self, out: &mut PacketList) {
        self.bands.drain(out);
        self.rounds.clear(&self.bands);
    }

    of_children!(bands);
}
