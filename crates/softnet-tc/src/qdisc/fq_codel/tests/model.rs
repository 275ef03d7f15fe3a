//! `fq_codel` against a plain model of RFC 8290.

use std::collections::VecDeque;

use proptest::prelude::*;

use super::*;
use crate::testing::codel_model::{Left, Rfc8289, Step, Waiting, steps};

/// RFC 8290, section 4.2, with queues of lists. A flow is one of four.
struct Rfc8290 {
    flows: [Rfc8289; 4],
    deficits: [i64; 4],
    new: VecDeque<usize>,
    old: VecDeque<usize>,
    quantum: i64,
    bytes: u64,
}

impl Rfc8290 {
    fn enqueue(&mut self, flow: usize, packet: Waiting) {
        self.bytes += packet.bytes;
        self.flows[flow].queue.push_back(packet);
        if !self.new.contains(&flow) && !self.old.contains(&flow) {
            self.deficits[flow] = self.quantum;
            self.new.push_back(flow);
        }
    }

    /// Section 4.1.3: the oldest of the flow with most bytes, up to half of them.
    fn drop_fattest(&mut self, batch: usize) -> Vec<u32> {
        let bytes = |flow: &Rfc8289| flow.queue.iter().map(|p| p.bytes).sum::<u64>();
        let sizes = self.flows.each_ref().map(bytes);
        let largest = (0..4).rev().max_by_key(|&flow| sizes[flow]).unwrap();
        let mut dropped = Vec::new();
        let mut sum = 0;
        while dropped.is_empty() || dropped.len() < batch && sum < sizes[largest] / 2 {
            let packet = self.flows[largest].queue.pop_front().unwrap();
            sum += packet.bytes;
            dropped.push(packet.mark);
        }
        self.bytes -= sum;
        self.flows[largest].count += dropped.len() as u32;
        if self.flows[largest].queue.is_empty() {
            self.flows[largest].clear();
        }
        dropped
    }

    fn dequeue(&mut self, now: u64) -> Left {
        let mut dropped = Vec::new();
        let mut may_drop = DROPS_PER_PACKET;
        loop {
            let from_new = !self.new.is_empty();
            let list = if from_new {
                &mut self.new
            } else {
                &mut self.old
            };
            let Some(flow) = list.pop_front() else {
                return Left {
                    packet: None,
                    dropped,
                };
            };
            if self.deficits[flow] <= 0 {
                self.deficits[flow] += self.quantum;
                self.old.push_back(flow);
                continue;
            }
            let before = self.bytes;
            let queued = |flow: &Rfc8289| flow.queue.iter().map(|p| p.bytes).sum::<u64>();
            let lens: u64 = queued(&self.flows[flow]);
            let sizes: VecDeque<Waiting> = self.flows[flow].queue.clone();
            let mut left = self.flows[flow].deque(now, &mut self.bytes, &mut may_drop);
            dropped.append(&mut left.dropped);
            assert_eq!(before - self.bytes, lens - queued(&self.flows[flow]));
            let Some((mark, _)) = left.packet else {
                if from_new && !self.old.is_empty() {
                    self.old.push_back(flow);
                }
                continue;
            };
            let len = sizes.iter().find(|p| p.mark == mark).unwrap().bytes;
            self.deficits[flow] -= len as i64;
            let list = if from_new {
                &mut self.new
            } else {
                &mut self.old
            };
            list.push_front(flow);
            let packet = left.packet;
            return Left { packet, dropped };
        }
    }
}

proptest! {
    /// Every packet leaves, is marked or is dropped at the moment that RFC 8290 says; INV-Q-6.
    #[test]
    fn decisions_of_rfc_8290(
        steps in steps(),
        target in 1..20_000_u64,
        interval in 1..100_000_u64,
        ecn: bool,
        quantum in 256..3000_u32,
        limit in 1..200_u32,
        batch in 0..20_u32,
    ) {
        let pool = pool(512);
        let spec = FqCodelSpec {
            limit,
            flows: 4,
            quantum: Some(quantum),
            drop_batch: batch,
            aqm: spec(target, interval, ecn),
            ..FqCodelSpec::default()
        };
        let mut qdisc = fq_codel(&spec, &pool);
        let mut cx = Cx::new(&pool);
        let mut reference = Rfc8290 {
            flows: std::array::from_fn(|_| Rfc8289::new(target, interval, ecn)),
            deficits: [0; 4],
            new: VecDeque::new(),
            old: VecDeque::new(),
            quantum: quantum.into(),
            bytes: 0,
        };
        let (mut now, mut mark) = (MS, 0);
        for step in steps {
            match step {
                Step::Wait(micros) => now += micros * 1000,
                Step::Arrive(packets) => {
                    for (len, ect, flow) in packets {
                        let mut packet = ip(&pool, len, ect.into(), mark);
                        packet.set_priority(HANDLE.class(flow as u16 + 1).raw());
                        packet.set_timestamp(Time(now));
                        let verdict = qdisc.enqueue(&mut packet.into(), cx.at(Time(now)));
                        let flow = flow as usize;
                        let waiting = Waiting { mark, bytes: len as u64, time: now, ect };
                        reference.enqueue(flow, waiting);
                        let before = reference.flows[flow].queue.len();
                        let all: usize = reference.flows.iter().map(|f| f.queue.len()).sum();
                        let mut dropped = Vec::new();
                        if all > limit as usize {
                            dropped = reference.drop_fattest(batch.max(1) as usize);
                        }
                        prop_assert_eq!(marks(cx.dropped.packets()), dropped);
                        cx.dropped.settle(&softnet::stats::DropCounters::new());
                        let expected = match reference.flows[flow].queue.len() {
                            after if after == before => Verdict::Queued,
                            0 => Verdict::Dropped,
                            _ => Verdict::Congestion,
                        };
                        prop_assert_eq!(verdict, expected);
                        prop_assert!(qdisc.stats().qlen <= limit.into());
                        mark += 1;
                    }
                }
                Step::Leave(packets) => for _ in 0..packets {
                    let expected = reference.dequeue(now);
                    if reference.bytes == 0 {
                        // A driver asks until there is nothing left.
                        prop_assert_eq!(reference.dequeue(now).packet, None);
                    }
                    prop_assert_eq!(leave(&mut qdisc, cx.at(Time(now))), expected);
                },
            }
            let lens = (reference.new.len() as u64, reference.old.len() as u64);
            let own = (xstat(&qdisc, "new_flows_len"), xstat(&qdisc, "old_flows_len"));
            prop_assert_eq!(own, lens);
            prop_assert_eq!(qdisc.stats().backlog, reference.bytes);
        }
    }
}
