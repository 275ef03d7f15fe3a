//! No notification is lost, in either kind of ring.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use loom::model::Builder;
use loom::sync::atomic::{AtomicU16, fence};

use super::model::{Driver, Part};
use super::notify::Area;
use super::tests::config;
use super::*;

/// A ring in the model checker's memory. Each field is as many cells as it has 16-bit words:
/// rings promise no more than that of fields that both sides access.
#[derive(Clone, Debug)]
struct Cells(Arc<Vec<AtomicU16>>);

impl Cells {
    fn new(len: usize) -> Cells {
        Cells(Arc::new((0..len / 2).map(|_| AtomicU16::new(0)).collect()))
    }

    fn relaxed(&self, at: usize) -> u16 {
        self.0[at / 2].load(Ordering::Relaxed)
    }
}

impl Area for Cells {
    fn load(&self, at: usize) -> u16 {
        self.0[at / 2].load(Ordering::Acquire)
    }

    fn store(&self, at: usize, value: u16) {
        self.0[at / 2].store(value, Ordering::Release);
    }

    fn read_u16(&self, at: usize) -> u16 {
        self.relaxed(at)
    }

    fn read_u32(&self, at: usize) -> u32 {
        u32::from(self.relaxed(at)) | u32::from(self.relaxed(at + 2)) << 16
    }

    fn read_words(&self, at: usize) -> [u64; 2] {
        [at, at + 8]
            .map(|at| u64::from(self.read_u32(at)) | u64::from(self.read_u32(at + 4)) << 32)
    }

    fn write_u16(&self, at: usize, value: u16) {
        self.0[at / 2].store(value, Ordering::Relaxed);
    }

    fn write_u32(&self, at: usize, value: u32) {
        self.write_u16(at, value as u16);
        self.write_u16(at + 2, (value >> 16) as u16);
    }

    fn write_pair(&self, at: usize, values: [u32; 2]) {
        self.write_u32(at, values[0]);
        self.write_u32(at + 4, values[1]);
    }

    fn store_pair(&self, at: usize, values: [u32; 2]) {
        self.write_u32(at, values[0]);
        self.write_u16(at + 4, values[1] as u16);
        self.store(at + 6, (values[1] >> 16) as u16);
    }

    fn fence() {
        fence(Ordering::SeqCst);
    }
}

fn areas() -> [Areas<Cells>; 2] {
    let areas = || Areas {
        descriptors: Cells::new(16 * 2),
        driver: Cells::new(6 + 2 * 2),
        device: Cells::new(6 + 8 * 2),
    };
    let one = areas();
    let other = Areas {
        descriptors: one.descriptors.clone(),
        driver: one.driver.clone(),
        device: one.device.clone(),
    };
    [one, other]
}

/// A buffer without bytes, which needs no memory.
const EMPTY: Part = Part {
    address: 0,
    len: 0,
    flags: 0,
};

/// All interleavings: there are few, so that preemptions have no bound.
fn explore(model: impl Fn() + Send + Sync + 'static) {
    let mut builder = Builder::new();
    builder.preemption_bound = None;
    builder.check(model);
}

/// The device polls, arms, and sleeps; the driver offers two chains, each by itself. Whoever
/// sleeps on a chain is woken for it.
fn kick<R: Ring + Send + 'static>(config: RingConfig, new: fn(&RingConfig, Areas<Cells>) -> R) {
    explore(move || {
        let [ours, theirs] = areas();
        let mut device = new(&config, ours);
        let mut driver = Driver::new(config, theirs);
        device.disarm();
        let offers = loom::thread::spawn(move || {
            let mut kicks = 0;
            for token in 0..2 {
                assert!(driver.offer(token, &[EMPTY]));
                kicks += u32::from(driver.publish());
            }
            kicks
        });
        let (memory, mut batch) = (GuestMemory::default(), Batch::default());
        let mut take = |device: &mut R| {
            device.take(&memory, false, 32, &mut batch).unwrap();
            batch.chains.len()
        };
        // Asleep with less than all only if a kick is on the way.
        let mut taken = take(&mut device);
        let asleep = device.arm();
        if !asleep {
            taken = take(&mut device);
        }
        let kicks = offers.join().unwrap();
        if asleep && taken < 2 {
            assert!(kicks > 0, "asleep with {taken} of 2 chains");
            assert_eq!(take(&mut device), 2);
        }
    });
}

/// The device gives two chains back, each by itself; the driver reaps, arms, and sleeps.
fn call<R: Ring + Send + 'static>(config: RingConfig, new: fn(&RingConfig, Areas<Cells>) -> R) {
    explore(move || {
        let [ours, theirs] = areas();
        let mut device = new(&config, ours);
        let mut driver = Driver::new(config, theirs);
        driver.disarm();
        for token in 0..2 {
            assert!(driver.offer(token, &[EMPTY]));
        }
        driver.publish();
        let completes = loom::thread::spawn(move || {
            let memory = GuestMemory::default();
            let mut calls = 0;
            for _ in 0..2 {
                let mut batch = Batch::default();
                device.take(&memory, false, 1, &mut batch).unwrap();
                assert_eq!(batch.chains.len(), 1);
                device.complete(&batch, 1);
                calls += u32::from(device.must_notify());
            }
            calls
        });
        let mut reaped = driver.reap().len();
        let asleep = driver.arm();
        if !asleep {
            reaped += driver.reap().len();
        }
        let calls = completes.join().unwrap();
        if asleep && reaped < 2 {
            assert!(calls > 0, "asleep with {reaped} of 2 chains");
            assert_eq!(reaped + driver.reap().len(), 2);
        }
    });
}

fn split(config: &RingConfig, areas: Areas<Cells>) -> Split<Cells> {
    Split::new(config, areas)
}

fn packed(config: &RingConfig, areas: Areas<Cells>) -> Packed<Cells> {
    Packed::new(config, areas).unwrap()
}

/// With event indices and without.
fn both(packed: bool) -> [RingConfig; 2] {
    [false, true].map(|event_index| RingConfig {
        event_index,
        ..config(packed, 2)
    })
}

#[test]
fn no_kick_is_lost() {
    for config in both(false) {
        kick(config, split);
    }
    for config in both(true) {
        kick(config, packed);
    }
}

#[test]
fn no_call_is_lost() {
    for config in both(false) {
        call(config, split);
    }
    for config in both(true) {
        call(config, packed);
    }
}
