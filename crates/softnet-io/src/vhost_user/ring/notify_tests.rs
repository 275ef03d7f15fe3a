//! No notification is lost, and none is sent that was not asked for.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use loom::sync::atomic::{AtomicU16, fence};

use super::model::{Driver, Part};
use super::notify::Area;
use super::tests::{DATA, Setup, config};
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

/// The device polls, arms, and sleeps; the driver offers two chains, each by itself. Whoever
/// sleeps on a chain is woken for it.
fn kick<R: Ring + Send + 'static>(config: RingConfig, new: fn(&RingConfig, Areas<Cells>) -> R) {
    loom::model(move || {
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
    loom::model(move || {
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

/// Through some rounds of the ring: no notification while the other side polls, one when it
/// sleeps.
#[test]
fn notifications_only_when_asked_for() {
    for (packed, event_index) in [(false, false), (false, true), (true, false), (true, true)] {
        let mut setup = Setup::new(RingConfig {
            event_index,
            ..config(packed, 8)
        });
        setup.driver.disarm();
        if event_index && !packed {
            // As at the start, the event is the first chain. Nobody says otherwise in a split ring.
            setup.send(DATA, &[0; 100]);
            setup.receive(64).unwrap();
            setup.queue.must_notify();
            setup.driver.reap();
        }
        for _ in 0..100 {
            for _ in 0..3 {
                assert!(!setup.send(DATA, &[0; 100]), "{packed} {event_index}");
                assert!(setup.queue.peek());
                setup.receive(64).unwrap();
                assert!(!setup.queue.must_notify());
                assert_eq!(setup.driver.reap().len(), 1);
            }
            assert!(setup.queue.arm());
            assert!(setup.send(DATA, &[0; 100]));
            // New chains since the last look.
            assert!(!setup.queue.arm());
            setup.queue.disarm();
            assert!(setup.driver.arm());
            setup.receive(64).unwrap();
            assert!(setup.queue.must_notify());
            assert!(!setup.queue.must_notify(), "once");
            assert!(!setup.driver.arm());
            setup.driver.disarm();
            assert_eq!(setup.driver.reap().len(), 1);
        }
    }
}
