//! The unmodified tc, ip and bridge get from Softnet what they got from Linux 7.2, and packets
//! become of filters and actions what became of them there.
//!
//! `tests/golden` has what Linux answered, for some versions of iproute2: to the commands of
//! `control.commands`, to random ones (`dialogues`), and with packets (`hooks`). Where Softnet
//! differs, and why, is in `control.differences`.

#[path = "../common/mod.rs"]
mod common;

mod answers;
mod daemon;
mod dialogues;
mod hooks;
mod iproute;

use std::collections::BTreeSet;
use std::fmt::Write;

use answers::{Answer, parse};
use common::{Daemon, Scratch};
use iproute::Iproute;

const COMMANDS: &str = include_str!("../../../../tests/golden/control.commands");
const DIFFERENCES: &str = include_str!("../../../../tests/golden/control.differences");
/// First line of a recording, with the version of iproute2 at its end.
const RECORDINGS: [&str; 2] = [
    include_str!("../../../../tests/golden/control.iproute2-6.1.txt"),
    include_str!("../../../../tests/golden/control.iproute2-7.3.txt"),
];

/// Known differences in some sections, and those that were seen.
struct Differences {
    /// Section, command or `*`, line of the list.
    known: Vec<(&'static str, &'static str)>,
    seen: BTreeSet<usize>,
}

impl Differences {
    /// The known ones in the sections of these answers.
    fn of(answers: &[Answer]) -> Differences {
        let lines = DIFFERENCES.lines();
        let lines = lines.filter(|line| !line.is_empty() && !line.starts_with('#'));
        let pairs = lines.map(|line| line.split_once(" | ").expect("SECTION | COMMAND"));
        let sections: BTreeSet<&str> = answers.iter().map(|a| a.section.as_str()).collect();
        Differences {
            known: pairs.filter(|(of, _)| sections.contains(of)).collect(),
            seen: BTreeSet::new(),
        }
    }

    /// Where they differ without a reason.
    fn compare(&mut self, linux: &[Answer], ours: &[Answer]) -> String {
        assert_eq!(linux.len(), ours.len());
        let mut wrong = String::new();
        for (linux, ours) in linux.iter().zip(ours) {
            assert_eq!(linux.command, ours.command);
            if linux.agrees(ours) {
                continue;
            }
            let Answer {
                section, command, ..
            } = linux;
            let known = self
                .known
                .iter()
                .position(|&(of, which)| section == of && (which == "*" || command == which));
            if let Some(known) = known {
                self.seen.insert(known);
                continue;
            }
            writeln!(
                wrong,
                "{section} | {command}\n  Linux   {} {:#?}\n  Softnet {} {:#?}",
                linux.code, linux.said, ours.code, ours.said
            )
            .expect("a string");
        }
        wrong
    }

    /// Each was seen.
    fn all_were_seen(self) {
        let (known, seen) = (self.known.into_iter().enumerate(), self.seen);
        let unseen: Vec<_> = known.filter(|(number, _)| !seen.contains(number)).collect();
        assert!(unseen.is_empty(), "no difference now: {unseen:#?}");
    }
}

#[test]
fn softnet_answers_as_linux_7_2_did() {
    let mut differences = None;
    for iproute in Iproute::all() {
        let ends = |recording: &&str| {
            let first = recording.lines().next().expect("a line");
            let end = format!("iproute2 {}", iproute.version);
            first.trim_end_matches(".0").ends_with(&end)
        };
        let recording = RECORDINGS.into_iter().find(ends).expect("a recording");
        let linux = parse(recording);
        let commands = COMMANDS.lines().filter(|line| !line.starts_with("== "));
        assert!(
            commands.eq(linux.iter().map(|answer| answer.command.as_str())),
            "the recording is of other commands: run tests/golden/record_control.py"
        );
        let scratch = Scratch::new("control");
        let daemon = Daemon::start(&scratch, "[[port]]\nname = \"p0\"\ndriver = \"null\"\n");
        let ours = parse(&daemon.answers(&scratch, &iproute, COMMANDS.lines()));
        daemon.stop();
        // One that each version has, or some.
        let differences = differences.get_or_insert_with(|| Differences::of(&linux));
        assert_eq!(
            differences.compare(&linux, &ours),
            "",
            "{}",
            iproute.version
        );
    }
    differences.expect("an iproute2").all_were_seen();
}
