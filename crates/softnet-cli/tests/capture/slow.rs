//! Captures whose reader is slow, or gone.

use std::process::{Child, Stdio};

use rustix::process::{Pid, kill_process};

use super::*;

/// A capture whose output is read only when told.
struct Slow(Child);

impl Slow {
    fn start(daemon: &Shaped, words: &str) -> Slow {
        let mut command = daemon.command(words);
        command.stdin(Stdio::null());
        command.stdout(Stdio::piped()).stderr(Stdio::null());
        let child = command.spawn().expect("softnet");
        wait_for("the capture", || daemon.captures() == 1);
        Slow(child)
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.0), signal).expect("a running program");
    }
}

impl Drop for Slow {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_slow_reader_misses_packets_and_nobody_waits_for_it() {
    if !may_make_networks() {
        return;
    }
    let daemon = Shaped::start("slow", "10gbit");
    let mut slow = Slow::start(&daemon, "capture eth-a -w - udp port 5001");
    // Three times as many as can wait for it. The host may drop some before they are ours.
    let received = || daemon.packets("eth-a", "rx_packets");
    let end = received() + 12_288;
    wait_for("the packets", || {
        daemon.send(5001, 2000);
        received() >= end
    });
    let mut out = slow.0.stdout.take().expect("a pipe");
    let mut file = vec![0; 4096 * FRAME];
    out.read_exact(&mut file).expect("the capture");
    slow.signal(Signal::INT);
    out.read_to_end(&mut file).expect("the rest");
    let capture = Capture::read(&*file);
    assert!(capture.missed > 1000, "{}", capture.missed);
    let (matched, captured) = (capture.matched, capture.packets.len() as u64);
    assert!(captured > 3000 && captured + capture.missed <= matched);
    wait_for("its end", || daemon.captures() == 0);
    // A client that is killed takes its capture along.
    let killed = Slow::start(&daemon, "capture eth-a -w -");
    killed.signal(Signal::KILL);
    wait_for("its end", || daemon.captures() == 0);
    // So does a port that goes.
    let mut gone = Slow::start(&daemon, "capture eth-b");
    let deleted = daemon.command("port del eth-b").output().expect("softnet");
    assert!(deleted.status.success(), "{}", text(&deleted.stderr));
    wait_for("its end", || gone.0.try_wait().expect("waiting").is_some());
    // What sent it ends a moment after the connection.
    wait_for("its end", || daemon.captures() == 0);
    daemon.end();
}
