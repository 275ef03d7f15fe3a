//! What `tc -s qdisc show` and `tc -s class show` tell, for a port: its disciplines and their classes, with their numbers.

use super::{Engine, PortId};
use crate::Device;
use crate::rx::RxQueue;
use softnet::tx::TxRing;
use softnet_tc::{AnyQdisc, ClassStats, Handle};

impl<Q: RxQueue + 'static, R: TxRing + 'static> Engine<Q, R> {
    /// A port's disciplines and classes, each before those below it; none if there is no such port. Waits for running threads, whose packets wait
    /// meanwhile: not to be called all the time.
    ///
    /// With a discipline at each transmit queue, the first is `mq` (or `mqprio`) with the sums of all queues, and queue 0 is its class `:1`, as in tc.
    pub fn classes(&self, port: PortId) -> Vec<ClassStats> {
        self.device(port)
            .map_or_else(|_| Vec::new(), |d| classes(&d))
    }
}

/// See [`Engine::classes`].
pub(super) fn classes<R: TxRing>(device: &Device<R>) -> Vec<ClassStats> {
    let mut all = Vec::new();
    let per_queue = device.per_queue();
    if let Some((kind, _)) = per_queue {
        all.push(ClassStats {
            class: Handle::ROOT,
            qdisc: Handle::NONE,
            kind,
            stats: device.stats().qdisc(),
        });
    }
    for queue in 0..per_queue.map_or(1, |(_, queues)| queues) {
        let own = device.with_qdisc(queue, softnet::time::Time::ZERO, |qdisc, _| of_one(qdisc));
        let Some(mut own) = own else { continue };
        if let Some(root) = own.first_mut() {
            // What passes an empty discipline, or waits for the driver, only the queue knows of.
            let stats = device.stats();
            root.stats = match per_queue {
                None => stats.qdisc(),
                Some(_) => stats.queues.get(queue).map(|q| q.qdisc).unwrap_or_default(),
            };
            if per_queue.is_some() {
                root.class = Handle::new(0, queue as u16 + 1);
            }
        }
        all.append(&mut own);
    }
    all
}

/// A discipline, and its classes if they have names.
fn of_one(qdisc: &mut AnyQdisc) -> Vec<ClassStats> {
    if let Some(tree) = qdisc.tree_mut() {
        return tree.classes();
    }
    vec![ClassStats {
        class: Handle::ROOT,
        qdisc: Handle::NONE,
        kind: qdisc.kind(),
        stats: Default::default(),
    }]
}
