//! Stories of packets, and flows, by captures of both ports.

use std::sync::atomic::{AtomicBool, Ordering};

use super::*;

impl Shaped {
    /// Ways of 100 packets to port 5001, a line each.
    fn story(&self) -> String {
        let mut command = self.command("capture eth-a eth-b -c 100");
        let story = Running::start(command.args(["--story", "udp dst port 5001"]));
        wait_for("the captures", || self.captures() == 4);
        // More than the class holds, all the same to the byte.
        self.send(5001, 100);
        self.send(5002, 10);
        let output = story.finish();
        assert!(output.status.success(), "{}", text(&output.stderr));
        assert!(text(&output.stderr).contains("packets told: 100, missed: 0"));
        let said = text(&output.stdout);
        assert_eq!(said.lines().count(), 100, "{said}");
        let packet = "> 10.9.0.2:5001 udp, length 1042: ";
        assert!(said.lines().all(|way| way.contains(packet)), "{said}");
        wait_for("their end", || self.captures() == 0);
        said
    }

    /// Flows to port 5001 in an interval.
    fn flows(&self, of: &str) -> Vec<serde_json::Value> {
        let mut command = self.command(&format!("top --once --json --flows {of}"));
        let output = command.output().expect("softnet");
        assert!(output.status.success(), "{}", text(&output.stderr));
        let shown: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
        let flows = shown["flows"].as_array().expect("flows").iter();
        let ours = flows.filter(|flow| {
            let name = flow["name"].as_str().unwrap_or_default();
            name.ends_with("> 10.9.0.2:5001 udp")
        });
        ours.cloned().collect()
    }
}

/// Ends the load when it is dropped, in a panic too.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn stories_tell_the_ways_of_packets() {
    if !may_make_networks() {
        return;
    }
    let daemon = Shaped::start("story", "1mbit");
    let mut of_three = daemon.command("capture eth-a eth-b udp --story port");
    let output = of_three.output().expect("softnet");
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("two ports at most"));
    // A capture that gets no CPU for a second is not waited for: it would tell half of the ways.
    let told = (0..5).any(|_| {
        let said = daemon.story();
        let have = |start: &str, end: &str| {
            let mut ways = said.lines();
            ways.any(|way| way.contains(start) && way.ends_with(end))
        };
        println!("{said}");
        let received = "length 1042: received at eth-a";
        let dropped = "class 1:20; dropped: qdisc_limit. The qdisc's limit was reached.";
        have(received, "at eth-b, queue 0, class 1:20; sent") && have(received, dropped)
    });
    assert!(told, "no packet was sent, or none dropped");
    daemon.end();
}

#[test]
fn top_shows_flows() {
    if !may_make_networks() {
        return;
    }
    let daemon = Shaped::start("flows", "1mbit");
    let of_none = daemon.command("top --once --flows eth-c").output();
    let of_none = of_none.expect("softnet");
    assert_eq!(of_none.status.code(), Some(2));
    assert!(text(&of_none.stderr).contains("there is no port \"eth-c\""));
    let sum = |flows: &[serde_json::Value], key: &str| {
        let numbers = flows.iter().filter_map(|flow| flow[key].as_f64());
        numbers.sum::<f64>()
    };
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        // More than the class lets out.
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                daemon.send(5001, 10);
                thread::sleep(Duration::from_millis(5));
            }
        });
        let _over = Over(&done);
        // Where one of all these gets no CPU for an interval, it shows nothing.
        wait_for("flows that arrive", || {
            let arriving = daemon.flows("eth-a");
            assert!(arriving.iter().all(|flow| flow["what"] == "in"));
            sum(&arriving, "rx_bits_per_second") > 0.0
        });
        wait_for("flows that leave", || {
            let leaving = daemon.flows("eth-b:1:20");
            assert!(leaving.iter().all(|flow| flow["what"] == "out"));
            let keys = ["tx_packets_per_second", "drops_per_second", "delay_ns"];
            keys.into_iter().all(|key| sum(&leaving, key) > 0.0)
        });
    });
    wait_for("its end", || daemon.captures() == 0);
    daemon.end();
}
