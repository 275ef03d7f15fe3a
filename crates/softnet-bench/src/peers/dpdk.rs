//! DPDK's mbuf pool, measured by a small C program that is compiled when libdpdk is there and then answers commands.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde_json::Value;

use crate::buffers::pinned::{Cpus, HandOver, Path};
use crate::buffers::{Counts, Reading};
use crate::error::BenchError;
use crate::process;

const SOURCE: &str = include_str!("../../peers/dpdk_mbuf.c");
/// Packets in a core's cache; DPDK keeps up to half as many more.
const CACHE: usize = 256;
/// Ways to run without hugepages; `--in-memory` is refused together with `--no-huge`.
const EAL: [&str; 6] = [
    "--no-huge",
    "-m",
    "512",
    "--no-pci",
    "--no-shconf",
    "--no-telemetry",
];
/// How long the program may take to start, or longer than a command asks it to measure.
const PATIENCE: Duration = Duration::from_secs(20);
/// The program's lcores.
pub(crate) const MAX_THREADS: usize = 64;

/// What stands behind the cores' caches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ops {
    /// A ring for many producers and consumers: the default.
    Ring,
    /// A stack under a spinlock: gives the most recently freed packets first.
    Stack,
}

impl Ops {
    fn name(self) -> &'static str {
        match self {
            Ops::Ring => "ring_mp_mc",
            Ops::Stack => "stack",
        }
    }
}

/// The running program with one pool.
#[derive(Debug)]
pub(crate) struct Dpdk {
    child: Child,
    /// `None` once closed, which ends the program.
    commands: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
}

impl Dpdk {
    /// Compiles the program if that was not done before, and starts it with a pool of `buffers` packets.
    ///
    /// # Errors
    /// [`BenchError::Unavailable`] if libdpdk or a C compiler is missing, or DPDK does not start here.
    pub(crate) fn start(cpus: Cpus, buffers: usize, ops: Ops) -> Result<Dpdk, BenchError> {
        let program = compile("dpdk_mbuf", SOURCE)?;
        // A pool's memory is used best by one less than a power of two.
        let buffers = buffers.next_power_of_two() - 1;
        let numbers = [cpus.a, cpus.b, buffers, CACHE].map(|n| n.to_string());
        let mut child = Command::new(&program)
            .args(numbers)
            .args([ops.name(), "--"])
            .args(EAL)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|e| BenchError::io(format!("starting {}", program.display()), e))?;
        let (commands, answers) = (child.stdin.take(), child.stdout.take());
        let Some((commands, answers)) = commands.zip(answers) else {
            return Err(BenchError::command("dpdk_mbuf", "has no pipes"));
        };
        let mut dpdk = Dpdk {
            child,
            commands: Some(commands),
            answers: BufReader::new(answers),
        };
        match dpdk.answer(PATIENCE) {
            Ok(_) => Ok(dpdk),
            Err(_) => Err(BenchError::Unavailable(format!(
                "DPDK does not start here: {}",
                dpdk.last_words()
            ))),
        }
    }

    /// Allocates and frees on one core.
    pub(crate) fn same_thread(
        &mut self,
        bulk: usize,
        time: Duration,
    ) -> Result<Reading, BenchError> {
        self.measure(&format!("same {bulk}"), time)
    }

    /// The forwarding loop.
    pub(crate) fn forward(&mut self, batch: usize, time: Duration) -> Result<Reading, BenchError> {
        self.measure(&format!("forward {batch}"), time)
    }

    /// Hands packets over.
    pub(crate) fn hand_over(
        &mut self,
        plan: HandOver,
        time: Duration,
    ) -> Result<Reading, BenchError> {
        let (pairs, bulk) = (plan.threads / 2, plan.bulk);
        let command = match plan.path {
            Path::OneWay | Path::Sleeping => format!("cross {pairs} {bulk}"),
            Path::BothWays => format!("both {pairs} {bulk}"),
            Path::OneCpu => format!("onecpu {pairs} {bulk}"),
            Path::OneThread => format!("local {bulk}"),
        };
        self.measure(&command, time)
    }

    /// `rte_ring` alone, without packets.
    pub(crate) fn ring(&mut self, bulk: usize, time: Duration) -> Result<Reading, BenchError> {
        self.measure(&format!("ring {bulk}"), time)
    }

    fn measure(&mut self, command: &str, time: Duration) -> Result<Reading, BenchError> {
        let ms = time.as_millis().max(1);
        let sent = match &mut self.commands {
            Some(commands) => writeln!(commands, "{command} {ms}").and_then(|()| commands.flush()),
            None => Ok(()),
        };
        sent.map_err(|e| BenchError::io("writing to dpdk_mbuf", e))?;
        let answer = self.answer(2 * time + PATIENCE)?;
        match (answer["packets"].as_u64(), answer["ns"].as_u64()) {
            (Some(packets), Some(ns)) => Ok(Reading {
                packets,
                time: Duration::from_nanos(ns),
                counts: Counts::default(),
            }),
            _ => Err(BenchError::command(
                "dpdk_mbuf",
                format!("answered `{command}` with {answer}"),
            )),
        }
    }

    fn answer(&mut self, patience: Duration) -> Result<Value, BenchError> {
        let deadline = Instant::now() + patience;
        while self.answers.buffer().is_empty() {
            let left = deadline.saturating_duration_since(Instant::now());
            let left = Timespec {
                tv_sec: left.as_secs() as i64,
                tv_nsec: left.subsec_nanos().into(),
            };
            let mut ready = [PollFd::new(self.answers.get_ref(), PollFlags::IN)];
            match poll(&mut ready, Some(&left)) {
                Ok(0) => return Err(BenchError::command("dpdk_mbuf", "does not answer")),
                Ok(_) => break,
                Err(rustix::io::Errno::INTR) => {}
                Err(e) => return Err(BenchError::io("waiting for dpdk_mbuf", e)),
            }
        }
        let mut line = String::new();
        self.answers
            .read_line(&mut line)
            .map_err(|e| BenchError::io("reading from dpdk_mbuf", e))?;
        serde_json::from_str(&line).map_err(|e| {
            BenchError::command("dpdk_mbuf", format!("printed `{}`: {e}", line.trim()))
        })
    }

    /// Ends the program and returns what it said last.
    fn last_words(&mut self) -> String {
        self.end();
        let mut said = String::new();
        if let Some(stderr) = &mut self.child.stderr {
            // What can be read is enough.
            let _ = stderr.read_to_string(&mut said);
        }
        said.lines()
            .next_back()
            .unwrap_or("no reason given")
            .to_owned()
    }

    fn end(&mut self) {
        // The program ends when its input does; it is killed if it does not listen any more.
        drop(self.commands.take());
        let deadline = Instant::now() + Duration::from_secs(2);
        while matches!(self.child.try_wait(), Ok(None)) {
            if Instant::now() > deadline {
                let _ = self.child.kill();
                let _ = self.child.wait();
                break;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Dpdk {
    fn drop(&mut self) {
        self.end();
    }
}

/// The version of the library, as pkg-config knows it.
pub(crate) fn version() -> Option<String> {
    let printed = process::output(Command::new("pkg-config").args(["--modversion", "libdpdk"]));
    printed.ok().map(|text| text.trim().to_owned())
}

/// Compiles a C program that uses libdpdk, unless that was done before; the result lies beside our own program.
///
/// # Errors
/// [`BenchError::Unavailable`] if libdpdk or a C compiler is missing.
pub(crate) fn compile(name: &str, text: &str) -> Result<PathBuf, BenchError> {
    let missing =
        |what: &str| BenchError::Unavailable(format!("{what} is not installed (apt: libdpdk-dev)"));
    let version = version().ok_or_else(|| missing("libdpdk"))?;
    let flags = |kind| process::output(Command::new("pkg-config").args([kind, "libdpdk"]));
    let (cflags, libs) = (flags("--cflags")?, flags("--libs")?);
    let compiler = process::find("cc").ok_or_else(|| missing("a C compiler"))?;
    let own = std::env::current_exe().map_err(|e| BenchError::io("finding our own program", e))?;
    let directory = own.parent().map(|d| d.join("peers")).unwrap_or_default();
    std::fs::create_dir_all(&directory)
        .map_err(|e| BenchError::io(format!("making {}", directory.display()), e))?;
    let mut hash = DefaultHasher::new();
    (text, &version, &cflags).hash(&mut hash);
    let program = directory.join(format!("{name}-{:016x}", hash.finish()));
    if program.is_file() {
        return Ok(program);
    }
    // Under a name of our own first: another run may be doing the same.
    let unfinished = program.with_extension(std::process::id().to_string());
    let source = unfinished.with_extension("c");
    std::fs::write(&source, text)
        .map_err(|e| BenchError::io(format!("writing {}", source.display()), e))?;
    let compiled = process::output(
        Command::new(compiler)
            .args(cflags.split_whitespace())
            // After DPDK's own flags, which ask for an old processor.
            .args(["-O3", "-march=native", "-o"])
            .args([&unfinished, &source])
            .args(libs.split_whitespace()),
    );
    // Not ours any more, whether it could be removed or not.
    let _ = std::fs::remove_file(&source);
    compiled?;
    std::fs::rename(&unfinished, &program)
        .map_err(|e| BenchError::io(format!("naming {}", program.display()), e))?;
    Ok(program)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_program_measures_what_it_is_asked_to() {
        let cpus = Cpus::choose().expect("a process has a CPU");
        let mut dpdk = match Dpdk::start(cpus, 8192, Ops::Ring) {
            Ok(dpdk) => dpdk,
            Err(BenchError::Unavailable(why)) => {
                let required = std::env::var_os("SOFTNET_TEST_REQUIRE").is_some();
                assert!(!required, "skipped: {why}");
                println!("skipped: {why}");
                return;
            }
            Err(other) => panic!("{other}"),
        };
        let time = Duration::from_millis(10);
        let reading = dpdk.same_thread(8, time).expect("it answers");
        assert!(reading.packets > 0 && reading.time >= time);
        for path in [Path::OneWay, Path::BothWays, Path::OneCpu, Path::OneThread] {
            let plan = HandOver {
                path,
                threads: 2,
                bulk: 8,
            };
            let reading = dpdk.hand_over(plan, time).expect("it answers");
            assert!(reading.packets > 0, "{plan:?}");
        }
        assert!(dpdk.forward(32, time).is_ok_and(|r| r.packets > 0));
        assert!(
            dpdk.forward(48, time).is_err(),
            "a batch that does not fit the ring"
        );
    }
}
