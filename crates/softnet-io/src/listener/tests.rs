//! Sockets that another process made, and files of sockets.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::os::unix::net::UnixListener;
use std::time::Duration;

use super::*;
use crate::peer::file_of;

#[test]
fn a_name_that_leads_to_another_socket_is_not_adopted() {
    let base = std::env::temp_dir().join(format!("softnet-adopt-{}", std::process::id()));
    let (one, two) = (base.join("one"), base.join("two"));
    for folder in [&one, &two] {
        fs::create_dir_all(folder).expect("it is new");
    }
    let (path, other) = (one.join("s"), two.join("s"));
    let socket = UnixListener::bind(&path).expect("a socket");
    let _other = UnixListener::bind(&other).expect("a socket");
    let mode = |path: &Path| fs::metadata(path).expect("it is there").mode() & 0o777;
    fs::set_permissions(&other, fs::Permissions::from_mode(0o600)).expect("it is ours");
    let is_told = file_of(&socket).is_ok();
    let listen = Listen {
        path: path.clone(),
        mode: 0o666,
        group: None,
    };
    let copy = socket.try_clone().expect("a descriptor");
    let adopted = Listener::take(&listen, copy.into());
    adopted.own().expect("it is that one");
    assert_eq!(mode(&path), 0o666);
    adopted.keep();
    if is_told {
        fs::rename(&one, base.join("before")).expect("it is ours");
        symlink(&two, &one).expect("the name is free");
        let refused = Listener::take(&listen, socket.into()).own();
        assert!(
            matches!(refused, Err(ListenError::Replaced(_))),
            "{refused:?}"
        );
        assert_eq!(mode(&other), 0o600, "it stays as it was");
    } else {
        println!("skipped in part: not told what a socket is bound to");
    }
    fs::remove_dir_all(&base).expect("it is ours");
}

/// A server that was killed may end later than the next one starts, whose file has the inode's
/// number of the removed one on most file systems.
#[test]
fn who_ends_late_leaves_the_file_of_the_next() {
    let base = std::env::temp_dir().join(format!("softnet-late-{}", std::process::id()));
    fs::create_dir_all(&base).expect("it is new");
    let path = base.join("s");
    let bind = Bind {
        listen: Listen {
            path: path.clone(),
            mode: 0o600,
            group: None,
        },
        kind: SocketKind::Stream,
        backlog: 1,
        descriptors: Descriptors::Passed,
    };
    let (socket, first) = bind.bind().expect("the name is free");
    drop(socket);
    // A program that another test starts has our sockets for a moment, until it is that program.
    let again = || {
        std::thread::sleep(Duration::from_millis(1));
        bind.bind().ok()
    };
    let bound = (0..10_000).find_map(|_| again());
    let (_socket, next) = bound.expect("the first one is dead");
    drop(first);
    assert!(path.exists(), "it is that of the next");
    drop(next);
    assert!(!path.exists(), "it goes with its server");
    fs::remove_dir_all(&base).expect("it is ours");
}
