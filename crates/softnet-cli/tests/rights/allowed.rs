//! Things of others that ports open at run time.

use super::*;

/// Things of others that a port added at run time opens: none but those that `allow` has at this
/// moment.
#[test]
fn ports_at_run_time_open_what_is_allowed() {
    if !may_make_networks() || !has_program("ip") {
        return;
    }
    let scratch = Scratch::new("allow");
    let netns = NamedNetns::new("allow");
    netns.ip(&["link", "add", "v0", "type", "veth", "peer", "name", "v1"]);
    netns.ip(&["link", "set", "v0", "up"]);
    let peer = scratch.path("peer.sock");
    let _listener = std::os::unix::net::UnixListener::bind(&peer).expect("ours");
    let state = scratch.path("state");
    let conf = scratch.path("conf.d");
    fs::create_dir(&conf).expect("ours");
    let port = "[[port]]\nname = \"n\"\ndriver = \"null\"\n";
    let file = |allow: &str| {
        format!(
            "include = [\"conf.d/*.toml\"]\n[engine]\nworkers = 1\nbuffers = 256\n\
             state = {state:?}\nallow = [{allow}]\n{port}"
        )
    };
    let config = scratch.file("allow.toml", &file(""));
    let daemon = crate::common::Daemon::on(config.clone(), scratch.path("s"));
    let ask = |words: &[String]| {
        let mut command = softnet();
        command.arg("--socket").arg(&daemon.socket);
        let output = command.args(words).output().expect("softnet");
        match output.status.success() {
            true => Ok(text(&output.stdout)),
            false => Err(text(&output.stderr)),
        }
    };
    let del = |name: &str| ask(&["port", "del", name].map(str::to_owned));
    // A client of a socket connects once its port is there, again and again.
    let connected = |name: &str| {
        let mut shown = String::new();
        wait_for("a connection, or the reason", || {
            shown = ask(&["port", "show", name].map(str::to_owned)).expect("it is there");
            shown.contains("connected to a process") || shown.contains("privileged helper")
        });
        match shown.contains("privileged helper") {
            true => del(name).and(Err(shown)),
            false => Ok(shown),
        }
    };
    let add = |name: &str, keys: &[String]| {
        let words = ["port", "add", name].map(str::to_owned);
        let added = ask(&[&words[..], keys].concat());
        match name {
            "peer" => added.and_then(|_| connected(name)),
            _ => added,
        }
    };
    let netns = &netns.name;
    let devices = [
        (
            "raw",
            vec![
                "driver=af_packet".into(),
                "interface=v0".into(),
                format!("netns={netns}"),
            ],
        ),
        (
            "peer",
            vec![
                "driver=stream".into(),
                format!("socket={}", peer.display()),
                "server=false".into(),
            ],
        ),
        (
            "cap",
            vec![
                "driver=pcap".into(),
                format!("write={}", scratch.path("out.pcap").display()),
            ],
        ),
    ];
    let words = [
        format!("interface:{netns}/v0"),
        format!("socket:{}", peer.display()),
        format!("file:{}", scratch.path("out.pcap").display()),
    ];
    // A device of the daemon's own is no thing of others.
    add("tap", &["driver=tap".into(), format!("netns={netns}")]).expect("made");
    for ((name, keys), word) in devices.iter().zip(&words) {
        let refused = add(name, keys).expect_err("not allowed");
        assert!(refused.contains("`allow = ["), "{refused}");
        assert!(refused.contains(word), "{refused}");
    }
    let folder = scratch.path("");
    let patterns = [
        format!("interface:{netns}/v*"),
        format!("socket:{}*.sock", folder.display()),
        format!("file:{}*.pcap", folder.display()),
    ];
    let patterns: Vec<String> = patterns
        .iter()
        .map(|pattern| format!("{pattern:?}"))
        .collect();
    fs::write(&config, file(&patterns.join(", "))).expect("ours");
    for (name, keys) in &devices {
        add(name, keys).expect("allowed, without a reload");
    }
    ask(&["reload".to_owned()]).expect("a reload takes it");
    for (name, _) in &devices {
        del(name).expect("it is there");
    }
    // What an included file had is not opened once that file has gone.
    fs::write(&config, file("")).expect("ours");
    let (name, keys) = &devices[0];
    let named = format!(
        "[[port]]\nname = \"raw\"\ndriver = \"af_packet\"\ninterface = \"v0\"\nnetns = {netns:?}\n"
    );
    fs::write(conf.join("raw.toml"), named).expect("ours");
    add(name, keys).expect("the file has it");
    del(name).expect("it is there");
    fs::remove_file(conf.join("raw.toml")).expect("ours");
    for (name, keys) in &devices {
        add(name, keys).expect_err("no longer allowed");
    }
    // The state is written while the file is broken.
    fs::write(&config, "[engine\n").expect("ours");
    ask(&["port", "set", "n", "mtu=1300"].map(str::to_owned)).expect("changed");
    let saved = fs::read_to_string(&state).expect("a state");
    assert!(saved.contains("mtu = 1300"), "{saved}");
    daemon.stop();
}
