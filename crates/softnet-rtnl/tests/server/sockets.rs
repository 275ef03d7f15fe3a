//! Clients on sockets: many, hostile, of other users, dead.

use std::io;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::{Arc, PoisonError};

use rustix::net::sockopt::set_socket_send_buffer_size;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, Shutdown, SocketAddrUnix, SocketFlags, SocketType, bind,
    connect, recv, send, shutdown, socket_with,
};
use rustix::process::{Gid, Uid};
use rustix::thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid};
use softnet_rtnl::nl::{Errno, NLM_F_ACK, NLM_F_CREATE, NLM_F_REQUEST, NLMSG_DONE, NLMSG_ERROR};
use softnet_rtnl::server::{Config, Listen};
use softnet_tests::skip;

use crate::client::{Answer, DUMP, Socket, get_link, new_link, operation, option, request};
use crate::files::{Folder, STARTS, config, nothing_starts, start};
use crate::service::{GROUP, Links, NEWLINK};

/// A server of three links.
fn serve(folder: &Folder) -> (softnet_rtnl::server::Running, std::path::PathBuf) {
    let path = folder.join("control");
    (start(&config(&path), Links::new(3)), path)
}

#[test]
fn a_client_with_a_port_id_of_its_own() {
    let folder = Folder::new();
    let (_running, path) = serve(&folder);
    let port = std::process::id();
    let client = Socket::try_connect(&path, Some(port)).expect("a server listens");
    let answers = client.dump(&get_link(0, DUMP, 7));
    assert_eq!(answers.len(), 4);
    assert!(
        answers
            .iter()
            .all(|answer| (answer.seq, answer.port) == (7, port))
    );
    // A second connection sets an option of the first.
    let helper = Socket::connect(&path);
    let set = helper.ask(&option(port, libc::NETLINK_ADD_MEMBERSHIP, GROUP, 1));
    assert_eq!(set.errno(), 0);
    assert!(set.port >= 0x8000_0000);
    assert_eq!(helper.ask(&new_link(9, 0, 2)).errno(), 0);
    let [event] = client.receive().try_into().expect("one");
    assert_eq!((event.kind, event.seq, event.port), (NEWLINK, 2, set.port));
    // Its name is its own, on this side already.
    assert!(Socket::try_connect(&path, Some(port)).is_err());
    drop(client);
    while Socket::try_connect(&path, Some(port)).is_err() {}
}

#[test]
fn changes_without_a_request_reach_members() {
    let folder = Folder::new();
    let path = folder.join("control");
    let links = Links::new(0);
    let changed = Arc::clone(&links.changed);
    let running = start(&config(&path), links);
    let waker = running.waker();
    let client = Socket::connect(&path);
    assert_eq!(
        client
            .ask(&option(0, libc::NETLINK_ADD_MEMBERSHIP, GROUP, 1))
            .errno(),
        0
    );
    for index in 1..4 {
        changed.lock().expect("no panic").push(index);
        waker.wake();
    }
    for index in 1..4 {
        let [event] = client.receive().try_into().expect("one");
        assert_eq!((event.kind, event.index()), (NEWLINK, index));
    }
}

#[test]
fn nothing_changes_through_the_monitor() {
    let folder = Folder::new();
    let path = folder.join("control");
    let monitor = folder.join("monitor");
    let mut config = config(&path);
    config.monitor = Some(Listen {
        path: monitor.clone(),
        mode: 0o666,
        group: None,
    });
    let _running = start(&config, Links::new(3));
    let reader = Socket::connect(&monitor);
    let refused = reader.ask(&new_link(9, NLM_F_CREATE, 1));
    assert_eq!(refused.errno(), Errno::EPERM.0);
    assert_eq!(refused.text().as_deref(), Some("Operation not permitted"));
    assert_eq!(reader.ask(&operation(3, b"", 1)).errno(), Errno::EPERM.0);
    assert_eq!(reader.dump(&get_link(0, DUMP, 1)).len(), 4);
    // It hears of what others change.
    assert_eq!(
        reader
            .ask(&option(0, libc::NETLINK_ADD_MEMBERSHIP, GROUP, 1))
            .errno(),
        0
    );
    assert_eq!(Socket::connect(&path).ask(&new_link(9, 0, 1)).errno(), 0);
    assert_eq!(reader.receive()[0].kind, NEWLINK);
}

/// Connects as another user, on a thread of its own.
fn connect_as(path: &Path, uid: u32, gid: u32, groups: &[u32]) -> rustix::io::Result<Socket> {
    let groups: Vec<_> = groups.iter().map(|gid| Gid::from_raw(*gid)).collect();
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            let (uid, gid) = (Uid::from_raw(uid), Gid::from_raw(gid));
            set_thread_groups(&groups).expect("root may");
            set_thread_res_gid(gid, gid, gid).expect("root may");
            set_thread_res_uid(uid, uid, uid).expect("root may");
            Socket::try_connect(path, None)
        });
        thread.join().expect("no panic")
    })
}

#[test]
fn other_users_read_and_members_of_the_group_change() {
    if !rustix::process::geteuid().is_root() {
        return skip("only root can become another user to test with");
    }
    let folder = Folder::new();
    let path = folder.join("control");
    let mut config = config(&path);
    config.listen.mode = 0o666;
    config.listen.group = Some(4321);
    let running = start(&config, Links::new(3));
    let cases: &[(u32, u32, &[u32], i32)] = &[
        (0, 0, &[], 0),
        (65534, 65534, &[], Errno::EPERM.0),
        (65534, 65534, &[1, 2, 3], Errno::EPERM.0),
        (65534, 4321, &[], 0),
        (65534, 65534, &[1, 4321], 0),
    ];
    for (index, (uid, gid, groups, errno)) in (10..).zip(cases) {
        let client = connect_as(&path, *uid, *gid, groups).expect("anybody may connect");
        assert_eq!(
            client.ask(&new_link(index, 0, 1)).errno(),
            *errno,
            "{uid} {gid} {groups:?}"
        );
        assert_eq!(client.ask(&get_link(1, 0, 1)).kind, NEWLINK);
    }
    // The mode keeps others out.
    drop(running);
    config.listen.mode = 0o660;
    let _running = start(&config, Links::new(3));
    assert!(connect_as(&path, 65534, 65534, &[4321]).is_ok());
    let refused = connect_as(&path, 65534, 65534, &[]).expect_err("no right");
    assert_eq!(refused, rustix::io::Errno::ACCESS);
}

/// Runs the example of the documentation, a client that shares no code with this.
fn example(socket: &Path) -> io::Result<Output> {
    let program = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/control.py");
    let mut command = Command::new("python3");
    command.arg(program).arg(socket).stdin(Stdio::null());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let alone = STARTS.write().unwrap_or_else(PoisonError::into_inner);
    let child = command.spawn();
    drop(alone);
    child?.wait_with_output()
}

#[test]
fn the_example_in_python() {
    let folder = Folder::new();
    let path = folder.join("control");
    let mut links = Links::new(3);
    links.links.insert(2, "bad".into());
    let _running = start(&config(&path), links);
    let Ok(run) = example(&path) else {
        return skip("needs python3");
    };
    // The service's dump ends at the bad one.
    assert_eq!(String::from_utf8_lossy(&run.stdout), "1 link1\n2 bad\n");
    assert_eq!(String::from_utf8_lossy(&run.stderr), "Invalid argument\n");
    let config = config(&folder.join("good"));
    let _running = start(&config, Links::new(3000));
    let run = example(&config.listen.path).expect("it is there");
    assert!(run.status.success(), "{run:?}");
    let names: Vec<String> = (1..=3000)
        .map(|index| format!("{index} link{index}\n"))
        .collect();
    assert_eq!(String::from_utf8_lossy(&run.stdout), names.concat());
}

/// It asks for all it can and never reads: others are served, and it gets every answer when it
/// reads after all.
#[test]
fn a_client_that_never_reads() {
    let folder = Folder::new();
    let path = folder.join("control");
    let mut links = Links::new(3000);
    links.padding = 200;
    let _running = start(&config(&path), links);
    let lazy = Socket::connect(&path);
    let mut sent = 0_u32;
    let mut accepted = 0;
    // Until the server has not read for a while: it answers others in between.
    let other = Socket::connect(&path);
    let mut refused = 0;
    while refused < 50 {
        let seq = sent + 1;
        let message = if sent == 0 {
            get_link(0, DUMP, seq)
        } else {
            get_link(1, NLM_F_ACK, seq)
        };
        match send(&lazy.0, &message, SendFlags::NOSIGNAL | SendFlags::DONTWAIT) {
            Ok(_) => {
                sent += 1;
                refused = 0;
            }
            Err(error) => {
                assert_eq!(error, rustix::io::Errno::AGAIN);
                refused += 1;
            }
        }
        assert_eq!(other.ask(&get_link(1, 0, seq)).seq, seq);
        accepted += 1;
    }
    assert_eq!(other.dump(&get_link(0, DUMP, 1)).len(), 3001);
    assert!(accepted > sent && sent > 100);
    let (mut links, mut acks) = (0, 1);
    while acks < sent || links < 3000 + sent - 1 {
        for answer in lazy.receive() {
            match answer.kind {
                NEWLINK => links += 1,
                NLMSG_ERROR => {
                    acks += 1;
                    assert_eq!((answer.errno(), answer.seq), (0, acks));
                }
                kind => assert_eq!((kind, answer.errno(), answer.seq), (NLMSG_DONE, 0, 1)),
            }
        }
    }
    assert_eq!(links, 3000 + sent - 1);
}

#[test]
fn a_thousand_clients_connect_and_die() {
    let folder = Folder::new();
    let path = folder.join("control");
    let mut links = Links::new(1000);
    links.padding = 300;
    let _running = start(
        &Config {
            clients: 20,
            ..config(&path)
        },
        links,
    );
    let witness = Socket::connect(&path);
    for number in 0..1000_u32 {
        let client = Socket::connect(&path);
        // With a dump half read, half a request, requests without end, or nothing.
        let message = match number % 5 {
            0 => get_link(0, DUMP, 1),
            1 => get_link(0, DUMP, 1)[..20].to_vec(),
            2 => get_link(1, NLM_F_ACK, 1).repeat(1000),
            3 => option(0, libc::NETLINK_ADD_MEMBERSHIP, GROUP, 1),
            _ => Vec::new(),
        };
        // It may be one too many, as long as the server has not seen the last ones die.
        let _ = send(
            &client.0,
            &message,
            SendFlags::NOSIGNAL | SendFlags::DONTWAIT,
        );
        if number % 10 == 0 {
            client.receive();
        }
        if number % 50 == 0 {
            assert_eq!(witness.ask(&get_link(1, 0, number)).seq, number);
        }
    }
    // All of them are gone: there is capacity for as many as at first.
    let mut clients = Vec::new();
    while clients.len() < 19 {
        let client = Socket::connect(&path);
        let answer = {
            let _ = send(&client.0, &get_link(1, 0, 1), SendFlags::NOSIGNAL);
            client.receive()
        };
        match answer.first().map(|answer| answer.kind) {
            Some(NEWLINK) => clients.push(client),
            _ => assert_eq!(answer.first().map(Answer::errno), Some(Errno::ENOBUFS.0)),
        }
    }
    assert_eq!(witness.dump(&get_link(0, DUMP, 1)).len(), 1001);
}

#[test]
fn client_beyond_the_limit_gets_an_error() {
    let folder = Folder::new();
    let path = folder.join("control");
    let _running = start(
        &Config {
            clients: 2,
            ..config(&path)
        },
        Links::new(1),
    );
    let clients = [Socket::connect(&path), Socket::connect(&path)];
    for client in &clients {
        client.ask(&get_link(1, 0, 1));
    }
    // It may have asked by then: it gets the answer all the same, not a reset.
    for _ in 0..100 {
        let early = Socket::connect(&path);
        let _ = send(
            &early.0,
            &get_link(1, 0, 1).repeat(100),
            SendFlags::NOSIGNAL,
        );
        assert_eq!(early.receive()[0].errno(), Errno::ENOBUFS.0);
    }
    let third = Socket::connect(&path);
    let [refusal] = third.receive().try_into().expect("one");
    assert_eq!((refusal.errno(), refusal.seq), (Errno::ENOBUFS.0, 0));
    assert_eq!(refusal.text().as_deref(), Some("too many clients"));
    assert_eq!(
        recv(&third.0, &mut [0; 16], RecvFlags::empty())
            .expect("the end")
            .1,
        0
    );
}

#[test]
fn odd_datagrams() {
    let folder = Folder::new();
    let (_running, path) = serve(&folder);
    let client = Socket::connect(&path);
    // Empty, too short, and one that is longer than the server reads.
    client.send(&[]);
    client.send(&[1]);
    set_socket_send_buffer_size(&client.0, 400 * 1024).expect("it may be set");
    let long = request(NEWLINK, NLM_F_REQUEST, 5, &vec![0; 300 * 1024]);
    let answer = client.ask(&long);
    assert_eq!((answer.errno(), answer.seq), (Errno::EMSGSIZE.0, 5));
    assert_eq!(client.ask(&get_link(1, 0, 1)).kind, NEWLINK);
    // Requests of a client that is gone at once are done.
    let hasty = Socket::connect(&path);
    hasty.send(&new_link(77, 0, 1));
    drop(hasty);
    while client.ask(&get_link(77, 0, 1)).kind != NEWLINK {}
}

#[test]
fn a_server_that_stops_hangs_up() {
    let folder = Folder::new();
    let (running, path) = serve(&folder);
    let client = Socket::connect(&path);
    client.ask(&get_link(1, 0, 1));
    running.stop().expect("it ran");
    assert_eq!(
        recv(&client.0, &mut [0; 16], RecvFlags::empty())
            .expect("the end")
            .1,
        0
    );
    assert!(Socket::try_connect(&path, None).is_err());
}

/// `ip` and a script close a socket and open the next with the same port id. The server, which is
/// busy, finds the end of the first and the second at once.
#[test]
fn a_port_id_is_free_when_its_socket_is_closed() {
    let _closed = nothing_starts();
    let folder = Folder::new();
    let path = folder.join("control");
    let links = Links::new(3);
    let changed = Arc::clone(&links.changed);
    let running = start(&config(&path), links);
    let port = std::process::id() | 1 << 29;
    let first = Socket::try_connect(&path, Some(port)).expect("a server listens");
    first.ask(&get_link(1, 0, 1));
    let busy = changed.lock().expect("no panic");
    running.waker().wake();
    first.send(&new_link(77, 0, 2));
    drop(first);
    let second = Socket::try_connect(&path, Some(port)).expect("the name is free");
    drop(busy);
    // What the first asked for is done before.
    let answer = second.ask(&get_link(77, 0, 3));
    assert_eq!((answer.kind, answer.port), (NEWLINK, port), "{answer:?}");
}

/// `softnet-nl/07` is not the port id 7, whose name another client could have.
#[test]
fn a_port_id_has_one_name() {
    let folder = Folder::new();
    let (_running, path) = serve(&folder);
    let port = std::process::id() | 1 << 28;
    for prefix in ["0", "+"] {
        let kind = SocketType::SEQPACKET;
        let socket = socket_with(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None);
        let socket = Socket(socket.expect("a socket"));
        let name = format!("softnet-nl/{prefix}{port}");
        let name = SocketAddrUnix::new_abstract_name(name.as_bytes()).expect("short");
        bind(&socket.0, &name).expect("nobody else has it");
        let server = SocketAddrUnix::new(&path).expect("short");
        connect(&socket.0, &server).expect("a server listens");
        let answer = socket.ask(&get_link(1, 0, 1));
        assert_eq!(answer.kind, NEWLINK);
        assert!(answer.port >= 0x8000_0000, "{prefix}: {}", answer.port);
    }
    let own = Socket::try_connect(&path, Some(port)).expect("the name is free");
    assert_eq!(own.ask(&get_link(1, 0, 1)).port, port);
}

#[test]
fn a_client_that_sends_no_more_gets_all_of_its_dump() {
    let folder = Folder::new();
    let path = folder.join("control");
    let mut links = Links::new(3000);
    links.padding = 300;
    let _running = start(&config(&path), links);
    let client = Socket::connect(&path);
    client.send(&get_link(0, DUMP, 1));
    shutdown(&client.0, Shutdown::Write).expect("connected");
    assert_eq!(client.rest_of_dump().len(), 3001);
    let end = recv(&client.0, &mut [0; 16], RecvFlags::empty());
    assert_eq!(end.expect("the end").1, 0);
}
