//! The unmodified tc says the same of the daemon as of this machine's kernel, command by command:
//! the same text, JSON, exit codes, and at least the kernel's refusals.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use super::exec;
use crate::common::{Daemon, Scratch, has_program, may_make_networks, skip, text};

/// Commands on `s0`, a link with one queue, and on `m0`, with four; both have `noqueue` by
/// themselves. Kinds that most kernels are built with.
const COMMANDS: &str = include_str!("as_the_kernel.txt");

/// Runs each line of a file, and prints what it says.
const RUN: &str = r##"
while read -r line; do
    echo "# $line"
    sh -c "$line" 2>"$1.errors" </dev/null
    code=$?
    sed "s/^/! /" "$1.errors"
    echo "= $code"
done <"$1"
"##;

/// Links of the kernel, in a namespace without anything that sends by itself.
const KERNEL: &str = r#"
set -e
for of in all default; do echo 1 >/proc/sys/net/ipv6/conf/$of/disable_ipv6; done
ip link add s0 numtxqueues 1 numrxqueues 1 type veth peer name s1
ip link add m0 numtxqueues 4 numrxqueues 4 type veth \
    peer name m1 numtxqueues 4 numrxqueues 4
for link in s0 s1 m0 m1; do ip link set dev $link up; done
for kind in htb "tbf rate 1mbit burst 2000 limit 5000"; do
    tc qdisc add dev s0 root $kind
    tc qdisc del dev s0 root
done
set +e
"#;

/// The same links of the daemon.
const DAEMON: &str = r"
ip link add s0 type dummy
ip link add m0 numtxqueues 4 numrxqueues 4 type dummy
for link in s0 m0; do ip link set dev $link up; done
";

/// The output of one command.
#[derive(Debug, Default)]
struct Said {
    /// Lines, in any order: those of a dump have none.
    lines: Vec<String>,
    errors: Vec<String>,
    code: String,
}

/// The output of each command, in order. Other links than ours are left out, and handles that were
/// chosen are numbered as they appear.
fn read(output: &str) -> Vec<(String, Said)> {
    let mut chosen = BTreeMap::new();
    let mut all: Vec<(String, Said)> = Vec::new();
    for line in output.lines() {
        if let Some(command) = line.strip_prefix("# ") {
            all.push((command.to_owned(), Said::default()));
            continue;
        }
        let Some((_, said)) = all.last_mut() else {
            continue;
        };
        if let Some(code) = line.strip_prefix("= ") {
            code.clone_into(&mut said.code);
            said.lines.sort();
        } else if let Some(error) = line.strip_prefix("! ") {
            said.errors.push(error.to_owned());
        } else if ![" dev lo ", " dev s1 ", " dev m1 "]
            .iter()
            .any(|of| line.contains(of))
        {
            said.lines.push(normal(line, &mut chosen));
        }
    }
    all
}

/// A line with handles of 8000 and above numbered as they appear, and JSON objects apart.
fn normal(line: &str, chosen: &mut BTreeMap<String, usize>) -> String {
    let mut words = Vec::new();
    for word in line.split_inclusive(|c: char| !c.is_ascii_hexdigit()) {
        let digits = word.trim_end_matches(|c: char| !c.is_ascii_hexdigit());
        let is_chosen = digits.len() == 4 && digits.starts_with('8') && word.ends_with(':');
        if is_chosen {
            let next = chosen.len();
            let number = *chosen.entry(digits.to_owned()).or_insert(next);
            words.push(word.replace(digits, &format!("<{number}>")));
        } else {
            words.push(word.to_owned());
        }
    }
    let line = words.concat();
    match line
        .strip_prefix('[')
        .and_then(|line| line.strip_suffix(']'))
    {
        Some(objects) => {
            let mut objects: Vec<_> = objects.split(",{\"").collect();
            objects[0] = objects[0].trim_start_matches("{\"");
            objects.sort_unstable();
            objects.join("\n")
        }
        None => line,
    }
}

/// True if a refusal says what the kernel's says: its text first, help after it. Where the kernel
/// has no text, tc prints the error's name, and ours may have text.
fn says(ours: &[String], kernels: &[String]) -> bool {
    ours.len() == kernels.len()
        && ours.iter().zip(kernels).all(|(ours, kernels)| {
            let text = kernels.trim_end_matches('.');
            ours.starts_with(text)
                || kernels.starts_with("RTNETLINK answers: ") && ours.starts_with("Error: ")
        })
}

fn run(command: &mut Command, commands: &Path, script: &str) -> Option<String> {
    let script = format!("{script}{RUN}");
    let output = command.args(["-c", &script, "sh"]).arg(commands).output();
    let output = output.expect("a shell");
    let has_run = output.status.success();
    if !has_run {
        eprintln!("{}", text(&output.stderr));
    }
    has_run.then(|| text(&output.stdout))
}

#[test]
fn tc_says_the_same_of_both() {
    let programs = ["tc", "ip", "unshare"];
    if !may_make_networks() || !programs.iter().all(|program| has_program(program)) {
        return;
    }
    let scratch = Scratch::new("as-the-kernel");
    let commands = scratch.file("commands", COMMANDS);
    let mut kernel = Command::new("unshare");
    let Some(kernel) = run(kernel.args(["-n", "sh"]), &commands, KERNEL) else {
        return skip("needs a kernel with veth, htb and tbf");
    };
    let daemon = Daemon::start(&scratch, "[[port]]\nname = \"m1\"\ndriver = \"null\"\n");
    let ours = run(&mut exec(&daemon.socket, &["sh"]), &commands, DAEMON);
    let ours = ours.expect("the daemon's links");
    let (kernel, ours) = (read(&kernel), read(&ours));
    assert_eq!(kernel.len(), COMMANDS.lines().count());
    assert_eq!(ours.len(), kernel.len());
    let mut differ = Vec::new();
    for ((command, kernel), (_, ours)) in kernel.iter().zip(&ours) {
        let same = kernel.lines == ours.lines && kernel.code == ours.code;
        if !same || !says(&ours.errors, &kernel.errors) {
            differ.push(format!("{command}\n  kernel: {kernel:?}\n  ours: {ours:?}"));
        }
    }
    assert!(differ.is_empty(), "{}", differ.join("\n"));
    daemon.stop();
}
