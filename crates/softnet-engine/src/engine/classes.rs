//! What `tc -s qdisc show` and `tc -s class show` tell of a device: its qdiscs and their classes.

use crate::Device;
use softnet::tx::TxRing;
use softnet_tc::{AnyQdisc, ClassStats, Handle};

/// See [`Engine::classes`](super::Engine::classes).
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
            // What passes an empty qdisc, or waits for the driver, only the queue knows of.
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

/// A qdisc, and its classes if they have names.
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
