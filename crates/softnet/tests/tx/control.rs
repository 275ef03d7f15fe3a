//! Trees that are changed while packets flow through them.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use super::*;
use softnet_tc::{DeviceTree, Handle, PrioSpec, QdiscEnv, Queues, TreeSpec};

fn handle(text: &str) -> Handle {
    text.parse().unwrap()
}

fn wide_tbf(limit: u64) -> QdiscSpec {
    shaped(1_000_000_000, u32::MAX.into(), limit)
}

fn tree() -> QdiscSpec {
    let mut tree = TreeSpec::new();
    let prio = QdiscSpec::Prio(PrioSpec::default());
    tree.add(Handle::ROOT, handle("1:"), prio).unwrap();
    tree.add(handle("1:2"), handle("2:"), wide_tbf(1 << 20))
        .unwrap();
    QdiscSpec::Tree(tree)
}

/// A change lets leave what it frees, and keeps the counters (INV-Q-8, INV-Q-10).
#[test]
fn a_change_frees_what_waits() {
    let slow = |rate| shaped(rate, 200, 10_000);
    let bench = scripted(slow(1), 1);
    bench.send(0..6);
    bench.work(Time::ZERO);
    assert_eq!(bench.marks(0), [0, 1]);
    bench.device.change_qdisc(0, &slow(1_000_000_000)).unwrap();
    // The bucket is full again, and then fills in no time.
    bench.work(Time::ZERO);
    bench.wake(Time(1_000));
    assert_eq!(bench.marks(0), [0, 1, 2, 3, 4, 5]);
    bench.check(6);
    let wrong = QdiscSpec::Pfifo { limit: 1 };
    assert!(bench.device.change_qdisc(0, &wrong).is_err());
    assert_eq!(bench.device.stats().queues[0].qdisc.packets, 6);
}

/// INV-TX-1, INV-TX-3, INV-Q-1, BUG-PRIO-1, BUG-TBF-2, BUG-TX-21: other qdiscs are attached,
/// changed and removed, over and over, until the senders are done. Nothing is lost uncounted, and
/// every sender's packets leave in order.
#[test]
fn a_tree_is_changed_while_packets_flow() {
    let each = if cfg!(miri) { 8 } else { 5_000 };
    let bench = scripted(QdiscSpec::default(), 1);
    let env = QdiscEnv::new(&bench.pool);
    let (tree, roots) = DeviceTree::new(tree(), 1, &env).unwrap();
    bench
        .device
        .set_qdiscs(roots, &Clock::virtual_at(Time::ZERO))
        .unwrap();
    let tree = Mutex::new(tree);
    let clock = Clock::virtual_at(Time::ZERO);
    let change = |step: usize| {
        let mut tree = tree.lock().unwrap();
        let mut tree = tree.on((&*bench.device, &clock));
        // What cannot be done, because an earlier step did it, changes nothing.
        let _ = match step % 9 {
            0 => tree
                .replace(handle("1:2"), handle("2:"), wide_tbf(20_000))
                .map(|_| ()),
            1 => tree
                .add(
                    handle("2:1"),
                    handle("3:"),
                    QdiscSpec::Prio(PrioSpec::default()),
                )
                .map(|_| ()),
            2 => tree.change(handle("2:"), &wide_tbf(30_000)),
            3 => tree
                .replace(
                    handle("3:2"),
                    handle("4:"),
                    QdiscSpec::PfifoFast { limit: 100 },
                )
                .map(|_| ()),
            4 => {
                let fewer = PrioSpec {
                    bands: 2,
                    priomap: [1; 16],
                };
                tree.change(handle("3:"), &QdiscSpec::Prio(fewer))
            }
            5 => tree
                .replace(
                    handle("1:1"),
                    handle("5:"),
                    QdiscSpec::Bfifo { limit: 9_000 },
                )
                .map(|_| ()),
            6 => tree.delete(handle("3:")),
            7 => tree.delete(handle("5:")),
            _ => tree
                .replace(
                    handle("1:3"),
                    handle("6:"),
                    QdiscSpec::PfifoHeadDrop { limit: 50 },
                )
                .map(|_| ()),
        };
    };
    let packets = |sender: u32, n: u32| {
        let mut packet = bench.packet(0, sender << 24 | n);
        packet.set_priority([0, 2, 6, 4][sender as usize]);
        packet.into()
    };
    let serve = |turn: usize| {
        bench.set_capacity(turn % 50);
        bench.wake(Time::ZERO);
    };
    let mut step = 0;
    let meanwhile = || {
        change(step);
        step += 1;
    };
    let offered = bench.storm(4, each, packets, serve, meanwhile);
    bench.finish(offered);
    bench.assert_order();
}

/// The control path waits for the owner, and time passes meanwhile.
#[test]
fn a_change_has_the_time_when_it_has_the_queue() {
    let bench = scripted(QdiscSpec::default(), 1);
    let clock = Clock::virtual_at(Time::ZERO);
    let waits = AtomicBool::new(false);
    let with = |f: &mut dyn FnMut(&mut Cx)| {
        let mut queues = (&*bench.device, &clock);
        queues.with(0, &mut |_, cx| f(cx));
    };
    std::thread::scope(|scope| {
        let mut other = None;
        with(&mut |_| {
            other = Some(scope.spawn(|| {
                let mut then = Time::ZERO;
                waits.store(true, Ordering::Relaxed);
                with(&mut |cx| then = cx.now);
                then
            }));
            while !waits.load(Ordering::Relaxed) {
                std::thread::yield_now();
            }
            // It is likely to wait by now; if it does not, it comes later.
            std::thread::sleep(Duration::from_millis(10));
            clock.advance(Duration::from_nanos(7));
        });
        assert_eq!(other.unwrap().join().unwrap(), Time(7));
    });
}

/// A ring whose driver asks the control path for something, in the middle of a call.
struct Asking(Own, Answers);
/// The ring's device, when there is one.
type Own = Arc<Mutex<Option<Arc<Device<Asking, AnyQdisc>>>>>;
/// Answers of the control path.
type Answers = Arc<Mutex<Vec<Result<(), ControlError>>>>;

impl TxRing for Asking {
    fn xmit(&mut self, packets: &mut PacketList, sent: &mut Sent) -> Xmit {
        packets.take().iter().for_each(|packet| sent.count(packet));
        let Some(device) = self.0.lock().unwrap().take() else {
            return Xmit::Complete;
        };
        let clock = Clock::virtual_at(Time::ZERO);
        let qdiscs = || QdiscSpec::default().instances(1, device.pool()).unwrap();
        let qdisc = qdiscs().instances.remove(0);
        *self.1.lock().unwrap() = vec![
            device.deactivate(),
            device.activate(),
            device.set_features(Features::default()),
            device.replace_rings(Vec::new()).map(drop),
            device.set_qdiscs(qdiscs(), &clock),
            device.set_qdisc_at(0, qdisc, &clock),
            device.with_qdisc(0, &clock, |_, _| panic!("not called")),
        ];
        assert_eq!(device.watchdog(Time::MAX), 0);
        Xmit::Complete
    }
}

/// A driver that calls the control path of its device, of which it is the owner then, waited for
/// itself, for ever.
#[test]
fn a_driver_that_changes_its_device_is_told_not_to() {
    let answers = Answers::default();
    let device = Arc::new(Mutex::new(None));
    let ring = Asking(device.clone(), answers.clone());
    let bench = with_rings(QdiscSpec::default(), vec![ring]);
    *device.lock().unwrap() = Some(bench.device.clone());
    bench.send([0]);
    assert_eq!(
        *answers.lock().unwrap(),
        [Err(ControlError::CalledByOwner); 7]
    );
    bench.check(1);
    // The same thread may, when the call has ended; and so may it after a closure has had a queue.
    let clock = Clock::virtual_at(Time::ZERO);
    let inner = || bench.device.set_features(Features::default());
    let nested = bench.device.with_qdisc(0, &clock, |_, _| inner());
    assert_eq!(nested, Ok(Err(ControlError::CalledByOwner)));
    assert_eq!(inner(), Ok(()));
    let none = bench.device.with_qdisc(1, &clock, |_, _| ());
    assert_eq!(none, Err(ControlError::NoSuchQueue(1)));
}

/// A ring that asks the control path for something when it is dropped.
struct Last(
    Arc<OnceLock<std::sync::Weak<Device<Last, AnyQdisc>>>>,
    Answers,
);

impl TxRing for Last {
    fn xmit(&mut self, packets: &mut PacketList, sent: &mut Sent) -> Xmit {
        packets.take().iter().for_each(|packet| sent.count(packet));
        Xmit::Complete
    }
}

impl Drop for Last {
    fn drop(&mut self) {
        if let Some(device) = self.0.get().and_then(std::sync::Weak::upgrade) {
            let answer = device.set_features(Features::default());
            self.1.lock().unwrap().push(answer);
        }
    }
}

/// Rings are dropped when their queue has been given up: senders do not wait for the end of a
/// driver, and this may call the device.
#[test]
fn rings_that_are_replaced_die_outside_their_queue() {
    let (device, answers) = (Arc::new(OnceLock::new()), Answers::default());
    let ring = || Last(device.clone(), answers.clone());
    let bench = with_rings(QdiscSpec::default(), vec![ring()]);
    device.set(Arc::downgrade(&bench.device)).unwrap();
    bench.device.replace_rings(vec![ring()]).unwrap();
    assert_eq!(*answers.lock().unwrap(), [Ok(())]);
    bench.send([0]);
    bench.check(1);
}
