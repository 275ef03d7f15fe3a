//! Messages of two daemons.

use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType, socketpair};

use super::*;

#[test]
fn bytes_in_memory_come_back() {
    let file = memory(b"state").expect("memory");
    assert_eq!(bytes(file).expect("read"), b"state");
}

/// It may have asked for its turn already, or do so when it is told.
#[test]
fn a_successor_that_is_turned_away_is_told() {
    for is_early in [true, false] {
        let (kind, flags) = (SocketType::SEQPACKET, SocketFlags::CLOEXEC);
        let pair = socketpair(AddressFamily::UNIX, kind, flags, None);
        let (ours, theirs) = pair.expect("a pair");
        let successor = Successor::new(ours).expect("a connection");
        let theirs = channel(theirs).expect("a connection");
        let go = || theirs.send(&Message::Go { pid: 1 }, &[], SendFlags::empty());
        if is_early {
            go().expect("it is open");
        }
        successor.turn_away();
        if !is_early {
            let error = go().expect_err("it is closed");
            assert_eq!(error.kind(), io::ErrorKind::BrokenPipe);
        }
        let told = receive(&theirs, || {}).expect("a message");
        assert!(
            matches!(told, Some((Message::Refused(_), _))),
            "{is_early}: {told:?}"
        );
    }
}
