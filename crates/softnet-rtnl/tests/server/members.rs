//! The protocol without sockets: groups, options, rights, port ids.

use softnet_rtnl::nl::{Errno, NLM_F_ECHO, NLM_F_REQUEST, NLMSG_ERROR};
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
fn options_are_set_from_another_connection_of_the_user() {
    let mut clients = clients(1..3);
    let mut service = Links::new(1);
    for (port, uid) in [(3, 1000), (4, 1000), (5, 2000)] {
        let connected = clients.connect(Peer {
            port: Some(port),
            uid,
            may_change: false,
        });
        assert_eq!(connected, Ok(port));
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
fn whoever_may_not_change_can_read() {
    let mut clients = Clients::new(8);
    let port = clients
        .connect(Peer {
            port: None,
            uid: 0,
            may_change: false,
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
    assert_eq!(ask(&operation(3, b"", 1))[0].errno(), EPERM);
    assert_eq!(ask(&get_link(1, 0, 1))[0].kind, NEWLINK);
    assert_eq!(ask(&get_link(0, DUMP, 1)).len(), 2);
    assert_eq!(ask(&operation(1, b"", 1)).len(), 2);
    assert_eq!(service.links.len(), 1);
}

#[test]
fn port_ids_are_unique_and_clients_limited() {
    let mut clients = Clients::new(8);
    let unprivileged = Peer {
        port: None,
        uid: 1000,
        may_change: false,
    };
    let ports: Vec<_> = (0..7)
        .map(|_| clients.connect(unprivileged).expect("free"))
        .collect();
    let connect = |clients: &mut Clients, peer| clients.connect(peer).map_err(|e| e.errno);
    // The last place is for those who may change something.
    assert_eq!(connect(&mut clients, unprivileged), Err(Errno::ENOBUFS));
    for port in [0, ports[3]] {
        assert_eq!(connect(&mut clients, peer(port)), Err(Errno::EADDRINUSE));
    }
    assert_eq!(connect(&mut clients, peer(77)), Ok(77));
    assert_eq!(connect(&mut clients, peer(78)), Err(Errno::ENOBUFS));
    clients.disconnect(77);
    assert_eq!(connect(&mut clients, peer(77)), Ok(77));
    let distinct: std::collections::BTreeSet<_> = ports.iter().collect();
    assert_eq!(distinct.len(), 7);
}
