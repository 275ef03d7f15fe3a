//! Front ends that go and come again, switches that do, and how often a front end is served.

use super::*;

/// The frames of a ring that is disabled come back to the guest, and are counted as dropped.
#[test]
fn what_a_guest_sends_on_a_disabled_ring_is_discarded() {
    let net = Net::new(&[1, 1], 1);
    let mut guests = [Guest::new(PAIR), Guest::new(PAIR)];
    let mut front_ends = [0, 1].map(|port| connect(&net.path(port), &guests[port], 0));
    (0..2).for_each(|port| net.wait_up(port, true));
    let [a, b] = &mut guests;
    for round in 1..4 {
        front_ends[0].set_vring_enable(1, false).expect("disabled");
        // Whatever is answered comes after it.
        front_ends[0].get_features().expect("an answer");
        a.send(1, &frame(1, round));
        wait("the frame to come back", || a.in_flight(1) == 0);
        wait("the drop", || {
            let drops = net.stats(0).device.drops;
            let drops = drops.iter().map(|(reason, n)| (reason.name(), *n));
            drops.eq([("device_down", u64::from(round))])
        });
        front_ends[0].set_vring_enable(1, true).expect("enabled");
        front_ends[0].get_features().expect("an answer");
        b.offer(0, 1);
        a.send(1, &frame(1, 100 + round));
        assert_eq!(receive(b, 0), frame(1, 100 + round));
    }
    net.stop();
}

/// Frames sent to a port without a front end are dropped, with their reason. One that comes back
/// with the same memory, as after a crash, goes on where the rings are.
#[test]
fn a_front_end_goes_and_comes_back() {
    for server in [true, false] {
        let listener = |path: &PathBuf| std::os::unix::net::UnixListener::bind(path);
        let net = Net::of(&[1, 1], 1, server);
        let mut guests = [Guest::new(PAIR), Guest::new(PAIR)];
        let mut front_ends: Vec<_> = guests
            .iter()
            .enumerate()
            .map(|(port, guest)| {
                let path = net.path(port);
                if server {
                    return connect(&path, guest, 0);
                }
                let listener = listener(&path).expect("a socket");
                let (socket, _) = listener.accept().expect("the port connects");
                std::fs::remove_file(&path).expect("it is there");
                connect_stream(socket, guest)
            })
            .collect();
        let [a, b] = &mut guests;
        net.wait_up(0, true);
        net.wait_up(1, true);
        b.offer(0, 1);
        a.send(1, &frame(1, 0));
        assert_eq!(receive(b, 0), frame(1, 0));
        for round in 1..4 {
            // The guest goes on sending while nobody is connected.
            front_ends.pop();
            net.wait_up(1, false);
            net.wait_status(1, "closed the connection");
            b.send(1, &frame(2, round));
            let before = net.stats(1).device.dropped();
            a.send(1, &frame(1, 100 + round));
            wait("a drop", || net.stats(1).device.dropped() == before + 1);
            let path = net.path(1);
            front_ends.push(if server {
                connect(&path, b, 0)
            } else {
                let listener = listener(&path).expect("a socket");
                let (socket, _) = listener.accept().expect("the port connects");
                std::fs::remove_file(&path).expect("it is there");
                connect_stream(socket, b)
            });
            net.wait_up(1, true);
            a.offer(0, 1);
            assert_eq!(receive(a, 0), frame(2, round), "it was in the ring");
            b.offer(0, 1);
            a.send(1, &frame(1, round));
            assert_eq!(receive(b, 0), frame(1, round));
        }
        let drops = net.stats(1).device.drops;
        assert_eq!(drops.len(), 1, "{drops:?}");
        assert_eq!((drops[0].0.name(), drops[0].1), ("device_down", 3));
        drop(front_ends);
        net.stop();
    }
}

/// A front end changes the file by which the guest is told: of what went to the old one meanwhile
/// the guest hears by the new one. The same when a ring starts, as Softnet may have been killed
/// before it told.
#[test]
fn no_notification_is_lost_between_two_files() {
    let net = Net::new(&[1], 1);
    let mut guest = Guest::new(PAIR);
    let mut front_end = connect(&net.path(0), &guest, 0);
    assert!(told(guest.call_file(1)), "when it starts");
    guest.send(1, &frame(1, 0));
    wait("the buffer to come back", || guest.in_flight(1) == 0);
    let other = Guest::new(PAIR);
    let call = other.call_file(0);
    front_end.set_vring_call(1, &event(call)).expect("a call");
    assert!(told(call), "of the buffer that came back");
    front_end.set_vring_enable(1, true).expect("enabled");
    assert!(!told(call), "nothing has changed");
    drop(front_end);
    net.stop();
}

/// A switch is killed, and another takes up the rings, at any place in them. It tells the guest,
/// which may sleep.
#[test]
fn a_switch_goes_and_another_comes() {
    for packed in [false, true] {
        let features = if packed { RING_PACKED } else { 0 };
        let guest = || Guest::new(GuestConfig { packed, ..PAIR });
        let mut guests = [guest(), guest()];
        for round in 0..4 {
            let net = Net::new(&[1, 1], 1);
            let front_ends: Vec<_> = guests
                .iter()
                .enumerate()
                // Who receives comes first.
                .rev()
                .map(|(port, guest)| {
                    let told = |ring| told(guest.call_file(ring));
                    (0..2).for_each(|ring| {
                        told(ring);
                    });
                    let front_end = connect(&net.path(port), guest, features);
                    net.wait_up(port, true);
                    assert!((0..2).all(told));
                    front_end
                })
                .collect();
            let [a, b] = &mut guests;
            // What the last round has left.
            for mark in 0..if round > 0 { 3 } else { 0 } {
                b.offer(0, 1);
                assert_eq!(receive(b, 0), frame(1, 1000 + mark));
            }
            for mark in 0..100 + 60 * round {
                b.offer(0, 1);
                a.send(1, &frame(1, mark));
                assert_eq!(receive(b, 0), frame(1, mark));
                assert!(a.in_flight(1) < 5);
            }
            wait("the buffers to come back", || a.in_flight(1) == 0);
            drop(front_ends);
            net.wait_up(0, false);
            for mark in 0..3 {
                a.send(1, &frame(1, 1000 + mark));
            }
            net.stop();
        }
    }
}

/// A front end that sends a byte at a time is understood; another one waits until it goes, and one
/// that says nothing keeps nobody from closing the port.
#[test]
fn a_slow_front_end_keeps_its_port_and_no_other() {
    let net = Net::new(&[1, 1], 1);
    let mut first = silent(&net.path(0));
    let socket = UnixStream::connect(net.path(0)).expect("a port");
    let mut second = FrontEnd::silent(socket.try_clone().expect("a socket")).expect("a socket");
    say(&mut second, request::GET_QUEUE_NUM, &[], &[]);
    let guest = Guest::new(PAIR);
    let _other = connect(&net.path(1), &guest, 0);
    net.wait_up(1, true);
    for byte in message(request::GET_QUEUE_NUM, 1, &[]) {
        first.bytes(&[byte], &[]).expect("a port");
    }
    let answer = |it: &mut FrontEnd| it.answer(request::GET_QUEUE_NUM).expect("an answer");
    assert_eq!(answer(&mut first), 1_u64.to_ne_bytes());
    socket.set_nonblocking(true).expect("a socket");
    let early = std::io::Read::read(&mut &socket, &mut [0]);
    assert_eq!(early.unwrap_err().kind(), std::io::ErrorKind::WouldBlock);
    socket.set_nonblocking(false).expect("a socket");
    drop(first);
    assert_eq!(answer(&mut second), 1_u64.to_ne_bytes());
    let table = message(request::SET_MEM_TABLE, 1, &guest.table());
    second
        .bytes(&table[..20], &[guest.file(); 2])
        .expect("a port");
    net.stop();
    second.wait_closed();
}

/// A front end that says one thing after the other is read at a rate, over all of its connections,
/// and loses nothing. (A slow machine reads less in the same time, never more.)
#[test]
fn a_talkative_front_end_is_read_at_a_rate() {
    /// Reads that a port of one queue pair makes at once.
    const AT_ONCE: u128 = 2304;
    let start = Instant::now();
    let net = Net::new(&[1], 1);
    let mut read = 0;
    for _ in 0..4 {
        let mut raw = silent(&net.path(0));
        for _ in 0..1000 {
            say(&mut raw, request::SET_OWNER, &[], &[]);
        }
        assert_eq!(ask(&mut raw, request::GET_QUEUE_NUM), 1);
        read += 1001;
        let most = AT_ONCE + start.elapsed().as_millis() + 1;
        assert!(read <= most, "{read}, not {most}");
    }
    net.stop();
}

/// A front end that comes and goes is heard five times a second, whoever connects. (A slow machine
/// takes longer, never less.)
#[test]
fn a_front_end_that_comes_and_goes_waits() {
    const TIMES: u32 = 6;
    for server in [true, false] {
        let net = Net::of(&[1], 1, server);
        let path = net.path(0);
        let listener = |path| std::os::unix::net::UnixListener::bind(path).expect("a socket");
        let listener = (!server).then(|| listener(&path));
        let start = Instant::now();
        for _ in 0..TIMES {
            let mut raw = match &listener {
                None => silent(&path),
                Some(listener) => {
                    let (socket, _) = listener.accept().expect("the port connects");
                    FrontEnd::silent(socket).expect("a socket")
                }
            };
            assert_eq!(ask(&mut raw, request::GET_QUEUE_NUM), 1);
        }
        let heard_in = start.elapsed();
        assert!(
            heard_in >= (TIMES - 1) * Duration::from_millis(190),
            "{heard_in:?}"
        );
        if !server {
            std::fs::remove_file(&path).expect("it is there");
        }
        net.stop();
    }
}
