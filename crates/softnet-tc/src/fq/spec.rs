//! Parameters of `fq`.

use std::time::Duration;

use crate::drr::QUANTUM;
use crate::{PRIO_TO_BAND, SpecError};

/// Priority bands.
pub(super) const BANDS: usize = 3;
/// The least weight of a band, so that each visit brings it closer to sending (BUG-FQ-4).
const MIN_WEIGHT: u32 = 16_384;

/// Parameters of `fq`, as in tc-fq(8).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FqSpec {
    /// Frames that may wait in each band.
    pub limit: u32,
    /// Frames that may wait in each flow.
    pub flow_limit: u32,
    /// Bytes that a flow sends in a round, at least 256; `None`: two packets of the device's MTU.
    pub quantum: Option<u32>,
    /// Bytes that a new flow may send at first; `None`: ten packets of the device's MTU.
    pub initial_quantum: Option<u32>,
    /// A packet's flow is these bits of its flow hash. With all of them set, the noted hash is the
    /// flow's number, and no two flows share a queue.
    pub orphan_mask: u32,
    /// Buckets that the kernel's table of flows would have, as a power of 2. Softnet's has as many
    /// as there are flows; this is only shown.
    pub buckets_log: u8,
    /// How long a flow must have had no packets to get a new quantum.
    pub refill_delay: Duration,
    /// Whether flows are held to `maxrate`.
    pub pacing: bool,
    /// The most bytes per second of each flow. None is held back for more than a second, so that
    /// one is faster whose packets, or quantum, take longer at this rate.
    pub maxrate: Option<u64>,
    /// At this rate and below, in bytes per second, every packet is paced by itself; above, a
    /// quantum at a time.
    pub low_rate_threshold: u64,
    /// How much later than due packets may leave, so that several leave at once.
    pub timer_slack: Duration,
    /// How far in the future a packet's departure time may be.
    pub horizon: Duration,
    /// Drops a packet whose time is beyond the horizon; else it leaves at the horizon.
    pub horizon_drop: bool,
    /// Marks every ECN-capable packet that leaves so much later than it was due.
    pub ce_threshold: Option<Duration>,
    /// Band of each of the 16 priorities (`TC_PRIO_*`).
    pub priomap: [u8; 16],
    /// Bytes that each band sends in its turn, at least 16,384.
    pub weights: [u32; BANDS],
}

impl Default for FqSpec {
    /// As in the kernel.
    fn default() -> FqSpec {
        FqSpec {
            limit: 10_000,
            flow_limit: 100,
            quantum: None,
            initial_quantum: None,
            orphan_mask: 1023,
            buckets_log: 10,
            refill_delay: Duration::from_millis(40),
            pacing: true,
            maxrate: None,
            low_rate_threshold: 550_000 / 8,
            timer_slack: Duration::from_micros(10),
            horizon: Duration::from_secs(10),
            horizon_drop: true,
            ce_threshold: None,
            priomap: PRIO_TO_BAND,
            weights: [589_824, 196_608, 65_536],
        }
    }
}

impl FqSpec {
    pub(super) fn check(&self) -> Result<(), SpecError> {
        let wrong = |parameter, reason| Err(SpecError::parameter("fq", parameter, reason));
        let too_large = |bytes: Option<u32>, most| bytes.is_some_and(|bytes| bytes > most);
        if too_large(self.quantum, *QUANTUM.end()) {
            return wrong("quantum", format!("must be at most {}", QUANTUM.end()));
        }
        if too_large(self.initial_quantum, i32::MAX as u32) {
            return wrong("initial_quantum", format!("must be at most {}", i32::MAX));
        }
        if self.maxrate == Some(0) {
            return wrong("maxrate", "must be at least 1 byte/s".to_owned());
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
