//! Rates that `police` lets pass.

use super::*;

/// A bucket of two packets, and one more each millisecond.
#[test]
fn police_lets_pass_what_the_rate_allows() {
    let pool = pool(4);
    let list = filters(list(&[
        "police rate 8mbit burst 2000 conform-exceed drop/pass",
    ]));
    let filters = list.filters();
    let mut cx = Cx::new(&pool);
    let mut send = |now: u64, len| {
        let mut packet = frame(&pool, 1, 2, len, 0);
        cx.now = Time(1_000_000_000 + now);
        filters.classify(&mut packet, &mut cx) == CLASS
    };
    let sent = [0, 0, 0, 999_999, 1_000_000, 1_000_000, 9_000_000].map(|now| send(now, 1000));
    assert_eq!(sent, [true, true, false, false, true, false, true]);
    let (packets, bytes, drops, over) = counts(&list, 0);
    assert_eq!((packets, bytes, drops, over), (7, 7000, 3, 3));
}

/// A packet that goes through it again and again is counted and charged each time.
#[test]
fn police_that_repeats_ends_with_its_tokens() {
    let pool = pool(4);
    let list = filters(list(&[
        "police rate 8mbit burst 1000 conform-exceed drop/repeat",
        "mirred egress redirect dev eth9",
    ]));
    let (classified, ..) = run(&pool, &list, frame(&pool, 1, 2, 100, 0));
    assert!(matches!(classified, Classified::Drop(_)), "{classified:?}");
    assert_eq!(counts(&list, 0), (11, 1100, 1, 1));
    assert_eq!(counts(&list, 1), (0, 0, 0, 0));
}

/// However packets lie in time, as many pass as if each had been drawn by itself.
#[test]
fn police_of_one_filter_is_exact() {
    let pool = pool(4);
    // In advance an instance has 200 bytes at most, or an eighth of the burst.
    for (rate, nanos) in [("8mbit", 1000), ("8gbit", 1)] {
        let text = format!("police rate {rate} burst 20000 conform-exceed drop/pass");
        let one = filters(list(&[text.as_str()]));
        let filters = one.filters();
        let mut cx = Cx::new(&pool);
        let (mut tokens, mut passed, mut dropped) = (20_000_u64, 0, 0);
        let mut now = 1_000_000_000;
        for n in 0..3000_u64 {
            // Batches of 1 to 7 packets, and now and then a long pause, in which the bucket fills.
            let batch = 1 + n % 7;
            let earned = if n % 500 == 0 { 30_000 } else { 100 * (n % 11) };
            now += earned * nanos;
            tokens = (tokens + earned).min(20_000);
            for packet in 0..batch {
                let len = 60 + (n * 37 + packet * 411) % 1400;
                let passes = tokens >= len;
                tokens -= if passes { len } else { 0 };
                cx.now = Time(now);
                let mut packet = frame(&pool, 1, 2, len as usize, 0);
                let found = filters.classify(&mut packet, &mut cx);
                assert_eq!(found == CLASS, passes, "{rate}: batch {n}");
                (passed, dropped) = (passed + u32::from(passes), dropped + u32::from(!passes));
            }
        }
        assert!(passed > 100 && dropped > 100, "{passed} {dropped}");
    }
}

/// Tokens that a filter has drawn in advance are there for others when it is removed.
#[test]
fn a_filter_that_goes_gives_back_what_it_has() {
    let pool = pool(4);
    let mut table = ActionTable::default();
    // 10,000 bytes in advance.
    let spec = parse("police rate 8gbit burst 80000 conform-exceed drop/pass index 4");
    let action = table.add(spec, true, Time(1)).unwrap();
    let mut cx = Cx::new(&pool);
    cx.now = Time(1_000_000_000);
    let mut passed = |packets: usize| {
        let list = list_of(&action);
        let filters = list.filters();
        let one = |_: &usize| {
            let mut packet = frame(&pool, 1, 2, 100, 0);
            filters.classify(&mut packet, &mut cx) == CLASS
        };
        (0..packets).filter(one).count()
    };
    assert_eq!([passed(1), passed(10), passed(1000)], [1, 10, 789]);
}

/// An instance that has no more packets keeps what it has from the others once, not again and
/// again.
#[test]
fn who_is_idle_keeps_little_from_others() {
    let pool = pool(4);
    let mut table = ActionTable::default();
    // 200 bytes in advance.
    let spec = parse("police rate 8mbit burst 20000 conform-exceed drop/pass index 4");
    let action = table.add(spec, true, Time(1)).unwrap();
    let lists = [0, 1].map(|_| list_of(&action));
    let [idle, other] = lists.each_ref().map(FilterList::filters);
    let mut cx = Cx::new(&pool);
    cx.now = Time(1_000_000_000);
    let mut packet = frame(&pool, 1, 2, 100, 0);
    assert_eq!(idle.classify(&mut packet, &mut cx), CLASS);
    // Twice the rate, for a second each.
    let mut second = |n: u64| {
        let passes = |n: &u64| {
            cx.now = Time(1_000_000_000 + n * 50_000);
            other.classify(&mut packet, &mut cx) == CLASS
        };
        (n * 20_000..(n + 1) * 20_000).filter(passes).count() * 100
    };
    let seconds = [second(0), second(1), second(2)];
    // The burst without 100 bytes that were sent and 200 that the idle one has.
    assert!((1_019_200..=1_019_700).contains(&seconds[0]), "{seconds:?}");
    assert!((999_600..=1_000_400).contains(&seconds[1]), "{seconds:?}");
    assert!((999_600..=1_000_400).contains(&seconds[2]), "{seconds:?}");
}

/// Two threads, each of which offers twice the rate for half a second, by clocks of their own:
/// whichever runs when, together they let pass the rate and the burst.
#[test]
fn two_threads_have_one_rate() {
    let pool = pool(4);
    let mut table = ActionTable::default();
    let spec = parse("police rate 800mbit burst 100000 conform-exceed drop/pass index 4");
    let action = table.add(spec, true, Time(1)).unwrap();
    let lists = [0, 1].map(|_| list_of(&action));
    let passed: usize = std::thread::scope(|scope| {
        let threads = lists.each_ref().map(|list| {
            let (filters, mut cx) = (list.filters(), Cx::new(&pool));
            let mut packet = frame(&pool, 1, 2, 1000, 0);
            scope.spawn(move || {
                let passes = |n: &u64| {
                    cx.now = Time(1_000_000_000 + n * 5000);
                    filters.classify(&mut packet, &mut cx) == CLASS
                };
                (0..100_000_u64).filter(passes).count() * 1000
            })
        });
        threads
            .map(|thread| thread.join().unwrap())
            .into_iter()
            .sum()
    });
    // The last packets come 499,995 us after the first.
    let all = 49_999_500 + 100_000;
    assert!(
        (all - all / 500..=all + 1).contains(&passed),
        "{passed} of {all}"
    );
}

/// Two filters in two instances share one bucket, exactly.
#[test]
fn a_shared_rate_is_one() {
    let pool = pool(4);
    let mut table = ActionTable::default();
    let spec = parse("police rate 8mbit burst 20000 conform-exceed drop/pass index 4");
    let action = table.add(spec, true, Time(1)).unwrap();
    assert_eq!((action.references(), action.binds()), (1, 0));
    let lists: Vec<FilterList> = (0..2).map(|_| list_of(&action)).collect();
    assert_eq!((action.references(), action.binds()), (3, 2));
    let mut cx = Cx::new(&pool);
    let mut passed = 0;
    // A hundredth of a second each, of 10000 bytes; twice as many are sent.
    for n in 0..20_000 {
        cx.now = Time(1_000_000_000 + n * 50_000 * 1000 / 1000);
        let mut packet = frame(&pool, 1, 2, 100, 0);
        let filters = lists[n as usize % 2].filters();
        passed += u64::from(filters.classify(&mut packet, &mut cx) == CLASS) * 100;
    }
    // One second at 1 MB/s, the burst, and what the two have drawn in advance.
    assert!((1_015_000..=1_020_001).contains(&passed), "{passed}");
    assert_eq!(action.stats().packets, 20_000);
    let mut lists = lists;
    lists.pop();
    assert_eq!((action.binds(), action.stats().packets), (1, 20_000));
    assert_eq!(table.delete("police", 4), Err(ActionError::Bound));
    assert_eq!(table.flush("police"), (0, true));
    drop(lists);
    assert_eq!(action.stats().packets, 20_000, "what is gone is counted");
    assert_eq!(table.flush("police"), (1, false));
    assert!(table.get("police", 4).is_none());
}

/// The average is one of all filters that have the action; what does not conform counts, too.
#[test]
fn an_average_rate_is_one() {
    let pool = pool(4);
    let mut table = ActionTable::default();
    let seconds = |n: u64| Time(n * 1_000_000_000);
    assert_eq!(table.sample_rates(seconds(4)), None);
    // 1000 bytes a second; half of the average is the latest second.
    let spec = parse("police avrate 8kbit conform-exceed drop/pass index 4 estimator 1s 2s");
    let action = table.add(spec, true, Time(1)).unwrap();
    let lists: Vec<FilterList> = (0..2).map(|_| list_of(&action)).collect();
    let mut cx = Cx::new(&pool);
    let mut send = |packets: usize| {
        let one = |n: &usize| {
            let mut packet = frame(&pool, 1, 2, 100, 0);
            lists[n % 2].filters().classify(&mut packet, &mut cx) == CLASS
        };
        (0..packets).filter(one).count()
    };
    let rate = |bytes, packets| Some(crate::Rate { bytes, packets });
    assert_eq!(table.sample_rates(seconds(5)), Some(seconds(6)));
    assert_eq!((send(10), action.rate()), (10, rate(0, 0)));
    assert_eq!(table.sample_rates(seconds(6)), Some(seconds(7)));
    assert_eq!((send(20), action.rate()), (20, rate(500, 5)));
    assert_eq!(table.sample_rates(Time(6_999_999_999)), Some(seconds(7)));
    assert_eq!((send(0), action.rate()), (0, rate(500, 5)));
    // (500 + 2000) / 2
    assert_eq!(table.sample_rates(seconds(7)), Some(seconds(8)));
    assert_eq!((send(10), action.rate()), (0, rate(1250, 12)));
    assert_eq!(table.sample_rates(seconds(8)), Some(seconds(9)));
    assert_eq!((send(1), action.rate().map(|r| r.bytes)), (0, Some(1125)));
    assert_eq!(table.sample_rates(seconds(9)), Some(seconds(10)));
    assert_eq!((send(1), action.rate().map(|r| r.bytes)), (1, Some(612)));
    let stats = action.stats();
    assert_eq!((stats.packets, stats.drops, stats.overlimits), (42, 11, 11));
    let changed = table.change(parse("police mtu 1500 index 4"), seconds(9));
    assert_eq!(changed.unwrap().rate(), None);
    assert_eq!(table.sample_rates(seconds(10)), None);
}

/// Bytes that filters drew in advance are no packets.
#[test]
fn credit_ends_with_the_unit_of_a_rate() {
    let pool = pool(4);
    let mut table = ActionTable::default();
    let bytes = parse("police rate 8gbit burst 1m conform-exceed drop/pass index 4");
    let action = table.add(bytes, true, Time(1)).unwrap();
    let mut lists: Vec<FilterList> = (0..2).map(|_| list_of(&action)).collect();
    let mut cx = Cx::new(&pool);
    cx.now = Time(1_000_000_000);
    let send = |lists: &[FilterList], cx: &mut Cx| {
        let one = |n: &usize| {
            let mut packet = frame(&pool, 1, 2, 100, 0);
            lists[n % 2].filters().classify(&mut packet, cx) == CLASS
        };
        (0..100_usize).filter(one).count()
    };
    assert_eq!(send(&lists, &mut cx), 100);
    let packets = parse("police pkts_rate 1 pkts_burst 3 conform-exceed drop/pass index 4");
    let action = table.change(packets, cx.now).unwrap();
    assert!(lists.iter_mut().all(|list| list.refresh(&action)));
    assert_eq!(send(&lists, &mut cx), 3);
    assert_eq!((action.stats().packets, action.stats().drops), (200, 97));
}

/// A rate is of what counts; `mtu` is of frames with their Ethernet header
/// (`tcf_police_mtu_check`).
#[test]
fn police_counts_what_arrives_without_its_ethernet_header() {
    let pool = pool(4);
    let passed = |arriving, text: &str, gso| {
        let list = filters(list(&[text]));
        let filters = list.filters();
        let mut cx = Cx::new(&pool);
        (cx.now, cx.arriving) = (Time(1_000_000_000), arriving);
        let one = |_: &usize| {
            let mut packet = frame(&pool, 1, 2, 1014, 0);
            packet.set_gso(gso);
            filters.classify(&mut packet, &mut cx) == CLASS
        };
        (0..3).filter(one).count()
    };
    let rate = "police rate 8mbit burst 2010 conform-exceed drop/pass";
    assert_eq!(
        (passed(true, rate, None), passed(false, rate, None)),
        (2, 1)
    );
    // Three packets of 320 bytes, with 54 bytes of headers.
    let large = wire::Gso {
        kind: wire::GsoKind::TcpV4,
        ecn: false,
        size: 320,
        segments: 3,
        header_len: 54,
    };
    for (gso, longest) in [(None, 1014), (Some(large), 374)] {
        for arriving in [true, false] {
            let mtu = |mtu| format!("police mtu {mtu} conform-exceed drop/pass");
            assert_eq!(passed(arriving, &mtu(longest), gso), 3);
            assert_eq!(passed(arriving, &mtu(longest - 1), gso), 0);
        }
    }
    let rate = "police rate 8mbit burst 3250 conform-exceed drop/pass";
    // 3 * (54 + 320 - 14) bytes, and 3 * (54 + 320).
    let large = Some(large);
    assert_eq!(
        (passed(true, rate, large), passed(false, rate, large)),
        (3, 2)
    );
}
