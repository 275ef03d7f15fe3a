//! The machine that was measured on: the `machine` object of a report.

use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::{Map, Value, json};

use crate::error::BenchError;
use crate::{cpu, process, speed};

/// The revision that the programs were built of, if `docs/results/make.sh` did.
pub(crate) const REVISION: Option<&str> = option_env!("SOFTNET_REVISION");

/// Keeps this process and those that it starts on the first of the CPUs that it may use.
///
/// # Errors
/// If there are fewer.
pub(crate) fn stay_on(count: usize) -> Result<(), BenchError> {
    let cpus = speed::cpus()?;
    let Some(first) = cpus.get(..count) else {
        let all = cpus.len();
        let problem = format!("--cpus {count}: this process may use {all} CPUs here");
        return Err(BenchError::Usage(problem));
    };
    let mut set = rustix::thread::CpuSet::new();
    first.iter().for_each(|&cpu| set.set(cpu));
    rustix::thread::sched_setaffinity(None, &set).map_err(|e| BenchError::io("choosing CPUs", e))
}

/// A machine is quiet if it is at most this busy, in percent, for this time.
const QUIET_PERCENT: f64 = 5.0;
const QUIET: Duration = Duration::from_millis(500);

/// Waits until the machine is quiet; how busy it is then, in percent.
///
/// # Errors
/// If it is not within the time that there is patience for.
pub(crate) fn settle(patience: Duration) -> Result<f64, BenchError> {
    let start = Instant::now();
    loop {
        let (before, from) = (cpu::busy()?, Instant::now());
        std::thread::sleep(QUIET);
        let cpus = std::thread::available_parallelism().map_or(1, usize::from) as f64;
        let busy = (cpu::busy()? - before) / from.elapsed().as_secs_f64() / cpus * 100.0;
        let busy = crate::numbers::significant(busy, 2);
        if busy <= QUIET_PERCENT {
            return Ok(busy);
        }
        if start.elapsed() > patience {
            let problem = format!("other programs keep this machine {busy} % busy");
            return Err(BenchError::Unavailable(problem));
        }
    }
}

/// CPU, kernel, date, revision, load, and the versions of the programs that are measured by.
pub(crate) fn describe() -> Value {
    let slack = read("/proc/self/timerslack_ns").trim().parse::<u64>();
    let mut machine = json!({
        "cpu": cpu(),
        "hypervisor": hypervisor(),
        "cpus": std::thread::available_parallelism().map_or(1, usize::from),
        "memory_gib": memory_gib(),
        "kernel": read("/proc/sys/kernel/osrelease").trim(),
        "date": date(),
        "huge_pages": chosen(&read("/sys/kernel/mm/transparent_hugepage/enabled")),
        "mitigations": mitigations(),
        "timer_slack_us": slack.map_or(0, |ns| ns / 1000),
        "peers": peers(),
    });
    if let Some(revision) = REVISION {
        machine["revision"] = json!(revision);
    }
    if let Some(daemon) = daemon() {
        machine["daemon"] = json!(daemon);
    }
    if let Some(load) = read("/proc/loadavg")
        .split(' ')
        .next()
        .and_then(|l| l.parse::<f64>().ok())
    {
        machine["load"] = json!(load);
    }
    machine
}

fn read(path: &str) -> String {
    std::fs::read_to_string(path).unwrap_or_default()
}

/// Name, family, model and stepping: the name alone may be that of ten years.
fn cpu() -> String {
    let info = read("/proc/cpuinfo");
    let fields = info.lines().filter_map(|line| line.split_once(':'));
    let fields: Vec<_> = fields
        .map(|(name, value)| (name.trim(), value.trim()))
        .collect();
    let field = |name: &str| {
        fields
            .iter()
            .find(|field| field.0 == name)
            .map(|field| field.1)
    };
    let Some(name) = field("model name") else {
        return std::env::consts::ARCH.to_owned();
    };
    let numbers = ["cpu family", "model", "stepping"];
    let numbers = numbers.map(|name| format!("{name} {}", field(name).unwrap_or("?")));
    format!("{name} ({})", numbers.join(", "))
}

/// The one that this machine runs under, as far as it tells.
fn hypervisor() -> String {
    let vendor = read("/sys/class/dmi/id/sys_vendor");
    let product = read("/sys/class/dmi/id/product_name");
    let named = format!("{} {}", vendor.trim(), product.trim());
    match (named.trim(), read("/proc/cpuinfo").contains(" hypervisor")) {
        (_, false) => "none".to_owned(),
        ("", true) => "unnamed".to_owned(),
        (named, true) => named.to_owned(),
    }
}

/// The word in brackets.
fn chosen(text: &str) -> &str {
    let inside = text
        .split_once('[')
        .and_then(|(_, rest)| rest.split_once(']'));
    inside.map_or("unknown", |(word, _)| word)
}

/// The weaknesses of the CPU that the kernel works around, and those that it leaves.
fn mitigations() -> Value {
    let entries = std::fs::read_dir("/sys/devices/system/cpu/vulnerabilities");
    let entries = entries.into_iter().flatten().flatten();
    let mut found: Vec<_> = entries
        .map(|entry| {
            let name = entry.file_name().to_string_lossy().into_owned();
            (name, read(&entry.path().to_string_lossy()))
        })
        .collect();
    found.sort();
    let that = |start: &str| -> Vec<String> {
        let that = found.iter().filter(|(_, text)| text.starts_with(start));
        that.map(|(name, _)| name.clone()).collect()
    };
    json!({"on": that("Mitigation"), "off": that("Vulnerable")})
}

/// The part of the CPUs' time that the host takes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Steal {
    since: Instant,
    before: f64,
}

impl Steal {
    /// From now on.
    pub(crate) fn begin() -> Steal {
        let (since, before) = (Instant::now(), stolen());
        Steal { since, before }
    }

    /// The share of the time of so many CPUs, 0 to 1.
    pub(crate) fn share(self, cpus: usize) -> f64 {
        (stolen() - self.before) / self.since.elapsed().as_secs_f64() / cpus as f64
    }
}

/// Seconds that all CPUs together waited for the host since the machine started.
fn stolen() -> f64 {
    let stat = read("/proc/stat");
    let ticks = stat
        .split_whitespace()
        .nth(8)
        .and_then(|n| n.parse::<f64>().ok());
    ticks.unwrap_or(0.0) / rustix::param::clock_ticks_per_second() as f64
}

/// Release and revision of the daemon that experiments start.
fn daemon() -> Option<String> {
    let program = std::env::current_exe().ok()?.with_file_name("softnet");
    let printed = process::output(Command::new(program).arg("--version")).ok()?;
    Some(printed.trim().trim_start_matches("softnet ").to_owned())
}

fn memory_gib() -> u64 {
    let info = read("/proc/meminfo");
    let kib = info
        .split_whitespace()
        .nth(1)
        .and_then(|kib| kib.parse::<u64>().ok())
        .unwrap_or(0);
    (kib + (1 << 19)) >> 20
}

fn peers() -> Value {
    let programs = [
        ("iperf3", "iperf3", "--version"),
        ("iproute2", "ip", "-V"),
        ("iperf", "iperf", "--version"),
        ("wrk", "wrk", "--version"),
        ("nginx", "nginx", "-v"),
    ];
    let mut peers = Map::new();
    for (name, program, flag) in programs {
        let printed = process::find(program).and_then(|path| printed(path, flag));
        if let Some(version) = printed.as_deref().and_then(version) {
            peers.insert(name.to_owned(), json!(version));
        }
    }
    Value::Object(peers)
}

/// A program's description of itself, on whichever stream and with whatever exit code: tastes
/// differ.
fn printed(program: PathBuf, flag: &str) -> Option<String> {
    let output = Command::new(program).arg(flag).output().ok()?;
    let text = [output.stdout, output.stderr].concat();
    Some(String::from_utf8_lossy(&text).into_owned())
}

/// The first word that looks like a version.
pub(crate) fn version(printed: &str) -> Option<String> {
    printed
        .lines()
        .next()?
        .split([' ', '-', ',', '/'])
        .find(|word| word.contains('.') && word.chars().all(|c| c.is_ascii_digit() || c == '.'))
        .map(str::to_owned)
}

/// `2026-11-21T03:20:00Z`
fn date() -> Option<String> {
    let printed = process::output(Command::new("date").args(["-u", "+%FT%TZ"]));
    Some(printed.ok()?.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn versions_as_the_programs_print_them() {
        assert_eq!(
            version("iperf 3.12 (cJSON 1.7.15)\nLinux").as_deref(),
            Some("3.12")
        );
        assert_eq!(
            version("ovs-vswitchd (Open vSwitch) 3.1.0\n").as_deref(),
            Some("3.1.0")
        );
        assert_eq!(
            version("ip utility, iproute2-6.1.0, libbpf 1.1.2").as_deref(),
            Some("6.1.0")
        );
        assert_eq!(
            version("nginx version: nginx/1.22.1\n").as_deref(),
            Some("1.22.1")
        );
        assert_eq!(
            version("wrk debian/4.1.0-3+b2 [epoll] Copyright (C) 2012 Will Glozer\n").as_deref(),
            Some("4.1.0")
        );
        assert_eq!(version(""), None);
    }

    #[test]
    fn the_machine_is_described() {
        let machine = describe();
        assert!(machine["cpus"].as_u64().is_some_and(|n| n > 0));
        assert!(machine["memory_gib"].is_u64() && machine["kernel"].is_string());
        assert_eq!(chosen("always [madvise] never"), "madvise");
        // Tests beside this one may keep it busy.
        match settle(Duration::ZERO) {
            Ok(busy) => assert!((0.0..=QUIET_PERCENT).contains(&busy)),
            Err(error) => assert!(matches!(error, BenchError::Unavailable(_))),
        }
    }
}
