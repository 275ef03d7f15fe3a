//! Bytes of each flow that left from each class: what Jain's index is of.

use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasherDefault, Hasher};

use super::classes::Span;

/// Runs of a flow in one class that are kept before they are added up.
const RUNS: usize = 65_536;

/// Hashes are the keys: nothing has to be hashed. The order is the same on every run.
#[derive(Debug, Default)]
struct Plain(u64);

impl Hasher for Plain {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes
            .iter()
            .for_each(|&byte| self.0 = self.0 << 8 | u64::from(byte));
    }

    fn write_u32(&mut self, hash: u32) {
        // The table looks at the upper bits and at the lower ones.
        self.0 = u64::from(hash).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    }
}

/// A flow, and what it sent last from one class.
#[derive(Debug)]
struct Flow {
    place: usize,
    bytes: u64,
}

/// The flows.
#[derive(Debug, Default)]
pub(super) struct Shares {
    known: HashMap<u32, usize, BuildHasherDefault<Plain>>,
    flows: Vec<Flow>,
    /// Flows that have sent in this window.
    active: Vec<usize>,
    /// Earlier runs of this window: class, flow and bytes.
    runs: Vec<(usize, usize, u64)>,
    /// Sums of this window, as far as they are added up, and of those before.
    now: BTreeMap<(usize, usize), u64>,
    before: BTreeMap<(usize, usize), u64>,
}

impl Shares {
    /// The number of the flow with this hash.
    pub(super) fn flow(&mut self, hash: u32) -> usize {
        *self.known.entry(hash).or_insert_with(|| {
            self.flows.push(Flow { place: 0, bytes: 0 });
            self.flows.len() - 1
        })
    }

    /// The number of the flow with this hash, if it has sent.
    pub(super) fn known(&self, hash: u32) -> Option<usize> {
        self.known.get(&hash).copied()
    }

    /// The class that the flow's last packet left from; the root if there was none.
    pub(super) fn place(&self, flow: impl Into<Option<usize>>) -> usize {
        let flow = flow.into().and_then(|flow| self.flows.get(flow));
        flow.map_or(0, |flow| flow.place)
    }

    /// Bytes of a flow left from a class.
    pub(super) fn sent(&mut self, flow: usize, place: usize, bytes: u64) {
        let of = &mut self.flows[flow];
        if of.bytes == 0 {
            self.active.push(flow);
        } else if of.place != place {
            self.runs.push((of.place, flow, of.bytes));
            of.bytes = 0;
        }
        of.place = place;
        of.bytes += bytes;
        if self.runs.len() >= RUNS {
            self.add_up();
        }
    }

    /// Adds up the runs of this window.
    fn add_up(&mut self) {
        for (place, flow, bytes) in self.runs.drain(..) {
            *self.now.entry((place, flow)).or_default() += bytes;
        }
    }

    /// Begins another window.
    pub(super) fn turn(&mut self) {
        for flow in self.active.drain(..) {
            let of = &mut self.flows[flow];
            let bytes = std::mem::take(&mut of.bytes);
            self.runs.push((of.place, flow, bytes));
        }
        self.add_up();
        for (key, bytes) in std::mem::take(&mut self.now) {
            *self.before.entry(key).or_default() += bytes;
        }
    }

    /// Classes have other numbers.
    pub(super) fn moved(&mut self, places: &[usize]) {
        let to = |place: usize| places.get(place).copied().unwrap_or(0);
        for flow in &mut self.flows {
            flow.place = to(flow.place);
        }
        self.runs.iter_mut().for_each(|run| run.0 = to(run.0));
        for sums in [&mut self.now, &mut self.before] {
            for ((place, flow), bytes) in std::mem::take(sums) {
                *sums.entry((to(place), flow)).or_default() += bytes;
            }
        }
    }

    /// Jain's index of the flows of each of so many classes; `above` is the class above one.
    pub(super) fn fair(
        &self,
        span: Span,
        classes: usize,
        above: impl Fn(usize) -> Option<usize>,
    ) -> Vec<f64> {
        let mut sums = self.now.clone();
        let open = self.active.iter().map(|&flow| (flow, &self.flows[flow]));
        let open = open.map(|(flow, of)| (of.place, flow, of.bytes));
        for (place, flow, bytes) in self.runs.iter().copied().chain(open) {
            *sums.entry((place, flow)).or_default() += bytes;
        }
        if span == Span::All {
            for (&key, bytes) in &self.before {
                *sums.entry(key).or_default() += bytes;
            }
        }
        let mut of_class: Vec<BTreeMap<usize, u64>> = vec![BTreeMap::new(); classes];
        for ((place, flow), bytes) in sums {
            let mut at = Some(place);
            while let Some(place) = at {
                *of_class[place].entry(flow).or_default() += bytes;
                at = above(place);
            }
        }
        let fair = |flows: &BTreeMap<usize, u64>| super::jain(flows.values().copied());
        of_class.iter().map(fair).collect()
    }
}
