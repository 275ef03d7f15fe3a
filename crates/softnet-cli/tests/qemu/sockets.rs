//! Guests by `stream` and by `dgram`, and a host at a TAP device that somebody else made.

use softnet_tests::qemu::{Guest, GuestConfig, Netdev, image};

use crate::common::{Daemon, NamedNetns, Scratch, has_program, may_make_networks};
use crate::{HOST, ONE, TWO, between, exchange, turn};

#[test]
#[ignore = "boots virtual machines: .ci/long guests"]
fn guests_by_sockets() {
    let Some(image) = image() else { return };
    if !may_make_networks() || !has_program("ip") {
        return;
    }
    let _turn = turn();
    let scratch = Scratch::new("sockets");
    let host = NamedNetns::new("sockets");
    host.ip(&["tuntap", "add", "theirs", "mode", "tap", "vnet_hdr"]);
    let address = format!("{HOST}/24");
    host.ip(&["address", "add", &address, "dev", "theirs"]);
    host.ip(&["link", "set", "theirs", "up"]);
    let [stream, dgram, own] = ["stream", "dgram", "own"].map(|name| scratch.path(name));
    let config = format!(
        "[[port]]\nname = \"vm1\"\ndriver = \"stream\"\nsocket = {stream:?}\nserver = true\n\
         [[port]]\nname = \"vm2\"\ndriver = \"dgram\"\nsocket = {dgram:?}\nserver = true\n\
         [[port]]\nname = \"host\"\ndriver = \"tap\"\nattach = true\n\
         interface = \"theirs\"\nnetns = {:?}\n\
         [[bridge]]\nname = \"br0\"\nports = [\"vm1\", \"vm2\", \"host\"]\n",
        host.name
    );
    let config = scratch.file("sockets.toml", &config);
    let switch = Daemon::on(config, scratch.path("control"));
    let own = Netdev::Dgram {
        socket: &dgram,
        own: &own,
    };
    let netdevs = [(ONE, Netdev::Stream(&stream)), (TWO, own)];
    let mut guests = netdevs.map(|(address, netdev)| {
        let config = GuestConfig {
            netdevs: &[netdev],
            files: None,
            address: &format!("{address}/24"),
            queues: 1,
            device: "",
        };
        Guest::start(&image, scratch.path(&format!("{address}.log")), &config)
    });
    guests.iter_mut().for_each(Guest::await_ready);
    let [mut one, mut two] = guests;
    between(&mut one, &mut two);
    exchange(&host, &mut one, ONE);
    exchange(&host, &mut two, TWO);
    one.reboot();
    between(&mut one, &mut two);
    one.kill();
    two.kill();
    switch.stop();
    assert!(host.interfaces().contains("theirs"), "it is not Softnet's");
}
