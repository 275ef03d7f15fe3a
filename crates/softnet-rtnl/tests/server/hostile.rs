//! The protocol without sockets: clients that do not read, and datagrams that nobody should send.

use softnet_rtnl::nl::{Errno, NLM_F_ACK, NLM_F_REQUEST, NLMSG_OVERRUN};
use zerocopy::IntoBytes;

use crate::client::{Answer, DUMP, get_link, new_link, operation, option, request};
use crate::dialogue::{ask, clients, read_all};
use crate::service::{GETLINK, GROUP, LINKINFO, Links, NEWLINK, header};

/// A request of 32 bytes has an answer of 1,000: they wait until the client reads.
#[test]
fn requests_of_a_client_that_does_not_read_wait() {
    let (mut clients, mut service) = (clients(1..3), Links::new(1));
    service.padding = 1000;
    let mut storm = Vec::new();
    for seq in 0..8000 {
        storm.extend(get_link(1, 0, seq));
    }
    clients.receive(1, &storm, &mut service);
    assert!(!clients.wants_input(1));
    let calls = *service.calls.lock().expect("no panic");
    assert!(calls < 300, "{calls} answers of 1,000 bytes for 256 KiB");
    // Others are answered.
    clients.receive(2, &get_link(1, 0, 1), &mut service);
    assert_eq!(read_all(&mut clients, 2, &mut service).len(), 1);
    // All are, in order, when it reads.
    let answers = read_all(&mut clients, 1, &mut service);
    assert!(answers.iter().map(|answer| answer.seq).eq(0..8000));
    assert!(clients.wants_input(1));
}

#[test]
fn requests_of_a_dead_client_are_carried_out() {
    let (mut clients, mut service) = (clients(1..2), Links::new(1));
    service.padding = 1000;
    let mut storm = Vec::new();
    for index in 1..500 {
        storm.extend(get_link(1, 0, index));
        storm.extend(new_link(index, 0, index));
    }
    clients.receive(1, &storm, &mut service);
    assert!(service.links.len() < 499);
    clients.deafen(1, &mut service);
    assert_eq!(service.links.len(), 499);
    assert!(clients.wants_input(1) && !clients.has_output(1));
    clients.receive(1, &get_link(0, DUMP, 1), &mut service);
    assert!(!clients.has_output(1));
}

#[test]
fn loss_of_unread_events_is_reported() {
    let (mut clients, mut service) = (clients(1..4), Links::new(0));
    service.padding = 10_000;
    for port in [2, 3] {
        clients.receive(
            port,
            &option(0, libc::NETLINK_ADD_MEMBERSHIP, GROUP, 1),
            &mut service,
        );
    }
    clients.receive(3, &option(0, libc::NETLINK_NO_ENOBUFS, 1, 1), &mut service);
    for port in [2, 3] {
        read_all(&mut clients, port, &mut service);
    }
    for index in 1..=100 {
        clients.receive(1, &new_link(index, 0, index), &mut service);
        read_all(&mut clients, 1, &mut service);
    }
    let events = read_all(&mut clients, 2, &mut service);
    let (overrun, events) = events.split_last().expect("some");
    assert_eq!(
        (overrun.kind, overrun.seq, overrun.port),
        (NLMSG_OVERRUN, 0, 2)
    );
    let known = events.len();
    assert!(
        (20..30).contains(&known),
        "{known} events of 10,000 bytes in 256 KiB"
    );
    assert!(events.iter().map(Answer::index).eq(1..=known as u32));
    // NETLINK_NO_ENOBUFS: lost as well, and not said.
    assert_eq!(read_all(&mut clients, 3, &mut service).len(), known);
    // All read, so the next comes.
    clients.receive(1, &new_link(101, 0, 101), &mut service);
    assert_eq!(read_all(&mut clients, 2, &mut service)[0].index(), 101);
}

/// Datagrams that end in the middle of anything.
#[test]
fn truncated_datagrams() {
    let mut service = Links::new(1);
    let mut payload = header(1).as_bytes().to_vec();
    payload.extend([
        20,
        0,
        LINKINFO as u8,
        0,
        8,
        0,
        1,
        0,
        b'd',
        b'u',
        b'm',
        0,
        8,
        0,
        2,
        0,
        4,
        0,
        1,
        0,
    ]);
    let whole = request(GETLINK, NLM_F_REQUEST | NLM_F_ACK, 1, &payload);
    for length in 0..=whole.len() {
        // Cut short, with the old length and with the new one.
        let mut cut = whole[..length].to_vec();
        assert_eq!(
            ask(&mut clients(1..2), &mut service, &cut).len(),
            if length == whole.len() { 2 } else { 0 }
        );
        if length >= 16 {
            cut[..4].copy_from_slice(&(length as u32).to_ne_bytes());
            let answers = ask(&mut clients(1..2), &mut service, &cut);
            assert!(!answers.is_empty(), "{length}");
        }
        // Every byte as it should not be.
        for byte in [0, 1, 0x7f, 0xff] {
            let mut bent = whole.clone();
            if let Some(bent) = bent.get_mut(length) {
                *bent = byte;
            }
            ask(&mut clients(1..2), &mut service, &bent);
        }
    }
}

/// As many attributes, and as deep nests, as fit a datagram.
#[test]
fn storms_of_attributes() {
    let (mut clients, mut service) = (clients(1..2), Links::new(1));
    let mut payload = header(1).as_bytes().to_vec();
    for _ in 0..50_000 {
        payload.extend([4, 0, 50, 0]);
    }
    let answers = ask(
        &mut clients,
        &mut service,
        &request(GETLINK, NLM_F_REQUEST, 1, &payload),
    );
    assert_eq!(answers[0].kind, NEWLINK);
    // A dump would keep it.
    let dump = request(GETLINK, NLM_F_REQUEST | DUMP, 1, &payload);
    for long in [dump, operation(1, &payload, 1)] {
        let answers = ask(&mut clients, &mut service, &long);
        assert_eq!(answers[0].errno(), Errno::EMSGSIZE.0);
    }
    // Nests in nests: those beyond the policy are never looked at.
    let mut nest = vec![4, 0, 2, 0];
    while nest.len() < 65_000 {
        let length = (nest.len() as u16 + 4).to_ne_bytes();
        nest = [&length[..], &[LINKINFO as u8, 0], &nest].concat();
    }
    let mut payload = header(1).as_bytes().to_vec();
    payload.extend(&nest);
    let answers = ask(
        &mut clients,
        &mut service,
        &request(GETLINK, NLM_F_REQUEST, 1, &payload),
    );
    assert_eq!(answers.len(), 1);
}
