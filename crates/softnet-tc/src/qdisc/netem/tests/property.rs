//! `netem` with random parameters: each packet leaves at its time, or is counted.

use proptest::prelude::*;

use super::*;

/// Every number that a request can say.
fn any_spec() -> impl Strategy<Value = NetemSpec> {
    let chance = || prop_oneof![Just(0), Just(ALWAYS), any::<u32>()];
    let time = || prop_oneof![Just(0), 0..20 * MS, 0..=1_u64 << 53];
    let table = || {
        let numbers = proptest::collection::vec(any::<i16>(), 1..9);
        proptest::option::of(numbers.prop_map(|numbers| Distribution::new(numbers).unwrap()))
    };
    let model = prop_oneof![
        2 => Just(LossModel::Random),
        1 => [(); 5].map(|()| chance()).prop_map(LossModel::State),
        1 => [(); 4].map(|()| chance()).prop_map(LossModel::Gemodel),
    ];
    let loss = (chance(), chance(), model, any::<bool>());
    let delays = (time(), time(), chance(), table());
    let chances = (chance(), chance(), chance(), chance(), chance(), chance());
    let rate = (
        time(),
        any::<i32>(),
        prop_oneof![Just(0), any::<u32>()],
        any::<i32>(),
    );
    let slot = (
        time(),
        time(),
        time(),
        time(),
        0..5_u32,
        0..3000_u32,
        table(),
    );
    let rest = (0..40_u32, prop_oneof![0..4_u32, any::<u32>()], any::<u64>());
    (loss, delays, chances, rate, slot, rest).prop_map(
        |(loss, delays, chances, rate, slot, (limit, gap, seed))| NetemSpec {
            limit,
            delay: Duration::from_nanos(delays.0),
            jitter: Duration::from_nanos(delays.1.min(i32::MAX as u64)),
            delay_correlation: delays.2,
            distribution: delays.3,
            loss: loss.0,
            loss_correlation: loss.1,
            loss_model: loss.2,
            ecn: loss.3,
            duplicate: chances.0,
            duplicate_correlation: chances.1,
            corrupt: chances.2,
            corrupt_correlation: chances.3,
            reorder: chances.4,
            reorder_correlation: chances.5,
            gap,
            rate: rate.0.min(1_000_000_000_000),
            packet_overhead: rate.1,
            cell_size: rate.2,
            cell_overhead: rate.3,
            slot: SlotSpec {
                min: Duration::from_nanos(slot.0.min(slot.1)),
                max: Duration::from_nanos(slot.0.max(slot.1)),
                delay: Duration::from_nanos(slot.2),
                jitter: Duration::from_nanos(slot.3.min(i32::MAX as u64)),
                packets: slot.4,
                bytes: slot.5,
            },
            slot_distribution: slot.6,
            seed: Some(seed),
        },
    )
}

#[derive(Clone, Debug)]
enum Step {
    Enqueue(u32, bool),
    Dequeue(usize, u64),
    Change(Box<NetemSpec>),
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// Whatever the parameters, nothing is lost uncounted, a look says what comes, no wake-up is
    /// in the past, and after enough time all has left.
    #[test]
    fn nothing_is_lost_uncounted(
        spec in any_spec(),
        steps in proptest::collection::vec(prop_oneof![
            3 => (1..9_u32, any::<bool>()).prop_map(|(n, large)| Step::Enqueue(n, large)),
            3 => (0..9_usize, 0..30 * MS).prop_map(|(budget, wait)| Step::Dequeue(budget, wait)),
            1 => any_spec().prop_map(|spec| Step::Change(Box::new(spec))),
        ], 1..30),
    ) {
        let pool = pool(2048);
        let mut q = netem(spec);
        let mut cx = Cx::new(&pool);
        let (mut received, mut sent) = (0, 0);
        let counters = DropCounters::new();
        let mut now = Time(5);
        let step = |q: &mut AnyQdisc, cx: &mut Cx, budget: usize, sent: &mut u64| {
            let before = *q.stats();
            let peek = q.peek(cx.now);
            let mut out = PacketList::new();
            let next = q.dequeue(budget, &mut out, cx);
            *sent += out.wire_packets();
            match (peek, out.front()) {
                (Peek::Packet(size), Some(packet)) => {
                    assert_eq!(size.bytes, packet.wire_len());
                }
                (Peek::Packet(_), None) => assert_eq!(budget, 0),
                (Peek::Idle, _) => assert_eq!(before.qlen, 0),
                (Peek::At(time), _) => assert!(out.is_empty() && time > cx.now),
                (Peek::Unknown, _) => {}
            }
            if let Next::At(time) = next {
                assert!(time > cx.now);
            }
            assert_eq!(next == Next::Idle, q.stats().qlen == 0);
            next
        };
        for one in steps {
            match one {
                Step::Enqueue(count, is_large) => {
                    let one = |n| if is_large { large(&pool) } else { ip(&pool, 200, 2, n) };
                    let mut list: PacketList = (0..count).map(one).collect();
                    received += list.wire_packets();
                    q.enqueue(&mut list, cx.at(now));
                    let mut again = cx.reinject.take();
                    assert_eq!(std::mem::take(&mut cx.copied), again.wire_packets());
                    received += again.wire_packets();
                    q.enqueue(&mut again, &mut cx);
                    assert!(cx.reinject.is_empty());
                }
                Step::Dequeue(budget, wait) => {
                    now = now.plus_nanos(wait);
                    step(&mut q, cx.at(now), budget, &mut sent);
                }
                Step::Change(spec) => q.change(&QdiscSpec::Netem(*spec), cx.at(now)).unwrap(),
            }
            cx.dropped.settle(&counters);
            let stats = q.stats();
            prop_assert_eq!(received, sent + counters.total() + stats.queued);
            prop_assert_eq!(sent, stats.packets);
        }
        // Then without slots, which might be for ever.
        q.change(&QdiscSpec::Netem(delay(0)), cx.at(now)).unwrap();
        let mut rounds = 0;
        loop {
            match step(&mut q, cx.at(now), 64, &mut sent) {
                Next::Idle => break,
                Next::Ready => {}
                Next::At(time) => now = time,
            }
            rounds += 1;
            assert!(rounds < 1000);
        }
        prop_assert_eq!(received, sent + counters.total());
        prop_assert_eq!(q.stats().backlog, 0);
        drop(q);
        prop_assert_eq!(pool.stats().free, 2048);
    }
}

/// By the times: those that came in order are a queue, the others a heap.
#[test]
fn packets_are_sorted_by_their_times() {
    let pool = pool(256);
    let mut queue = TimeQueue::default();
    let mut random = softnet::testing::Random(5);
    let mut expected = Vec::new();
    for n in 0..256_u32 {
        let time = u64::from(random.below(100)) + u64::from(n) / 4;
        queue.push(time, packet(&pool, 60, 0, n));
        expected.push((time, n));
        if n % 3 == 0 {
            expected.sort_by_key(|&(time, _)| time);
            let first = queue.first().map(|(time, _)| time);
            assert_eq!(first, Some(expected[0].0));
            let left = queue.pop().unwrap();
            let at = expected
                .iter()
                .position(|&(_, n)| n == left.mark())
                .unwrap();
            assert_eq!(expected.remove(at).0, first.unwrap());
        }
    }
    let mut last = 0;
    while let Some((time, _)) = queue.first() {
        assert!(time >= last);
        last = time;
        let left = queue.pop().unwrap().mark();
        let at = expected.iter().position(|&(_, n)| n == left).unwrap();
        assert_eq!(expected.remove(at).0, time);
    }
    assert!(expected.is_empty());
}
