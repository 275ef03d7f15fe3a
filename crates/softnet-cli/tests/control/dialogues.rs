//! Random commands, valid and not.

use std::process::Command;

use super::answers::parse;
use super::common::{Daemon, Scratch, has_program, text};
use super::{Differences, Iproute};

#[test]
fn random_commands_get_linux_7_2_s_answers() {
    compare("dialogues");
}

#[test]
fn random_commands_of_the_other_kinds_get_linux_7_2_s_answers() {
    compare("dialogues-kinds");
}

/// Compares Softnet's answers with these recordings.
fn compare(name: &str) {
    if !has_program("gzip") {
        return;
    }
    let mut differences = None;
    for iproute in Iproute::all() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/golden");
        let path = format!("{folder}/{name}.iproute2-{}.txt.gz", iproute.version);
        let output = Command::new("gzip").arg("-dc").arg(&path).output();
        let recording = text(&output.expect("gzip").stdout);
        let linux = parse(&recording);
        assert!(linux.len() > 600, "{path}");
        let lines = recording.lines().filter_map(|line| {
            line.strip_prefix("$ ")
                .or_else(|| line.starts_with("== ").then_some(line))
        });
        let scratch = Scratch::new(name);
        let daemon = Daemon::start(&scratch, "[[port]]\nname = \"p0\"\ndriver = \"null\"\n");
        let ours = parse(&daemon.answers(&scratch, &iproute, lines));
        daemon.stop();
        let differences = differences.get_or_insert_with(|| Differences::of(&linux));
        let wrong = differences.compare(&linux, &ours);
        assert!(wrong.is_empty(), "{}: {wrong}", iproute.version);
    }
    differences.expect("an iproute2").all_were_seen();
}
