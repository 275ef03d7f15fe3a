//! Middleware: a driver around a driver, for tests and for programs that embed Softnet. Each wraps
//! any [`RxQueue`](softnet_engine::rx::RxQueue) or [`TxRing`](softnet::tx::TxRing), so that the
//! same path is traced, damaged or recorded; or, with the feature `check`, held against its
//! contract.

mod capture;
#[cfg(feature = "check")]
mod check;
mod faults;
mod tracer;

pub use capture::{Capture, PcapWriter};
#[cfg(feature = "check")]
pub use check::Checked;
pub use faults::{FaultInjector, Faults};
pub use tracer::{Trace, Tracer};

/// The methods of `TxRing` that a middleware passes on to its `driver`.
macro_rules! pass_on_tx {
    ($($method:ident)*) => { $(pass_on_tx!(@ $method);)* };
    (@ available) => {
        fn available(&mut self, now: Time) -> Option<u64> {
            self.driver.available(now)
        }
    };
    (@ restart) => {
        fn restart(&mut self, now: Time) {
            self.driver.restart(now);
        }
    };
    (@ bind) => {
        fn bind(&mut self, waker: softnet::tx::RingWaker) {
            self.driver.bind(waker);
        }
    };
    (@ connect) => {
        fn connect(&mut self, to: std::sync::Arc<dyn softnet::tx::Ingress>) {
            self.driver.connect(to);
        }
    };
    (@ file) => {
        fn file(&self) -> std::io::Result<Option<softnet::tx::RingFile>> {
            self.driver.file()
        }
    };
}

/// The methods of `RxQueue`, but `poll`, that a middleware passes on to its `driver`.
macro_rules! pass_on_rx {
    () => {
        fn arm(&mut self) -> bool {
            self.driver.arm()
        }

        fn peek(&mut self) -> bool {
            self.driver.peek()
        }

        fn pools(&self) -> Vec<&softnet::mem::Pool> {
            self.driver.pools()
        }

        fn link(&self) -> Option<std::sync::Arc<dyn softnet_engine::Link>> {
            self.driver.link()
        }

        fn fd(&self) -> Option<std::os::fd::BorrowedFd<'_>> {
            self.driver.fd()
        }
    };
}

use {pass_on_rx, pass_on_tx};
