//! Actions that edit packets, and those of their headers that they take or put.

use super::*;
use crate::filter::Flower;

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

/// Filters that a packet comes to behind an action look at it as the action left it.
#[test]
fn filters_see_what_actions_made() {
    let pool = pool(4);
    let to_80 = "pedit ex munge udp offset 0 set 0x00000050/0xffff0000 continue";
    let mut both = FilterList::default();
    for (prio, port, action) in [(1, 53, to_80), (2, 80, "pass")] {
        let flower = Flower {
            ip_proto: Some(17),
            dst_port: Some(port..=port),
            ..Flower::default()
        };
        let filter = FilterSpec {
            prio,
            actions: list(&[action]),
            ..FilterSpec::new(flower, Handle::new(1, prio))
        };
        both.put(FilterOp::Add, filter).unwrap();
    }
    let (found, packet, _) = run(&pool, &both, udp(&pool));
    assert_eq!(found, Classified::Class(Handle::new(1, 2)));
    assert_eq!(packet.data()[36..38], [0, 80]);
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
