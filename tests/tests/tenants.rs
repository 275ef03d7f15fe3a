//! Tenants who do not trust each other: what hosts behind guarded, isolated and locked ports can
//! and cannot do, with their kernels' own traffic and with forged frames from packet sockets.
//!
//! Behind each forged frame goes a probe on the same path, by whose arrival its fate is decided.

use std::net::Ipv6Addr;
use std::process::Command;

use softnet::stats::DropReason;
use softnet::wire::{EthernetAddress, VnetHeader};
use softnet_engine::FdbSpec;
use softnet_engine::forward::{BridgePortOptions, FdbState, PortSecurity, StormLimits};
use softnet_tc::Prefix;
use softnet_tests::raw::{ALL, PacketSocket};
use softnet_tests::traffic::{Connection, Flow, ping};
use softnet_tests::{Host, HostConfig, Lan, LanConfig, PATIENCE, skip, wait_for};

/// The hosts: two tenants and what they may reach.
const TENANT: usize = 0;
const OTHER: usize = 1;
const UPLINK: usize = 2;

const ARP: u16 = 0x0806;
const IPV4: u16 = 0x0800;
const IPV6: u16 = 0x86dd;
const BROADCAST: [u8; 6] = [0xff; 6];
const NOBODY: [u8; 6] = [2, 0, 0, 0, 9, 9];

fn lan() -> Option<Lan> {
    Lan::build(LanConfig {
        hosts: vec![HostConfig::default(); 3],
        ..LanConfig::default()
    })
}

/// Only what the host has.
fn own(host: &Host) -> PortSecurity {
    let ips = [(host.ip(false), 32), (host.ip(true), 128)];
    let prefix = |(address, bits)| Prefix::new(address, bits).expect("a prefix");
    PortSecurity {
        allowed_macs: vec![EthernetAddress(host.mac)],
        allowed_ips: ips.map(prefix).to_vec(),
        ..PortSecurity::default()
    }
}

fn set_security(lan: &Lan, security: &PortSecurity) {
    let set = lan.engine.set_options(lan.hosts[TENANT].port, |port| {
        port.security = security.clone()
    });
    set.expect("a port");
}

/// Everything of which a guard may say no.
fn refused(lan: &Lan) -> u64 {
    use DropReason::{BadHeader, IpSpoof, MacLimit, MacSpoof, ProtoFilter, Storm};
    let reasons = [BadHeader, IpSpoof, MacLimit, MacSpoof, ProtoFilter, Storm];
    reasons
        .into_iter()
        .map(|reason| lan.dropped(TENANT, reason))
        .sum()
}

fn ip(host: &Host, words: &str) {
    let run = || Command::new("ip").args(words.split(' ')).output();
    let output = host.run(run).expect("ip");
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "ip {words}: {errors}");
}

fn frame(to: [u8; 6], from: [u8; 6], ethertype: u16, payload: &[u8]) -> Vec<u8> {
    [&to[..], &from, &ethertype.to_be_bytes(), payload].concat()
}

fn arp(op: u8, mac: [u8; 6], ip: [u8; 4], target: [u8; 4]) -> Vec<u8> {
    [&[0, 1, 8, 0, 6, 4, 0, op][..], &mac, &ip, &[0; 6], &target].concat()
}

fn udp4(from: [u8; 4], to: [u8; 4], number: u16) -> Vec<u8> {
    let [high, low] = number.to_be_bytes();
    let fixed = [0x45, 0, 0, 30, high, low, 0, 0, 64, 17, 0, 0];
    [
        &fixed[..],
        &from,
        &to,
        &[0x30, 0x39, 0x30, 0x39, 0, 10, 0, 0, high, low],
    ]
    .concat()
}

/// From and to these addresses, ICMP of this body.
fn icmp6(from: Ipv6Addr, to: Ipv6Addr, body: &[u8]) -> Vec<u8> {
    let fixed = [0x60, 0, 0, 0, 0, body.len() as u8, 58, 255];
    [&fixed[..], &from.octets(), &to.octets(), body].concat()
}

/// An advertisement of `target` at `mac`.
fn advertisement(target: Ipv6Addr, mac: [u8; 6]) -> Vec<u8> {
    [
        &[136, 0, 0, 0, 0x20, 0, 0, 0][..],
        &target.octets(),
        &[2, 1],
        &mac,
    ]
    .concat()
}

/// Packet sockets of the tenant and of the uplink, and the number of the last probe.
struct Forger<'a> {
    lan: &'a Lan,
    from: PacketSocket,
    to: PacketSocket,
    probes: u16,
}

impl Forger<'_> {
    fn new(lan: &Lan) -> Forger<'_> {
        Forger {
            lan,
            from: PacketSocket::open(&lan.hosts[TENANT], ALL),
            to: PacketSocket::open(&lan.hosts[UPLINK], ALL),
            probes: 0,
        }
    }

    fn send(&self, frame: &[u8]) {
        let sent = self.from.send(VnetHeader::default(), frame);
        sent.expect("the kernel takes the frame");
    }

    /// True if a frame of the tenant's reaches the uplink.
    fn arrives(&mut self, frame: &[u8]) -> bool {
        self.send(frame);
        self.probes += 1;
        let [a, b] = [TENANT, UPLINK].map(|host| &self.lan.hosts[host]);
        let payload = udp4(a.v4.octets(), b.v4.octets(), self.probes);
        let probe = self::frame(b.mac, a.mac, IPV4, &payload);
        self.send(&probe);
        let mut arrived = false;
        loop {
            let (_, received) = self.to.receive(PATIENCE).expect("the probe");
            arrived |= received == frame;
            if received == probe {
                return arrived;
            }
        }
    }
}

/// A guarded tenant is not hindered in anything: resolution of addresses by ARP and neighbour
/// discovery, duplicate address detection of a link that comes up, TCP both ways.
#[test]
fn a_tenant_uses_its_own_addresses() {
    if let Err(e) = Command::new("ip").arg("-V").output() {
        return skip(&format!("needs ip: {e}"));
    }
    let Some(lan) = lan() else { return };
    let (tenant, uplink) = (&lan.hosts[TENANT], &lan.hosts[UPLINK]);
    set_security(&lan, &own(tenant));
    for _ in 0..2 {
        for v6 in [false, true] {
            ping(tenant, uplink, v6, 56);
            ping(uplink, tenant, v6, 3000);
            Connection::open(tenant, uplink, v6).transfer(1, 1 << 20);
            Connection::open(uplink, tenant, v6).transfer(2, 1 << 20);
        }
        // Its link-local address and the other one are probed, routers solicited, groups reported.
        let socket = PacketSocket::open(uplink, IPV6);
        ip(tenant, "link set eth0 down");
        ip(tenant, "link set eth0 up");
        ip(
            tenant,
            &format!("-6 address replace {}/64 dev eth0", tenant.v6),
        );
        wait_for("duplicate address detection", || {
            let file = || std::fs::read_to_string("/proc/thread-self/net/if_inet6");
            let addresses = tenant.run(file).expect("the addresses");
            let of = addresses.lines().filter(|line| line.ends_with("eth0"));
            // Address, index, bits, scope, flags; 0x40: tentative.
            let flags = of.filter_map(|line| line.split_whitespace().nth(4));
            let mut flags: Vec<_> = flags.map(|f| u32::from_str_radix(f, 16)).collect();
            flags.retain(|flags| flags.as_ref().is_ok_and(|flags| flags & 0x40 == 0));
            flags.len() == 2
        });
        // What it detected went out, from no address.
        loop {
            let (_, frame) = socket.receive(PATIENCE).expect("a solicitation");
            let (source, kind) = (&frame[22..38], frame.get(54));
            if source == [0; 16] && kind == Some(&135) && frame[62..78] == tenant.v6.octets() {
                break;
            }
        }
    }
    assert_eq!(refused(&lan), 0, "{:?}", lan.port(TENANT).drops);
    lan.stop();
}

#[test]
fn a_tenant_uses_no_others_addresses() {
    let Some(lan) = lan() else { return };
    let [tenant, other, uplink] = [TENANT, OTHER, UPLINK].map(|host| &lan.hosts[host]);
    let (own4, other4, to4) = (tenant.v4.octets(), other.v4.octets(), uplink.v4.octets());
    let mut forger = Forger::new(&lan);
    use DropReason::{BadHeader, IpSpoof, MacSpoof, ProtoFilter};
    let of_tenant = |ethertype, payload: &[u8]| frame(uplink.mac, tenant.mac, ethertype, payload);
    let icmp = |from, body: &[u8]| of_tenant(IPV6, &icmp6(from, uplink.v6, body));
    let router = [&[134, 0, 0, 0, 0, 0, 7, 8][..], &[0; 8]].concat();
    let forged = [
        (
            frame(BROADCAST, other.mac, ARP, &arp(1, other.mac, own4, to4)),
            MacSpoof,
        ),
        (of_tenant(ARP, &arp(2, other.mac, own4, to4)), MacSpoof),
        (of_tenant(ARP, &arp(2, tenant.mac, other4, to4)), IpSpoof),
        (
            frame(
                BROADCAST,
                tenant.mac,
                ARP,
                &arp(1, tenant.mac, other4, other4),
            ),
            IpSpoof,
        ),
        (
            frame(
                BROADCAST,
                tenant.mac,
                ARP,
                &arp(1, tenant.mac, [0; 4], other4),
            ),
            IpSpoof,
        ),
        (of_tenant(IPV4, &udp4(other4, to4, 7)), IpSpoof),
        (icmp(other.v6, &[128, 0, 0, 0, 0, 0, 0, 0]), IpSpoof),
        (
            icmp(tenant.v6, &advertisement(other.v6, tenant.mac)),
            IpSpoof,
        ),
        (
            icmp(tenant.v6, &advertisement(tenant.v6, other.mac)),
            MacSpoof,
        ),
        (icmp(tenant.v6, &router), ProtoFilter),
        (of_tenant(0x88b5, &[7; 46]), ProtoFilter),
        (of_tenant(ARP, &[0, 1, 8, 0, 6, 4, 0, 2]), BadHeader),
    ];
    for (forged, _) in &forged {
        assert!(forger.arrives(forged), "without a guard: {forged:02x?}");
    }
    set_security(&lan, &own(tenant));
    // The bridge learnt, and the uplink believed.
    let taken_back = arp(2, tenant.mac, own4, to4);
    assert!(forger.arrives(&of_tenant(ARP, &taken_back)));
    for (forged, reason) in &forged {
        let before = lan.dropped(TENANT, *reason);
        assert!(!forger.arrives(forged), "{forged:02x?}");
        assert_eq!(lan.dropped(TENANT, *reason), before + 1, "{forged:02x?}");
        // Behind a tag, too.
        let tagged = [&forged[..12], &[0x81, 0, 0, 7], &forged[12..]].concat();
        assert!(!forger.arrives(&tagged), "{tagged:02x?}");
        assert_eq!(lan.dropped(TENANT, *reason), before + 2, "{tagged:02x?}");
    }
    assert_eq!(refused(&lan), 2 * forged.len() as u64);
    lan.stop();
}

#[test]
fn a_tenant_has_a_limited_number_of_addresses() {
    let Some(lan) = lan() else { return };
    let (tenant, uplink) = (&lan.hosts[TENANT], &lan.hosts[UPLINK]);
    let security = PortSecurity {
        max_macs: Some(2),
        ..PortSecurity::default()
    };
    set_security(&lan, &security);
    ping(tenant, uplink, false, 56);
    let mut forger = Forger::new(&lan);
    let from = |n| frame(uplink.mac, [2, 0, 0, 0, 9, n], 0x88b5, &[n; 46]);
    assert!(forger.arrives(&from(1)));
    assert!(!forger.arrives(&from(2)) && !forger.arrives(&from(3)));
    assert!(forger.arrives(&from(1)));
    assert_eq!(lan.dropped(TENANT, DropReason::MacLimit), 2);
    ping(tenant, uplink, true, 56);
    lan.stop();
}

#[test]
fn a_locked_port_takes_frames_of_known_stations() {
    let Some(lan) = lan() else { return };
    let (tenant, uplink) = (&lan.hosts[TENANT], &lan.hosts[UPLINK]);
    let spec = FdbSpec {
        address: EthernetAddress(tenant.mac),
        vlan: None,
        state: FdbState::Static,
        sticky: false,
    };
    lan.engine
        .add_fdb(tenant.port, spec, true)
        .expect("an entry");
    let options = BridgePortOptions {
        locked: true,
        ..BridgePortOptions::default()
    };
    lan.engine
        .set_bridge_port(tenant.port, options)
        .expect("a member");
    for v6 in [false, true] {
        ping(tenant, uplink, v6, 56);
    }
    let mut forger = Forger::new(&lan);
    assert!(!forger.arrives(&frame(uplink.mac, NOBODY, 0x88b5, &[1; 46])));
    // Nor of those who are known elsewhere.
    assert!(!forger.arrives(&frame(BROADCAST, uplink.mac, 0x88b5, &[2; 46])));
    assert_eq!(lan.dropped(TENANT, DropReason::MacSpoof), 2);
    lan.stop();
}

#[test]
fn isolated_tenants_reach_the_uplink_alone() {
    let Some(lan) = lan() else { return };
    let [tenant, other, uplink] = [TENANT, OTHER, UPLINK].map(|host| &lan.hosts[host]);
    let options = BridgePortOptions {
        isolated: true,
        ..BridgePortOptions::default()
    };
    for host in [tenant, other] {
        lan.engine
            .set_bridge_port(host.port, options)
            .expect("a member");
    }
    for v6 in [false, true] {
        for host in [tenant, other] {
            ping(host, uplink, v6, 56);
            ping(uplink, host, v6, 56);
        }
    }
    let seen = PacketSocket::open(other, 0x88b5);
    let mut forger = Forger::new(&lan);
    let before = lan.dropped(TENANT, DropReason::Isolated);
    assert!(!forger.arrives(&frame(other.mac, tenant.mac, 0x88b5, &[1; 46])));
    assert_eq!(lan.dropped(TENANT, DropReason::Isolated), before + 1);
    assert!(forger.arrives(&frame(BROADCAST, tenant.mac, 0x88b5, &[2; 46])));
    // What the uplink sends comes behind what the tenant might have sent.
    let last = frame(other.mac, uplink.mac, 0x88b5, &[3; 46]);
    let from_uplink = PacketSocket::open(uplink, 0x88b5);
    from_uplink
        .send(VnetHeader::default(), &last)
        .expect("the kernel takes the frame");
    let (_, first) = seen.receive(PATIENCE).expect("the uplink's frame");
    assert_eq!(first, last, "it is the first that arrives");
    lan.stop();
}

/// Frames beyond the limit are dropped; unicast of the same port flows meanwhile.
#[test]
fn a_storm_is_limited_while_unicast_flows() {
    const FRAMES: u64 = 500;
    let Some(lan) = lan() else { return };
    let (tenant, uplink) = (&lan.hosts[TENANT], &lan.hosts[UPLINK]);
    let flow = Flow::open(tenant, uplink, false);
    flow.echo(100);
    let security = PortSecurity {
        storm: StormLimits {
            broadcast: Some(3),
            multicast: None,
            unknown_unicast: Some(0),
        },
        ..PortSecurity::default()
    };
    set_security(&lan, &security);
    let mut forger = Forger::new(&lan);
    let broadcast = frame(BROADCAST, tenant.mac, 0x88b5, &[1; 46]);
    for _ in 0..FRAMES / 10 {
        (0..10).for_each(|_| forger.send(&broadcast));
        flow.echo(1000);
    }
    let multicast = frame([1, 0, 0x5e, 0, 0, 9], tenant.mac, 0x88b5, &[2; 46]);
    let unknown = frame(NOBODY, tenant.mac, 0x88b5, &[3; 46]);
    let (mut passed, mut dropped) = (0, 0);
    wait_for("the broadcasts to be decided", || {
        let drained = forger.to.drain();
        passed += drained
            .iter()
            .filter(|(_, frame)| *frame == broadcast)
            .count() as u64;
        dropped = lan.dropped(TENANT, DropReason::Storm);
        passed + dropped == FRAMES
    });
    assert!(passed >= 3 && dropped > 0, "{passed} passed");
    assert!(forger.arrives(&multicast) && !forger.arrives(&unknown));
    ping(tenant, uplink, false, 56);
    lan.stop();
}
