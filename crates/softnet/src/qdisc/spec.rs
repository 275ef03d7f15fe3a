//! Disciplines as configuration: checked numbers, from which a discipline is built once per transmit queue.

use super::{AnyQdisc, Bfifo, Pfifo, PfifoFast, Tbf};
use crate::pool::Pool;

/// A discipline and its parameters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum QdiscSpec {
    /// Hand each packet to the driver at once; drop what it does not take.
    Noqueue,
    /// FIFO of at most `limit` frames.
    Pfifo {
        /// Frames.
        limit: u32,
    },
    /// FIFO of at most `limit` bytes.
    Bfifo {
        /// Wire bytes.
        limit: u64,
    },
    /// Three priority bands of at most `limit` frames each.
    PfifoFast {
        /// Frames per band.
        limit: u32,
    },
    /// Token bucket.
    Tbf(TbfSpec),
}

impl Default for QdiscSpec {
    /// What a device gets in the kernel: `pfifo_fast` with a `txqueuelen` of 1000.
    fn default() -> Self {
        QdiscSpec::PfifoFast { limit: 1000 }
    }
}

/// Parameters of a token bucket, in the units of the kernel's interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TbfSpec {
    /// Bytes per second.
    pub rate: u64,
    /// Bucket size in bytes, at most 4 GiB.
    pub burst: u64,
    /// Bytes that may wait.
    pub limit: u64,
    /// Peak rate in bytes per second.
    pub peakrate: Option<u64>,
    /// Size of the peak bucket in bytes; used with `peakrate` only.
    pub mtu: u32,
}

/// Parameters that contradict themselves.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum SpecError {
    /// `rate` is 0 or too large to count with.
    #[error("tbf: rate must be between 1 byte/s and 1 Tbyte/s")]
    Rate,
    /// `burst` is 0 or more than 4 GiB.
    #[error("tbf: burst must be between 1 byte and 4 GiB")]
    Burst,
    /// `peakrate` is not above `rate`.
    #[error("tbf: peakrate must be higher than rate")]
    PeakRate,
    /// `peakrate` without `mtu`.
    #[error("tbf: peakrate needs mtu (the size of its bucket, at least one packet)")]
    PeakMtu,
}

/// What disciplines need from outside.
#[derive(Clone, Debug)]
pub struct QdiscEnv {
    /// Buffers for segments of frames that a discipline has to cut.
    pub pool: Pool,
}

impl QdiscSpec {
    /// The kind's name, as in tc.
    pub fn kind(&self) -> &'static str {
        match self {
            QdiscSpec::Noqueue => "noqueue",
            QdiscSpec::Pfifo { .. } => "pfifo",
            QdiscSpec::Bfifo { .. } => "bfifo",
            QdiscSpec::PfifoFast { .. } => "pfifo_fast",
            QdiscSpec::Tbf(_) => "tbf",
        }
    }

    /// How many instances a device with `rings` rings has: one for each ring where the discipline decides nothing across queues, else one
    /// for all.
    pub fn queues(&self, rings: usize) -> usize {
        match self {
            QdiscSpec::PfifoFast { .. } | QdiscSpec::Noqueue => rings,
            _ => rings.min(1),
        }
    }

    /// Checks the parameters.
    ///
    /// # Errors
    /// [`SpecError`] names the parameter that is wrong.
    pub fn check(&self) -> Result<(), SpecError> {
        let QdiscSpec::Tbf(tbf) = self else {
            return Ok(());
        };
        const MAX_RATE: u64 = 1_000_000_000_000;
        if !(1..=MAX_RATE).contains(&tbf.rate) || tbf.peakrate.is_some_and(|p| p > MAX_RATE) {
            return Err(SpecError::Rate);
        }
        if !(1..=u64::from(u32::MAX)).contains(&tbf.burst) {
            return Err(SpecError::Burst);
        }
        match tbf.peakrate {
            Some(peak) if peak <= tbf.rate => Err(SpecError::PeakRate),
            Some(_) if tbf.mtu == 0 => Err(SpecError::PeakMtu),
            _ => Ok(()),
        }
    }

    /// Builds an empty discipline.
    ///
    /// # Errors
    /// As [`check`](QdiscSpec::check).
    pub fn build(&self, env: &QdiscEnv) -> Result<AnyQdisc, SpecError> {
        self.check()?;
        Ok(match self {
            // Its queue holds what is handed over within one run only.
            QdiscSpec::Noqueue => AnyQdisc::Noqueue(Pfifo::new(u32::MAX)),
            QdiscSpec::Pfifo { limit } => AnyQdisc::Pfifo(Pfifo::new(*limit)),
            QdiscSpec::Bfifo { limit } => AnyQdisc::Bfifo(Bfifo::new(*limit)),
            QdiscSpec::PfifoFast { limit } => AnyQdisc::PfifoFast(Box::new(PfifoFast::new(*limit))),
            QdiscSpec::Tbf(spec) => AnyQdisc::Tbf(Box::new(Tbf::new(spec, env.pool.clone()))),
        })
    }
}
