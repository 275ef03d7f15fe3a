//! VLANs of bridges and their ports.

use super::*;
use crate::link::vlan::{RTM_GETVLAN, RTM_NEWVLAN};
use crate::nl::headers::BrVlanMsg;

/// `bridge vlan add`, `del` and `show`, each and as ranges.
#[test]
fn vlans_come_and_go() {
    let mut bench = Bench::new();
    let change = |bench: &mut Bench, kind, index, flags: u16, infos: &[[u16; 2]]| {
        let answer = bench.ask(kind, 0, &of_bridge(index), |message| {
            message.nest(26, |message| {
                if flags != 0 {
                    message.put_u16(0, flags);
                }
                infos.iter().for_each(|info| message.put(2, info));
            });
        });
        answer.map(drop)
    };
    // Untagged from 10 to 12; the pvid 20; the bridge itself 20.
    change(&mut bench, RTM_SETLINK, PORT, 0, &[[12, 10], [20, 12]]).unwrap();
    assert_eq!(bench.told, [(1, RTM_NEWLINK)]);
    change(&mut bench, RTM_SETLINK, PORT, 1, &[[6, 20]]).unwrap();
    change(&mut bench, RTM_SETLINK, BRIDGE, 2, &[[0, 20]]).unwrap();
    let each = [(4, 1), (4, 10), (4, 11), (4, 12), (6, 20)];
    assert_eq!(bench.vlans(PORT, 2), each);
    let ranges = [(4, 1), (12, 10), (20, 12), (6, 20)];
    assert_eq!(bench.vlans(PORT, 4), ranges);
    assert_eq!(bench.vlans(BRIDGE, 2), [(6, 1), (0, 20)]);
    change(&mut bench, RTM_DELLINK, PORT, 0, &[[0, 11], [0, 99]]).unwrap();
    assert_eq!(bench.vlans(PORT, 4), [(4, 1), (4, 10), (4, 12), (6, 20)]);
    for (bad, text) in [
        (&[[0, 0]][..], "bridge: Vlan id is invalid"),
        (&[[0, 4095]], "bridge: Vlan id is invalid"),
        (&[[10, 30]], "bridge: Pvid isn't allowed in a range"),
        (
            &[[8, 30], [8, 31]],
            "bridge: Found a new vlan range start while processing one",
        ),
        (
            &[[8, 30], [0, 31]],
            "bridge: Vlan range end flag is missing",
        ),
        (
            &[[0, 40], [8, 30], [16, 30]],
            "bridge: End vlan id is less than or equal to start vlan id",
        ),
    ] {
        let error = change(&mut bench, RTM_SETLINK, PORT, 0, bad).unwrap_err();
        assert_eq!(
            (error.errno, error.text.as_deref()),
            (Errno::EINVAL, Some(text))
        );
    }
    // Nothing of what was refused.
    assert_eq!(bench.vlans(PORT, 4).len(), 4);
    for (index, flags) in [(ALONE, 0), (PORT, 2), (BRIDGE, 0)] {
        let changed = change(&mut bench, RTM_SETLINK, index, flags, &[[0, 5]]);
        assert_eq!(refused(changed), Errno::EOPNOTSUPP);
    }
    let changed = change(&mut bench, RTM_SETLINK, 99, 0, &[[0, 5]]);
    assert_eq!(refused(changed), Errno::ENODEV);
}

/// `bridge -d vlan show`.
#[test]
fn vlans_are_dumped_with_their_state() {
    let mut bench = Bench::new();
    let added = bench
        .ask(RTM_SETLINK, 0, &of_bridge(PORT), |message| {
            message.nest(26, |message| {
                message.put(2, &[8_u16, 100]);
                message.put(2, &[16_u16, 200]);
            });
        })
        .map(drop);
    added.unwrap();
    let header = |ifindex| BrVlanMsg {
        family: AF_BRIDGE,
        ifindex,
        ..BrVlanMsg::default()
    };
    let (all, _) = bench.dump(RTM_GETVLAN, &header(0), |_| {}).unwrap();
    assert_eq!(all.len(), 3);
    let (of_port, _) = bench.dump(RTM_GETVLAN, &header(PORT), |_| {}).unwrap();
    let message = Request::read(&of_port[0]).unwrap();
    assert_eq!(message.kind, RTM_NEWVLAN);
    let attrs = message.attr_iter::<BrVlanMsg>().unwrap();
    let entries: Vec<_> = attrs
        .map(|entry| {
            let find = |kind| entry.children().find(|attr| attr.kind() == kind);
            let info: [u16; 2] = find(1).unwrap().fixed().unwrap();
            let end = find(2).map(|end| end.u16().unwrap());
            (info, end, find(3).unwrap().u8().unwrap())
        })
        .collect();
    assert_eq!(entries, [([6, 1], None, 3), ([0, 100], Some(200), 3)]);
    let alone = bench.dump(RTM_GETVLAN, &header(ALONE), |_| {});
    assert_eq!(refused(alone), Errno::EINVAL);
    let global = bench.dump(RTM_GETVLAN, &header(0), |m| m.put_u32(1, 2));
    assert_eq!(refused(global), Errno::EOPNOTSUPP);
}
