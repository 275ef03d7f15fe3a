//! Limits, and parameters that change under load.

use softnet::testing::Random;

use super::*;

/// BUG-FQ-6, INV-Q-6: the limit is that of each band; a flow has one of its own.
#[test]
fn bug_fq_6_limits_are_by_band_and_by_flow() {
    let pool = pool(128);
    let mut cx = Cx::new(&pool);
    let spec = FqSpec {
        limit: 20,
        flow_limit: 8,
        ..FqSpec::default()
    };
    let mut fq = fq(&spec, &pool);
    for mark in 0..90 {
        let mut packet = of_flow(&pool, 100, mark % 9, mark);
        packet.set_priority([7, 0, 2][mark as usize % 3]);
        fq.enqueue(&mut packet.into(), cx.at(Time(MS)));
    }
    assert_eq!(fq.stats().qlen, 60);
    let drops = ["band0_drops", "band1_drops", "band2_drops"].map(|name| xstat(&fq, name));
    assert_eq!((drops, xstat(&fq, "flows_plimit")), ([10; 3], 0));
    let mut left = PacketList::new();
    fq.drain(&mut left);
    let mut list: PacketList = (0..10).map(|mark| of_flow(&pool, 100, 1, mark)).collect();
    assert_eq!(fq.enqueue(&mut list, cx.at(Time(MS))), Verdict::Dropped);
    assert_eq!((fq.stats().qlen, xstat(&fq, "flows_plimit")), (8, 2));
    assert_eq!(fq.stats().drops, 32);
}

/// Each band's excess over the limit, of its longest flows; those that lose all do not wait for
/// what is gone.
#[test]
fn a_lower_limit_drops_what_is_over_it() {
    let pool = pool(512);
    let mut cx = Cx::new(&pool);
    let mut fq = fq(&FqSpec::default(), &pool);
    let now = Time(MS);
    // Priority 2 is band 2, 6 is band 0.
    for (priority, flow, packets) in [(6, 0, 3), (2, 1, 60), (2, 2, 30), (2, 3, 2)] {
        for n in 0..packets {
            let mut packet = of_flow(&pool, 100, flow, flow * 100 + n);
            packet.set_priority(priority);
            if flow == 3 {
                packet.set_departure_time(Time(5 * SECOND));
            }
            fq.enqueue(&mut packet.into(), cx.at(now));
        }
    }
    // Those that wait for their time are found as they are due to be served.
    let mut out = PacketList::new();
    fq.dequeue(3, &mut out, cx.at(now));
    let lower = |limit| FqSpec {
        limit,
        ..FqSpec::default()
    };
    let marks = |fq: &mut Fq, cx: &mut Cx| -> Vec<u32> {
        let left = run(fq, MS, 2 * SECOND, cx);
        left.iter().map(|&(mark, _)| mark).collect()
    };
    fq.change(&lower(40), cx.at(now));
    let bands = [0, 1, 2].map(|band| fq.bands[band].len);
    assert_eq!((bands[2], fq.stats().qlen), (40, bands.iter().sum()));
    assert_eq!(xstat(&fq, "band2_drops"), fq.stats().drops);
    let drops = u64::from(cx.dropped.counts()[DropReason::QdiscLimit as usize]);
    assert_eq!((drops, drops + fq.stats().qlen), (fq.stats().drops, 92));
    // Both long ones have lost packets, the oldest of which stay.
    let left = marks(&mut fq, &mut cx);
    let of = |flow: u32| left.iter().filter(|&&mark| mark / 100 == flow).count();
    assert!(
        of(1) + of(2) == 38 && of(1).abs_diff(of(2)) <= 15,
        "{left:?}"
    );
    // Nothing stays, and what comes leaves at once.
    fq.change(&lower(0), cx.at(now));
    assert_eq!((fq.stats().qlen, xstat(&fq, "throttled_flows")), (0, 0));
    fq.change(&lower(10), cx.at(now));
    fq.enqueue(&mut of_flow(&pool, 100, 3, 7).into(), cx.at(Time(SECOND)));
    assert_eq!(leave(&mut fq, SECOND, &mut cx), Some(7));
}

/// INV-Q-10: another map, other weights and another mask while packets wait: nothing is lost, the
/// bands' lengths are right, and packets of a flow stay in order.
#[test]
fn parameters_change_under_load() {
    let pool = pool(512);
    let mut cx = Cx::new(&pool);
    let mut fq = fq(&FqSpec::default(), &pool);
    let mut random = Random(5);
    let mut last = [None; 16];
    let (mut mark, mut left) = (0, 0);
    for step in 0..3_000_u64 {
        let now = Time((step + 1) * MS);
        if fq.stats().qlen < 400 {
            let flow = random.below(16);
            let mut packet = of_flow(&pool, 60 + random.below(900) as usize, flow, mark);
            packet.set_priority(flow);
            fq.enqueue(&mut packet.into(), cx.at(now));
            mark += 1;
        }
        if step % 50 == 0 {
            let spec = FqSpec {
                priomap: std::array::from_fn(|_| random.below(3) as u8),
                orphan_mask: [15, 3, u32::MAX][random.below(3) as usize],
                ..FqSpec::default()
            };
            fq.change(&spec, cx.at(now));
        }
        let mut out = PacketList::new();
        fq.dequeue(random.below(3) as usize, &mut out, cx.at(now));
        for packet in &out {
            let seen = &mut last[packet.priority() as usize];
            assert!(seen.replace(packet.mark()) < Some(packet.mark()));
            left += 1;
        }
        let lens: u64 = fq.bands.iter().map(|band| band.len).sum();
        assert_eq!(
            (lens, u64::from(mark) - left),
            (fq.stats().qlen, fq.stats().qlen)
        );
    }
    assert_eq!(cx.dropped.wire_packets(), 0);
}

/// Another mask, with limits of flows and times below what waits: what was accepted stays.
#[test]
fn another_mask_drops_nothing() {
    let pool = pool(64);
    let mut cx = Cx::new(&pool);
    let mut fq = fq(&FqSpec::default(), &pool);
    for n in 0..40 {
        let mut packet = of_flow(&pool, 100, n % 8, n);
        if n % 3 == 0 {
            // Beyond the new horizon.
            packet.set_departure_time(Time(3 * SECOND));
        }
        fq.enqueue(&mut packet.into(), cx.at(Time(MS)));
    }
    let spec = FqSpec {
        flow_limit: 2,
        horizon: Duration::from_secs(1),
        orphan_mask: 1,
        ..FqSpec::default()
    };
    fq.change(&spec, cx.at(Time(2 * MS)));
    assert_eq!((fq.stats().qlen, fq.stats().drops), (40, 0));
    assert_eq!(xstat(&fq, "flows"), 2);
    assert_eq!(run(&mut fq, 2 * MS, 9 * SECOND, &mut cx).len(), 40);
    let mut late = of_flow(&pool, 100, 1, 40);
    late.set_departure_time(Time(30 * SECOND));
    fq.enqueue(&mut late.into(), cx.at(Time(9 * SECOND)));
    assert_eq!(fq.stats().drops, 1, "the new horizon");
}
