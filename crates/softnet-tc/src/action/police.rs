//! `police`: packets up to a rate go on, those above it another way (tc-police(8), the kernel's
//! `act_police.c`).
//!
//! One rate for all that share the action, on whatever thread: a packet draws from one atomic
//! word. Each filter on each queue draws some packets' worth in advance, at most an eighth of the
//! burst and 200 us of the rate, so that not every packet changes the word.
//!
//! Where several share it, each keeps what is left for its next packets, whenever they come: in
//! any time T they let pass together at most `rate·T + burst` and what each had in advance at its
//! start. One that has no packets keeps that much from the others once, not again and again.
//! Where only one has the action, what it has counts as if it were in the bucket as soon as time
//! has passed: its rate is exact to the byte. A filter that is removed gives back what it has.

use std::fmt;

use softnet::qdisc::{Cx, WireSize};
use softnet::time::Time;

use super::words::{Words, WordsError, number};
use super::{Action, Control, Tally, edit};
use crate::account::{LinkCost, LinkLayer};
use crate::rate::{Gate, RateSpec};
use crate::units;

/// Parameters. The way of packets above the rate is the action's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Police {
    /// Bytes per second; 0: no such rate.
    pub rate: u64,
    /// Bytes that may pass at once.
    pub burst: u64,
    /// The longest packet that conforms, with its Ethernet header wherever it is; 0: any.
    pub mtu: u32,
    /// Bytes per second above which nothing conforms, with bursts of `mtu` only; 0: none.
    pub peakrate: u64,
    /// Bytes per second on average from which on nothing conforms; 0: none. It needs an estimator,
    /// which counts what does not conform, too.
    pub avrate: u32,
    /// Packets per second; 0: no such rate.
    pub pkts_rate: u64,
    /// Packets that may pass at once.
    pub pkts_burst: u64,
    /// Cost of a packet on the link.
    pub link: LinkCost,
    /// The way of packets that conform.
    pub conform: Control,
}

/// State that all users of one `police` share.
#[derive(Debug, Default)]
pub(super) struct Gates {
    rate: Option<Gate>,
    peak: Option<Gate>,
}

/// The longest packet of a rate, for what instances draw in advance.
const UNIT: u64 = 1 << 16;

impl Gates {
    /// Takes back what an instance drew of the rate in advance.
    pub(super) fn pour_back(&self, credit: u64) {
        if let Some(rate) = &self.rate
            && credit > 0
        {
            rate.pour_back(credit);
        }
    }
}

impl Police {
    fn specs(&self) -> [Option<RateSpec>; 2] {
        let of = |rate, burst| RateSpec {
            rate,
            burst,
            unit: UNIT,
        };
        let main = match (self.rate, self.pkts_rate) {
            (0, 0) => None,
            (0, packets) => Some(of(packets, self.pkts_burst)),
            (bytes, _) => Some(of(bytes, self.burst)),
        };
        let peak = (self.peakrate != 0).then(|| {
            let longest = self.link.charge(self.mtu.into());
            of(self.peakrate, longest)
        });
        [main, peak]
    }

    /// State that instances share, from the first on; with that of before, tokens stay.
    pub(super) fn gates(&self) -> Gates {
        let [rate, peak] = self.specs().map(|spec| spec.map(Gate::new));
        Gates { rate, peak }
    }

    /// Changes the rates of gates that were made for other parameters. False: others must be made.
    pub(super) fn change(&self, gates: &Gates, before: &Police, now: Time) -> bool {
        let [rate, peak] = self.specs();
        let same_unit = (self.rate == 0) == (before.rate == 0);
        if !same_unit || rate.is_some() != gates.rate.is_some() {
            return false;
        }
        if peak.is_some() != gates.peak.is_some() {
            return false;
        }
        for (gate, spec) in [(&gates.rate, rate), (&gates.peak, peak)] {
            if let (Some(gate), Some(spec)) = (gate, spec) {
                gate.set(spec, now);
            }
        }
        true
    }

    #[inline]
    pub(super) fn run(
        &self,
        exceed: Control,
        action: &Action,
        tally: &Tally,
        size: WireSize,
        cx: &Cx,
    ) -> Control {
        let control = match self.conforms(action, tally, size, cx) {
            true => self.conform,
            false => {
                tally.add(Tally::OVERLIMITS, 1);
                exceed
            }
        };
        if control == Control::Drop {
            tally.add(Tally::DROPS, 1);
        }
        control
    }

    #[inline]
    fn conforms(&self, action: &Action, tally: &Tally, size: WireSize, cx: &Cx) -> bool {
        let header = match cx.arriving {
            true => edit::ETHERNET as u64,
            false => 0,
        };
        if self.mtu != 0 && size.each + header > self.mtu.into() {
            return false;
        }
        if self.avrate != 0 && action.state().average() >= self.avrate.into() {
            return false;
        }
        let gates = action.gates();
        let Some(rate) = &gates.rate else {
            return true;
        };
        let now = cx.now;
        let cost = self.link.cost(size);
        if let Some(peak) = &gates.peak
            && !peak.pass(cost, now)
        {
            return false;
        }
        let (need, burst) = match self.rate {
            0 => (size.packets, self.pkts_burst),
            _ => (cost, self.burst),
        };
        let held = tally.get(Tally::EXTRA);
        // One alone has what it drew at this time.
        let holds = tally.get(Tally::EXTRA_TIME) == now.nanos() || action.state().is_shared();
        let passes = match holds && held >= need {
            true => {
                tally.put(Tally::EXTRA, held - need);
                true
            }
            false => self.draw_more(rate, [need, burst], action, tally, now),
        };
        if !passes && let Some(peak) = &gates.peak {
            peak.pour_back(cost);
        }
        passes
    }

    /// Draws from the shared word what this instance has not drawn in advance.
    #[inline(never)]
    fn draw_more(
        &self,
        gate: &Gate,
        [need, burst]: [u64; 2],
        action: &Action,
        tally: &Tally,
        now: Time,
    ) -> bool {
        let credit = tally.get(Tally::EXTRA);
        // At most 200 us of the rate: others lack it.
        let rate = self.rate.max(self.pkts_rate).min(units::MAX_RATE);
        let ahead = (burst / 8).min(rate / 5000);
        // One alone gives back what it has, so that the bucket is never fuller with it.
        let (kept, back) = match action.state().is_shared() {
            true => (credit, 0),
            false => (0, credit),
        };
        let lacking = need.saturating_sub(kept);
        let Some(drawn) = gate.exchange(back, lacking, lacking + ahead, now) else {
            return false;
        };
        tally.put(Tally::EXTRA_TIME, now.nanos());
        tally.put(Tally::EXTRA, kept + drawn - need);
        true
    }

    pub(super) fn read(words: &mut Words<'_>) -> Result<(Police, Control), WordsError> {
        let rate = |word: &str| units::rate(word).ok().filter(|&rate| rate > 0);
        let size = |word: &str| units::size(word).ok();
        let mut police = Police::default();
        let mut exceed = Control::Reclassify;
        loop {
            match words.peek() {
                Some("rate") => {
                    words.next();
                    police.rate = words.value("rate", rate)?;
                }
                Some("burst") => {
                    words.next();
                    police.burst = words.value("burst", size)?;
                }
                Some("mtu") => {
                    words.next();
                    police.mtu = words.value("mtu", |w| size(w)?.try_into().ok())?;
                }
                Some("peakrate") => {
                    words.next();
                    police.peakrate = words.value("peakrate", rate)?;
                }
                Some("avrate") => {
                    words.next();
                    police.avrate = words.value("avrate", |w| rate(w)?.try_into().ok())?;
                }
                Some("pkts_rate") => {
                    words.next();
                    police.pkts_rate = words.number("pkts_rate")?;
                }
                Some("pkts_burst") => {
                    words.next();
                    police.pkts_burst = words.number("pkts_burst")?;
                }
                Some("overhead") => {
                    words.next();
                    police.link.overhead = words.number("overhead")?;
                }
                Some("mpu") => {
                    words.next();
                    police.link.mpu = words.value("mpu", |w| size(w)?.try_into().ok())?;
                }
                Some("linklayer") => {
                    words.next();
                    police.link.linklayer = words.value("linklayer", |word| match word {
                        "ethernet" => Some(LinkLayer::Ethernet),
                        "atm" | "adsl" => Some(LinkLayer::Atm),
                        _ => None,
                    })?;
                }
                Some("conform-exceed") => {
                    words.next();
                    (exceed, police.conform) = words.value("conform-exceed", verdicts)?;
                }
                _ => return Ok((police, exceed)),
            }
        }
    }

    pub(super) fn check(&self) -> Result<(), WordsError> {
        let refuse = |text: &str| Err(WordsError::new(text));
        if self.rate != 0 && self.pkts_rate != 0 {
            return refuse(
                "packet-per-second and byte-per-second rate limits not allowed in same action",
            );
        }
        if self.conform.chain().is_some() {
            return refuse("goto chain not allowed on fallback");
        }
        if self.peakrate != 0 && (self.rate == 0 || self.mtu == 0) {
            return refuse("police with a peakrate needs a rate and an mtu");
        }
        match (self.rate, self.pkts_rate, self.mtu, self.avrate) {
            (0, 0, 0, 0) => refuse("police needs a rate, a pkts_rate, an avrate or an mtu"),
            _ => Ok(()),
        }
    }

    pub(super) fn write(&self, exceed: Control, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("police")?;
        let sizes = [
            ("burst", self.burst),
            ("mtu", self.mtu.into()),
            ("pkts_rate", self.pkts_rate),
            ("pkts_burst", self.pkts_burst),
            ("overhead", self.link.overhead.into()),
            ("mpu", self.link.mpu.into()),
        ];
        let rates = [
            ("rate", self.rate),
            ("peakrate", self.peakrate),
            ("avrate", self.avrate.into()),
        ];
        for (name, rate) in rates.into_iter().filter(|(_, rate)| *rate != 0) {
            write!(f, " {name} {rate}bps")?;
        }
        for (name, size) in sizes.into_iter().filter(|(_, size)| *size != 0) {
            write!(f, " {name} {size}")?;
        }
        if self.link.linklayer == LinkLayer::Atm {
            f.write_str(" linklayer atm")?;
        }
        write!(f, " conform-exceed {}/{}", Way(exceed), Way(self.conform))
    }
}

/// A way on as one word.
struct Way(Control);

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Control::Goto(chain) => write!(f, "goto:{chain}"),
            Control::Jump(n) => write!(f, "jump:{n}"),
            other => write!(f, "{other}"),
        }
    }
}

/// `exceed` or `exceed/conform`: tc has the way of packets above the rate first.
fn verdicts(word: &str) -> Option<(Control, Control)> {
    let way = |word: &str| match word.split_once(':') {
        Some(("goto", chain)) => number(chain).map(Control::Goto),
        Some(("jump", n)) => number(n).map(Control::Jump),
        _ => Control::from_word(word),
    };
    match word.split_once('/') {
        Some((exceed, conform)) => Some((way(exceed)?, way(conform)?)),
        None => Some((way(word)?, Control::Pass)),
    }
}
