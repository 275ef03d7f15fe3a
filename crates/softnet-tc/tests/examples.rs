//! The examples, run: each checks what it has sent.

#![cfg(not(any(loom, miri)))]

#[path = "../examples/fair_peers.rs"]
mod fair_peers;
#[path = "../examples/many_senders.rs"]
mod many_senders;
#[path = "../examples/smoltcp_device.rs"]
mod smoltcp_device;
#[path = "../examples/udp_batches.rs"]
mod udp_batches;

macro_rules! runs {
    ($($example:ident),+) => {$(
        #[test]
        fn $example() {
            $example::main().unwrap();
        }
    )+};
}

mod run {
    use super::*;
    runs!(fair_peers, many_senders, smoltcp_device, udp_batches);
}
