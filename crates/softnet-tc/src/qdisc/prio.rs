//! `prio`: bands in strict priority, each a class with a qdisc of its own (tc-prio(8)).
//!
//! A packet's band is that of the class which its priority names (`major:minor`, major that of
//! this qdisc), else of the class that the first matching filter names, else the priority map's
//! for the low four bits of its priority. A band that does not exist counts as that of priority 0.
//! While a band holds its packets back (a `tbf`), the bands after it are served.

use softnet::mem::{Packet, PacketList};
use softnet::qdisc::{Cx, Next, PRIO_TO_BAND, Peek, Qdisc, Verdict, WireSum};
use softnet::time::Time;

use super::kind::{Kind, QdiscSpec, of_children, parts};
use super::option::{Form, QdiscOption, options, parameters};
use super::sorts::{Sorts, band, named};
use super::spec::{QdiscEnv, SpecError};
use crate::account::{Child, Children};
use crate::filter::{Filters, Lost};
use crate::handle::Handle;
use crate::rate::Instance;

/// The most bands (`TCQ_PRIO_BANDS`).
pub const MAX_BANDS: u16 = 16;

/// The form of a map of priorities, for messages.
pub(crate) const PRIOMAP: &str = "16 bands, one for each priority; write it like \"1 2 2 2 1 2 0 0 \
                                  1 1 1 1 1 1 1 1\"";

parameters! {
    /// Parameters of `prio`. Defaults are the three bands of `pfifo_fast`.
    pub struct PrioSpec {
        /// Bands, 2 to 16.
        pub bands: u16 = 3,
        /// Band of each of the 16 priorities (`TC_PRIO_*`).
        pub priomap: [u8; 16] = PRIO_TO_BAND,
    }
}

/// `prio`: bands in strict priority, each a class with a qdisc of its own (tc-prio(8)).
#[derive(Debug)]
pub struct Prio {
    handle: Handle,
    /// Frames in a band's own queue: the device's `txqueuelen`.
    band_limit: u32,
    priomap: [u8; 16],
    filters: Filters,
    bands: Children,
    /// There are others.
    instance: Option<Instance>,
}

impl Kind for Prio {
    type Spec = PrioSpec;
    const NAME: &'static str = "prio";
    const OPTIONS: &'static [QdiscOption] = options! { QdiscSpec::Prio(s) =>
        /// number of bands, 2 to 16
        "bands": Form::Number("a number of bands from 2 to 16", 2, MAX_BANDS as u64)
            => s.bands; wrong = "17",
        /// list, or text, with the band of each priority 0 to 15
        "priomap": Form::List(PRIOMAP) => s.priomap; wrong = "[1, 2]",
    };
    const HAS_FILTERS: bool = true;

    fn check(&PrioSpec { bands, priomap }: &PrioSpec) -> Result<(), SpecError> {
        let wrong = |parameter, reason| Err(SpecError::parameter("prio", parameter, reason));
        if !(2..=MAX_BANDS).contains(&bands) {
            return wrong("bands", format!("must be 2 to {MAX_BANDS}"));
        }
        match priomap.iter().find(|&&band| u16::from(band) >= bands) {
            Some(band) => {
                let last = bands - 1;
                let text = format!("refers to band {band}; this qdisc has bands 0 to {last}");
                wrong("priomap", text)
            }
            None => Ok(()),
        }
    }

    fn make(spec: &PrioSpec, handle: Handle, env: &QdiscEnv) -> Prio {
        let band = |_| Prio::default_child(spec, env).make(Handle::NONE, env);
        Prio {
            handle,
            band_limit: env.txqueuelen,
            priomap: spec.priomap,
            filters: Filters::default(),
            bands: Children::new((0..spec.bands).map(band)),
            instance: env.instance.clone(),
        }
    }

    /// Packets in bands that are no more go where their priorities say; those that do not fit are
    /// dropped and counted (the kernel drops all of it).
    fn change(&mut self, spec: &PrioSpec, cx: &mut Cx) {
        self.priomap = spec.priomap;
        // Higher bands leave first, and so stay in front.
        let mut removed = self.bands.resize(spec.bands, self.band_limit);
        self.sort_again(&mut removed, cx);
    }

    fn classes(spec: &PrioSpec) -> u16 {
        spec.bands
    }

    parts!(bands, filters);
}

impl Sorts for Prio {
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

    fn queued(&mut self, _: usize) {}
}

impl Prio {
    #[inline]
    fn dequeue_bands(&mut self, budget: usize, out: &mut PacketList, cx: &mut Cx) -> Next {
        let end = self.bands.stats.packets + budget as u64;
        let mut earliest: Option<Time> = None;
        for band in 0..self.bands.len() {
            if self.bands.get(band).is_none_or(Child::is_empty) {
                continue;
            }
            let left = end.saturating_sub(self.bands.stats.packets);
            if left == 0 {
                return Next::Ready;
            }
            match self.bands.dequeue(band, left as usize, out, cx) {
                Next::Ready => return Next::Ready,
                Next::Idle => {}
                Next::At(time) => earliest = Some(earliest.map_or(time, |e| e.min(time))),
            }
        }
        earliest.map_or(Next::Idle, Next::At)
    }
}

impl Qdisc for Prio {
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
        let mut earliest: Option<Time> = None;
        for child in self.bands.iter() {
            match child.peek_only(now) {
                Peek::Idle => {}
                Peek::At(time) => earliest = Some(earliest.map_or(time, |e| e.min(time))),
                known_or_not => return known_or_not,
            }
        }
        earliest.map_or(Peek::Idle, Peek::At)
    }

    fn drain(&mut self, out: &mut PacketList) {
        self.bands.drain(out);
    }

    of_children!(bands);
}
