//! flent's rrul (PyPI) with netperf (Debian sid): four transfers each way, marked CS0, CS1, CS5 and
//! EF, and pings beside them, between two ports of 50 Mbit/s with `cake`, `fq_codel` or `pfifo`.
//!
//! With `SOFTNET_WRITE_RESULTS` in the environment it writes docs/results/rrul.md and its picture.

#[path = "../../crates/softnet-cli/src/demo/svg.rs"]
mod svg;

use std::fmt::Write as _;
use std::fs;
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};

use super::common::{
    NamedNetns, Running, has_program, may_make_networks, ping, skip, text, two_ports, wait_for,
};
use super::{Daemon, succeeded, venv};

const PACKAGE: &str = "flent==2.3.0";
const CHROOT: &str = "/usr/sbin/chroot";
/// Seconds of the transfers. Pings begin five seconds before, and end five after.
const LENGTH: u64 = 20;
/// Transfers each way.
const TRANSFERS: usize = 4;
const HTB: &str = "qdisc add dev DEV root handle 1: htb default 1";
const CLASS: &str = "class add dev DEV parent 1: classid 1:1 htb rate 50mbit \
    burst 15k cburst 15k quantum 1514";
/// Names, and commands of `tc` for the port `DEV`.
const POLICIES: [(&str, &[&str]); 3] = [
    (
        "pfifo",
        &[HTB, CLASS, "qdisc add dev DEV parent 1:1 pfifo limit 1000"],
    ),
    (
        "fq_codel",
        &[HTB, CLASS, "qdisc add dev DEV parent 1:1 fq_codel"],
    ),
    ("cake", &["qdisc add dev DEV root cake bandwidth 50mbit"]),
];

/// Figures of one policy.
struct Outcome {
    policy: &'static str,
    /// Answered pings while there were transfers.
    pings: Vec<svg::Point>,
    /// Bits a second that arrived by all transfers of a way.
    up: f64,
    down: f64,
}

impl Outcome {
    /// Reads a data file of flent.
    fn read(policy: &'static str, file: &Value) -> Result<Outcome, String> {
        let transfers = series(file, "TCP ").flat_map(|(_, samples)| samples);
        let times = transfers.filter_map(|sample| sample["t"].as_f64());
        let (from, to) = times.fold((f64::INFINITY, 0.0), |(from, to): (f64, f64), time| {
            (from.min(time), to.max(time))
        });
        let pings = series(file, "Ping (ms) ICMP").flat_map(|(_, samples)| samples);
        let pings = pings.filter_map(|sample| {
            let (answered, time) = (sample["t"].as_f64()?, sample["val"].as_f64()? / 1e3);
            let sent = answered - time;
            let beside = time >= 0.0 && sent >= from && answered <= to;
            let seconds = Duration::from_secs_f64;
            beside.then(|| (seconds(sent - from), seconds(time)))
        });
        let pings: Vec<svg::Point> = pings.collect();
        if pings.is_empty() {
            return Err("no ping was answered beside the transfers".to_owned());
        }
        Ok(Outcome {
            policy,
            pings,
            up: total(file, "TCP upload")?,
            down: total(file, "TCP download")?,
        })
    }

    /// Round trip in milliseconds that so many percent of the pings need at most.
    fn percentile(&self, percent: usize) -> f64 {
        let mut times: Vec<Duration> = self.pings.iter().map(|(_, time)| *time).collect();
        times.sort_unstable();
        let rank = (times.len() * percent).div_ceil(100).max(1);
        times[rank - 1].as_secs_f64() * 1e3
    }
}

/// Series of measured samples whose names begin so.
fn series<'a>(
    file: &'a Value,
    prefix: &'a str,
) -> impl Iterator<Item = (&'a String, &'a Vec<Value>)> {
    let all = file["raw_values"].as_object().into_iter().flatten();
    let named = all.filter(move |(name, _)| name.starts_with(prefix));
    let sampled = named.filter_map(|(name, samples)| Some((name, samples.as_array()?)));
    sampled.filter(|(_, samples)| !samples.is_empty())
}

/// Bits a second that arrived by all transfers whose names begin so.
fn total(file: &Value, way: &str) -> Result<f64, String> {
    let mut rates = Vec::new();
    for (name, _) in series(file, way) {
        let about = &file["metadata"]["SERIES_META"][name];
        let number = |key: &str| about[key].as_f64().filter(|number| *number > 0.0);
        let (Some(bytes), Some(seconds)) = (number("BYTES_RECVD"), number("ELAPSED_TIME")) else {
            return Err(format!("nothing arrived by {name}: {about}"));
        };
        rates.push(bytes * 8.0 / seconds);
    }
    match rates.len() {
        TRANSFERS => Ok(rates.iter().sum()),
        count => Err(format!("{count} of {TRANSFERS} transfers of {way} ran")),
    }
}

/// First line of what a program prints.
fn printed(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output();
    let printed = output
        .map(|output| text(&output.stdout))
        .unwrap_or_default();
    printed.lines().next().unwrap_or_default().to_owned()
}

/// The page of results.
fn page(outcomes: &[Outcome]) -> String {
    let mut page = format!(
        "# flent's rrul\n\
         \n\
         `rrul` of {PACKAGE} with netperf of Debian sid: {TRANSFERS} transfers each way by TCP\n\
         (Cubic) for {LENGTH} s, marked CS0, CS1, CS5 and EF, and an ICMP ping each 50 ms beside\n\
         them, between two network namespaces joined by Softnet. Both ports send at most\n\
         50 Mbit/s: by `cake bandwidth 50mbit`, or by `htb` (burst 15k) with `fq_codel` or\n\
         `pfifo limit 1000` below it. The path has no delay of its own.\n\
         Rates are those of the bytes that the receivers read.\n\
         \n\
         ```sh\n\
         SOFTNET_WRITE_RESULTS=1 cargo test --release -p softnet-cli --test programs rrul -- \\\n  \
           --ignored --nocapture\n\
         ```\n\
         \n\
         {}, revision {}, a {} build, {} CPUs, Linux {}; one run each.\n\
         \n\
         | qdisc | ping, 50 %, ms | 99 %, ms | answered | TCP up, Mbit/s | down, Mbit/s |\n\
         |---|---:|---:|---:|---:|---:|\n",
        printed("date", &["+%F"]),
        printed("git", &["rev-parse", "--short=12", "HEAD"]),
        match cfg!(debug_assertions) {
            true => "debug",
            false => "release",
        },
        std::thread::available_parallelism().map_or(0, usize::from),
        printed("uname", &["-r"]),
    );
    for outcome in outcomes {
        let _ = writeln!(
            page,
            "| `{}` | {:.2} | {:.2} | {} | {:.1} | {:.1} |",
            outcome.policy,
            outcome.percentile(50),
            outcome.percentile(99),
            outcome.pings.len(),
            outcome.up / 1e6,
            outcome.down / 1e6
        );
    }
    page + "\n![Pings over time, a line for each qdisc](rrul.svg)\n"
}

/// The root of a system with netperf, made once below `target`.
fn netperf() -> Option<PathBuf> {
    let script = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../tests/programs/netperf.sh"
    );
    let root = Path::new(env!("CARGO_BIN_EXE_softnet")).with_file_name("netperf-root");
    let output = Command::new("bash").arg(script).arg(&root).output();
    let output = output.expect("bash");
    if !output.status.success() {
        let why = text(&output.stderr);
        skip(&format!(
            "needs netperf of Debian sid by debootstrap: {why}"
        ));
        return None;
    }
    Some(root)
}

/// Runs rrul between two new hosts.
fn run(policy: &'static str, commands: &[&str], flent: &Path, root: &Path) -> Outcome {
    let hosts = ["rrul-a", "rrul-b"].map(NamedNetns::new);
    let [a, b] = &hosts;
    let daemon = Daemon::start("rrul", &two_ports((a, ""), (b, "")));
    for port in ["eth-a", "eth-b"] {
        for command in commands {
            daemon.done(&command.replace("DEV", port));
        }
    }
    for host in &hosts {
        // flent tries programs with `localhost`.
        host.ip(&["link", "set", "lo", "up"]);
    }
    for (host, port) in hosts.iter().zip(["eth-a", "eth-b"]) {
        // A namespace may not choose it for all where it is not one of those for everybody.
        host.ip(&[
            "route",
            "replace",
            "10.9.0.0/24",
            "dev",
            port,
            "congctl",
            "cubic",
        ]);
    }
    ping(&hosts);
    let mut command = Command::new("ip");
    command.args(["netns", "exec", &b.name, CHROOT]).arg(root);
    let mut server = Running::start(command.args(["/usr/bin/netserver", "-D", "-4"]));
    let address = SocketAddr::from(([10, 9, 0, 2], 12865));
    wait_for("netserver", || {
        server.assert_running();
        let connect = || TcpStream::connect_timeout(&address, Duration::from_secs(1));
        a.run(connect).is_ok()
    });
    let script = format!(
        "#!/bin/sh\nexec {CHROOT} '{}' /usr/bin/netperf \"$@\"\n",
        root.display()
    );
    daemon.scratch.program("netperf", &script);
    let data = daemon.scratch.path("data");
    fs::create_dir(&data).expect("a folder");
    let path = std::env::var("PATH").unwrap_or_default();
    let path = format!("{}:{path}", daemon.scratch.path("").display());
    let mut command = Command::new("ip");
    command.args(["netns", "exec", &a.name, "timeout", "180"]);
    command.arg(flent).args(["rrul", "-4", "-H", "10.9.0.2"]);
    command.args(["-l", &LENGTH.to_string(), "-s", "0.05"]);
    command.args(["-t", policy, "-D"]).arg(&data);
    let output = command.env("PATH", path).stdin(Stdio::null()).output();
    let output = output.expect("ip");
    let said = succeeded(&output, &"flent rrul") + &text(&output.stderr);
    let files = fs::read_dir(&data).expect("a folder").flatten();
    let mut files = files.map(|entry| entry.path());
    let file = files.find(|file| file.to_string_lossy().ends_with(".flent.gz"));
    let file = file.unwrap_or_else(|| panic!("flent wrote no data file: {said}"));
    let output = Command::new("gzip").arg("-dc").arg(file).output();
    let file = succeeded(&output.expect("gzip"), &"gzip");
    let file: Value = serde_json::from_str(&file).expect("flent's data file is JSON");
    drop(server);
    daemon.stop();
    let outcome = Outcome::read(policy, &file);
    outcome.unwrap_or_else(|why| panic!("{policy}: {why}: {said}"))
}

/// A measurement; it fails if any of the transfers or pings is not there.
#[test]
#[ignore = "takes two minutes, flent and Debian sid's netperf: .ci/long programs"]
fn rrul_of_flent() {
    if !may_make_networks() || !["tc", "ip", "fping"].into_iter().all(has_program) {
        return;
    }
    let Some(bin) = venv("flent", PACKAGE) else {
        return;
    };
    let Some(root) = netperf() else {
        return;
    };
    let flent = bin.join("flent");
    let outcomes = POLICIES.map(|(policy, commands)| run(policy, commands, &flent, &root));
    let page = page(&outcomes);
    println!("{page}");
    if std::env::var_os("SOFTNET_WRITE_RESULTS").is_some() {
        let traces = outcomes.map(|outcome| (outcome.policy, outcome.pings));
        let title = "Ping beside rrul's TCP, 50 Mbit/s each way";
        let picture = svg::draw(title, &traces, Duration::from_secs(LENGTH));
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/results");
        fs::write(folder.join("rrul.md"), page).expect("the page");
        fs::write(folder.join("rrul.svg"), picture).expect("the picture");
    }
}

#[test]
fn a_data_file_of_flent_is_read() {
    let mut file = json!({"raw_values": {}, "metadata": {"SERIES_META": {}}});
    for way in ["upload", "download"] {
        for mark in ["BE", "BK", "CS5", "EF"] {
            let name = format!("TCP {way} {mark}");
            file["raw_values"][&name] = json!([{"t": 105.0}, {"t": 125.0}]);
            let about = json!({"BYTES_RECVD": 25_000_000, "ELAPSED_TIME": 20.0});
            file["metadata"]["SERIES_META"][&name] = about;
        }
        // Sums have no samples.
        file["raw_values"][format!("TCP {way} sum")] = json!([]);
    }
    // The first and the last are not beside transfers.
    let pings = [(104.0, 1.0), (106.0, 250.0), (110.0, 500.0), (126.0, 2.0)];
    let pings = pings.map(|(time, round_trip)| json!({"t": time, "val": round_trip}));
    file["raw_values"]["Ping (ms) ICMP"] = json!(pings);
    let outcome = Outcome::read("cake", &file).expect("all is there");
    let millis = |at, time| (Duration::from_millis(at), Duration::from_millis(time));
    assert_eq!(outcome.pings, [millis(750, 250), millis(4500, 500)]);
    let page = page(&[outcome]);
    let row = "| `cake` | 250.00 | 500.00 | 2 | 40.0 | 40.0 |\n";
    assert!(page.contains(row), "{page}");
    assert!(
        page.lines().all(|line| line.chars().count() <= 100),
        "{page}"
    );
    file["metadata"]["SERIES_META"]["TCP upload EF"]["BYTES_RECVD"] = json!(-1);
    let why = Outcome::read("cake", &file).err().unwrap_or_default();
    assert!(why.starts_with("nothing arrived by TCP upload EF"), "{why}");
    file["raw_values"]["TCP upload EF"] = json!([]);
    let why = Outcome::read("cake", &file).err().unwrap_or_default();
    assert_eq!(why, "3 of 4 transfers of TCP upload ran");
    file["raw_values"]["Ping (ms) ICMP"] = json!([]);
    let why = Outcome::read("cake", &file).err().unwrap_or_default();
    assert!(why.starts_with("no ping"), "{why}");
}
