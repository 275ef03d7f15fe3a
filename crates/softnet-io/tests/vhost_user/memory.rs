//! Memory that changes.

use super::*;

/// QEMU 7.2 adds and removes each region once for each queue pair, while rings run.
#[test]
fn a_region_is_added_and_removed_more_than_once() {
    let net = Net::new(&[1, 1], 1);
    let mut guests = [Guest::new(PAIR), Guest::new(PAIR)];
    let mut front_ends: Vec<_> = (0..2)
        .map(|port| connect(&net.path(port), &guests[port], 0))
        .collect();
    let [mut more, _] = regions(&guests[0]);
    let again = more;
    more.guest_phys_addr += 1 << 32;
    more.userspace_addr += 1 << 32;
    let front_end = &mut front_ends[0];
    for region in [again, more, more] {
        front_end.add_mem_region(&region).expect("added");
    }
    for _ in 0..2 {
        front_end.remove_mem_region(&more).expect("removed");
    }
    // As if it had come once: it can come again elsewhere.
    more.guest_phys_addr += 1 << 32;
    front_end.add_mem_region(&more).expect("added");
    let [a, b] = &mut guests;
    b.offer(0, 1);
    a.send(1, &frame(1, 1));
    assert_eq!(receive(b, 0), frame(1, 1));
    drop(front_ends);
    net.stop();
}

/// Regions come and go, and the whole table is given again, while frames pass.
#[test]
fn memory_changes_while_frames_pass() {
    let net = Net::new(&[1, 1], 2);
    let mut guests = [Guest::new(PAIR), Guest::new(PAIR)];
    let front_ends: Vec<_> = (0..2)
        .map(|port| connect(&net.path(port), &guests[port], 0))
        .collect();
    let hotplugged = Guest::new(PAIR);
    let [mut more, _] = regions(&hotplugged);
    more.guest_phys_addr += 1 << 32;
    more.userspace_addr += 1 << 32;
    net.wait_up(0, true);
    net.wait_up(1, true);
    let stop = std::sync::atomic::AtomicBool::new(false);
    let [a, b] = &mut guests;
    let tables = [&*a, &*b].map(regions);
    let changes = std::thread::scope(|scope| {
        let changer = scope.spawn(|| {
            let mut front_ends = front_ends;
            let mut changes = 0;
            while !stop.load(Ordering::Relaxed) {
                for (front_end, [low, high]) in front_ends.iter_mut().zip(tables) {
                    front_end.add_mem_region(&more).expect("added");
                    front_end.set_mem_table(&[low, high, more]).expect("set");
                    front_end.remove_mem_region(&more).expect("removed");
                    changes += 3;
                }
            }
            drop(front_ends);
            changes
        });
        for mark in 0..2000 {
            b.offer(0, 1);
            a.send(1, &frame(1, mark));
            assert_eq!(receive(b, 0), frame(1, mark));
        }
        stop.store(true, Ordering::Relaxed);
        changer.join().expect("the front ends")
    });
    assert!(changes > 0);
    net.stop();
}
