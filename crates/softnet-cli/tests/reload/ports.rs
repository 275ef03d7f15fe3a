//! Ports and their devices.

use super::*;

/// Limits of what a port may send: dumped as it runs, changed in place, and back after a reload
/// that fails.
#[test]
fn what_ports_may_send_is_reloaded() {
    let config = |first: &str| {
        format!(
            "[engine]\nworkers = 1\nbuffers = 256\n\
             [[port]]\nname = \"a\"\ndriver = \"null\"\n{first}\
             [[port]]\nname = \"b\"\ndriver = \"null\"\n\
             [[bridge]]\nname = \"br0\"\nports = [\"a\", \"b\"]\n"
        )
    };
    let guarded = config(
        "isolated = true\nlocked = true\nallowed_macs = [\"02:00:00:00:00:01\"]\n\
         allowed_ips = [\"10.0.0.5/32\", \"fd00::/64\"]\nstorm = { broadcast = 7 }\n",
    );
    let limited = config("max_macs = 3\n");
    let scratch = Scratch::new("reload-guard");
    let daemon = Daemon::start(&scratch, &guarded);
    let first = daemon.say("dump-config");
    for part in [
        "isolated = true\nlocked = true\n",
        "allowed_macs = [\"02:00:00:00:00:01\"]\n",
        "allowed_ips = [\"10.0.0.5/32\", \"fd00::/64\"]\n",
        "storm = { broadcast = 7 }\n",
    ] {
        assert!(first.contains(part), "{part:?} in\n{first}");
    }
    if has_program("bridge") {
        let shown = daemon.run("bridge -d link show dev a");
        assert!(shown.contains("isolated on locked on"), "{shown}");
        let shown = daemon.run("bridge -d link show dev b");
        assert!(shown.contains("isolated off locked off"), "{shown}");
        daemon.run("bridge link set dev a isolated off locked off learning off");
        assert!(!daemon.say("dump-config").contains("locked"));
        daemon.run("bridge link set dev b isolated on");
        assert!(daemon.say("dump-config").contains("isolated"));
    }
    let tap = "[[port]]\nname = \"t\"\ndriver = \"tap\"\nnetns = \"softnet-no-such\"\n";
    daemon.write(&(limited.clone() + tap));
    let before = daemon.say("dump-config");
    assert_eq!(daemon.ask("reload").status.code(), Some(2));
    assert_eq!(daemon.say("dump-config"), before);
    daemon.write(&limited);
    daemon.say("reload");
    let second = daemon.say("dump-config");
    assert!(second.contains("max_macs = 3\n"), "{second}");
    for gone in ["isolated", "locked", "allowed", "storm"] {
        assert!(!second.contains(gone), "{second}");
    }
    daemon.write(&guarded);
    daemon.say("reload");
    let dumped = daemon.say("dump-config");
    let lines = dumped.lines().filter(|line| !line.starts_with('#'));
    assert!(lines.eq(first.lines()), "{dumped}");
    if has_program("bridge") {
        let shown = daemon.run("bridge -d link show dev a");
        assert!(shown.contains("learning on"), "{shown}");
    }
    daemon.stop();
}

#[test]
fn other_ports_lose_nothing() {
    if !may_make_networks() || !has_program("ip") {
        return;
    }
    let scratch = Scratch::new("reload-traffic");
    let (a, b) = (NamedNetns::new("la"), NamedNetns::new("lb"));
    let config = |more: &str| {
        let tree = "[[port.qdisc]]\nkind = \"prio\"\nhandle = \"1:\"";
        two_ports((&a, ""), (&b, tree)) + more
    };
    let one = config("[[port]]\nname = \"x\"\ndriver = \"null\"\nqdisc = { kind = \"fq\" }\n");
    let two = config("[[port]]\nname = \"y\"\ndriver = \"null\"\n[[bridge]]\nname = \"br1\"\n");
    let daemon = Daemon::start(&scratch, &one);
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (done, a, b) = (&done, &a, &b);
        scope.spawn(move || transfer(a, b, done));
        let mut sent = 0;
        for round in 0..10 {
            // Packets flow all the while.
            wait_for("traffic", || {
                let now = number(port(&daemon.stats(), "eth-b").expect("eth-b"), "tx_packets");
                let more = now > sent + 50;
                sent = if more { now } else { sent };
                more
            });
            daemon.write(if round % 2 == 0 { &two } else { &one });
            daemon.say("reload");
            let stats = daemon.stats();
            let now = number(port(&stats, "eth-b").expect("eth-b"), "tx_packets");
            assert!(now >= sent, "counted anew: {now} after {sent}");
            assert_eq!(port(&stats, "x").is_some(), round % 2 == 1);
            assert_eq!(port(&stats, "y").is_some(), round % 2 == 0);
        }
        done.store(true, Ordering::Relaxed);
    });
    let stats = daemon.stats();
    for name in ["eth-a", "eth-b"] {
        let port = port(&stats, name).expect(name);
        assert_eq!(port["drops"], serde_json::json!({}), "{stats}");
    }
    // It says so if a packet is not accounted for.
    assert_eq!(daemon.stop().matches("reloaded: ").count(), 10);
}

/// Sends bytes from one host to the other until it is done, and checks that all arrive.
fn transfer(a: &NamedNetns, b: &NamedNetns, done: &AtomicBool) {
    let listener = b.run(|| TcpListener::bind("10.9.0.2:0").expect("listening"));
    let address = listener.local_addr().expect("its address");
    std::thread::scope(|scope| {
        let receiver = scope.spawn(move || {
            let (mut stream, _) = listener.accept().expect("a connection");
            stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
            std::io::copy(&mut stream, &mut std::io::sink()).expect("receiving")
        });
        let mut stream = a.run(|| TcpStream::connect(address).expect("connecting"));
        stream.set_write_timeout(Some(PATIENCE)).expect("a timeout");
        let mut sent = 0;
        while !done.load(Ordering::Relaxed) {
            stream.write_all(&[7; 4096]).expect("sending");
            sent += 4096;
            // Few enough that no queue overflows on any machine.
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        drop(stream);
        assert_eq!(receiver.join().expect("the receiver"), sent);
    });
}

/// A port has its device, whatever it is called: by `ip`, or by the file.
#[test]
fn a_renamed_port_keeps_its_device() {
    if !may_make_networks() || !has_program("ip") {
        return;
    }
    let scratch = Scratch::new("reload-rename");
    let netns = NamedNetns::new("rn");
    let socket = |n: u8| scratch.path(&format!("vm{n}.sock"));
    let config = |first: &str, second: &str| {
        format!(
            "[engine]\nworkers = 1\nbuffers = 256\n\
             [[port]]\nname = \"t\"\ndriver = \"tap\"\nnetns = {:?}\n\
             [[port]]\nname = \"{first}\"\ndriver = \"vhost_user\"\nsocket = {:?}\n\
             [[port]]\nname = \"{second}\"\ndriver = \"vhost_user\"\nsocket = {:?}\n\
             [[bridge]]\nname = \"br0\"\nports = [\"{first}\"]\n",
            netns.name,
            socket(1),
            socket(2)
        )
    };
    let daemon = Daemon::start(&scratch, &config("vm1", "vm2"));
    let links = netns.run(|| Links::open().expect("a socket"));
    let interface = || links.index("t").expect("the interface");
    let devices = || {
        let inode = |n| fs::metadata(socket(n)).expect("a socket").ino();
        (interface(), inode(1), inode(2))
    };
    let before = devices();
    daemon.run("ip link set dev t name web1");
    daemon.run("ip link set dev vm1 name web2");
    daemon.say("reload");
    let dumped = daemon.say("dump-config");
    assert!(
        dumped.contains("name = \"t\"") && dumped.contains("name = \"vm1\""),
        "{dumped}"
    );
    // In the file: another name, the other one's, and that of a bridge.
    for (first, second) in [("web", "vm2"), ("vm2", "web"), ("vm1", "br1")] {
        daemon.write(&config(first, second));
        daemon.say("reload");
        let dumped = daemon.say("dump-config");
        for (name, n) in [(first, 1), (second, 2)] {
            let port = format!(
                "name = \"{name}\"\ndriver = \"vhost_user\"\nsocket = {:?}",
                socket(n)
            );
            assert!(dumped.contains(&port), "{port} in\n{dumped}");
        }
        assert!(
            dumped.contains(&format!("ports = [\"{first}\"]")),
            "{dumped}"
        );
    }
    assert_eq!(devices(), before);
    daemon.stop();
}

/// A device that cannot be opened is found before another is touched.
#[test]
fn a_refused_reload_leaves_every_device() {
    if !may_make_networks() || !has_program("ip") {
        return;
    }
    let scratch = Scratch::new("reload-devices");
    let netns = NamedNetns::new("rd");
    let config = |queues: u8, more: &str| {
        format!(
            "[engine]\nworkers = 1\nbuffers = 256\n\
             [[port]]\nname = \"t\"\ndriver = \"tap\"\nnetns = {:?}\nqueues = {queues}\n{more}",
            netns.name
        )
    };
    let daemon = Daemon::start(&scratch, &config(1, ""));
    netns.ip(&["addr", "add", "10.3.2.1/24", "dev", "t"]);
    let file = scratch.file("a-file", "");
    let vm = format!("[[port]]\nname = \"v\"\ndriver = \"vhost_user\"\nsocket = {file:?}\n");
    daemon.write(&config(2, &vm));
    assert_eq!(daemon.ask("reload").status.code(), Some(2));
    // By hand, and still there: the interface is the one that it was.
    netns.ip(&["addr", "del", "10.3.2.1/24", "dev", "t"]);
    daemon.write(&config(2, ""));
    daemon.say("reload");
    assert!(daemon.say("dump-config").contains("queues = 2"));
    daemon.stop();
}

/// Not all of the file is there: the rest runs, and what was missing comes when it can.
#[test]
fn a_port_that_cannot_be_opened_does_not_stop_the_start() {
    if !may_make_networks() || !has_program("ip") {
        return;
    }
    let scratch = Scratch::new("start-missing");
    let name = format!("softnet-test-{}-late", std::process::id());
    let socket = scratch.file("vm.sock", "in the way");
    let config = format!(
        "[engine]\nworkers = 1\nbuffers = 256\n\
         [[port]]\nname = \"a\"\ndriver = \"null\"\n\
         [[port]]\nname = \"t\"\ndriver = \"tap\"\nnetns = {name:?}\nqueues = 2\nlocked = true\n\
         qdisc = {{ kind = \"tbf\", rate = \"1mbit\", burst = \"10k\", limit = \"1m\" }}\n\
         [[port]]\nname = \"v\"\ndriver = \"vhost_user\"\nsocket = {socket:?}\n\
         [[bridge]]\nname = \"br0\"\nports = [\"a\", \"t\", \"v\"]\n"
    );
    let path = scratch.file("strict.toml", &config);
    let mut strict = softnet();
    let output = strict.arg("run").arg("--strict").arg(&path).output();
    let output = output.expect("softnet");
    assert_eq!(output.status.code(), Some(2), "{}", text(&output.stderr));
    let daemon = Daemon::start(&scratch, &config);
    let first = daemon.say("dump-config");
    assert!(first.contains("kind = \"tbf\""), "{first}");
    // The file is as it was: nothing is to be opened, and nothing refused.
    daemon.say("reload");
    assert_eq!(daemon.say("dump-config"), first);
    fs::remove_file(&socket).expect("ours");
    let netns = NamedNetns::new("late");
    assert_eq!(netns.name, name);
    wait_for("the ports", || {
        netns.interfaces().contains("t") && socket.exists()
    });
    assert_eq!(daemon.say("dump-config"), first);
    let noted = daemon.stop();
    for port in ["t", "v"] {
        for what in ["cannot be opened yet: ", "open again"] {
            assert!(
                noted.contains(&format!("port \"{port}\": {what}")),
                "{noted}"
            );
        }
    }
}

/// A group's rates are changed in place, and groups come and go.
/// What a host sends to a port that is down would be lost without a word.
#[test]
fn a_tap_device_has_a_carrier_while_its_port_is_up() {
    if !may_make_networks() || !has_program("ip") {
        return;
    }
    let (netns, scratch) = (NamedNetns::new("carrier"), Scratch::new("carrier"));
    let config = |up: bool| {
        let netns = &netns.name;
        format!("[[port]]\nname = \"c0\"\ndriver = \"tap\"\nnetns = {netns:?}\nup = {up}\n")
    };
    let carrier = || {
        let file = "/sys/class/net/c0/carrier";
        let mut ip = Command::new("ip");
        let output = ip
            .args(["netns", "exec", &netns.name, "cat", file])
            .output();
        text(&output.expect("ip").stdout).trim().to_owned()
    };
    let daemon = Daemon::start(&scratch, &config(true));
    assert_eq!(carrier(), "1");
    daemon.run("ip link set c0 down");
    assert_eq!(carrier(), "0");
    daemon.run("ip link set c0 up");
    assert_eq!(carrier(), "1");
    daemon.write(&config(false));
    daemon.say("reload");
    assert_eq!(carrier(), "0");
    // So has one that is made again.
    netns.ip(&["link", "del", "c0"]);
    wait_for("the device", || carrier() == "0");
    daemon.write(&config(true));
    daemon.say("reload");
    assert_eq!(carrier(), "1");
    daemon.stop();
}
