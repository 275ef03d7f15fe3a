//! The clients of the control path, and what burns as much CPU time as they.

use std::io::Write as _;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::{CHANGES, CLASSES, DUMPS};
use crate::error::BenchError;

/// Work that clients did, and the time it took.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Used {
    pub(super) dumps: f64,
    pub(super) changes: f64,
    /// CPU time of the `tc` processes.
    pub(super) cpu_s: f64,
    pub(super) seconds: f64,
}

/// A `tc -batch` that is fed commands at a steady pace.
#[derive(Debug)]
struct Fed {
    child: Child,
    feeder: JoinHandle<u32>,
}

/// Two of them: one dumps, one changes.
#[derive(Debug)]
pub(super) struct Clients {
    dumps: Fed,
    changes: Fed,
    stop: Arc<AtomicBool>,
    begin: Instant,
}

impl Fed {
    fn start(
        mut command: Command,
        per_second: u32,
        stop: Arc<AtomicBool>,
        line: impl Fn(u32) -> String + Send + 'static,
    ) -> Result<Fed, BenchError> {
        command.args(["-s", "-batch", "-"]);
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let mut child = command
            .spawn()
            .map_err(|e| BenchError::io("starting `tc`", e))?;
        let stdin = child.stdin.take();
        let mut stdin = stdin.ok_or_else(|| BenchError::Measure("tc has no input".into()))?;
        let feeder = std::thread::spawn(move || {
            let begin = Instant::now();
            let mut fed = 0;
            while !stop.load(Ordering::Relaxed) {
                let due = begin + Duration::from_secs(1) * fed / per_second;
                std::thread::sleep(due.saturating_duration_since(Instant::now()));
                // A tc that falls behind holds this back: what it has not read is not counted.
                if stdin.write_all(line(fed).as_bytes()).is_err() {
                    break;
                }
                fed += 1;
            }
            fed
        });
        Ok(Fed { child, feeder })
    }

    /// Commands that were carried out, and the CPU time they took.
    fn finish(mut self) -> Result<(f64, f64), BenchError> {
        let fed = self.feeder.join().unwrap_or(0);
        let io = |e| BenchError::io("waiting for `tc`", e);
        let before = children_cpu_s();
        // Its input has ended, so it ends.
        let status = self.child.wait().map_err(io)?;
        if !status.success() {
            return Err(BenchError::command(
                "tc -batch -",
                format!("a command failed: {status}"),
            ));
        }
        Ok((f64::from(fed), children_cpu_s() - before))
    }
}

/// CPU time of the processes that this one has waited for.
fn children_cpu_s() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // proc_pid_stat(5): the name may have blanks; after it cutime and cstime are fields 14 and 15.
    let fields = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    let ticks: f64 = fields
        .split_whitespace()
        .skip(13)
        .take(2)
        .filter_map(|ticks| ticks.parse::<f64>().ok())
        .sum();
    ticks / rustix::param::clock_ticks_per_second() as f64
}

impl Clients {
    pub(super) fn start(tc: impl Fn() -> Command, device: &str) -> Result<Clients, BenchError> {
        let stop = Arc::new(AtomicBool::new(false));
        let begin = Instant::now();
        let show = format!("class show dev {device}\n");
        let dumps = Fed::start(tc(), DUMPS, stop.clone(), move |_| show.clone())?;
        let device = device.to_owned();
        let changes = Fed::start(tc(), CHANGES, stop.clone(), move |n| {
            let minor = 2 + n % CLASSES;
            let rate = 1000 + n / CLASSES % 2;
            format!(
                "class change dev {device} parent 1:1 classid 1:{minor:x} htb rate {rate}mbit \
                 ceil 100gbit quantum 60000\n"
            )
        })?;
        Ok(Clients {
            dumps,
            changes,
            stop,
            begin,
        })
    }

    pub(super) fn stop(self) -> Result<Used, BenchError> {
        self.stop.store(true, Ordering::Relaxed);
        let seconds = self.begin.elapsed().as_secs_f64();
        let (dumps, first) = self.dumps.finish()?;
        let (changes, second) = self.changes.finish()?;
        Ok(Used {
            dumps,
            changes,
            cpu_s: first + second,
            seconds,
        })
    }
}

/// A thread that computes for a share of the time sleeps so long, less its share of that: not so
/// often that the interruptions cost more than the computing.
const NAP: Duration = Duration::from_millis(10);

/// Computes for a share of the time; the share that it got.
pub(crate) fn compute(share: f64, done: &AtomicBool) -> f64 {
    let run_time = || {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
        Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
    };
    let (start, before) = (Instant::now(), run_time());
    while !done.load(Ordering::Relaxed) {
        if run_time() - before < start.elapsed().mul_f64(share) {
            std::hint::spin_loop();
        } else {
            std::thread::sleep(NAP.mul_f64((1.0 - share).max(0.0)));
        }
    }
    (run_time() - before).div_duration_f64(start.elapsed())
}
