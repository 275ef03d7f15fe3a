//! Chains, which come with filters or by themselves, and their templates.

use super::*;

#[test]
fn chains_come_and_go_with_filters() {
    let mut world = World::with_prio();
    for chain in [5, 2] {
        let filter = in_chain(chain, to_port(1));
        let prio = named("1:", 1, ETH_P_IP, 0);
        world.filter(ADD, prio, &filter).unwrap();
        let told = [
            format!("chain 1: chain {chain}"),
            format!("filter 1: 800 1 flower chain {chain} 1"),
        ];
        assert_eq!(world.told, told);
        let filter = in_chain(chain, to_port(2));
        world.filter(ADD, prio, &filter).unwrap();
        assert_eq!(world.told.len(), 1);
        let second = TcMsg { handle: 2, ..prio };
        let body = in_chain(chain, none);
        world.ask(RTM_DELTFILTER, 0, second, &body).unwrap();
        assert_eq!(world.told.len(), 1);
    }
    let header = at(1, "1:", "");
    let chains = |world: &mut World| world.dump(RTM_GETCHAIN, header, &none);
    assert_eq!(chains(&mut world), ["chain 1: chain 5", "chain 1: chain 2"]);
    let of_chain = world.filters(header, &in_chain(2, none));
    let expected = [
        "filter 1: 800 1 flower chain 2 -",
        "filter 1: 800 1 flower chain 2 1",
    ];
    assert_eq!(of_chain, expected);
    let ask = |world: &mut World, kind, chain| world.ask(kind, 0, header, &in_chain(chain, none));
    assert_eq!(
        ask(&mut world, RTM_GETCHAIN, 5).unwrap(),
        ["chain 1: chain 5"]
    );
    let error = ask(&mut world, RTM_NEWCHAIN, 5).unwrap_err();
    assert_eq!(error, "Filter chain already exists (EEXIST)");
    ask(&mut world, RTM_DELCHAIN, 5).unwrap();
    let told = [
        "deleted 1: 800 1 flower chain 5 -",
        "deleted chain 1: chain 5",
    ];
    assert_eq!(world.told, told);
    let error = ask(&mut world, RTM_DELCHAIN, 5).unwrap_err();
    assert_eq!(error, "Cannot find specified filter chain (EINVAL)");
    assert_eq!(chains(&mut world), ["chain 1: chain 2"]);
    // Its last filter, by its handle.
    let last = named("1:", 1, ETH_P_IP, 1);
    let body = in_chain(2, none);
    world.ask(RTM_DELTFILTER, 0, last, &body).unwrap();
    let told = [
        "deleted 1: 800 1 flower chain 2 1",
        "deleted chain 1: chain 2",
    ];
    assert_eq!(world.told, told);
}

/// Events of chains name no request, whoever asked (`tc_chain_notify`).
#[test]
fn chains_come_and_go_without_a_request() {
    let mut world = World::with_prio();
    let header = named("1:", 1, ETH_P_IP, 0);
    let requests = [
        (RTM_NEWTFILTER, ADD, RTM_NEWCHAIN, ADD),
        (RTM_DELTFILTER, 0, RTM_DELCHAIN, 0),
    ];
    for (kind, flags, told, expected) in requests {
        let request = message(kind, flags, &header, to_port(1));
        let (answer, replies) = testing::ask(&mut world.rtnl, &CLIENT, &request);
        answer.unwrap();
        let events = replies.events().iter();
        let mut events = events.map(|event| Request::read(event.message.as_bytes()).unwrap());
        let event = events.find(|event| event.kind == told).unwrap();
        assert_eq!((event.flags, event.seq, event.pid), (expected, 0, 0));
    }
}

/// A chain that was made by itself is there without a filter, and until it is deleted.
#[test]
fn chains_stay_without_filters() {
    let mut world = World::with_prio();
    let header = at(1, "1:", "");
    let ask = |world: &mut World, kind| world.ask(kind, 0, header, &in_chain(6, none));
    ask(&mut world, RTM_NEWCHAIN).unwrap();
    assert_eq!(world.told, ["chain 1: chain 6"]);
    assert_eq!(world.chains(), ["chain 1: chain 6"]);
    let error = ask(&mut world, RTM_NEWCHAIN).unwrap_err();
    assert_eq!(error, "Filter chain already exists (EEXIST)");
    // Its only filter comes and goes.
    let filter = named("1:", 1, ETH_P_IP, 0);
    world.filter(ADD, filter, &in_chain(6, to_port(1))).unwrap();
    assert_eq!(world.told, ["filter 1: 800 1 flower chain 6 1"]);
    let body = in_chain(6, none);
    world.ask(RTM_DELTFILTER, 0, filter, &body).unwrap();
    assert_eq!(world.told, ["deleted 1: 800 1 flower chain 6 -"]);
    assert_eq!(world.chains(), ["chain 1: chain 6"]);
    ask(&mut world, RTM_DELCHAIN).unwrap();
    assert_eq!(world.told, ["deleted chain 1: chain 6"]);
    assert!(world.chains().is_empty());
}

/// The parent of a chain is the qdisc, not the hook or class that it is at.
#[test]
fn chains_of_hooks_have_their_qdisc_as_parent() {
    let mut world = World::new();
    let name = ("ffff:fff1", "ffff:");
    world.qdisc(ADD, 1, name, "clsact", &none).unwrap();
    let hook = at(1, "ffff:fff3", "");
    let chain = in_chain(6, none);
    world.ask(RTM_NEWCHAIN, 0, hook, &chain).unwrap();
    let request = message(RTM_GETCHAIN, NLM_F_DUMP, &hook, none);
    let parts = testing::dump(&mut world.rtnl, &CLIENT, &request).unwrap();
    let parent = |message: Request<'_>| message.header::<TcMsg>().unwrap().parent;
    let parents: Vec<u32> = Requests::new(parts[0].as_bytes()).map(parent).collect();
    assert_eq!(parents, [0xffff_0000]);
}

/// A chain's template says what its filters may look at, is shown as it was given, and goes with
/// the chain.
#[test]
fn chains_have_templates() {
    let mut world = World::with_prio();
    let header = at(1, "1:", "");
    let add = |world: &mut World, body: Body<'_>| world.ask(RTM_NEWCHAIN, 0, header, body);
    for (kind, error) in [
        ("flower", "EINVAL"),
        (
            "u32",
            "Chain templates are not supported with specified classifier (EOPNOTSUPP)",
        ),
        ("route", "TC classifier not found"),
    ] {
        let body = in_chain(6, |out: &mut Message<'_>| out.put_str(TCA_KIND, kind));
        let answer = add(&mut world, &body).unwrap_err();
        assert!(answer.starts_with(error), "{answer}");
    }
    assert!(world.chains().is_empty());
    // All of the protocol numbers and of the destination port, whatever these are.
    let keys = |out: &mut Message<'_>| {
        out.put_be16(8, ETH_P_IP);
        out.put_u8(9, 6);
        out.put_be16(19, 0);
        out.put_be16(36, u16::MAX);
    };
    let template = |out: &mut Message<'_>| {
        out.put_str(TCA_KIND, "flower");
        out.nest(TCA_OPTIONS, keys);
    };
    let template = in_chain(6, template);
    add(&mut world, &template).unwrap();
    let shown = "chain 1: chain 6 flower";
    assert_eq!(world.told, [shown]);
    assert_eq!(world.chains(), [shown]);
    let request = message(RTM_GETCHAIN, 0, &header, in_chain(6, none));
    let (answer, replies) = testing::ask(&mut world.rtnl, &CLIENT, &request);
    answer.unwrap();
    let reply = Request::read(replies.messages().as_bytes()).unwrap();
    let attrs = reply.attrs::<TcMsg>(&POLICY, Validation::Liberal).unwrap();
    let expected = message(RTM_NEWCHAIN, 0, &header, keys);
    let expected = Request::read(expected.as_bytes()).unwrap();
    let options = attrs.get(TCA_OPTIONS).unwrap().data;
    assert_eq!(options.len(), 8 * 4);
    assert!(expected.payload().ends_with(options));

    let filter = named("1:", 1, ETH_P_IP, 0);
    world.filter(ADD, filter, &in_chain(6, to_port(1))).unwrap();
    let other = in_chain(6, |out: &mut Message<'_>| {
        out.put_str(TCA_KIND, "flower");
        out.nest(TCA_OPTIONS, |out| {
            out.put_u32(1, 0x1_0001);
            out.put_be16(8, ETH_P_IP);
            out.put_u8(9, 6);
            out.put_be16(18, 1);
        });
    });
    let answer = world.filter(ADD, filter, &other).unwrap_err();
    assert_eq!(
        answer,
        "cls_flower: Mask does not fit the template (EINVAL)"
    );
    let matchall = in_chain(6, of_kind("matchall", 0x1_0001));
    let answer = world.filter(ADD, named("1:", 2, ETH_P_IP, 0), &matchall);
    let text = "Chain template is set to a different filter kind";
    assert!(answer.unwrap_err().starts_with(text));
    // Whatever else is wrong with it: `u32` needs a selector.
    let of_u32 = in_chain(6, of_kind("u32", 0x1_0001));
    let answer = world.filter(ADD, named("1:", 2, ETH_P_IP, 0), &of_u32);
    assert!(answer.unwrap_err().starts_with(text));
    let body = in_chain(6, none);
    world.ask(RTM_DELTFILTER, 0, filter, &body).unwrap();
    assert_eq!(world.chains(), [shown]);
    world.ask(RTM_DELCHAIN, 0, header, &body).unwrap();
    assert_eq!(world.told, [format!("deleted {shown}")]);
    assert!(world.chains().is_empty());
    world.filter(ADD, filter, &other).unwrap();
}
