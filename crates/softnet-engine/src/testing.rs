//! Receive queues that are fed by the test, and a sleeper without system calls.

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use softnet::mem::PacketList;
use softnet::time::Time;
use softnet::tx::Wake;

use crate::rx::{CountDrop, Polled, RxQueue, Sleep};

/// A receive queue that delivers what the test puts in.
#[derive(Clone, Debug, Default)]
pub(crate) struct FedQueue(pub(crate) Arc<Mutex<Feed>>);

#[derive(Debug, Default)]
pub(crate) struct Feed {
    pub(crate) packets: PacketList,
    pub(crate) gone: bool,
}

impl RxQueue for FedQueue {
    fn poll(
        &mut self,
        budget: usize,
        _: Time,
        out: &mut PacketList,
        _: &mut dyn CountDrop,
    ) -> Polled {
        let mut feed = self.0.lock().unwrap();
        feed.packets.split_wire_packets(budget, out);
        Polled {
            more: !feed.packets.is_empty(),
            gone: feed.gone,
        }
    }
    fn fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

/// Sleeps on a condition variable, at most a millisecond (fed queues have no file to wait for).
#[derive(Default)]
pub(crate) struct CondSleeper(Arc<CondWaker>);

#[derive(Default)]
struct CondWaker {
    woken: Mutex<bool>,
    condition: Condvar,
}

impl Wake for CondWaker {
    fn wake(&self) {
        *self.woken.lock().unwrap() = true;
        self.condition.notify_one();
    }
}

impl Sleep for CondSleeper {
    fn watch(&mut self, _: BorrowedFd<'_>, _: usize) -> io::Result<()> {
        Ok(())
    }
    fn unwatch(&mut self, _: BorrowedFd<'_>) {}
    fn sleep(&mut self, _: Time, _: Option<Time>, _: &mut Vec<usize>) {
        let woken = self.0.woken.lock().unwrap();
        let wait = Duration::from_millis(1);
        let (mut woken, _) = self
            .0
            .condition
            .wait_timeout_while(woken, wait, |w| !*w)
            .unwrap();
        *woken = false;
    }
    fn waker(&self) -> Arc<dyn Wake> {
        self.0.clone()
    }
}
