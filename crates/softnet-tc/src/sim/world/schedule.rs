//! The next arrival of each flow, in the order of their times and, at the same time, of the flows.
//!
//! Flows of one constant rate take turns: who has just sent is the last again. Such turns are kept
//! in queues, where nothing is searched; an arrival that is at the end of none goes on a heap.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use softnet::time::Time;

/// When a flow sends, and its number.
pub(super) type Arrival = (Time, usize);

/// Queues: enough for a few constant rates.
const QUEUES: usize = 4;

/// Arrivals to come, one of each flow that goes on.
#[derive(Debug, Default)]
pub(super) struct Schedule {
    /// The earliest of all, which is nowhere else.
    first: Option<Arrival>,
    /// Each is in order.
    turns: [VecDeque<Arrival>; QUEUES],
    others: BinaryHeap<Reverse<Arrival>>,
}

impl Schedule {
    /// The earliest arrival.
    #[inline]
    pub(super) fn first(&self) -> Option<Arrival> {
        self.first
    }

    /// Adds an arrival of a flow that has none here.
    pub(super) fn add(&mut self, arrival: Arrival) {
        match self.first {
            Some(first) if first < arrival => self.put(arrival),
            before => {
                self.first = Some(arrival);
                if let Some(before) = before {
                    self.put(before);
                }
            }
        }
    }

    /// The earliest arrival has happened. `next` is the next one of its flow.
    pub(super) fn happened(&mut self, next: Option<Arrival>) {
        let earlier = |&(arrival, _): &(Arrival, usize)| next.is_none_or(|next| arrival < next);
        let Some((arrival, place)) = self.second().filter(earlier) else {
            self.first = next;
            return;
        };
        match self.turns.get_mut(place) {
            Some(turn) => _ = turn.pop_front(),
            None => _ = self.others.pop(),
        }
        self.first = Some(arrival);
        if let Some(next) = next {
            self.put(next);
        }
    }

    /// The earliest arrival but the first, and the number of its queue: none has that of the heap.
    fn second(&self) -> Option<(Arrival, usize)> {
        let other = self.others.peek();
        let other = other.map(|&Reverse(arrival)| (arrival, QUEUES));
        let turns = self.turns.iter().enumerate();
        let turns = turns.filter_map(|(place, turn)| Some((*turn.front()?, place)));
        turns.chain(other).min()
    }

    /// Puts an arrival at the end of a queue, if it is later than all in one: of several the one
    /// whose end is nearest, since those behind have to be later still.
    fn put(&mut self, arrival: Arrival) {
        let turns = self.turns.iter_mut();
        let fitting = turns.filter(|turn| turn.back().is_none_or(|&last| last < arrival));
        match fitting.max_by_key(|turn| turn.back().copied()) {
            Some(turn) => turn.push_back(arrival),
            None => self.others.push(Reverse(arrival)),
        }
    }
}

#[cfg(all(test, not(any(loom, miri))))]
mod tests {
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
            let next = goes_on.then(|| (time.plus_nanos(pause(flow)), flow));
            schedule.happened(next);
            heap.extend(next.map(Reverse));
        }
        assert_eq!((schedule.first(), sent), (None, 78_001));
    }

    #[test]
    fn constant_rates_need_no_heap() {
        let mut schedule = Schedule::default();
        let starts = (0..90_u64).map(|flow| Time(flow * 500));
        starts.zip(0..).for_each(|arrival| schedule.add(arrival));
        for _ in 0..10_000 {
            let (time, flow) = schedule.first().expect("they go on");
            let pause = if flow % 3 == 0 { 170_000 } else { 50_000 };
            schedule.happened(Some((time.plus_nanos(pause), flow)));
            assert!(schedule.others.is_empty(), "{schedule:?}");
        }
    }
}
