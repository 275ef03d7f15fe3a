//! Effects of actions on packets, their counts, and their words.

use softnet::mem::Pool;
use softnet::qdisc::To;
use softnet::testing::{frame, pool};
use softnet::time::Time;

use super::*;
use crate::filter::{Classified, FilterKind, FilterList, FilterOp, FilterSpec};
use crate::handle::Handle;

fn parse(text: &str) -> ActionSpec {
    text.parse()
        .unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn list(texts: &[&str]) -> ActionList {
    texts.iter().map(|text| Action::new(parse(text))).collect()
}

/// One filter for all packets, with these actions.
fn filters(actions: ActionList) -> FilterList {
    let mut list = FilterList::default();
    let filter = FilterSpec {
        actions,
        ..FilterSpec::new(FilterKind::Matchall, Handle::new(1, 1))
    };
    list.put(FilterOp::Add, filter).unwrap();
    list
}

fn counts(list: &FilterList, at: usize) -> (u64, u64, u64, u64) {
    let (spec, _) = list.shown().next().unwrap();
    let stats = spec.actions.as_slice()[at].stats();
    (stats.packets, stats.bytes, stats.drops, stats.overlimits)
}

/// The fate of a packet, and the packet.
fn run(pool: &Pool, list: &FilterList, mut packet: Packet) -> (Classified, Packet, Cx) {
    let mut cx = Cx::new(pool);
    cx.now = Time(5_000_000_000);
    let classified = list.filters().classify(&mut packet, &mut cx);
    (classified, packet, cx)
}

/// A frame with this EtherType and these bytes behind it.
fn packet(pool: &Pool, ethertype: u16, behind: &[u8]) -> Packet {
    let mut packet = pool.alloc().unwrap();
    assert!(packet.append(&[2, 0, 0, 0, 0, 0xB, 2, 0, 0, 0, 0, 0xA]));
    assert!(packet.append(&ethertype.to_be_bytes()));
    assert!(packet.append(behind));
    packet
}

/// UDP over IPv4, with wrong checksums.
fn udp(pool: &Pool) -> Packet {
    let mut bytes = vec![0x45, 0xb8, 0, 32, 0, 1, 0, 0, 64, 17, 0xAA, 0xBB];
    bytes.extend([
        10, 0, 0, 1, 10, 0, 0, 2, 0x13, 0x88, 0, 53, 0, 12, 0x12, 0x34,
    ]);
    bytes.extend([1, 2, 3, 4]);
    packet(pool, 0x0800, &bytes)
}

const CLASS: Classified = Classified::Class(Handle::new(1, 1));

#[test]
fn words_are_read_as_they_are_written() {
    for (text, written) in [
        ("pass", "pass"),
        ("ok", "pass"),
        ("gact goto chain 7 index 3", "goto chain 7 index 3"),
        ("jump 2", "jump 2"),
        ("drop random determ pass 4", "drop random determ pass 4"),
        (
            "police rate 1mbit burst 10k",
            "police rate 125000bps burst 10240 conform-exceed reclassify/pass",
        ),
        (
            "police pkts_rate 1000 pkts_burst 10 conform-exceed drop/pipe",
            "police pkts_rate 1000 pkts_burst 10 conform-exceed drop/pipe",
        ),
        (
            "police rate 8kbit burst 1k mtu 1500 peakrate 16kbit linklayer atm overhead 10 drop",
            "police rate 1000bps peakrate 2000bps burst 1024 mtu 1500 overhead 10 linklayer atm conform-exceed drop/pass",
        ),
        (
            "police avrate 1mbit conform-exceed drop/pass cookie a1 estimator 1sec 8sec",
            "police avrate 125000bps conform-exceed drop/pass estimator 1s 8s cookie a1",
        ),
        ("pass estimator 250ms 1s", "pass estimator 250ms 1s"),
        (
            "mirred egress redirect dev ifb0",
            "mirred egress redirect dev ifb0",
        ),
        (
            "mirred ingress mirror blockid 3 drop",
            "mirred ingress mirror blockid 3 drop",
        ),
        (
            "skbedit mark 5/0xf priority 1:2 queue_mapping 3",
            "skbedit queue_mapping 3 priority 1:2 mark 0x5/0xf",
        ),
        (
            "skbedit ptype host inheritdsfield pass",
            "skbedit ptype host inheritdsfield pass",
        ),
        (
            "vlan push id 5 protocol 802.1ad priority 3",
            "vlan push id 5 protocol 0x88a8 priority 3",
        ),
        (
            "vlan push_eth dst_mac 2:0:0:0:0:1 src_mac 02:00:00:00:00:02",
            "vlan push_eth dst_mac 02:00:00:00:00:01 src_mac 02:00:00:00:00:02",
        ),
        (
            "pedit ex munge ip offset 8 set 0x3f000000/0x00ffffff pipe",
            "pedit ex munge ip offset 8 set 0x3f000000/0x00ffffff pipe",
        ),
        (
            "pedit munge offset 0 at 3 0xf 2 set 1/0",
            "pedit munge network offset 0 at 3 0xf 2 set 0x00000001/0x00000000",
        ),
        ("csum ip4h and udp pipe", "csum ip4h udp pipe"),
        (
            "skbmod set dmac 2:0:0:0:0:9 swap mac",
            "skbmod set dmac 02:00:00:00:00:09 swap mac",
        ),
        (
            "simple sdata \"a b\" cookie a1b2",
            "simple sdata \"a b\" cookie a1b2",
        ),
    ] {
        let spec = parse(text);
        assert_eq!(spec.to_string(), written);
        if !written.contains("network") {
            assert_eq!(parse(written), spec);
        }
    }
    for (text, part) in [
        ("", "is no action"),
        ("fly", "is no action"),
        ("pass twice", "gact has no option"),
        ("police", "needs a rate"),
        ("police avrate 1mbit", "needs an estimator"),
        ("pass estimator 1s", "estimator lacks its value"),
        ("pass estimator 1s 1s", "average must be longer"),
        (
            "police rate 1mbit pkts_rate 5",
            "not allowed in same action",
        ),
        (
            "police rate 1mbit burst 1k conform-exceed drop/goto:3",
            "goto chain not allowed",
        ),
        (
            "drop random determ goto chain 4 5",
            "goto chain not allowed",
        ),
        ("vlan push id 4095", "below 4095"),
        ("vlan modify", "needs an id"),
        ("pedit munge offset 2 set 1/1", "32bit boundaries"),
        ("pedit", "1 to 255 keys"),
        ("skbedit", "something to edit"),
        ("skbedit queue_mapping skbhash 5 3", "ends before its start"),
        ("csum", "needs ip4h"),
        ("skbmod", "something to change"),
        ("goto chain 268435456", "exceeds upper limit"),
        (
            "simple sdata \"12345678901234567890123456789012\"",
            "31 bytes",
        ),
        ("mirred egress redirect", "needs dev or blockid"),
    ] {
        let error = text.parse::<ActionSpec>().expect_err(text).to_string();
        assert!(error.contains(part), "{text}: {error}");
    }
}

#[test]
fn lists_are_gone_through_with_pipes_and_jumps() {
    let pool = pool(8);
    for (actions, expected, seen) in [
        (&["pipe", "pipe"][..], CLASS, [1, 1, 0]),
        (&["pass", "drop"], CLASS, [1, 0, 0]),
        (&["jump 2", "drop", "pass"], CLASS, [1, 0, 1]),
        (&["jump 3", "drop", "drop"], CLASS, [1, 0, 0]),
        (&["jump 4", "drop", "drop"], CLASS, [1, 0, 0]),
        (&["pipe", "jump 1"], CLASS, [1, 32, 0]),
        (&["repeat"], CLASS, [32, 0, 0]),
        (&["stolen"], Classified::Consumed, [1, 0, 0]),
        (&["trap"], Classified::Consumed, [1, 0, 0]),
    ] {
        let list = filters(list(actions));
        let (classified, ..) = run(&pool, &list, frame(&pool, 1, 2, 60, 0));
        assert_eq!(classified, expected, "{actions:?}");
        for (n, seen) in seen.into_iter().enumerate().take(actions.len()) {
            assert_eq!(counts(&list, n).0, seen, "{actions:?}");
        }
    }
    // The list of 33 is cut.
    let many: ActionList = (0..40).map(|_| Action::from(Control::Pipe)).collect();
    assert_eq!(many.as_slice().len(), ActionList::MAX);
}

/// One of four, each fourth packet; and by chance about as many.
#[test]
fn some_packets_go_another_way() {
    let pool = pool(4);
    let dropped = |text: &str| {
        let list = filters(list(&[text]));
        for _ in 0..4000 {
            run(&pool, &list, frame(&pool, 1, 2, 60, 0));
        }
        counts(&list, 0).2
    };
    assert_eq!(dropped("pass random determ drop 4"), 1000);
    assert!((800..1200).contains(&dropped("pass random netrand drop 4")));
}

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

/// However packets lie in time, as many pass as if each had been drawn by itself.
#[test]
fn police_of_one_filter_is_exact() {
    let pool = pool(4);
    let list = filters(list(&[
        "police rate 8mbit burst 20000 conform-exceed drop/pass",
    ]));
    let filters = list.filters();
    let mut cx = Cx::new(&pool);
    let (mut tokens, mut passed, mut dropped) = (20_000_u64, 0, 0);
    let mut now = 1_000_000_000;
    for n in 0..3000_u64 {
        // 1 byte in each microsecond; batches of 1 to 7 packets, and now and then a long pause.
        let batch = 1 + n % 7;
        let pause = if n % 500 == 0 { 30_000 } else { 100 * (n % 11) };
        now += pause * 1000;
        tokens = (tokens + pause).min(20_000);
        for packet in 0..batch {
            let len = 60 + (n * 37 + packet * 411) % 1400;
            let passes = tokens >= len;
            tokens -= if passes { len } else { 0 };
            cx.now = Time(now);
            let mut packet = frame(&pool, 1, 2, len as usize, 0);
            let found = filters.classify(&mut packet, &mut cx);
            assert_eq!(found == CLASS, passes, "batch {n}");
            (passed, dropped) = (passed + u32::from(passes), dropped + u32::from(!passes));
        }
    }
    assert!(passed > 100 && dropped > 100, "{passed} {dropped}");
}

/// Two filters in two instances share one bucket, exactly.
#[test]
fn a_shared_rate_is_one() {
    let pool = pool(4);
    let mut table = ActionTable::default();
    let spec = parse("police rate 8mbit burst 20000 conform-exceed drop/pass index 4");
    let action = table.add(spec, true, Time(1)).unwrap();
    assert_eq!((action.references(), action.binds()), (1, 0));
    let lists: Vec<FilterList> = (0..2)
        .map(|_| filters([action.clone()].into_iter().collect()))
        .collect();
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
    let lists: Vec<FilterList> = (0..2)
        .map(|_| filters([action.clone()].into_iter().collect()))
        .collect();
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
    let mut lists: Vec<FilterList> = (0..2)
        .map(|_| filters([action.clone()].into_iter().collect()))
        .collect();
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

/// Parameters change for filters that have the action; counts go on.
#[test]
fn an_action_is_changed_in_its_place() {
    let pool = pool(4);
    let mut table = ActionTable::default();
    let action = table.add(parse("pass"), false, Time(1)).unwrap();
    assert_eq!(action.index(), 1);
    let mut list = filters([action].into_iter().collect());
    assert_eq!(run(&pool, &list, frame(&pool, 1, 2, 60, 0)).0, CLASS);
    let changed = ActionSpec {
        index: 1,
        ..parse("drop")
    };
    let changed = table.change(changed, Time(2)).unwrap();
    assert!(list.refresh(&changed));
    let dropped = run(&pool, &list, frame(&pool, 1, 2, 60, 0)).0;
    assert_eq!(
        dropped,
        Classified::Drop(softnet::stats::DropReason::FilterDrop)
    );
    assert_eq!(counts(&list, 0), (2, 120, 1, 0));
    assert_eq!(list.shown().next().unwrap().1.packets, 2);
    assert_eq!((changed.binds(), changed.index()), (1, 1));
    drop(list);
    drop(changed);
    assert!(table.get("gact", 1).is_none(), "it came with the filter");
    assert_eq!(table.add(parse("drop"), true, Time(3)).unwrap().index(), 1);
    assert_eq!(table.add(parse("drop"), true, Time(3)).unwrap().index(), 2);
    let again = ActionSpec {
        index: 2,
        ..parse("pass")
    };
    assert_eq!(
        table.add(again, true, Time(3)).err(),
        Some(ActionError::Exists)
    );
}

#[test]
fn mirred_moves_and_copies() {
    let pool = pool(8);
    let action = Action::new(parse("mirred egress redirect dev ifb0"));
    let list_of = |action: &Action| filters([action.clone()].into_iter().collect());
    let list = list_of(&action);
    let (lost, ..) = run(&pool, &list, frame(&pool, 1, 2, 60, 0));
    assert_eq!(
        lost,
        Classified::Drop(softnet::stats::DropReason::FilterDrop)
    );
    assert_eq!(counts(&list, 0), (1, 60, 0, 1), "there is no such link");
    action.set_link(Some(7));
    let (to, ..) = run(&pool, &list, frame(&pool, 1, 2, 60, 0));
    let target = Target {
        to: To::Link(7),
        ingress: false,
    };
    assert_eq!(to, Classified::Redirect(target));
    let mirror = filters(list_from(&[
        "mirred ingress mirror blockid 3",
        "vlan push id 5",
    ]));
    let (to, packet, mut cx) = run(&pool, &mirror, frame(&pool, 1, 2, 60, 0));
    assert_eq!((to, packet.len()), (CLASS, 64));
    let copies: Vec<_> = cx.elsewhere.drain().collect();
    let target = Target {
        to: To::Block(3),
        ingress: true,
    };
    assert_eq!(copies.len(), 1);
    assert_eq!((copies[0].0, copies[0].1.len()), (target, 1));
    assert_eq!(
        copies[0].1.front().unwrap().len(),
        60,
        "shared data is not changed"
    );
    assert_eq!(cx.elsewhere.take_copied(), 1);
}

fn list_from(texts: &[&str]) -> ActionList {
    list(texts)
}

#[test]
fn metadata_is_edited() {
    let pool = pool(4);
    let mut packet = udp(&pool);
    packet.set_mark(0xff);
    let list = filters(list(&[
        "skbedit mark 5/0xf priority 1:2 queue_mapping 3",
        "skbedit inheritdsfield",
    ]));
    let (_, packet, _) = run(&pool, &list, packet);
    assert_eq!(
        (packet.mark(), packet.priority(), packet.queue()),
        (0xf5, 0x2e, Some(3))
    );
}

#[test]
fn tags_and_headers_come_and_go() {
    let pool = pool(4);
    let after = |actions: &[&str], packet: Packet| {
        let list = filters(list(actions));
        let (classified, packet, _) = run(&pool, &list, packet);
        (
            classified,
            packet.data().get(12..20).unwrap_or_default().to_vec(),
            packet.len(),
        )
    };
    let plain = || packet(&pool, 0x0800, &[9; 46]);
    let (_, bytes, len) = after(&["vlan push id 5 priority 3"], plain());
    assert_eq!((bytes, len), (vec![0x81, 0, 0x60, 5, 8, 0, 9, 9], 64));
    let (_, bytes, len) = after(
        &["vlan push id 5", "vlan push id 6 protocol 802.1ad"],
        plain(),
    );
    assert_eq!((bytes, len), (vec![0x88, 0xa8, 0, 6, 0x81, 0, 0, 5], 68));
    let tagged = || {
        packet(
            &pool,
            0x8100,
            &[[0x60, 5, 8, 0].as_slice(), &[9; 46]].concat(),
        )
    };
    let (_, bytes, len) = after(&["vlan modify id 7"], tagged());
    assert_eq!((bytes, len), (vec![0x81, 0, 0x60, 7, 8, 0, 9, 9], 64));
    let (_, bytes, _) = after(&["vlan modify id 7 priority 0 protocol 802.1ad"], tagged());
    assert_eq!(bytes[..4], [0x88, 0xa8, 0, 7]);
    let (_, bytes, len) = after(&["vlan pop", "vlan pop"], tagged());
    assert_eq!((bytes, len), (vec![8, 0, 9, 9, 9, 9, 9, 9], 60));
    let (classified, ..) = after(&["vlan pop_eth"], tagged());
    assert_eq!(
        classified,
        Classified::Drop(softnet::stats::DropReason::FilterDrop)
    );
    let (_, _, len) = after(&["vlan pop_eth"], plain());
    assert_eq!(len, 46);
}

/// An Ethernet header comes in place of one that was taken away; a frame that has one is dropped
/// (`skb_eth_push`, `skb_eth_pop`).
#[test]
fn an_ethernet_header_comes_in_place_of_another() {
    let pool = pool(4);
    let eth = "vlan push_eth dst_mac 2:0:0:0:0:1 src_mac 2:0:0:0:0:2";
    let pop = "vlan pop_eth";
    // Bytes of the payload are as those of a tag, if it were a header.
    let mut payload = [9; 46];
    payload[12..14].copy_from_slice(&[0x81, 0]);
    let plain = || packet(&pool, 0x0800, &payload);
    let dropped = Classified::Drop(softnet::stats::DropReason::FilterDrop);
    for actions in [
        &[eth][..],
        &[pop, pop],
        &[pop, eth, eth],
        &[pop, "vlan push id 5", eth],
    ] {
        let list = filters(list(actions));
        let (classified, ..) = run(&pool, &list, plain());
        assert_eq!(classified, dropped, "{actions:?}");
        assert_eq!(counts(&list, actions.len() - 1).2, 1, "{actions:?}");
    }
    let list = filters(list(&[pop, "vlan pop", eth]));
    let mut bytes = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0];
    bytes.extend(payload);
    let (classified, packet, _) = run(&pool, &list, plain());
    assert_eq!((classified, packet.data()), (CLASS, &bytes[..]));
}

/// Where packets arrive, neither the Ethernet header nor the first tag counts, and it is counted
/// once for all actions (`sch_handle_ingress`; the recording has it in its part `vlan`).
#[test]
fn what_arrives_counts_without_its_ethernet_header() {
    let pool = pool(4);
    let bytes = |arriving, mut packet: Packet| {
        let list = filters(list(&["vlan pop", "vlan push id 5", "pass"]));
        let mut cx = Cx::new(&pool);
        cx.arriving = arriving;
        let classified = list.filters().classify(&mut packet, &mut cx);
        assert_eq!(classified, CLASS);
        let (_, filter) = list.shown().next().unwrap();
        let actions = [0, 1, 2].map(|at| counts(&list, at).1);
        assert_eq!(actions, [filter.bytes; 3]);
        filter.bytes
    };
    for (ethertype, tags, arrives, leaves) in [
        (0x0800, &[][..], 46, 60),
        (0x8100, &[0, 5, 8, 0], 46, 64),
        (0x88a8, &[0, 7, 0x81, 0, 0, 5, 8, 0], 50, 68),
    ] {
        let frame = || packet(&pool, ethertype, &[tags, &[9; 46]].concat());
        assert_eq!(bytes(true, frame()), arrives, "{ethertype:x}");
        assert_eq!(bytes(false, frame()), leaves, "{ethertype:x}");
    }
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

#[test]
fn words_of_frames_are_edited() {
    let pool = pool(4);
    let after = |actions: &[&str], packet: Packet| {
        let list = filters(list(actions));
        let (_, packet, _) = run(&pool, &list, packet);
        (packet.data().to_vec(), counts(&list, 0).3)
    };
    // The time to live.
    let (bytes, over) = after(
        &["pedit ex munge ip offset 8 set 0x3f000000/0x00ffffff"],
        udp(&pool),
    );
    assert_eq!((bytes[14 + 8], bytes[14 + 9], over), (0x3f, 17, 0));
    let (bytes, _) = after(
        &["pedit ex munge ip offset 8 add 0xff000000/0x00ffffff"],
        udp(&pool),
    );
    assert_eq!((bytes[14 + 8], bytes[14 + 9]), (63, 17));
    let (bytes, _) = after(
        &["pedit ex munge udp offset 0 set 0x0000ffff/0xffff0000"],
        udp(&pool),
    );
    assert_eq!(bytes[34..38], [0x13, 0x88, 0xff, 0xff]);
    let (bytes, _) = after(
        &["pedit ex munge eth offset 0 set 0x02020202/0"],
        udp(&pool),
    );
    assert_eq!(bytes[..6], [2, 2, 2, 2, 0, 0xB]);
    let (bytes, _) = after(&["pedit munge offset -8 set 0x0202/0xffff0000"], udp(&pool));
    assert_eq!(bytes[6..10], [2, 0, 2, 2]);
    // A word that begins in front of the frame.
    let (bytes, over) = after(&["pedit munge offset -16 set 0x0606/0"], udp(&pool));
    assert_eq!((bytes[..2].to_vec(), over), (vec![6, 6], 0));
    // What is not there stays, and is counted.
    for text in [
        "pedit ex munge tcp offset 0 set 1/0",
        "pedit munge offset 400 set 1/0",
        "pedit munge offset -20 set 1/0",
        "pedit munge offset 0 at 400 0xff 0 set 1/0",
        "pedit munge offset 0 at 1 0x1f 1 set 1/0",
        "pedit munge offset 2147483644 set 1/0",
    ] {
        let whole = udp(&pool).data().to_vec();
        let (bytes, over) = after(&[text], udp(&pool));
        let same = bytes == whole || text.contains("at 1 ");
        assert!(
            same && over == u64::from(!text.contains("at 1 ")),
            "{text} {over}"
        );
    }
    // Behind a tag.
    let tagged = packet(
        &pool,
        0x8100,
        &[[0, 5].as_slice(), &udp(&pool).data()[12..]].concat(),
    );
    let (bytes, _) = after(&["pedit ex munge udp offset 0 set 0/0xffff"], tagged);
    assert_eq!(bytes[38..42], [0, 0, 0, 53]);
}

#[test]
fn checksums_are_made_right() {
    let pool = pool(4);
    let list = filters(list(&["csum ip4h udp"]));
    let (_, packet, _) = run(&pool, &list, udp(&pool));
    let bytes = packet.data();
    assert_eq!(wire::checksum(&bytes[14..34]), 0);
    let pseudo = wire::pseudo_header(&bytes[26..30], &bytes[30..34], 17, 12);
    assert_eq!(!wire::fold(pseudo + wire::sum_bytes(&bytes[34..46])), 0);
    // Without a checksum it stays so, and a length that is wrong is left alone.
    for (at, value) in [(40, [0, 0]), (38, [0, 13])] {
        let mut packet = udp(&pool);
        packet.data_mut()[at..at + 2].copy_from_slice(&value);
        let before = packet.data()[40..42].to_vec();
        let (_, packet, _) = run(&pool, &list, packet);
        assert_eq!(packet.data()[40..42], before);
    }
}

/// RFC 3720 B.4: 32 bytes of zeros.
#[test]
fn sctp_has_a_crc() {
    let pool = pool(4);
    let mut bytes = vec![
        0x45, 0, 0, 52, 0, 1, 0, 0, 64, 132, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2,
    ];
    bytes.extend([0; 32]);
    let list = filters(list(&["csum sctp"]));
    let (_, packet, _) = run(&pool, &list, packet(&pool, 0x0800, &bytes));
    assert_eq!(packet.data()[42..46], [0xaa, 0x36, 0x91, 0x8a]);
}

#[test]
fn ethernet_headers_are_edited() {
    let pool = pool(4);
    let after = |text: &str, packet: Packet| {
        let list = filters(list(&[text]));
        run(&pool, &list, packet).1.data()[..16].to_vec()
    };
    let bytes = after("skbmod set dmac 2:0:0:0:0:9 set etype 0x1234", udp(&pool));
    assert_eq!(
        (&bytes[..6], &bytes[12..14]),
        (&[2, 0, 0, 0, 0, 9][..], &[0x12, 0x34][..])
    );
    let bytes = after("skbmod swap mac", udp(&pool));
    assert_eq!(bytes[..12], [2, 0, 0, 0, 0, 0xA, 2, 0, 0, 0, 0, 0xB]);
    let mut ect = udp(&pool);
    ect.data_mut()[15] |= 2;
    assert_eq!(after("skbmod ecn", ect)[15], 0xbb);
}

/// As many as there may be, and no more.
#[test]
fn a_table_is_bounded() {
    let mut table = ActionTable::default();
    let mut made = 0;
    for _ in 0..100_000 {
        made += u32::from(table.add(parse("pass"), true, Time(1)).is_ok());
    }
    assert_eq!(made, 65_536);
    assert_eq!(table.iter("gact", 65_000).count(), 537);
    assert_eq!(table.flush("gact"), (65_536, false));
}
