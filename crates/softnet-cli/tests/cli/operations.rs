//! Operation of the daemon: metrics, `top`, checks for programs, systemd.

use std::ffi::OsStr;
use std::fs;
use std::io::{Read, Write};
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};

use crate::common::{
    Daemon, NamedNetns, Scratch, has_program, may_make_networks, softnet, text, wait_for,
};
use rustix::process::Signal;
use serde_json::Value;

const PLAIN: &str = "[[port]]\nname = \"a\"\ndriver = \"null\"\n\
    qdisc = { kind = \"htb\", handle = \"1:\" }\n\
    class = [{ classid = \"1:1\", rate = \"1mbit\" }]\n\
    [[port]]\nname = \"b\"\ndriver = \"null\"\n\
    [[rate_group]]\nname = \"g\"\nrate = \"1gbit\"\n";

/// A daemon of a scratch folder, with more in `[engine]`.
fn daemon(scratch: &Scratch, engine: &str, change: impl FnOnce(&mut Command)) -> Daemon {
    let file = format!("[engine]\nworkers = 1\nbuffers = 256\n{engine}{PLAIN}");
    let config = scratch.file("config.toml", &file);
    let mut command = softnet();
    change(&mut command);
    Daemon::by(command, config, scratch.path("socket"))
}

/// The answer to a request for metrics. Who is slow to ask, or to read, is left, and asks again.
fn get(path: &Path, head: &str) -> String {
    let mut answer = String::new();
    wait_for("metrics", || {
        let mut stream = UnixStream::connect(path).expect("the daemon listens");
        answer.clear();
        let asked = stream.write_all(head.as_bytes());
        asked
            .and_then(|()| stream.read_to_string(&mut answer))
            .is_ok_and(|length| length > 0)
    });
    answer
}

#[test]
fn metrics_are_as_prometheus_reads_them() {
    let scratch = Scratch::new("metrics");
    let path = scratch.path("metrics");
    let engine = format!("metrics = {:?}\n", path.display().to_string());
    let daemon = daemon(&scratch, &engine, |_| {});
    let answer = get(&path, "GET /metrics HTTP/1.1\r\n\r\n");
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
    assert!(head.contains("text/plain; version=0.0.4"), "{head}");
    for part in [
        "softnetd_port_up{port=\"a\"} 1\n",
        "softnetd_class_bytes_total{port=\"a\",class=\"1:1\",kind=",
        "softnetd_worker_busy_seconds_total{worker=\"0\"} ",
        "softnetd_pool_buffers{pool=\"0\"} 256\n",
        "softnetd_rate_group_bytes_per_second{group=\"g\"} 125000000\n",
        "softnetd_build_info{version=",
    ] {
        assert!(body.contains(part), "{part:?} in\n{body}");
    }
    let accept = "Accept: application/openmetrics-text;version=1.0.0\r\n";
    let open = get(&path, &format!("GET /metrics HTTP/1.1\r\n{accept}\r\n"));
    assert!(open.ends_with("# EOF\n") && open.contains("application/openmetrics-text"));
    // The dashboard asks for nothing that is not there.
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
    let board = fs::read_to_string(format!("{root}/packaging/grafana/dashboard.json"));
    let board: Value = serde_json::from_str(&board.expect("a dashboard")).expect("JSON");
    for panel in board["panels"].as_array().expect("panels") {
        let query = panel["targets"][0]["expr"].as_str().expect("a query");
        let words = query.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        for name in words.filter(|word| word.starts_with("softnetd_")) {
            let family = format!("# TYPE {} ", name.trim_end_matches("_bucket"));
            assert!(body.contains(&family), "{name} in {query}");
        }
    }
    if has_program("promtool") {
        let mut promtool = Command::new("promtool");
        promtool
            .args(["check", "metrics"])
            .stdin(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = promtool.spawn().expect("promtool");
        child
            .stdin
            .take()
            .expect("a pipe")
            .write_all(body.as_bytes())
            .expect("it reads");
        let output = child.wait_with_output().expect("promtool");
        assert!(output.status.success(), "{}", text(&output.stderr));
    }
    daemon.stop();
}

#[test]
fn top_shows_one_interval() {
    let scratch = Scratch::new("top");
    let daemon = daemon(&scratch, "", |_| {});
    let output = daemon.ask("top --once --json");
    assert!(output.status.success(), "{}", text(&output.stderr));
    let shown: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(shown["ports"][0]["name"], "a");
    assert_eq!(shown["ports"][0]["tx_bits_per_second"], 0.0);
    let classes = shown["ports"][0]["classes"].as_array().expect("classes");
    assert!(
        classes.iter().any(|class| class["name"] == "1:1"),
        "{classes:?}"
    );
    let output = daemon.ask("top --once");
    let table = text(&output.stdout);
    assert!(table.starts_with("softnet: 3 ports, in 0bit/s"), "{table}");
    assert!(!table.contains("q end"), "no keys: {table}");
    let output = daemon.ask("top");
    assert_eq!(output.status.code(), Some(2), "no terminal");
    assert_eq!(daemon.ask("top --json").status.code(), Some(2));
    daemon.stop();
}

/// The daemon says when it answers, that it lives, and that it ends.
#[test]
fn systemd_is_told() {
    let scratch = Scratch::new("notify");
    let path = scratch.path("notify");
    let socket = UnixDatagram::bind(&path).expect("ours");
    socket
        .set_read_timeout(Some(crate::common::PATIENCE))
        .expect("a socket");
    let daemon = daemon(&scratch, "", |command| {
        command
            .env("NOTIFY_SOCKET", &path)
            // No more than a message a second: what finds ten others that wait is lost.
            .env("WATCHDOG_USEC", "2000000");
    });
    let next = || {
        let mut buffer = [0; 256];
        let length = socket.recv(&mut buffer).expect("a message");
        String::from_utf8_lossy(&buffer[..length]).into_owned()
    };
    assert!(next().starts_with("READY=1\nSTATUS=2 ports"));
    assert_eq!(next(), "WATCHDOG=1");
    assert_eq!(next(), "WATCHDOG=1");
    daemon.running.signal(Signal::TERM);
    wait_for("its last word", || next() == "STOPPING=1");
    daemon.running.finish();
}

#[test]
fn checks_are_told_to_programs() {
    let scratch = Scratch::new("check-json");
    let good = scratch.file("good.toml", PLAIN);
    let bad = scratch.file(
        "bad.toml",
        "[engine]\nworkers = 0\n[[port]]\nname = \"a\"\n",
    );
    let check = |files: &[&Path]| {
        let output = softnet()
            .args(["check", "--json"])
            .args(files)
            .output()
            .expect("softnet");
        let told: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        (output.status.code(), told)
    };
    let (code, told) = check(&[&good]);
    assert_eq!((code, &told["files"][0]["valid"]), (Some(0), &true.into()));
    let (code, told) = check(&[&good, &bad]);
    assert_eq!((code, &told["files"][1]["valid"]), (Some(2), &false.into()));
    let first = &told["files"][1]["errors"][0];
    assert_eq!((&first["line"], &first["column"]), (&2.into(), &11.into()));
    assert_eq!(first["key"], "engine.workers");
    let output = softnet().arg("schema").output().expect("softnet");
    let schema: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(
        schema["properties"]["engine"]["properties"]["workers"]["type"],
        "integer"
    );
}

/// Ends a program with the test.
struct Killed(std::process::Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Each query of the dashboard has an answer in a Prometheus that scrapes the daemon.
#[test]
fn the_dashboard_asks_what_prometheus_has() {
    let programs = ["prometheus", "promtool", "ip"];
    if !programs.into_iter().all(has_program) || !may_make_networks() {
        return;
    }
    let scratch = Scratch::new("prometheus");
    // Nobody else has ports in this namespace.
    let netns = NamedNetns::new("prometheus");
    netns.ip(&["link", "set", "lo", "up"]);
    let inside = |program: &OsStr| {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &netns.name]).arg(program);
        command
    };
    let (own, address) = ("127.0.0.1:9101", "127.0.0.1:9102");
    let daemon = daemon(&scratch, &format!("metrics = {own:?}\n"), |command| {
        *command = inside(command.get_program());
    });
    let config = scratch.file(
        "prometheus.yml",
        &format!(
            "global:\n  scrape_interval: 1s\nscrape_configs:\n  - job_name: softnet\n    \
             static_configs:\n      - targets: [\"{own}\"]\n"
        ),
    );
    let mut prometheus = inside(OsStr::new("prometheus"));
    prometheus
        .arg(format!("--config.file={}", config.display()))
        .arg(format!(
            "--storage.tsdb.path={}",
            scratch.path("data").display()
        ))
        .arg(format!("--web.listen-address={address}"))
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let _prometheus = Killed(prometheus.spawn().expect("prometheus"));
    let query = |expression: &str| {
        let mut promtool = inside(OsStr::new("promtool"));
        promtool.args(["query", "instant", &format!("http://{address}"), expression]);
        let output = promtool.output().expect("promtool");
        let answer = text(&output.stdout);
        (output.status.success(), answer, text(&output.stderr))
    };
    wait_for("two scrapes", || {
        query("rate(softnetd_port_transmit_bytes_total[1m])")
            .1
            .contains("port=\"a\"")
    });
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
    let board = fs::read_to_string(format!("{root}/packaging/grafana/dashboard.json"));
    let board: Value = serde_json::from_str(&board.expect("a dashboard")).expect("JSON");
    for panel in board["panels"].as_array().expect("panels") {
        let expression = panel["targets"][0]["expr"].as_str().expect("a query");
        // Nothing was dropped, so that there is no reason.
        let is_empty = expression.contains("softnetd_port_drops_total");
        // There is nothing behind a scrape that took longer than its second.
        wait_for(expression, || {
            let (is_done, answer, error) = query(expression);
            assert!(is_done, "{expression}: {error}");
            is_empty || !answer.trim().is_empty()
        });
    }
    wait_for("a scrape", || {
        query("up{job=\"softnet\"}").1.contains("=> 1 @")
    });
    daemon.stop();
}

/// `top` in a terminal of 80 columns and 24 lines: the ports, the classes of one, the end.
#[test]
fn top_draws_in_a_terminal() {
    if !has_program("script") {
        return;
    }
    let scratch = Scratch::new("top-terminal");
    let daemon = daemon(&scratch, "", |_| {});
    let command = format!(
        "stty rows 24 cols 80 && exec {} top --socket {}",
        env!("CARGO_BIN_EXE_softnet"),
        daemon.socket.display()
    );
    let mut script = Command::new("script");
    script
        .args(["-qefc", &command, "/dev/null"])
        .env("TERM", "xterm")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    let mut script = Killed(script.spawn().expect("script"));
    let mut keys = script.0.stdin.take().expect("a pipe");
    let mut screen = script.0.stdout.take().expect("a pipe");
    let drawn = Arc::new(Mutex::new(Vec::new()));
    let reader = std::thread::spawn({
        let drawn = drawn.clone();
        move || {
            let mut part = [0; 4096];
            while let Ok(length @ 1..) = screen.read(&mut part) {
                drawn.lock().expect("no panic").extend(&part[..length]);
            }
        }
    });
    let drawn = || String::from_utf8_lossy(&drawn.lock().expect("no panic")).into_owned();
    wait_for("the ports", || drawn().contains("Enter classes"));
    assert!(
        drawn().contains("softnet: 3 ports, in 0bit/s, out 0bit/s"),
        "{}",
        drawn()
    );
    keys.write_all(b"\r").expect("it reads");
    wait_for("the classes of a", || {
        drawn().contains("softnet: a: ") && drawn().contains("1:1")
    });
    keys.write_all(b"q").expect("it reads");
    assert!(script.0.wait().expect("ours").success(), "{}", drawn());
    reader.join().expect("no panic");
    // Each line is drawn at its row.
    let rows = drawn();
    let rows = rows.split("\x1b[").filter_map(|part| {
        let (row, rest) = part.split_once(';')?;
        rest.starts_with("1H").then(|| row.parse::<u32>().ok())?
    });
    assert_eq!(rows.max(), Some(24));
    daemon.stop();
}
