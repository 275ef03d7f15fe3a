//! Requests about filters and chains.

mod chains;
mod parents;

use proptest::prelude::*;
use zerocopy::IntoBytes;

use super::hostile::assert_refused;
use super::*;

const ETH_P_IP: u16 = 0x0800;

/// `tc filter`: what is behind `chain`, `pref`, `protocol` and `handle`.
fn named(parent: &str, prio: u16, protocol: u16, handle: u32) -> TcMsg {
    TcMsg {
        handle,
        info: u32::from(prio) << 16 | u32::from(protocol.to_be()),
        ..at(1, parent, "")
    }
}

/// The kind and options of a filter that has none but a class.
fn of_kind(kind: &'static str, class: u32) -> impl Fn(&mut Message<'_>) {
    move |out| {
        out.put_str(TCA_KIND, kind);
        out.nest(TCA_OPTIONS, |out| out.put_u32(1, class));
    }
}

/// A `flower` for TCP to this port.
fn to_port(port: u16) -> impl Fn(&mut Message<'_>) {
    move |out| {
        out.put_str(TCA_KIND, "flower");
        out.nest(TCA_OPTIONS, |out| {
            out.put_u32(1, 0x1_0001);
            out.put_be16(8, ETH_P_IP);
            out.put_u8(9, 6);
            out.put_be16(19, port);
        });
    }
}

/// A filter of a kind for what this link has received, which is named in this option.
fn received_on(kind: &'static str, option: u16, name: &'static str) -> impl Fn(&mut Message<'_>) {
    move |out| {
        out.put_str(TCA_KIND, kind);
        out.nest(TCA_OPTIONS, |out| {
            out.put_u32(1, 0x1_0001);
            out.put_str(option, name);
        });
    }
}

/// The link that each filter of `1:` is shown with, in an option of its kind.
fn received(world: &mut World, option: u16) -> Vec<Option<String>> {
    let request = message(RTM_GETTFILTER, NLM_F_DUMP, &at(1, "1:", ""), none);
    let parts = testing::dump(&mut world.rtnl, &CLIENT, &request).unwrap();
    let messages = parts.iter().flat_map(|part| Requests::new(part.as_bytes()));
    let mut found = Vec::new();
    for message in messages {
        let attrs = message
            .attrs::<TcMsg>(&POLICY, Validation::Liberal)
            .unwrap();
        if let Some(options) = attrs.get(TCA_OPTIONS) {
            let name = options.children().find(|attr| attr.kind() == option);
            found.push(name.map(|name| name.str().unwrap().to_owned()));
        }
    }
    found
}

fn in_chain(chain: u32, body: impl Fn(&mut Message<'_>)) -> impl Fn(&mut Message<'_>) {
    move |out| {
        out.put_u32(TCA_CHAIN, chain);
        body(out);
    }
}

impl World {
    fn with_prio() -> World {
        let mut world = World::new();
        let options = prio(3);
        world
            .qdisc(ADD, 1, ("root", "1:"), "prio", &options)
            .unwrap();
        world
    }

    fn filter(&mut self, flags: u16, header: TcMsg, body: Body<'_>) -> Result<(), String> {
        self.ask(RTM_NEWTFILTER, flags, header, body).map(drop)
    }

    fn filters(&mut self, header: TcMsg, body: Body<'_>) -> Vec<String> {
        self.dump(RTM_GETTFILTER, header, body)
    }
}

#[test]
fn priorities_are_chosen_and_shown_with_their_filters() {
    let mut world = World::with_prio();
    for kind in ["matchall", "basic"] {
        let header = named("", 0, ETH_P_IP, 0);
        world.filter(ADD, header, &of_kind(kind, 0x1_0002)).unwrap();
    }
    assert_eq!(world.told, ["filter 1: 800 49151 basic chain 0 1"]);
    let u32 = |out: &mut Message<'_>| {
        out.put_str(TCA_KIND, "u32");
        out.nest(TCA_OPTIONS, |out| {
            let mut selector = [0; 16];
            selector[0] = 1;
            out.put_bytes(5, &selector);
        });
    };
    world.filter(ADD, named("1:", 7, 3, 0), &u32).unwrap();
    let all = [
        "filter 1: 3 7 u32 chain 0 -",
        "filter 1: 3 7 u32 chain 0 80000000",
        "filter 1: 3 7 u32 chain 0 80000800",
        "filter 1: 800 49151 basic chain 0 -",
        "filter 1: 800 49151 basic chain 0 1",
        "filter 1: 800 49152 matchall chain 0 -",
        "filter 1: 800 49152 matchall chain 0 1",
    ];
    assert_eq!(world.filters(at(1, "", ""), &none), all);
    assert_eq!(world.filters(named("1:", 7, 0, 0), &none), all[..3]);
    assert_eq!(world.filters(named("1:", 0, ETH_P_IP, 0), &none), all[3..]);
    for elsewhere in ["root", "7:", "1:1"] {
        assert!(world.filters(at(1, elsewhere, ""), &none).is_empty());
    }
}

#[test]
fn flags_say_what_becomes_of_a_filter() {
    let mut world = World::with_prio();
    let fw = of_kind("fw", 0x1_0001);
    let at = named("1:", 5, ETH_P_IP, 9);
    let missing = "Need both RTM_NEWTFILTER and NLM_F_CREATE to create a new filter";
    let refused = |answer: Result<(), String>, text: &str, errno: &str| {
        let error = answer.unwrap_err();
        assert!(error.starts_with(text) && error.ends_with(errno), "{error}");
    };
    refused(world.filter(CHANGE, at, &fw), missing, "(ENOENT)");
    // A priority that is to be made is looked at first (`tc_new_tfilter`).
    let text = "Filter kind and protocol must be specified";
    let of_none = named("1:", 5, 0, 9);
    refused(world.filter(CHANGE, of_none, &fw), text, "(EINVAL)");
    world.filter(ADD, at, &fw).unwrap();
    refused(
        world.filter(ADD, at, &fw),
        "Filter already exists",
        "(EEXIST)",
    );
    world.filter(CHANGE, at, &fw).unwrap();
    world.filter(NLM_F_CREATE, at, &fw).unwrap();
    let other = named("1:", 5, 0x86dd, 9);
    let text = "Protocol mismatch for filter with specified priority";
    refused(world.filter(ADD, other, &fw), text, "(EINVAL)");
    let text = "Specified filter kind does not match existing one";
    refused(
        world.filter(ADD, at, &of_kind("basic", 1)),
        text,
        "(EINVAL)",
    );
    let text = "TC classifier not found. This version has flower, u32, basic, matchall, fw";
    refused(
        world.filter(ADD, named("1:", 6, 3, 0), &of_kind("bpf", 1)),
        text,
        "(ENOENT)",
    );
    let text = "Filter kind and protocol must be specified";
    refused(
        world.filter(ADD, named("1:", 6, 0, 0), &fw),
        text,
        "(EINVAL)",
    );
    // Of the kind and protocol of its priority.
    let same = |out: &mut Message<'_>| out.nest(TCA_OPTIONS, |out| out.put_u32(1, 0x1_0002));
    world
        .filter(NLM_F_CREATE, named("1:", 5, 0, 10), &same)
        .unwrap();
    let text = "Invalid filter command with priority of zero";
    refused(
        world.filter(CHANGE, named("1:", 0, 3, 0), &fw),
        text,
        "(ENOENT)",
    );
    let text = "Parent Qdisc doesn't exists";
    refused(
        world.filter(ADD, named("5:", 5, 3, 9), &fw),
        text,
        "(EINVAL)",
    );
    let limit = in_chain(1 << 28, fw);
    let text = "Specified chain index exceeds upper limit";
    refused(world.filter(ADD, at, &limit), text, "(EINVAL)");
    let shown = [
        "filter 1: 800 5 fw chain 0 -",
        "filter 1: 800 5 fw chain 0 9",
        "filter 1: 800 5 fw chain 0 a",
    ];
    assert_eq!(world.filters(super::at(1, "1:", ""), &none), shown);
    let shown = world.ask(RTM_GETTFILTER, 0, at, &none).unwrap();
    assert_eq!(shown, ["filter 1: 800 5 fw chain 0 9"]);
}

#[test]
fn filters_are_deleted_one_by_one_by_priority_and_by_chain() {
    let mut world = World::with_prio();
    for (prio, port) in [(1, 1), (1, 2), (1, 3), (2, 4), (3, 5)] {
        let header = named("1:", prio, ETH_P_IP, 0);
        world.filter(ADD, header, &to_port(port)).unwrap();
    }
    let del = |world: &mut World, header, body: Body<'_>| {
        world.ask(RTM_DELTFILTER, 0, header, body).map(drop)
    };
    let error = del(&mut world, named("1:", 1, ETH_P_IP, 9), &none).unwrap_err();
    assert!(
        error.starts_with("Specified filter handle not found"),
        "{error}"
    );
    del(&mut world, named("1:", 1, ETH_P_IP, 2), &none).unwrap();
    assert_eq!(world.told, ["deleted 1: 800 1 flower chain 0 2"]);
    del(&mut world, named("1:", 2, 0, 0), &none).unwrap();
    assert_eq!(world.told, ["deleted 1: 800 2 flower chain 0 -"]);
    let error = del(&mut world, named("1:", 0, ETH_P_IP, 0), &none).unwrap_err();
    assert!(
        error.starts_with("Cannot flush filters with protocol"),
        "{error}"
    );
    // One that is not there has none to remove.
    del(&mut world, named("1:", 0, 0, 0), &in_chain(4, none)).unwrap();
    assert!(world.told.is_empty());
    assert_eq!(world.filters(at(1, "1:", ""), &none).len(), 5);
    del(&mut world, named("1:", 0, 0, 0), &none).unwrap();
    let told = [
        "deleted 1: 800 1 flower chain 0 -",
        "deleted 1: 800 3 flower chain 0 -",
        "deleted chain 1: chain 0",
    ];
    assert_eq!(world.told, told);
    assert!(world.filters(at(1, "1:", ""), &none).is_empty());
}

/// The link is there when the filter comes; it is shown as it is called, and not when it is gone.
#[test]
fn filters_name_the_link_that_received() {
    let mut world = World::with_prio();
    let header = named("1:", 1, 3, 0);
    let unknown = "Network device not found (ENODEV)";
    let long = "Interface name too long (EINVAL)";
    for (name, error) in [("nowhere", unknown), ("sixteen-byte-nam", long)] {
        let refused = world.filter(ADD, header, &received_on("flower", 2, name));
        assert_eq!(refused.unwrap_err(), error);
    }
    let u32 = |out: &mut Message<'_>| {
        out.put_str(TCA_KIND, "u32");
        out.nest(TCA_OPTIONS, |out| {
            let mut selector = [0; 16];
            selector[0] = 1;
            out.put_bytes(5, &selector);
            out.put_str(8, "nowhere");
        });
    };
    let refused = world.filter(ADD, named("1:", 2, 3, 0), &u32);
    assert_eq!(refused.unwrap_err(), unknown);
    let template = in_chain(6, received_on("flower", 2, "nowhere"));
    let refused = world.ask(RTM_NEWCHAIN, 0, at(1, "1:", ""), &template);
    assert_eq!(refused.unwrap_err(), unknown);
    assert!(received(&mut world, 2).is_empty() && world.chains().is_empty());
    world
        .filter(ADD, header, &received_on("flower", 2, "m0"))
        .unwrap();
    assert_eq!(received(&mut world, 2), [Some("m0".to_owned())]);
    let engine = world.engine.clone();
    let renamed = engine
        .lock()
        .unwrap()
        .change(2, |link| link.name = "m1".into());
    renamed.unwrap();
    assert_eq!(received(&mut world, 2), [Some("m1".to_owned())]);
    engine.lock().unwrap().delete(2).unwrap();
    assert_eq!(received(&mut world, 2), [None]);
}

/// As that of `flower`; a change that names none leaves it (`fw_change`).
#[test]
fn fw_names_the_link_that_received() {
    let mut world = World::with_prio();
    let header = named("1:", 1, 3, 7);
    let refused = world.filter(ADD, header, &received_on("fw", 3, "nowhere"));
    assert_eq!(refused.unwrap_err(), "Network device not found (ENODEV)");
    assert!(received(&mut world, 3).is_empty());
    world
        .filter(ADD, header, &received_on("fw", 3, "m0"))
        .unwrap();
    assert_eq!(received(&mut world, 3), [Some("m0".to_owned())]);
    world
        .filter(CHANGE, header, &of_kind("fw", 0x1_0002))
        .unwrap();
    assert_eq!(received(&mut world, 3), [Some("m0".to_owned())]);
    world
        .filter(CHANGE, header, &received_on("fw", 3, "d0"))
        .unwrap();
    assert_eq!(received(&mut world, 3), [Some("d0".to_owned())]);
}

#[test]
fn many_filters_are_dumped_in_parts() {
    let mut world = World::with_prio();
    let mut expected = vec!["filter 1: 800 1 flower chain 0 -".to_owned()];
    for port in 1..=1000 {
        let header = named("1:", 1, ETH_P_IP, 0);
        world.filter(ADD, header, &to_port(port)).unwrap();
        expected.push(format!("filter 1: 800 1 flower chain 0 {port:x}"));
    }
    for mark in 1..=600 {
        let header = named("1:", 2, ETH_P_IP, mark);
        world.filter(ADD, header, &of_kind("fw", 0x1_0001)).unwrap();
    }
    let shown = world.filters(at(1, "", ""), &none);
    assert_eq!(shown[..1001], expected);
    let mut marks = shown[1002..].to_vec();
    assert_eq!(shown[1001], "filter 1: 800 2 fw chain 0 -");
    marks.sort_unstable();
    marks.dedup();
    assert_eq!(marks.len(), 600);
}

#[test]
fn what_softnet_does_not_have_is_refused() {
    let mut world = World::with_prio();
    // A key on a tunnel's number, and a flag that only hardware has the filter.
    for (kind, payload) in [(26, &7_u32.to_be_bytes()), (22, &2_u32.to_ne_bytes())] {
        let body = |out: &mut Message<'_>| {
            out.put_str(TCA_KIND, "flower");
            out.nest(TCA_OPTIONS, |out| out.put_bytes(kind, payload));
        };
        let answer = world.filter(ADD, named("1:", 1, ETH_P_IP, 0), &body);
        assert!(answer.unwrap_err().ends_with("(EOPNOTSUPP)"));
    }
    let ct = |out: &mut Message<'_>| {
        out.put_str(TCA_KIND, "matchall");
        out.nest(TCA_OPTIONS, |out| {
            out.nest(2, |out| out.nest(1, |out| out.put_str(1, "ct")));
        });
    };
    let answer = world.filter(ADD, named("1:", 1, ETH_P_IP, 0), &ct);
    let expected = "Failed to load TC action module. Softnet has no action \"ct\"; it has gact, \
                    police, mirred, skbedit, vlan, pedit, csum, skbmod, simple (ENOENT)";
    assert_eq!(answer.unwrap_err(), expected);
    assert!(world.filters(at(1, "", ""), &none).is_empty());
}

/// Errnos of refused requests.
const REFUSALS: &[&str] = &[
    "EEXIST",
    "EINVAL",
    "ENODEV",
    "ENOENT",
    "ENOSPC",
    "EOPNOTSUPP",
    "ERANGE",
];

impl World {
    fn chains(&mut self) -> Vec<String> {
        self.dump(RTM_GETCHAIN, at(1, "", ""), &none)
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]
    #[test]
    fn refused_filter_requests_change_nothing(
        requests in prop::collection::vec(
            (
                prop_oneof![
                    3 => Just(RTM_NEWTFILTER),
                    1 => Just(RTM_DELTFILTER),
                    1 => Just(RTM_GETTFILTER),
                    1 => RTM_NEWCHAIN..=RTM_GETCHAIN,
                ],
                any::<u16>(),
                prop::sample::select(vec!["", "1:", "1:1", "7:", "root"]),
                (0..4_u16, prop::sample::select(vec![0, 3, ETH_P_IP])),
                prop_oneof![0..4_u32, any::<u32>()],
                prop::sample::select(vec!["flower", "u32", "basic", "matchall", "fw", "\u{ff}"]),
                prop::collection::vec((0..20_u16, prop::collection::vec(any::<u8>(), 0..40)), 0..5),
                prop::option::of(0..3_u32),
            ),
            1..40,
        ),
    ) {
        let mut world = World::with_prio();
        for (kind, flags, parent, (prio, protocol), handle, name, options, chain) in requests {
            let body = |out: &mut Message<'_>| {
                out.put_str(TCA_KIND, name);
                out.nest(TCA_OPTIONS, |out| {
                    for (kind, bytes) in &options {
                        out.put_bytes(*kind, bytes);
                    }
                });
                chain.into_iter().for_each(|chain| out.put_u32(TCA_CHAIN, chain));
            };
            let before = (world.filters(at(1, "", ""), &none), world.chains());
            let header = named(parent, prio, protocol, handle);
            if let Err(error) = world.ask(kind, flags, header, &body) {
                assert_refused(&error, REFUSALS);
                let after = (world.filters(at(1, "", ""), &none), world.chains());
                prop_assert_eq!(after, before);
            }
        }
    }
}

/// The filter's options fit a request, and with its counters no message.
#[test]
fn a_filter_too_long_to_be_shown_is_added_and_left_out() {
    let mut world = World::with_prio();
    let long = |out: &mut Message<'_>| {
        const COUNT: u16 = 2729;
        out.put_str(TCA_KIND, "basic");
        out.nest(TCA_OPTIONS, |out| {
            out.put_u32(1, 0x1_0001);
            out.nest(2, |out| {
                out.put(1, &[COUNT, 0]);
                out.nest(2, |out| {
                    for n in 1..=COUNT {
                        let relation = u16::from(n < COUNT);
                        // `cmp(u8 at 0 layer 0 mask 0 eq 0)`
                        let (head, cmp) = ([0, 1, relation, 0], [0, 0, 0, 0, 0, 1_u16]);
                        out.put_bytes(n, [head.as_bytes(), cmp.as_bytes()].concat().as_slice());
                    }
                });
            });
        });
    };
    world.filter(ADD, named("1:", 1, 3, 1), &long).unwrap();
    assert_eq!(world.told, ["chain 1: chain 0"]);
    assert!(world.overrun, "members are told that something is missing");
    let fw = of_kind("fw", 0x1_0001);
    world.filter(ADD, named("1:", 2, 3, 9), &fw).unwrap();
    let shown = world.filters(at(1, "1:", ""), &none);
    let others = ["basic chain 0 -", "fw chain 0 -", "fw chain 0 9"];
    assert_eq!(shown.len(), others.len());
    for (line, other) in shown.iter().zip(others) {
        assert!(line.ends_with(other), "{line}");
    }
    let header = named("1:", 1, 3, 1);
    world.ask(RTM_DELTFILTER, 0, header, &none).unwrap();
    let gone = world.ask(RTM_DELTFILTER, 0, header, &none);
    assert!(gone.unwrap_err().ends_with("(ENOENT)"));
}
