//! loom models of a flow's slot beside queues that packets leave: lists with an owner, as they are
//! shipped. (Those of the slot alone are beside it.)

use loom::sync::Arc;
use loom::sync::atomic::{AtomicUsize, Ordering};
use loom::thread;

use super::models_owned_list::{Queue, WHOLE};
use super::testing::Values;
use super::*;

struct Flow {
    slot: FlowSlot,
    queues: [Queue; 2],
}

type IsEmpty = fn(&Queue) -> bool;

impl Flow {
    fn new() -> Arc<Flow> {
        let queue = || {
            let mut queue = Queue::of(false);
            queue.waiting = Some(AtomicUsize::new(0));
            queue
        };
        let flow = Flow {
            slot: FlowSlot::default(),
            queues: [queue(), queue()],
        };
        // The flow was in queue 0, and has left it.
        drop(flow.slot.pin(0, |_| true, |_| true));
        Arc::new(flow)
    }

    fn waiting(&self, queue: usize) -> &AtomicUsize {
        self.queues[queue].waiting.as_ref().expect("counted")
    }

    fn send(&self, wanted: u16, value: usize, is_empty: IsEmpty) {
        let is_empty = |queue: u16| is_empty(&self.queues[usize::from(queue)]);
        let pin = self.slot.pin(wanted, |_| true, is_empty);
        let queue = usize::from(pin.queue());
        // Relaxed: who has found a queue idle has seen what its owner did.
        let elsewhere = self.waiting(1 - queue).load(Ordering::Relaxed);
        assert_eq!(elsewhere, 0, "apart");
        self.waiting(queue).fetch_add(1, Ordering::Relaxed);
        self.queues[queue].transmit(value, WHOLE);
    }
}

/// INV-TX-15: queue 0 has an owner, which sends what is pushed meanwhile. Two senders of the flow
/// want different queues: it moves only when nothing of it waits in queue 0, on the list or in the
/// hands of the owner.
fn packets_leave(is_empty: IsEmpty) {
    loom::model(move || {
        let flow = Flow::new();
        let (owner, _) = flow.queues[0].list.try_begin().expect("idle");
        let threads = [0, 1].map(|wanted| {
            let flow = flow.clone();
            thread::spawn(move || flow.send(wanted, usize::from(wanted), is_empty))
        });
        flow.queues[0].serve(owner, Values::default(), WHOLE);
        threads.into_iter().for_each(|t| t.join().unwrap());
        let sent = flow.queues.iter().map(|queue| queue.sent().len());
        assert_eq!(sent.sum::<usize>(), 2);
    });
}

#[test]
fn a_flow_moves_when_its_packets_have_left() {
    packets_leave(|queue| queue.list.is_idle());
}

/// The twin: what the owner has taken off the list is overlooked.
#[test]
#[should_panic(expected = "apart")]
fn a_look_at_the_list_alone_overlooks_what_the_owner_holds() {
    packets_leave(|queue| queue.list.is_empty());
}
