//! Qdiscs that break their contract, and those that keep it.

use std::collections::VecDeque;

use softnet::qdisc::{Cx, Next, Peek, QdiscStats, Verdict};
use softnet_tc::{AnyQdisc, QdiscEnv, QdiscSpec, TbfSpec};

use super::*;

/// The mistake of a [`Wrong`] qdisc.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Mistake {
    None,
    LeavesInList,
    Loses,
    LosesInSilence,
    Copies,
    Duplicates,
    SaysIdle,
    CountsTwiceAsSent,
    KeepsWhenDrained,
    ClaimsDrop,
}

/// A FIFO of one band with a mistake.
#[derive(Debug)]
struct Wrong {
    queue: VecDeque<Packet>,
    stats: QdiscStats,
    mistake: Mistake,
}

impl Qdisc for Wrong {
    fn enqueue(&mut self, packets: &mut PacketList, cx: &mut Cx) -> Verdict {
        let mut verdict = Verdict::Queued;
        while let Some(packet) = packets.pop_front() {
            match self.mistake {
                Mistake::LeavesInList if packets.is_empty() => {
                    packets.push_back(packet);
                    break;
                }
                Mistake::Loses if self.stats.qlen == 1 => continue,
                Mistake::LosesInSilence if self.stats.qlen == 1 => {
                    self.stats.count_queued(&packet);
                    continue;
                }
                Mistake::Copies => {
                    let copy = packet.copy(&cx.pool).unwrap();
                    self.stats.count_queued(&copy);
                    self.queue.push_back(copy);
                }
                Mistake::ClaimsDrop => verdict = Verdict::Dropped,
                _ => {}
            }
            self.stats.count_queued(&packet);
            self.queue.push_back(packet);
        }
        verdict
    }

    fn dequeue(&mut self, budget: usize, out: &mut PacketList, cx: &mut Cx) -> Next {
        for _ in 0..budget {
            let Some(packet) = self.queue.pop_front() else {
                return Next::Idle;
            };
            self.stats.count_dequeued(&packet);
            if self.mistake == Mistake::CountsTwiceAsSent {
                self.stats.packets += 1;
            }
            if self.mistake == Mistake::Duplicates {
                out.push_back(packet.copy(&cx.pool).unwrap());
                out.push_back(packet.copy(&cx.pool).unwrap());
            }
            out.push_back(packet);
        }
        if self.queue.is_empty() || self.mistake == Mistake::SaysIdle {
            Next::Idle
        } else {
            Next::Ready
        }
    }

    fn drain(&mut self, out: &mut PacketList) {
        self.stats.count_drained();
        out.extend(self.queue.drain(..));
        if self.mistake == Mistake::KeepsWhenDrained {
            self.queue.extend(out.pop_front());
        }
    }

    fn stats(&self) -> &QdiscStats {
        &self.stats
    }
}

/// Enqueues two packets, dequeues one, drains.
fn use_qdisc(mistake: Mistake) {
    let pool = pool();
    let mut cx = Cx::new(&pool);
    let wrong = Wrong {
        queue: VecDeque::new(),
        stats: QdiscStats::default(),
        mistake,
    };
    let mut qdisc = Checked::qdisc("wrong", wrong);
    qdisc.enqueue(&mut frames(&pool, 2), &mut cx);
    let mut out = PacketList::new();
    qdisc.dequeue(
        if mistake == Mistake::Duplicates { 3 } else { 1 },
        &mut out,
        &mut cx,
    );
    qdisc.drain(&mut out);
    assert_eq!(out.len(), 2);
}

#[test]
fn breaches_of_a_qdisc_are_reported() {
    use_qdisc(Mistake::None);
    for (mistake, deed) in [
        (
            Mistake::LeavesInList,
            "left packets in the list that it was to enqueue: 1",
        ),
        (
            Mistake::Loses,
            "lost wire packets: neither queued, sent nor dropped: 1",
        ),
        (
            Mistake::LosesInSilence,
            "holds 1 packets and counts 2 queued",
        ),
        (
            Mistake::Copies,
            "made wire packets: queued, sent and dropped are more than it was given: 2",
        ),
        (Mistake::Duplicates, "dequeued after the budget was used up"),
        (Mistake::SaysIdle, "says Idle with wire packets queued: 1"),
        (
            Mistake::CountsTwiceAsSent,
            "counts other packets or bytes as sent than it dequeued",
        ),
        (
            Mistake::KeepsWhenDrained,
            "lost wire packets when it was drained: 1",
        ),
        (
            Mistake::ClaimsDrop,
            "says that it dropped packets, and dropped none",
        ),
    ] {
        let report = breach(|| use_qdisc(mistake));
        assert_eq!(report, format!("qdisc wrong: {deed}"), "{mistake:?}");
    }
}

/// Random calls of a qdisc: no breach, and every buffer is free in the end.
fn random_calls(name: &str, pool: &Pool, qdisc: AnyQdisc, seed: u32) {
    let mut cx = Cx::new(pool);
    let mut random = seed;
    let mut below = |limit: u32| {
        random ^= random << 13;
        random ^= random >> 17;
        random ^= random << 5;
        random % limit
    };
    let mut qdisc = Checked::qdisc(name, qdisc);
    let (mut now, drops) = (Time::ZERO, DropCounters::new());
    for _ in 0..2000 {
        now.0 += u64::from(below(200_000));
        let cx = cx.at(now);
        // Some wait long for their rate, in queues with high limits.
        let call = if pool.stats().free < 16 { 3 } else { below(5) };
        match call {
            0 | 1 => {
                let mut packets = frames(pool, below(4) as usize);
                packets.for_each_mut(|packet| {
                    packet.set_priority(below(16));
                    packet.set_timestamp(now);
                    packet.data_mut()[14..18].copy_from_slice(&below(9).to_be_bytes());
                });
                qdisc.enqueue(&mut packets, cx);
            }
            2 => {
                let mut packets = frames(pool, 1);
                let sum = (&packets).into();
                if !qdisc.try_pass(&packets, sum, cx) {
                    qdisc.enqueue(&mut packets, cx);
                }
            }
            3 => {
                qdisc.dequeue(1 + below(4) as usize, &mut PacketList::new(), cx);
            }
            _ => {
                let _: Peek = qdisc.peek(now);
            }
        }
        cx.dropped.settle(&drops);
    }
    qdisc.drain(&mut PacketList::new());
    drop(qdisc);
    assert_eq!(pool.stats().free, 256, "{name}");
}

#[test]
fn qdiscs_of_softnet_keep_the_contract() {
    let shaped = TbfSpec {
        rate: 500_000,
        burst: 1_500,
        limit: 3_000,
        peakrate: None,
        mtu: 0,
        link: Default::default(),
    };
    for spec in [
        QdiscSpec::Pfifo { limit: 20 },
        QdiscSpec::Bfifo { limit: 1_000 },
        QdiscSpec::PfifoFast { limit: 20 },
        QdiscSpec::PfifoHeadDrop { limit: 20 },
        QdiscSpec::Prio(Default::default()),
        QdiscSpec::Tbf(shaped),
        QdiscSpec::Fq(Default::default()),
        QdiscSpec::Codel(Default::default()),
        QdiscSpec::FqCodel(Default::default()),
    ] {
        for seed in 1..5 {
            let pool = pool();
            let qdisc = spec.build(&QdiscEnv::new(&pool)).unwrap();
            random_calls(spec.kind(), &pool, qdisc, seed);
        }
    }
}
