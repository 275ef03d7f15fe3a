//! A measurement, not a test: what a flood of small packets through a shaped port costs other
//! ports, beside a load that takes the same CPU time and waits nowhere: the same flood to an
//! address that the switch drops at once.
//!
//! `cargo test --release -p softnet-tests --test share -- --ignored --nocapture`, on a machine
//! that does nothing else.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use softnet::wire::VnetHeader;
use softnet_tc::{QdiscSpec, TbfSpec};
use softnet_tests::raw::PacketSocket;
use softnet_tests::traffic::ping;
use softnet_tests::{Host, HostConfig, Lan, LanConfig};

/// Never forwarded (IEEE 802.1D 7.12.6).
const LINK_LOCAL: [u8; 6] = [0x01, 0x80, 0xc2, 0, 0, 0];
const PHASE: Duration = Duration::from_millis(1500);
const ROUNDS: usize = 7;

fn lan() -> Option<Lan> {
    let rate = 50_000_000 / 8;
    let shaped = HostConfig {
        qdisc: QdiscSpec::Tbf(TbfSpec {
            rate,
            burst: 128 << 10,
            // More small packets than there are buffers.
            limit: 1 << 24,
            ..TbfSpec::default()
        }),
        ..HostConfig::default()
    };
    let other = HostConfig::default();
    Lan::build(LanConfig {
        hosts: vec![other.clone(), shaped, other.clone(), other],
        workers: 2,
        cpu: None,
        buffers: 65_536,
        large: 2048,
        ..LanConfig::default()
    })
}

/// Small frames to an address, as fast as a socket takes them.
fn flood(from: &Host, to: [u8; 6], done: &AtomicBool) {
    let socket = PacketSocket::open(from, 0);
    let mut frame = [&to[..], &from.mac, &[0x88, 0xb5]].concat();
    frame.resize(60, 0);
    while !done.load(Ordering::Relaxed) {
        let _ = socket.send(VnetHeader::default(), &frame);
    }
}

/// Bytes per second of a connection between two others.
fn goodput(from: &Host, to: &Host, done: &AtomicBool) -> f64 {
    let listener = to
        .run(|| TcpListener::bind((to.ip(false), 0)))
        .expect("a listener");
    let address = listener.local_addr().expect("its address");
    let mut sender = from
        .run(|| TcpStream::connect(address))
        .expect("a connection");
    let mut receiver = listener.accept().expect("its other end").0;
    thread::scope(|scope| {
        scope.spawn(move || {
            let data = vec![0; 1 << 18];
            while !done.load(Ordering::Relaxed) {
                sender.write_all(&data).expect("sending");
            }
        });
        let (start, mut bytes) = (Instant::now(), 0);
        let mut buffer = vec![0; 1 << 18];
        loop {
            match receiver.read(&mut buffer).expect("receiving") {
                0 => return bytes as f64 / start.elapsed().as_secs_f64(),
                n => bytes += n,
            }
        }
    })
}

/// Lets all of them run for a phase; the result is the last one's.
fn beside<T: Send>(
    loads: &[&(dyn Fn(&AtomicBool) + Sync)],
    last: impl FnOnce(&AtomicBool) -> T + Send,
) -> T {
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        for load in loads {
            scope.spawn(|| load(&done));
        }
        let result = scope.spawn(|| last(&done));
        thread::sleep(PHASE);
        done.store(true, Ordering::Relaxed);
        result.join().expect("a load")
    })
}

#[test]
#[ignore = "a measurement of half a minute, for a machine that does nothing else"]
fn other_ports_beside_a_flood() {
    let Some(lan) = lan() else { return };
    let (c, d) = (&lan.hosts[2], &lan.hosts[3]);
    ping(&lan.hosts[0], &lan.hosts[1], false, 56);
    ping(c, d, false, 56);
    let from = &lan.hosts[0];
    let shaped = |done: &AtomicBool| flood(from, lan.hosts[1].mac, done);
    let dropped = |done: &AtomicBool| flood(from, LINK_LOCAL, done);
    let mut ratios = Vec::new();
    for round in 0..ROUNDS {
        // In turns, so that neither always comes first.
        let first = if round % 2 == 0 {
            None
        } else {
            Some(beside(&[&dropped], |done| goodput(c, d, done)))
        };
        let flooded = beside(&[&shaped], |done| goodput(c, d, done));
        let control = first.unwrap_or_else(|| beside(&[&dropped], |done| goodput(c, d, done)));
        ratios.push(flooded / control);
        let gbit = |bytes: f64| bytes * 8.0 / 1e9;
        let (flooded, control) = (gbit(flooded), gbit(control));
        println!(
            "round {round}: {flooded:.2} Gb/s beside the flood, {control:.2} beside the control"
        );
    }
    ratios.sort_unstable_by(f64::total_cmp);
    let (least, median, most) = (ratios[0], ratios[ROUNDS / 2], ratios[ROUNDS - 1]);
    println!("flood / control: {median:.3} ({least:.3} to {most:.3})");
    println!("drops: {:?}", lan.engine.stats().drops());
    lan.stop();
}
