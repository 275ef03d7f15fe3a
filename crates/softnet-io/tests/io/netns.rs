//! Network namespaces: made, entered and left without a trace in the caller's thread.

use std::net::UdpSocket;
use std::os::fd::{AsFd, AsRawFd};
use std::path::Path;

use crate::common::*;
use softnet_io::{LinkError, Links, Netns, NetnsError};

/// A pair of numbers that tells two namespaces apart.
fn id(netns: &Netns) -> (u64, u64) {
    let stat = rustix::fs::fstat(netns.as_fd()).unwrap();
    (stat.st_dev, stat.st_ino)
}

#[test]
fn a_namespace_is_entered_by_the_closure_only() {
    let Some(netns) = namespace() else { return };
    let home = id(&Netns::current().unwrap());
    assert_ne!(id(&netns), home);
    let inside = netns.run(|| id(&Netns::current().unwrap())).unwrap();
    assert_eq!(inside, id(&netns));
    assert_eq!(id(&Netns::current().unwrap()), home);
    // Two of them are two, and a file of one leads back to it.
    let other = Netns::anonymous().unwrap();
    assert_ne!(id(&other), id(&netns));
    let path = format!("/proc/self/fd/{}", other.as_fd().as_raw_fd());
    assert_eq!(id(&Netns::open(Path::new(&path)).unwrap()), id(&other));
}

#[test]
fn a_socket_stays_where_it_was_opened() {
    let Some(netns) = namespace() else { return };
    // Both can be bound, as they are on different loopbacks.
    let a = netns
        .run(|| UdpSocket::bind("127.0.0.1:7777"))
        .unwrap()
        .unwrap();
    let other = namespace().unwrap();
    let b = other
        .run(|| UdpSocket::bind("127.0.0.1:7777"))
        .unwrap()
        .unwrap();
    a.send_to(b"to a", "127.0.0.1:7777").unwrap();
    b.set_nonblocking(true).unwrap();
    assert!(b.recv(&mut [0; 8]).is_err());
    assert_eq!(a.recv(&mut [0; 8]).unwrap(), 4);
}

#[test]
fn a_panic_in_the_closure_reaches_the_caller() {
    let Some(netns) = namespace() else { return };
    let result = std::panic::catch_unwind(|| netns.run(|| panic!("inside")));
    assert_eq!(result.unwrap_err().downcast_ref::<&str>(), Some(&"inside"));
}

#[test]
fn a_missing_namespace_is_named_with_its_remedy() {
    let error = Netns::named("softnet-test-none").unwrap_err();
    assert_eq!(
        error.to_string(),
        "there is no network namespace 'softnet-test-none'; make it with \
         `ip netns add softnet-test-none`"
    );
    for name in ["", ".", "..", "a/b", "../etc", "a\0b"] {
        assert!(
            matches!(Netns::named(name), Err(NetnsError::BadName(_))),
            "{name:?}"
        );
    }
    // A file that is no namespace opens, but cannot be entered.
    let file = Netns::open(Path::new("/dev/null")).unwrap();
    assert!(matches!(file.run(|| ()), Err(NetnsError::Enter(_))));
}

#[test]
fn the_kernel_s_refusal_of_a_link_request_is_reported() {
    let Some(netns) = namespace() else { return };
    let mut links = netns.run(Links::open).unwrap().unwrap();
    assert!(matches!(links.index("none"), Err(LinkError::NotFound(name)) if name == "none"));
    let lo = links.index("lo").unwrap();
    let address = "10.1.2.3/8".parse().unwrap();
    links.add_address(lo, address).unwrap();
    let error = links.add_address(lo, address).unwrap_err();
    assert_eq!(error.to_string(), "cannot add the address 10.1.2.3/8");
    let LinkError::Refused { source, .. } = error else {
        panic!("{error:?}")
    };
    assert_eq!(source.kind(), std::io::ErrorKind::AlreadyExists);
    let source = match links.set_up(9999, true) {
        Err(LinkError::Refused { source, .. }) => source,
        other => panic!("{other:?}"),
    };
    assert_eq!(source.raw_os_error(), Some(libc::ENODEV));
    // The socket is not out of step after errors.
    links.set_mtu(lo, 1280).unwrap();
    links.set_tx_queue_len(lo, 77).unwrap();
}
