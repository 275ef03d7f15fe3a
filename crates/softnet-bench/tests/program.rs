//! The program as a user runs it.

use std::process::{Command, Output};

use serde_json::Value;

fn bench(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_softnet-bench"))
        .args(arguments)
        .output()
        .expect("cargo has built the program")
}

/// Says why a test did not run; a failure if the environment demands that all run.
fn skip(why: &str) {
    assert!(
        std::env::var_os("SOFTNET_TEST_REQUIRE").is_none(),
        "skipped: {why}"
    );
    println!("skipped: {why}");
}

fn our_namespaces() -> Vec<String> {
    let entries = std::fs::read_dir("/run/netns")
        .into_iter()
        .flatten()
        .flatten();
    let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    names.filter(|name| name.starts_with("snb")).collect()
}

#[test]
fn an_unknown_experiment_is_a_usage_error_that_lists_what_exists() {
    let output = bench(&["nonsense"]);
    assert_eq!(output.status.code(), Some(2));
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(
        text.contains("'nonsense'") && text.contains("switch, tap-io"),
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
    ] {
        assert_eq!(bench(&arguments).status.code(), Some(2), "{arguments:?}");
    }
}

/// Also covers SIGINT in the middle of a run: one test, so that the namespaces seen are its own.
#[test]
fn the_kernel_s_bridge_is_measured_and_nothing_is_left_behind() {
    let arguments = [
        "switch",
        "--seconds",
        "1",
        "--variants",
        "kernel-bridge",
        "--json",
    ];
    let output = bench(&arguments);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let report: Value = serde_json::from_slice(&output.stdout).expect("stdout is one JSON object");
    assert_eq!(report["experiment"], "switch");
    assert!(report["machine"]["cpus"].is_u64());
    let rows = report["rows"].as_array().expect("a report has rows");
    if let Some(why) = rows
        .iter()
        .find(|row| row.get("rate").is_none())
        .and_then(|row| row["skipped"].as_str())
    {
        return skip(why);
    }
    let figure = |field: &str| rows.iter().find_map(|row| row[field].as_f64());
    for field in [
        "start_ms",
        "tcp_gbps",
        "udp_pps",
        "ping_mean_us",
        "measured_mbps",
    ] {
        assert!(
            figure(field).is_some_and(|value| value > 0.0),
            "{field} in {report:#}"
        );
    }
    assert_eq!(our_namespaces(), [""; 0]);

    let mut run = Command::new(env!("CARGO_BIN_EXE_softnet-bench"))
        .args(arguments)
        .stdout(std::process::Stdio::null())
        .spawn()
        .expect("cargo has built the program");
    let pid = rustix::process::Pid::from_child(&run);
    while our_namespaces().len() < 3 {
        assert!(
            matches!(run.try_wait(), Ok(None)),
            "it ended before it made its namespaces"
        );
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    rustix::process::kill_process(pid, rustix::process::Signal::INT).expect("it runs");
    let status = run.wait().expect("it is our child");
    assert_eq!(status.code(), Some(130));
    assert_eq!(our_namespaces(), [""; 0]);
}
