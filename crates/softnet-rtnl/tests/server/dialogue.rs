//! The protocol without sockets: what is answered, and in which order.

use softnet_rtnl::nl::{
    Errno, NLM_F_ACK, NLM_F_ACK_TLVS, NLM_F_BULK, NLM_F_CAPPED, NLM_F_DUMP_INTR, NLM_F_MULTI,
    NLM_F_REQUEST, NLMSG_DONE, NLMSG_ERROR, NLMSG_NOOP,
};
use softnet_rtnl::server::{Clients, OPERATION, Peer};
use zerocopy::IntoBytes;

use crate::client::{Answer, DUMP, answers, get_link, new_link, operation, request};
use crate::service::{DELLINK, GETLINK, IFNAME, LINKINFO, Links, NEWLINK, header};

pub(crate) fn peer(port: u32) -> Peer {
    Peer {
        port: Some(port),
        uid: 0,
        may_change: true,
        own: true,
    }
}

pub(crate) fn clients(ports: std::ops::Range<u32>) -> Clients {
    let mut clients = Clients::new(16);
    for port in ports {
        clients.connect(peer(port)).expect("a free port id");
    }
    clients
}

/// One datagram.
pub(crate) fn read(clients: &mut Clients, port: u64, service: &mut Links) -> Option<Vec<Answer>> {
    let datagram = clients.output(port, service)?;
    clients.sent(port, service);
    Some(answers(&datagram))
}

/// All that there is.
pub(crate) fn read_all(clients: &mut Clients, port: u64, service: &mut Links) -> Vec<Answer> {
    let mut all = Vec::new();
    while let Some(datagram) = read(clients, port, service) {
        all.extend(datagram);
    }
    all
}

pub(crate) fn ask(clients: &mut Clients, service: &mut Links, datagram: &[u8]) -> Vec<Answer> {
    clients.receive(1, datagram, service);
    read_all(clients, 1, service)
}

/// The treatment of each message by `netlink_rcv_skb` and `rtnetlink_rcv_msg`, one datagram after
/// the other and all in one.
#[test]
fn requests_are_answered_as_by_netlink() {
    let mut service = Links::new(2);
    let link = header(1);
    let fixed = link.as_bytes();
    let both = NLM_F_REQUEST | NLM_F_ACK;
    let enodev = Some(Errno::ENODEV.0);
    let notsupp = Some(Errno::EOPNOTSUPP.0);
    // Type, flags, payload, error.
    let cases: &[(u16, u16, &[u8], Option<i32>)] = &[
        // No request, or a type of netlink's own: acknowledged if asked for.
        (GETLINK, NLM_F_ACK, fixed, Some(0)),
        (GETLINK, 0, fixed, None),
        (NLMSG_NOOP, both, fixed, Some(0)),
        (13, both, fixed, Some(0)),
        (13, NLM_F_REQUEST, fixed, None),
        // No payload.
        (NEWLINK, both, &[], Some(0)),
        (124, both, fixed, notsupp),
        (124, NLM_F_REQUEST, fixed, notsupp),
        (u16::MAX, both, fixed, notsupp),
        // The service's errors.
        (36, NLM_F_REQUEST, fixed, notsupp),
        (38, NLM_F_REQUEST | DUMP, fixed, notsupp),
        (GETLINK, NLM_F_REQUEST, &[0], Some(Errno::EINVAL.0)),
        (DELLINK, NLM_F_REQUEST, &[0; 16], enodev),
        // Of neighbours only many may be deleted at once.
        (DELLINK, NLM_F_REQUEST | NLM_F_BULK, &[0; 16], notsupp),
    ];
    let mut batch = Vec::new();
    for (at, (kind, flags, payload, error)) in cases.iter().enumerate() {
        let message = request(*kind, *flags, at as u32, payload);
        batch.extend(&message);
        let answers = ask(&mut clients(1..2), &mut service, &message);
        let errors: Vec<i32> = answers.iter().map(Answer::errno).collect();
        assert_eq!(
            errors,
            error.iter().copied().collect::<Vec<_>>(),
            "{kind} {flags:#x}"
        );
        for answer in answers {
            assert_eq!(
                (answer.kind, answer.seq, answer.port),
                (NLMSG_ERROR, at as u32, 1)
            );
            assert!(answer.flags & NLM_F_CAPPED != 0);
            assert_eq!(answer.payload[4..20], message[..16]);
        }
    }
    let expected: Vec<u32> = (0..)
        .zip(cases)
        .filter(|(_, case)| case.3.is_some())
        .map(|c| c.0)
        .collect();
    let answers = ask(&mut clients(1..2), &mut service, &batch);
    assert_eq!(
        answers.iter().map(|answer| answer.seq).collect::<Vec<_>>(),
        expected
    );
    // A wrong length ends the datagram; what is in front of it is done.
    for length in [0_u32, 15, 10_000] {
        let mut batch = [get_link(1, NLM_F_ACK, 5), get_link(1, 0, 6)].concat();
        batch[32..36].copy_from_slice(&length.to_ne_bytes());
        let answers = ask(&mut clients(1..2), &mut service, &batch);
        let seqs: Vec<_> = answers.iter().map(|answer| answer.seq).collect();
        assert_eq!(seqs, [5, 5], "{length}");
    }
}

#[test]
fn errors_carry_text_and_offset() {
    let (mut clients, mut service) = (clients(1..2), Links::new(1));
    let mut ask = |datagram: &[u8]| {
        let [answer] = ask(&mut clients, &mut service, datagram)
            .try_into()
            .expect("one");
        answer
    };
    let exists = ask(&new_link(1, 0, 1));
    assert_eq!(exists.errno(), Errno::EEXIST.0);
    assert_eq!(
        exists.text().as_deref(),
        Some("the kernel's text. and help")
    );
    assert_eq!(exists.flags, NLM_F_CAPPED | NLM_F_ACK_TLVS);

    // A name of 17 bytes, in LINKINFO: 16 + 16 for the headers, 4 for the nest's.
    let mut payload = header(1).as_bytes().to_vec();
    payload.extend([28, 0, LINKINFO as u8, 0, 21, 0, 1, 0]);
    payload.extend([b'x'; 20]);
    let wrong = ask(&request(NEWLINK, NLM_F_REQUEST, 2, &payload));
    assert_eq!(
        wrong.text().as_deref(),
        Some("Attribute failed policy validation")
    );
    assert_eq!(wrong.tlvs()[1], (2, 36_u32.to_ne_bytes().to_vec()));

    // One that is far behind what the answer has of the request is left out.
    let mut payload = header(1).as_bytes().to_vec();
    payload.extend([204, 0, 0xff, 0]);
    payload.extend([0; 200]);
    payload.extend([28, 0, LINKINFO as u8, 0, 21, 0, 1, 0]);
    payload.extend([b'x'; 20]);
    let far = ask(&request(NEWLINK, NLM_F_REQUEST, 2, &payload));
    assert_eq!(far.text(), wrong.text());
    assert_eq!(far.tlvs().len(), 1);

    let missing = ask(&request(NEWLINK, NLM_F_REQUEST, 3, header(9).as_bytes()));
    assert_eq!(missing.errno(), Errno::EINVAL.0);
    assert_eq!(
        missing.tlvs(),
        [(5, u32::from(IFNAME).to_ne_bytes().to_vec())]
    );

    // A success with a warning, as the kernel's extended ACK without an error.
    let flags = NLM_F_REQUEST | NLM_F_ACK;
    let gone = ask(&request(DELLINK, flags, 4, header(1).as_bytes()));
    assert_eq!(
        (gone.errno(), gone.text().as_deref()),
        (0, Some("it is gone"))
    );
    let gone = ask(&request(DELLINK, flags, 4, header(1).as_bytes()));
    assert_eq!((gone.errno(), gone.text()), (Errno::ENODEV.0, None));
    assert_eq!(gone.flags, NLM_F_CAPPED);
}

#[test]
fn a_dump_has_all_objects_in_chunks_and_an_end() {
    let (mut clients, mut service) = (clients(1..2), Links::new(1000));
    service.padding = 100;
    clients.receive(1, &get_link(0, DUMP | NLM_F_ACK, 7), &mut service);
    assert_eq!(
        *service.calls.lock().expect("no panic"),
        1,
        "the rest waits for the client"
    );
    // Another dump meanwhile is refused; other requests are not.
    clients.receive(1, &get_link(0, DUMP, 8), &mut service);
    clients.receive(1, &get_link(5, 0, 9), &mut service);
    let mut chunks = Vec::new();
    while let Some(chunk) = read(&mut clients, 1, &mut service) {
        chunks.push(chunk);
    }
    assert_eq!(chunks.remove(1)[0].errno(), Errno::EBUSY.0);
    assert_eq!(chunks.remove(1)[0].seq, 9);
    assert!(chunks.len() > 3, "{}", chunks.len());
    let all = chunks.concat();
    let (done, links) = all.split_last().expect("some");
    assert_eq!(
        (done.kind, done.errno(), done.flags, done.seq),
        (NLMSG_DONE, 0, NLM_F_MULTI, 7)
    );
    assert!(links.iter().map(Answer::index).eq(1..=1000));
    assert!(
        links
            .iter()
            .all(|link| (link.kind, link.flags, link.seq) == (NEWLINK, NLM_F_MULTI, 7))
    );
    // The next one may start now.
    assert_eq!(
        ask(&mut clients, &mut service, &get_link(0, DUMP, 10)).len(),
        1001
    );
}

#[test]
fn a_dump_that_fails_ends_with_the_error() {
    let (mut clients, mut service) = (clients(1..2), Links::new(3));
    service.links.insert(2, "bad".into());
    let answers = ask(&mut clients, &mut service, &get_link(0, DUMP, 1));
    let [_, _, done] = answers.try_into().expect("two links and the end");
    assert_eq!((done.kind, done.errno()), (NLMSG_DONE, Errno::EINVAL.0));
    assert_eq!(done.text().as_deref(), Some("a bad link"));
    assert_eq!(done.flags, NLM_F_MULTI | NLM_F_ACK_TLVS);
    // A request that is too short for the dump's header.
    let short = request(GETLINK, NLM_F_REQUEST | DUMP, 2, &[0]);
    let [done] = ask(&mut clients, &mut service, &short)
        .try_into()
        .expect("the end");
    assert_eq!((done.kind, done.errno()), (NLMSG_DONE, Errno::EINVAL.0));
    // An object that fits no datagram: no endless dump.
    service.padding = 60_000;
    service.links.insert(2, "long".into());
    let answers = ask(&mut clients, &mut service, &get_link(0, DUMP, 3));
    assert_eq!(answers.len(), 4, "larger than a chunk, so each has its own");
}

#[test]
fn a_dump_that_changed_says_so() {
    let (mut clients, mut service) = (clients(1..3), Links::new(900));
    clients.receive(1, &get_link(0, DUMP, 1), &mut service);
    let first = read(&mut clients, 1, &mut service).expect("a chunk");
    clients.receive(2, &new_link(2000, 0, 1), &mut service);
    let second = read(&mut clients, 1, &mut service).expect("a chunk");
    let rest = read_all(&mut clients, 1, &mut service);
    let interrupted = |answers: &[Answer]| answers.iter().all(|a| a.flags & NLM_F_DUMP_INTR != 0);
    assert!(
        !first
            .iter()
            .any(|answer| answer.flags & NLM_F_DUMP_INTR != 0)
    );
    assert!(interrupted(&second));
    assert_eq!(first.len() + second.len() + rest.len(), 900 + 1 + 1);
}

#[test]
fn operations_answer_with_text() {
    let (mut clients, mut service) = (clients(1..2), Links::new(3));
    let text = |answers: &[Answer]| -> Vec<u8> {
        let (done, parts) = answers.split_last().expect("an end");
        assert_eq!((done.kind, done.errno(), done.seq), (NLMSG_DONE, 0, 5));
        assert!(
            parts
                .iter()
                .all(|part| (part.kind, part.flags) == (OPERATION, NLM_F_MULTI))
        );
        let text = parts.iter().flat_map(|part| part.payload.clone());
        text.filter(|byte| *byte != 0).collect()
    };
    assert_eq!(
        text(&ask(&mut clients, &mut service, &operation(1, b"", 5))),
        b"links 3\n"
    );
    assert_eq!(
        text(&ask(&mut clients, &mut service, &operation(2, b"", 5))),
        b""
    );
    let argument = [0; 10_001];
    let long = text(&ask(
        &mut clients,
        &mut service,
        &operation(2, &argument, 5),
    ));
    assert!(long == b"0123456789".repeat(10_001), "{}", long.len());
    // The running ports, and what a reload would change.
    for number in [5, 6] {
        let answers = ask(&mut clients, &mut service, &operation(number, b"", 5));
        assert_eq!(text(&answers), b"links 3\n");
    }
    // A reload, and a change.
    for number in [3, 4] {
        let [error] = ask(&mut clients, &mut service, &operation(number, b"", 5))
            .try_into()
            .expect("one");
        assert_eq!((error.kind, error.errno()), (NLMSG_ERROR, Errno::EINVAL.0));
        assert_eq!(error.text().as_deref(), Some("line 3 is wrong"));
    }
    for (message, errno) in [
        (operation(0, b"", 5), Errno::EOPNOTSUPP),
        (operation(8, b"", 5), Errno::EOPNOTSUPP),
        (operation(99, b"", 5), Errno::EOPNOTSUPP),
        (
            request(OPERATION, NLM_F_REQUEST, 5, &[1, 0, 0]),
            Errno::EINVAL,
        ),
    ] {
        assert_eq!(
            ask(&mut clients, &mut service, &message)[0].errno(),
            errno.0
        );
    }
}
