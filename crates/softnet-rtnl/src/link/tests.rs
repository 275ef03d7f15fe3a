//! Requests about links, on an engine with devices in memory.

use netlink_packet_core::{NetlinkMessage, NetlinkPayload};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::link::{LinkAttribute, LinkFlags, LinkMessage};
use softnet_engine::Settings;
use softnet_engine::testing::FedDevices;

use super::attributes::{iff, ifla, info};
use super::{RTM_DELLINK, RTM_GETLINK, RTM_NEWLINK, RTM_SETLINK};
use crate::Rtnl;
use crate::nl::headers::IfInfoMsg;
use crate::nl::{Client, Errno, Error, Message, Messages, NLM_F_CREATE, NLM_F_DUMP, NLM_F_EXCL};
use crate::testing::{CLIENT, Shared, message};

fn rtnl() -> (Rtnl<FedDevices>, Shared) {
    crate::testing::rtnl(|_| {})
}

/// Sends a request, and returns the links of the answer, and the links that were told of.
fn ask(
    rtnl: &mut Rtnl<FedDevices>,
    kind: u16,
    flags: u16,
    header: IfInfoMsg,
    body: impl FnOnce(&mut Message<'_>),
) -> Result<(Vec<LinkMessage>, Vec<LinkMessage>), Error> {
    let request = message(kind, flags, &header, body);
    let (result, replies) = crate::testing::ask(rtnl, &CLIENT, &request);
    result?;
    let events = replies.events().iter();
    let events = events.flat_map(|event| links(&event.message)).collect();
    Ok((links(replies.messages()), events))
}

fn links(messages: &Messages) -> Vec<LinkMessage> {
    let mut rest = messages.as_bytes();
    let mut links = Vec::new();
    while !rest.is_empty() {
        let message = NetlinkMessage::<RouteNetlinkMessage>::deserialize(rest).unwrap();
        rest = &rest[message.header.length as usize..];
        match message.payload {
            NetlinkPayload::InnerMessage(
                RouteNetlinkMessage::NewLink(link) | RouteNetlinkMessage::DelLink(link),
            ) => links.push(link),
            other => panic!("{other:?}"),
        }
    }
    links
}

fn add(rtnl: &mut Rtnl<FedDevices>, name: &str, kind: &str) -> Result<(), Error> {
    let flags = NLM_F_CREATE | NLM_F_EXCL;
    let body = |message: &mut Message<'_>| {
        message.put_str(ifla::IFNAME, name);
        message.nest(ifla::LINKINFO, |message| message.put_str(info::KIND, kind));
    };
    ask(rtnl, RTM_NEWLINK, flags, IfInfoMsg::default(), body).map(drop)
}

fn name(link: &LinkMessage) -> &str {
    let mut attributes = link.attributes.iter();
    let name = attributes.find_map(|attribute| match attribute {
        LinkAttribute::IfName(name) => Some(name.as_str()),
        _ => None,
    });
    name.unwrap_or_default()
}

/// `ip link add`, `set`, `show`, `del`.
#[test]
fn links_come_change_and_go() {
    let (mut rtnl, engine) = rtnl();
    add(&mut rtnl, "br0", "bridge").unwrap();
    add(&mut rtnl, "d%d", "dummy").unwrap();
    add(&mut rtnl, "", "dummy").unwrap();
    let exists = add(&mut rtnl, "br0", "dummy").unwrap_err();
    assert_eq!(exists.errno, Errno::EEXIST);
    let unknown = add(&mut rtnl, "x", "vxlan").unwrap_err();
    assert_eq!(unknown.to_string(), "Unknown device type (EOPNOTSUPP)");
    let named = |index| IfInfoMsg {
        index,
        ..IfInfoMsg::default()
    };
    // As a link that was never up.
    let (shown, _) = ask(&mut rtnl, RTM_GETLINK, 0, named(2), |_| {}).unwrap();
    let noop = LinkAttribute::Qdisc("noop".into());
    assert!(shown[0].attributes.contains(&noop));
    let up = IfInfoMsg {
        flags: iff::UP,
        change: iff::UP,
        ..named(2)
    };
    let (_, told) = ask(&mut rtnl, RTM_SETLINK, 0, up, |message| {
        message.put_u32(ifla::MTU, 1400);
        message.put_u32(ifla::MASTER, 1);
        message.put_str(ifla::IFALIAS, "to the lab");
        message.put_str(ifla::IFNAME, "lab");
    })
    .unwrap();
    // As a link, and as a port of its bridge.
    assert_eq!(told.iter().map(name).collect::<Vec<_>>(), ["lab"; 2]);
    let (shown, _) = ask(&mut rtnl, RTM_GETLINK, 0, named(2), |_| {}).unwrap();
    let [shown] = &shown[..] else {
        panic!("one link");
    };
    assert!(
        shown
            .header
            .flags
            .contains(LinkFlags::Up | LinkFlags::LowerUp)
    );
    for wanted in [
        LinkAttribute::IfName("lab".into()),
        LinkAttribute::Mtu(1400),
        LinkAttribute::Controller(1),
        LinkAttribute::IfAlias("to the lab".into()),
        LinkAttribute::Qdisc("noqueue".into()),
        LinkAttribute::TxQueueLen(1000),
    ] {
        assert!(
            shown.attributes.contains(&wanted),
            "{wanted:?} in {shown:?}"
        );
    }
    let (_, told) = ask(&mut rtnl, RTM_DELLINK, 0, named(2), |_| {}).unwrap();
    assert_eq!(told.iter().map(name).collect::<Vec<_>>(), ["lab"; 2]);
    let gone = ask(&mut rtnl, RTM_GETLINK, 0, named(2), |_| {}).unwrap_err();
    assert_eq!(gone.errno, Errno::ENODEV);
    let names: Vec<_> = engine
        .lock()
        .unwrap()
        .links()
        .values()
        .map(|link| link.settings.name.clone())
        .collect();
    assert_eq!(names, ["br0", "dummy0"]);
}

/// `%d` stands for a free number, as in the kernel; no other `%` is in a name.
#[test]
fn a_link_is_renamed_by_a_pattern() {
    let (mut rtnl, engine) = rtnl();
    add(&mut rtnl, "lab0", "dummy").unwrap();
    add(&mut rtnl, "a", "dummy").unwrap();
    let mut rename = |to: &str| {
        let header = IfInfoMsg {
            index: 2,
            ..IfInfoMsg::default()
        };
        let body = |message: &mut Message<'_>| message.put_str(ifla::IFNAME, to);
        ask(&mut rtnl, RTM_SETLINK, 0, header, body)
    };
    rename("lab%d").unwrap();
    for bad in ["50%", "%s", "a%d%d"] {
        assert_eq!(rename(bad).unwrap_err().errno, Errno::EINVAL, "{bad}");
    }
    let name = engine
        .lock()
        .unwrap()
        .link(2)
        .unwrap()
        .settings
        .name
        .clone();
    assert_eq!(name, "lab1");
}

/// A refused request changes nothing, whatever else the request says.
#[test]
fn a_refused_change_changes_nothing() {
    let (mut rtnl, engine) = rtnl();
    add(&mut rtnl, "br0", "bridge").unwrap();
    add(&mut rtnl, "a", "tun").unwrap();
    add(&mut rtnl, "b", "tun").unwrap();
    let settings = || engine.lock().unwrap().link(2).unwrap().settings.clone();
    let before: Settings = settings();
    type Body = fn(&mut Message<'_>);
    let cases: [(Body, Errno, &str); 7] = [
        (
            |m| m.put_u32(ifla::MTU, 67),
            Errno::EINVAL,
            "mtu less than device minimum",
        ),
        (
            |m| m.put_u32(ifla::MTU, 9001),
            Errno::EINVAL,
            "mtu greater than device maximum",
        ),
        (
            |m| m.put_str(ifla::IFNAME, "b"),
            Errno::EEXIST,
            "there is already a link named `b`",
        ),
        (
            |m| m.put_bytes(ifla::ADDRESS, &[1; 6]),
            Errno::EADDRNOTAVAIL,
            "a link's address must be a unicast address",
        ),
        (
            |m| m.put_u32(ifla::MASTER, 3),
            Errno::EOPNOTSUPP,
            "the link `b` is no bridge",
        ),
        (
            |m| m.put_u32(ifla::MASTER, 77),
            Errno::ENODEV,
            "there is no link with the number 77",
        ),
        (
            |m| m.put_u32(ifla::NET_NS_PID, 1),
            Errno::EOPNOTSUPP,
            "links cannot be moved to a network namespace",
        ),
    ];
    for (bad, errno, text) in cases {
        let header = IfInfoMsg {
            index: 2,
            flags: iff::UP,
            change: iff::UP,
            ..IfInfoMsg::default()
        };
        let error = ask(&mut rtnl, RTM_SETLINK, 0, header, |message| {
            message.put_u32(ifla::GROUP, 5);
            bad(message);
        });
        let error = error.unwrap_err();
        assert_eq!((error.errno, error.text.as_deref()), (errno, Some(text)));
        assert_eq!(settings(), before);
        assert_eq!(engine.lock().unwrap().link(2).unwrap().master, None);
    }
}

/// A dump goes on where it stopped, and leaves out what the client does not want.
#[test]
fn dumps_are_taken_in_parts_and_filtered() {
    let (mut rtnl, _engine) = rtnl();
    add(&mut rtnl, "br0", "bridge").unwrap();
    for n in 0..100 {
        add(&mut rtnl, &format!("d{n}"), "dummy").unwrap();
    }
    let mut dump = |body: &dyn Fn(&mut Message<'_>)| {
        let request = message(RTM_GETLINK, NLM_F_DUMP, &IfInfoMsg::default(), |m| body(m));
        let parts = crate::testing::dump(&mut rtnl, &CLIENT, &request).unwrap();
        let links = parts.iter().flat_map(links);
        let names: Vec<_> = links.map(|link| name(&link).to_owned()).collect();
        (names, parts.len())
    };
    let (all, parts) = dump(&|_| {});
    assert_eq!((all.len(), &*all[1], &*all[100]), (101, "d0", "d99"));
    assert!(parts > 1);
    let (bridges, _) = dump(&|message| {
        message.nest(ifla::LINKINFO, |message| {
            message.put_str(info::KIND, "bridge")
        });
    });
    assert_eq!(bridges, ["br0"]);
}

/// An empty alias takes it away (`IFLA_IFALIAS` is of the kind `NLA_BINARY`).
#[test]
fn an_empty_alias_takes_it_away() {
    let (mut rtnl, engine) = rtnl();
    add(&mut rtnl, "d0", "dummy").unwrap();
    let header = IfInfoMsg {
        index: 1,
        ..IfInfoMsg::default()
    };
    for alias in ["lab", ""] {
        ask(&mut rtnl, RTM_SETLINK, 0, header, |message| {
            message.put(ifla::IFALIAS, alias.as_bytes());
        })
        .unwrap();
        let engine = engine.lock().unwrap();
        assert_eq!(engine.link(1).unwrap().settings.alias, alias);
    }
}

/// `ip link show nomaster`, `master br0`, `type KIND`.
#[test]
fn dumps_are_filtered_as_by_the_kernel() {
    let (mut rtnl, _engine) = rtnl();
    add(&mut rtnl, "br0", "bridge").unwrap();
    add(&mut rtnl, "d0", "dummy").unwrap();
    add(&mut rtnl, "d1", "dummy").unwrap();
    let header = IfInfoMsg {
        index: 2,
        ..IfInfoMsg::default()
    };
    ask(&mut rtnl, RTM_SETLINK, 0, header, |message| {
        message.put_u32(ifla::MASTER, 1);
    })
    .unwrap();
    let mut names = |body: &dyn Fn(&mut Message<'_>)| {
        let request = message(RTM_GETLINK, NLM_F_DUMP, &IfInfoMsg::default(), body);
        let parts = crate::testing::dump(&mut rtnl, &CLIENT, &request).unwrap();
        let shown = parts.iter().flat_map(links);
        shown.map(|link| name(&link).to_owned()).collect::<Vec<_>>()
    };
    let master =
        |master: u32| move |message: &mut Message<'_>| message.put_u32(ifla::MASTER, master);
    assert_eq!(names(&master(1)), ["d0"]);
    assert_eq!(names(&master(u32::MAX)), ["br0", "d1"]);
    assert_eq!(names(&master(0)), ["br0", "d0", "d1"]);
    let kind = |kind: &'static str| {
        move |message: &mut Message<'_>| {
            message.nest(ifla::LINKINFO, |message| message.put_str(info::KIND, kind));
        }
    };
    assert_eq!(names(&kind("dummy")), ["d0", "d1"]);
    assert_eq!(names(&kind("bridge")), ["br0"]);
    assert_eq!(names(&kind("vxlan")), ["br0", "d0", "d1"]);
}

/// An attribute that is not read is refused and named in the error: no client takes it for set.
#[test]
fn unsupported_attributes_are_refused_by_name() {
    let (mut rtnl, engine) = rtnl();
    add(&mut rtnl, "br0", "bridge").unwrap();
    add(&mut rtnl, "d0", "dummy").unwrap();
    add(&mut rtnl, "t0", "tun").unwrap();
    let header = IfInfoMsg {
        index: 2,
        ..IfInfoMsg::default()
    };
    // OPERSTATE, LINKMODE, VF_PORTS, AF_SPEC, TARGET_NETNSID, GSO_MAX_SIZE, XDP, one of the future.
    for attr in [16, 17, 24, 26, 46, 41, 43, 200] {
        let mut change = |kind, flags, header| {
            let refused = ask(&mut rtnl, kind, flags, header, |message| {
                message.put_u32(ifla::GROUP, 5);
                message.put_u32(attr, 1);
                message.nest(ifla::LINKINFO, |message| {
                    message.put_str(info::KIND, "dummy");
                });
            });
            let error = refused.unwrap_err();
            let text = "Softnet's links have no such attribute";
            assert_eq!(error.errno, Errno::EOPNOTSUPP, "{attr}");
            assert_eq!(error.text.as_deref(), Some(text), "{attr}");
            // Behind the headers and the group.
            assert_eq!(error.offset, Some(40), "{attr}");
        };
        change(RTM_SETLINK, 0, header);
        change(RTM_NEWLINK, 0, header);
        change(RTM_NEWLINK, NLM_F_CREATE, IfInfoMsg::default());
        assert_eq!(engine.lock().unwrap().link(2).unwrap().settings.group, 0);
        assert_eq!(engine.lock().unwrap().links().len(), 3);
    }
    // `multicast on` of a dummy, which has none; `arp off` and `multicast off` of a TAP device.
    let mut flags = |index, change, flags| {
        let header = IfInfoMsg {
            index,
            change,
            flags,
            ..header
        };
        ask(&mut rtnl, RTM_SETLINK, 0, header, |_| {}).map_err(|error| error.errno)
    };
    for (index, flag, known) in [
        (2, iff::MULTICAST, 0),
        (2, iff::NOARP, iff::NOARP),
        (3, iff::MULTICAST, iff::MULTICAST),
        (3, iff::NOARP, 0),
    ] {
        flags(index, flag, known).unwrap();
        let refused = flags(index, flag, known ^ flag).map(drop);
        assert_eq!(refused, Err(Errno::EOPNOTSUPP), "{index} {flag:#x}");
    }
}

/// A member of the socket's group gets no interface on the host, and not as many links as it likes.
#[test]
fn a_member_of_the_group_makes_no_device_of_the_host() {
    let (mut rtnl, engine) = rtnl();
    let member = Client {
        own: false,
        ..CLIENT
    };
    let mut add = |client: &Client, name: &str, kind: &str| {
        let flags = NLM_F_CREATE | NLM_F_EXCL;
        let request = message(RTM_NEWLINK, flags, &IfInfoMsg::default(), |message| {
            message.put_str(ifla::IFNAME, name);
            message.nest(ifla::LINKINFO, |message| message.put_str(info::KIND, kind));
        });
        let (result, _) = crate::testing::ask(&mut rtnl, client, &request);
        result.map_err(|error| error.errno)
    };
    assert_eq!(add(&member, "t0", "tun"), Err(Errno::EPERM));
    add(&CLIENT, "t0", "tun").unwrap();
    add(&member, "br0", "bridge").unwrap();
    for _ in 2..512 {
        add(&member, "d%d", "dummy").unwrap();
    }
    assert_eq!(add(&member, "more", "bridge"), Err(Errno::ENOSPC));
    add(&CLIENT, "more", "dummy").unwrap();
    assert_eq!(engine.lock().unwrap().links().len(), 513);
}
