//! No write is unwatched, and each rest ends.

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
    /// True: it has ended, and nobody has waited for that. A swap stands for its lock.
    timer: AtomicBool,
}

impl Model {
    fn write(&self, writer: usize, ends: fn(&Model)) {
        let writes = &self.writes[writer];
        writes.store(1, Ordering::Relaxed);
        ends(self);
        writes.store(2, Ordering::Release);
    }

    fn set_timer(&self) {
        self.timer.swap(true, Ordering::AcqRel);
    }

    /// True if nobody writes, and somebody is yet to.
    fn is_quiet(&self) -> bool {
        let writes = [0, 1].map(|n| self.writes[n].load(Ordering::Acquire));
        writes != [2, 2] && !writes.contains(&1)
    }
}

/// A rest that begins, when the timer has ended before, too, for the rest before it. Who waits for
/// the timer goes on when both writers are done: nobody sets it behind that.
fn a_rest_and_two_writers(ends: fn(&Model)) {
    loom::model(move || {
        let model = Arc::new(Model {
            rest: Rest::new(),
            writes: [AtomicU64::new(0), AtomicU64::new(0)],
            timer: AtomicBool::new(true),
        });
        let writers = [0, 1].map(|writer| {
            let model = model.clone();
            loom::thread::spawn(move || model.write(writer, ends))
        });
        let mut writers = Some(writers);
        let mut join = || {
            let writers = writers.take().into_iter().flatten();
            writers.for_each(|writer| writer.join().unwrap());
        };
        if model.rest.begin(|| model.is_quiet()) {
            let has_ended = || model.timer.swap(false, Ordering::AcqRel);
            model.rest.wait(|| {
                if !has_ended() {
                    join();
                    assert!(has_ended(), "it rests for ever");
                }
            });
        }
        join();
    });
}

#[test]
fn a_rest_ends() {
    a_rest_and_two_writers(|model| {
        if model.rest.is_to_end() {
            model.set_timer();
        }
    });
}

/// The twin: a writer sets the timer before it ends the rest.
#[test]
#[should_panic(expected = "it rests for ever")]
fn a_rest_that_ends_behind_its_timer_stays() {
    a_rest_and_two_writers(|model| {
        fence(Ordering::SeqCst);
        if model.rest.is_on() {
            model.set_timer();
            model.rest.end();
        }
    });
}
