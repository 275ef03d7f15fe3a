//! Mistakes in a configuration or a command line: one clear line, exit code 2, nothing left behind.

use std::path::Path;

use crate::common::{
    HostState, NamedNetns, Scratch, has_program, may_make_networks, softnet, text,
};

/// Runs `softnet VERB FILE` on `config`; returns the one line of its complaint, without the file's
/// path.
fn complaint(scratch: &Scratch, verb: &str, config: &str) -> String {
    let file = scratch.file("x.toml", config);
    let output = softnet()
        .args(verb.split(' '))
        .arg(&file)
        .output()
        .expect("softnet");
    let stderr = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{verb}: {stderr}");
    assert_eq!(text(&output.stdout), "");
    assert_eq!(stderr.matches('\n').count(), 1, "one line: {stderr}");
    let start = format!("softnet: {}:", file.display());
    let line = stderr.trim_end().strip_prefix(&start);
    line.unwrap_or_else(|| panic!("starts with the place: {stderr}"))
        .to_owned()
}

#[test]
fn mistakes_in_the_file() {
    let scratch = Scratch::new("mistakes");
    let port = "[[port]]\nname = \"p\"\ndriver = \"null\"\n";
    for (config, expected) in [
        (
            "[engine]\n  worker = 2\n".to_owned(),
            "2:3: key `engine.worker`: is unknown; did you mean `workers`?",
        ),
        (
            format!("{port}{port}"),
            "5:8: key `port.name`: \"p\" is the name of the port in line 2 already; choose another",
        ),
        (
            format!("{port}[[bridge]]\nname = \"br0\"\nports = [\"p\", \"q\"]\n"),
            "6:15: key `bridge.ports`: there is no port \"q\"; add a [[port]] of that name or \
             correct it",
        ),
        (
            format!(
                "{port}qdisc = {{ kind = \"tbf\", rate = \"fast\", burst = \"32k\", limit = 9 }}\n"
            ),
            "4:32: key `port.qdisc.rate`: \"fast\" is not a number with a unit; write it like \
             100mbit",
        ),
        (
            "[[port]]\nname = \"p\"\ndriver = \"xdp\"\n".to_owned(),
            "3:10: key `port.driver`: there is no driver \"xdp\"; use tap, af_packet, af_xdp, \
             vhost_user, stream, dgram, pcap, null, ifb or vlan",
        ),
    ] {
        for verb in ["check", "run"] {
            assert_eq!(
                complaint(&scratch, verb, &config),
                expected,
                "{verb} {config}"
            );
        }
    }
}

#[test]
fn all_mistakes_are_told_at_once() {
    let scratch = Scratch::new("many-mistakes");
    let file = scratch.file("x.toml", &"[[port]]\ncolour = 1\n".repeat(40_000));
    for verb in ["check", "run"] {
        let output = softnet().arg(verb).arg(&file).output().expect("softnet");
        assert_eq!(output.status.code(), Some(2));
        let said = text(&output.stderr);
        let lines: Vec<&str> = said.lines().collect();
        let start = format!("softnet: {}:", file.display());
        assert!(lines.iter().all(|line| line.starts_with(&start)), "{said}");
        // A name, a driver and an unknown key of each.
        assert_eq!(lines.len(), 21, "{said}");
        assert!(lines[20].ends_with(": and 119980 errors more"), "{said}");
    }
}

#[test]
fn files_that_cannot_be_read() {
    for verb in ["check", "run"] {
        let output = softnet()
            .args([verb, "/nonexistent/x.toml"])
            .output()
            .expect("softnet");
        assert_eq!(output.status.code(), Some(2));
        let line = text(&output.stderr);
        let expected = "softnet: /nonexistent/x.toml: cannot be read: No such file";
        assert!(line.starts_with(expected), "{line}");
    }
}

#[test]
fn the_examples_are_valid() {
    for (example, summary) in [
        (
            "two-hosts.toml",
            "2 ports, 1 bridge, 2 workers, 65536 buffers",
        ),
        ("vm.toml", "2 ports, 1 bridge, "),
    ] {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
        let output = softnet()
            .arg("check")
            .arg(path.join(example))
            .output()
            .expect("softnet");
        assert!(output.status.success(), "{}", text(&output.stderr));
        let line = text(&output.stdout);
        assert!(line.contains(&format!("valid: {summary}")), "{line}");
    }
}

/// Every configuration that the documents show is one that `softnet check` accepts.
#[test]
fn the_documents_examples_are_valid() {
    let scratch = Scratch::new("documents");
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let folder = std::fs::read_dir(root.join("docs")).expect("docs");
    let mut files: Vec<_> = folder.map(|entry| entry.expect("a file").path()).collect();
    files.push(root.join("README.md"));
    let mut examples = 0;
    for file in files {
        if file.extension().is_none_or(|extension| extension != "md") {
            continue;
        }
        let document = std::fs::read_to_string(&file).expect("a text");
        for block in document.split("```toml\n").skip(1) {
            let (example, _) = block.split_once("\n```").expect("the end of the example");
            let config = scratch.file("example.toml", example);
            let output = softnet()
                .arg("check")
                .arg(config)
                .output()
                .expect("softnet");
            let said = text(&output.stderr);
            assert!(output.status.success(), "{}: {said}", file.display());
            assert_eq!(said, "", "{}", file.display());
            examples += 1;
        }
    }
    assert!(examples > 0, "no document shows a configuration");
}

const WARNED: &str = "[[port]]\nname = \"p\"\ndriver = \"null\"\n[[port.qdisc]]\nhandle = \
                      \"1:\"\nkind = \"htb\"\ndefault = \"30\"\n";

#[test]
fn warnings_are_printed_and_strict_counts_them() {
    let scratch = Scratch::new("warned");
    let warned = scratch.file("warned.toml", WARNED);
    let good = scratch.file("good.toml", "");
    let bad = scratch.file("bad.toml", "x = 1\n");
    let check = |arguments: &[&Path]| {
        let output = softnet().arg("check").args(arguments).output();
        let output = output.expect("softnet");
        let said = text(&output.stderr);
        let of_default = said.contains(&format!("{}:7:11: warning: port", warned.display()));
        let is_warned = arguments.contains(&warned.as_path());
        assert_eq!(of_default, is_warned, "{said}");
        let valid = text(&output.stdout).matches(": valid: ").count();
        (output.status.code(), said.lines().count(), valid)
    };
    let strict = Path::new("--strict");
    assert_eq!(check(&[&warned]), (Some(0), 1, 1));
    assert_eq!(check(&[strict, &warned]), (Some(3), 2, 1));
    assert_eq!(check(&[strict, &good, &good]), (Some(0), 0, 2));
    assert_eq!(check(&[&warned, &bad, &good]), (Some(2), 2, 2));
    // The worst one is that of the exit code, wherever it is.
    assert_eq!(check(&[strict, &bad, &warned, &good]), (Some(2), 3, 2));
    assert_eq!(check(&[strict, &warned, &bad]), (Some(2), 3, 1));
}

#[test]
fn sim_prints_warnings() {
    let scratch = Scratch::new("sim-warned");
    let tree = scratch.file(
        "tree.toml",
        &WARNED[WARNED.find("[[port.q").expect("a qdisc")..],
    );
    let tree_text = std::fs::read_to_string(&tree)
        .expect("the tree")
        .replace("port.", "");
    std::fs::write(&tree, tree_text).expect("the tree");
    let output = softnet()
        .args(["sim", "--generate", "rate=1mbit,for=10ms", "--tree"])
        .arg(&tree)
        .output();
    let output = output.expect("softnet");
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{said}");
    let start = format!(
        "softnet: {}:4:11: warning: qdisc 1: default",
        tree.display()
    );
    assert!(said.starts_with(&start), "{said}");
}

#[test]
fn command_lines() {
    for arguments in [
        &[][..],
        &["walk"],
        &["check"],
        &["demo", "--seconds", "0"],
        &["demo", "--x"],
    ] {
        let output = softnet().args(arguments).output().expect("softnet");
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
    }
    for arguments in [&["--help"][..], &["run", "--help"], &["demo", "--help"]] {
        let output = softnet().args(arguments).output().expect("softnet");
        assert!(output.status.success());
        assert!(
            text(&output.stdout).contains("Exit codes:"),
            "{arguments:?}"
        );
    }
}

#[test]
fn a_port_that_cannot_be_opened() {
    let scratch = Scratch::new("unopened");
    let config = "[[port]]\nname = \"p\"\ndriver = \"tap\"\nnetns = \"softnet-nowhere\"\n";
    let line = complaint(&scratch, "run --strict", config);
    assert_eq!(
        line,
        "2:8: port \"p\" cannot be opened: there is no network namespace 'softnet-nowhere'; \
         make it with `ip netns add softnet-nowhere`"
    );
}

#[test]
fn all_ports_that_cannot_be_opened_are_named() {
    let scratch = Scratch::new("unopened-all");
    let port = |name: &str| {
        format!("[[port]]\nname = {name:?}\ndriver = \"tap\"\nnetns = \"softnet-nowhere\"\n")
    };
    let file = scratch.file("x.toml", &(port("p") + &port("q")));
    let output = softnet().args(["run", "--strict"]).arg(&file).output();
    let stderr = text(&output.expect("softnet").stderr);
    let file = file.display();
    let starts = [
        format!("softnet: {file}:2:8: port \"p\" cannot be opened: "),
        format!("softnet: {file}:6:8: port \"q\" cannot be opened: "),
    ];
    let lines: Vec<&str> = stderr.lines().collect();
    assert_eq!(lines.len(), starts.len(), "{stderr}");
    for (line, start) in lines.iter().zip(&starts) {
        assert!(line.starts_with(start.as_str()), "{stderr}");
    }
}

#[test]
fn ports_opened_before_the_one_that_fails_are_removed() {
    if !may_make_networks() || !has_program("ip") {
        return;
    }
    let before = HostState::now();
    let scratch = Scratch::new("removed");
    let netns = NamedNetns::new("removed");
    let port = |name: &str| {
        format!(
            "[[port]]\nname = {name:?}\ndriver = \"tap\"\nnetns = {:?}\n",
            netns.name
        )
    };
    // `lo` exists already.
    let line = complaint(&scratch, "run --strict", &(port("first") + &port("lo")));
    assert!(
        line.starts_with("6:8: port \"lo\" cannot be opened: "),
        "{line}"
    );
    assert!(
        !netns.interfaces().contains("first"),
        "the first port's device is left"
    );
    drop(netns);
    assert_eq!(HostState::now(), before);
}
