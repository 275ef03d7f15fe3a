//! loom models of a worker's notifier, with the types as they are shipped: the bell of a transmit
//! queue and the driver's word that its ring has capacity again.

use std::sync::Arc as StdArc;

use loom::sync::Arc;
use loom::sync::atomic::{AtomicUsize, Ordering};
use loom::thread;

use crate::tx::{Event, Notifier, Wake};

const BELL: usize = 0;

/// Counts wake-ups.
struct Count(AtomicUsize);

impl Wake for Count {
    fn wake(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// A queue and the worker that serves it.
struct Queue {
    notifier: Notifier,
    /// The driver has capacity again.
    woken: Event,
    wakes: StdArc<Count>,
}

impl Queue {
    fn new() -> Arc<Queue> {
        let wakes = StdArc::new(Count(AtomicUsize::new(0)));
        Arc::new(Queue {
            notifier: Notifier::new(1, wakes.clone()),
            woken: Event::default(),
            wakes,
        })
    }

    /// The worker's round: true if it found that the driver has capacity.
    fn round(&self) -> bool {
        let mut rung = false;
        self.notifier.take(|_| rung = true);
        rung && self.woken.take()
    }

    fn wakes(&self) -> usize {
        self.wakes.0.load(Ordering::Relaxed)
    }
}

/// A driver's wake-up beside the bell of another thread: the worker, which takes the bell and
/// tries the driver, either finds that there is capacity or is called once more.
#[test]
fn a_drivers_wake_up_is_not_lost() {
    loom::model(|| {
        let queue = Queue::new();
        queue.notifier.notify(BELL);
        let driver = queue.clone();
        let thread = thread::spawn(move || driver.woken.raise(&driver.notifier, BELL));
        let found = queue.round();
        thread.join().unwrap();
        assert!(found || queue.round(), "the wake-up was lost");
        assert_eq!(queue.wakes(), 0, "the worker is awake");
    });
}

/// A worker that lies down is woken, once, by whichever thread rings; and a thread that has set
/// the bell and then stands still (for ever, here) takes no wake-up with it.
#[test]
fn a_sleeper_is_woken_though_the_bell_was_set_by_a_thread_that_stands_still() {
    loom::model(|| {
        let queue = Queue::new();
        let preempted = queue.clone();
        let threads = [thread::spawn(move || preempted.notifier.set(BELL)), {
            let driver = queue.clone();
            thread::spawn(move || driver.woken.raise(&driver.notifier, BELL))
        }];
        let found = queue.round();
        let mut woken = None;
        let mut threads = Some(threads);
        queue.notifier.sleep_if(
            || true,
            || {
                for thread in threads.take().into_iter().flatten() {
                    thread.join().unwrap();
                }
                woken = Some(queue.wakes());
            },
        );
        for thread in threads.into_iter().flatten() {
            thread.join().unwrap();
        }
        assert!(
            woken.is_none_or(|wakes| found || wakes == 1),
            "asleep for ever"
        );
        assert!(found || queue.round(), "the wake-up was lost");
    });
}
