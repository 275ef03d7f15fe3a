//! Answers that wait until a change lasts.

use softnet_rtnl::nl::{NLM_F_ACK, Settled};

use crate::client::{get_link, new_link, operation};
use crate::dialogue::{clients, read_all};
use crate::service::Links;

/// One settlement answers all clients that wait; others do not wait for them.
#[test]
fn changes_are_answered_when_they_last() {
    let mut service = Links {
        batches: Some(0),
        ..Links::new(0)
    };
    let mut clients = clients(1..5);
    for key in 1..4 {
        clients.receive(key, &new_link(key as u32, 0, 1), &mut service);
        assert!(!clients.has_output(key) && !clients.is_done(key));
    }
    // What comes meanwhile is done, and answered in order.
    clients.receive(3, &get_link(1, NLM_F_ACK, 2), &mut service);
    service.batches = None;
    clients.receive(4, &get_link(1, 0, 1), &mut service);
    assert_eq!(read_all(&mut clients, 4, &mut service).len(), 1);
    for key in 1..4 {
        assert!(read_all(&mut clients, key, &mut service).is_empty());
    }
    let settled = |upto, note: Option<&str>| Settled {
        upto,
        note: note.map(str::to_owned),
    };
    clients.settle(&settled(2, None));
    let answers: Vec<_> = (1..4)
        .map(|key| read_all(&mut clients, key, &mut service))
        .collect();
    assert_eq!(answers.iter().map(Vec::len).collect::<Vec<_>>(), [1, 1, 0]);
    assert!(answers[0][0].tlvs().is_empty());
    clients.settle(&settled(4, Some("not saved")));
    let answers = read_all(&mut clients, 3, &mut service);
    let seqs: Vec<u32> = answers.iter().map(|answer| answer.seq).collect();
    assert_eq!(seqs, [1, 2, 2], "a change, a link, its acknowledgment");
    assert_eq!(answers[0].tlvs(), [(1, b"not saved\0".to_vec())]);
    assert_eq!(answers[0].payload[4..20], new_link(3, 0, 1)[..16]);
    assert!(answers[2].tlvs().is_empty(), "it changed nothing");
}

#[test]
fn a_dead_client_waits_for_nothing() {
    let mut service = Links {
        batches: Some(0),
        ..Links::new(0)
    };
    let mut clients = clients(1..2);
    clients.receive(1, &new_link(1, 0, 1), &mut service);
    clients.end_input(1);
    assert!(!clients.is_done(1));
    clients.deafen(1, &mut service);
    assert!(clients.is_done(1));
    clients.receive(1, &new_link(2, 0, 1), &mut service);
    assert!(clients.is_done(1));
}

#[test]
fn a_text_has_the_note_alone_where_something_changed() {
    let mut service = Links {
        batches: Some(0),
        ..Links::new(0)
    };
    let mut clients = clients(1..2);
    clients.receive(1, &operation(1, b"", 1), &mut service);
    clients.settle(&Settled {
        upto: 1,
        note: Some("not saved".to_owned()),
    });
    let answers = read_all(&mut clients, 1, &mut service);
    assert!(answers[0].payload.starts_with(b"links 0\n"));
    assert!(
        !answers[0]
            .payload
            .windows(9)
            .any(|part| part == b"not saved")
    );
}
