//! Rings that come and go, and their choice.

use super::*;

const TWO_PAIRS: GuestConfig = GuestConfig { pairs: 2, ..PAIR };

/// A port with two queues: what is sent on either arrives, whichever the guest uses.
#[test]
fn the_guest_chooses_its_queue_pairs() {
    let net = Net::new(&[1, 2], 2);
    let mut guests = [Guest::new(PAIR), Guest::new(TWO_PAIRS)];
    let mut sender = connect(&net.path(0), &guests[0], 0);
    let mut front_end = negotiate(&net.path(1), 4, 0);
    front_end
        .set_mem_table(&regions(&guests[1]))
        .expect("memory");
    let [a, b] = &mut guests;
    let mut mark = 0;
    for used in [&[0][..], &[0, 1], &[1], &[0]] {
        for pair in 0..2 {
            if used.contains(&pair) {
                start(&mut front_end, b, 2 * pair);
                start(&mut front_end, b, 2 * pair + 1);
            } else if used == [1] {
                front_end
                    .set_vring_enable(2 * pair, false)
                    .expect("disabled");
                front_end
                    .set_vring_enable(2 * pair + 1, false)
                    .expect("disabled");
            } else if mark > 0 {
                front_end.get_vring_base(2 * pair).expect("stopped");
                front_end.get_vring_base(2 * pair + 1).expect("stopped");
            }
        }
        net.wait_status(1, &format!("connected, {} of 4", 2 * used.len()));
        let before = net.stats(1).device.dropped();
        // Flows enough to use both queues of the port.
        let first = mark;
        while mark < first + 32 {
            used.iter().for_each(|pair| b.offer(2 * pair, 1));
            a.send(1, &frame(mark as u8, mark));
            mark += 1;
            wait("the frame to be taken", || a.in_flight(1) == 0);
        }
        let mut marks = Vec::new();
        wait("all frames", || {
            for pair in used {
                while let Some((_, frame)) = take(b, 2 * pair) {
                    marks.push(u32::from_be_bytes([
                        frame[14], frame[15], frame[16], frame[17],
                    ]));
                }
            }
            marks.len() == 32
        });
        marks.sort_unstable();
        assert_eq!(marks, (first..mark).collect::<Vec<_>>());
        assert_eq!(net.stats(1).device.dropped(), before);
        // And back, on each.
        for &pair in used {
            a.offer(0, 1);
            b.send(2 * pair + 1, &frame(200 + pair as u8, mark));
            assert_eq!(receive(a, 0), frame(200 + pair as u8, mark));
        }
    }
    sender.set_vring_enable(0, false).expect("disabled");
    drop((sender, front_end));
    net.stop();
}

/// Two workers send on two queues into the one ring that the guest uses. Nobody is left waiting:
/// each frame arrives, or finds its queue full.
#[test]
fn two_senders_share_a_ring() {
    const FRAMES: u32 = 1500;
    let net = Net::new(&[1, 1, 2], 2);
    let mut guests = [Guest::new(PAIR), Guest::new(PAIR), Guest::new(TWO_PAIRS)];
    let _senders = [0, 1].map(|port| connect(&net.path(port), &guests[port], 0));
    let mut front_end = negotiate(&net.path(2), 4, 0);
    front_end
        .set_mem_table(&regions(&guests[2]))
        .expect("memory");
    start(&mut front_end, &guests[2], 0);
    start(&mut front_end, &guests[2], 1);
    (0..3).for_each(|port| net.wait_up(port, true));
    let [a, b, c] = &mut guests;
    a.offer(0, 1);
    c.send(1, &frame(3, 0));
    receive(a, 0);
    let dropped = || net.stats(2).device.dropped();
    let (mut sent, mut offered, mut received) = ([0; 2], 0, 0_u64);
    let end = Instant::now() + Duration::from_secs(60);
    loop {
        let arrived = received + dropped();
        if sent == [FRAMES; 2] && arrived == 2 * u64::from(FRAMES) {
            break;
        }
        assert!(Instant::now() < end, "{arrived} of {sent:?}");
        // Some wait for the ring, and do not fill their queues.
        let waiting = u64::from(sent[0] + sent[1]) - arrived;
        for (from, guest) in [&mut *a, &mut *b].into_iter().enumerate() {
            let last = FRAMES.min(sent[from] + 100_u64.saturating_sub(waiting) as u32 / 2);
            while sent[from] < last && guest.in_flight(1) < 100 {
                let mut frame = frame(10 + (sent[from] % 50) as u8, sent[from]);
                frame[..6].copy_from_slice(&[2, 0, 0, 0, 0, 3]);
                frame[10] = from as u8;
                guest.send(1, &frame);
                sent[from] += 1;
            }
        }
        // Few enough that the ring is often full.
        while offered - received < 16 {
            c.offer(0, 1);
            offered += 1;
        }
        while take(c, 0).is_some() {
            received += 1;
        }
        std::thread::yield_now();
    }
    assert!(received > u64::from(FRAMES), "{received}");
    net.stop();
}

/// Rings are disabled, stopped, started and told otherwise while two workers send to them. Each
/// frame arrives whole, or is dropped with a reason, and each sender's come in order.
#[test]
fn rings_come_and_go_while_many_send() {
    const FRAMES: u32 = 1500;
    let net = Net::new(&[1, 1, 2], 2);
    let mut guests = [Guest::new(PAIR), Guest::new(PAIR), Guest::new(TWO_PAIRS)];
    let _senders = [0, 1].map(|port| connect(&net.path(port), &guests[port], 0));
    let front_end = connect(&net.path(2), &guests[2], 0);
    (0..3).for_each(|port| net.wait_up(port, true));
    let [a, b, c] = &mut guests;
    a.offer(0, 1);
    c.send(1, &frame(3, 0));
    receive(a, 0);
    let files = [0, 2].map(|ring| [c.kick_file(ring), c.call_file(ring)].map(event));
    let stop = std::sync::atomic::AtomicBool::new(false);
    let dropped = || net.stats(2).device.dropped();
    std::thread::scope(|scope| {
        let changer = scope.spawn(|| {
            let (mut front_end, mut changes) = (front_end, 0);
            while !stop.load(Ordering::Relaxed) || changes < 8 {
                // The other pair is there meanwhile.
                let pair = changes % 2;
                let ([kick, call], ring) = (&files[pair], 2 * pair);
                front_end.set_vring_enable(ring, false).expect("disabled");
                front_end.set_vring_enable(ring, true).expect("enabled");
                front_end.set_vring_call(ring, call).expect("a call");
                front_end.get_vring_base(ring).expect("stopped");
                front_end.set_vring_kick(ring, kick).expect("started");
                changes += 1;
            }
            drop(front_end);
        });
        let (mut sent, mut received, mut offered) = ([0_u32; 2], [0_u32; 2], [0_u32; 2]);
        let mut last = [[None; 2]; 2];
        wait("all frames", || {
            let mut arrived = u64::from(received[0] + received[1]) + dropped();
            for (from, guest) in [&mut *a, &mut *b].into_iter().enumerate() {
                // Not one a look, each of which takes long on a busy machine.
                let last = FRAMES.min(sent[from] + 8);
                let waiting = u64::from(sent[0] + sent[1]).saturating_sub(arrived);
                while sent[from] < last && waiting < 100 && guest.in_flight(1) < 100 {
                    let mut frame = frame(10 + from as u8, sent[from]);
                    frame[..6].copy_from_slice(&[2, 0, 0, 0, 0, 3]);
                    guest.send(1, &frame);
                    sent[from] += 1;
                }
            }
            for pair in 0..2 {
                while offered[pair] - received[pair] < 16 {
                    c.offer(2 * pair, 1);
                    offered[pair] += 1;
                }
                while let Some((_, got)) = take(c, 2 * pair) {
                    let (from, mark) = (
                        got[11] - 10,
                        u32::from_be_bytes([got[14], got[15], got[16], got[17]]),
                    );
                    let mut whole = frame(got[11], mark);
                    whole[..6].copy_from_slice(&[2, 0, 0, 0, 0, 3]);
                    assert_eq!(got, whole);
                    let last = &mut last[pair][usize::from(from)];
                    assert!(*last < Some(mark), "{last:?} before {mark}");
                    *last = Some(mark);
                    received[pair] += 1;
                }
            }
            arrived = u64::from(received[0] + received[1]) + dropped();
            sent == [FRAMES; 2] && arrived == 2 * u64::from(FRAMES)
        });
        stop.store(true, Ordering::Relaxed);
        changer.join().expect("the front end");
    });
    net.stop();
}
