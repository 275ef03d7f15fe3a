//! Frames that the guest sends.

use super::*;

#[test]
fn frames_of_the_guest_arrive_whole_and_in_order() {
    for (i, config) in configs().enumerate() {
        let mut setup = Setup::new(config);
        let mut random = Random(1 + i as u64);
        let (mut sent, mut received, mut reaped) = (0, 0, 0);
        let mut lens = std::collections::VecDeque::new();
        while received < 2000 {
            for _ in 0..random.below(2 * u64::from(config.size)) {
                let len = match random.below(20) {
                    0 => 14 + random.below(5000) as usize,
                    _ => 14 + random.below(200) as usize,
                };
                let mut all = VnetHeader::default().to_bytes().to_vec();
                all.extend(frame(sent, len));
                let at = place(sent);
                let parts =
                    random.parts(at, all.len() as u32, u64::from(config.size.min(5)), false);
                let mut from = &all[..];
                for part in &parts {
                    let (now, rest) = from.split_at(part.len as usize);
                    setup.memory.write_from(part.address, now).unwrap();
                    from = rest;
                }
                let ok = if config.indirect && random.below(2) == 0 {
                    setup
                        .driver
                        .offer_indirect(sent, &parts, &setup.memory, at + 0x3000)
                } else {
                    setup.driver.offer(sent, &parts)
                };
                if !ok {
                    break;
                }
                lens.push_back(len);
                sent += 1;
            }
            setup.driver.publish();
            setup.restart(&mut random);
            let budget = 1 + random.below(40) as usize;
            let (packets, more) = setup.receive(budget).unwrap();
            assert!(packets.len() <= budget && (more || packets.len() < budget));
            for packet in packets {
                let len = lens.pop_front().unwrap();
                assert_eq!(bytes(&packet), frame(received, len), "{config:?}");
                assert_eq!(packet.queue(), Some(3));
                received += 1;
            }
            if !more {
                assert_eq!(received, sent, "{config:?} {:?}", setup.drops);
                assert!(!setup.queue.peek());
            }
            for used in setup.driver.reap() {
                assert_eq!(
                    used,
                    Used {
                        token: reaped,
                        len: 0
                    }
                );
                reaped += 1;
            }
            assert_eq!(reaped, received);
        }
        assert_eq!(setup.drops.nonzero(), []);
    }
}

/// The descriptors of a cache line of a packed ring are taken together, unless one of them is of a
/// longer chain or lies in another region.
#[test]
fn frames_of_whole_and_mixed_lines_arrive_in_order() {
    for (i, size) in [4, 6, 8, 50].into_iter().enumerate() {
        let mut setup = Setup::new(config(true, size));
        let mut random = Random(200 + i as u64);
        let (mut sent, mut received, mut reaped) = (0, 0, 0);
        while received < 1000 {
            for _ in 0..random.below(2 * u64::from(size)) {
                let region = if random.below(8) == 0 {
                    DATA_LEN / 2
                } else {
                    0
                };
                let at = DATA + region + (sent % 100) * 0x1000;
                let mut all = VnetHeader::default().to_bytes().to_vec();
                all.extend(frame(sent, 100));
                setup.memory.write_from(at, &all).unwrap();
                let len = all.len() as u32;
                let mut parts = vec![Part::readable(at, len)];
                if random.below(8) == 0 {
                    parts = vec![Part::readable(at, 50), Part::readable(at + 50, len - 50)];
                }
                if !setup.driver.offer(sent, &parts) {
                    break;
                }
                sent += 1;
            }
            setup.driver.publish();
            let budget = 1 + random.below(60) as usize;
            for packet in setup.receive(budget).unwrap().0 {
                assert_eq!(bytes(&packet), frame(received, 100), "{size}");
                received += 1;
            }
            for used in setup.driver.reap() {
                let token = reaped;
                assert_eq!(used, Used { token, len: 0 });
                reaped += 1;
            }
            assert_eq!(reaped, received);
        }
        assert_eq!(setup.drops.nonzero(), []);
    }
}

/// With `VIRTIO_F_IN_ORDER` one element of a split ring says that a whole batch was used.
#[test]
fn a_batch_in_order_is_one_used_element() {
    const UNUSED: [u8; 8] = [0xff; 8];
    let used = RING + 0xa_0000 + 4;
    for (in_order, expected) in [(false, 3), (true, 1)] {
        let mut setup = Setup::new(RingConfig {
            in_order,
            ..config(false, 8)
        });
        setup.memory.write_from(used, &UNUSED.repeat(3)).unwrap();
        for n in 0..3 {
            setup.send(place(n), &[0; 100]);
        }
        assert_eq!(setup.receive(64).unwrap().0.len(), 3);
        let mut elements = [[0; 8]; 3];
        let bytes = elements.as_flattened_mut();
        setup.memory.read_into(used, bytes).unwrap();
        let written = elements.iter().filter(|&&element| element != UNUSED);
        assert_eq!(written.count(), expected);
        assert_eq!(setup.driver.reap().len(), 3);
    }
}
