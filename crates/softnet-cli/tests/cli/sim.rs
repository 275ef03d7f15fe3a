//! `softnet sim`: the same result on every run, what it tells, and clear complaints.

use std::path::Path;

use crate::common::{Scratch, softnet, text};

#[test]
fn generated_flows() {
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/tree.toml");
    let run = || {
        let mut command = softnet();
        command.args(["sim", "--tree"]).arg(&example);
        for flow in [
            "rate=20mbit,for=2s,size=64-1500",
            "rate=1mbit,for=2s,size=100,dport=53,pattern=poisson",
        ] {
            command.args(["--generate", flow]);
        }
        let result = command.output().expect("softnet");
        assert!(result.status.success(), "{}", text(&result.stderr));
        text(&result.stdout).to_owned()
    };
    let out = run();
    assert_eq!(run(), out);
    let line = |class: &str| {
        let line = out.lines().find(|line| line.starts_with(class));
        line.unwrap_or_else(|| panic!("{class} in {out}"))
            .to_owned()
    };
    assert!(
        line("10:1").ends_with("  0"),
        "nothing of it is dropped: {out}"
    );
    assert!(line("10:3").contains("qdisc_limit"), "{out}");
}

#[test]
fn what_it_complains_about() {
    let scratch = Scratch::new("sim-complaints");
    let tree = scratch.file(
        "tree.toml",
        "[[qdisc]]\nkind = \"prio\"\n[[qdisc]]\nkind = \"pfifo\"\n",
    );
    let complain = |arguments: &[&str]| {
        let result = softnet()
            .arg("sim")
            .arg("--tree")
            .arg(&tree)
            .args(arguments)
            .output();
        let result = result.expect("softnet");
        assert_eq!(result.status.code(), Some(2));
        text(&result.stderr).to_owned()
    };
    let line = complain(&["--generate", "rate=1mbit,for=1s"]);
    let expected = "tree.toml:3:1: key `qdisc.parent`: is missing; add the class that the qdisc \
                    is for, like \"1:2\"\n";
    assert!(line.ends_with(expected), "{line}");
    assert!(complain(&[]).contains("--pcap"));
    assert!(complain(&["--generate", "rate=1mbit"]).contains("`for` is missing"));
    let line = complain(&["--generate", "rate=1mbit,for=10"]);
    assert!(line.contains("for: \"10\" has no unit"), "{line}");
    assert!(
        complain(&["--generate", "rate=1mbit,for=1s", "--link", "0"])
            .contains("at least one byte")
    );
}

/// The words of a run of `softnet sim` on the tree of this file, and what it printed.
pub(super) fn told(tree: &Path, words: &[&str]) -> (Option<i32>, String) {
    let mut command = softnet();
    command.args(["sim", "--tree"]).arg(tree).args(words);
    let result = command.output().expect("softnet");
    let said = text(&result.stdout).to_owned() + &text(&result.stderr);
    (result.status.code(), said)
}

/// Senders are measured as they were told to send.
#[test]
fn senders_that_pause_are_answered_or_wait() {
    let scratch = Scratch::new("sim-senders");
    let tree = scratch.file("fifo.toml", "qdisc = { kind = \"pfifo\" }");
    let mut words = vec!["--link", "100mbit"];
    for flow in [
        "name=ping,ping=20ms,rtt=30ms,for=4s",
        "name=talk,rate=800kbit,size=1000,on=100ms,off=300ms,for=4s",
        "name=small,tcp=1,rtt=100ms,rwnd=64k,for=4s",
        "name=pages,web=10,rtt=20ms,for=10s",
    ] {
        words.extend(["--generate", flow]);
    }
    for bound in [
        "ping rtt p50 29..32ms",
        "ping loss < 5%",
        "talk rate 180..210kbit",
        "small rate 3..5.8mbit",
        "pages rate 100kbit..50mbit",
    ] {
        words.extend(["--expect", bound]);
    }
    let (code, said) = told(&tree, &words);
    assert_eq!(code, Some(0), "{said}");
}

#[test]
fn the_story_of_a_packet() {
    let scratch = Scratch::new("sim-explain");
    let tree = scratch.file(
        "prio.toml",
        "[[qdisc]]\nhandle = \"1:\"\nkind = \"prio\"\n\n\
         [[filter]]\nprio = 1\nip_proto = \"udp\"\ndst_port = 53\nflowid = \"1:1\"\n\n\
         [[filter]]\nprio = 2\nkind = \"matchall\"\nflowid = \"1:3\"\n",
    );
    let flows = [
        "--link",
        "800kbit",
        "--generate",
        "rate=80mbit,for=500us,size=1000,dport=9",
        "--generate",
        "rate=8mbit,for=500us,size=1000,dport=53,start=1ms",
    ];
    let story = |number: &str| {
        let (code, said) = told(&tree, &[&flows[..], &["--explain", number]].concat());
        assert_eq!(code, Some(0), "{said}");
        let at = said
            .find("packet ")
            .unwrap_or_else(|| panic!("no story in {said}"));
        said[at..].to_owned()
    };
    // Five packets at once, of which the first takes 10 ms, and one that overtakes the others.
    let last = story("5");
    assert!(
        last.contains("packet 5 came at 400.000 µs: 1000 bytes, 10.0.0.1:"),
        "{last}"
    );
    assert!(
        last.contains("matchall pref 2 handle 0x1: matches, to 1:3"),
        "{last}"
    );
    assert!(last.contains("flower pref 1 handle 0x1: no"), "{last}");
    assert!(
        last.contains("queued in 1:3 behind 3 packets; 3 were in the tree"),
        "{last}"
    );
    assert!(last.contains("left at 50.000 ms after 49.600 ms"), "{last}");
    assert!(
        last.contains("49.600 ms while the link was sending, 0 ns held back"),
        "{last}"
    );
    assert!(
        last.contains("before it left 1 packets of 1:1 (1000 bytes)"),
        "{last}"
    );
    assert!(
        last.contains("before it left 3 packets of 1:3 (3000 bytes)"),
        "{last}"
    );
    let thin = story("6");
    assert!(
        thin.contains("flower pref 1 handle 0x1: matches, to 1:1"),
        "{thin}"
    );
    assert!(!thin.contains("matchall"), "{thin}");
    assert!(thin.contains("left at 10.000 ms after 9.000 ms"), "{thin}");
    assert_eq!(story("7"), "packet 7 never came\n");
}

#[test]
fn more_processors_than_there_are() {
    let scratch = Scratch::new("sim-cpus");
    let tree = scratch.file(
        "tbf.toml",
        "[[qdisc]]\nkind = \"tbf\"\nrate = \"100mbit\"\nburst = \"200k\"\nlatency = \"20ms\"\n",
    );
    let cpus = ["--cpus", "16", "--stall", "p99=200us", "--skew", "90%"];
    let flows: Vec<String> = (0..32)
        .map(|port| format!("rate=10mbit,for=300ms,sport={port}"))
        .collect();
    let flows: Vec<&str> = flows.iter().flat_map(|flow| ["--generate", flow]).collect();
    let expect = ["--expect", "root rate 90..130mbit"];
    let words = [&cpus[..], &flows, &expect].concat();
    let (code, said) = told(&tree, &words);
    assert_eq!(code, Some(0), "{said}");
    assert_eq!(told(&tree, &words).1, said, "the same again");
    for (wrong, part) in [
        (&["--skew", "90%"][..], "--cpus"),
        (
            &["--cpus", "2", "--stall", "200us"],
            "it is written like p99=200us",
        ),
        (
            &["--cpus", "2", "--stall", "p99=9e9s"],
            "the longest is 600s",
        ),
        (&["--cpus", "2", "--stall", "p99=5"], "\"5\" has no unit"),
        (
            &["--cpus", "2", "--stall", "p99=301ms"],
            "--stall: p99=301.000 ms is longer than the run, whose senders end after 300.000 ms",
        ),
        (
            &["--cpus", "2", "--skew", "190%"],
            "it is a share like 0.9 or 90%",
        ),
    ] {
        let (code, said) = told(&tree, &[wrong, &flows[..2]].concat());
        assert!(code == Some(2) && said.contains(part), "{said}");
    }
}

/// A download of 50 Mbit/s beside uploads over 1 Mbit/s: acknowledgments wait behind the uploads,
/// or are thinned and have their share.
#[test]
fn both_directions_of_a_link() {
    let scratch = Scratch::new("sim-reverse");
    let fifo = scratch.file("fifo.toml", "qdisc = { kind = \"pfifo\" }");
    let cake = scratch.file(
        "cake.toml",
        "[[qdisc]]\nkind = \"cake\"\nbandwidth = \"1mbit\"\nack_filter = \"ack-filter\"\n",
    );
    let flows = [
        "--generate",
        "name=down,tcp=1,cc=reno,rwnd=512k,for=5s",
        "--generate",
        "name=up,tcp=4,cc=reno,for=5s,direction=reverse",
        "--generate",
        "name=ping,ping=50ms,rtt=20ms,for=5s",
    ];
    let both = |reverse: &Path, more: &[&str]| {
        let reverse = reverse.to_str().expect("a path");
        let words = ["--link", "50mbit/1mbit", "--reverse", reverse];
        told(&fifo, &[&words[..], &flows, more].concat())
    };
    let slow = [
        "--expect",
        "down rate < 15mbit",
        "--expect",
        "ping rtt p90 > 300ms",
        "--expect",
        "reverse root sojourn p90 > 300ms",
        "--expect",
        "reverse root rate 500kbit..1.01mbit",
    ];
    let (code, said) = both(&fifo, &slow);
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("\nthe reverse direction\nclass "), "{said}");
    assert_eq!(both(&fifo, &slow).1, said, "the same again");
    let fast = [
        "--expect",
        "down rate > 30mbit",
        "--expect",
        "ping rtt p90 < 200ms",
        "--expect",
        "reverse root drops < 10",
        "--json",
    ];
    let (code, said) = both(&cake, &fast);
    assert_eq!(code, Some(3), "{said}");
    let end = said.rfind('}').expect("JSON");
    let value: serde_json::Value = serde_json::from_str(&said[..=end]).expect("JSON");
    let holds = [true, true, false].map(serde_json::Value::from);
    for (outcome, holds) in value["expectations"]
        .as_array()
        .expect("all")
        .iter()
        .zip(holds)
    {
        assert_eq!(outcome["holds"], holds, "{outcome}");
    }
    let broken = &value["expectations"][2]["first_broken"];
    assert!(broken["from_ns"].is_u64(), "{broken}");
    let filtered = value["reverse"]["dropped"]["ack_filter"].as_u64();
    assert!(filtered > Some(100), "{said}");
}

#[test]
fn mistakes_about_the_reverse_direction() {
    let scratch = Scratch::new("sim-reverse-mistakes");
    let fifo = scratch.file("fifo.toml", "qdisc = { kind = \"pfifo\" }");
    let reverse = ["--reverse", fifo.to_str().expect("a path")];
    let flow = ["--generate", "rate=1mbit,for=100ms"];
    for (words, part) in [
        (&["--reverse", "/no/such.toml"][..], "/no/such.toml: "),
        (&["--reverse-dev", "eth0"], "--reverse <FILE>"),
        (
            &["--link", "1mbit/1mbit"],
            "--link: the rate behind the slash",
        ),
        (&["--link", "1mbit/fast"], "--link"),
        (
            &["--generate", "rate=1mbit,for=1s,direction=up"],
            "column 19: direction: \"up\" is not forward or reverse",
        ),
        (
            &["--generate", "tcp=1,for=1s,direction=reverse"],
            "--generate, number 2: direction=reverse has no policy; name one by --reverse",
        ),
        (
            &["--expect", "reverse root rate > 1mbit"],
            "there is no policy for the reverse direction",
        ),
        (
            &[reverse[0], reverse[1], "--expect", "reverse 1:9 rate > 0"],
            "there is no class \"1:9\" in the reverse direction",
        ),
    ] {
        let (code, said) = told(&fifo, &[&flow[..], words].concat());
        assert!(code == Some(2) && said.contains(part), "{words:?}: {said}");
    }
    let (code, said) = told(&fifo, &[&flow[..], &["--json"]].concat());
    assert!(code == Some(0) && !said.contains("reverse"), "{said}");
}
