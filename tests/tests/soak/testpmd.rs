//! DPDK's driver as two machines: killed, stopped, and started again.

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use softnet_tests::random::Random;

use crate::machine::Faults;

/// True if the program is installed.
pub(crate) fn is_there() -> bool {
    let version = Command::new("dpdk-testpmd").arg("--version").output();
    version.is_ok()
}

pub(crate) struct Testpmd {
    /// The sockets of its ports.
    pub(crate) sockets: Vec<PathBuf>,
    pub(crate) queues: usize,
    pub(crate) random: Random,
    pub(crate) faults: Faults,
}

impl Testpmd {
    fn note(&mut self, what: &'static str) {
        *self.faults.entry(what).or_default() += 1;
    }

    /// Runs it until `stop`, again and again.
    pub(crate) fn run(&mut self, stop: &AtomicBool) {
        while !stop.load(Ordering::Relaxed) {
            let mut child = self.start();
            let pid = Pid::from_child(&child);
            for _ in 0..1 + self.random.below(4) {
                self.wait(stop);
                if self.random.one_in(2) {
                    self.note("testpmd stopped");
                    kill_process(pid, Signal::STOP).expect("it runs");
                    sleep(Duration::from_millis(self.random.below(1000)));
                    kill_process(pid, Signal::CONT).expect("it is there");
                }
            }
            self.note("testpmd killed");
            child.kill().expect("it is there");
            child.wait().expect("it ends");
            // As a person would start it again: it takes most of a CPU.
            self.wait(stop);
        }
    }

    fn wait(&mut self, stop: &AtomicBool) {
        for _ in 0..20 + self.random.below(20) {
            if !stop.load(Ordering::Relaxed) {
                sleep(Duration::from_millis(100));
            }
        }
    }

    fn start(&mut self) -> Child {
        let mut command = Command::new("dpdk-testpmd");
        command.args(["-l", "0-1", "--no-huge", "-m", "256", "--no-pci"]);
        command.arg("--no-shconf");
        command.arg(format!("--file-prefix=softnet-{}", std::process::id()));
        let packed = self.random.below(2);
        for (number, path) in self.sockets.iter().enumerate() {
            let (path, queues) = (path.display(), self.queues);
            command.arg(format!(
                "--vdev=net_virtio_user{number},path={path},queues={queues},packed_vq={packed}"
            ));
        }
        // What it receives goes back to the sender.
        command.args(["--", "--forward-mode=macswap", "--auto-start"]);
        command.args(["--total-num-mbufs=8192", "--no-lsc-interrupt"]);
        command.args([
            format!("--rxq={}", self.queues),
            format!("--txq={}", self.queues),
        ]);
        let child = command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        child.expect("the program is there")
    }
}
