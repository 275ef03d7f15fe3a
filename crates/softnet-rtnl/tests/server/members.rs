//! The protocol without sockets: groups, options, rights, port ids.

use softnet_rtnl::nl::{Errno, NLM_F_ECHO, NLM_F_REQUEST, NLMSG_ERROR, NLMSG_OVERRUN};
use softnet_rtnl::server::{Clients, Peer};
use zerocopy::IntoBytes;

use crate::client::{DUMP, get_link, new_link, operation, option, request};
use crate::service::{GETLINK, GROUP, Links, NEWLINK, header};

use crate::dialogue::{clients, peer, read_all};

const EPERM: i32 = Errno::EPERM.0;

#[test]
fn events_reach_members_once() {
    let (mut clients, mut service) = (clients(1..5), Links::new(0));
    for port in [1, 2, 3] {
        clients.receive(
            port,
            &option(0, libc::NETLINK_ADD_MEMBERSHIP, GROUP, 1),
            &mut service,
        );
    }
    clients.receive(
        3,
        &option(0, libc::NETLINK_DROP_MEMBERSHIP, GROUP, 2),
        &mut service,
    );
    for port in 1..5 {
        let acks = read_all(&mut clients, port, &mut service);
        assert!(acks.iter().all(|ack| ack.errno() == 0));
    }
    // With the echo, the client gets the event as a reply; without it, as a member.
    for (seq, flags) in [(10, 0), (11, NLM_F_ECHO)] {
        clients.receive(1, &new_link(seq, flags, seq), &mut service);
        let [event, ack] = read_all(&mut clients, 1, &mut service)
            .try_into()
            .expect("two");
        assert_eq!((event.kind, event.seq, event.port), (NEWLINK, seq, 1));
        assert_eq!((ack.kind, ack.errno()), (NLMSG_ERROR, 0));
        assert_eq!(read_all(&mut clients, 2, &mut service), [event]);
    }
    // One that is no member gets the echo alone.
    clients.receive(4, &new_link(12, NLM_F_ECHO, 12), &mut service);
    assert_eq!(read_all(&mut clients, 4, &mut service).len(), 2);
    assert_eq!(read_all(&mut clients, 3, &mut service), []);
    // An event without a request.
    service.changed.lock().expect("no panic").push(3);
    clients.publish_changes(&mut service);
    let [_, event] = read_all(&mut clients, 2, &mut service)
        .try_into()
        .expect("two");
    assert_eq!((event.seq, event.port), (0, 0));
}

#[test]
fn changes_that_are_lost_are_told_to_members_of_any_group() {
    let (mut clients, mut service) = (clients(1..5), Links::new(0));
    let add = libc::NETLINK_ADD_MEMBERSHIP;
    let options = [
        option(0, add, GROUP, 1),
        option(0, add, GROUP + 1, 1),
        option(0, libc::NETLINK_NO_ENOBUFS, 1, 1),
        option(0, add, GROUP, 2),
    ];
    for (port, option) in [1, 2, 3, 3].into_iter().zip(&options) {
        clients.receive(port, option, &mut service);
        read_all(&mut clients, port, &mut service);
    }
    let mut told = |clients: &mut Clients| -> Vec<Vec<(u16, u32)>> {
        let of = |port| {
            let told = read_all(clients, port, &mut service);
            told.iter().map(|told| (told.kind, told.port)).collect()
        };
        (1..5).map(of).collect()
    };
    assert_eq!(told(&mut clients), [[]; 4]);
    let mut changed = Links::new(0);
    changed.lost = true;
    changed.changed.lock().expect("no panic").push(3);
    clients.publish_changes(&mut changed);
    // Before the events that are there. Who is no member, and who does not want it, is not told.
    assert_eq!(
        told(&mut clients),
        [
            vec![(NLMSG_OVERRUN, 1), (NEWLINK, 0)],
            vec![(NLMSG_OVERRUN, 2)],
            vec![(NEWLINK, 0)],
            vec![],
        ]
    );
    clients.publish_changes(&mut changed);
    assert_eq!(told(&mut clients), [[]; 4], "once");
    // Found by a request, too.
    changed.lost = true;
    clients.receive(4, &get_link(9, 0, 1), &mut changed);
    assert_eq!(told(&mut clients)[0], [(NLMSG_OVERRUN, 1)]);
}

/// Nothing more is kept for a client that reads nothing.
#[test]
fn losses_told_to_a_client_that_does_not_read_have_an_end() {
    let (mut clients, mut service) = (clients(1..2), Links::new(0));
    let join = option(0, libc::NETLINK_ADD_MEMBERSHIP, GROUP, 1);
    clients.receive(1, &join, &mut service);
    read_all(&mut clients, 1, &mut service);
    for _ in 0..10_000 {
        service.lost = true;
        clients.publish_changes(&mut service);
    }
    let told = read_all(&mut clients, 1, &mut service);
    assert!((1_000..5_000).contains(&told.len()), "{}", told.len());
}

#[test]
fn options_are_set_from_another_connection_of_the_user() {
    let mut clients = clients(1..3);
    let mut service = Links::new(1);
    for (port, uid) in [(3, 1000), (4, 1000), (5, 2000)] {
        let connected = clients.connect(Peer {
            port: Some(port),
            uid,
            may_change: true,
            own: true,
        });
        assert_eq!(connected, Ok(port.into()));
    }
    let mut set = |from, port, name, value| {
        clients.receive(from, &option(port, name, value, 3), &mut service);
        let [answer] = read_all(&mut clients, from, &mut service)
            .try_into()
            .expect("one");
        assert_eq!((answer.kind, answer.seq), (NLMSG_ERROR, 3));
        answer.errno()
    };
    let strict = libc::NETLINK_GET_STRICT_CHK;
    assert_eq!(set(4, 3, strict, 1), 0);
    assert_eq!(set(5, 3, strict, 0), EPERM);
    assert_eq!(set(3, 1, strict, 1), EPERM);
    assert_eq!(set(1, 3, libc::NETLINK_ADD_MEMBERSHIP, GROUP), 0);
    assert_eq!(set(4, 99, strict, 1), Errno::ECONNREFUSED.0);
    assert_eq!(set(4, 3, libc::NETLINK_EXT_ACK, 1), 0);
    assert_eq!(set(4, 3, libc::NETLINK_CAP_ACK, 0), 0);
    assert_eq!(set(4, 3, libc::NETLINK_RX_RING, 1), Errno::ENOPROTOOPT.0);
    assert_eq!(set(4, 3, -1, 1), Errno::ENOPROTOOPT.0);
    for group in [0, 65, u32::MAX] {
        assert_eq!(
            set(3, 0, libc::NETLINK_ADD_MEMBERSHIP, group),
            Errno::EINVAL.0
        );
        assert_eq!(
            set(3, 0, libc::NETLINK_DROP_MEMBERSHIP, group),
            Errno::EINVAL.0
        );
    }
    clients.receive(3, &request(15, NLM_F_REQUEST, 1, &[0; 11]), &mut service);
    assert_eq!(
        read_all(&mut clients, 3, &mut service)[0].errno(),
        Errno::EINVAL.0
    );
    // They hold: an unknown attribute is refused, and events come.
    let mut unknown = header(1).as_bytes().to_vec();
    unknown.extend([4, 0, 61, 0]);
    clients.receive(
        3,
        &request(GETLINK, NLM_F_REQUEST, 1, &unknown),
        &mut service,
    );
    clients.receive(1, &new_link(7, 0, 1), &mut service);
    let [refused, event] = read_all(&mut clients, 3, &mut service)
        .try_into()
        .expect("two");
    assert_eq!(refused.text().as_deref(), Some("Unknown attribute type"));
    assert_eq!(event.kind, NEWLINK);
}

#[test]
fn unprivileged_client_can_read() {
    let mut clients = Clients::new(8);
    let port = clients
        .connect(Peer {
            port: None,
            uid: 0,
            may_change: false,
            own: false,
        })
        .expect("free");
    let mut service = Links::new(1);
    let mut ask = |datagram: &[u8]| {
        clients.receive(port, datagram, &mut service);
        read_all(&mut clients, port, &mut service)
    };
    // NEW, DEL and SET of every family, with and without the flags of a dump.
    for kind in (16..124).filter(|kind| kind % 4 != 2) {
        let answers = ask(&request(
            kind,
            NLM_F_REQUEST | DUMP,
            1,
            header(1).as_bytes(),
        ));
        assert_eq!(answers[0].errno(), EPERM, "{kind}");
    }
    for change in [3, 4, 6, 7] {
        assert_eq!(ask(&operation(change, b"", 1))[0].errno(), EPERM);
    }
    assert_eq!(ask(&get_link(1, 0, 1))[0].kind, NEWLINK);
    assert_eq!(ask(&get_link(0, DUMP, 1)).len(), 2);
    for text in [1, 5] {
        assert_eq!(ask(&operation(text, b"", 1)).len(), 2);
    }
    assert_eq!(service.links.len(), 1);
}

#[test]
fn port_ids_are_unique_and_clients_limited() {
    let mut clients = Clients::new(8);
    let unprivileged = Peer {
        port: None,
        uid: 1000,
        may_change: false,
        own: false,
    };
    let ports: Vec<_> = (0..7)
        .map(|_| clients.connect(unprivileged).expect("free"))
        .collect();
    let connect = |clients: &mut Clients, peer| clients.connect(peer).map_err(|e| e.errno);
    // The last place is for those who may change something.
    assert_eq!(connect(&mut clients, unprivileged), Err(Errno::ENOBUFS));
    assert_eq!(connect(&mut clients, peer(0)), Err(Errno::EADDRINUSE));
    assert_eq!(connect(&mut clients, peer(77)), Ok(77));
    assert_eq!(connect(&mut clients, peer(77)), Err(Errno::ENOBUFS));
    assert_eq!(connect(&mut clients, peer(78)), Err(Errno::ENOBUFS));
    clients.disconnect(77);
    assert_eq!(connect(&mut clients, peer(77)), Ok(77));
    let distinct: std::collections::BTreeSet<_> = ports.iter().collect();
    assert_eq!(distinct.len(), 7);
}

fn reader(port: Option<u32>, uid: u32) -> Peer {
    Peer {
        port,
        uid,
        may_change: false,
        own: false,
    }
}

/// Neither one that may change something nor another user's finds its port id taken.
#[test]
fn port_ids_of_readers_are_their_users_own() {
    let mut clients = Clients::new(16);
    let mut service = Links::new(1);
    let connect = |clients: &mut Clients, peer| clients.connect(peer).map_err(|e| e.errno);
    let first = connect(&mut clients, reader(Some(7), 1000)).expect("free");
    let second = connect(&mut clients, reader(Some(7), 2000)).expect("another user's");
    assert_eq!(
        connect(&mut clients, reader(Some(7), 1000)),
        Err(Errno::EADDRINUSE)
    );
    let owner = connect(&mut clients, peer(7)).expect("of those that may change");
    for key in [first, second, owner] {
        clients.receive(key, &get_link(1, 0, 1), &mut service);
        let answers = read_all(&mut clients, key, &mut service);
        assert_eq!((answers[0].kind, answers[0].port), (NEWLINK, 7));
    }
    // Options of the port id are those of the user's client.
    let helper = connect(&mut clients, reader(None, 1000)).expect("free");
    let add = option(7, libc::NETLINK_ADD_MEMBERSHIP, GROUP, 1);
    clients.receive(helper, &add, &mut service);
    assert_eq!(read_all(&mut clients, helper, &mut service)[0].errno(), 0);
    clients.receive(owner, &new_link(9, 0, 1), &mut service);
    let told = |clients: &mut Clients, key| read_all(clients, key, &mut Links::new(0)).len();
    assert_eq!(told(&mut clients, first), 1);
    assert_eq!(told(&mut clients, second), 0);
    // The next of the same name.
    clients.disconnect(first);
    assert!(connect(&mut clients, reader(Some(7), 1000)).is_ok());
}

#[test]
fn a_reader_has_few_places_and_short_queues() {
    let mut clients = Clients::new(1024);
    let mut service = Links::new(1);
    let keys: Vec<u64> = (0..32)
        .map(|_| clients.connect(reader(None, 1000)).expect("free"))
        .collect();
    let refused = clients.connect(reader(None, 1000)).expect_err("too many");
    assert_eq!(refused.errno, Errno::ENOBUFS);
    assert!(clients.connect(reader(None, 2000)).is_ok());
    assert!(clients.connect(peer(7)).is_ok());
    // It may ask little at once, and be owed little.
    let storm: Vec<u8> = (0..2000).flat_map(|seq| get_link(1, 0, seq)).collect();
    clients.receive(keys[0], &storm, &mut service);
    let [answer] = read_all(&mut clients, keys[0], &mut service)
        .try_into()
        .expect("one");
    assert_eq!(answer.errno(), Errno::EMSGSIZE.0);
    service.padding = 1000;
    clients.receive(keys[0], &storm[..32 * 1000], &mut service);
    let calls = *service.calls.lock().expect("no panic");
    assert!(calls < 40, "{calls} answers of 1,000 bytes for 32 KiB");
    let answers = read_all(&mut clients, keys[0], &mut service);
    assert!(answers.iter().map(|answer| answer.seq).eq(0..1000));
}

/// Readers that do not read keep no text from those that may change something, and nobody keeps
/// them from a reload.
#[test]
fn texts_that_are_not_read_do_not_stop_a_reload() {
    let mut clients = Clients::new(1024);
    let mut service = Links::new(1);
    // 160 KB of text each; a part of it is in the queue.
    let argument = [0; 16_000];
    let ask = |clients: &mut Clients, service: &mut Links, key, number, argument: &[u8]| {
        clients.receive(key, &operation(number, argument, 1), service);
        let datagram = clients.output(key, service).expect("an answer");
        let answer = crate::client::answers(&datagram).remove(0);
        (answer.kind == NLMSG_ERROR).then(|| answer.errno())
    };
    let mut refused = None;
    for number in 0..600 {
        let reader = reader(None, 1000 + number / 32);
        let key = clients.connect(reader).expect("free");
        refused = ask(&mut clients, &mut service, key, 2, &argument);
        if refused.is_some() {
            break;
        }
    }
    assert_eq!(refused, Some(Errno::ENOBUFS.0));
    let mut refused = None;
    for port in 1..400 {
        let key = clients.connect(peer(port)).expect("free");
        refused = ask(&mut clients, &mut service, key, 2, &argument);
        if refused.is_some() {
            assert!(port > 100, "half of the space was theirs: {port}");
            break;
        }
    }
    assert_eq!(refused, Some(Errno::ENOBUFS.0));
    let key = clients.connect(peer(1000)).expect("free");
    // The service's own answer.
    let reload = ask(&mut clients, &mut service, key, 3, b"");
    assert_eq!(reload, Some(Errno::EINVAL.0));
}
