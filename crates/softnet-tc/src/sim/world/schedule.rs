//! The next arrival of each flow, in the order of their times and, at the same time, of the flows.
//!
//! It is a tournament: flows are the leaves of a binary tree, and at each node above is the earlier
//! arrival of the two below. The next one of the flow that was first is compared once a level.

use softnet::time::Time;

/// When a flow sends, and its number.
pub(super) type Arrival = (Time, usize);

/// The time of an arrival in the upper half, the number of the flow in the lower: in their order.
type Key = u128;

/// A flow without an arrival.
const NEVER: Key = Key::MAX;

/// Arrivals to come, one of each flow that goes on.
#[derive(Debug, Default)]
pub(super) struct Schedule {
    /// Below the node `n` are `2n` and `2n + 1`; the first of all is at 1, and the leaves are the
    /// second half. None at all before there is a flow.
    nodes: Vec<Key>,
}

impl Schedule {
    /// The earliest arrival.
    #[inline]
    pub(super) fn first(&self) -> Option<Arrival> {
        let &first = self.nodes.get(1)?;
        let flow = first as u64;
        (flow != NEVER as u64).then_some((Time((first >> 64) as u64), flow as usize))
    }

    /// Adds an arrival of a flow that has none here.
    pub(super) fn add(&mut self, (time, flow): Arrival) {
        let leaves = self.nodes.len() / 2;
        if flow >= leaves {
            let more = 2 * (flow + 1).next_power_of_two();
            let old = std::mem::replace(&mut self.nodes, vec![NEVER; more]);
            let keys = old.into_iter().skip(leaves).enumerate();
            keys.for_each(|(flow, key)| self.put(flow, key));
        }
        self.put(flow, key(time, flow));
    }

    /// The earliest arrival has happened; the next one of its flow is at `next`.
    pub(super) fn happened(&mut self, next: Option<Time>) {
        if let Some((_, flow)) = self.first() {
            self.put(flow, next.map_or(NEVER, |time| key(time, flow)));
        }
    }

    fn put(&mut self, flow: usize, mut key: Key) {
        let nodes = &mut self.nodes[..];
        let mut at = nodes.len() / 2 + flow;
        nodes[at] = key;
        while at > 1 {
            key = key.min(nodes[at ^ 1]);
            at /= 2;
            nodes[at] = key;
        }
    }
}

fn key(time: Time, flow: usize) -> Key {
    Key::from(time.0) << 64 | flow as Key
}

#[cfg(all(test, not(any(loom, miri))))]
mod tests {
    use std::cmp::Reverse;
    use std::collections::BinaryHeap;

    use super::*;
    use crate::sim::flow::Random;

    /// It is that of a heap, whatever the flows are like.
    #[test]
    fn the_order_is_that_of_times_and_flows() {
        let mut random = Random(7);
        let mut pause = |flow: usize| match flow {
            0 => 1_000_000,
            1..20 => 50_000,
            20..30 => 700,
            _ => (random.uniform() * 100_000.0) as u64,
        };
        let (mut schedule, mut heap) = (Schedule::default(), BinaryHeap::new());
        for flow in 0..40 {
            let arrival = (Time(pause(flow) / 10), flow);
            schedule.add(arrival);
            heap.push(Reverse(arrival));
        }
        let mut sent = 0;
        while let Some(Reverse((time, flow))) = heap.pop() {
            assert_eq!(schedule.first(), Some((time, flow)));
            sent += 1;
            // One flow after the other ends.
            let goes_on = sent % 2_000 != 1;
            let next = goes_on.then(|| time.plus_nanos(pause(flow)));
            schedule.happened(next);
            heap.extend(next.map(|time| Reverse((time, flow))));
        }
        assert_eq!((schedule.first(), sent), (None, 78_001));
    }
}
