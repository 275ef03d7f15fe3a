//! The common part of all designs: the driver behind a queue, which counts what it sends and gives
//! the buffers back, and what a design costs beside memory.

use std::cell::Cell;
use std::rc::Rc;

use super::line::LineId;
use super::machine::{Core, Machine};
use super::pool::{Packet, Pool};

/// Instructions in nanoseconds, without the accesses that the model replays.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Work {
    /// Work of a sender for each packet: it is allocated and filled in, and freed by somebody.
    pub(super) make: f64,
    /// Work of a sender that finds the queue owned.
    pub(super) push: f64,
    /// Work of a call that finds the queue free.
    pub(super) call: f64,
    /// Work for a packet that passes the qdisc and the driver with others.
    pub(super) packet: f64,
    /// Further work for a packet that the qdisc holds meanwhile.
    pub(super) queued: f64,
    /// `PAUSE`, once, and `sched_yield` where no other thread is ready.
    pub(super) pause: f64,
    /// To read the clock.
    pub(super) clock: f64,
    pub(super) r#yield: f64,
}

/// State that all senders share.
pub(super) struct Shared {
    pub(super) pool: Rc<Pool>,
    pub(super) work: Work,
    /// The count of packets sent, for each sender: a line that the driver writes.
    pub(super) returned: Vec<LineId>,
    pub(super) delivered: Cell<u64>,
    counts: Vec<Cell<u64>>,
}

impl Shared {
    pub(super) fn new(
        machine: &Machine,
        senders: usize,
        pool: Rc<Pool>,
        work: Work,
    ) -> Rc<Shared> {
        Rc::new(Shared {
            pool,
            work,
            returned: (0..senders).map(|_| machine.line()).collect(),
            delivered: Cell::new(0),
            counts: vec![Cell::new(0); senders],
        })
    }
}

/// The driver of one queue (`Sink` in `tx_adopt/path.rs`).
pub(super) struct Driver {
    /// The packets that it sent.
    counter: LineId,
    pub(super) shared: Rc<Shared>,
}

impl Driver {
    pub(super) fn new(machine: &Machine, shared: &Rc<Shared>) -> Driver {
        Driver {
            counter: machine.line(),
            shared: shared.clone(),
        }
    }

    /// Sends. Touches the header of each packet, the line of each sender once for a run of its
    /// packets, and its own.
    pub(super) async fn send(&self, core: &Core, mut packets: Vec<Packet>) {
        let shared = &self.shared;
        for packet in &mut packets {
            core.stream(packet.at, 1);
            core.some_work(shared.work.packet);
            packet.at = core.id;
        }
        for run in packets.chunk_by(|a, b| a.owner == b.owner) {
            let count = &shared.counts[run[0].owner];
            count.set(count.get() + run.len() as u64);
            core.store(shared.returned[run[0].owner], count.get()).await;
        }
        core.use_data(self.counter, 1).await;
        let sent = packets.len() as u64;
        shared.pool.free(core, packets).await;
        shared.delivered.set(shared.delivered.get() + sent);
    }
}
