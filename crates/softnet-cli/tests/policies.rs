//! `softnet sim` on the policies that people have: files, scripts, expectations.

mod common;

use std::fs;
use std::path::Path;
use std::process::Output;

use common::{Scratch, has_program, may_make_networks, softnet, text};
use serde_json::Value;

const CONFIG: &str = "[[port]]\nname = \"web\"\ndriver = \"null\"\n\
    qdisc = { kind = \"tbf\", rate = \"10mbit\", burst = \"16k\", latency = \"100ms\" }\n";

fn sim(words: &[&str]) -> Output {
    softnet().arg("sim").args(words).output().expect("softnet")
}

#[test]
fn expectations_decide_the_exit_code() {
    let scratch = Scratch::new("expect");
    let config = scratch.file("config.toml", CONFIG);
    let config = config.to_str().expect("a path");
    let junit = scratch.path("sim.xml");
    let junit = junit.to_str().expect("a path");
    let common = [
        "--config",
        config,
        "--port",
        "web",
        "--generate",
        "name=bulk,tcp=2,for=5s",
    ];
    let run = |more: &[&str]| sim(&[&common[..], more].concat());
    let good = [
        "--expect",
        "web rate 9..10.1mbit",
        "--expect",
        "bulk sojourn p50 > 10ms",
    ];
    let output = run(&good);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stdout));
    assert!(text(&output.stdout).contains("ok: web rate 9..10.1mbit ("));
    let bad = [
        &good[..],
        &["--expect", "root sojourn max < 1ms", "--junit", junit],
    ]
    .concat();
    let output = run(&bad);
    assert_eq!(output.status.code(), Some(3));
    assert!(text(&output.stdout).contains("failed: root sojourn max < 1ms: it is "));
    let xml = fs::read_to_string(junit).expect("a file");
    assert!(xml.contains("tests=\"3\" failures=\"1\""), "{xml}");
    for (wrong, part) in [
        (["--expect", "root speed > 1"], "column 6"),
        (
            ["--expect", "nobody rate > 1mbit"],
            "there is no class and no flow \"nobody\"",
        ),
        (
            ["--generate", "tcp=1,for=1s,cc=vegas"],
            "reno, cubic, dctcp or bbr",
        ),
        (["--port", "db"], "cannot be used multiple times"),
    ] {
        let output = run(&wrong);
        let said = text(&output.stderr) + &text(&output.stdout);
        assert!(said.contains(part), "{wrong:?}: {said}");
        assert!(matches!(output.status.code(), Some(2 | 3)), "{wrong:?}");
    }
    let other = [
        "--config",
        config,
        "--port",
        "db",
        "--generate",
        "tcp=1,for=1s",
    ];
    let output = sim(&other);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("there is no port \"db\""));
    assert_eq!(
        sim(&["--generate", "tcp=1,for=1s"]).status.code(),
        Some(2),
        "no policy"
    );
}

#[test]
fn a_configuration_has_expectations_of_its_own() {
    let scratch = Scratch::new("expect-file");
    let expect = "[[expect]]\nport = \"web\"\nexpr = \"web rate 9..10.1mbit\"\n";
    let run = |text: &str| {
        let config = scratch.file("config.toml", text);
        let config = config.to_str().expect("a path");
        let flow = "name=bulk,tcp=2,for=5s";
        let output = sim(&["--config", config, "--port", "web", "--generate", flow]);
        let said = text_of(&output);
        (output.status.code(), said)
    };
    let (code, said) = run(&format!("{CONFIG}{expect}"));
    assert!(
        code == Some(0) && said.contains("ok: web rate 9..10.1mbit ("),
        "{said}"
    );
    let (code, said) = run(&format!("{CONFIG}{}", expect.replace("10.1", "8")));
    assert!(
        code == Some(2) && said.contains("the range is empty"),
        "{said}"
    );
    let (code, said) = run(&format!("{CONFIG}{}", expect.replace("9..10.1", "11..12")));
    assert!(
        code == Some(3) && said.contains("failed: web rate 11..12mbit"),
        "{said}"
    );
    let (code, said) = run(&format!(
        "{CONFIG}{}",
        expect.replace("web rate", "web speed")
    ));
    assert!(
        code == Some(2) && said.contains(":7:8: key `expect.expr`: column 5: \"speed\""),
        "{said}"
    );
}

/// Text of both streams of a program.
fn text_of(output: &Output) -> String {
    text(&output.stdout) + &text(&output.stderr)
}

#[test]
fn results_are_the_same_on_every_run_and_comparable() {
    let scratch = Scratch::new("compare");
    let config = scratch.file("config.toml", CONFIG);
    let other = scratch.file("other.toml", "[[qdisc]]\nkind = \"fq_codel\"\n");
    let words = [
        "--config",
        config.to_str().expect("a path"),
        "--port",
        "web",
        "--compare",
        other.to_str().expect("a path"),
        "--generate",
        "name=bulk,tcp=3,cc=bbr,for=3s",
        "--generate",
        "name=noise,rate=1mbit,pattern=poisson,for=3s",
        "--seed",
        "7",
        "--link",
        "20mbit",
        "--json",
    ];
    let output = sim(&words);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_eq!(output.stdout, sim(&words).stdout);
    let told: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let rate = |place: usize| told["compared"][place]["classes"][0]["rate_bps"].as_u64();
    assert!(
        rate(0) < Some(11_000_000) && rate(1) > Some(15_000_000),
        "{told}"
    );
    assert_eq!(told["compared"][0]["flows"][3]["name"], "noise");
}

/// Runs a policy of the examples with what its comments say.
fn example(path: &Path) {
    let script = fs::read_to_string(path).expect("a script");
    let said = |key: &str| -> Vec<String> {
        let start = format!("# {key}: ");
        let lines = script.lines().filter_map(|line| line.strip_prefix(&start));
        lines.map(str::to_owned).collect()
    };
    let mut command = softnet();
    command.args(["sim", "--dev", "eth0", "--script"]).arg(path);
    for key in ["generate", "expect", "link"] {
        for value in said(key) {
            command.arg(format!("--{key}")).arg(value);
        }
    }
    let output = command.output().expect("softnet");
    let (told, wrong) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(
        output.status.code(),
        Some(0),
        "{}: {told}{wrong}",
        path.display()
    );
    assert!(!said("expect").is_empty());
}

#[test]
fn examples_keep_what_they_promise() {
    if !has_program("tc") || !may_make_networks() {
        return;
    }
    let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/policies");
    let files = fs::read_dir(directory).expect("the examples");
    let mut scripts: Vec<_> = files.flatten().map(|file| file.path()).collect();
    scripts.retain(|path| path.extension().is_some_and(|end| end == "sh"));
    scripts.sort();
    assert!(scripts.len() >= 11, "{scripts:?}");
    scripts.iter().for_each(|path| example(path));
}

#[test]
fn scripts_that_fail_say_so() {
    if !has_program("tc") || !may_make_networks() {
        return;
    }
    let scratch = Scratch::new("scripts");
    let run = |script: &str| {
        let path = scratch.file("shape.sh", script);
        let path = path.to_str().expect("a path");
        let output = sim(&[
            "--script",
            path,
            "--dev",
            "eth0",
            "--generate",
            "rate=1mbit,for=1s",
        ]);
        (output.status.code(), text(&output.stderr))
    };
    let (code, said) = run("tc qdisc add dev eth0 root nosuch\n");
    assert!(
        code == Some(2) && said.contains("shape.sh: it ended with"),
        "{said}"
    );
    let (code, said) = run("ip link del dev eth0\n");
    assert!(
        code == Some(2) && said.contains("leaves no device \"eth0\""),
        "{said}"
    );
    let (code, said) = run("tc qdisc add dev eth0 root tbf rate 1mbit burst 10k latency 1s\n");
    assert_eq!(code, Some(0), "{said}");
}
