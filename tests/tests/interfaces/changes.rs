//! Changes of an interface under load: its port follows, and every packet is accounted for.

use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use softnet::stats::DropReason;
use softnet_engine::PortEvent;
use softnet_io::Netns;
use softnet_tests::traffic::Flow;
use softnet_tests::{Lan, Via, wait_for};

use crate::{DRIVERS, lan, port};

/// Runs `f` while a thread sends on these flows, as fast as it can.
fn under_load(flows: &[Flow], f: impl FnOnce()) {
    /// Ends the load, in a panic too.
    struct Ends<'a>(&'a AtomicBool);
    impl Drop for Ends<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                for flow in flows {
                    // The host may say by now that its peer is unreachable.
                    let _ = flow.a.send(&[1; 1000]);
                }
            }
        });
        let _ends = Ends(&done);
        f();
    });
}

/// Waits until the link of the second host is up, or is not.
fn wait_up(lan: &Lan, up: bool) {
    wait_for("the link to be told", || port(lan, 1).link.up == up);
}

/// An interface that is down, has no carrier, or another MTU.
#[test]
fn the_interface_changes() {
    for via in DRIVERS {
        let hosts = [(via, 1), (via, 1), (Via::Tap, 1)];
        let Some(lan) = lan(&hosts, |_| ()) else {
            return;
        };
        let (a, b) = (&lan.hosts[0], &lan.hosts[1]);
        let wire = b.wire.as_ref().expect("a veth");
        let flow = Flow::open(a, b, false);
        flow.echo(1000);
        let host_up = |up| {
            b.links(|links| {
                let index = links.index("eth0").expect("the interface");
                links.set_up(index, up).expect("changing it");
            });
        };
        under_load(&[flow], || {
            for _ in 0..3 {
                wire.ip("link set port2 down");
                wait_up(&lan, false);
                wire.ip("link set port2 up");
                wait_up(&lan, true);
                // The other end of a veth is its carrier.
                host_up(false);
                wait_up(&lan, false);
                let before = lan.dropped(1, DropReason::DeviceDown);
                wait_for("packets to be dropped", || {
                    lan.dropped(1, DropReason::DeviceDown) > before
                });
                host_up(true);
                wait_up(&lan, true);
                wire.ip("link set port2 mtu 1400");
                wait_for("the MTU", || port(&lan, 1).link.mtu == Some(1400));
                wire.ip("link set port2 mtu 1500");
                wait_for("the MTU", || port(&lan, 1).link.mtu == Some(1500));
            }
        });
        Flow::open(a, b, false).echo_after_load(100);
        lan.stop_within(Duration::from_secs(1));
    }
}

/// Gives an interface so many channels each way (`ethtool -L`); false: the kernel refuses.
fn set_channels(netns: &Netns, interface: &str, [rx, tx]: [usize; 2]) -> bool {
    let (rx, tx) = (rx.to_string(), tx.to_string());
    let set = ["-L", interface, "rx", &rx, "tx", &tx];
    let run = || Command::new("ethtool").args(set).output();
    let output = netns.run(run).expect("our namespace").expect("ethtool");
    output.status.success()
}

/// An interface, or the host's end of it, that has fewer channels, and all of them again. The
/// kernel keeps queues to which XDP sockets are bound.
#[test]
fn channels_change() {
    const CHANNELS: usize = 4;
    for via in DRIVERS {
        let Some(lan) = lan(&[(via, CHANNELS); 2], |_| ()) else {
            return;
        };
        let (a, b) = (&lan.hosts[0], &lan.hosts[1]);
        // So many that all queues have some of them.
        let flows: Vec<_> = (0..16).map(|_| Flow::open(a, b, false)).collect();
        flows.iter().for_each(|flow| flow.echo(1000));
        let wires = [a, b].map(|host| host.wire.as_ref().expect("a veth"));
        under_load(&flows, || {
            for (netns, interface) in [
                (&a.netns, "eth0"),
                (&wires[0].netns, "port1"),
                (&wires[1].netns, "port2"),
                (&b.netns, "eth0"),
            ] {
                for [rx, tx] in [[4, 1], [1, 1], [2, 3], [4, 4]] {
                    let done = set_channels(netns, interface, [rx, tx]);
                    let kept = via == Via::AfXdp && interface != "eth0" && rx.min(tx) < CHANNELS;
                    assert!(done || kept, "{interface}: {rx} and {tx}");
                    wait_up(&lan, true);
                    let before = [lan.port(0).rx_packets, lan.port(1).tx_packets];
                    wait_for("traffic to go on", || {
                        let now = [lan.port(0).rx_packets, lan.port(1).tx_packets];
                        now[0] > before[0] + 1000 && now[1] > before[1] + 1000
                    });
                }
            }
        });
        for _ in &flows {
            Flow::open(a, b, false).echo_after_load(100);
        }
        lan.stop_within(Duration::from_secs(1));
    }
}

/// An interface that is deleted, renamed, or moved to another namespace: gone, once it is no
/// longer there, and usable again when there is one of that name.
#[test]
fn the_interface_goes() {
    for via in DRIVERS {
        let Some(lan) = lan(&[(via, 1), (via, 2)], |_| ()) else {
            return;
        };
        let (a, b) = (&lan.hosts[0], &lan.hosts[1]);
        let wire = b.wire.as_ref().expect("a veth");
        // One that is renamed is the same.
        Flow::open(a, b, false).echo(100);
        wire.ip("link set port2 down");
        wait_up(&lan, false);
        wire.ip("link set port2 name other");
        wire.ip("link set other up");
        wait_up(&lan, true);
        Flow::open(a, b, false).echo_after_load(100);
        for take_down in [false, true, false] {
            let flow = Flow::open(a, b, false);
            flow.echo_after_load(100);
            under_load(&[flow], || {
                let name = match wire.exists("other") {
                    true => "other",
                    false => "port2",
                };
                if take_down {
                    // No socket is told of what happens to it later.
                    wire.ip(&format!("link set {name} down"));
                    wait_up(&lan, false);
                }
                lan.engine.take_events();
                wire.ip(&format!("link del {name}"));
                wait_for("the port to be gone", || {
                    lan.engine.take_events().contains(&PortEvent::Gone(b.port))
                });
            });
            lan.engine.close_device(b.port).expect("closing");
            b.connect_again();
            lan.reopen(1);
            b.await_addresses();
            Flow::open(a, b, false).echo_after_load(100);
        }
        lan.stop_within(Duration::from_secs(1));
    }
}
