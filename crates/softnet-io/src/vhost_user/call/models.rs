//! No write is unwatched, and each rest ends.

use loom::sync::Notify;

use super::*;

/// A writer and the watching thread: one sees the other.
fn a_writer_and_a_rest(is_to_end: fn(&Rest) -> bool) {
    loom::model(move || {
        let rest = Arc::new(Rest::new());
        let writes = Arc::new(AtomicU64::new(0));
        let writer = {
            let (rest, writes) = (rest.clone(), writes.clone());
            loom::thread::spawn(move || {
                writes.store(1, Ordering::Relaxed);
                is_to_end(&rest)
            })
        };
        let rests = rest.begin(|| writes.load(Ordering::Acquire) == 0);
        let woken = writer.join().unwrap();
        assert!(!rests || woken, "it rests while somebody writes");
        assert!(!woken || !rest.is_on());
    });
}

/// No write is unwatched: the thread that rests is woken by who writes, or has seen it.
#[test]
fn who_writes_is_seen_or_wakes() {
    a_writer_and_a_rest(Rest::is_to_end);
}

/// The twin: the writer's load passes its store.
#[test]
#[should_panic(expected = "it rests while somebody writes")]
fn who_writes_without_a_fence_is_unseen() {
    a_writer_and_a_rest(|rest| {
        let rests = rest.is_on();
        if rests {
            rest.end();
        }
        rests
    });
}

/// A rest, two writers that may end it, and a timer.
struct Model {
    rest: Rest,
    writes: [AtomicU64; 2],
    timer: Notify,
}

impl Model {
    fn write(&self, writer: usize) {
        let writes = &self.writes[writer];
        writes.store(1, Ordering::Relaxed);
        if self.rest.is_to_end() {
            self.timer.notify();
        }
        writes.store(2, Ordering::Release);
    }

    /// True if nobody writes, and somebody is yet to.
    fn is_quiet(&self) -> bool {
        let writes = [0, 1].map(|n| self.writes[n].load(Ordering::Acquire));
        writes != [2, 2] && !writes.contains(&1)
    }
}

/// A rest that begins ends, though the timer has ended before, too, for the rest before it.
/// (Fails, as a deadlock, if a writer sets the timer before it ends the rest.)
#[test]
fn a_rest_ends() {
    loom::model(|| {
        let model = Arc::new(Model {
            rest: Rest::new(),
            writes: [AtomicU64::new(0), AtomicU64::new(0)],
            timer: Notify::new(),
        });
        model.timer.notify();
        let writers = [0, 1].map(|writer| {
            let model = model.clone();
            loom::thread::spawn(move || model.write(writer))
        });
        if model.rest.begin(|| model.is_quiet()) {
            model.rest.wait(|| model.timer.wait());
        }
        writers.into_iter().for_each(|t| t.join().unwrap());
    });
}
