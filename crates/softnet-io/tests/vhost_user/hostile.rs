//! Front ends and guests that do what none does: it ends their connection and nothing else.

use std::os::fd::AsRawFd;

use super::*;

/// A front end that truncates its memory while frames pass loses its port, and nobody else does.
#[test]
fn memory_that_is_taken_away_ends_one_port() {
    let net = Net::new(&[1, 1, 1], 1);
    let mut guests = [Guest::new(PAIR), Guest::new(PAIR), Guest::new(PAIR)];
    let _front_ends: Vec<_> = (0..3)
        .map(|port| connect(&net.path(port), &guests[port], 0))
        .collect();
    (0..3).for_each(|port| net.wait_up(port, true));
    let [a, b, c] = &mut guests;
    for mark in 0..50 {
        b.offer(0, 1);
        if mark == 20 {
            c.truncate(0);
        }
        if mark < 20 {
            c.offer(0, 1);
        }
        a.send(1, &frame(1, mark));
        assert_eq!(receive(b, 0), frame(1, mark));
    }
    net.wait_status(2, "took guest memory away");
    net.wait_up(2, false);
    assert!(net.stats(0).link.up && net.stats(1).link.up);
    // Its port takes another front end.
    *c = Guest::new(PAIR);
    let _again = connect(&net.path(2), c, 0);
    net.wait_up(2, true);
    c.offer(0, 1);
    b.offer(0, 1);
    a.send(1, &frame(1, 99));
    assert_eq!(receive(c, 0), frame(1, 99));
    net.stop();
}

/// Messages that cannot be end the connection, with a reason, and nothing else.
#[test]
fn hostile_messages_end_the_connection() {
    let net = Net::new(&[1, 1], 1);
    let good = [Guest::new(PAIR), Guest::new(PAIR)];
    let front_end = connect(&net.path(0), &good[0], 0);
    let guest = Guest::new(PAIR);
    let files: Vec<_> = (0..9).map(|_| guest.file()).collect();
    let pipe = rustix::pipe::pipe().expect("a pipe").0;
    let number = |n: u64| n.to_ne_bytes().to_vec();
    let regions = |n: u32| [&n.to_ne_bytes()[..], &[0; 4], &vec![0; 32 * n as usize]].concat();
    let table = guest.table();
    let mut beyond = table.clone();
    let len = guest.regions()[1].len + 1;
    beyond[48..56].copy_from_slice(&len.to_ne_bytes());
    let (kick, pipes) = ([guest.kick_file(0)], [pipe.as_fd()]);
    let sparse = rustix::fs::memfd_create("sparse", rustix::fs::MemfdFlags::CLOEXEC);
    let sparse = sparse.expect("a memory file");
    rustix::fs::ftruncate(&sparse, 65 << 30).expect("it can be as long");
    let mut long = regions(1);
    long[16..24].copy_from_slice(&(65_u64 << 30).to_ne_bytes());
    let sparse = [sparse.as_fd()];
    let cases: Vec<(Vec<u8>, &[BorrowedFd<'_>], &str)> = vec![
        (message(1, 0, &[]), &[], "flags 0x0"),
        (message(1, 5, &[]), &[], "flags 0x5"),
        (
            [1_u32, 1, u32::MAX].map(u32::to_ne_bytes).concat(),
            &[],
            "of 4294967295 bytes",
        ),
        (message(0, 1, &[]), &[], "request 0, which was not offered"),
        (message(6, 1, &number(0)), &[], "request 6, which"),
        (message(u32::MAX, 1, &[]), &[], "request 4294967295"),
        (message(2, 1, &[0; 7]), &[], "request 2 with a payload of 7"),
        (
            message(2, 1, &number(1 << 63)),
            &[],
            "features 0x8000000000000000",
        ),
        (message(16, 1, &number(2)), &[], "features 0x2"),
        (message(1, 1, &[]), &files[..1], "request 1 with 1 files"),
        (message(5, 1, &table), &[], "request 5 with 0 files"),
        (message(5, 1, &table), &files[..3], "request 5 with 3 files"),
        (
            message(5, 1, &regions(2)[..40]),
            &files[..1],
            "table of 2 regions",
        ),
        (message(5, 1, &[1, 0, 0]), &files[..1], "payload of 3"),
        (
            message(5, 1, &beyond),
            &files[..2],
            "does not lie in its file",
        ),
        (message(5, 1, &table), &files, "too many files"),
        (
            message(5, 1, &long),
            &sparse,
            "memory of 69793218560 bytes; the port's key memory allows 68719476736",
        ),
        (
            message(8, 1, &number(256 << 32 | 2)),
            &[],
            "ring 2 of a port with 2",
        ),
        (message(8, 1, &number(0)), &[], "ring size of 0"),
        (
            message(8, 1, &number(40_000 << 32)),
            &[],
            "ring size of 40000",
        ),
        (message(11, 1, &number(u64::MAX)), &[], "ring 4294967295"),
        (message(12, 1, &number(0)), &[], "request 12 with 0 files"),
        (message(12, 1, &number(0)), &files[..1], "not an eventfd"),
        (message(12, 1, &number(0)), &pipes, "not an eventfd"),
        (message(12, 1, &number(1 << 8)), &[], "without a kick"),
        (message(12, 1, &number(1 << 9)), &kick, "the value 0x200"),
        (message(13, 1, &number(7)), &kick, "ring 7"),
        (message(18, 1, &number(2 << 32)), &[], "enabled ring of 2"),
        (message(20, 1, &number(10)), &[], "MTU of 10"),
        (message(37, 1, &[0; 40]), &[], "request 37 with 0 files"),
        (message(37, 1, &[0; 40]), &files[..1], "a region of 0 bytes"),
    ];
    for (bytes, files, reason) in &cases {
        let mut raw = silent(&net.path(1));
        raw.bytes(bytes, files).expect("a port");
        raw.wait_closed();
        net.wait_status(1, reason);
    }
    // Rings that are not where they could be.
    let start_ring = |features: u64, addresses: &[u8]| {
        let mut raw = silent(&net.path(1));
        say(&mut raw, request::SET_FEATURES, &number(features), &[]);
        say(&mut raw, request::SET_MEM_TABLE, &table, &files[..2]);
        say(&mut raw, request::SET_VRING_NUM, &of_ring(0, 256), &[]);
        say(&mut raw, request::SET_VRING_ADDR, addresses, &[]);
        say(&mut raw, request::SET_VRING_KICK, &number(0), &kick);
        raw.wait_closed();
    };
    let good_addresses = guest.ring_addresses(0);
    let (mut outside, mut odd) = (good_addresses.clone(), good_addresses.clone());
    outside[14] = 0x40;
    odd[4..].iter_mut().for_each(|byte| *byte |= 1);
    start_ring(VERSION_1, &outside);
    net.wait_status(1, "outside of guest memory");
    start_ring(VERSION_1, &odd);
    net.wait_status(1, "ring");
    // Half a message; nothing.
    let mut raw = silent(&net.path(1));
    let half = &message(2, 1, &number(0))[..15];
    raw.bytes(half, &[]).expect("a port");
    drop(raw);
    net.wait_status(1, "closed the connection");
    // All that left nothing behind: an honest front end is served, and the other was all along.
    let mut guests = good;
    let again = connect(&net.path(1), &guests[1], 0);
    net.wait_up(1, true);
    let [a, b] = &mut guests;
    b.offer(0, 1);
    a.send(1, &frame(1, 1));
    assert_eq!(receive(b, 0), frame(1, 1));
    drop((front_end, again));
    net.stop();
}

/// A guest that breaks a ring loses its connection; the other goes on.
#[test]
fn a_broken_ring_ends_the_connection() {
    let net = Net::new(&[1, 1], 1);
    let mut guests = [Guest::new(PAIR), Guest::new(PAIR)];
    let _front_ends: Vec<_> = (0..2)
        .map(|port| connect(&net.path(port), &guests[port], 0))
        .collect();
    net.wait_up(0, true);
    net.wait_up(1, true);
    guests[1].ring(1).run_on();
    guests[1].kick(1);
    net.wait_status(1, "the guest broke ring 1: the available index runs");
    net.wait_up(1, false);
    assert!(net.stats(0).link.up);
    let [a, _] = &mut guests;
    a.send(1, &frame(1, 0));
    wait("the frame to be dropped", || {
        net.stats(1).device.dropped() == 1
    });
    net.stop();
}

/// A driver from before virtio 1.0, as a boot loader's may be, gets no queue; the connection stays
/// for the driver that comes after it.
#[test]
fn a_legacy_driver_leaves_the_port_down() {
    let net = Net::new(&[1, 1], 1);
    let mut guest = Guest::new(PAIR);
    let mut front_end = FrontEnd::connect(&net.path(0)).expect("a port");
    front_end
        .request(request::SET_FEATURES, &0_u64.to_ne_bytes(), &[])
        .expect("a port");
    guest.set_memory(&mut front_end).expect("a port");
    for ring in 0..2 {
        guest.start_ring(&mut front_end, ring, 0).expect("a port");
    }
    net.wait_status(0, "connected, the guest's driver does not know virtio 1.0");
    assert!(!net.stats(0).link.up);
    guest.reset(&mut front_end).expect("a port");
    net.wait_up(0, true);
    net.wait_status(0, "connected, 2 of 2 split rings enabled");
    drop(front_end);
    net.stop();
}

/// Memory on a disk or that is read-only, of which a machine may have some beside its own, is left
/// out; its rings run.
#[test]
fn memory_that_cannot_be_used_is_left_out() {
    let net = Net::new(&[1], 1);
    let mut guest = Guest::new(PAIR);
    let disk = std::fs::File::open("/proc/self/exe").expect("a file");
    let read_only = format!("/proc/self/fd/{}", guest.file().as_raw_fd());
    let read_only = std::fs::File::open(read_only).expect("the memory");
    for (file, why) in [(&disk, "not a file in tmpfs"), (&read_only, "read-only")] {
        let mut front_end = FrontEnd::connect(&net.path(0)).expect("a port");
        guest.clear();
        let mut table = guest.table();
        table[0] = 3;
        let more = [1 << 40, 0x1000, 1 << 44, 0_u64];
        table.extend(more.map(u64::to_ne_bytes).concat());
        guest.start(&mut front_end).expect("a port");
        let files = [guest.file(), guest.file(), file.as_fd()];
        front_end
            .request(request::SET_MEM_TABLE, &table, &files)
            .expect("a port");
        net.wait_up(0, true);
        net.wait_status(
            0,
            "connected, 2 of 2 split rings enabled; some of its memory",
        );
        net.wait_status(0, why);
        // The port waits a moment for the next.
        drop(front_end);
        net.wait_up(0, false);
    }
    net.stop();
}

/// A front end that makes its call event block loses its port; the only worker goes on.
#[test]
fn a_call_that_blocks_ends_one_port() {
    let net = Net::new(&[1, 1, 1], 1);
    let mut guests = [Guest::new(PAIR), Guest::new(PAIR), Guest::new(PAIR)];
    let _front_ends: Vec<_> = (0..3)
        .map(|port| connect(&net.path(port), &guests[port], 0))
        .collect();
    (0..3).for_each(|port| net.wait_up(port, true));
    let [a, b, c] = &mut guests;
    c.block_call(1);
    c.send(1, &frame(3, 0));
    net.wait_status(2, "made the call event of ring 1 block");
    net.wait_up(2, false);
    // What it sent had been taken before.
    b.offer(0, 1);
    assert_eq!(receive(b, 0), frame(3, 0));
    for mark in 0..20 {
        b.offer(0, 1);
        a.send(1, &frame(1, mark));
        assert_eq!(receive(b, 0), frame(1, mark));
    }
    c.unblock_call(1);
    net.stop();
}
