//! Time for which a list looks for the ownership of its queue before it is handed over.
//!
//! A packet that is handed over is written by one thread and sent by another: each of its cache
//! lines goes to another CPU, and it waits for the owner. Where the owner is about to end, it is
//! cheaper to wait. So the sender of a list looks again and again, for a time that grows with
//! the list (`docs/decisions/lists-look-first.md`). Shorter lists and single packets do not wait.

/// Time for each packet of a list, ns: some cache lines of a distant CPU.
const NANOS: u64 = 400;
/// The shortest list that waits.
const SHORTEST: usize = 8;
/// Packets of a longer list that count.
const LONGEST: usize = super::policy::RUN_QUOTA;

/// Pauses for each packet of a list.
#[derive(Clone, Copy, Debug)]
pub(super) struct Patience(u32);

impl Patience {
    /// As many pauses as fit into the time. One takes from 1 to 50 ns, which is measured once in a
    /// process.
    #[cfg(not(any(loom, miri)))]
    pub(super) fn measured() -> Patience {
        use std::sync::OnceLock;
        use std::time::Instant;

        /// Pauses of one measurement: a few microseconds.
        const PAUSES: u64 = 200;
        static MEASURED: OnceLock<Patience> = OnceLock::new();
        *MEASURED.get_or_init(|| {
            let measure = |_| {
                let start = Instant::now();
                (0..PAUSES).for_each(|_| std::hint::spin_loop());
                start.elapsed().as_nanos() as u64
            };
            // The shortest of some: this thread may lose its CPU in one.
            let taken = (0..5).map(measure).min().unwrap_or_default().max(1);
            Patience((NANOS * PAUSES / taken).clamp(1, NANOS) as u32)
        })
    }

    #[cfg(any(loom, miri))]
    pub(super) fn measured() -> Patience {
        Patience(1)
    }

    /// Pauses of a list of so many packets.
    #[inline(always)]
    pub(super) fn pauses(self, packets: usize) -> u32 {
        if packets < SHORTEST {
            return 0;
        }
        packets.min(LONGEST) as u32 * self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_lists_wait_and_none_for_longer_than_a_run() {
        let patience = Patience(4);
        let pauses = [0, 1, 7, 8, 64, 65, usize::MAX].map(|packets| patience.pauses(packets));
        assert_eq!(pauses, [0, 0, 0, 32, 256, 256, 256]);
        assert!((1..=400).contains(&Patience::measured().0));
    }
}
