//! `softnet sim` on the policies that people have: files, scripts, expectations.

use std::fs;
use std::path::Path;
use std::process::Output;

use crate::common::{Scratch, has_program, may_make_networks, softnet, text};
use serde_json::Value;

const CONFIG: &str = "[[port]]\nname = \"web\"\ndriver = \"null\"\n\
    [[port.qdisc]]\nhandle = \"1:\"\nkind = \"tbf\"\nrate = \"10mbit\"\nburst = \"16k\"\n\
    latency = \"100ms\"\n";

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
        (["--expect", "bulck rate > 1mbit"], "is \"bulk\" meant?"),
        (["--expect", "1:2 rate > 1mbit"], "is \"1:\" meant?"),
        (["--expect", "web rate > 9"], "\"9\" has no unit"),
        (
            ["--generate", "tcp=1,for=1s,cc=vegas"],
            "reno, cubic, dctcp or bbr",
        ),
        (["--port", "db"], "cannot be used multiple times"),
    ] {
        let output = run(&wrong);
        let said = text(&output.stderr) + &text(&output.stdout);
        assert!(said.contains(part), "{wrong:?}: {said}");
        assert_eq!(output.status.code(), Some(2), "{wrong:?}: {said}");
    }
    let twice = ["--generate", "name=web,rate=1mbit,for=1s"];
    let output = run(&[&twice[..], &good].concat());
    assert_eq!(output.status.code(), Some(2));
    let said = text(&output.stderr);
    assert!(
        said.contains("expectation of \"web\": column 1: the port and a flow"),
        "{said}"
    );
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
        code == Some(2) && said.contains(":12:8: key `expect.expr`: column 5: \"speed\""),
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

/// Random numbers of qdiscs come from the seed.
#[test]
fn chance_is_the_same_in_every_process() {
    let scratch = Scratch::new("chance");
    let netem = "[[qdisc]]\nkind = \"netem\"\nlimit = 100\nrate = \"20mbit\"\n\
                 delay = \"5ms\"\njitter = \"2ms\"\nloss = \"2%\"\n";
    let red = "[[qdisc]]\nhandle = \"1:\"\nkind = \"tbf\"\nrate = \"10mbit\"\nburst = \"16k\"\n\
               latency = \"1s\"\n[[qdisc]]\nparent = \"1:1\"\nkind = \"red\"\nlimit = \"400k\"\n\
               min = \"30k\"\nmax = \"90k\"\navpkt = 1000\nburst = 55\nbandwidth = \"10mbit\"\n";
    for (name, tree) in [("netem.toml", netem), ("red.toml", red)] {
        assert!(differs_by_the_seed_alone(&scratch.file(name, tree)));
    }
}

/// Flows meet in queues by the hash of their headers and the seed; in cake by the hash alone.
#[test]
fn flows_meet_alike_in_every_process() {
    let scratch = Scratch::new("meet");
    for kind in [
        "fq_codel\"\nflows = 64",
        "sfq\"\ndivisor = 64",
        "cake\"\nbandwidth = \"9mbit\"",
    ] {
        let tree = format!("[[qdisc]]\nkind = \"{kind}\n");
        let differs = differs_by_the_seed_alone(&scratch.file("tree.toml", &tree));
        assert_eq!(differs, !kind.starts_with("cake"), "{kind}");
    }
}

/// True if results of another seed are others; those of the same one are not.
fn differs_by_the_seed_alone(tree: &Path) -> bool {
    let tree = tree.to_str().expect("a path");
    let words = ["--tree", tree, "--link", "10mbit", "--json", "--generate"];
    let run = |more: &[&str]| {
        let output = sim(&[&words[..], &["tcp=64,for=3s"], more].concat());
        assert!(output.status.success(), "{}", text(&output.stderr));
        output.stdout
    };
    let once = run(&[]);
    assert_eq!(text(&once), text(&run(&[])));
    assert_eq!(text(&run(&["--seed", "2"])), text(&run(&["--seed", "2"])));
    once != run(&["--seed", "2"])
}

/// The first policy decides; the other one is told, and writes nothing.
#[test]
fn two_policies_side_by_side() {
    let scratch = Scratch::new("side-by-side");
    let config = scratch.file("config.toml", CONFIG);
    let faster = scratch.file("faster.toml", &CONFIG.replace("10mbit", "20mbit"));
    let tree = scratch.file("tree.toml", "[[qdisc]]\nkind = \"pfifo\"\nlimit = 5\n");
    let (junit, pcap) = (scratch.path("sim.xml"), scratch.path("out.pcap"));
    let run = |other: &Path, input: &[&str], expect: &str| {
        let mut command = softnet();
        command
            .args(["sim", "--port", "web", "--config"])
            .arg(&config);
        command
            .arg("--compare")
            .arg(other)
            .arg("--junit")
            .arg(&junit);
        command
            .arg("--out")
            .arg(&pcap)
            .args(input)
            .args(["--expect", expect]);
        command
    };
    let flow = ["--generate", "name=bulk,rate=15mbit,for=2s"];
    let output = run(&faster, &flow, "web rate < 11mbit")
        .output()
        .expect("softnet");
    let told = text_of(&output);
    assert_eq!(output.status.code(), Some(0), "{told}");
    assert!(
        told.contains("failed: web rate < 11mbit: it is 15."),
        "{told}"
    );
    let line = told.lines().find(|line| line.starts_with("bulk  rate"));
    let words: Vec<&str> = line.expect("side by side").split_whitespace().collect();
    let named = format!("{}\nclass", config.display());
    assert!(told.starts_with(&named), "{told}");
    assert!(
        words[2].starts_with("10.0") && words[4].starts_with("15.0"),
        "{told}"
    );
    let xml = fs::read_to_string(&junit).expect("a file");
    assert!(xml.contains("tests=\"1\" failures=\"0\""), "{xml}");
    let captured = fs::read(&pcap).expect("a capture");
    let output = run(&tree, &flow, "web rate > 11mbit")
        .output()
        .expect("softnet");
    let told = text_of(&output);
    assert_eq!(output.status.code(), Some(3), "{told}");
    assert!(told.contains("1 of 1 expectations failed"), "{told}");
    assert!(
        fs::read_to_string(&junit)
            .expect("a file")
            .contains("failures=\"1\"")
    );
    assert_eq!(
        fs::read(&pcap).expect("a capture"),
        captured,
        "of the first policy"
    );
    // What is piped in goes to both.
    let piped = scratch.file("piped.pcap", "");
    fs::write(&piped, &captured).expect("a file");
    let mut command = run(&tree, &["--pcap", "-", "--json"], "web drops = 0");
    command.stdin(fs::File::open(&piped).expect("a file"));
    let output = command.output().expect("softnet");
    assert_eq!(output.status.code(), Some(0), "{}", text_of(&output));
    let told: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let arrived = |place: usize| told["compared"][place]["arrived"].as_u64();
    assert!(
        arrived(0) > Some(1000) && arrived(0) == arrived(1),
        "{told}"
    );
    // Mistakes are found before anything runs.
    let missing = scratch.path("no.toml");
    let output = run(&missing, &flow, "web rate < 11mbit")
        .output()
        .expect("softnet");
    assert!(output.status.code() == Some(2) && output.stdout.is_empty());
}

#[test]
fn senders_that_cannot_be_are_refused() {
    let scratch = Scratch::new("senders");
    let tree = scratch.file("tree.toml", "[[qdisc]]\nkind = \"pfifo\"\n");
    let run = |flows: &[&str]| {
        let mut command = softnet();
        command.args(["sim", "--tree"]).arg(&tree);
        flows.iter().for_each(|flow| {
            command.args(["--generate", flow]);
        });
        let output = command.output().expect("softnet");
        (output.status.code(), text_of(&output))
    };
    let (code, said) = run(&["tcp=1,rtt=0ms,for=1s"]);
    assert!(
        code == Some(2) && said.contains("the shortest is 1us"),
        "{said}"
    );
    let one = "rate=1mbit,for=1s,sport=7";
    let (code, said) = run(&[one, one]);
    assert!(
        code == Some(2) && said.contains("--generate, number 2: two senders from 10.0.0.1 port 7"),
        "{said}"
    );
    let (code, said) = run(&["tcp=2,sport=7,for=1s", "tcp=1,sport=8,for=1s"]);
    assert!(code == Some(2) && said.contains("port 8"), "{said}");
    let (code, said) = run(&["rate=1mbit,for=1s", "rate=1mbit,for=1s", "tcp=2,for=100ms"]);
    assert_eq!(code, Some(0), "{said}");
}

/// A port's keys that one queue does not have are told, and not passed over.
#[test]
fn what_is_not_simulated_of_a_port_is_told() {
    let scratch = Scratch::new("not-simulated");
    let run = |port: &str, expect: &str| {
        let text = format!("[[port]]\nname = \"web\"\ndriver = \"null\"\n{port}");
        let config = scratch.file("config.toml", &text);
        let config = config.to_str().expect("a path");
        let words = [
            "--config", config, "--port", "web", "--link", "1mbit", "--expect", expect,
        ];
        let flow = ["--generate", "name=a,rate=1050kbit,for=1400ms"];
        let output = sim(&[&words[..], &flow].concat());
        (output.status.code(), text_of(&output))
    };
    let (code, said) = run("qdisc = { kind = \"codel\" }\n", "root drops = 0");
    assert_eq!(code, Some(3), "{said}");
    let (code, said) = run(
        "mtu = 9000\nqdisc = { kind = \"codel\" }\n",
        "root drops = 0",
    );
    assert_eq!(code, Some(0), "{said}");
    assert!(!said.contains("warning"), "{said}");
    let parallel = "queues = 2\nparallel = true\nrate_group = \"all\"\nmirror = { to = \"web\" }\n\
                    qdisc = { kind = \"pfifo\" }\n[[rate_group]]\nname = \"all\"\n\
                    rate = \"1mbit\"\nburst = \"16k\"\n";
    let (code, said) = run(parallel, "root drops = 0");
    assert_eq!(code, Some(0), "{said}");
    for part in ["parallel (", "rate_group (", "redirect and mirror"] {
        assert!(said.contains(part), "{part}: {said}");
    }
    let mq = "queues = 2\n[[port.qdisc]]\nhandle = \"1:\"\nkind = \"mq\"\n[[port.qdisc]]\n\
              parent = \"1:1\"\nhandle = \"10:\"\nkind = \"htb\"\ndefault = \"1\"\n\
              [[port.class]]\nclassid = \"10:1\"\nrate = \"10mbit\"\n[[port.class]]\n\
              parent = \"10:1\"\nclassid = \"10:2\"\nrate = \"1mbit\"\n[[port.filter]]\n\
              parent = \"10:\"\ndst_port = 9\nip_proto = \"udp\"\nflowid = \"10:2\"\n";
    let (code, said) = run(mq, "10:2 rate > 900kbit");
    assert_eq!(code, Some(0), "{said}");
    assert!(
        said.contains("one queue is simulated: the first one of mq 1:"),
        "{said}"
    );
    let hook = "[[port.qdisc]]\nkind = \"clsact\"\n[[port.filter]]\nparent = \"ingress\"\n\
                kind = \"matchall\"\naction = \"drop\"\n";
    let (code, said) = run(hook, "root drops = 0");
    assert_eq!(code, Some(0), "{said}");
    assert!(
        said.contains("filters of ingress and of blocks are not simulated"),
        "{said}"
    );
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
    assert!(said.contains("it was given is \"eth0\""), "{said}");
    let (code, said) = run("ip link del dev eth0\n");
    assert!(
        code == Some(2) && said.contains("leaves no device \"eth0\""),
        "{said}"
    );
    let (code, said) = run("tc qdisc add dev eth0 root tbf rate 1mbit burst 10k latency 1s\n");
    assert_eq!(code, Some(0), "{said}");
    // `ip link` probes; only what the script leaves shows that there is no such class.
    let (code, said) = run("ip link show\ntc qdisc add dev eth0 root handle 1: htb default 10\n");
    assert_eq!(code, Some(0), "{said}");
    assert!(
        said.contains("warning: 1: default names class 1:10") && !said.contains("refused"),
        "{said}"
    );
}
