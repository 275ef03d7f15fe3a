//! The order in which a worker serves its ports: start-time fair queueing of its time.
//!
//! A poll of one port may cost a hundred times what a poll of another does, as a device can run
//! code of its user while a frame is written to it. So ports share the worker's time, not its
//! polls: each has a virtual time, which what it has cost moves on, and who is the least far on is
//! served first. A port that had nothing to do starts where those are that had (Goyal, Vin, Cheng:
//! "Start-time Fair Queuing", 1996).

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use super::token::Token;

/// Whose time it is: a port's, the backlog's, where packets of all ports come together, or that of
/// all who have to wait until they may flood.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Flow(usize);

impl Flow {
    pub(super) const BACKLOG: Flow = Flow(0);
    pub(super) const FLOODS: Flow = Flow(1);

    pub(super) fn port(port: u16) -> Flow {
        Flow(2 + usize::from(port))
    }
}

/// Largest cost of a turn. A turn that takes longer than a time slice of the kernel's scheduler
/// (3 ms by default) has most likely lost the CPU, which is not its port's fault.
const LONGEST: u64 = 4_000_000;

/// So far behind the others a port is served at once when it is not in line: as long as a round.
const SLACK: u64 = 100_000;

/// Who waits. In the order of being served: virtual time, and who came first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Entry {
    start: u64,
    number: u64,
    flow: Flow,
    token: Token,
}

/// Flows that have work. Times are nanoseconds of the worker.
#[derive(Debug, Default)]
pub(super) struct Line {
    entries: BinaryHeap<Reverse<Entry>>,
    /// Entries so far.
    number: u64,
    /// The virtual time: when the turn began that is being served.
    now: u64,
    /// When the last turn of each flow ended.
    ends: Vec<u64>,
    /// The last of `ends`.
    last: u64,
}

impl Line {
    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The number of those that wait.
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// When a turn of the flow begins.
    fn start(&self, Flow(flow): Flow) -> u64 {
        self.ends
            .get(flow)
            .map_or(self.now, |end| self.now.max(*end))
    }

    pub(super) fn push(&mut self, token: Token, flow: Flow) {
        self.number += 1;
        self.entries.push(Reverse(Entry {
            start: self.start(flow),
            number: self.number,
            flow,
            token,
        }));
    }

    /// Who is served next.
    pub(super) fn pop(&mut self) -> Option<(Token, Flow)> {
        loop {
            let Reverse(Entry {
                start, flow, token, ..
            }) = self.entries.pop()?;
            let later = self.start(flow);
            // It has been served since, for something else.
            if later > start.max(self.now) && !self.is_empty() {
                self.push(token, flow);
                continue;
            }
            self.now = later;
            return Some((token, flow));
        }
    }

    /// The flow had a turn, which took so long.
    pub(super) fn charge(&mut self, flow: Flow, cost: Duration) {
        let cost = u64::try_from(cost.as_nanos()).unwrap_or(LONGEST);
        let end = self.start(flow) + cost.min(LONGEST);
        let Flow(index) = flow;
        if self.ends.len() <= index {
            self.ends.resize(index + 1, 0);
        }
        self.ends[index] = end;
        self.last = self.last.max(end);
    }

    /// The flow has had so much that it has to get in line.
    pub(super) fn must_wait(&self, flow: Flow) -> bool {
        !self.is_empty() && self.start(flow) > self.now + SLACK
    }

    /// Nobody has work: what each has had is forgotten.
    pub(super) fn rest(&mut self) {
        self.now = self.last;
    }
}

#[cfg(all(test, not(any(loom, miri))))]
mod tests {
    use super::*;

    const SLOW: Flow = Flow(1);
    const FAST: Flow = Flow(2);

    fn us(n: u64) -> Duration {
        Duration::from_micros(n)
    }

    /// Serves those in line so often, who then get in line again. Returns who was served.
    fn serve(line: &mut Line, turns: usize, cost: impl Fn(Flow) -> Duration) -> Vec<Flow> {
        let turn = |_| {
            let (token, flow) = line.pop().unwrap();
            line.charge(flow, cost(flow));
            line.push(token, flow);
            flow
        };
        (0..turns).map(turn).collect()
    }

    #[test]
    fn flows_of_the_same_cost_take_turns() {
        let mut line = Line::default();
        (1..4).for_each(|n| line.push(Token::Queue(n), Flow(n)));
        for cost in [0, 5] {
            let served = serve(&mut line, 9, |_| us(cost));
            assert_eq!(served, [1, 2, 3, 1, 2, 3, 1, 2, 3].map(Flow));
        }
    }

    #[test]
    fn a_flow_that_costs_more_is_served_less_often() {
        let mut line = Line::default();
        line.push(Token::Queue(1), SLOW);
        line.push(Token::Queue(2), FAST);
        let cost = |flow| if flow == SLOW { us(1000) } else { us(10) };
        let served = serve(&mut line, 1010, cost);
        assert_eq!(served.iter().filter(|flow| **flow == SLOW).count(), 10);
    }

    #[test]
    fn a_flow_that_had_nothing_to_do_does_not_make_up_for_it() {
        let mut line = Line::default();
        line.push(Token::Queue(1), SLOW);
        serve(&mut line, 100, |_| us(1000));
        line.push(Token::Queue(2), FAST);
        // It is ahead of the turn that the other one has just had, and no more.
        serve(&mut line, 10, |_| us(100));
        let served = serve(&mut line, 20, |_| us(100));
        let fast = served.iter().filter(|flow| **flow == FAST).count();
        assert!((10..=11).contains(&fast), "{served:?}");
    }

    #[test]
    fn a_turn_in_which_the_cpu_was_lost_is_not_charged_in_full() {
        let mut line = Line::default();
        line.push(Token::Queue(1), SLOW);
        line.push(Token::Queue(2), FAST);
        serve(&mut line, 1, |_| Duration::from_secs(10));
        let turns = serve(&mut line, 50, |_| us(100));
        assert_eq!(turns.iter().position(|flow| *flow == SLOW), Some(40));
    }

    #[test]
    fn work_besides_the_line_is_counted_and_has_to_wait() {
        let mut line = Line::default();
        line.charge(SLOW, us(1000));
        assert!(!line.must_wait(SLOW), "nobody else has work");
        line.push(Token::Queue(2), FAST);
        assert!(line.must_wait(SLOW) && !line.must_wait(FAST));
        line.push(Token::Queue(1), SLOW);
        let turns = serve(&mut line, 50, |_| us(100));
        assert_eq!(turns.iter().position(|flow| *flow == SLOW), Some(10));
        // Two entries of one flow are one flow.
        line.push(Token::Queue(3), SLOW);
        let turns = serve(&mut line, 100, |_| us(100));
        let slow = turns.iter().filter(|flow| **flow == SLOW).count();
        assert!((49..=51).contains(&slow), "{turns:?}");
        line.rest();
        assert!(!line.must_wait(SLOW));
    }
}
