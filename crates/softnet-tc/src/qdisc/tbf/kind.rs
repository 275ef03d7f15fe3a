//! Parameters and options of `tbf`.

use std::time::Duration;

use softnet::qdisc::Cx;

use super::Tbf;
use super::shaper::Shaper;
use super::shared::SharedBuckets;
use crate::account::{Children, LinkCost};
use crate::handle::Handle;
use crate::qdisc::kind::{AnyQdisc, Kind, QdiscSpec, parts};
use crate::qdisc::option::{Form, QdiscOption, Unset, options};
use crate::qdisc::spec::{QdiscEnv, SpecError};
use crate::units::{ByteSize, MAX_RATE, Rate};

/// Bytes that may wait at most.
const MAX_LIMIT: u64 = 1 << 50;

/// Parameters of a token bucket, in the units of the kernel's interface.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TbfSpec {
    /// Bytes per second.
    pub rate: u64,
    /// Bucket size in bytes, at most 4 GiB.
    pub burst: u64,
    /// Bytes that may wait, at most 1 PiB. Not used if the class is given a qdisc of its own.
    pub limit: u64,
    /// Peak rate in bytes per second.
    pub peakrate: Option<u64>,
    /// Size of the peak bucket in bytes; used with `peakrate` only.
    pub mtu: u32,
    /// Cost of a packet beyond its length. Both buckets hold what one packet of their size
    /// costs.
    pub link: LinkCost,
}

impl TbfSpec {
    /// A rate with bursts of `burst`, in which a packet waits for at most `latency`: as `tbf rate
    /// burst latency` of tc.
    pub fn with_latency(rate: Rate, burst: ByteSize, latency: Duration) -> TbfSpec {
        let in_time = rate.bytes() as f64 * latency.as_secs_f64();
        TbfSpec {
            rate: rate.bytes(),
            burst: burst.bytes(),
            // As tc computes it.
            limit: ((in_time + burst.bytes() as f64) as u64).min(MAX_LIMIT),
            ..TbfSpec::default()
        }
    }
}

impl Kind for Tbf {
    type Spec = TbfSpec;
    const NAME: &'static str = "tbf";
    const OPTIONS: &'static [QdiscOption] = options! { QdiscSpec::Tbf(s) =>
        /// a rate
        "rate": Form::Rate => s.rate;
            unset = Unset::Required("the rate to shape to, like \"100mbit\"", "\"1mbit\""),
        /// a size; the bucket. At least a frame
        "burst": Form::Size => s.burst;
            unset = Unset::Required("the bucket's size, like \"32k\"", "\"32k\""); wrong = "\"x\"",
        /// a size; bytes that may wait
        "limit": Form::Size => s.limit; unset = Unset::Words("from `latency`"); wrong = "1000",
        /// a time; how long a packet may wait. It sets `limit`; one of the two is required
        "latency": Form::Own; unset = Unset::Required("", "\"50ms\""); wrong = "\"x\"",
        /// a rate above `rate`, the most at any moment
        "peakrate": Form::Rate => s.peakrate; unset = Unset::Words("none"); wrong = "\"2mbit\"",
        /// a size; the bucket of `peakrate`
        "mtu": Form::Own; unset = Unset::Words("none"); wrong = "1540",
        /// bytes that each packet takes on the link besides its own, 0 to 65535
        "overhead": Form::Own; unset = Unset::Words("`0`"); wrong = "-1",
        /// the least bytes that a packet takes on the link, 0 to 65535
        "mpu": Form::Own; unset = Unset::Words("`0`"); wrong = "-1",
        /// `"ethernet"`, or `"atm"` (also `"adsl"`), which counts cells of 53 bytes
        "linklayer": Form::Own; unset = Unset::Words("`\"ethernet\"`"); wrong = "\"dsl\"",
    };

    fn check(spec: &TbfSpec) -> Result<(), SpecError> {
        let wrong = |parameter, reason| Err(SpecError::parameter("tbf", parameter, reason));
        if !(1..=MAX_RATE).contains(&spec.rate) || spec.peakrate.is_some_and(|p| p > MAX_RATE) {
            return wrong("rate", "must be between 1 byte/s and 1 Tbyte/s");
        }
        if !(1..=u64::from(u32::MAX)).contains(&spec.burst) {
            return wrong("burst", "must be between 1 byte and 4 GiB");
        }
        // A configuration file can say no number above 2^53 to the byte.
        if spec.limit > MAX_LIMIT {
            return wrong("limit", "must be at most 1 PiB");
        }
        match spec.peakrate {
            Some(peak) if peak <= spec.rate => wrong("peakrate", "must be higher than rate"),
            Some(_) if spec.mtu == 0 => wrong(
                "mtu",
                "must be given with peakrate (the size of its bucket, at least one packet)",
            ),
            _ => Ok(()),
        }
    }

    /// Full buckets.
    fn make(spec: &TbfSpec, handle: Handle, env: &QdiscEnv) -> Tbf {
        let shared = SharedBuckets::new(spec, handle, env).map(Box::new);
        let child = Tbf::default_child(spec, env).make(Handle::NONE, env);
        Tbf {
            shaper: Shaper::new(spec, shared),
            class: Children::new([child]),
            segmenting: None,
        }
    }

    /// Fills the buckets, as the kernel does, but for shared ones. What is queued stays; of what
    /// the new buckets are too small for, each packet leaves when they are full. `limit` is that
    /// of the class's own queue, if it still has that.
    fn change(&mut self, spec: &TbfSpec, cx: &mut Cx) {
        let mut shared = self.shaper.shared.take();
        if let Some(shared) = &mut shared {
            shared.change(spec, cx.now);
        }
        self.shaper = Shaper::new(spec, shared);
        self.class.with(0, |child| {
            if child.is_default()
                && let AnyQdisc::Bfifo(queue) = child.qdisc_mut()
            {
                queue.set_limit(spec.limit);
            }
        });
    }

    fn classes(_: &TbfSpec) -> u16 {
        1
    }

    fn default_child(spec: &TbfSpec, _: &QdiscEnv) -> QdiscSpec {
        QdiscSpec::Bfifo { limit: spec.limit }
    }

    parts!(class);
}
