//! Groups of ports that share a rate.

use super::*;

/// Packets from and to ports of a group wait, and are not lost.
#[test]
fn a_rate_group_holds_back_and_a_reload_lets_go() {
    const DATAGRAMS: u32 = 60;
    if !may_make_networks() {
        return;
    }
    let scratch = Scratch::new("rate-group");
    let (a, b) = (NamedNetns::new("ra"), NamedNetns::new("rb"));
    let config = |group: &str| {
        let port = |name: &str, netns: &NamedNetns, address: u8| {
            format!(
                "[[port]]\nname = \"{name}\"\ndriver = \"tap\"\nnetns = {:?}\naddress = \
                 [\"10.9.8.{address}/24\"]\n{group}\n",
                netns.name
            )
        };
        format!(
            "[[rate_group]]\nname = \"slow\"\npps = 1\npps_burst = 20\n{}{}[[bridge]]\nname = \
             \"br0\"\nports = [\"a\", \"b\"]\n",
            port("a", &a, 1),
            port("b", &b, 2)
        )
    };
    let daemon = Daemon::start(&scratch, &config(""));
    let receiver = b.run(|| UdpSocket::bind("10.9.8.2:9").expect("a socket"));
    let sender = a.run(|| UdpSocket::bind("10.9.8.1:0").expect("a socket"));
    sender.connect("10.9.8.2:9").expect("a route");
    let timeout = Some(std::time::Duration::from_millis(200));
    receiver.set_read_timeout(timeout).expect("a timeout");
    let mut bytes = [0; 4];
    // Neighbours know each other.
    wait_for("a way", || {
        sender.send(&0_u32.to_be_bytes()).expect("sent");
        receiver.recv(&mut bytes).is_ok()
    });
    let mut received = Vec::new();
    let mut receive = |until: &mut dyn FnMut(usize) -> bool| {
        wait_for("datagrams", || {
            while receiver.recv(&mut bytes).is_ok() {
                received.push(u32::from_be_bytes(bytes));
            }
            // The first may come late.
            received.retain(|&n| n > 0);
            until(received.len())
        });
        received.clone()
    };

    daemon.write(&config("rate_group = \"slow\""));
    daemon.say("reload");
    assert!(daemon.say("dump-config").contains("rate_group = \"slow\""));
    for n in 1..=DATAGRAMS {
        sender.send(&n.to_be_bytes()).expect("sent");
    }
    // What the bucket holds passes, and one more in a second.
    receive(&mut |count| count >= 10);
    let passed = receive(&mut |_| true).len();
    let seconds = 30;
    assert!(passed < 20 + seconds, "{passed}");
    daemon.write(&config(""));
    daemon.say("reload");
    let received = receive(&mut |count| count == DATAGRAMS as usize);
    assert!(received.is_sorted(), "{received:?}");
    daemon.write(&config("rate_group = \"fast\""));
    assert!(
        !daemon.ask("reload").status.success(),
        "there is no such group"
    );
    daemon.stop();
}

#[test]
fn rate_groups_are_reloaded() {
    let config = |groups: &str, of_a: &str| {
        format!(
            "[engine]\nworkers = 1\nbuffers = 256\n{groups}\
             [[port]]\nname = \"a\"\ndriver = \"null\"\n{of_a}"
        )
    };
    let group =
        |name: &str, limits: &str| format!("[[rate_group]]\nname = \"{name}\"\n{limits}\n");
    let scratch = Scratch::new("reload-groups");
    let first = config(&group("g", "rate = \"10mbit\""), "rate_group = \"g\"\n");
    let daemon = Daemon::start(&scratch, &first);
    let sent = |daemon: &Daemon| daemon.stats()["ports"].clone();
    let before = sent(&daemon);
    for (groups, member, expected) in [
        (
            group(
                "g",
                "rate = \"20mbit\"\nburst = \"64k\"\npps = 7\npps_burst = 9",
            ),
            "g",
            vec!["rate = \"20000000bit\"\nburst = \"65536b\"\npps = 7\npps_burst = 9\n"],
        ),
        (
            group("g", "pps = 8") + &group("h", "pps = 5"),
            "h",
            vec![
                "name = \"g\"\npps = 8\n",
                "name = \"h\"\npps = 5\n",
                "rate_group = \"h\"",
            ],
        ),
        (group("h", "pps = 6"), "h", vec!["name = \"h\"\npps = 6\n"]),
    ] {
        daemon.write(&config(&groups, &format!("rate_group = \"{member}\"\n")));
        daemon.say("reload");
        let dumped = daemon.say("dump-config");
        for part in expected {
            assert!(dumped.contains(part), "{part:?} in\n{dumped}");
        }
    }
    assert!(!daemon.say("dump-config").contains("name = \"g\""));
    // In place: the port is the one that it was.
    assert_eq!(sent(&daemon), before);
    daemon.stop();
}
