#!/usr/bin/env python3
"""Records what Linux's filters and actions at hooks do with known packets.

Usage: SOFTNET_QEMU_KERNEL=PROGRAM record_hooks.py

PROGRAM is as in record.py. Ports p0 and p1 are of a bridge, p2 is not, ifb0 has no other end. For
each scenario `hooks.iproute2-VERSION.txt` has commands and answers as record_control.py's, `> PORT
FRAME` for what came in and `< PORT FRAME` for what went out behind it, with the frames of each port
in order. Versions are the virtual machine's iproute2 and this machine's.
"""

import os
import re
import subprocess
import sys
import tempfile

from record_control import HERE, PROGRAMS, load, own

MODULES = """llc stp bridge veth ifb sch_prio sch_ingress cls_u32 cls_flower cls_basic cls_matchall
cls_fw em_cmp em_nbyte em_u32 em_meta act_gact act_police act_mirred act_skbedit act_vlan act_pedit
act_csum act_skbmod act_simple""".split()
BEFORE = load(MODULES) + [
    "mkdir -p /etc/iproute2",
    r"printf '1 cmp\n2 nbyte\n3 u32\n4 meta\n' >/etc/iproute2/ematch_map",
    "echo 1 >/proc/sys/net/ipv6/conf/default/disable_ipv6",
    "ip7 link del ifb0",
    "ip7 link del ifb1",
    """for port in p0 p1 p2; do
  ip7 link add $port numtxqueues 1 numrxqueues 1 type veth peer name ${port}x
  ip7 link set ${port}x up
done""",
]
START = """ip link add br0 type bridge
ip link add ifb0 type ifb
ip link set p0 master br0
ip link set p1 master br0
ip link set p0 type bridge_slave learning off
ip link set p1 type bridge_slave learning off
ip link set p0 up
ip link set p1 up
ip link set p2 up
ip link set ifb0 up
ip link set br0 up""".splitlines()


def checksum(data):
    data += bytes(len(data) % 2)
    total = sum(data[at] << 8 | data[at + 1] for at in range(0, len(data), 2))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return (total ^ 0xFFFF).to_bytes(2, "big")


A, B = b"\2\0\0\0\0\x0a", b"\2\0\0\0\0\x0b"
PROTOCOLS = {"udp": 17, "tcp": 6, "icmp": 1, "igmp": 2, "icmp6": 58}


def transport(kind, pseudo, sport, dport, data, flags, right):
    """What is behind the IP header, with the checksum at its place."""
    ports = sport.to_bytes(2, "big") + dport.to_bytes(2, "big")
    number = PROTOCOLS[kind]
    if kind == "udp":
        head, at = ports + (8 + len(data)).to_bytes(2, "big") + b"\0\0", 6
    elif kind == "tcp":
        head, at = ports + b"\0\0\0\1\0\0\0\2\x50" + bytes([flags]) + b"\1\0\0\0\0\0", 16
    else:
        # Type and code, in place of ports.
        head, at = bytes([sport, dport]) + bytes(6), 2
    whole = head + data
    if kind in ("udp", "tcp", "icmp6"):
        pseudo += len(whole).to_bytes(4, "big") + bytes([0, 0, 0, number])
    else:
        pseudo = b""
    sum = checksum(pseudo + whole) if right else b"\xde\xad"
    return whole[:at] + sum + whole[at + 2 :]


def ip4(kind="udp", last=1, to=2, sport=1000, dport=53, tos=0, ttl=64, frag=0, tags=b"", flags=16,
        right=True, data=24):
    source, target = bytes([10, 0, 0, last]), bytes([10, 0, 0, to])
    # The pseudo header has the length in two bytes.
    body = transport(kind, source + target, sport, dport, bytes(at & 255 for at in range(data)), flags, right)
    length = (20 + len(body)).to_bytes(2, "big")
    head = bytes([0x45, tos]) + length + b"\0\1" + frag.to_bytes(2, "big")
    head += bytes([ttl, PROTOCOLS[kind]])
    addresses = source + target
    sum = checksum(head + b"\0\0" + addresses) if right else b"\xbe\xef"
    return B + A + tags + b"\x08\0" + head + sum + addresses + body


def ip6(kind="udp", last=1, to=2, sport=1000, dport=53, tos=0, hops=64, tags=b"", right=True):
    addresses = b"\xfd" + bytes(14) + bytes([last]) + b"\xfd" + bytes(14) + bytes([to])
    body = transport(kind, addresses, sport, dport, bytes(range(24)), 16, right)
    head = bytes([0x60 | tos >> 4, tos << 4 & 0xF0, 0, 0]) + len(body).to_bytes(2, "big")
    head += bytes([PROTOCOLS[kind], hops])
    return B + A + tags + b"\x86\xdd" + head + addresses + body


def arp(code=1, last=1):
    body = b"\0\1\x08\0\6\4\0" + bytes([code]) + A + bytes([10, 0, 0, last]) + bytes(6)
    return B + A + b"\x08\6" + body + bytes([10, 0, 0, 2]) + bytes(18)


def tag(id, prio=0, tpid=0x8100):
    return tpid.to_bytes(2, "big") + (prio << 13 | id).to_bytes(2, "big")


def dports(*ports, **packet):
    return [ip4(dport=port, **packet) for port in ports]


PACKETS = [
    ip4(),
    ip4(last=7, to=9, dport=80),
    ip4("tcp", sport=443, dport=50000),
    ip4("tcp", dport=80, tos=0xB8, flags=2),
    ip4("tcp", dport=81, flags=0x12),
    ip4(tos=0x10, ttl=3, dport=5060),
    ip4(to=130, ttl=1),
    ip4(frag=0x2000),
    ip4(frag=0x0010),
    ip4("icmp", sport=8, dport=0),
    ip4("icmp", sport=3, dport=1),
    ip4("igmp", sport=22, dport=0),
    ip4(data=600),
    ip6(),
    ip6(to=9, dport=80, tos=0xB8),
    ip6("tcp", dport=80, hops=2),
    ip6("icmp6", sport=128, dport=0),
    ip4(tags=tag(5, 3)),
    ip4(tags=tag(6), dport=80),
    ip6(tags=tag(5)),
    ip4(tags=tag(7, 1, 0x88A8) + tag(5, 3)),
    arp(),
    arp(2, last=9),
    B + A + b"\x88\xb5" + bytes(range(50)),
]


class Scenario:
    """Commands and frames at ports with both hooks."""

    def __init__(self, name):
        self.lines = [f"== {name}"]
        for port in ("p0", "p1", "p2"):
            self.run(f"tc qdisc add dev {port} clsact")
        self.hooks, self.kinds = [], []

    def run(self, command):
        self.lines.append(f"$ {command}")

    def add(self, *filters, at="p0 ingress"):
        """Filters by priority, protocol and the rest."""
        for text in filters:
            self.run(f"tc filter add dev {at} {text}")
        if at not in self.hooks:
            self.hooks.append(at)

    def send(self, frames, port="p0"):
        self.lines += [f"> {port} {frame.hex()}" for frame in frames]
        self.lines.append("<")

    def send_singly(self, frames):
        """Where their ways differ, so that those that come together may change their order."""
        for frame in frames:
            self.send([frame])

    def end(self, *shows):
        for hook in self.hooks:
            self.run(f"tc -s filter show dev {hook}")
        for show in shows:
            self.run(f"tc -s {show}")
        for port in ("p0", "p1", "p2"):
            self.run(f"tc qdisc del dev {port} clsact")
        return self.lines


def udp(prio, dport, rest):
    return f"prio {prio} protocol ip flower ip_proto udp dst_port {dport} {rest}"


def gact():
    one = Scenario("gact")
    one.add(
        udp(1, 1, "action drop"),
        udp(1, 2, "action pass"),
        udp(1, 3, "action continue"),
        udp(1, 4, "action goto chain 5"),
        udp(1, 5, "action pipe action pipe action drop"),
        udp(1, 6, "action gact jump 1 action drop action pass"),
        udp(1, 7, "action trap"),
        udp(1, 8, "action gact pass random determ drop 3"),
        udp(1, 9, "action gact drop random netrand pass 1"),
        udp(1, 10, "action gact pipe random determ drop 2 action pass index 77"),
        udp(1, 11, "action gact index 77"),
        udp(1, 12, "action gact jump 9 action pass"),
        udp(1, 13, "action reclassify"),
        udp(1, 14, "action goto chain 9"),
        udp(2, 3, "action drop"),
        "prio 3 protocol ip matchall action continue",
        "chain 5 prio 1 protocol ip matchall action drop",
    )
    one.send(dports(*range(1, 16)) + dports(*[8] * 7, 9, 9, *[10] * 5, 11))
    return one.end("actions get action gact index 77")


def police():
    one = Scenario("police")
    one.add(
        udp(1, 1, "action police rate 8bit burst 300 conform-exceed drop"),
        udp(1, 2, "action police rate 8bit burst 1000 conform-exceed continue/pass"),
        udp(1, 3, "action police rate 8bit burst 400 conform-exceed pass/pipe action drop"),
        udp(1, 4, "action police rate 1gbit burst 1mb mtu 300 conform-exceed drop"),
        udp(1, 5, "action police rate 8bit burst 500 conform-exceed drop index 5"),
        udp(1, 6, "action police index 5"),
        udp(1, 7, "action police rate 8bit burst 500 conform-exceed reclassify/drop"),
        "prio 2 protocol ip matchall action drop",
        at="p1 egress",
    )
    one.send(dports(*[1] * 6, *[2] * 14, *[3] * 8, 4, 5, 6, 5, 6, 5, 6, 5, 6, 5, 6, 5, 6, 5, 6))
    one.send(dports(1, 4, 2, data=400) + dports(*[7] * 9))
    return one.end("actions get action police index 5")


def police_at_ingress():
    one = Scenario("police at ingress")
    one.add(
        udp(1, 1, "action police rate 8bit burst 300 conform-exceed drop"),
        udp(1, 2, "action police rate 1gbit burst 1mb mtu 66 conform-exceed drop"),
        udp(1, 3, "action police rate 1gbit burst 1mb mtu 65 conform-exceed drop"),
    )
    one.send(dports(*[1] * 8, 2, 3))
    return one.end()


def mirred():
    one = Scenario("mirred")
    one.add(
        udp(1, 1, "action mirred egress redirect dev p2"),
        udp(1, 2, "action mirred egress mirror dev p2"),
        udp(1, 3, "action mirred egress mirror dev p2 pipe action mirred egress mirror dev p1 "
                  "pipe action drop"),
        udp(1, 4, "action mirred ingress redirect dev p1"),
        udp(1, 5, "action mirred ingress mirror dev p1"),
        udp(1, 6, "action mirred egress redirect dev p0"),
        udp(1, 7, "action mirred egress redirect dev ifb0"),
        udp(1, 8, "action vlan push id 9 pipe action mirred egress mirror dev p2 pipe "
                  "action vlan pop pipe action pass"),
        udp(1, 9, "action mirred egress mirror dev p2 continue"),
        udp(2, 9, "action mirred egress redirect dev p2"),
    )
    one.add(udp(1, 4, "action skbmod set smac 02:00:00:00:00:77 pipe action pass"), at="p1 ingress")
    one.add(udp(1, 10, "action mirred egress redirect dev p2"),
            udp(1, 11, "action mirred ingress redirect dev p0"),
            udp(1, 12, "action mirred egress mirror dev p2"),
            udp(1, 2, "action pass"), at="p1 egress")
    one.add("prio 1 protocol ip matchall action pass", at="p2 egress")
    one.run("tc qdisc add dev ifb0 root handle 1: prio")
    one.send_singly(dports(*range(1, 14)) + [ip4(dport=2, tags=tag(5, 3))])
    one.send_singly(dports(1, 2, 7, data=600))
    lines = one.end("class show dev ifb0")
    return lines + ["$ tc qdisc del dev ifb0 root"]


def skbedit():
    one = Scenario("skbedit")
    one.run("tc qdisc add dev p1 root handle 1: prio bands 4 priomap 0 1 2 3 3 3 3 3 3 3 3 3 3 3 3 3")
    one.add(
        udp(1, 1, "action skbedit priority 1:1"),
        udp(1, 2, "action skbedit priority 0:2"),
        udp(1, 3, "action skbedit mark 7 pipe action pass"),
        udp(1, 4, "action skbedit mark 0xf7/0xf pipe action skbedit mark 0x30/0x70"),
        udp(1, 5, "action skbedit priority 0:1 mark 9 pipe action skbedit priority 1:4"),
        udp(1, 6, "action skbedit ptype host"),
        udp(1, 7, "action skbedit queue_mapping 0"),
        udp(1, 8, "action skbedit mark 0x17"),
        "prio 2 protocol ip matchall action skbedit inheritdsfield",
        "prio 3 protocol ipv6 matchall action skbedit inheritdsfield",
    )
    one.add(
        "prio 1 protocol ip handle 7 fw action pass",
        "prio 1 protocol ip handle 0x37 fw action pass",
        "prio 1 protocol ip handle 9 fw action drop",
        "prio 2 protocol ip handle 0x10/0xf0 fw action pass",
        "prio 3 protocol all basic match 'meta(priority eq 1)' action pass",
        "prio 4 protocol all basic match 'meta(priority gt 1)' action pass",
        at="p1 egress",
    )
    tos = [ip4(tos=tos) for tos in (0, 4, 8, 0x10, 0xB8)]
    one.send_singly(dports(*range(1, 10)) + tos + [ip6(tos=4), ip6(tos=8), arp(), ip4(tags=tag(5, 3))])
    lines = one.end("class show dev p1", "qdisc show dev p1 root")
    return lines + ["$ tc qdisc del dev p1 root"]


def vlan():
    one = Scenario("vlan")
    one.add(
        udp(1, 1, "action vlan push id 5"),
        udp(1, 2, "action vlan push id 6 priority 3 protocol 802.1ad"),
        udp(1, 3, "action vlan push id 5 pipe action vlan push id 6 protocol 802.1ad"),
        udp(1, 4, "action vlan pop"),
        udp(1, 5, "action vlan modify id 9"),
        "prio 2 protocol 802.1q flower vlan_id 10 action vlan pop",
        "prio 2 protocol 802.1q flower vlan_id 11 action vlan modify id 12",
        "prio 2 protocol 802.1q flower vlan_id 12 action vlan modify id 13 priority 6",
        "prio 2 protocol 802.1q flower vlan_id 13 action vlan modify id 4 protocol 802.1ad",
        "prio 2 protocol 802.1q flower vlan_id 14 action vlan push id 15 protocol 802.1ad",
        "prio 2 protocol 802.1q flower vlan_id 15 action vlan pop pipe action vlan pop",
        "prio 2 protocol 802.1q flower vlan_prio 7 action drop",
        "prio 3 protocol 802.1ad flower vlan_id 20 action vlan pop",
        "prio 3 protocol 802.1ad flower vlan_id 21 action vlan pop pipe action vlan pop",
        "prio 3 protocol 802.1ad flower vlan_id 22 cvlan_id 5 action vlan modify id 23",
        "prio 3 protocol 802.1ad flower vlan_id 24 cvlan_prio 2 action drop",
    )
    one.add(
        "prio 1 protocol 802.1q flower vlan_id 5 action vlan modify priority 2 id 5",
        "prio 2 protocol 802.1q flower vlan_id 30 action vlan pop",
        "prio 4 protocol ip flower ip_proto udp dst_port 40 action vlan push id 40",
        at="p1 egress",
    )
    one.send(dports(1, 2, 3, 4, 5, 6, 40))
    one.send([ip4(tags=tag(id, 1)) for id in (10, 11, 12, 13, 14, 15, 16, 30)])
    one.send([ip4(tags=tag(50, 7)), ip6(tags=tag(10)), ip4(tags=tag(10) + tag(11), dport=1)])
    one.send([ip4(tags=tag(id, 1, 0x88A8) + tag(5, 2)) for id in (20, 21, 22, 23, 24)])
    return one.end()


def ethernet_headers():
    one = Scenario("ethernet headers")
    push = "action vlan push_eth dst_mac 02:00:00:00:00:31 src_mac 02:00:00:00:00:32"
    filters = [udp(1, 1, f"action vlan pop_eth pipe {push}"), udp(1, 2, push)]
    one.add(*filters)
    one.add(*filters, at="p1 egress")
    one.send_singly(dports(1, 2, 3) + [ip4(tags=tag(5), dport=1)])
    return one.end()


def pedit():
    one = Scenario("pedit")
    one.add(
        udp(1, 1, "action pedit munge offset 8 u8 set 9"),
        udp(1, 2, "action pedit munge offset 16 u32 set 0x0a000063 pipe action csum ip and udp"),
        udp(1, 3, "action pedit munge offset 0 u16 set 0x4510 retain 0x00ff"),
        udp(1, 4, "action pedit ex munge ip ttl dec"),
        udp(1, 5, "action pedit ex munge ip ttl set 7 munge ip src set 10.1.2.3 pipe "
                  "action csum ip and udp"),
        udp(1, 6, "action pedit ex munge eth dst set 02:00:00:00:00:66 munge eth src set "
                  "02:00:00:00:00:67"),
        udp(1, 7, "action pedit ex munge udp sport set 99 munge udp dport add 1 pipe "
                  "action csum udp"),
        udp(1, 8, "action pedit munge ip tos set 0x10 munge ip dst set 10.0.0.77"),
        udp(1, 9, "action pedit munge offset 4 u16 clear munge offset 6 u16 invert"),
        udp(1, 10, "action pedit munge offset 400 u32 set 5"),
        udp(1, 11, "action pedit ex munge eth type set 0x1234"),
        udp(1, 12, "action pedit munge offset 20 u8 set 3 at 0 0f 2"),
        udp(1, 13, "action pedit ex munge ip tos add 3 retain 0x3f drop"),
        udp(1, 14, "action pedit ex munge ip dst set 10.9.9.9 retain 0xffff pipe "
                   "action csum ip and udp"),
        "prio 2 protocol ip flower ip_proto tcp dst_port 80 action pedit ex munge tcp dport set 8080 "
        "munge tcp flags set 0x18 pipe action csum tcp",
        "prio 3 protocol ipv6 flower ip_proto udp action pedit ex munge ip6 hoplimit set 3 munge ip6 "
        "dst set fd00::99 pipe action csum udp",
        "prio 3 protocol ipv6 flower ip_proto tcp action pedit ex munge ip6 hoplimit dec",
    )
    one.add(udp(1, 20, "action pedit munge offset 8 u8 set 9"),
            udp(1, 21, "action pedit munge offset -14 u16 set 0x0606"),
            udp(1, 22, "action pedit ex munge ip ttl add 250 pipe action csum ip"), at="p1 egress")
    one.send(dports(*range(1, 16), 20, 21, 22))
    one.send([ip4("tcp", dport=80), ip4("tcp", dport=81), ip6(), ip6("tcp"), ip6(tags=tag(5))])
    return one.end()


def csum():
    one = Scenario("csum")
    one.add(
        "prio 1 protocol ip flower src_ip 10.0.0.20 action csum ip",
        "prio 2 protocol ip flower src_ip 10.0.0.21 action csum udp tcp icmp igmp",
        "prio 3 protocol ip flower src_ip 10.0.0.22 action csum ip udp tcp icmp igmp",
        "prio 4 protocol ip flower src_ip 10.0.0.23 action csum udplite and sctp drop",
        "prio 5 protocol ipv6 matchall action csum udp tcp icmp",
        "prio 6 protocol 802.1q matchall action csum ip udp",
    )
    for last in range(20, 25):
        kinds = [("udp", 1, 1), ("tcp", 1, 1), ("icmp", 8, 0), ("igmp", 22, 0)]
        one.send([ip4(k, last=last, sport=s, dport=d, right=False) for k, s, d in kinds])
    one.send([ip6(k, right=False, sport=128) for k in ("udp", "tcp", "icmp6")])
    one.send([ip4(right=False, tags=tag(5)), ip4(last=22, right=False, frag=0x2000)])
    zero = bytearray(ip4(last=22))
    zero[40:42] = bytes(2)
    short = bytearray(ip4(last=22, right=False))
    short[16:18] = b"\x01\0"
    one.send([bytes(zero), bytes(short), ip4(last=22, right=False) + bytes(9)])
    return one.end()


def skbmod():
    one = Scenario("skbmod")
    one.add(
        udp(1, 1, "action skbmod set dmac 02:00:00:00:00:31"),
        udp(1, 2, "action skbmod set smac 02:00:00:00:00:32"),
        udp(1, 3, "action skbmod set etype 0x1234"),
        udp(1, 4, "action skbmod swap mac"),
        udp(1, 5, "action skbmod set dmac 02:00:00:00:00:35 set smac 02:00:00:00:00:36 set etype "
                  "0xbeef pipe action simple sdata seen"),
        udp(1, 6, "action simple sdata \"a-text\" pipe action drop"),
        "prio 2 protocol ip matchall action skbmod ecn",
        "prio 3 protocol ipv6 matchall action skbmod ecn",
        "prio 4 protocol 802.1q matchall action skbmod set etype 0x4321",
    )
    one.send(dports(*range(1, 8)))
    one.send([ip4(tos=tos) for tos in range(4)] + [ip6(tos=tos) for tos in range(4)])
    one.send([ip4(tags=tag(5, 3)), arp()])
    return one.end()


def filters(name, *texts, packets=()):
    one = Scenario(name)
    one.add(*[f"{text} action continue" for text in texts])
    one.add("prio 1 protocol all matchall action pass", at="p1 egress")
    one.send(PACKETS + list(packets))
    return one.end()


def flower():
    ip, v6, q = "protocol ip", "protocol ipv6", "protocol 802.1q"
    return filters(
        "flower",
        f"prio 1 {ip} flower ip_proto tcp dst_port 80",
        f"prio 2 {ip} flower ip_proto udp dst_port 5000-6000",
        f"prio 3 {ip} flower ip_tos 0xb8/0xfc",
        f"prio 4 {ip} flower ip_ttl 3",
        f"prio 5 {ip} flower dst_ip 10.0.0.128/25",
        f"prio 6 {ip} flower src_ip 10.0.0.7 dst_ip 10.0.0.8/30",
        f"prio 7 {ip} flower ip_proto icmp type 8 code 0",
        f"prio 8 {ip} flower ip_proto tcp tcp_flags 0x2/0x2",
        f"prio 9 {ip} flower ip_flags frag",
        f"prio 10 {ip} flower ip_flags frag/firstfrag",
        f"prio 11 {ip} flower ip_flags nofrag",
        f"prio 12 {v6} flower ip_proto udp dst_port 80",
        f"prio 13 {v6} flower dst_ip fd00::9",
        f"prio 14 {v6} flower ip_ttl 2",
        f"prio 15 {v6} flower ip_proto icmpv6 type 128",
        f"prio 16 {q} flower vlan_id 5",
        f"prio 17 {q} flower vlan_prio 3 vlan_ethtype ipv4 ip_proto udp",
        f"prio 18 {q} flower vlan_ethtype ipv6 dst_ip fd00::2",
        "prio 19 protocol 802.1ad flower vlan_id 7 cvlan_id 5",
        "prio 20 protocol arp flower arp_op request",
        "prio 21 protocol arp flower arp_sip 10.0.0.9",
        "prio 22 protocol arp flower arp_sha 02:00:00:00:00:0a",
        "prio 23 protocol all flower dst_mac 02:00:00:00:00:0b",
        "prio 24 protocol all flower src_mac 02:00:00:00:00:00/ff:ff:ff:ff:ff:f0",
        f"prio 25 {ip} flower ip_proto udp src_port 900-1100 dst_port 80",
        f"prio 26 {ip} flower ip_proto udp dst_port 0x50/0xf0",
        "prio 27 protocol all flower num_of_vlans 1",
        "prio 28 protocol 0x88b5 flower",
        f"prio 30 {ip} flower ip_tos 0/3",
    )


def u32():
    one = Scenario("u32")
    continues = "action continue"
    one.add(
        f"prio 1 protocol ip u32 match ip protocol 6 0xff match ip dport 80 0xffff {continues}",
        f"prio 1 protocol ip u32 match ip src 10.0.0.7 {continues}",
        f"prio 1 protocol ip u32 match u8 0x10 0xff at 1 {continues}",
        f"prio 2 protocol ip u32 match u16 53 0xffff at nexthdr+2 {continues}",
        f"prio 2 protocol ip u32 match u16 0x0800 0xffff at -2 {continues}",
        "prio 3 protocol ip handle 1: u32 divisor 256",
        f"prio 3 protocol ip u32 ht 1:35: match u16 53 0xffff at nexthdr+2 {continues}",
        f"prio 3 protocol ip u32 ht 1:50: match u16 80 0xffff at nexthdr+2 {continues}",
        f"prio 3 protocol ip u32 ht 1:2: match ip dst 10.0.0.2 {continues}",
        "prio 3 protocol ip u32 ht 800: match ip protocol 17 0xff "
        "hashkey mask 0x000000ff at 20 link 1:",
        "prio 4 protocol ip handle 2: u32 divisor 1",
        f"prio 4 protocol ip u32 ht 2: match u16 80 0xffff at 2 {continues}",
        f"prio 4 protocol ip u32 ht 2: match u16 0x01bb 0xffff at 0 {continues}",
        "prio 4 protocol ip u32 match u8 0x40 0xf0 at 0 offset at 0 mask 0f00 shift 6 eat link 2:",
        "prio 5 protocol ip handle 3: u32 divisor 4",
        f"prio 5 protocol ip u32 ht 3:1: match u8 64 0xff at 8 {continues}",
        f"prio 5 protocol ip u32 ht 3:2: match u8 64 0xff at 8 {continues}",
        "prio 5 protocol ip u32 match u32 0 0 at 0 hashkey mask 0x00000003 at 16 link 3:",
        f"prio 6 protocol ipv6 u32 match ip6 dst fd00::9 {continues}",
        f"prio 6 protocol ipv6 u32 match ip6 dport 80 0xffff {continues}",
        f"prio 6 protocol ipv6 u32 match ip6 priority 0xb8 0xff {continues}",
        f"prio 7 protocol all u32 match u32 0 0 at 0 {continues}",
        f"prio 8 protocol ip u32 match u32 0 0 at 400 {continues}",
        f"prio 9 protocol ip u32 match ip icmp_type 8 0xff match ip protocol 1 0xff {continues}",
        f"prio 10 protocol 802.1q u32 match u16 5 0x0fff at 0 {continues}",
        f"prio 11 protocol ip u32 match mark 0 0xffffffff {continues}",
    )
    one.send(PACKETS)
    return one.end()


def basic():
    def match(prio, text, protocol="ip"):
        return f"prio {prio} protocol {protocol} basic match '{text}'"

    return filters(
        "basic",
        match(1, "cmp(u8 at 9 layer network eq 6)"),
        match(2, "not cmp(u8 at 9 layer network eq 17)"),
        match(3, "cmp(u16 at 2 layer transport gt 80) and cmp(u8 at 9 layer network eq 17)"),
        match(4, "cmp(u16 at 2 layer transport eq 80) or cmp(u8 at 8 layer network lt 4)"),
        match(5, "cmp(u8 at 1 layer network mask 0xfc eq 0xb8)"),
        match(6, "cmp(u32 at 0 layer link eq 0x02000000)", "all"),
        match(7, "u32(u32 0x0a000007 0xffffffff at 12)"),
        match(8, "u32(u16 53 0xffff at nexthdr+2)"),
        match(9, "nbyte(\"\\x0a\" at 16 layer network)"),
        match(10, "nbyte(\"E\" at 0 layer network)"),
        match(11, "meta(pkt_len gt 300)", "all"),
        match(12, "meta(priority eq 0) and not meta(fwmark eq 1)", "all"),
        match(13, "meta(protocol eq 0x0806)", "all"),
        match(14, "(cmp(u8 at 9 layer network eq 6) or cmp(u8 at 9 layer network eq 1)) and "
                  "not cmp(u8 at 8 layer network lt 60)"),
        match(15, "cmp(u8 at 400 layer network eq 0)"),
        match(16, "cmp(u16 at 0 layer transport eq 1000 trans)"),
        match(17, "meta(vlan mask 0xfff eq 5)", "all"),
    )


def matchall_fw():
    one = Scenario("matchall and fw")
    one.add(
        "prio 1 protocol ip matchall action skbedit mark 5 continue",
        "prio 2 protocol ipv6 matchall action skbedit mark 0x25 continue",
        "prio 3 protocol all handle 5 fw action continue",
        "prio 4 protocol all handle 5/0xf fw action continue",
        "prio 4 protocol all handle 4/0xf fw action continue",
        "prio 5 protocol arp matchall action drop",
        "prio 6 protocol 802.1q matchall action continue",
        "prio 7 protocol 802.1ad matchall action drop",
        "prio 8 protocol ip handle 0x25 fw action drop",
    )
    one.add("prio 1 protocol ipv6 handle 0x25 fw action drop", at="p1 egress")
    one.send(PACKETS)
    one.send(PACKETS[:4], port="p1")
    return one.end()


def police_by_other_rates():
    one = Scenario("police by packets, and by the average rate")
    estimated = "prio 1 protocol ip estimator 1s 8s flower ip_proto udp dst_port"
    one.add(
        # A burst is there only some time after the action.
        udp(1, 1, "action police pkts_rate 1000 pkts_burst 100 conform-exceed drop"),
        udp(1, 2, "action police pkts_rate 1000 pkts_burst 100 conform-exceed pass/pipe action drop"),
        udp(1, 3, "action police pkts_rate 1000000 pkts_burst 1000 mtu 300 conform-exceed drop"),
        udp(1, 4, "action police rate 8bit burst 300 pkts_rate 1 pkts_burst 3 conform-exceed drop"),
        udp(1, 5, "action police avrate 1gbit conform-exceed drop"),
        f"{estimated} 6 action police avrate 1gbit conform-exceed drop",
        f"{estimated} 7 action police avrate 1gbit rate 8bit burst 300 conform-exceed drop",
        "prio 2 protocol ip matchall action drop",
        at="p1 egress",
    )
    one.send(dports(*[1] * 6, *[2] * 4, 3, 3, 4, 5, *[6] * 3, *[7] * 7))
    one.send(dports(3, 6, 7, data=400))
    return one.end()


SCENARIOS = [gact, police, mirred, skbedit, vlan, pedit, csum, skbmod, flower, u32, basic]
SCENARIOS += [matchall_fw, police_at_ingress, ethernet_headers, police_by_other_rates]


def record(sender, lines, start, files=()):
    with tempfile.TemporaryDirectory() as temporary:
        commands = os.path.join(temporary, "commands")
        with open(commands, "w") as file:
            file.write("\n".join(lines) + "\n")
        script = os.path.join(temporary, "script")
        with open(script, "w") as file:
            file.write("\n".join([start, *BEFORE, "tc -V", "/hooks </commands 2>&1"]) + "\n")
        environment = os.environ | {"ADD": " ".join([sender, commands, *files]), "TIMEOUT": "1800"}
        command = [os.environ["SOFTNET_QEMU_KERNEL"], script]
        done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True)
    console = done.stdout.decode(errors="replace")
    kernel, version, text = re.search(
        r"== begin (\S+)\n.*?iproute2-([0-9.]+)[^\n]*\n(.*)== end", console, re.S
    ).groups()
    version = version.removesuffix(".0")
    # What the kernel prints, and what its own stack sends.
    text = re.sub(r"^(\[ *[0-9.]+\]|< p\d 01005e).*\n", "", text, flags=re.M)
    with open(f"{HERE}/hooks.iproute2-{version}.txt", "w") as file:
        file.write(f"# Linux {kernel}, iproute2 {version}\n{text}")


def main():
    if len(sys.argv) != 1:
        sys.exit(__doc__)
    lines = ["== start", *[f"$ {command}" for command in START]]
    lines += [line for scenario in SCENARIOS for line in scenario()]
    with tempfile.TemporaryDirectory() as temporary:
        sender = os.path.join(temporary, "hooks")
        subprocess.run(["gcc", "-static", "-O1", "-o", sender, HERE + "/hooks.c"], check=True)
        loader, files = own()
        for run, add in [("{0}7", []), (f"/{loader} --library-path / /{{0}}", files)]:
            functions = "".join(
                f'{program}() {{ {run.format(program)} "$@"; }}\n' for program in PROGRAMS
            )
            start = f"cat >/functions <<'END'\n{functions}END\n. /functions"
            record(sender, lines, start, add)


if __name__ == "__main__":
    main()
