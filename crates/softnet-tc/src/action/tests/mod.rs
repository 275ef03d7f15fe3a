//! Effects of actions on packets, their counts, and their words.

mod edits;
mod police;

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

/// A filter with this action alone.
fn list_of(action: &Action) -> FilterList {
    filters([action.clone()].into_iter().collect())
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

/// `ref 2 bind 2` was what tc said of those of a file, whose configuration stays in memory.
#[test]
fn a_configuration_is_no_filter_that_has_an_action() {
    let mut table = ActionTable::default();
    let configured = list(&["drop", "skbedit mark 0x4"]);
    let adopted = table.adopt(&configured, Time::ZERO).unwrap();
    assert!(adopted == configured);
    for action in adopted.as_slice() {
        assert_eq!((action.index(), action.references()), (1, 1));
    }
    assert!(table.adopt(&adopted, Time::ZERO).is_none());
}
