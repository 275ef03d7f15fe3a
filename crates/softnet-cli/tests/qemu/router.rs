//! Softnet in a guest, between two emulated NICs.

use std::fs;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;

use softnet_tests::qemu::{Guest, GuestConfig, Netdev, image};
use softnet_tests::traffic::pattern;

use crate::common::{
    Daemon, NamedNetns, PATIENCE, Scratch, has_program, may_make_networks, softnet, text, wait_for,
};
use crate::turn;

/// The guest's configuration: its NICs are taken by the two drivers.
const INSIDE: &str = "[engine]\nbuffers = 2048\n\
    [[port]]\nname = \"eth0\"\ndriver = \"af_packet\"\n\
    [[port]]\nname = \"eth1\"\ndriver = \"af_xdp\"\n\
    [[bridge]]\nname = \"br0\"\nports = [\"eth0\", \"eth1\"]\n";

/// The output of a program that must succeed.
fn run(command: &mut Command) -> String {
    let output = command.output().expect("the program");
    assert!(output.status.success(), "{}", text(&output.stderr));
    text(&output.stdout)
}

/// An archive with the program, its libraries and its configuration.
fn archive(scratch: &Scratch) -> PathBuf {
    let root = scratch.path("root");
    fs::create_dir_all(root.join("bin")).expect("a folder");
    let (binary, built) = (root.join("bin/softnet"), softnet());
    let mut strip = Command::new("strip");
    run(strip.arg("-o").arg(&binary).arg(built.get_program()));
    let executable = fs::Permissions::from_mode(0o755);
    fs::set_permissions(&binary, executable).expect("its mode");
    let libraries = run(Command::new("ldd").arg(&binary));
    let libraries = libraries.split_whitespace();
    for library in libraries.filter(|word| word.starts_with('/')) {
        let to = root.join(&library[1..]);
        let folder = to.parent().expect("a folder");
        fs::create_dir_all(folder).expect("a folder");
        fs::copy(library, to).expect("a library");
    }
    fs::write(root.join("inside.toml"), INSIDE).expect("a file");
    pack(scratch, &root)
}

/// An archive of this folder, for a guest's root folder.
pub(crate) fn pack(scratch: &Scratch, root: &Path) -> PathBuf {
    let archive = scratch.path("files");
    let script = "cd \"$1\" && find . | cpio --quiet -o -H newc | gzip -1 >\"$2\"";
    let mut shell = Command::new("bash");
    shell.args(["-o", "pipefail", "-c", script, "-"]);
    run(shell.arg(root).arg(&archive));
    archive
}

/// The switch outside: each host is in a bridge with one of the guest's NICs.
fn outside(scratch: &Scratch, hosts: &[NamedNetns; 2]) -> Daemon {
    let mut config = String::new();
    for (number, (driver, host)) in ["stream", "dgram"].iter().zip(hosts).enumerate() {
        config += &format!(
            "[[port]]\nname = \"nic{number}\"\ndriver = {driver:?}\nsocket = {:?}\n\
             server = true\n\
             [[port]]\nname = \"host{number}\"\ndriver = \"tap\"\nnetns = {:?}\n\
             address = [\"10.9.0.{}/24\"]\n\
             [[bridge]]\nname = \"br{number}\"\nports = [\"nic{number}\", \"host{number}\"]\n",
            scratch.path(driver),
            host.name,
            number + 1,
        );
    }
    Daemon::start(scratch, &config)
}

/// Bytes over TCP, which are compared.
fn transfer(from: &NamedNetns, to: &NamedNetns, address: &str) {
    let listener = to.run(|| TcpListener::bind(address)).expect("an address");
    let address = address.parse().expect("an address");
    let connect = || TcpStream::connect_timeout(&address, PATIENCE);
    let mut sender = from.run(connect).expect("a connection");
    let mut receiver = listener.accept().expect("its other end").0;
    for stream in [&sender, &receiver] {
        stream.set_read_timeout(Some(PATIENCE)).expect("a limit");
        stream.set_write_timeout(Some(PATIENCE)).expect("a limit");
    }
    let sent = pattern(3, 2 << 20);
    let mut received = Vec::new();
    thread::scope(|scope| {
        scope.spawn(|| {
            sender.write_all(&sent).expect("it is taken");
            sender.shutdown(Shutdown::Write).expect("the end");
        });
        receiver.read_to_end(&mut received).expect("all of it");
    });
    assert!(sent == received, "other bytes");
}

#[test]
#[ignore = "boots virtual machines: .ci/long guests"]
fn a_guest_switches_between_its_nics() {
    let Some(image) = image() else { return };
    if !may_make_networks() || !["ip", "strip", "cpio"].into_iter().all(has_program) {
        return;
    }
    let _turn = turn();
    let scratch = Scratch::new("router");
    let hosts = ["routera", "routerb"].map(NamedNetns::new);
    let switch = outside(&scratch, &hosts);
    let [stream, dgram, own] = ["stream", "dgram", "own"].map(|name| scratch.path(name));
    let second = Netdev::Dgram {
        socket: &dgram,
        own: &own,
    };
    let config = GuestConfig {
        netdevs: &[Netdev::Stream(&stream), second],
        files: Some(&archive(&scratch)),
        address: "10.9.0.3/24",
        queues: 1,
        device: "",
    };
    let mut guest = Guest::start(&image, scratch.path("guest.log"), &config);
    guest.await_ready();
    guest.ok("ip link set eth1 up");
    guest.ok("softnet run /inside.toml --socket /control >/log 2>&1 & echo $! >/pid");
    wait_for("the switch in the guest", || {
        guest.run("softnet --socket /control stats").0 == 0
    });
    let shown = guest.ok("softnet --socket /control stats");
    assert!(shown.contains("XDP"), "{shown}");
    wait_for("a ping through the guest", || {
        let output = hosts[0].at("ping -c3 -i0.2 -W5 10.9.0.2");
        output.status.success()
    });
    for (from, to) in [(0, 1), (1, 0)] {
        transfer(&hosts[from], &hosts[to], &format!("10.9.0.{}:9", to + 1));
    }
    // It ends well if every packet is accounted for.
    guest.ok("kill $(cat /pid)");
    let (status, log) = guest.run("wait $(cat /pid) || (cat /log; false)");
    assert_eq!(status, 0, "{log}");
    guest.kill();
    switch.stop();
}
