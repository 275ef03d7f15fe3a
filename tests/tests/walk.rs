//! The files of an idle frame's way, as `docs/walk.md` lists them and as callgrind sees them.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use softnet_tests::traffic::Flow;
use softnet_tests::{HostConfig, Lan, LanConfig, skip};

/// Number of frames that a run under callgrind sends.
const FRAMES: &str = "SOFTNET_WALK_FRAMES";
/// Frames of the shorter run, and of the longer.
const RUNS: [u64; 2] = [50, 250];

/// Sends frames from TAP to TAP, each when the one before has arrived. Run by the test below.
#[test]
#[ignore = "the program that the test of docs/walk.md runs under callgrind"]
fn frames_from_tap_to_tap() {
    let frames: u64 = std::env::var(FRAMES).map_or(1, |n| n.parse().expect("a number"));
    let host = HostConfig {
        offload: false,
        ..HostConfig::default()
    };
    let Some(lan) = Lan::build(LanConfig {
        hosts: vec![host; 2],
        ..LanConfig::default()
    }) else {
        return;
    };
    let flow = Flow::open(&lan.hosts[0], &lan.hosts[1], false);
    for n in 0..frames {
        let payload = n.to_be_bytes();
        flow.a.send(&payload).expect("a datagram");
        softnet_tests::traffic::receive(&flow.b, &payload);
    }
    drop(flow);
    lan.stop();
}

fn root() -> PathBuf {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR"));
    tests.parent().expect("the workspace").to_owned()
}

/// Instructions of each source file of ours in a run, without those that it calls.
fn instructions(frames: u64) -> Option<BTreeMap<String, u64>> {
    let out = std::env::temp_dir().join(format!("walk-{}-{frames}", std::process::id()));
    let program = std::env::current_exe().expect("this program");
    let done = Command::new("valgrind")
        .args([
            "--tool=callgrind",
            "--compress-strings=no",
            "--compress-pos=no",
        ])
        .arg(format!("--callgrind-out-file={}", out.display()))
        .arg(program)
        .args(["--exact", "frames_from_tap_to_tap", "--ignored"])
        .env(FRAMES, frames.to_string())
        .output()
        .ok()?;
    let text = fs::read_to_string(&out);
    let _ = fs::remove_file(&out);
    let log = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "under callgrind: {log}");
    let mut sums = BTreeMap::new();
    let (mut file, mut called) = (String::new(), false);
    for line in text.expect("what callgrind wrote").lines() {
        if let Some((_, name)) = line
            .split_once('=')
            .filter(|(key, _)| ["fl", "fi", "fe"].contains(key))
        {
            file = name.to_owned();
        } else if line.starts_with("calls=") {
            called = true;
        } else if line.starts_with(|c: char| c.is_ascii_digit()) {
            let cost = line.split(' ').nth(1).and_then(|n| n.parse::<u64>().ok());
            if !std::mem::take(&mut called) && file.contains("crates/softnet") {
                *sums.entry(file.clone()).or_default() += cost.unwrap_or(0);
            }
        }
    }
    Some(sums)
}

/// The path of a source file below the root.
fn source(path: &str) -> Option<String> {
    path.rfind("crates/softnet").map(|at| path[at..].to_owned())
}

#[test]
fn the_walk_lists_the_files_of_a_frame_s_way() {
    if !Command::new("valgrind")
        .arg("--version")
        .output()
        .is_ok_and(|o| o.status.success())
    {
        skip("valgrind is not installed");
        return;
    }
    // On a busy machine hosts say more beside the test's frames: what differs does so in each run.
    let (mut missing, mut strangers) = differences();
    for _ in 0..2 {
        if missing.is_empty() && strangers.is_empty() {
            break;
        }
        let again = differences();
        missing.retain(|path| again.0.contains(path));
        strangers.retain(|path| again.1.contains(path));
    }
    assert!(missing.is_empty(), "not in docs/walk.md: {missing:#?}");
    assert!(
        strangers.is_empty(),
        "listed, and never ran: {strangers:#?}"
    );
}

/// Files of a frame's way that the walk does not list, and those listed that never ran.
fn differences() -> (Vec<String>, Vec<String>) {
    let [few, many] = RUNS.map(instructions);
    let (few, many) = (few.expect("valgrind runs"), many.expect("valgrind runs"));
    let frames = RUNS[1] - RUNS[0];
    // Instructions for each of the frames that the longer run has more. Up to five may be the
    // compiler's: in one build a file's, in another inlined and named as its caller's.
    let each = |path: &String| {
        let [few, many] = [&few, &many].map(|run| run.get(path).copied().unwrap_or(0));
        many.saturating_sub(few) / frames
    };
    let mut walked = BTreeSet::new();
    for path in many.keys() {
        // Code of test builds alone, and what hosts report of groups beside the test's frames.
        let beside = ["/testing/", "/multicast/", "/membership.rs", "/checksum.rs"];
        if each(path) > 5 && !beside.iter().any(|part| path.contains(part)) {
            walked.extend(source(path));
        }
    }
    let text = fs::read_to_string(root().join("docs/walk.md")).expect("walk.md");
    let links = text.split("](../").skip(1);
    let listed: BTreeSet<String> = links
        .filter_map(|rest| rest.split_once(')'))
        .filter_map(|(path, _)| source(path))
        .collect();
    let missing = walked.difference(&listed).cloned().collect();
    let run = many.keys().filter_map(|path| source(path)).collect();
    let strangers = listed.difference(&run).cloned().collect();
    (missing, strangers)
}
