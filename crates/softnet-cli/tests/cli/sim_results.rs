//! `softnet sim`: what comes of bounds, when they were broken, and pictures of it.

use super::sim::told;
use crate::common::Scratch;

/// A bound on what no packet had is not kept, and one on what nothing can have is a mistake.
#[test]
fn bounds_need_packets() {
    let scratch = Scratch::new("sim-bounds");
    let tree = scratch.file("prio.toml", "[[qdisc]]\nkind = \"prio\"\nhandle = \"1:\"\n");
    let with = |bound| {
        let flow = "name=a,rate=1mbit,for=1s";
        told(&tree, &["--generate", flow, "--expect", bound])
    };
    let (code, said) = with("1:1 sojourn < 1s");
    let failed = "failed: 1:1 sojourn < 1s: no packet left, so none has a time";
    assert!(code == Some(3) && said.contains(failed), "{said}");
    let (_, said) = told(&tree, &["--generate", "rate=1mbit,for=1s", "--json"]);
    let value: serde_json::Value = serde_json::from_str(&said).expect("JSON");
    let classes = value["classes"].as_array().expect("classes");
    let class = |name: &str| {
        let found = classes.iter().find(|class| class["class"] == name);
        &found.expect("the class")["sojourn_ns"]
    };
    for (name, sent) in [("1:1", false), ("1:2", true)] {
        for key in ["mean", "p50", "p90", "p99", "p999", "max"] {
            let times = class(name);
            assert_eq!(times[key].is_u64(), sent, "{name} {key}: {times}");
            assert_eq!(times[key].is_null(), !sent, "{name} {key}: {times}");
        }
    }
    for (bound, why) in [
        ("1:1 loss = 0", "no packet came, so none was lost or kept"),
        ("1:1 fair > 0.9", "no packet left, so nothing was shared"),
    ] {
        let (code, said) = with(bound);
        let failed = format!("failed: {bound}: {why}");
        assert!(code == Some(3) && said.contains(&failed), "{said}");
    }
    // A flow of which nothing leaves, and one that nothing is sent of.
    let all = scratch.file("blackhole.toml", "qdisc = { kind = \"blackhole\" }");
    for (flow, bound, why) in [
        (
            "name=a,rate=1mbit,for=1s",
            "a fair = 1",
            "no packet left, so nothing was shared",
        ),
        (
            "name=a,tcp=1,bytes=0,for=1s",
            "a loss = 0",
            "no packet came, so none was lost or kept",
        ),
    ] {
        let (code, said) = told(&all, &["--generate", flow, "--expect", bound]);
        let failed = format!("failed: {bound}: {why}");
        assert!(code == Some(3) && said.contains(&failed), "{said}");
    }
    for (bound, code) in [
        ("1:2 sojourn < 1s", 0),
        ("1:2 loss = 0", 0),
        ("1:1 drops = 0", 0),
        ("a sojourn < 1s", 0),
        ("a rtt < 1s", 2),
        ("1:2 rtt < 1s", 2),
    ] {
        let (ended, said) = with(bound);
        assert_eq!(ended, Some(code), "{bound}: {said}");
    }
}

/// A flow that is alone for a second, and then beside one that takes all of the link.
const BROKEN: [&str; 6] = [
    "--link",
    "1mbit",
    "--generate",
    "name=thin,rate=100kbit,for=2s,size=100,prio=2",
    "--generate",
    "name=thick,rate=2mbit,for=1s,start=1s,size=1000,prio=6",
];

#[test]
fn a_failed_expectation_says_when() {
    let scratch = Scratch::new("sim-when");
    let tree = scratch.file("prio.toml", "[[qdisc]]\nhandle = \"1:\"\nkind = \"prio\"\n");
    let junit = scratch.path("sim.xml");
    let junit = junit.to_str().expect("a path");
    let expect = [
        "--expect",
        "thin sojourn max < 20ms",
        "--expect",
        "1:1 drops = 0",
        "--expect",
        "thin rate > 90kbit",
        "--expect",
        "1:3 marks > 3",
        "--expect",
        "1:2 sojourn p99 < 1ms",
        "--junit",
        junit,
    ];
    let (code, said) = told(&tree, &[&BROKEN[..], &expect].concat());
    assert_eq!(code, Some(3), "{said}");
    let line = |start: &str| {
        let line = said.lines().find(|line| line.starts_with(start));
        line.unwrap_or_else(|| panic!("{start} in {said}"))
            .to_owned()
    };
    // A wait is over as the packet leaves: when the other one has sent all.
    let late = line("failed: thin sojourn max < 20ms: it is ");
    assert!(late.contains("; first broken from 3."), "{late}");
    assert!(
        line("failed: thin rate > 90kbit").contains("first broken from 1."),
        "{said}"
    );
    let never = line("failed: 1:3 marks > 3: it is 0");
    assert!(
        never.ends_with("no window of 100 ms breaks it alone"),
        "{never}"
    );
    line("failed: 1:2 sojourn p99 < 1ms: no packet left");
    let xml = std::fs::read_to_string(junit).expect("a file");
    assert!(xml.contains("first broken from 1."), "{xml}");
    let (_, said) = told(&tree, &[&BROKEN[..], &expect[4..6], &["--json"]].concat());
    let end = said.rfind('}').expect("JSON");
    let value: serde_json::Value = serde_json::from_str(&said[..=end]).expect("JSON");
    let broken = &value["expectations"][0]["first_broken"];
    let from = broken["from_ns"].as_u64();
    assert!(
        Some(1_000_000_000) <= from && from < Some(1_300_000_000),
        "{broken}"
    );
}

#[test]
fn a_picture_of_classes() {
    let scratch = Scratch::new("sim-svg");
    let tree = scratch.file("prio.toml", "[[qdisc]]\nhandle = \"1:\"\nkind = \"prio\"\n");
    let svg = scratch.path("page.svg");
    let words = ["--svg", svg.to_str().expect("a path")];
    let (code, said) = told(&tree, &[&BROKEN[..], &words].concat());
    assert_eq!(code, Some(0), "{said}");
    let page = std::fs::read_to_string(&svg).expect("a file");
    for part in [
        ">Rate<",
        ">Drops in a second<",
        ">1:1 (",
        ">1:3 (",
        ">root (",
        "</svg>",
    ] {
        assert!(page.contains(part), "{part} in {page}");
    }
    // Nothing is sent or dropped in 1:2.
    assert!(!page.contains(">1:2 ("), "{page}");
    // Four plots of three lines, and each in the legend.
    assert_eq!(page.matches("stroke-linecap").count(), 12);
}

/// Two policies have the same numbers at their axes, however different their results are.
#[test]
fn pictures_of_two_policies_have_one_scale() {
    let scratch = Scratch::new("sim-svg-two");
    let prio = scratch.file("prio.toml", "[[qdisc]]\nhandle = \"1:\"\nkind = \"prio\"\n");
    let tbf = "[[qdisc]]\nkind = \"tbf\"\nrate = \"100kbit\"\nburst = 3000\nlimit = 6000\n";
    let tbf = scratch.file("tbf.toml", tbf);
    let svg = scratch.path("page.svg");
    let words = [
        "--svg",
        svg.to_str().expect("a path"),
        "--compare",
        tbf.to_str().expect("a path"),
    ];
    let (code, said) = told(&prio, &[&BROKEN[..], &words].concat());
    assert_eq!(code, Some(0), "{said}");
    let page = std::fs::read_to_string(&svg).expect("a file");
    let labels = |part: &str| -> Vec<String> {
        let lines = part.lines().filter(|line| line.contains("text-anchor"));
        lines.map(str::to_owned).collect()
    };
    let parts: Vec<Vec<String>> = page.split("<g transform").skip(1).map(labels).collect();
    assert_eq!(parts.len(), 2, "{page}");
    assert_eq!(parts[0], parts[1]);
    assert!(
        parts[0].iter().any(|line| line.contains("Mbit/s")),
        "{page}"
    );
}
