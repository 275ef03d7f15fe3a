//! Members that are permanent, leave fast, or name sources.

use super::*;

#[test]
fn fastleave_and_permanent_members() {
    let Some(mut pair) = Pair::new("mcast_querier 1", |options| options.querier = true) else {
        return;
    };
    let engine = &pair.ours.net.engine;
    let ids: Vec<u32> = pair.ours.net.ports.iter().map(|port| port.id).collect();
    pair.kernel.set("bridge link set dev t1 fastleave on");
    let mut options = engine.bridge_port(ids[1]).unwrap().options;
    options.multicast.fastleave = true;
    engine.set_bridge_port(ids[1], options).unwrap();
    pair.kernel
        .set("bridge mdb add dev br0 port t2 grp 239.1.1.1 permanent");
    let spec = softnet_engine::MdbSpec {
        group: Group::Ip(GROUP.into()),
        vlan: None,
        source: None,
        permanent: true,
    };
    engine.add_mdb(ids[2], spec).unwrap();
    pair.send("a join", 1, &join(2, GROUP));
    pair.all("data", GROUP);
    pair.send("a leave", 1, &leave(2, GROUP));
    pair.all("data after the leave", GROUP);
    pair.send("a join where one is permanent", 2, &join(3, GROUP));
    pair.send("a leave where one is permanent", 2, &leave(3, GROUP));
    pair.all("data to the permanent one", GROUP);
    pair.kernel
        .set("bridge mdb del dev br0 port t2 grp 239.1.1.1");
    pair.ours.net.engine.remove_mdb(ids[2], spec).unwrap();
    pair.all("data to nobody", GROUP);
    pair.stop();
}

/// Sources: each kind of record in each state.
#[test]
fn sources_of_igmpv3() {
    let options = "mcast_querier 1 mcast_igmp_version 3";
    let change = |options: &mut MulticastOptions| {
        (options.querier, options.igmp_version) = (true, 3);
    };
    let Some(mut pair) = Pair::new(options, change) else {
        return;
    };
    // Hosts 1 to 5 are the sources, too.
    let steps: &[(usize, u8, &[u8])] = &[
        (1, 1, &[1, 4]),
        (2, 4, &[1]),
        (3, 5, &[4]),
        (1, 5, &[5]),
        (2, 2, &[1, 4]),
        (4, 4, &[]),
        (2, 5, &[1]),
        (4, 3, &[1]),
        (3, 4, &[4, 5]),
    ];
    for &(port, kind, sources) in steps {
        let what = format!("record {kind} of port {port}: {sources:?}");
        pair.send(&what, port, &record(port as u8 + 1, kind, GROUP, sources));
        pair.all(&what, GROUP);
    }
    pair.stop();
}
