//! `softnet sim --script`: scripts as people have them, and scripts that do not end.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use crate::common::{Running, Scratch, has_program, may_make_networks, softnet, text, wait_for};
use rustix::process::Signal;

const TBF: &str = "tc qdisc add dev eth0 root tbf rate 1mbit burst 10k latency 1s\n";

fn can_run() -> bool {
    has_program("tc") && may_make_networks()
}

fn sim(script: &Path) -> Command {
    let mut command = softnet();
    command.args(["sim", "--dev", "eth0", "--generate", "rate=2mbit,for=1s"]);
    command.args(["--expect", "root rate < 1.1mbit", "--script"]);
    command.arg(script);
    command
}

/// Exit code and all that was said.
fn told(output: &Output) -> (Option<i32>, String) {
    let said = text(&output.stdout) + &text(&output.stderr);
    (output.status.code(), said)
}

fn run(script: &Path) -> (Option<i32>, String) {
    told(&sim(script).output().expect("softnet"))
}

#[test]
fn scripts_run_as_they_are() {
    if !can_run() {
        return;
    }
    let scratch = Scratch::new("script-kinds");
    // As public scripts begin. What is not there is no matter, as in a shell.
    let begin = "tc qdisc del dev eth0 root 2>/dev/null\ntc qdisc del dev eth0 ingress \
                 2>/dev/null\nmodprobe sch_cake 2>/dev/null\n";
    let del = scratch.file("del.sh", &format!("{begin}{TBF}"));
    let (code, said) = run(&del);
    assert_eq!(code, Some(0), "{said}");
    assert!(!said.contains("refused"), "{said}");
    // Arrays are not of sh; the first line's argument counts, too.
    if has_program("bash") {
        let text = format!("#!/usr/bin/env bash\nwords=(a b)\n[[ ${{#words[@]}} = 2 ]]\n{TBF}");
        let (code, said) = run(&scratch.file("bash", &text));
        assert_eq!(code, Some(0), "{said}");
        let text = format!("#! /bin/bash  -e \n{TBF}false\ntrue\n");
        let (code, said) = run(&scratch.file("strict.sh", &text));
        assert!(code == Some(2) && said.contains("it ended with"), "{said}");
    }
    let (code, said) = run(&scratch.file("no.sh", "#!/no/such/interpreter\n"));
    assert!(
        code == Some(2) && said.contains("/no/such/interpreter was not found"),
        "{said}"
    );
    // The last command decides, and what was refused is told though tc's words are hidden.
    let class = "tc class add dev eth0 parent 7: classid 7:1 htb rate 1mbit 2>/dev/null\n";
    let (code, said) = run(&scratch.file("goes-on.sh", &format!("{class}{TBF}")));
    assert_eq!(code, Some(0), "{said}");
    assert!(
        said.contains("goes-on.sh: adding class 7:1 at 7: was refused: "),
        "{said}"
    );
    // As Linux takes it where no address is translated, and tc prints the warning.
    let nat = "tc qdisc add dev eth0 root cake bandwidth 1mbit nat\n";
    let (code, said) = run(&scratch.file("nat.sh", nat));
    assert!(
        code == Some(0) && said.contains("nat has no effect"),
        "{said}"
    );
    // Its words are not among the results.
    let mut json = sim(&scratch.file("loud.sh", &format!("echo loud\n{TBF}")));
    let output = json.arg("--json").output().expect("softnet");
    assert!(output.stdout.starts_with(b"{"), "{}", text(&output.stdout));
    assert!(text(&output.stderr).contains("loud"));
}

#[test]
fn a_script_that_leaves_no_qdisc_is_warned_of() {
    if !can_run() {
        return;
    }
    let scratch = Scratch::new("script-nothing");
    let (_, said) = run(&scratch.file("nothing.sh", "true\n"));
    let warning = "nothing.sh: warning: it leaves \"eth0\" without a qdisc";
    assert!(said.contains(warning), "{said}");
    let (_, said) = run(&scratch.file("tbf.sh", TBF));
    assert!(!said.contains("warning"), "{said}");
}

/// The first line would be read from it, and the rest be run.
#[test]
fn a_pipe_is_no_policy() {
    let scratch = Scratch::new("script-pipe");
    let tree = scratch.file("fifo.toml", "qdisc = { kind = \"pfifo\" }");
    let pipe = scratch.path("pipe.sh");
    let made = Command::new("mkfifo").arg(&pipe).status();
    assert!(made.expect("mkfifo").success());
    let mut other = softnet();
    other.args(["sim", "--generate", "rate=1mbit,for=1s", "--tree"]);
    other.arg(&tree).arg("--compare").arg(&pipe);
    let (code, said) = told(&other.output().expect("softnet"));
    for (code, said) in [run(&pipe), (code, said)] {
        let text = "pipe.sh: it is no regular file";
        assert!(code == Some(2) && said.contains(text), "{said}");
    }
}

/// The same seed, the same bytes out, also of what a script leaves to chance.
#[test]
fn chance_follows_from_the_seed() {
    if !can_run() {
        return;
    }
    let scratch = Scratch::new("script-seed");
    let netem = "tc qdisc add dev eth0 root netem loss 20%\n";
    let script = scratch.file("netem.sh", netem);
    let out = |seed: &str| {
        let mut command = sim(&script);
        let output = command.args(["--json", "--seed", seed]).output();
        text(&output.expect("softnet").stdout)
    };
    let first = out("1");
    assert!(first.starts_with('{'), "{first}");
    assert_eq!(out("1"), first);
    assert_ne!(out("2"), first);
}

/// Processes with a word among their arguments.
fn processes(word: &str) -> usize {
    let entries = fs::read_dir("/proc").expect("processes").flatten();
    let commands = entries.filter_map(|entry| fs::read(entry.path().join("cmdline")).ok());
    let words = commands.filter(|command| {
        let mut words = command.split(|byte| *byte == 0);
        words.any(|of| of == word.as_bytes())
    });
    words.count()
}

#[test]
fn nothing_that_a_script_starts_lives_on() {
    if !can_run() {
        return;
    }
    let scratch = Scratch::new("script-children");
    // A number that no other process sleeps for.
    let word = format!("{}.25", 500_000 + std::process::id());
    let children = format!(
        "sleep {word} &\nsetsid sleep {word} &\n(setsid sh -c 'sleep {word} & sleep {word}' &)\n\
         for n in 1 2 3 4 5 6 7 8; do (sleep {word} & sleep {word}) & done\n"
    );
    let left = scratch.file("left.sh", &format!("{children}{TBF}"));
    let (code, said) = run(&left);
    assert_eq!(code, Some(0), "{said}");
    assert_eq!(processes(&word), 0);
    let endless = scratch.file("endless.sh", &format!("{children}while :; do :; done\n"));
    let mut command = sim(&endless);
    command.env("SOFTNET_SCRIPT_PATIENCE_MS", "500");
    let (code, said) = told(&command.output().expect("softnet"));
    assert!(
        code == Some(2) && said.contains("endless.sh: it did not end within 500ms"),
        "{said}"
    );
    assert_eq!(processes(&word), 0);
}

#[test]
fn an_interrupted_simulation_leaves_nothing() {
    if !can_run() {
        return;
    }
    let scratch = Scratch::new("script-interrupted");
    let word = format!("{}.75", 500_000 + std::process::id());
    let started = scratch.path("started");
    let script = format!(
        "echo $SOFTNET_SOCKET >{0}.part\nmv {0}.part {0}\nsleep {word}\n",
        started.display()
    );
    let mut command = sim(&scratch.file("sleeps.sh", &script));
    command.env("TMPDIR", scratch.path(""));
    let running = Running::start(&mut command);
    wait_for("the script", || started.exists() && processes(&word) > 0);
    running.signal(Signal::INT);
    let (code, said) = told(&running.finish());
    assert_eq!(code, Some(130), "{said}");
    assert_eq!(processes(&word), 0);
    let left = fs::read_dir(scratch.path("")).expect("a folder").flatten();
    let left = left.filter(|entry| {
        entry
            .file_name()
            .to_string_lossy()
            .starts_with("softnet-sim")
    });
    assert_eq!(left.count(), 0);
}

/// codel drops nothing while no more than a frame of the device's waits.
#[test]
fn the_mtu_is_that_of_the_script() {
    if !can_run() {
        return;
    }
    let scratch = Scratch::new("script-mtu");
    let run = |mtu: &str| {
        let script = format!("ip link set dev eth0 mtu {mtu}\ntc qdisc add dev eth0 root codel\n");
        let script = scratch.file("mtu.sh", &script);
        let mut command = softnet();
        command.args(["sim", "--dev", "eth0", "--link", "1mbit", "--script"]);
        command
            .arg(&script)
            .args(["--generate", "rate=1050kbit,for=1400ms"]);
        command.args(["--expect", "root drops = 0"]);
        told(&command.output().expect("softnet"))
    };
    let (code, said) = run("1500");
    assert_eq!(code, Some(3), "{said}");
    let (code, said) = run("9000");
    assert_eq!(code, Some(0), "{said}");
}
