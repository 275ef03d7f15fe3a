//! Options that Linux 7.2 got from tc 7.3, and showed: `tests/golden/options*.txt`, which
//! `record_options.py` wrote.

use std::collections::BTreeMap;

use super::property_tests::answer;
use super::*;
use crate::nl::headers::TcMsg;
use crate::nl::{Head, Messages, NLA_F_NESTED, Policy, Request, Validation};
use crate::tc::TCA_OPTIONS;

pub(super) const AROUND: QdiscContext = QdiscContext {
    link: LinkDefaults {
        mtu: 1500,
        tx_queue_len: 1000,
        queues: 4,
    },
    queues: 4,
    parent: Handle::ROOT,
};

/// Options that only Softnet refuses, behind the command.
const REFUSED: [(&str, &str); 6] = [
    ("codel limit 10 | 0800030000000000", "interval"),
    ("fq_codel limit 10 | 0800030000000000", "interval"),
    ("fq limit 10 | 0800070000000000", "maxrate"),
    ("fq maxrate 0", "maxrate"),
    ("netem seed 1 delay 9300000s", "delay"),
    ("100011000040000000000040ffffff7f", "weights"),
];

/// Refusals by the tree, not by the reader of options: classes that weigh too much together, and
/// another parent. Tests of `softnet-tc`'s `qfq` and `tc::tests::classes` have these.
const OF_THE_TREE: [&str; 3] = [
    "classid 1:41 qfq weight 1024",
    "classid 1:42 qfq weight 1024",
    "change dev d0 parent 1: classid 1:11 hfsc rt m2 7mbit",
];

/// A message with these options, and what `f` makes of them.
pub(super) fn with_options<T>(options: Option<&[u8]>, f: impl FnOnce(Option<Attr<'_>>) -> T) -> T {
    message(
        |out| {
            options
                .into_iter()
                .for_each(|o| out.put_bytes(TCA_OPTIONS | NLA_F_NESTED, o))
        },
        f,
    )
}

fn message<T>(put: impl FnOnce(&mut Message<'_>), f: impl FnOnce(Option<Attr<'_>>) -> T) -> T {
    let mut messages = Messages::new();
    messages
        .message(Head::default(), &TcMsg::default(), put)
        .unwrap();
    let request = Request::read(messages.as_bytes()).unwrap();
    let attrs = request.attrs::<TcMsg>(&Policy::new(16, &[]), Validation::Liberal);
    f(attrs.unwrap().get(TCA_OPTIONS))
}

/// The payload of `TCA_OPTIONS` that is shown of a qdisc.
pub(super) fn shown(spec: &QdiscSpec) -> Option<Vec<u8>> {
    shown_with(spec, None)
}

/// The same with statistics.
pub(super) fn shown_with(spec: &QdiscSpec, xstats: Option<&Xstats>) -> Option<Vec<u8>> {
    let qdisc = &ShownQdisc {
        spec,
        stats: &QdiscStats::default(),
        xstats,
        context: AROUND,
    };
    message(
        |out| dump(qdisc, out),
        |options| Some(options?.data.to_vec()),
    )
}

/// The same of a class.
pub(super) fn shown_class(class: &ShownClass<'_>) -> Option<Vec<u8>> {
    message(
        |out| dump_class(class, out),
        |options| Some(options?.data.to_vec()),
    )
}

/// Classes of the qdisc of a test.
#[derive(Default)]
pub(super) struct Classes(pub(super) BTreeMap<Handle, (Handle, ClassSpec)>);

impl Classes {
    /// `htb_parent_to_leaf` and its opposite.
    fn level(&self, class: Handle) -> u32 {
        if self.0.values().all(|&(parent, _)| parent != class) {
            return 0;
        }
        let above = std::iter::successors(self.0.get(&class), |(parent, _)| self.0.get(parent));
        8 - above.count() as u32
    }

    pub(super) fn with<T>(
        &self,
        qdisc: &QdiscSpec,
        class: Handle,
        f: impl Fn(&ShownClass<'_>) -> T,
    ) -> T {
        let (parent, spec) = &self.0[&class];
        let stats = ClassStats {
            class,
            parent: *parent,
            qdisc: Handle::NONE,
            kind: "pfifo",
            stats: QdiscStats::default(),
            htb: Some(softnet_tc::HtbClassStats::default()),
            own: None,
            xstats: None,
        };
        let (level, stats) = (self.level(class), &stats);
        f(&ShownClass {
            spec,
            qdisc,
            stats,
            level,
        })
    }
}

/// One command of the file.
#[derive(Debug, Default)]
struct Case<'a> {
    command: &'a str,
    kind: &'a str,
    options: Option<Vec<u8>>,
    errno: i32,
    text: &'a str,
    shown: Option<Option<Vec<u8>>>,
    xstats: Option<usize>,
}

fn payload(text: &str) -> Option<Vec<u8>> {
    let byte = |at| u8::from_str_radix(&text[at..at + 2], 16).unwrap();
    match text {
        "-" => None,
        "empty" => Some(Vec::new()),
        _ => Some((0..text.len()).step_by(2).map(byte).collect()),
    }
}

/// The cases, those that change the same qdisc together.
fn cases(file: &str) -> Vec<Vec<Case<'_>>> {
    let mut groups = Vec::new();
    for lines in file.split("\n\n") {
        let mut group: Vec<Case<'_>> = Vec::new();
        for line in lines.lines() {
            let (mark, rest) = line.split_at(2);
            if mark == "$ " {
                group.push(Case {
                    command: rest,
                    ..Case::default()
                });
                continue;
            }
            let case = group.last_mut().unwrap();
            let (first, second) = rest.split_once(' ').unwrap_or((rest, ""));
            match mark {
                "> " => (case.kind, case.options) = (first, payload(second)),
                "= " => (case.errno, case.text) = (first.parse().unwrap(), second),
                "< " => case.shown = Some(payload(rest)),
                "x " => case.xstats = Some(rest.parse().unwrap()),
                _ => panic!("{line}"),
            }
        }
        groups.push(group);
    }
    groups
}

/// All files: that of most kinds, and those of others.
fn recorded() -> String {
    let read = |name| {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/golden");
        std::fs::read_to_string(format!("{folder}/{name}.txt")).unwrap()
    };
    [
        "options",
        "options_netem",
        "options_classful",
        "options-aqm",
    ]
    .map(read)
    .concat()
}

/// Shown options as they are compared:
/// - A link layer that the kernel repeats without knowing it, in the rates of `tbf` and of a class
///   of `htb`, is Ethernet.
/// - Softnet keeps a burst of `tbf` in bytes. One that was given as a time (`request` has no
///   `TCA_TBF_BURST`) is rounded to whole cells.
/// - `quantum` and `prio` of a class are those of a leaf.
fn normalize(options: &mut [u8], request: &[u8]) {
    let is_class = options.starts_with(&[0x30, 0, 1, 0]);
    if !is_class && !options.starts_with(&[0x28, 0, 1, 0]) {
        return;
    }
    for (linklayer, rate) in [(5, 12..16), (17, 24..28)] {
        if options[rate] != [0; 4] && options[linklayer] != 2 {
            options[linklayer] = 1;
        }
    }
    if is_class && options[40..44] != [0; 4] {
        options[36..40].fill(0);
        options[44..48].fill(0);
    }
    let has_burst = request.windows(4).any(|header| header == [8, 0, 6, 0]);
    if !is_class && !has_burst && options[5] == 2 {
        options[32..36].fill(0);
    }
}

fn check<T>(case: &Case<'_>, result: Result<T, Error>) -> Option<T> {
    let errno = result.as_ref().map_or_else(|error| error.errno.0, |_| 0);
    assert_eq!(errno, case.errno, "{}", case.command);
    let error = result.as_ref().err().and_then(|error| error.text.clone());
    let text = if errno == 0 { "" } else { case.text };
    let said = error.unwrap_or_default();
    assert!(
        said.starts_with(text),
        "{}: {said}, not {text}",
        case.command
    );
    result.ok()
}

/// Changes a class that its qdisc came with. False: there are none in this kind.
fn run_own(case: &Case<'_>, qdisc: &mut QdiscSpec, class: Handle) -> bool {
    let QdiscSpec::Ets(ets) = &*qdisc else {
        return false;
    };
    let is_there = (1..=ets.bands).contains(&class.minor());
    let parsed = with_options(case.options.as_deref(), |options| {
        parse_own_class(qdisc, class, is_there, options)
    });
    if let Some(changed) = check(case, parsed) {
        *qdisc = changed.expect(case.command);
    }
    if is_there {
        let shown = message(
            |out| dump_own_class(qdisc, class, out),
            |options| Some(options?.data.to_vec()),
        );
        let expected = case.shown.clone().expect(case.command);
        assert_eq!(shown, expected, "{}", case.command);
    }
    true
}

/// Runs the commands of a group.
fn run(group: &[Case<'_>]) {
    const ENOENT: i32 = 2;
    const EEXIST: i32 = 17;
    let mut qdisc: Option<QdiscSpec> = None;
    let mut classes = Classes::default();
    let of_tree = |case: &Case<'_>| OF_THE_TREE.iter().any(|end| case.command.ends_with(end));
    let of_parser = |case: &&Case<'_>| ![ENOENT, EEXIST].contains(&case.errno) && !of_tree(case);
    for case in group.iter().filter(of_parser) {
        let words: Vec<&str> = case.command.split(' ').collect();
        let after = |word| {
            let at = words.iter().position(|w| *w == word)?;
            Some(words[at + 1].parse::<Handle>().unwrap())
        };
        let options = case.options.as_deref();
        let is_class = words[0] == "class";
        let result = if is_class {
            let name = after("classid").unwrap();
            let qdisc = qdisc.as_mut().expect(case.command);
            if run_own(case, qdisc, name) {
                continue;
            }
            let there = classes.0.get(&name);
            let before = there.map(|(_, spec)| spec);
            // A change need not name it.
            let parent = after("parent").or_else(|| there.map(|(parent, _)| *parent));
            let parent = parent.unwrap_or(Handle::ROOT);
            let parsed = with_options(options, |options| {
                parse_class(qdisc, options, &AROUND.link, before)
            });
            let Some(spec) = check(case, parsed) else {
                continue;
            };
            let warning = class_warning(name, &spec, qdisc).unwrap_or_default();
            // Of the class above, and of the message.
            const OTHERS: [&str; 2] = ["Forced curve change", "bytes leftover"];
            if !OTHERS.iter().any(|text| case.text.starts_with(text)) {
                assert_eq!(warning, case.text, "{}", case.command);
            }
            classes.0.insert(name, (parent, spec));
            classes.with(qdisc, name, |class| {
                assert_eq!(
                    class_xstats(class).map(|stats| stats.bytes().len()),
                    case.xstats
                );
                shown_class(class)
            })
        } else {
            let parsed = with_options(options, |options| {
                parse(case.kind, options, &AROUND, qdisc.as_ref())
            });
            if let Some(spec) = check(case, parsed) {
                let refused = REFUSED
                    .iter()
                    .find(|(command, _)| case.command.ends_with(command));
                match (spec.check(), refused) {
                    (Ok(()), None) => qdisc = Some(spec),
                    (Err(error), Some((_, word))) => {
                        assert!(error.to_string().contains(word), "{error}");
                        continue;
                    }
                    (checked, _) => panic!("{}: {checked:?}", case.command),
                }
            }
            let Some(qdisc) = &qdisc else {
                continue;
            };
            let stats = xstats(&ShownQdisc {
                spec: qdisc,
                stats: &QdiscStats::default(),
                xstats: None,
                context: AROUND,
            });
            assert_eq!(
                stats.map(|stats| stats.bytes().len()),
                case.xstats,
                "{}",
                case.command
            );
            shown(qdisc)
        };
        let mut pair = [result, case.shown.clone().expect(case.command)];
        for shown in pair.iter_mut().flatten() {
            normalize(shown, options.unwrap_or_default());
        }
        assert_eq!(pair[0], pair[1], "{}", case.command);
    }
}

#[test]
fn as_linux_reads_and_shows_them() {
    let recorded = recorded();
    let groups = cases(&recorded);
    assert!(groups.len() > 200);
    groups.iter().for_each(|group| run(group));
}

/// Any prefix of tc's options is read, or refused with an errno.
#[test]
fn truncated_options_are_read_or_refused() {
    let recorded = recorded();
    for case in cases(&recorded).iter().flatten() {
        let Some(options) = &case.options else {
            continue;
        };
        // The bytes of a rate table are all alike.
        for end in (0..options.len()).filter(|end| *end < 120 || options.len() - end < 20) {
            answer(case.kind, &options[..end]);
        }
    }
}
