//! The unmodified tc with the daemon: a large batch, and what others hear of it.

use std::fmt::Write;
use std::fs;

use rustix::process::Signal;

use super::exec;
use crate::common::{Daemon, Running, Scratch, has_program, text, wait_for};

#[test]
fn a_batch_of_classes_is_added_shown_and_heard_of() {
    if !has_program("tc") || !has_program("ip") {
        return;
    }
    const CLASSES: usize = 2000;
    let scratch = Scratch::new("tc");
    let config = "[[port]]\nname = \"p0\"\ndriver = \"null\"\nqueues = 2\n";
    let daemon = Daemon::start(&scratch, config);
    let tc = |arguments: &[&str]| {
        let output = exec(&daemon.socket, &[&["tc"], arguments].concat()).output();
        output.expect("softnet")
    };
    let show = |arguments: &[&str]| {
        let output = tc(arguments);
        assert!(output.status.success(), "{}", text(&output.stderr));
        text(&output.stdout)
    };
    wait_for("the port's qdisc", || {
        let shown = text(&tc(&["qdisc", "show", "dev", "p0"]).stdout);
        shown.contains("qdisc noqueue 0: root refcnt 2")
    });

    let heard = scratch.path("heard");
    let script = "exec tc monitor >\"$0\"";
    let heard_by = heard.to_str().expect("a path");
    let mut monitor = Running::start(&mut exec(&daemon.socket, &["sh", "-c", script, heard_by]));
    let hears = |line: &str| {
        let text = fs::read_to_string(&heard).unwrap_or_default();
        text.lines().any(|heard| heard.trim() == line)
    };
    wait_for("the monitor", || {
        monitor.assert_running();
        assert!(
            tc(&["qdisc", "replace", "dev", "p0", "root", "pfifo"])
                .status
                .success()
        );
        hears("qdisc pfifo 8001: dev p0 root refcnt 3 limit 1000p")
    });

    for command in [
        "qdisc replace dev p0 root handle 1: htb default 2",
        "class add dev p0 parent 1: classid 1:3 htb rate 1mbit",
        "class del dev p0 classid 1:3",
    ] {
        let arguments: Vec<_> = command.split(' ').collect();
        assert!(tc(&arguments).status.success());
    }
    for line in [
        "deleted qdisc pfifo 8001: dev p0 root refcnt 3 limit 1000p",
        "class htb 1:3 dev p0 root prio 0 rate 1Mbit ceil 1Mbit burst 1600b cburst 1600b",
        "deleted class htb 1:3 dev p0 root prio 0 rate 1Mbit ceil 1Mbit burst 1600b cburst 1600b",
    ] {
        wait_for(line, || hears(line));
    }
    monitor.signal(Signal::TERM);
    monitor.finish();

    let mut batch = String::from("qdisc replace dev p0 root handle 2: htb default 2\n");
    for class in 2..2 + CLASSES {
        writeln!(
            batch,
            "class add dev p0 parent 2: classid 2:{class:x} htb rate 1mbit quantum 1500"
        )
        .expect("a string");
    }
    batch.push_str("qdisc add dev p0 parent 2:2 fq_codel\n");
    let batch = scratch.file("batch", &batch);
    let output = tc(&["-batch", batch.to_str().expect("a path")]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let shown = show(&["-s", "-d", "class", "show", "dev", "p0"]);
    assert_eq!(shown.matches("class htb 2:").count(), CLASSES);
    assert!(shown.starts_with("class htb 2:2 root leaf 8002: prio 0 quantum 1500 rate 1Mbit"));
    let json = show(&["-j", "-s", "qdisc", "show", "dev", "p0"]);
    let fq_codel =
        r#"{"kind":"fq_codel","handle":"8002:","parent":"2:2","options":{"limit":10240"#;
    assert!(json.contains(fq_codel), "{json}");
    // A line that fails ends a batch, and says which it was.
    let bad = "class add dev p0 parent 2: classid 2:2 htb rate 1mbit\nqdisc del dev p0 root\n";
    let bad = scratch.file("bad", bad);
    let output = tc(&["-batch", bad.to_str().expect("a path")]);
    assert_eq!(output.status.code(), Some(1));
    let stderr = text(&output.stderr);
    assert!(
        stderr.contains("File exists") && stderr.contains("bad:1"),
        "{stderr}"
    );
    assert!(show(&["qdisc", "show", "dev", "p0"]).contains("qdisc htb 2: root"));
    // The daemon shows at its end what there is.
    assert!(tc(&["qdisc", "del", "dev", "p0", "root"]).status.success());
    assert_eq!(show(&["class", "show", "dev", "p0"]), "");
    daemon.stop();
}
