//! Rates of flows and times of departure.

use softnet::wire::traffic_class;

use super::*;

/// Flows are held to `maxrate`, each by itself, exactly in the long run; at a low rate packet by
/// packet, else a quantum at a time.
#[test]
fn flows_are_paced() {
    let pool = pool(256);
    let mut cx = Cx::new(&pool);
    for (rate, burst) in [(1_000_000, 15_140 + 3028), (50_000, 1000)] {
        let spec = FqSpec {
            maxrate: Some(rate),
            timer_slack: Duration::ZERO,
            ..FqSpec::default()
        };
        let mut fq = fq(&spec, &pool);
        let mut list: PacketList = (0..200).map(|n| of_flow(&pool, 1000, n % 2, n)).collect();
        fq.enqueue(&mut list, cx.at(Time(MS)));
        let left = run(&mut fq, MS, 100 * SECOND, &mut cx);
        assert_eq!(left.len(), 200);
        for flow in 0..2 {
            let own: Vec<u64> = left
                .iter()
                .filter(|(n, _)| n % 2 == flow)
                .map(|p| p.1)
                .collect();
            let end = own[99] - MS;
            let exact = (100_000 - burst) * SECOND / rate;
            assert!(
                end.abs_diff(exact) <= 3028 * SECOND / rate,
                "{rate}: {end} {exact}"
            );
            // In each window what its time allows, the first credit and a packet.
            for (i, &start) in own.iter().enumerate() {
                for (j, &time) in own.iter().enumerate().skip(i) {
                    let allowed = rate * (time - start) / SECOND + burst + 3028;
                    assert!((j - i) as u64 * 1000 <= allowed);
                }
            }
        }
    }
}

/// With `pacing` off, `maxrate` means nothing.
#[test]
fn pacing_can_be_turned_off() {
    let pool = pool(64);
    let mut cx = Cx::new(&pool);
    let spec = FqSpec {
        maxrate: Some(1000),
        pacing: false,
        ..FqSpec::default()
    };
    let mut fq = fq(&spec, &pool);
    let mut list: PacketList = (0..50).map(|n| of_flow(&pool, 1000, 1, n)).collect();
    fq.enqueue(&mut list, cx.at(Time(MS)));
    assert_eq!(run(&mut fq, MS, MS + 1, &mut cx).len(), 50);
}

/// A departure time is kept, with the slack of the timer; of a flow the packet that is due first
/// leaves first.
#[test]
fn packets_leave_at_their_time() {
    let pool = pool(64);
    let mut cx = Cx::new(&pool);
    let mut fq = fq(&FqSpec::default(), &pool);
    for (mark, flow, time) in [(0, 1, 5), (1, 2, 0), (2, 1, 3), (3, 1, 9), (4, 2, 7)] {
        let mut packet = of_flow(&pool, 100, flow, mark);
        packet.set_departure_time(Time(time * MS));
        fq.enqueue(&mut packet.into(), cx.at(Time(MS)));
    }
    let left = run(&mut fq, MS, SECOND, &mut cx);
    let slack = 10_000;
    let late = |time: u64| time * MS + slack;
    let expected = [
        (1, MS),
        (2, late(3)),
        (0, late(5)),
        (4, late(7)),
        (3, late(9)),
    ];
    assert_eq!(left, expected);
    assert_eq!(
        (xstat(&fq, "throttled"), xstat(&fq, "throttled_flows")),
        (4, 0)
    );
    assert_eq!(fq.stats().qlen, 0);
}

/// A flow that is held back stays so for an earlier packet, which then leaves in front
/// (`fq_flow_set_throttled`). What has no departure time is due when it came.
#[test]
fn an_earlier_packet_goes_in_front() {
    let pool = pool(64);
    let mut cx = Cx::new(&pool);
    let mut fq = fq(&FqSpec::default(), &pool);
    let mut push = |fq: &mut Fq, mark, time, now| {
        let mut packet = of_flow(&pool, 100, 1, mark);
        if time > 0 {
            packet.set_departure_time(Time(time * MS));
        }
        fq.enqueue(&mut packet.into(), cx.at(Time(now * MS)));
    };
    push(&mut fq, 0, 9, 1);
    let mut other = Cx::new(&pool);
    assert_eq!(leave(&mut fq, MS, &mut other), None);
    for (mark, time, now) in [(1, 3, 2), (2, 0, 2), (3, 3, 2), (4, 9, 3), (5, 1, 3)] {
        push(&mut fq, mark, time, now);
    }
    assert_eq!(leave(&mut fq, 4 * MS, &mut other), None);
    let left = run(&mut fq, 9 * MS, SECOND, &mut other);
    let marks: Vec<u32> = left.iter().map(|&(mark, _)| mark).collect();
    assert_eq!(marks, [5, 2, 1, 3, 0, 4]);
    assert!(fq.last.is_empty());
}

/// A sender that read the clock before another one enqueued takes the other's packets along: they
/// have no departure time to wait for.
#[test]
fn an_older_reading_of_the_clock_holds_nothing_up() {
    let pool = pool(8);
    let mut cx = Cx::new(&pool);
    let mut fq = fq(&FqSpec::default(), &pool);
    fq.enqueue(&mut of_flow(&pool, 100, 1, 0).into(), cx.at(Time(2 * MS)));
    assert_eq!(leave(&mut fq, MS, &mut cx), Some(0));
    assert_eq!(xstat(&fq, "throttled"), 0);
}

/// The time that another thread noted on a packet's arrival is no departure time, though that
/// thread read the clock later: with no horizon at all, nothing is dropped.
#[test]
fn a_later_arrival_is_no_departure_time() {
    let pool = pool(8);
    let mut cx = Cx::new(&pool);
    let spec = FqSpec {
        horizon: Duration::ZERO,
        ..FqSpec::default()
    };
    let mut fq = fq(&spec, &pool);
    let mut packet = of_flow(&pool, 100, 1, 0);
    packet.set_timestamp(Time(MS + 500));
    assert_eq!(
        fq.enqueue(&mut packet.into(), cx.at(Time(MS))),
        Verdict::Queued
    );
    assert_eq!(leave(&mut fq, MS, &mut cx), Some(0));
    assert_eq!(xstat(&fq, "throttled"), 0);
}

/// A time beyond the horizon: dropped, or brought to the horizon.
#[test]
fn the_horizon() {
    let pool = pool(64);
    let mut cx = Cx::new(&pool);
    for horizon_drop in [true, false] {
        let spec = FqSpec {
            horizon: Duration::from_secs(1),
            horizon_drop,
            timer_slack: Duration::ZERO,
            ..FqSpec::default()
        };
        let mut fq = fq(&spec, &pool);
        for (mark, time) in [(0, SECOND + MS), (1, SECOND + MS + 1)] {
            let mut packet = of_flow(&pool, 100, mark, mark);
            packet.set_departure_time(Time(time));
            fq.enqueue(&mut packet.into(), cx.at(Time(MS)));
        }
        let left = run(&mut fq, MS, 2 * SECOND, &mut cx);
        let expected = [(0, SECOND + MS), (1, SECOND + MS)];
        assert_eq!(left[..], expected[..if horizon_drop { 1 } else { 2 }]);
        let counts = (xstat(&fq, "horizon_drops"), xstat(&fq, "horizon_caps"));
        assert_eq!(counts, if horizon_drop { (1, 0) } else { (0, 1) });
    }
    assert_eq!(cx.dropped.counts()[DropReason::FqHorizonLimit as usize], 1);
}

/// Packets that leave much later than due are marked.
#[test]
fn late_packets_are_marked() {
    let pool = pool(64);
    let mut cx = Cx::new(&pool);
    let spec = FqSpec {
        ce_threshold: Some(Duration::from_millis(2)),
        ..FqSpec::default()
    };
    let mut fq = fq(&spec, &pool);
    for (mark, time) in [(0, 1), (1, 2), (2, 1), (3, 1)] {
        let mut packet = ip(&pool, 100, if mark == 2 { 0 } else { 1 }, mark);
        packet.set_flow_hash(mark);
        packet.set_departure_time(Time(time * MS));
        fq.enqueue(&mut packet.into(), cx.at(Time(MS)));
    }
    let mut out = PacketList::new();
    fq.dequeue(1, &mut out, cx.at(Time(3 * MS)));
    fq.dequeue(9, &mut out, cx.at(Time(3 * MS + 1)));
    let marked: Vec<_> = out
        .iter()
        .map(|packet| (packet.mark(), traffic_class(packet.data())))
        .collect();
    assert_eq!(
        marked,
        [(0, Some(1)), (1, Some(1)), (2, Some(0)), (3, Some(3))]
    );
    assert_eq!(xstat(&fq, "ce_mark"), 1);
}

/// A packet whose time is past as it comes was due then.
#[test]
fn a_past_departure_time_counts_for_marks() {
    let pool = pool(4);
    let mut cx = Cx::new(&pool);
    let spec = FqSpec {
        ce_threshold: Some(Duration::from_millis(2)),
        ..FqSpec::default()
    };
    for (time, class) in [(2 * MS, 1), (2 * MS - 1, 3)] {
        let mut fq = fq(&spec, &pool);
        let mut packet = ip(&pool, 100, 1, 0);
        packet.set_departure_time(Time(time));
        fq.enqueue(&mut packet.into(), cx.at(Time(4 * MS)));
        let mut out = PacketList::new();
        fq.dequeue(1, &mut out, cx.at(Time(4 * MS)));
        let class_of = |packet: &Packet| traffic_class(packet.data());
        assert_eq!(out.front().and_then(class_of), Some(class));
    }
}

/// `maxrate` holds for each packet with a departure time, and for others a quantum at a time.
#[test]
fn packets_with_a_departure_time_are_paced_one_by_one() {
    let pool = pool(8);
    let mut cx = Cx::new(&pool);
    let spec = FqSpec {
        maxrate: Some(1_000_000),
        timer_slack: Duration::ZERO,
        ..FqSpec::default()
    };
    for (timed, times) in [(true, [2, 3, 4]), (false, [2, 2, 2])] {
        let mut fq = fq(&spec, &pool);
        for mark in 0..3 {
            let mut packet = of_flow(&pool, 1000, 1, mark);
            if timed {
                packet.set_departure_time(Time(2 * MS));
            }
            fq.enqueue(&mut packet.into(), cx.at(Time(MS)));
        }
        let left = run(&mut fq, 2 * MS, SECOND, &mut cx);
        let left: Vec<u64> = left.iter().map(|&(_, time)| time / MS).collect();
        assert_eq!(left, times);
    }
}

/// However many flows are due at once, a call brings back as many as packets are asked for.
#[test]
fn a_call_takes_a_bounded_number_of_flows_from_the_heap() {
    let pool = pool(512);
    let mut cx = Cx::new(&pool);
    let mut fq = fq(&by_whole_hash(), &pool);
    for flow in 0..400 {
        let mut packet = of_flow(&pool, 60, flow, flow);
        packet.set_departure_time(Time(2 * MS));
        fq.enqueue(&mut packet.into(), cx.at(Time(MS)));
    }
    let mut out = PacketList::new();
    let next = fq.dequeue(64, &mut out, cx.at(Time(MS)));
    assert_eq!(next, Next::At(Time(2 * MS + 10_000)));
    assert_eq!(fq.dequeue(64, &mut out, cx.at(Time(3 * MS))), Next::Ready);
    assert_eq!((out.len(), xstat(&fq, "throttled_flows")), (64, 400 - 64));
    assert_eq!(run(&mut fq, 3 * MS, 3 * MS + 1, &mut cx).len(), 400 - 64);
}
