//! Parameters of `dualpi2`.

use std::time::Duration;

use crate::qdisc::kind::QdiscSpec;
use crate::qdisc::option::{Attribute, Form, QdiscOption, Unset, Wire, options, parameters};
use crate::qdisc::spec::SpecError;

/// The highest gain (`ALPHA_BETA_MAX`).
pub(super) const MAX_GAIN: u32 = i32::MAX as u32;

parameters! {
    /// Parameters of `dualpi2`. Defaults are the kernel's.
    pub struct DualPi2Spec {
        /// Frames that may wait, at least 1.
        pub limit: u32 = 10_000,
        /// Bytes of buffers that may wait; `None`: twice `limit` frames of the device's MTU.
        pub memory_limit: Option<u32> = None,
        /// The delay that is aimed at.
        pub target: Duration = Duration::from_millis(15),
        /// Time between two updates of the probability, at least 1 µs.
        pub tupdate: Duration = Duration::from_millis(16),
        /// Gain for the distance from the target, in 1/256 Hz, at least 1.
        pub alpha: u32 = 41,
        /// Gain for the change of the delay, in 1/256 Hz, at least 1.
        pub beta: u32 = 819,
        /// Packets of the L queue that waited longer are marked, where
        /// [`step_packets`](DualPi2Spec::step_packets) does not say otherwise.
        pub step_thresh: Duration = Duration::from_millis(1),
        /// Packets of the L queue are marked while so many are behind them.
        pub step_packets: Option<u32> = None,
        /// Packets that came while the L queue had fewer are not marked for that.
        pub min_qlen_step: u32 = 0,
        /// The L queue's probability, over the square root of the C queue's; at least 1.
        pub coupling_factor: u8 = 2,
        /// Drops packets of the L queue, too, when the coupled probability is above 1.
        pub drop_on_overload: bool = true,
        /// Drops packets as they come, not as they leave.
        pub drop_enqueue: bool = false,
        /// Percent of the link that the C queue gets at least, 0 to 100.
        pub classic_protection: u8 = 10,
        /// ECN codepoints of the L queue: those that have one of these two bits, 1 to 3.
        pub ecn_mask: u8 = 1,
        /// Segments large frames as they come.
        pub split_gso: bool = true,
    }
}

const GAIN: &str = "a number from 1 to 2147483647";

/// The options of `dualpi2`.
pub(super) const OPTIONS: &[QdiscOption] = options! { QdiscSpec::DualPi2(s) =>
    /// packets, at least 1
    "limit": Form::Size => s.limit; wrong = "0"; attr = Some(Attribute::new(1, Wire::U32)),
    /// a size; bytes of buffers, at least 1
    "memlimit": Form::Size => s.memory_limit; wrong = "0";
        unset = Unset::Words("twice `limit` frames of the port's MTU"),
    /// a time; the delay that is aimed at
    "target": Form::Time => s.target; attr = Some(Attribute::new(3, Wire::Micros)),
    /// a time between two updates of the probability, at least 1us
    "tupdate": Form::Time => s.tupdate; wrong = "0";
        attr = Some(Attribute::new(4, Wire::Micros)),
    /// gain for the distance from the target, in 1/256 Hz
    "alpha": Form::Number(GAIN, 1, MAX_GAIN as u64) => s.alpha; wrong = "0",
    /// gain for the change of the delay, in 1/256 Hz
    "beta": Form::Number(GAIN, 1, MAX_GAIN as u64) => s.beta; wrong = "0",
    /// a time; packets of the low-latency queue that waited longer are marked
    "step_thresh": Form::Time => s.step_thresh,
    /// in place of `step_thresh`: packets behind one that is marked
    "step_packets": Form::Size => s.step_packets; unset = Unset::Words("none"); wrong = "-1",
    /// packets of the low-latency queue from which on `step_thresh` holds for what comes
    "min_qlen_step": Form::Size => s.min_qlen_step; wrong = "-1";
        attr = Some(Attribute::new(9, Wire::U32)),
    /// the low-latency queue's probability, over the square root of the other's
    "coupling_factor": Form::Own; unset = Unset::Words("`2`"); wrong = "0",
    /// drop packets of the low-latency queue, too, when marking all of them is not enough
    "drop_on_overload": Form::Flag => s.drop_on_overload;
        attr = Some(Attribute::new(11, Wire::U8)),
    /// drop packets as they come, not as they leave
    "drop_enqueue": Form::Flag => s.drop_enqueue; attr = Some(Attribute::new(12, Wire::U8)),
    /// percent of the link that the classic queue gets at least, 0 to 100
    "classic_protection": Form::Own; unset = Unset::Words("`10`"); wrong = "101",
    /// low-latency are the packets whose ECN codepoint has one of these bits: 1 (ECT(1) and CE), 2
    /// or 3
    "ecn_mask": Form::Own; unset = Unset::Words("`1`"); wrong = "0",
    /// segment large frames as they come
    "split_gso": Form::Flag => s.split_gso; attr = Some(Attribute::new(15, Wire::U8)),
};

impl DualPi2Spec {
    /// Bytes of buffers that may wait, where a frame of the device's MTU has so many.
    pub fn memory_limit(&self, frame: u32) -> u32 {
        let twice = u64::from(self.limit) * 2 * u64::from(frame);
        let twice = u32::try_from(twice).unwrap_or(u32::MAX);
        self.memory_limit.unwrap_or(twice)
    }

    pub(super) fn check(&self) -> Result<(), SpecError> {
        let wrong = |parameter, reason: &'static str| {
            Err(SpecError::parameter("dualpi2", parameter, reason))
        };
        if self.limit == 0 {
            return wrong("limit", "must be at least 1");
        }
        if self.memory_limit == Some(0) {
            return wrong("memlimit", "must be at least 1");
        }
        if self.tupdate < Duration::from_micros(1) {
            return wrong("tupdate", "must be at least 1 us");
        }
        for (parameter, gain) in [("alpha", self.alpha), ("beta", self.beta)] {
            if !(1..=MAX_GAIN).contains(&gain) {
                return wrong(parameter, "must be 1 to 2147483647");
            }
        }
        if self.coupling_factor == 0 {
            return wrong("coupling_factor", "must be 1 to 255");
        }
        if self.classic_protection > 100 {
            return wrong("classic_protection", "must be at most 100");
        }
        if !(1..=3).contains(&self.ecn_mask) {
            return wrong("ecn_mask", "must be 1 to 3");
        }
        Ok(())
    }
}
