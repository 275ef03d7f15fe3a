//! passt as a port's uplink: a host in a namespace reaches servers of the daemon's own system.

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::thread;
use std::time::Duration;

use crate::common::{
    Daemon, NamedNetns, PATIENCE, Scratch, has_program, kill_passt, may_make_networks, passt,
    passt_system, softnet_at, wait_for,
};

/// Sends and gets back `len` bytes by TCP, and a datagram.
fn exchange(system: &NamedNetns, guest: &NamedNetns, len: usize) {
    let listener = system
        .run(|| TcpListener::bind("127.0.0.1:0"))
        .expect("a port");
    let port = listener.local_addr().expect("its address").port();
    let datagrams = system
        .run(|| UdpSocket::bind(("127.0.0.1", port)))
        .expect("a port");
    // passt has its system's loopback answer at the router's address.
    let router = std::net::SocketAddr::from(([10, 55, 0, 1], port));
    thread::scope(|scope| {
        scope.spawn(|| {
            let (mut stream, _) = listener.accept().expect("a client");
            let mut bytes = vec![0; len];
            stream.read_exact(&mut bytes).expect("all of it");
            stream.write_all(&bytes).expect("all of it");
            // The guest ends first: where the other side ends with bytes on their way, passt
            // 2023-03-09 may look at that end for ever, and read no frames.
            let _ = stream.read(&mut bytes);
        });
        let mut client = None;
        wait_for("the uplink", || {
            // A try that is given up has passt connect all the same.
            let connect = || TcpStream::connect_timeout(&router, PATIENCE);
            client = guest.run(connect).ok();
            client.is_some()
        });
        let mut client = client.expect("connected");
        client.set_read_timeout(Some(PATIENCE)).expect("a time");
        let sent: Vec<u8> = (0..len).map(|i| (i * 7 % 251) as u8).collect();
        let mut got = vec![0; len];
        client.write_all(&sent).expect("all of it");
        client.read_exact(&mut got).expect("all of it");
        assert!(sent == got, "other bytes came back");
    });
    let socket = guest
        .run(|| UdpSocket::bind("0.0.0.0:0"))
        .expect("a socket");
    let wait = Some(Duration::from_millis(200));
    for socket in [&socket, &datagrams] {
        socket.set_read_timeout(wait).expect("a time");
    }
    wait_for("a datagram and its answer", || {
        let mut bytes = [0; 100];
        socket.send_to(b"question", router).expect("sent");
        let Ok((n, from)) = datagrams.recv_from(&mut bytes) else {
            return false;
        };
        assert_eq!(&bytes[..n], b"question");
        datagrams.send_to(b"answer", from).expect("sent");
        socket
            .recv(&mut bytes)
            .is_ok_and(|n| &bytes[..n] == b"answer")
    });
}

#[test]
fn a_way_out_by_passt() {
    if !may_make_networks() || !has_program("passt") {
        return;
    }
    let scratch = Scratch::new("passt");
    let (system, guest) = (passt_system("passts"), NamedNetns::new("passtg"));
    let config = format!(
        "[[port]]\nname = \"uplink\"\ndriver = \"stream\"\nuplink = \"passt\"\n\
         [[port]]\nname = \"guest\"\ndriver = \"tap\"\nnetns = {:?}\n\
         address = [\"10.55.0.2/24\"]\ngateway = [\"10.55.0.1\"]\n\
         [[bridge]]\nname = \"br0\"\nports = [\"uplink\", \"guest\"]\n",
        guest.name
    );
    let config = scratch.file("uplink.toml", &config);
    let daemon = Daemon::by(softnet_at(&system), config, scratch.path("s"));
    exchange(&system, &guest, 1 << 20);
    // It has no rights.
    let first = passt(&system).expect("it runs");
    let status = fs::read_to_string(format!("/proc/{}/status", first.as_raw_nonzero()));
    assert!(
        status
            .expect("its status")
            .contains("CapEff:\t0000000000000000")
    );
    // One that dies is started again, and the reason is told.
    kill_passt(&system, &daemon);
    wait_for("another one", || {
        passt(&system).is_some_and(|pid| pid != first)
    });
    exchange(&system, &guest, 1 << 16);
    daemon.stop();
    wait_for("the end of passt", || passt(&system).is_none());
}
