//! Parameters of `fq`.

use std::time::Duration;

use softnet::qdisc::PRIO_TO_BAND;

use crate::qdisc::drr::QUANTUM;
use crate::qdisc::kind::QdiscSpec;
use crate::qdisc::option::{
    Absent, Attribute, Form, QdiscOption, Unset, Wire, options, parameters,
};
use crate::qdisc::prio::PRIOMAP;
use crate::qdisc::spec::SpecError;
use crate::units::MAX_RATE;

/// Priority bands.
pub(super) const BANDS: usize = 3;
/// The least weight of a band, so that each visit brings it closer to sending (BUG-FQ-4).
const MIN_WEIGHT: u32 = 16_384;

parameters! {
    /// Parameters of `fq`, as in tc-fq(8). Defaults are the kernel's.
    pub struct FqSpec {
        /// Frames that may wait in each band.
        pub limit: u32 = 10_000,
        /// Frames that may wait in each flow.
        pub flow_limit: u32 = 100,
        /// Bytes that a flow sends in a round, at least 256; `None`: two packets of the device's
        /// MTU.
        pub quantum: Option<u32> = None,
        /// Bytes that a new flow may send at first; `None`: ten packets of the device's MTU.
        pub initial_quantum: Option<u32> = None,
        /// A packet's flow is these bits of its flow hash. With all of them set, the noted hash is
        /// the flow's number, and no two flows share a queue.
        pub orphan_mask: u32 = 1023,
        /// Buckets that the kernel's table of flows would have, as a power of 2. Softnet's has as
        /// many as there are flows; this is only shown.
        pub buckets_log: u8 = 10,
        /// Time without packets after which a flow gets a new quantum.
        pub refill_delay: Duration = Duration::from_millis(40),
        /// True if flows are held to `maxrate`.
        pub pacing: bool = true,
        /// The most bytes per second of each flow, at most 1 Tbyte/s. None is held back for more
        /// than a second, so that one is faster whose packets, or quantum, take longer at this
        /// rate.
        pub maxrate: Option<u64> = None,
        /// At this rate and below, in bytes per second, every packet is paced by itself; above, a
        /// quantum at a time.
        pub low_rate_threshold: u64 = 550_000 / 8,
        /// Time by which packets may leave later than due, so that several leave at once.
        pub timer_slack: Duration = Duration::from_micros(10),
        /// Time by which a packet's departure time may be in the future.
        pub horizon: Duration = Duration::from_secs(10),
        /// Time by which packets go earlier than due to a driver that keeps departure times itself;
        /// 0, as none does.
        pub offload_horizon: Duration = Duration::ZERO,
        /// Drops a packet whose time is beyond the horizon; else it leaves at the horizon.
        pub horizon_drop: bool = true,
        /// Marks every ECN-capable packet that leaves so much later than it was due.
        pub ce_threshold: Option<Duration> = None,
        /// Band of each of the 16 priorities (`TC_PRIO_*`).
        pub priomap: [u8; 16] = PRIO_TO_BAND,
        /// Bytes that each band sends in its turn, at least 16,384.
        pub weights: [u32; BANDS] = [589_824, 196_608, 65_536],
    }
}

/// The options of `fq`.
pub(super) const OPTIONS: &[QdiscOption] = options! { QdiscSpec::Fq(s) =>
    /// packets in each band; a change to less drops what is over it
    "limit": Form::Size => s.limit; attr = Some(Attribute::new(1, Wire::U32)),
    /// packets in each flow
    "flow_limit": Form::Size => s.flow_limit; attr = Some(Attribute::new(2, Wire::U32)),
    /// a size; bytes that a flow sends in a round, at most 1048576. Less than 256 counts as 256
    "quantum": Form::Size => s.quantum;
        unset = Unset::Words("two frames of the port's MTU"); wrong = "\"2m\"";
        attr = Some(Attribute::new(3, Wire::U32).within(256, 1 << 20).absent(Absent::Frames(2))),
    /// a size; bytes that a new flow may send at first
    "initial_quantum": Form::Size => s.initial_quantum;
        unset = Unset::Words("ten frames of the port's MTU"); wrong = "\"3g\"";
        attr = Some(Attribute::new(4, Wire::U32).absent(Absent::Frames(10))),
    /// hold flows to `maxrate`
    "pacing": Form::Flag => s.pacing; attr = Some(Attribute::new(5, Wire::U32)),
    /// a rate; the most of each flow. None waits for more than 1 s: a flow is faster if its packet
    /// or quantum takes longer than that
    "maxrate": Form::Rate => s.maxrate; unset = Unset::Words("none");
        wrong = "0"; attr = Some(Attribute::new(7, Wire::U32).absent(Absent::Highest)),
    /// a time; how long a flow must have had no packets to get a new quantum
    "refill_delay": Form::Time => s.refill_delay; attr = Some(Attribute::new(9, Wire::Micros)),
    /// bits of the flow hash that tell flows apart
    "orphan_mask": Form::Mask("a mask of 32 bits, like \"0x3ff\"")
        => s.orphan_mask; attr = Some(Attribute::new(10, Wire::U32)),
    /// a rate; at it and below, `maxrate` holds for each packet and not for a quantum, as it does
    /// in any case for packets with a departure time
    "low_rate_threshold": Form::Rate => s.low_rate_threshold;
        attr = Some(Attribute::new(11, Wire::U32)),
    /// a time; ECN-capable packets that leave so much later than due are marked; one whose
    /// departure time had passed when it came was due then
    "ce_threshold": Form::Time => s.ce_threshold;
        unset = Unset::Words("none");
        attr = Some(Attribute::new(12, Wire::Micros).absent(Absent::Highest)),
    /// buckets that the kernel's table of flows would have, a power of 2; only shown here
    "buckets": Form::PowerOf2("a power of 2 from 2 to 262144", 2, 1 << 18)
        => s.buckets_log; wrong = "3"; attr = Some(Attribute::new(8, Wire::U32)),
    /// a time; how much later than due packets may leave
    "timer_slack": Form::Time => s.timer_slack; attr = Some(Attribute::new(13, Wire::U32)),
    /// a time; how far in the future a packet's departure time may be
    "horizon": Form::Time => s.horizon; attr = Some(Attribute::new(14, Wire::Micros)),
    /// a time; how much earlier than due packets go to a driver that keeps departure times itself.
    /// None does, so that it must be 0
    "offload_horizon": Form::Time => s.offload_horizon; wrong = "\"1ms\"";
        attr = Some(Attribute::new(18, Wire::Micros)),
    /// drop packets beyond the horizon; else they leave at the horizon
    "horizon_drop": Form::Flag => s.horizon_drop; attr = Some(Attribute::new(15, Wire::U8)),
    /// as for `prio`, of three bands
    "priomap": Form::List(PRIOMAP) => s.priomap; wrong = "[1, 2]";
        attr = Some(Attribute::new(16, Wire::Own(20))),
    /// list, or text, with the bytes that each band sends in its turn, at least 16384
    "weights": Form::List(WEIGHTS) => s.weights; wrong = "[1, 2, 3]";
        attr = Some(Attribute::new(17, Wire::Own(12))),
};
const WEIGHTS: &str =
    "3 numbers of bytes, one for each band; write it like \"589824 196608 65536\"";

impl FqSpec {
    /// True if flows have a rate of their own.
    #[inline]
    pub(super) fn is_paced(&self) -> bool {
        self.maxrate.is_some() && self.pacing
    }

    pub(super) fn check(&self) -> Result<(), SpecError> {
        let wrong = |parameter, reason| Err(SpecError::parameter("fq", parameter, reason));
        let too_large = |bytes: Option<u32>, most| bytes.is_some_and(|bytes| bytes > most);
        if too_large(self.quantum, *QUANTUM.end()) {
            return wrong("quantum", format!("must be at most {}", QUANTUM.end()));
        }
        if too_large(self.initial_quantum, i32::MAX as u32) {
            return wrong("initial_quantum", format!("must be at most {}", i32::MAX));
        }
        if !self.offload_horizon.is_zero() {
            return wrong(
                "offload_horizon",
                "must be 0: no driver keeps times".to_owned(),
            );
        }
        if self
            .maxrate
            .is_some_and(|rate| !(1..=MAX_RATE).contains(&rate))
        {
            let text = "must be between 1 byte/s and 1 Tbyte/s";
            return wrong("maxrate", text.to_owned());
        }
        if self.low_rate_threshold > MAX_RATE {
            return wrong("low_rate_threshold", "must be at most 1 Tbyte/s".to_owned());
        }
        if let Some(band) = self
            .priomap
            .iter()
            .find(|&&band| usize::from(band) >= BANDS)
        {
            let text = format!("refers to band {band}; fq has bands 0 to {}", BANDS - 1);
            return wrong("priomap", text);
        }
        if self
            .weights
            .iter()
            .any(|weight| !(MIN_WEIGHT..1 << 30).contains(weight))
        {
            return wrong(
                "weights",
                format!("must be at least {MIN_WEIGHT}, and below 2^30"),
            );
        }
        Ok(())
    }
}
