//! Pages that somebody asks for: how long they are, and the pauses between them.

use super::super::flow::Random;
use super::super::tcp::MSS;

/// Pages: from 12 KiB to 10 MiB by a Pareto distribution of shape 1.2, some 56 KiB on average; an
/// exponential pause between them, of two seconds on average. Sizes on the web have such a heavy
/// tail (Crovella and Bestavros, "Self-similarity in World Wide Web traffic", 1997).
#[derive(Debug)]
pub(super) struct Pages(pub(super) Random);

impl Pages {
    pub(super) fn segments(&mut self) -> u64 {
        let bytes = 12_288.0 * self.0.uniform().powf(-1.0 / 1.2);
        (bytes.min(10_485_760.0) as u64).div_ceil(MSS)
    }

    pub(super) fn pause(&mut self) -> u64 {
        (2e9 * self.0.exponential()) as u64
    }
}
