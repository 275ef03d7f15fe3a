//! `multiq`: a band for each transmit queue of the device, each a class with a qdisc of its own,
//! served in turn packet by packet (the kernel's `sch_multiq`).
//!
//! A packet's band is the transmit queue that it takes: by its recorded queue, or its flow's hash.
//! Filters lead nowhere; their actions alone count. Unlike the kernel's, a band is served whether
//! or not its queue's ring has room: what a ring refuses waits in front of the device. Its backlog
//! is counted, which the kernel's shows as 0 bytes.

use softnet::mem::{Packet, PacketList};
use softnet::qdisc::{Cx, Next, Peek, Qdisc, Verdict, WireSum};
use softnet::time::Time;
use softnet::tx::select_queue;

use super::kind::{Kind, of_children, parts};
use super::sorts::Sorts;
use super::spec::QdiscEnv;
use crate::account::{Child, Children};
use crate::filter::{Filters, Lost};
use crate::handle::Handle;
use crate::rate::Instance;

/// `multiq`: a band for each transmit queue, served in turn.
#[derive(Debug)]
pub struct Multiq {
    /// Frames in a band's own queue: the device's `txqueuelen`.
    band_limit: u32,
    filters: Filters,
    bands: Children,
    /// Band that was served last.
    current: usize,
    /// There are others, and the transmit queue of this one is its number.
    instance: Option<Instance>,
}

impl Kind for Multiq {
    type Spec = u16;
    const NAME: &'static str = "multiq";
    const HAS_FILTERS: bool = true;

    fn make(&bands: &u16, _: Handle, env: &QdiscEnv) -> Multiq {
        let band = |_| Multiq::default_child(&bands, env).make(Handle::NONE, env);
        Multiq {
            band_limit: env.txqueuelen,
            filters: Filters::default(),
            bands: Children::new((0..bands.max(1)).map(band)),
            current: 0,
            instance: env.instance.clone(),
        }
    }

    /// Packets in bands that are no more go to the others (the kernel drops them).
    fn change(&mut self, &bands: &u16, cx: &mut Cx) {
        let mut removed = self.bands.resize(bands.max(1), self.band_limit);
        self.sort_again(&mut removed, cx);
    }

    fn classes(&bands: &u16) -> u16 {
        bands.max(1)
    }

    parts!(bands, filters);
}

impl Multiq {
    fn band(&self, packet: &Packet) -> usize {
        let bands = self.bands.len();
        let queue = match &self.instance {
            Some(instance) => instance.index,
            None => select_queue(packet, bands),
        };
        if queue < bands { queue } else { 0 }
    }

    fn serve(&mut self, budget: usize, out: &mut PacketList, cx: &mut Cx) -> Next {
        let mut left = budget as u64;
        let bands = self.bands.len();
        let mut earliest = Time::MAX;
        // Bands in a row of which nothing left.
        let mut idle = 0;
        while idle < bands && self.bands.stats.qlen > 0 {
            if left == 0 {
                return Next::Ready;
            }
            let band = (self.current + 1) % bands;
            self.current = band;
            idle += 1;
            if self.bands.get(band).is_none_or(Child::is_empty) {
                continue;
            }
            if idle == 1 {
                earliest = Time::MAX;
            }
            let before = self.bands.stats.packets;
            let next = self.bands.dequeue(band, 1, out, cx);
            let sent = self.bands.stats.packets.wrapping_sub(before);
            if sent > 0 {
                left = left.saturating_sub(sent);
                (idle, earliest) = (0, Time::MAX);
            } else {
                earliest = earliest.min(match next {
                    Next::At(time) => time,
                    // Says that more is ready, and returns nothing: again, but not at once.
                    Next::Ready => cx.now.plus_nanos(1),
                    Next::Idle => Time::MAX,
                });
            }
        }
        match earliest {
            Time::MAX => Next::Idle,
            time => Next::At(time),
        }
    }
}

impl Sorts for Multiq {
    fn slot(&self, packet: &mut Packet, cx: &mut Cx) -> Result<usize, Lost> {
        self.filters.classify(packet, cx).class()?;
        Ok(self.band(packet))
    }

    fn unfiltered(&self, packet: &Packet) -> Option<usize> {
        Some(self.band(packet))
    }

    fn classes(&mut self) -> &mut Children {
        &mut self.bands
    }

    fn is_filtered(&self) -> bool {
        !self.filters.is_empty()
    }

    fn queued(&mut self, _: usize) {}
}

impl Qdisc for Multiq {
    fn enqueue(&mut self, packets: &mut PacketList, cx: &mut Cx) -> Verdict {
        self.sort(packets, cx)
    }

    #[inline(never)]
    fn try_pass(&mut self, packets: &PacketList, sum: WireSum, cx: &mut Cx) -> bool {
        let passes = self.pass(packets, sum, cx);
        if passes && let Some(first) = packets.front() {
            self.current = self.band(first);
        }
        passes
    }

    fn dequeue(&mut self, budget: usize, out: &mut PacketList, cx: &mut Cx) -> Next {
        let next = self.serve(budget, out, cx);
        if let Some(instance) = &self.instance {
            instance.announce(next, cx.now);
        }
        next
    }

    fn peek(&self, now: Time) -> Peek {
        let bands = self.bands.len();
        let mut earliest = Time::MAX;
        for ahead in 1..=bands {
            let child = self.bands.get((self.current + ahead) % bands);
            match child.map_or(Peek::Idle, |child| child.peek_only(now)) {
                Peek::Idle => {}
                Peek::At(time) => earliest = earliest.min(time),
                known_or_not => return known_or_not,
            }
        }
        match earliest {
            Time::MAX => Peek::Idle,
            time => Peek::At(time),
        }
    }

    fn drain(&mut self, out: &mut PacketList) {
        self.bands.drain(out);
    }

    of_children!(bands);
}
