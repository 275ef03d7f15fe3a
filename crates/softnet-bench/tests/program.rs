//! The program as a user runs it.

use std::process::{Command, Output, Stdio};

use serde_json::Value;

fn bench(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_softnet-bench"))
        .args(arguments)
        .output()
        .expect("cargo has built the program")
}

/// The namespaces of the run `pid`, which have its number in their names.
fn namespaces(pid: u32) -> Vec<String> {
    let entries = std::fs::read_dir("/run/netns")
        .into_iter()
        .flatten()
        .flatten();
    let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    let start = format!("snb{pid}-");
    names.filter(|name| name.starts_with(&start)).collect()
}

#[test]
fn unknown_experiment_is_a_usage_error_that_lists_all() {
    let output = bench(&["nonsense"]);
    assert_eq!(output.status.code(), Some(2));
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(
        text.contains("'nonsense'") && text.contains("switch, tx-adopt"),
        "{text}"
    );
    assert!(output.stdout.is_empty());
}

#[test]
fn numbers_out_of_range_are_usage_errors() {
    for arguments in [
        ["switch", "--seconds", "0"],
        ["switch", "--seconds", "nan"],
        ["switch", "--rounds", "0"],
        ["switch", "--threads", "1,0"],
        ["switch", "--variants", "dpdk"],
        ["backlog", "--variants", "nobody"],
        ["nolock-qdisc", "--only", "web"],
        ["bulk-free", "--only", "bulk=3"],
    ] {
        assert_eq!(bench(&arguments).status.code(), Some(2), "{arguments:?}");
    }
}

/// Runs an experiment for a moment with these variants, which leaves no namespace behind; its
/// report.
fn report(arguments: &[&str], variants: &str) -> Value {
    let always = ["--seconds", "1", "--rounds", "1", "--json"];
    let run = Command::new(env!("CARGO_BIN_EXE_softnet-bench"))
        .args(arguments)
        .args(always)
        .args(["--variants", variants])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("cargo has built the program");
    let pid = run.id();
    let output = run.wait_with_output().expect("it is our child");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    assert_eq!(namespaces(pid), [""; 0]);
    serde_json::from_slice(&output.stdout).expect("stdout is one JSON object")
}

#[test]
fn only_rows_that_are_asked_for() {
    for (experiment, only) in [
        ("bulk-free", "path=forward"),
        ("defer-free", "path=one-thread,bulk=32"),
    ] {
        let report = report(&[experiment, "--only", only], "softnet");
        let rows = report["rows"].as_array().expect("a report has rows");
        let bulks: Vec<&Value> = rows.iter().map(|row| &row["bulk"]).collect();
        assert_eq!(bulks, [32], "{experiment}");
    }
}

/// Checks that the report has these figures; or why it has none.
fn check(report: &Value, fields: &[&str]) -> Result<(), String> {
    assert!(report["machine"]["cpus"].is_u64());
    let rows = report["rows"].as_array().expect("a report has rows");
    let whole = |row: &&Value| row.get("rate").is_none();
    if let Some(why) = rows
        .iter()
        .filter(whole)
        .find_map(|r| r["skipped"].as_str())
    {
        return Err(why.to_owned());
    }
    for field in fields {
        let figure = rows.iter().find_map(|row| row[*field].as_f64());
        assert!(
            figure.is_some_and(|value| value > 0.0),
            "{field} in {report:#}"
        );
    }
    Ok(())
}

/// The names of the processes that have a file of the run `pid` open, from a namespace or a
/// directory of its own.
fn processes(pid: u32) -> Vec<String> {
    let mark = format!("/snb{pid}-");
    let all = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let ours = all.filter(|process| {
        let files = std::fs::read_dir(process.path().join("fd"));
        files.into_iter().flatten().flatten().any(|file| {
            std::fs::read_link(file.path()).is_ok_and(|to| to.to_string_lossy().contains(&mark))
        })
    });
    let name = |process: std::fs::DirEntry| std::fs::read_to_string(process.path().join("comm"));
    ours.filter_map(|process| name(process).ok())
        .map(|name| name.trim().to_owned())
        .collect()
}

/// Cases of each experiment with real programs, then SIGINT in the middle of a run.
#[test]
fn real_programs_are_measured_and_nothing_is_left_behind() {
    let switch = ["start_ms", "tcp_gbps", "udp_pps", "ping_mean_us", "gbps"];
    let policy = &["switch", "--only", "case=policy"];
    let bridge = "kernel-bridge";
    let web = ["rps", "p50_ns", "p99_ns"];
    let web_case = &["nolock-qdisc", "--only", "case=web,connections=16"];
    let rr_case = &["backlog", "--only", "case=tap-rr"];
    let cases: [(&[&str], &str, &[&str]); 6] = [
        (&["switch", "--judged"], bridge, &switch),
        (policy, bridge, &["measured_mbps"]),
        (web_case, bridge, &web),
        // Fail if a packet is lost.
        (web_case, "lockless", &web),
        (web_case, "locked", &web),
        (rr_case, bridge, &["tps", "p99_us"]),
    ];
    for (arguments, variants, fields) in cases {
        let report = report(arguments, variants);
        assert_eq!(report["experiment"], arguments[0]);
        if let Err(why) = check(&report, fields) {
            return softnet_tests::skip(&why);
        }
    }

    let mut run = Command::new(env!("CARGO_BIN_EXE_softnet-bench"))
        .args(["nolock-qdisc", "--only", "case=web", "--seconds", "30"])
        .args(["--variants", "kernel-bridge"])
        .stdout(Stdio::null())
        .spawn()
        .expect("cargo has built the program");
    let pid = rustix::process::Pid::from_child(&run);
    // Two of them, each a process and at least one that it made.
    let nginx = |names: &[String]| names.iter().filter(|name| *name == "nginx").count();
    while nginx(&processes(run.id())) < 4 {
        assert!(
            matches!(run.try_wait(), Ok(None)),
            "it ended before it started its programs"
        );
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    rustix::process::kill_process(pid, rustix::process::Signal::INT).expect("it runs");
    let status = run.wait().expect("it is our child");
    assert_eq!(status.code(), Some(130));
    assert_eq!(namespaces(run.id()), [""; 0]);
    // What was killed may take a moment to be gone.
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(10);
    while nginx(&processes(run.id())) > 0 {
        assert!(std::time::Instant::now() < deadline, "nginx runs on");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
}
