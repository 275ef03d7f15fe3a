//! A device that is killed between any two stores: the next one, which may be killed as well, goes
//! on with the ring that it left. Each chain is given back once, and in order.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::rc::Rc;

use super::model::{Driver, Part};
use super::notify::Area;
use super::tests::{DATA, Random, config, memory};
use super::*;

/// A part of a ring in ordinary memory, and how many more stores whoever has it lives for.
#[derive(Clone, Debug)]
struct Mortal {
    bytes: Rc<RefCell<Vec<u8>>>,
    left: Rc<Cell<usize>>,
}

/// The device was killed.
struct Killed;

impl Mortal {
    fn get<const N: usize>(&self, at: usize) -> [u8; N] {
        self.bytes.borrow()[at..at + N].try_into().unwrap()
    }

    fn put(&self, at: usize, bytes: &[u8]) {
        let Some(left) = self.left.get().checked_sub(1) else {
            resume_unwind(Box::new(Killed));
        };
        self.left.set(left);
        self.bytes.borrow_mut()[at..at + bytes.len()].copy_from_slice(bytes);
    }
}

impl Area for Mortal {
    fn load(&self, at: usize) -> u16 {
        self.read_u16(at)
    }

    fn store(&self, at: usize, value: u16) {
        self.put(at, &value.to_le_bytes());
    }

    fn read_u16(&self, at: usize) -> u16 {
        u16::from_le_bytes(self.get(at))
    }

    fn read_u32(&self, at: usize) -> u32 {
        u32::from_le_bytes(self.get(at))
    }

    fn read_words(&self, at: usize) -> [u64; 2] {
        [at, at + 8].map(|at| u64::from_le_bytes(self.get(at)))
    }

    fn write_u16(&self, at: usize, value: u16) {
        self.put(at, &value.to_le_bytes());
    }

    fn write_u32(&self, at: usize, value: u32) {
        self.put(at, &value.to_le_bytes());
    }

    fn write_pair(&self, at: usize, values: [u32; 2]) {
        self.write_u32(at, values[0]);
        self.write_u32(at + 4, values[1]);
    }

    fn store_pair(&self, at: usize, values: [u32; 2]) {
        self.put(at, values.map(u32::to_le_bytes).as_flattened());
    }

    fn fence() {}
}

/// The parts of one ring: for a device with `left`, and for a driver, who lives for ever.
fn areas(config: &RingConfig, left: &Rc<Cell<usize>>) -> [Areas<Mortal>; 2] {
    let n = usize::from(config.size);
    let part = |len| Rc::new(RefCell::new(vec![0; len]));
    let (descriptors, driver, device) = (part(16 * n), part(6 + 2 * n), part(6 + 8 * n));
    let of = |left: &Rc<Cell<usize>>| {
        let area = |bytes: &Rc<RefCell<Vec<u8>>>| Mortal {
            bytes: bytes.clone(),
            left: left.clone(),
        };
        Areas {
            descriptors: area(&descriptors),
            driver: area(&driver),
            device: area(&device),
        }
    };
    [of(left), of(&Rc::new(Cell::new(usize::MAX)))]
}

/// A chain that is in the ring.
#[derive(Debug)]
struct Offered {
    token: u64,
    len: u32,
}

/// Offers a chain of some kind, if it fits.
fn offer(
    driver: &mut Driver<Mortal>,
    random: &mut Random,
    memory: &GuestMemory,
    size: u16,
    token: u64,
) -> Option<Offered> {
    let at = DATA + token % 64 * 0x4000;
    let len = 100 + random.below(1000) as u32;
    let parts = random.parts(at + 0x400, len, size.min(4).into(), true);
    let is_in = if random.below(2) == 0 {
        driver.offer_indirect(token, &parts, memory, at)
    } else {
        driver.offer(token, &parts)
    };
    is_in.then_some(Offered { token, len })
}

/// Makes devices until one of them lives.
fn resurrect<R>(left: &Cell<usize>, random: &mut Random, new: impl Fn() -> R) -> R {
    loop {
        let lives = random.below(12) as usize;
        left.set(if lives > 8 { usize::MAX } else { lives });
        let device = catch_unwind(AssertUnwindSafe(&new));
        left.set(usize::MAX);
        match device {
            Ok(device) => return device,
            Err(cause) => assert!(cause.is::<Killed>()),
        }
    }
}

/// Returns how often the device was killed, and how many chains that it had worked on, but not
/// given back, came back without bytes.
fn live_and_die<R: Ring>(
    config: RingConfig,
    seed: u64,
    new: fn(&RingConfig, Areas<Mortal>) -> R,
) -> (usize, usize) {
    let mut random = Random(seed);
    let memory = memory();
    let left = Rc::new(Cell::new(usize::MAX));
    let [ours, theirs] = areas(&config, &left);
    let new = || {
        let areas = Areas {
            descriptors: ours.descriptors.clone(),
            driver: ours.driver.clone(),
            device: ours.device.clone(),
        };
        new(&config, areas)
    };
    let mut driver = Driver::new(config, theirs);
    let mut device = new();
    // Chains that the device has not given back, and those that the driver has not reaped.
    let (mut waiting, mut given) = (VecDeque::new(), VecDeque::new());
    let (mut token, mut kills, mut empty) = (0, 0, 0);
    for _ in 0..200 {
        while random.below(5) > 0 {
            let offered = offer(&mut driver, &mut random, &memory, config.size, token);
            token += u64::from(offered.is_some());
            waiting.extend(offered);
        }
        driver.publish();
        let mut batch = Batch::default();
        let max = 1 + random.below(6) as usize;
        device.take(&memory, true, max, &mut batch).unwrap();
        assert_eq!(batch.chains.len(), waiting.len().min(max));
        let n = random.below(batch.chains.len() as u64 + 1) as usize;
        for (chain, offered) in batch.chains[..n].iter_mut().zip(&waiting) {
            let Offered { token, len } = *offered;
            assert_eq!(chain.len, len);
            chain.written = 1 + token as u32 % len;
        }
        if random.below(2) == 0 {
            left.set(random.below(4 * n as u64 + 4) as usize);
        }
        let lived = catch_unwind(AssertUnwindSafe(|| device.complete(&batch, n)));
        left.set(usize::MAX);
        if lived.is_ok() {
            given.extend(waiting.drain(..n));
            if random.below(3) > 0 {
                continue;
            }
        }
        let used = driver.reap();
        let unexpected = used.len() - given.len();
        // Of a batch that was interrupted all is there or nothing.
        assert!(unexpected == 0 || lived.is_err() && unexpected == n);
        given.extend(waiting.drain(..unexpected));
        for (used, Offered { token, len }) in used.iter().zip(given.drain(..)) {
            assert_eq!((used.token, used.len), (token, 1 + token as u32 % len));
        }
        kills += usize::from(lived.is_err());
        device = resurrect(&left, &mut random, new);
        // Of the rest of it, what the device had begun to give back.
        let used = driver.reap();
        assert!(
            used.len()
                <= if lived.is_ok() || unexpected > 0 {
                    0
                } else {
                    n
                }
        );
        empty += used.len();
        for (used, Offered { token, .. }) in used.iter().zip(waiting.drain(..used.len())) {
            assert_eq!((used.token, used.len), (token, 0));
        }
        assert_eq!(driver.outstanding(), waiting.len());
    }
    (kills, empty)
}

fn packed(config: &RingConfig, areas: Areas<Mortal>) -> Packed<Mortal> {
    Packed::new(config, areas).expect("nobody is just writing")
}

#[test]
fn a_ring_goes_on_after_a_kill() {
    let (mut kills, mut empty) = (0, 0);
    for seed in 1..40 {
        for size in [1, 2, 3, 4, 6, 16, 24] {
            let died = live_and_die(config(true, size), seed, packed);
            kills += died.0;
            empty += died.1;
            if size.is_power_of_two() {
                let died = live_and_die(config(false, size), seed, Split::new);
                kills += died.0;
                assert_eq!(died.1, 0);
            }
        }
    }
    assert!(kills > 5_000 && empty > 1_000, "{kills} {empty}");
}

/// A driver that is just writing a chain, whose first descriptor comes last.
#[test]
fn a_chain_that_is_being_written() {
    let config = config(true, 8);
    let left = Rc::new(Cell::new(usize::MAX));
    let [ours, theirs] = areas(&config, &left);
    let ring = ours.descriptors.clone();
    let mut driver = Driver::new(config, theirs);
    assert!(driver.offer(0, &[Part::readable(DATA, 10); 3]));
    assert!(Packed::new(&config, ours).is_none());
    driver.publish();
    let areas = Areas {
        descriptors: ring.clone(),
        driver: ring.clone(),
        device: ring,
    };
    assert_eq!(packed(&config, areas).base(), 0x8000_8000);
}
