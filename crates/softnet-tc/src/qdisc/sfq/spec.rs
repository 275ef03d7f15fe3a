//! Parameters of `sfq`.

use std::time::Duration;

use crate::qdisc::drr::QUANTUM;
use crate::qdisc::kind::QdiscSpec;
use crate::qdisc::option::{Form, QdiscOption, Unset, options, parameters};
use crate::qdisc::red::RedCurve;
use crate::qdisc::spec::SpecError;

/// The most packets of a flow (`SFQ_MAX_DEPTH`).
pub(super) const MAX_DEPTH: u32 = 127;
/// The most flows at once (`SFQ_MAX_FLOWS`).
const MAX_FLOWS: u32 = 0x1_0000 - MAX_DEPTH - 1;
/// The longest period of new hashes, in seconds: that of a kernel whose clock ticks 1,000 times a
/// second.
const MAX_PERTURB: u64 = (i32::MAX / 1000) as u64;

parameters! {
    /// Parameters of `sfq`. Defaults are the kernel's.
    pub struct SfqSpec {
        /// Frames that may wait; at most `depth * flows`. `None`: 127.
        pub limit: Option<u32> = None,
        /// Bytes that a flow sends in a round; `None`: a packet of the device's MTU.
        pub quantum: Option<u32> = None,
        /// Time after which flows are hashed anew, in whole seconds; 0: never.
        pub perturb: Duration = Duration::ZERO,
        /// Flows that may have packets at once; at most `divisor` and `limit`.
        pub flows: u32 = 128,
        /// Queues that flows are hashed to: a power of 2, at most 65,536.
        pub divisor: u32 = 1024,
        /// Frames that may wait in each flow, at most 127.
        pub depth: u32 = MAX_DEPTH,
        /// Drops the oldest packet of a flow, not the newest.
        pub headdrop: bool = false,
        /// RED in each flow.
        pub red: Option<RedCurve> = None,
        /// Marks ECN-capable packets where RED drops others.
        pub ecn: bool = false,
        /// Drops at `max` even what could be marked.
        pub harddrop: bool = false,
        /// Flags without a meaning, which are only shown.
        pub user_flags: u8 = 0,
    }
}

/// The options of `sfq`.
pub(super) const OPTIONS: &[QdiscOption] = options! { QdiscSpec::Sfq(s) =>
    /// packets, at most `depth` times `flows`
    "limit": Form::Size => s.limit; unset = Unset::Words("127 packets"); wrong = "1",
    /// seconds after which flows are hashed anew, as a time
    "perturb": Form::Time => s.perturb; wrong = "\"1ms\"",
    /// a size; bytes that a flow sends in a round. Less than 256 counts as 256
    "quantum": Form::Size => s.quantum;
        unset = Unset::Words("a frame of the port's MTU"); wrong = "\"2g\"",
    /// flows that may have packets at once, 1 to 65408
    "flows": Form::Size => s.flows; wrong = "0",
    /// queues that flows are hashed to, a power of 2
    "divisor": Form::PowerOf2("a power of 2 from 1 to 65536", 1, 1 << 16) => s.divisor;
        wrong = "3",
    /// packets in each flow, 1 to 127
    "depth": Form::Size => s.depth; wrong = "0",
    /// drop the oldest packet of a flow, not the newest
    "headdrop": Form::Flag => s.headdrop,
    /// a size; bytes of a flow's queue, from which `min` and `max` follow: RED in each flow
    "redflowlimit": Form::Own; unset = Unset::Words("none: no RED"); wrong = "\"x\"",
    /// a size; below this average length of a flow no packet is marked or dropped
    "min": Form::Own; unset = Unset::Words("a third of `max`"); wrong = "\"x\"",
    /// a size; from this average length on every packet is
    "max": Form::Own; unset = Unset::Words("a quarter of `redflowlimit`"); wrong = "\"x\"",
    /// bytes of the average packet, for `burst`
    "avpkt": Form::Own; unset = Unset::Words("1000 bytes"); wrong = "0",
    /// packets that may come at once while the average is at `min`
    "burst": Form::Own; unset = Unset::Words("(2 * `min` + `max`) / (3 * `avpkt`)"); wrong = "0",
    /// probability at `max`, like `"0.02"`
    "probability": Form::Own; unset = Unset::Words("0.02"); wrong = "\"2\"",
    /// mark ECN-capable packets where RED drops others
    "ecn": Form::Flag => s.ecn,
    /// with `ecn`: drop at `max` all the same
    "harddrop": Form::Flag => s.harddrop,
    /// weight of a packet in the average, as minus a power of 2; instead of `burst`
    "wlog": Form::Own; unset = Unset::Words("from `burst`"); wrong = "32",
    /// power of 2 of the probability for each byte; what `tc` gave
    "plog": Form::Own; unset = Unset::Words("from `probability`"); wrong = "256",
};

impl SfqSpec {
    /// The parameters in effect, which are shown: each as far as the others allow
    /// (`sfq_change`).
    pub fn effective(&self) -> SfqSpec {
        let depth = self.depth.min(MAX_DEPTH);
        let flows = self.flows.min(MAX_FLOWS).min(self.divisor);
        let given = self
            .limit
            .map(|limit| limit.min(depth.saturating_mul(flows)));
        SfqSpec {
            limit: Some(given.unwrap_or(MAX_DEPTH)),
            // As in the kernel; with less a packet would cost too many rounds.
            quantum: self.quantum.map(|quantum| quantum.max(*QUANTUM.start())),
            depth,
            flows: given.map_or(flows, |limit| flows.min(limit)),
            ..self.clone()
        }
    }

    /// Frames that may wait.
    pub(super) fn packets(&self) -> u32 {
        self.effective().limit.unwrap_or(MAX_DEPTH)
    }

    pub(super) fn check(&self) -> Result<(), SpecError> {
        let wrong =
            |parameter, reason: &'static str| Err(SpecError::parameter("sfq", parameter, reason));
        if !self.divisor.is_power_of_two() || self.divisor > 1 << 16 {
            return wrong("divisor", "must be a power of 2, at most 65536");
        }
        if self.flows == 0 {
            return wrong("flows", "must be at least 1");
        }
        if self.depth == 0 {
            return wrong("depth", "must be at least 1");
        }
        if self
            .quantum
            .is_some_and(|quantum| quantum > i32::MAX as u32)
        {
            return wrong("quantum", "must be below 2^31");
        }
        if self.perturb.subsec_nanos() != 0 || self.perturb.as_secs() > MAX_PERTURB {
            return wrong("perturb", "must be whole seconds, at most 2147483");
        }
        if let Some((parameter, reason)) = self.red.as_ref().and_then(RedCurve::problem) {
            return wrong(parameter, reason);
        }
        // A queue of one packet cannot be one of a flow whose oldest is dropped for a new one.
        if self.packets() < 2 {
            return wrong(
                "limit",
                "must come to at least 2 packets, also as depth times flows",
            );
        }
        Ok(())
    }
}
