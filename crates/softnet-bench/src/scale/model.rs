//! A design under load: as many senders as cores, each as in `tx_adopt/load.rs`, flat out with at
//! most 256 packets in flight.

use std::rc::Rc;

use super::adoption::{Pot, Queue};
use super::busylock::Busylock;
use super::device::{Driver, Shared, Work};
use super::machine::{Costs, Machine, Program};
use super::pool::Pool;

/// Packets that a sender may have in flight, and in the pool beyond twice those.
const IN_FLIGHT: u64 = 256;
const SPARE: usize = 2048;

/// The path of senders to the queues.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Design {
    /// The kernel's locks.
    Busylock,
    /// The adoption list.
    Adoption,
    /// The same, with a pot for each queue and one rate for all.
    AllCores,
}

/// The case that is simulated.
#[derive(Debug, Clone, Copy)]
pub(super) struct Load {
    pub(super) design: Design,
    pub(super) cores: usize,
    pub(super) queues: usize,
    pub(super) work: Work,
    /// Packets that are counted, after half as many that are not.
    pub(super) packets: u64,
    pub(super) seed: u32,
}

enum Path {
    Busylock(Rc<Busylock>),
    Adoption(Rc<Queue>),
}

/// Millions of packets that the driver gets in a second.
pub(super) fn mpps(load: &Load, costs: Costs) -> f64 {
    let machine = Machine::new(load.cores, costs, load.seed);
    let buffers = 2 * load.cores * IN_FLIGHT as usize + SPARE;
    let pool = Pool::new(&machine, load.cores, buffers);
    let shared = Shared::new(&machine, load.cores, pool, load.work);
    let rate = machine.line();
    let path = |_| {
        let driver = Driver::new(&machine, &shared);
        let pot = (load.design == Design::AllCores).then(|| Pot::new(rate));
        match load.design {
            Design::Busylock => Path::Busylock(Busylock::new(&machine, driver)),
            _ => Path::Adoption(Queue::new(&machine, driver, pot)),
        }
    };
    let queues: Rc<Vec<_>> = Rc::new((0..load.queues).map(path).collect());
    let sender = |id: usize| {
        let (core, shared, queues) = (machine.core(id), shared.clone(), queues.clone());
        let program: Program = Box::pin(async move {
            let queue = &queues[id % queues.len()];
            let (mut sent, mut returned) = (0, 0);
            loop {
                if sent - returned >= IN_FLIGHT {
                    returned = core.load(shared.returned[id]).await;
                    if sent - returned >= IN_FLIGHT {
                        if let Path::Adoption(queue) = queue {
                            queue.help(&core).await;
                        }
                        core.work(shared.work.r#yield);
                        continue;
                    }
                }
                let Some(packet) = shared.pool.alloc(&core).await else {
                    core.work(shared.work.r#yield);
                    continue;
                };
                core.some_work(shared.work.make);
                sent += 1;
                match queue {
                    Path::Busylock(queue) => queue.transmit(&core, packet).await,
                    Path::Adoption(queue) => {
                        if !queue.transmit(&core, packet).await {
                            sent -= 1;
                            shared.pool.free(&core, vec![packet]).await;
                        }
                    }
                }
            }
        });
        program
    };
    let mut programs: Vec<_> = (0..load.cores).map(sender).collect();
    machine.run(&mut programs, || shared.delivered.get() >= load.packets / 2);
    let (start, before) = (machine.now(), shared.delivered.get());
    machine.run(&mut programs, || {
        shared.delivered.get() >= before + load.packets
    });
    let time = (machine.now() - start) as f64;
    (shared.delivered.get() - before) as f64 / time * 1e6
}

/// Nanoseconds of an atomic operation where two cores do nothing else with one line.
pub(super) fn contended(costs: Costs) -> f64 {
    const EACH: u64 = 4000;
    let machine = Machine::new(2, costs, 1);
    let line = machine.line();
    let adder = |id| {
        let core = machine.core(id);
        let program: Program = Box::pin(async move {
            for _ in 0..EACH {
                let _ = core.rmw(line, |value| Some(value + 1)).await;
            }
        });
        program
    };
    machine.run(&mut [adder(0), adder(1)], || false);
    machine.now() as f64 / 1e3 / (2 * EACH) as f64
}

/// The part of a transfer in which neither core has the line with which two cores that contend
/// take as long as was measured.
pub(super) fn flight(costs: Costs, measured: f64) -> f64 {
    let (mut low, mut high) = (0.0, 1.0);
    for _ in 0..24 {
        let flight = (low + high) / 2.0;
        match contended(Costs { flight, ..costs }) < measured {
            true => low = flight,
            false => high = flight,
        }
    }
    (low + high) / 2.0
}
