//! Both kinds of ring against the model of a driver: random traffic, in small rings that wrap
//! around all the time.

mod received;

use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use softnet::mem::{Packet, PacketList, Pool, PoolConfig};
use softnet::stats::DropCounters;
use softnet::time::Time;
use softnet::tx::{Sent, Xmit};
use softnet::wire::{VNET_HDR_LEN, VnetHeader};
use softnet_engine::rx::Receive;

use super::model::{Driver, Part, Used};
use super::*;
use crate::vhost_user::memory::{Region, RegionSpec};

/// Where guest memory for packets starts; it goes on in another region halfway.
pub(super) const DATA: u64 = 0x10_0000;
pub(super) const DATA_LEN: u64 = 0x40_0000;
/// Where the rings are, in the guest.
pub(in crate::vhost_user) const RING: u64 = 0x1000_0000;
const RING_LEN: u64 = 0x10_0000;
/// Bytes that a guest may have.
const LIMIT: u64 = 1 << 40;
/// Distance of the front end's addresses from those of the guest.
const USER: u64 = 0x7f00_0000_0000;

pub(in crate::vhost_user) fn memory() -> GuestMemory {
    let file: OwnedFd = memfd_create("guest", MemfdFlags::CLOEXEC).unwrap();
    let half = DATA_LEN / 2;
    ftruncate(&file, DATA_LEN + RING_LEN).unwrap();
    let map = |guest, len, offset| {
        let user = USER + guest;
        let spec = RegionSpec {
            guest,
            len,
            user,
            offset,
        };
        Arc::new(Region::map(spec, &file, false).unwrap())
    };
    let regions = vec![
        map(DATA, half, half),
        map(DATA + half, half, 0),
        map(RING, RING_LEN, DATA_LEN),
    ];
    GuestMemory::new(regions, LIMIT).unwrap()
}

/// A ring of that size and kind with all features.
pub(in crate::vhost_user) fn config(packed: bool, size: u16) -> RingConfig {
    RingConfig {
        size,
        descriptors: USER + RING,
        driver: USER + RING + 0x8_0000,
        device: USER + RING + 0xa_0000,
        packed,
        indirect: true,
        event_index: true,
        in_order: false,
        mergeable: true,
        takes: Features {
            checksum: true,
            tso4: true,
            tso6: true,
            ecn: true,
            uso: true,
            scatter_gather: true,
            mtu: 0,
        },
    }
}

/// A guest's queue and the device's side of it.
pub(super) struct Setup {
    pub(super) memory: GuestMemory,
    pub(super) driver: Driver<GuestArea>,
    pub(super) queue: Virtqueue,
    pub(super) buffers: Buffers,
    pub(super) drops: DropCounters,
}

impl Setup {
    pub(super) fn new(config: RingConfig) -> Setup {
        let memory = memory();
        let pool = PoolConfig {
            buffers: 512,
            buffer_size: 1024,
        };
        let areas = Areas::new(&config, &memory).unwrap();
        Setup {
            driver: Driver::new(config, areas),
            queue: Virtqueue::new(config, &memory).unwrap(),
            memory,
            buffers: Buffers {
                small: Pool::new(pool).unwrap(),
                large: None,
            },
            drops: DropCounters::new(),
        }
    }

    /// Starts another queue where it was, as when a guest or the switch restarts; or in a new map
    /// of the same memory.
    pub(super) fn restart(&mut self, random: &mut Random) {
        let base = self.queue.base();
        let what = random.below(16);
        if what == 0 {
            let regions = self.memory.regions().to_vec();
            self.memory = GuestMemory::new(regions, LIMIT).unwrap();
        }
        if what < 2 {
            self.queue = Virtqueue::new(self.queue.config, &self.memory).unwrap();
        }
        assert_eq!(self.queue.base(), base);
    }

    pub(super) fn receive(&mut self, budget: usize) -> Result<(Vec<Packet>, bool), RingError> {
        let mut out = PacketList::new();
        let more = self.queue.receive(
            &self.memory,
            &self.buffers,
            Some(3),
            &mut Receive::new(budget, Time::ZERO, &mut out, &self.drops),
        )?;
        Ok((out.into_iter().collect(), more))
    }

    pub(super) fn transmit(
        &mut self,
        packets: &mut PacketList,
    ) -> Result<(Xmit, Sent), RingError> {
        let mut sent = Sent::default();
        let xmit = self
            .queue
            .transmit(&self.memory, packets, &mut sent, &mut { WORK })?;
        Ok((xmit, sent))
    }

    /// Offers a frame in one buffer, and says so.
    pub(super) fn send(&mut self, address: u64, frame: &[u8]) -> bool {
        self.memory.write_from(address, frame).unwrap();
        assert!(
            self.driver
                .offer(address, &[Part::readable(address, frame.len() as u32)])
        );
        self.driver.publish()
    }
}

/// A small generator of numbers (xorshift).
pub(super) struct Random(pub(super) u64);

impl Random {
    pub(super) fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % n
    }

    /// Splits a length into at most `max` parts, one after the other from `address` on, with
    /// gaps. Some may be empty.
    pub(super) fn parts(
        &mut self,
        mut address: u64,
        len: u32,
        max: u64,
        writable: bool,
    ) -> Vec<Part> {
        let n = 1 + self.below(max);
        let mut left = len;
        let mut parts = Vec::new();
        for i in 1..=n {
            let now = if i == n {
                left
            } else {
                self.below(u64::from(left) + 1) as u32
            };
            parts.push(if writable {
                Part::writable(address, now)
            } else {
                Part::readable(address, now)
            });
            address += u64::from(now) + self.below(3);
            left -= now;
        }
        parts
    }
}

/// The bytes of a frame that is told apart from others.
pub(super) fn frame(number: u64, len: usize) -> Vec<u8> {
    (0..len as u64)
        .map(|i| (number * 31 + i * 7) as u8)
        .collect()
}

pub(super) fn bytes(packet: &Packet) -> Vec<u8> {
    packet.segments().flatten().copied().collect()
}

fn read_parts(memory: &GuestMemory, parts: &[Part]) -> Vec<u8> {
    let mut all = Vec::new();
    for part in parts {
        let mut bytes = vec![0; part.len as usize];
        memory.read_into(part.address, &mut bytes).unwrap();
        all.extend(bytes);
    }
    all
}

/// Every kind of ring, in small and uneven sizes.
pub(super) fn configs() -> impl Iterator<Item = RingConfig> {
    let kinds = [
        (false, 1),
        (false, 8),
        (false, 64),
        (true, 1),
        (true, 7),
        (true, 8),
        (true, 50),
    ];
    kinds.into_iter().flat_map(|(packed, size)| {
        [false, true].map(|all| RingConfig {
            indirect: all,
            event_index: all,
            in_order: all,
            mergeable: all,
            ..config(packed, size)
        })
    })
}

/// Where the buffers of chain number `n` are: apart from those of the 100 before and after, and
/// one on the border of two regions.
fn place(n: u64) -> u64 {
    DATA + DATA_LEN / 2 - 300 + (n % 100) * 0x4000
}

#[test]
fn packets_reach_the_guest_whole_and_in_order() {
    for (i, config) in configs().enumerate() {
        let mut setup = Setup::new(config);
        let mut random = Random(100 + i as u64);
        let (mut offered, mut made, mut arrived) = (0, 0, 0);
        let mut waiting = PacketList::new();
        let mut lens = std::collections::VecDeque::new();
        let mut chains = std::collections::VecDeque::new();
        // Without mergeable buffers each chain must hold any packet.
        let (longest, least) = if config.mergeable && config.size >= 50 {
            (1500, 300)
        } else {
            (300, 330)
        };
        let mut rounds = 0;
        while arrived < 2000 {
            rounds += 1;
            for _ in 0..random.below(2 * u64::from(config.size)) {
                let len = (least + random.below(100)) as u32;
                let at = place(offered);
                let parts = random.parts(at, len, u64::from(config.size.min(3)), true);
                let ok = if config.indirect && random.below(2) == 0 {
                    setup
                        .driver
                        .offer_indirect(offered, &parts, &setup.memory, at + 0x3000)
                } else {
                    setup.driver.offer(offered, &parts)
                };
                if !ok {
                    break;
                }
                chains.push_back(parts);
                offered += 1;
            }
            setup.driver.publish();
            setup.restart(&mut random);
            while waiting.len() < 20 {
                let len = 14 + random.below(longest) as usize;
                let mut packet = setup.buffers.small.alloc().unwrap();
                let frame = frame(made, len);
                let (first, rest) = frame.split_at(len.min(500));
                assert!(packet.append(first));
                if !rest.is_empty() {
                    for part in rest.chunks(600) {
                        let mut segment = setup.buffers.small.alloc().unwrap();
                        assert!(segment.append(part));
                        packet.append_segment(segment);
                    }
                }
                packet.set_checksum_verified(made % 2 == 0);
                waiting.push_back(packet);
                lens.push_back(len);
                made += 1;
            }
            let before = waiting.len();
            let bytes_before = waiting.bytes();
            let (xmit, sent) = setup.transmit(&mut waiting).unwrap();
            assert_eq!(xmit == Xmit::Complete, waiting.is_empty());
            assert_eq!(sent.dropped, [], "{config:?}");
            assert_eq!(sent.packets as usize, before - waiting.len());
            assert_eq!(sent.bytes, bytes_before - waiting.bytes());
            // Chains that were not needed were not taken.
            let used = setup.driver.reap();
            let mut used = used.into_iter();
            for _ in 0..sent.packets {
                let mut got = Vec::new();
                let mut n = 0;
                let len = lens.pop_front().unwrap();
                let whole = loop {
                    let Used { len, .. } = used.next().expect("as many chains as were said");
                    let parts = chains.pop_front().unwrap();
                    let bytes = read_parts(&setup.memory, &parts);
                    got.extend_from_slice(&bytes[..len as usize]);
                    n += 1;
                    let header = VnetHeader::from_bytes(got.first_chunk().unwrap());
                    if n == header.num_buffers.get() {
                        break header;
                    }
                };
                assert!(config.mergeable || n == 1);
                assert_eq!(got[VNET_HDR_LEN..], frame(arrived, len), "{config:?}");
                assert_eq!(whole.flags, if arrived % 2 == 0 { 2 } else { 0 });
                arrived += 1;
            }
            assert_eq!(used.next(), None);
            assert_eq!(chains.len(), setup.driver.outstanding());
            assert!(rounds < 100_000);
        }
    }
}

/// The value of `GET_VRING_BASE`, and values that are not possible.
#[test]
fn a_queue_starts_where_another_stopped() {
    for (packed, after_10) in [(false, 10), (true, 0x0002_0002)] {
        let mut setup = Setup::new(config(packed, 8));
        for _ in 0..10 {
            setup.send(DATA, &[0; 100]);
            setup.receive(1).unwrap();
            setup.driver.reap();
        }
        assert_eq!(setup.queue.base(), after_10);
        // A back end that crashed has nothing to say: the ring itself knows.
        setup.queue = Virtqueue::new(config(packed, 8), &setup.memory).unwrap();
        assert_eq!(setup.queue.base(), after_10);
        for size in [0, 3, 33_000] {
            let bad = RingConfig {
                size,
                ..config(packed, 8)
            };
            let refused = Virtqueue::new(bad, &setup.memory);
            let possible = packed && size == 3;
            assert_eq!(matches!(refused, Err(SetupError::BadSize(_))), !possible);
        }
        let beyond = RingConfig {
            device: USER + RING + RING_LEN - 3,
            ..config(packed, 8)
        };
        let refused = Virtqueue::new(beyond, &setup.memory);
        assert!(matches!(refused, Err(SetupError::Memory(_))));
    }
}

/// Memory or features may change at any time: also while the driver writes a chain, of which the
/// first descriptor comes last.
#[test]
fn a_packed_ring_goes_on_while_the_driver_writes() {
    let mut setup = Setup::new(config(true, 8));
    setup.send(DATA, &[0; 100]);
    assert_eq!(setup.receive(64).unwrap().0.len(), 1);
    let part = Part::readable(DATA, 100);
    assert!(setup.driver.offer(1, &[part; 3]));
    let config = setup.queue.config;
    let anew = Virtqueue::new(config, &setup.memory);
    assert!(matches!(anew, Err(SetupError::LeftOut)), "it is not known");
    let regions = setup.memory.regions().to_vec();
    setup.memory = GuestMemory::new(regions, LIMIT).unwrap();
    let renewed = setup.queue.renew(config, &setup.memory).unwrap();
    assert_eq!(renewed.base(), setup.queue.base());
    setup.queue = renewed;
    assert!(setup.queue.arm(), "nothing is offered");
    assert!(setup.driver.publish());
    assert_eq!(setup.receive(64).unwrap().0.len(), 1);
    assert_eq!(setup.driver.reap().len(), 2);
}

/// A batch may end by its size, not by the lack of chains: whoever arms then is told of those
/// behind it.
#[test]
fn a_full_batch_is_behind_what_the_device_waits_for() {
    let (config, memory) = (config(true, 8), memory());
    let areas = || Areas::new(&config, &memory).unwrap();
    let (mut driver, mut batch) = (Driver::new(config, areas()), Batch::default());
    let mut device = Packed::new(&config, areas()).unwrap();
    let part = Part::readable(DATA, 100);
    assert!(driver.offer(0, &[part]));
    assert!(driver.publish());
    device.take(&memory, false, 1, &mut batch).unwrap();
    assert_eq!(batch.chains.len(), 1);
    device.complete(&batch, 1);
    assert!(device.arm(), "nothing is offered");
    assert!(driver.offer(1, &[part]));
    assert!(driver.publish(), "the device waits for it");
}
