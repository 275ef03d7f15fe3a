//! A measurement, not a test: scrapes of a daemon that has a port with 10,000 classes.
//!
//! `cargo test --release -p softnet-cli --test cli scrape -- --ignored --nocapture`, on a machine
//! that does nothing else.

use std::fmt::Write as _;
use std::fs;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Instant;

use crate::common::{Running, Scratch, softnet, wait_for};

const CLASSES: usize = 10_000;
const ROUNDS: usize = 51;

/// CPU time that the daemon's thread for metrics has used, in ms; sched-stats(5).
fn used(daemon: &Running) -> f64 {
    let tasks = fs::read_dir(daemon.proc().join("task")).expect("its threads");
    let read = |file| fs::read_to_string(file).unwrap_or_default();
    let mut times = tasks.flatten().map(|task| task.path()).filter_map(|task| {
        let time = read(task.join("schedstat"));
        let is_it = read(task.join("comm")).trim_end() == "metrics";
        time.split(' ')
            .next()?
            .parse::<f64>()
            .ok()
            .filter(|_| is_it)
    });
    times.next().unwrap_or(f64::NAN) / 1e6
}

#[test]
#[ignore = "a measurement"]
fn scrapes_of_ten_thousand_classes() {
    let scratch = Scratch::new("scrape");
    let path = scratch.path("metrics");
    let mut file = format!(
        "[engine]\nworkers = 1\nmetrics = {path:?}\n[[port]]\nname = \"a\"\ndriver = \"null\"\n\
         [[port.qdisc]]\nkind = \"htb\"\nhandle = \"1:\"\n"
    );
    for minor in 1..=CLASSES {
        let class = "[[port.class]]\nclassid = \"1:";
        writeln!(file, "{class}{minor:x}\"\nrate = \"1mbit\"").expect("a text");
    }
    let config = scratch.file("config.toml", &file);
    let mut command = softnet();
    command.arg("run").arg(config).arg("--socket");
    let mut daemon = Running::start(command.arg(scratch.path("s")));
    let scrape = || {
        let mut stream = UnixStream::connect(&path)?;
        stream.write_all(b"GET /metrics HTTP/1.1\r\n\r\n")?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        std::io::Result::Ok(answer)
    };
    wait_for("metrics", || {
        daemon.assert_running();
        scrape().is_ok()
    });
    let mut times = Vec::new();
    let before = used(&daemon);
    for _ in 0..ROUNDS {
        let start = Instant::now();
        let answer = scrape().expect("metrics");
        times.push(start.elapsed().as_secs_f64() * 1000.0);
        let classes = answer.matches("softnetd_class_bytes_total{").count();
        // The root is one, too.
        assert_eq!(classes, CLASSES + 1);
    }
    let each = (used(&daemon) - before) / ROUNDS as f64;
    times.sort_by(f64::total_cmp);
    let (median, longest) = (times[ROUNDS / 2], times[ROUNDS - 1]);
    println!(
        "{CLASSES} classes, {ROUNDS} scrapes: median {median:.1} ms, longest {longest:.1} ms, CPU \
         time {each:.1} ms each"
    );
    daemon.stop();
}
