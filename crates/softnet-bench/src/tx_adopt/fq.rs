//! A qdisc with a queue for each flow, served by deficit round robin (Shreedhar and Varghese,
//! 1995): what all variants are measured with where the report says `fq`. Flows that hash alike
//! share a queue. It leaves timestamps alone, by which the latency at a given load counts from the
//! time at which a packet was due; softnet-tc's `fq` notes its own there.

use std::collections::VecDeque;

use softnet::mem::PacketList;
use softnet::qdisc::{Cx, Next, Qdisc, QdiscStats, Verdict};
use softnet::stats::DropReason;

/// Queues; a power of two.
const FLOWS: usize = 1024;
/// Bytes a flow may send in a round: two full frames, as `sch_fq` has it.
const QUANTUM: i64 = 2 * 1514;

#[derive(Debug, Default)]
struct Flow {
    packets: PacketList,
    deficit: i64,
}

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct Fq {
    flows: Box<[Flow]>,
    /// Flows with packets, the one to be served next first.
    active: VecDeque<u16>,
    limit: u64,
    stats: QdiscStats,
}

impl Fq {
    /// An empty qdisc for at most `limit` packets.
    pub(crate) fn new(limit: u64) -> Fq {
        Fq {
            flows: (0..FLOWS).map(|_| Flow::default()).collect(),
            active: VecDeque::with_capacity(FLOWS),
            limit,
            stats: QdiscStats::default(),
        }
    }
}

impl Qdisc for Fq {
    fn enqueue(&mut self, packets: &mut PacketList, cx: &mut Cx) -> Verdict {
        let mut verdict = Verdict::Queued;
        while let Some(packet) = packets.pop_front() {
            if self.stats.qlen >= self.limit {
                self.stats.drops += 1;
                cx.dropped.push(packet, DropReason::QdiscLimit);
                verdict = Verdict::Dropped;
                continue;
            }
            self.stats.qlen += 1;
            self.stats.backlog += packet.wire_len();
            self.stats.queued += packet.wire_packets();
            let number = packet.flow_hash().unwrap_or(0) as usize & (FLOWS - 1);
            let flow = &mut self.flows[number];
            if flow.packets.is_empty() {
                flow.deficit = QUANTUM;
                self.active.push_back(number as u16);
            }
            flow.packets.push_back(packet);
        }
        verdict
    }

    fn dequeue(&mut self, budget: usize, out: &mut PacketList, _: &mut Cx) -> Next {
        let mut left = budget;
        while left > 0
            && let Some(&number) = self.active.front()
        {
            let flow = &mut self.flows[usize::from(number)];
            if flow.deficit <= 0 {
                flow.deficit += QUANTUM;
                self.active.rotate_left(1);
                continue;
            }
            if let Some(packet) = flow.packets.pop_front() {
                let bytes = packet.wire_len();
                flow.deficit -= bytes as i64;
                self.stats.qlen -= 1;
                self.stats.backlog -= bytes;
                self.stats.queued -= packet.wire_packets();
                self.stats.bytes += bytes;
                self.stats.packets += packet.wire_packets();
                out.push_back(packet);
                left -= 1;
            }
            if flow.packets.is_empty() {
                self.active.pop_front();
            }
        }
        if self.active.is_empty() {
            Next::Idle
        } else {
            Next::Ready
        }
    }

    fn drain(&mut self, out: &mut PacketList) {
        for number in self.active.drain(..) {
            out.append(&mut self.flows[usize::from(number)].packets);
        }
        (self.stats.qlen, self.stats.backlog, self.stats.queued) = (0, 0, 0);
    }

    fn stats(&self) -> &QdiscStats {
        &self.stats
    }
}

#[cfg(test)]
mod tests {
    use softnet::mem::{Pool, PoolConfig};

    use super::*;

    #[test]
    fn flows_take_turns_by_bytes_and_the_limit_holds() {
        let pool = Pool::new(PoolConfig {
            buffers: 64,
            buffer_size: 2048,
        })
        .expect("a small pool");
        let packet = |flow: u32, len: usize, mark: u32| {
            let mut packet = pool.alloc().expect("the pool is large enough");
            packet.extend(len);
            packet.set_flow_hash(flow);
            packet.set_mark(mark);
            packet
        };
        let mut fq = Fq::new(10);
        let mut cx = Cx::new(&pool);
        // Flow 1 has large packets, flow 2 small ones.
        let mut list: PacketList = (0..5).map(|n| packet(1, 1514, n)).collect();
        list.extend((0..7).map(|n| packet(2, 757, 10 + n)));
        fq.enqueue(&mut list, &mut cx);
        assert_eq!(cx.dropped.wire_packets(), 2);
        assert_eq!(fq.stats().backlog, 5 * 1514 + 5 * 757);
        let mut out = PacketList::new();
        assert_eq!(fq.dequeue(8, &mut out, &mut cx), Next::Ready);
        assert_eq!(fq.dequeue(8, &mut out, &mut cx), Next::Idle);
        let marks: Vec<u32> = out.iter().map(|p| p.mark()).collect();
        assert_eq!(marks, [0, 1, 10, 11, 12, 13, 2, 3, 14, 4]);
        assert_eq!((fq.stats().qlen, fq.stats().backlog), (0, 0));
    }
}
