//! `fq` against a plain model of it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use proptest::prelude::*;

use super::*;

#[derive(Debug)]
struct ModelFlow {
    /// Mark, bytes, time, band, and whether it has a departure time.
    packets: VecDeque<(u32, u64, u64, usize, bool)>,
    credit: i64,
    time_next: u64,
    idle_since: Option<u64>,
    throttled: bool,
    band: usize,
    created: usize,
}

/// `fq` as tc-fq(8) and the module have it, with a list for each list and a search where there is
/// an index.
#[derive(Debug)]
struct Model {
    spec: FqSpec,
    flows: BTreeMap<u32, ModelFlow>,
    new: [VecDeque<u32>; 3],
    old: [VecDeque<u32>; 3],
    credits: [i64; 3],
    turn: usize,
    throttled: BTreeSet<(u64, usize, u32)>,
}

impl Model {
    fn band_len(&self, band: usize) -> usize {
        let packets = self.flows.values().flat_map(|flow| &flow.packets);
        packets.filter(|packet| packet.3 == band).count()
    }

    /// Mark, bytes, priority, flow, departure time.
    fn enqueue(
        &mut self,
        now: u64,
        (mark, bytes, priority, hash, mut time): (u32, u64, u32, u32, u64),
    ) -> bool {
        let band = usize::from(self.spec.priomap[priority as usize & 15]);
        if self.band_len(band) >= self.spec.limit as usize {
            return false;
        }
        let timed = time > now;
        let horizon = now + self.spec.horizon.as_nanos() as u64;
        if time > horizon {
            if self.spec.horizon_drop {
                return false;
            }
            time = horizon;
        }
        let created = self.flows.len();
        let initial = i64::from(self.spec.initial_quantum.unwrap());
        let flow = self
            .flows
            .entry(hash & self.spec.orphan_mask)
            .or_insert(ModelFlow {
                packets: VecDeque::new(),
                credit: initial,
                time_next: 0,
                idle_since: Some(now),
                throttled: false,
                band: 0,
                created,
            });
        if flow.packets.len() >= self.spec.flow_limit as usize {
            return false;
        }
        flow.band = band;
        let time = time.max(now);
        let at = flow.packets.partition_point(|packet| packet.2 <= time);
        flow.packets.insert(at, (mark, bytes, time, band, timed));
        if let Some(since) = flow.idle_since.take() {
            let idle = (now >> 20) - (since >> 20);
            if idle > self.spec.refill_delay.as_nanos() as u64 >> 20 {
                flow.credit = flow.credit.max(i64::from(self.spec.quantum.unwrap()));
            }
            self.new[band].push_back(hash & self.spec.orphan_mask);
        }
        true
    }

    /// Marks of the next packets, at most so many.
    fn dequeue(&mut self, now: u64, most: usize) -> Vec<u32> {
        for _ in 0..most {
            if let Some(&(time, created, key)) = self.throttled.first()
                && time <= now
            {
                self.throttled.remove(&(time, created, key));
                let flow = self.flows.get_mut(&key).unwrap();
                flow.throttled = false;
                self.old[flow.band].push_back(key);
            }
        }
        (0..most).map_while(|_| self.pop(now)).collect()
    }

    fn pop(&mut self, now: u64) -> Option<u32> {
        let quantum = i64::from(self.spec.quantum.unwrap());
        loop {
            let listed = |band: usize| !self.new[band].is_empty() || !self.old[band].is_empty();
            if !(0..3).any(listed) {
                return None;
            }
            if self.credits[self.turn] <= 0 || !listed(self.turn) {
                self.turn = (self.turn + 1) % 3;
                let weight = i64::from(self.spec.weights[self.turn]);
                self.credits[self.turn] = (self.credits[self.turn] + weight).min(weight);
                continue;
            }
            let turn = self.turn;
            let is_new = !self.new[turn].is_empty();
            let list = if is_new {
                &mut self.new[turn]
            } else {
                &mut self.old[turn]
            };
            let key = list[0];
            let flow = self.flows.get_mut(&key).unwrap();
            if flow.credit <= 0 {
                flow.credit += quantum;
                list.pop_front();
                self.old[flow.band].push_back(key);
                continue;
            }
            let Some(&(mark, bytes, time, _, timed)) = flow.packets.front() else {
                list.pop_front();
                if is_new && !self.old[turn].is_empty() {
                    self.old[flow.band].push_back(key);
                } else {
                    flow.idle_since = Some(now);
                }
                continue;
            };
            let due = time.max(flow.time_next);
            if due > now {
                list.pop_front();
                flow.time_next = due;
                flow.throttled = true;
                self.throttled.insert((due, flow.created, key));
                continue;
            }
            flow.packets.pop_front();
            flow.credit -= bytes as i64;
            self.credits[turn] -= bytes as i64;
            let Some(rate) = self.spec.maxrate else {
                return Some(mark);
            };
            let mut counts = bytes;
            if timed {
            } else if rate <= self.spec.low_rate_threshold {
                flow.credit = 0;
            } else if flow.credit > 0 {
                return Some(mark);
            } else {
                counts = counts.max(quantum as u64);
            }
            let mut delay = (counts * SECOND / rate).min(SECOND);
            if flow.time_next > 0 {
                delay -= (now - flow.time_next).min(delay / 2);
            }
            flow.time_next = now + delay;
            return Some(mark);
        }
    }
}

#[derive(Clone, Debug)]
enum Step {
    /// A list: of each packet bytes, priority, flow, and nanoseconds until departure. If it is said
    /// so, all are of the first one's flow and priority.
    Arrive(Vec<(usize, u32, u32, u64)>, bool),
    Wait(u64),
    Leave(usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let delay = prop_oneof![3 => Just(0), 1 => 0..40_000_000_u64];
    let arrive = (60..1514_usize, 0..16_u32, 0..8_u32, delay);
    let step = prop_oneof![
        5 => (prop::collection::vec(arrive, 1..6), any::<bool>())
            .prop_map(|(list, alike)| Step::Arrive(list, alike)),
        1 => (0..9_000_000_u64).prop_map(Step::Wait),
        4 => (0..5_usize).prop_map(Step::Leave),
    ];
    // Less than 3 s in all: no flow is collected.
    prop::collection::vec(step, 1..300)
}

proptest! {
    /// Every packet is taken or refused, and leaves, as the model says.
    #[test]
    fn decisions_of_the_model(
        steps in steps(),
        (limit, flow_limit) in (1..60_u32, 1..20_u32),
        quantum in 256..4000_u32,
        initial_quantum in 0..16_000_u32,
        refill in 0..20_u64,
        maxrate in prop::option::of(prop_oneof![1_000..2_000_000_u64, Just(100_000_000)]),
        (horizon, horizon_drop) in (0..50_u64, any::<bool>()),
        orphan_mask in prop_oneof![Just(3_u32), Just(u32::MAX)],
    ) {
        let pool = pool(256);
        let mut cx = Cx::new(&pool);
        let spec = FqSpec {
            limit,
            flow_limit,
            quantum: Some(quantum),
            initial_quantum: Some(initial_quantum),
            refill_delay: Duration::from_millis(refill),
            maxrate,
            horizon: Duration::from_millis(horizon),
            horizon_drop,
            orphan_mask,
            weights: [60_000, 20_000, 16_384],
            ..FqSpec::default()
        };
        let mut fq = fq(&spec, &pool);
        let mut model = Model {
            spec,
            flows: BTreeMap::new(),
            new: Default::default(),
            old: Default::default(),
            credits: [0; 3],
            turn: 0,
            throttled: BTreeSet::new(),
        };
        let (mut now, mut mark) = (MS, 0);
        for step in steps {
            match step {
                Step::Arrive(list, alike) => {
                    let (mut packets, mut taken) = (PacketList::new(), true);
                    let first = list[0];
                    for (bytes, priority, flow, delay) in list {
                        let (priority, flow) = match alike {
                            true => (first.1, first.2),
                            false => (priority, flow),
                        };
                        let mut packet = of_flow(&pool, bytes, flow, mark);
                        packet.set_priority(priority);
                        if delay > 0 {
                            packet.set_departure_time(Time(now + delay));
                        }
                        packets.push_back(packet);
                        let of_model = (mark, bytes as u64, priority, flow, now + delay);
                        taken &= model.enqueue(now, of_model);
                        mark += 1;
                    }
                    let verdict = fq.enqueue(&mut packets, cx.at(Time(now)));
                    cx.dropped.settle(&softnet::stats::DropCounters::new());
                    prop_assert_eq!(verdict == Verdict::Queued, taken);
                }
                Step::Wait(nanos) => now += nanos,
                Step::Leave(packets) => {
                    let mut out = PacketList::new();
                    fq.dequeue(packets, &mut out, cx.at(Time(now)));
                    let left: Vec<u32> = out.iter().map(Packet::mark).collect();
                    prop_assert_eq!(left, model.dequeue(now, packets));
                }
            }
            for band in 0..3 {
                let frames = fq.bands[band].len;
                prop_assert_eq!(frames, model.band_len(band) as u64);
                prop_assert!(frames <= limit.into());
            }
            let queued = model.flows.values().flat_map(|flow| &flow.packets);
            let bytes: u64 = queued.clone().map(|packet| packet.1).sum();
            prop_assert_eq!(fq.stats().qlen, queued.count() as u64);
            prop_assert_eq!(fq.stats().backlog, bytes);
            prop_assert_eq!(xstat(&fq, "throttled_flows"), model.throttled.len() as u64);
        }
    }
}
