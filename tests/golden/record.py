#!/usr/bin/env python3
"""Records what Linux does with known packets, for crates/softnet-tc/tests/golden.

Usage: SOFTNET_QEMU_KERNEL=PROGRAM record.py FOLDER [SCENARIO…]

PROGRAM runs a shell script in a virtual machine and prints its console. It puts the files that the
variable ADD names into the machine's root folder, has iproute2 there as `tc7` and `ip7`, and loads
a module with `mod NAME`. FOLDER gets a file for each scenario, or for those that are named: commands,
packets and what came of them.

The qdiscs hang below a token bucket that is empty, so that packets wait until it is refilled. One
more packet then starts the queue, since a change alone does not.
"""

import json
import os
import re
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
MODULES = """sch_netem sch_tbf sch_htb sch_prio sch_codel sch_fq sch_fq_codel sch_mqprio_lib
sch_mqprio sch_drr sch_ets sch_qfq sch_hfsc sch_cake sch_sfq sch_red sch_multiq sch_pie
sch_fq_pie sch_dualpi2 cls_u32
cls_flower cls_basic cls_matchall cls_fw em_cmp em_u32 em_meta act_gact
act_vlan act_skbedit sch_ingress dummy""".split()
BUCKET = "burst 1600 limit 1000000"


def ip4(last=1, to=2, proto=17, sport=1000, dport=53, tos=0, frag=0, tags=b"", size=100):
    """An IPv4 packet of `size` bytes from 10.0.0.`last` to 10.0.0.`to`."""
    length = size - 14 - len(tags)
    payload = b"" if proto not in (6, 17) else bytes()
    transport = sport.to_bytes(2, "big") + dport.to_bytes(2, "big")
    if proto == 17:
        transport += (length - 20).to_bytes(2, "big") + b"\0\0"
    else:
        transport += b"\0\0\0\1\0\0\0\0\x50\x10\1\0\0\0\0\0"
    header = bytes([0x45, tos]) + length.to_bytes(2, "big") + b"\0\1" + frag.to_bytes(2, "big")
    header += bytes([64, proto, 0, 0, 10, 0, 0, last, 10, 0, 0, to])
    return link(tags + b"\x08\0" + header + transport + payload, size)


def ip6(last=1, to=2, proto=17, extension=b"", sport=1000, dport=53, tos=0, tags=b"", size=120):
    """An IPv6 packet from fd00::`last` to fd00::`to`; `proto` is that of the first header."""
    length = size - 14 - len(tags) - 40
    transport = sport.to_bytes(2, "big") + dport.to_bytes(2, "big")
    transport += (length - len(extension)).to_bytes(2, "big") + b"\0\0"
    header = bytes([0x60 | tos >> 4, tos << 4 & 0xF0, 0, 0]) + length.to_bytes(2, "big")
    header += bytes([proto, 64]) + b"\xfd" + bytes(14) + bytes([last]) + b"\xfd" + bytes(14)
    return link(tags + b"\x86\xdd" + header + bytes([to]) + extension + transport, size)


def link(rest, size=100):
    frame = b"\2\0\0\0\0\x0b\2\0\0\0\0\x0a" + rest
    return frame + bytes(size - len(frame))


def is_tag(frame, at):
    return frame[at : at + 2] in (b"\x81\0", b"\x88\xa8") and (at == 12 or is_tag(frame, 12))


class Scenario:
    """A device with qdiscs, and what is done with it."""

    def __init__(self, name, *, queues=1, txqueuelen=1000):
        self.device, self.number, self.tags = name, 0, {}
        # What is recorded of times: when bursts come ("at"), when packets leave ("times").
        self.timed = ()
        self.lines = [
            f"! ip7 link add {name} numtxqueues {queues} type dummy",
            f"! echo 1 >/proc/sys/net/ipv6/conf/{name}/disable_ipv6",
            f"! ip7 link set {name} txqueuelen {txqueuelen} arp off up",
            name,
        ]

    def tc(self, command):
        what, verb, rest = command.split(" ", 2)
        self.lines.append(f"! tc7 {what} {verb} dev {self.device} {rest}")

    def hold(self, verb="add", mark=0):
        """A bucket as root, and packets that empty it."""
        root = "root " if verb == "add" else ""
        self.tc(f"qdisc {verb} {root}handle 1: tbf rate 64bit {BUCKET}")
        for size in (1514, 60, 20):
            self.send(link(b"\x88\xb5", size), mark=mark)

    def send(self, frame, priority=0, mark=0, times=1):
        for _ in range(times):
            numbered = (frame[:-2] + self.number.to_bytes(2, "big")).hex()
            tags = b"".join(frame[at : at + 4] for at in (12, 16) if is_tag(frame, at))
            if tags:
                self.lines.append(f"tagged {len(tags)} {self.mark_of(tags)} {numbered}")
            else:
                self.lines.append(f"send {priority} {mark} {numbered}")
            self.number += 1

    def burst(self, count, frame, priority=0):
        """Packets whose fates are told by a letter each."""
        numbered = (frame[:-2] + self.number.to_bytes(2, "big")).hex()
        self.lines.append(f"burst {count} {priority} 0 {numbered}")
        self.number += count

    def sleep(self, seconds):
        self.lines.append(f"! sleep {seconds}")

    def mark_of(self, tags):
        """The mark by which a frame is given these tags, as a driver or a VLAN device does."""
        if tags in self.tags:
            return self.tags[tags]
        mark = self.tags[tags] = 1000 + len(self.tags)
        if len(self.tags) == 1:
            self.lines.append(f"! tc7 qdisc add dev {self.device} clsact")
        actions = ""
        for at in reversed(range(0, len(tags), 4)):
            value = int.from_bytes(tags[at + 2 : at + 4], "big")
            tpid = "802.1Q" if tags[at] == 0x81 else "802.1ad"
            actions += f"action vlan push protocol {tpid} id {value & 4095} "
            actions += f"priority {value >> 13} pipe "
        self.lines.append(
            f"! tc7 filter add dev {self.device} egress prio 1 protocol all handle {mark} fw "
            f"{actions} action skbedit mark 0"
        )
        return mark

    def queues(self, count):
        """From here on a packet of mark 2000 + Q takes transmit queue Q."""
        self.lines.append(f"! tc7 qdisc add dev {self.device} clsact")
        for queue in range(count):
            self.lines.append(
                f"! tc7 filter add dev {self.device} egress prio 1 protocol all "
                f"handle {2000 + queue} fw action skbedit queue_mapping {queue}"
            )

    def release(self, priority=0, frame=None, mark=0):
        self.tc("qdisc change handle 1: tbf rate 10gbit burst 10mb limit 1000000")
        self.send(frame or link(b"\x88\xb5"), priority, mark)

    def show(self, *what):
        self.lines.append("out")
        for what in what or ("qdisc", "class"):
            # tc's JSON of ematches is none.
            form, of = (" -j", "") if what != "filter" else ("", " parent 2:")
            self.lines.append(f"! tc7 -s{form} {what} show dev {self.device}{of}")


def handle(text):
    major, minor = text.split(":")
    return int(major or "0", 16) << 16 | int(minor or "0", 16)


def prio():
    one = Scenario("prio", txqueuelen=4)
    one.hold()
    one.tc("qdisc add parent 1:1 handle 2: prio bands 4 priomap 1 2 2 2 1 2 0 0 1 3 3 3 1 1 1 1")
    one.tc("qdisc add parent 2:4 handle 3: pfifo limit 2")
    for priority in [*range(18), handle("2:1"), handle("2:4"), handle("2:5"), handle("5:1"), 9]:
        one.send(ip4(size=100 + priority % 64), priority)
    one.show()
    one.tc("qdisc change handle 2: prio bands 4 priomap 3 2 1 0 1 2 0 0 1 3 3 3 1 1 1 1")
    for priority in range(4):
        one.send(ip4(), priority)
    one.release(6)
    one.show()
    return one


def filters(name, commands, packets):
    one = Scenario(name)
    one.hold()
    one.tc("qdisc add parent 1:1 handle 2: prio bands 16 priomap 14 15" + " 13" * 14)
    for command in commands:
        one.tc(f"filter {command.replace(' ', ' parent 2: ', 1)}")
    for packet in packets:
        one.send(*packet) if isinstance(packet, tuple) else one.send(packet)
    one.release(1)
    one.show("qdisc", "class", *(["filter"] if name != "restarts" else []))
    return one


def handles():
    """What becomes of filters that are changed, replaced and deleted."""
    one = Scenario("handles")
    one.hold()
    one.tc("qdisc add parent 1:1 handle 2: prio bands 16")
    for command in [
        "add prio 5 protocol ip u32 match u8 1 ff at 9 flowid 2:1",
        "add prio 5 protocol ip u32 match u8 2 ff at 9 flowid 2:1",
        "add prio 5 protocol ip u32 match u8 3 ff at 9 flowid 2:1",
        "add prio 6 protocol ip u32 match u8 4 ff at 9 flowid 2:1",
        "del prio 5 protocol ip handle 800::801 u32",
        "add prio 5 protocol ip u32 match u8 5 ff at 9 flowid 2:1",
        "del prio 6",
        "add prio 7 protocol ip u32 match u8 6 ff at 9 flowid 2:1",
        "add prio 9 protocol ip flower ip_proto tcp flowid 2:1",
        "add prio 9 protocol ip flower ip_proto udp flowid 2:1",
        "add prio 9 protocol ip flower ip_proto icmp flowid 2:1",
        "del prio 9 protocol ip handle 2 flower",
        "change prio 9 protocol ip handle 1 flower ip_proto udp flowid 2:2",
        "replace prio 9 protocol ip handle 7 flower ip_proto tcp flowid 2:2",
        "replace prio 9 protocol ip handle 7 flower ip_proto udp flowid 2:2",
        "add prio 9 protocol ip flower ip_tos 4 flowid 2:3",
        "add prio 10 protocol ip basic flowid 2:1",
        "add prio 10 protocol ip basic flowid 2:2",
        "del prio 10 protocol ip handle 1 basic",
        "add prio 10 protocol ip basic flowid 2:3",
        "del prio 10 protocol ip handle 5 basic",
        "del prio 11",
        "add chain 3 prio 1 protocol ip matchall flowid 2:1",
        "add chain 4 prio 1 protocol ip matchall flowid 2:1",
        "del chain 3",
        "del chain 5",
        "add prio 20 protocol ip handle 6 fw flowid 2:1",
        "change prio 20 protocol ip handle 6 fw flowid 2:2",
        "add prio 20 protocol ip fw flowid 2:2",
        "del prio 7",
        "del prio 5",
        "add prio 5 protocol ip u32 match u8 7 ff at 9 flowid 2:1",
    ]:
        one.tc(f"filter {command.replace(' ', ' parent 2: ', 1)}")
    one.show("filter")
    return one


def htb_filters():
    """Filters of classes that are no leaves, and of classes that are."""
    one = Scenario("htb_filters")
    one.tc("qdisc add root handle 2: htb default 30")
    classes = ["1 10", "1 11", "2 20", " 30", " 31"]
    # Inner classes that are asked one after the other: 2:a1 to 2:ae.
    classes += [f"a{n:x} b{n:x}" for n in range(1, 15)]
    above = set()
    for names in classes:
        parent, child = names.split(" ")
        if parent and parent not in above:
            above.add(parent)
            one.tc(f"class add parent 2: classid 2:{parent} htb rate 1gbit quantum 1514")
        one.tc(f"class add parent 2:{parent} classid 2:{child} htb rate 1gbit quantum 1514")
    commands = [
        " prio 1 protocol ip flower ip_proto tcp flowid 2:1",
        " prio 2 protocol ip flower dst_ip 10.0.0.9 flowid 2:2",
        " prio 3 protocol ip flower src_ip 10.0.0.9 flowid 2:99",
        " prio 4 protocol ip flower ip_tos 4 flowid 7:31",
        " prio 5 protocol ip flower ip_tos 8 flowid 2:",
        " prio 6 protocol ip handle 7 fw flowid 2:31",
        "1 prio 1 protocol ip flower ip_proto tcp dst_port 80 flowid 2:10",
        "1 prio 1 protocol ip flower ip_proto tcp dst_port 81 flowid 2:11",
        "1 prio 1 protocol ip flower ip_proto tcp dst_port 82 flowid 2:2",
        "1 prio 1 protocol ip flower ip_proto tcp dst_port 83 action drop",
        "1 prio 1 protocol ip flower ip_proto tcp dst_port 84 action goto chain 5",
        "1 prio 1 protocol ip flower ip_proto tcp dst_port 85 flowid 2:",
        "1 chain 5 prio 1 protocol ip matchall flowid 2:11",
        "2 prio 1 protocol ip flower ip_proto tcp dst_port 82 flowid 2:20",
        # A leaf's are not asked.
        "30 prio 1 protocol ip matchall flowid 2:31",
        # Refused.
        "99 prio 1 protocol ip matchall flowid 2:31",
    ]
    for n in range(1, 15):
        to = f"2:a{n + 1:x}" if n < 14 else "2:31"
        commands.append(f"a{n:x} prio 1 protocol all matchall flowid {to}")
    for command in commands:
        one.tc(f"filter add parent 2:{command}")
    for dport in range(80, 87):
        one.send(ip4(proto=6, dport=dport))
    for packet in [ip4(to=9), ip4(last=9), ip4(tos=4), ip4(tos=8), ip4()]:
        one.send(packet)
    one.send(ip4(), 0, 7)
    one.send(ip4(proto=6, dport=81), handle("2:1"))
    one.send(ip4(dport=81), handle("2:1"))
    one.send(ip4(proto=6), handle("2:2"))
    one.send(ip4(), handle("2:31"))
    one.send(ip4(), handle("2:"))
    for n in range(1, 15):
        one.send(ip4(), handle(f"2:a{n:x}"))
    one.show("qdisc", "class")
    # What leads to a class keeps it; what it has goes with it.
    for command in ["del classid 2:31", "del classid 2:30", "del classid 2:11"]:
        one.tc(f"class {command}")
    for parent in ["2:1", "2:1 chain 5", "2:30", "2: prio 6", "2:ae"]:
        one.tc(f"filter del parent {parent}")
    one.tc("class del classid 2:31")
    one.tc("class del classid 2:11")
    one.send(ip4(proto=6, dport=80))
    # Round and round.
    one.tc("filter add parent 2:1 prio 1 protocol ip matchall flowid 2:1")
    one.send(ip4(proto=6, dport=80))
    one.tc("class del classid 2:1")
    one.show("qdisc", "class")
    return one


def tag(id, prio=0, tpid=0x8100):
    return tpid.to_bytes(2, "big") + (prio << 13 | id).to_bytes(2, "big")


HOP = b"\x2b\0\0\0\0\0\0\0"
ROUTING = b"\x11\0\0\0\0\0\0\0"
PACKETS = [
    ip4(),
    ip4(last=7, to=9, dport=80),
    ip4(proto=6, sport=443, dport=50000),
    ip4(proto=6, dport=80, tos=0xB8),
    ip4(tos=0xB8, dport=5060),
    ip4(tos=0x20, to=130),
    ip4(frag=0x2000),
    ip4(frag=0x0010),
    ip4(proto=1),
    ip6(),
    ip6(to=9, dport=80, tos=0xB8),
    ip6(proto=0, extension=HOP + ROUTING),
    ip6(proto=44, extension=b"\x11\0\0\1\0\0\0\0"),
    ip6(proto=44, extension=b"\x11\0\0\x50\0\0\0\0"),
    ip4(tags=tag(5, 3)),
    ip4(tags=tag(6), dport=80),
    ip6(tags=tag(5)),
    ip4(tags=tag(7, 1, 0x88A8) + tag(5, 3)),
    link(b"\x08\x06\0\1\x08\0\6\4\0\1"),
    link(b"\x81\0\0\5\x08\x06\0\1\x08\0\6\4\0\1"),
    (ip4(), 0, 5),
    (ip4(), 0, 0x15),
    (ip4(dport=80), 3, 0xFF),
    (ip4(dport=81), 6, 1),
]


def all_filters():
    yield filters(
        "flower",
        [
            "add prio 4 protocol ip flower ip_proto tcp dst_port 80 flowid 2:1",
            "add prio 4 protocol ip flower ip_proto udp dst_port 5000-6000 flowid 2:2",
            "add prio 4 protocol ip flower ip_tos 0xb8/0xfc flowid 2:3",
            "add prio 4 protocol ip flower ip_proto tcp src_port 443 action continue",
            "add prio 5 protocol ip flower dst_ip 10.0.0.128/25 flowid 2:4",
            "add prio 5 protocol ip flower src_ip 10.0.0.7 dst_ip 10.0.0.8/30 flowid 2:5",
            "add prio 6 protocol ip flower ip_proto icmp flowid 2:6",
            "add prio 7 protocol ipv6 flower ip_proto udp dst_port 80 flowid 2:7",
            "add prio 7 protocol ipv6 flower ip_proto udp dst_port 53 flowid 2:8",
            "add prio 7 protocol ipv6 flower ip_proto udp flowid 2:9",
            "add prio 9 protocol ip flower ip_proto udp dst_port 53 flowid 2:a",
            "add prio 9 protocol ip handle 9 flower ip_proto udp flowid 2:b",
            "add prio 9 protocol ip flower ip_proto tcp flowid 2:c",
            "add protocol arp flower flowid 2:d",
            "add protocol ipv6 flower flowid 2:2",
            # Refused.
            "add prio 9 protocol ip flower ip_proto tcp flowid 2:1",
            "add prio 9 protocol ipv6 flower ip_proto tcp flowid 2:1",
            "add prio 9 protocol ip matchall flowid 2:1",
            "add prio 9 protocol ip handle 9 flower ip_proto icmp flowid 2:1",
            "change prio 9 protocol ip handle 8 flower ip_proto icmp flowid 2:1",
        ],
        PACKETS,
    )
    yield filters(
        "vlan",
        [
            "add prio 1 protocol 802.1q flower vlan_id 5 vlan_prio 3 flowid 2:1",
            "add prio 2 protocol 802.1q flower vlan_id 5 vlan_ethtype arp flowid 2:2",
            "add prio 3 protocol 802.1q flower vlan_ethtype ip ip_proto udp dst_port 80 flowid 2:3",
            "add prio 4 protocol 802.1q flower vlan_ethtype ipv6 flowid 2:4",
            "add prio 5 protocol 802.1ad flower vlan_id 7 flowid 2:5",
            "add prio 6 protocol ip matchall flowid 2:6",
            "add prio 7 protocol ipv6 matchall flowid 2:7",
            "add prio 8 protocol 802.1q matchall flowid 2:8",
        ],
        PACKETS,
    )
    yield filters(
        "u32",
        [
            "add prio 5 protocol ip u32 match u32 0x0a000082 ffffffff at 16 flowid 2:1",
            "add prio 5 protocol ip u32 match u8 0xb8 fc at 1 match u8 6 ff at 9 flowid 2:2",
            "add prio 5 protocol ip u32 match u16 5060 ffff at 22 flowid 2:3",
            "add prio 5 protocol ip handle 800::10 u32 match u8 1 ff at 9 flowid 2:4",
            "add prio 5 protocol ip handle ::11 u32 match u16 0x2000 2000 at 6 flowid 2:5",
            "add prio 6 protocol ip u32 match mark 5 0xf match u16 53 ffff at 22 flowid 2:6",
            "add prio 7 protocol ipv6 u32 match u8 44 ff at 6 action continue",
            "add prio 7 protocol ipv6 u32 match u32 0 f0000000 at 40 flowid 2:7",
            "add prio 8 protocol 802.1q u32 match u8 17 ff at 9 flowid 2:8",
            "add prio 3 protocol 802.1ad u32 match u8 0x45 ff at 0 flowid 2:9",
            "add prio 9 protocol all u32 match u16 0x0806 ffff at -2 flowid 2:a",
            "add prio 9 protocol all u32 match u16 0x0200 ff00 at -14 "
            "match u32 0x0000000b ffffffff at -12 match u16 80 ffff at 22 flowid 2:b",
            "add prio 10 protocol all u32 match u32 0 0 at 96 flowid 2:c",
            # Refused.
            "add prio 5 protocol ip handle 800::10 u32 match u32 0 0 at 0 flowid 2:4",
            "add prio 5 protocol ip handle 801::20 u32 match u32 0 0 at 0 flowid 2:4",
        ],
        PACKETS,
    )
    yield filters(
        "basic",
        [
            "add prio 1 protocol ip basic match "
            "'cmp(u16 at 2 layer transport eq 5060) and cmp(u8 at 1 layer network mask 0xfc gt 4)' "
            "flowid 2:1",
            "add prio 1 protocol ip basic match "
            "'u32(u8 6 0xff at 9) and not cmp(u16 at 2 layer 2 eq 80)' flowid 2:2",
            "add prio 1 protocol ip basic match 'cmp(u8 at 9 eq 1)' flowid 2:7",
            "add prio 2 protocol ip basic match 'meta(priority eq 3)' flowid 2:3",
            "add prio 2 protocol ip basic match 'meta(nf_mark mask 0xf eq 5)' action continue",
            "add prio 2 protocol ip basic match 'meta(nf_mark gt 4)' flowid 2:4",
            "add prio 3 protocol all basic match 'cmp(u16 at 12 layer link lt 0x0807)' flowid 2:5",
            "add prio 4 protocol all basic flowid 2:6",
        ],
        PACKETS,
    )
    yield filters(
        "actions",
        [
            "add prio 1 protocol all handle 5/0xf fw action continue",
            "add prio 1 protocol all handle 0xf/0xf fw flowid 2:1",
            "add prio 1 protocol all handle 1/0xf fw action drop",
            "add prio 2 protocol ipv6 matchall action goto chain 7",
            "add chain 7 prio 3 protocol ipv6 flower ip_proto udp dst_port 80 flowid 2:2",
            "add chain 7 prio 4 protocol ipv6 flower ip_proto udp action goto chain 8",
            "add chain 9 prio 1 protocol all matchall flowid 2:9",
            "add prio 3 protocol arp matchall action reclassify",
            "add prio 4 protocol 802.1q matchall action pass",
            "add prio 5 protocol 802.1ad matchall action drop",
            "add prio 6 protocol ip handle 21 fw flowid 2:3",
            "add protocol ip flower dst_ip 10.0.0.9 flowid 2:4",
            "add protocol ip flower dst_ip 10.0.0.8/30 flowid 2:5",
            "add prio 32769 protocol ip flower ip_proto tcp flowid 2:6",
            "add protocol ip flower ip_tos 0x20 flowid 2:7",
            # Refused: no priority is left; other mask; one of that handle; only one matchall.
            "add protocol ip flower ip_tos 0x20 flowid 2:7",
            "add prio 1 protocol all handle 2/0xff fw flowid 2:1",
            "add prio 6 protocol ip handle 21 fw flowid 2:4",
            "replace prio 2 protocol ipv6 handle 1 matchall flowid 2:4",
            "add chain 268435456 protocol ip matchall flowid 2:7",
        ],
        PACKETS,
    )
    loops = ["add prio 1 protocol arp matchall action goto chain 1"]
    loops += ["add prio 2 protocol ip matchall action goto chain 2"]
    for chain in range(1, 17):
        goto = f"matchall action goto chain {chain + 1}"
        loops.append(f"add chain {chain} prio 1 protocol all {goto}")
    loops += ["add chain 17 prio 1 protocol all matchall flowid 2:9"]
    yield filters("restarts", loops, [PACKETS[0], PACKETS[18]])


def mqprio():
    one = Scenario("mqprio", queues=4)
    one.tc(
        "qdisc add root handle 1: mqprio num_tc 3 map 0 1 2 2 1 0 0 0 0 0 0 0 0 0 0 2 "
        "queues 1@0 1@1 2@2 hw 0"
    )
    for priority in range(18):
        one.send(ip4(sport=1000 + priority), priority, times=priority + 1)
    one.show("class")
    return one


def classful(name, qdisc, classes, changes):
    """Classes with packets of many sizes, which change and go while they wait."""
    one = Scenario(name)
    one.hold()
    one.tc(f"qdisc add parent 1:1 handle 2: {qdisc}")
    for parent, minor, options in classes:
        one.tc(f"class add parent 2:{parent} classid 2:{minor} {name} {options}")
    # The bucket looks at this one.
    one.send(ip4(), handle("2:99"))
    leaves = [minor for _, minor, _ in classes if minor != "99" and not minor.startswith("a")]
    sizes = [100, 1514, 300, 700, 64, 1200, 1000]
    at = 0
    for times in (3, 1, 4, 2, 5):
        for minor in leaves:
            one.send(ip4(size=sizes[at % len(sizes)]), handle(f"2:{minor}"), times=times)
            at += 3
    # To no class.
    one.send(ip4(), handle("2:77"), times=2)
    one.show("qdisc")
    for change in changes:
        one.tc(change)
    for minor in leaves[1:4]:
        one.send(ip4(size=500), handle(f"2:{minor}"), times=3)
    one.show("qdisc")
    one.release(handle(f"2:{leaves[1]}"))
    one.show("qdisc", "class")
    # Idle in between.
    for minor in leaves[1:4]:
        one.send(ip4(size=900), handle(f"2:{minor}"))
    one.show("qdisc", "class")
    return one


def drr():
    quanta = [("", "99", ""), ("", "1", "quantum 300"), ("", "2", "quantum 1514")]
    quanta += [("", "3", "quantum 4000"), ("", "4", ""), ("", "5", "quantum 256")]
    changes = ["class change classid 2:3 drr quantum 600", "class del classid 2:5"]
    return classful("drr", "drr", quanta, changes)


def qfq():
    weights = [("", "99", "weight 5"), ("", "1", "weight 1"), ("", "2", "weight 10")]
    weights += [("", "3", "weight 100 maxpkt 2000"), ("", "4", "weight 10")]
    weights += [("", "5", "weight 10 maxpkt 600"), ("", "6", "weight 1000")]
    changes = ["class change classid 2:3 qfq weight 3", "class del classid 2:5"]
    return classful("qfq", "qfq", weights, changes)


def hfsc():
    rate = lambda kbit: f"ls m2 {kbit}kbit"
    curves = [("", "99", rate(100)), ("", "a1", rate(600)), ("", "a2", rate(300))]
    curves += [("a1", "1", rate(100)), ("a1", "2", rate(500)), ("a2", "3", rate(50))]
    curves += [("a2", "a3", rate(250)), ("a3", "4", rate(10)), ("a3", "5", rate(20))]
    curves += [("", "6", rate(1000))]
    changes = ["class change classid 2:2 hfsc ls m2 50kbit", "class del classid 2:5"]
    return classful("hfsc", "hfsc default 6", curves, changes)


def hfsc_rt():
    """All that waits is eligible when it may leave: it does so by deadlines, then by shares.

    Deadlines count from when packets come.
    """
    one = Scenario("hfsc_rt")
    one.timed = ("at",)
    one.hold()
    one.tc("qdisc add parent 1:1 handle 2: hfsc default 6")
    curves = [
        ("", "a1", "ls m2 600kbit"),
        # Classes with linear, concave and convex curves; the last one shares, too.
        ("a1", "1", "rt m2 80kbit"),
        ("a1", "2", "rt m1 200kbit d 400ms m2 40kbit"),
        ("", "3", "rt m1 0bit d 700ms m2 160kbit"),
        ("", "4", "sc m1 160kbit d 400ms m2 16kbit"),
        ("", "5", "rt umax 1500 dmax 150ms rate 30kbit ls m2 100kbit"),
        ("", "6", "ls m2 300kbit"),
        ("", "7", "ls m2 100kbit"),
    ]
    for parent, minor, options in curves:
        one.tc(f"class add parent 2:{parent} classid 2:{minor} hfsc {options}")
    # The bucket looks at the first one.
    one.send(ip4(size=1514), handle("2:6"))
    # What is due of the first five until then.
    sizes = [(1190, 1, 7), (1240, 2, 8), (1460, 3, 5), (850, 4, 6), (1380, 5, 7)]
    for size, minor, times in [*sizes, (1000, 6, 9), (1000, 7, 4)]:
        one.burst(times, ip4(size=size), handle(f"2:{minor}"))
    one.sleep(9)
    one.show("qdisc")
    one.release(handle("2:7"))
    one.show("qdisc", "class")
    return one


def hfsc_ul():
    """Upper limits, of a leaf and of an inner class: what leaves, leaves by the clock."""
    one = Scenario("hfsc_ul")
    one.timed = ("at", "times")
    one.tc("qdisc add root handle 2: hfsc default 6")
    curves = [
        ("", "a1", "ls m2 1mbit ul m2 80kbit"),
        ("a1", "1", "ls m2 300kbit"),
        ("a1", "2", "ls m2 100kbit"),
        ("", "3", "ls m2 1mbit ul m1 400kbit d 190ms m2 36kbit"),
        ("", "6", "ls m2 1mbit"),
    ]
    for parent, minor, options in curves:
        one.tc(f"class add parent 2:{parent} classid 2:{minor} hfsc {options}")
    one.burst(12, ip4(size=1000), handle("2:1"))
    one.burst(6, ip4(size=1000), handle("2:2"))
    one.burst(16, ip4(size=1000), handle("2:3"))
    one.burst(5, ip4(size=1000), handle("2:6"))
    one.show("class")
    return one


def ets():
    one = Scenario("ets")
    one.hold()
    one.tc(
        "qdisc add parent 1:1 handle 2: ets bands 6 strict 2 quanta 300 1514 4000 256 "
        "priomap 5 4 3 2 1 0 5 5 5 5 5 5 5 5 5 5"
    )
    one.send(ip4(), handle("2:1"))
    at = 0
    for times in (3, 1, 4, 2):
        for priority in [0, 1, 2, 3, 4, 5, 9, handle("2:3"), handle("2:9"), handle("7:1")]:
            size = [100, 1514, 300, 700, 64, 1200, 1000][at % 7]
            one.send(ip4(size=size), priority, times=times)
            at += 3
    one.show("qdisc")
    one.tc(
        "qdisc change handle 2: ets bands 6 strict 1 quanta 700 300 1514 4000 256 "
        "priomap 5 4 3 2 1 0 5 5 5 5 5 5 5 5 5 5"
    )
    for priority in range(6):
        one.send(ip4(size=500), priority, times=3)
    one.release(0)
    one.show("qdisc", "class")
    return one


def sfq():
    """Named queues: the packets' hash has a random key."""
    one = Scenario("sfq")
    one.hold()
    one.tc("qdisc add parent 1:1 handle 2: sfq limit 24 flows 6 depth 9 divisor 64 quantum 600")
    fill_sfq(one, 0)
    one.release(handle("2:1"))
    one.show("qdisc")
    # Again, from empty flows.
    one.hold("change")
    fill_sfq(one, 3)
    one.release(handle("2:3"))
    one.show("qdisc")
    return one


def fill_sfq(one, first):
    flow = lambda n: handle(f"2:{n:x}")
    # The bucket looks at the first one.
    one.send(ip4(), flow(64))
    for size, n, times in [(500, 1, 4), (100, 2, 6), (1000, 3, 2), (300, 4, 3), (1500, 5, 1)]:
        one.send(ip4(size=min(size, 1514)), flow((n + first) % 6 + 1), times=times)
    # Deeper than a queue may be; then over the limit, where the longest queue loses.
    one.send(ip4(size=200), flow((first + 2) % 6 + 1), times=6)
    one.send(ip4(size=800), flow((first + 4) % 6 + 1), times=8)
    one.show("qdisc")
    # No place for another flow, of which there are as many as there may be.
    one.send(ip4(size=400), flow(40))
    one.send(ip4(size=400), flow(41), times=2)
    for n in (1, 4, 2, 40):
        one.send(ip4(size=120), flow(n), times=2)
    one.show("qdisc")


def sfq_headdrop():
    one = Scenario("sfq_headdrop")
    one.hold()
    one.tc(
        "qdisc add parent 1:1 handle 2: sfq limit 24 flows 6 depth 9 divisor 64 quantum 600 "
        "headdrop"
    )
    fill_sfq(one, 0)
    one.release(handle("2:1"))
    one.show("qdisc")
    return one


# Between these thresholds nothing is left to chance.
STEP = "min 3000 max 3001 avpkt 500 burst 7 probability 0.5"


def sfq_red(name, words):
    one = Scenario(name)
    one.hold()
    one.tc(
        f"qdisc add parent 1:1 handle 2: sfq limit 100 flows 6 depth 40 divisor 64 quantum 600 "
        f"redflowlimit 30000 {STEP} {words}"
    )
    flow = lambda n: handle(f"2:{n:x}")
    one.send(ip4(), flow(64))
    for tos in (1, 0, 2, 3):
        one.send(ip4(size=500, tos=tos), flow(1), times=6)
        one.send(ip4(size=900, tos=tos), flow(2), times=4)
    one.send(ip4(size=60), flow(3), times=20)
    one.show("qdisc")
    one.release(flow(3))
    one.show("qdisc")
    return one


def red(name, words):
    one = Scenario(name)
    one.hold()
    one.tc(f"qdisc add parent 1:1 handle 2: red limit 12000 {STEP} bandwidth 10mbit {words}")
    for tos in (1, 0, 2, 3, 0xB8):
        one.send(ip4(size=500, tos=tos), times=5)
    # Only just too large for the queue.
    one.send(ip4(size=1500, tos=1), times=3)
    one.send(ip6(size=700), times=2)
    one.show("qdisc")
    one.release()
    one.show("qdisc")
    return one


def red_chance():
    """The queue is full, so that its average stays: the fates tell how far apart early drops are.

    To the sender they are no drops, unlike what the full queue refuses.
    """
    one = Scenario("red_chance")
    one.hold()
    one.tc(
        "qdisc add parent 1:1 handle 2: red limit 30000 min 20000 max 40000 avpkt 1000 burst 30 "
        "probability 0.1 bandwidth 10mbit"
    )
    one.send(ip4(size=1000), times=30)
    one.burst(400, ip4(size=1000))
    one.burst(6000, ip4(size=1000))
    one.show("qdisc")
    return one


def multiq():
    one = Scenario("multiq", queues=4, txqueuelen=6)
    one.queues(4)
    one.hold()
    one.tc("qdisc add parent 1:1 handle 2: multiq")
    one.tc("qdisc add parent 2:3 handle 3: pfifo limit 2")
    for times in (3, 1, 2, 2):
        for queue in (2, 0, 3, 1):
            one.send(ip4(size=100 + 50 * queue), mark=2000 + queue, times=times)
    # Some queues have none.
    one.send(ip4(size=700), mark=2003, times=2)
    one.show()
    one.release(mark=2000)
    one.show()
    one.hold("change", 2002)
    for queue in (3, 1, 1, 3, 3, 1):
        one.send(ip4(), mark=2000 + queue)
    one.release(mark=2000)
    one.show()
    return one


def pie():
    one = Scenario("pie")
    one.hold()
    one.tc("qdisc add parent 1:1 handle 2: pie limit 10 target 20ms")
    for size in (1514, 100, 300):
        one.send(ip4(size=size), times=5)
    one.show("qdisc")
    one.release()
    one.show("qdisc")
    return one


def pie_chance(kind, flow):
    """The fates of packets at a probability that no longer changes."""
    one = Scenario(f"{kind}_chance")
    one.hold()
    one.tc("qdisc change handle 1: tbf rate 64kbit burst 1600 limit 1000000")
    one.tc(f"qdisc add parent 1:1 handle 2: {kind} limit 9000 tupdate 300ms alpha 1 beta 1")
    one.burst(200, ip4(size=400), flow)
    if kind == "pie":
        show = f"tc7 -s -j qdisc show dev {one.device}"
        one.lines.append(f"! until {show} | grep -q 'prob.:0[.][1-9]'; do sleep 0.1; done")
    else:
        one.sleep(4)
    one.tc(f"qdisc change handle 2: {kind} limit 9000 tupdate 1000s alpha 1 beta 1")
    one.tc("qdisc change handle 1: tbf rate 64bit burst 1600 limit 1000000")
    # The update that was due still comes.
    one.sleep(1)
    one.burst(3000, ip4(size=100), flow)
    if kind == "fq_pie":
        # The sender is told of no drop.
        one.release(handle("2:2"))
        one.lines.append("out")
    else:
        one.lines.append(f"! {show} | sed 's/.*.prob.:\\([^,]*\\),.*/prob \\1/'")
    return one


def fq_pie():
    one = Scenario("fq_pie")
    one.hold()
    one.tc("qdisc add parent 1:1 handle 2: fq_pie limit 30 flows 16 quantum 300")
    flow = lambda n: handle(f"2:{n:x}")
    # The bucket looks at the first one.
    one.send(ip4(), flow(16))
    for size, n, times in [(500, 1, 6), (100, 2, 6), (1000, 3, 2), (300, 4, 3), (1500, 5, 1)]:
        one.send(ip4(size=size), flow(n), times=times)
    # Over the limit.
    one.send(ip4(size=800), flow(6), times=14)
    one.show("qdisc")
    one.release(flow(2))
    one.show("qdisc")
    return one


def fq_codel():
    one = Scenario("fq_codel")
    one.hold()
    one.tc(
        "qdisc add parent 1:1 handle 2: fq_codel limit 40 flows 16 quantum 300 drop_batch 4 noecn "
        "target 100s interval 200s"
    )
    flow = lambda n: handle(f"2:{n:x}")
    # The bucket looks at the first one.
    one.send(ip4(), flow(16))
    for size, n, times in [(500, 1, 6), (100, 2, 6), (1000, 3, 2), (300, 4, 3), (1500, 5, 1)]:
        one.send(ip4(size=min(size, 1514)), flow(n), times=times)
    # Over the limit: the flow with most bytes loses.
    one.send(ip4(size=800), flow(6), times=26)
    one.send(ip4(size=120), flow(7), times=3)
    one.show("qdisc")
    one.release(flow(2))
    one.show("qdisc")
    return one


def fq():
    one = Scenario("fq")
    one.hold()
    one.tc(
        "qdisc add parent 1:1 handle 2: fq limit 20 flow_limit 8 quantum 600 initial_quantum 900 "
        "nopacing"
    )

    def send(port, priority=0, size=100, times=1):
        one.send(ip4(sport=port, size=size), priority, times=times)

    # The first of these is the one that the bucket looks at, the others are the eight that may pass
    # the flows by.
    send(9, 6, times=9)
    # A new flow's first turn is in the first band (`fq_enqueue`), so these are in their order.
    for port, priority in [(4, 6), (1, 0), (2, 0), (3, 0), (6, 0), (5, 1)]:
        send(port, priority)
    one.release(1)
    one.show("qdisc")
    # And now each flow has a band.
    one.hold("change")
    send(9, 6, 60, 9)
    send(1, 0, 500, 14)
    send(2, 0, 100, 12)
    send(3, 0, 1200, 3)
    send(5, 1, 400, 6)
    send(4, 6, 300, 4)
    send(6, 0, 200, 8)
    one.show("qdisc")
    # One that the flow's limit drops.
    one.release(0, ip4(sport=1))
    one.show("qdisc")
    return one


def cake():
    """Tins, flows, COBALT's limit, filters of acknowledgments: all of it in one order."""
    one = Scenario("cake")
    one.hold()
    one.tc("qdisc add parent 1:1 handle 2: cake diffserv4 flows rtt 1000s fwmark 0xf")

    def send(port, tos=0, size=100, times=1, priority=0, mark=0):
        one.send(ip4(sport=port, tos=tos, size=size), priority, mark, times)

    # The bucket looks at the first one.
    send(9, size=60)
    # A sparse flow, and others that send more than a round's bytes.
    for port, size, times in [(1, 500, 8), (2, 1000, 6), (3, 100, 9), (4, 1500, 3), (5, 60, 1)]:
        send(port, size=size, times=times)
    # Other tins, by code point, mark and priority.
    for port, tos in [(11, 0xB8), (12, 0x20), (13, 0x48), (14, 0x04), (15, 0xE0)]:
        send(port, tos=tos, size=300, times=4)
    send(16, mark=1, times=2)
    send(17, mark=4, times=2)
    send(18, priority=handle("2:3"), times=2)
    send(19, priority=handle("2:7"), mark=9, times=2)
    one.send(link(b"\x08\x06\0\1\x08\0\6\4\0\1"))
    one.send(ip6(tos=0xB8, sport=30))
    one.send(ip6(sport=31))
    one.show("qdisc")
    one.release(priority=handle("2:2"))
    one.show("qdisc")
    return one


def cake_hosts(isolation):
    """Hosts with one flow and with several: who leaves when."""
    one = Scenario("cake_" + isolation.split("-")[0] + isolation.partition("-")[2][:3])
    one.hold()
    one.tc(f"qdisc add parent 1:1 handle 2: cake besteffort {isolation} rtt 1000s")
    # The bucket looks at the first one.
    one.send(ip4(last=99, to=98, size=1514))
    flows = [(1, 20, n) for n in range(4)] + [(2, 20, 1)] + [(3, 21, n) for n in range(2)]
    flows += [(4, to, 1) for to in range(22, 26)] + [(5, 30, n) for n in range(3)]
    # The kernel rounds a flow's share by chance: with these sizes nothing hangs on a few bytes.
    size = 1281 if "-" in isolation else 1283
    for last, to, port in flows:
        one.burst(12, ip4(last=last, to=to, sport=1000 + port, size=size))
    one.show("qdisc")
    one.release()
    one.show("qdisc")
    return one


def cake_acks():
    one = Scenario("cake_acks")
    one.hold()
    one.tc("qdisc add parent 1:1 handle 2: cake besteffort flows rtt 1000s ack-filter")

    def ack(number, port=1, flags=0x10, options=b"", data=0, dport=80):
        options += bytes(-len(options) % 4)
        header = 20 + len(options)
        length = 20 + header + data
        tcp = port.to_bytes(2, "big") + dport.to_bytes(2, "big") + bytes(4)
        tcp += number.to_bytes(4, "big") + bytes([header // 4 << 4, flags, 1, 0, 0, 0, 0, 0])
        ip = bytes([0x45, 0]) + length.to_bytes(2, "big") + b"\0\1\0\0"
        ip += bytes([64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2])
        # The number of the frame is behind the packet, as padding.
        one.send(link(b"\x08\0" + ip + tcp + options, 14 + length + 4))

    def sack(*blocks):
        words = b"".join(n.to_bytes(4, "big") for block in blocks for n in block)
        return bytes([1, 1, 5, 2 + len(words)]) + words

    def times(sent, echo):
        return bytes([1, 1, 8, 10]) + sent.to_bytes(4, "big") + echo.to_bytes(4, "big")

    ack(1)
    for filter in ("ack-filter", "ack-filter-aggressive"):
        if filter != "ack-filter":
            one.tc(f"qdisc change handle 2: cake besteffort flows rtt 1000s {filter}")
        port = 100 if filter == "ack-filter" else 200
        cases = [
            [dict(number=n * 1000) for n in range(1, 6)],
            [dict(number=1000)] * 3,
            [dict(number=n, flags=f) for n, f in [(1, 16), (2, 16), (3, 80), (4, 80), (5, 80)]],
            [dict(number=n, data=d) for n, d in [(1, 0), (2, 8), (3, 0), (4, 0), (5, 8)]],
            [dict(number=n, options=sack((50, 60 + n))) for n in (1, 2, 3)],
            [dict(number=1, options=sack((50, 60 + n))) for n in (1, 2, 3)],
            [dict(number=9, options=sack((50, 60))), dict(number=10), dict(number=11)],
            [dict(number=9, options=sack((5, 6))), dict(number=10, options=sack((5, 6)))],
            [dict(number=n, options=times(n, n)) for n in (1, 2, 3)],
            [dict(number=n, options=times(9 - n, 1)) for n in (1, 2, 3)],
            [dict(number=n, options=bytes([2, 4, 5, 180])) for n in (1, 2, 3)],
            [dict(number=n, flags=f) for n, f in [(1, 24), (2, 16), (3, 16), (4, 17)]],
        ]
        for number, case in enumerate(cases):
            for packet in case:
                ack(port=port + number, **packet)
    one.show("qdisc")
    one.release()
    one.show("qdisc")
    return one


def codel():
    one = Scenario("codel")
    one.hold()
    one.tc("qdisc add parent 1:1 handle 2: codel limit 5 target 100s interval 200s")
    one.send(ip4(), times=8)
    one.show("qdisc")
    one.release()
    one.show("qdisc")
    return one


def netem():
    """Random parts by a seed, of one stream of packets each; nothing depends on when they come."""
    one = Scenario("netem")
    verb = "add"

    def run(options, times=40, priorities=(0,), **packet):
        nonlocal verb
        root = "root " if verb == "add" else ""
        one.tc(f"qdisc {verb} {root}handle 1: netem {options}")
        verb = "change"
        for n in range(times):
            one.send(ip4(size=100, **packet), priorities[n % len(priorities)])
        one.show("qdisc")

    run("limit 5 delay 200ms seed 1", times=8)
    run("loss 20% seed 42")
    run("loss 0.5% seed 18446744073709551615", times=200)
    run("loss state 10% 30% 20% 40% 5% seed 4294967297")
    run("loss gemodel 10% 30% 80% 5% seed 9")
    run("loss 30% ecn seed 3", tos=1)
    run("duplicate 30% seed 7")
    run("duplicate 30% loss 20% seed 8")
    run("delay 200ms reorder 40% gap 2 seed 5")
    run("delay 200ms reorder 100% gap 5 seed 6", times=11)
    # Three delays, further apart than the packets come.
    run("delay 500ms 200ms distribution three seed 11", times=20)
    run("rate 8kbit limit 3 seed 6", times=6)
    return one


def netem_child():
    """A qdisc at the class, below a bucket."""
    one = Scenario("netem_child")
    one.hold()
    one.tc("qdisc add parent 1:1 handle 2: netem loss 20% seed 12")
    one.tc("qdisc add parent 2:1 handle 3: prio")
    one.tc("qdisc add parent 3:2 handle 4: pfifo limit 3")
    for n in range(30):
        one.send(ip4(size=100 + n), [0, 6, 1, 0][n % 4])
    one.show()
    one.release(6)
    one.show()
    return one


def lines_of(kind, text):
    """tc's JSON as a line for each object, with what both sides count alike."""
    for item in json.loads(text):
        name = item.get("handle")
        words = [kind, item.get("kind", item.get("class", "")), name]
        # Those of sfq are among its options.
        item.update(item.get("stats", item.get("options", {}) if item.get("kind") == "sfq" else {}))
        # The class that an hfsc is.
        if "packets" not in item or kind == "class" and name.endswith(":"):
            continue
        for key in ("packets", "bytes", "drops", "overlimits", "backlog", "qlen"):
            words.append(f"{key} {item[key]}")
        for key, value in item.items():
            if key in XSTATS:
                words.append(f"{key} {value}")
        for number, tin in enumerate(item.get("tins", [])):
            words += [f"tin{number}.{key} {tin[key]}" for key in TIN_XSTATS]
        yield " ".join(map(str, words))


XSTATS = set(
    """maxpacket drop_overlimit new_flow_count ecn_mark new_flows_len old_flows_len
    flows_plimit delayed dropped corrupted duplicated reordered ecn_marked
    allocation_errors marked early pdrop prob_mark prob_mark_head prob_drop forced_mark
    forced_mark_head forced_drop pkts_in overlimit overmemory maxq""".split()
)


# Hashes differ, and so do times.
TIN_XSTATS = """threshold_rate sent_bytes sent_packets backlog_bytes drops ecn_mark ack_drops
max_pkt_len flow_quantum sparse_flows bulk_flows""".split()


def write(folder, version, name, lines, timed):
    """Turns a scenario's console into a recording."""
    out = [f"# {version}"]
    left, times, first = [], [], None
    lines = iter(lines)
    show = None
    for line in lines:
        words = r"filter protocol (\S+) pref (\d+) (\S+) chain (\d+) (?:handle|fh) (\S+)"
        listed = re.match(words, line)
        if listed and "::" in listed[5] or listed and listed[3] != "u32":
            out.append("filter protocol {} prio {} {} chain {} handle {}".format(*listed.groups()))
        elif line.startswith("! tc7 -s -j "):
            show = line.split()[4]
        elif show and line.startswith("["):
            out += lines_of(show, line)
            show = None
        elif line.startswith("! tc7 ") and not re.search("clsact|egress|show", line):
            out.append(line[2:].replace("tc7", "tc").replace(f" dev {name}", ""))
        elif line.startswith("! ip7 link set"):
            out.append("txqueuelen " + re.search(r"txqueuelen (\d+)", line)[1])
        elif line.startswith("left "):
            number, time = line.split()[1:]
            left.append(number)
            times.append(int(time))
        elif line.startswith("! until "):
            out.append("until")
        elif line.startswith("prob "):
            out.append(line)
        elif line.startswith("! sleep "):
            out.append(line[2:])
        elif line.startswith("at "):
            time = int(line[3:])
            first = first or time
            if "at" in timed:
                # It is said before what comes then.
                out.insert(-1, f"at {(time - first) / 1e3:.1f}")
        elif line.startswith("outcomes "):
            out.append(line)
        elif line.startswith("burst "):
            count, priority, mark, frame = line.split()[1:]
            start = re.sub("(00)+$", "", frame[:-4])
            out.append(f"burst {count} {priority} {mark} {len(frame) // 2} {start}")
        elif line == "out":
            out.append("out")
        elif line.startswith("Error: ") or line == "failed":
            out.append(line)
        elif line == "dropped":
            out.append(line)
        elif re.match("send |tagged ", line):
            what, priority, mark, frame = line.split()
            if what == "tagged":
                priority = mark = 0
            # The rest is zeros and the number, which is that of the line.
            start = re.sub("(00)+$", "", frame[:-4])
            out.append(f"send {priority} {mark} {len(frame) // 2} {start}")
        elif not re.match(rf"! |filter |\s|{name}$|RTNETLINK|We have an error|\s*$", line):
            out.append(f"? {line}")
        if out[-1].startswith("out") and line.startswith("left "):
            out[-1] += " " + left.pop()
        if "times" in timed and times and not line.startswith("left "):
            # Milliseconds since the first of either kind.
            out.append("times " + " ".join(f"{(time - first) / 1e3:.1f}" for time in times))
            times = []
    with open(os.path.join(folder, name + ".txt"), "w") as file:
        file.write("\n".join(out) + "\n")


def main():
    folder = sys.argv[1]
    program = os.environ["SOFTNET_QEMU_KERNEL"].split()
    scenarios = [prio(), *all_filters(), handles(), htb_filters(), mqprio(), fq_codel(), fq(), codel()]
    scenarios += [drr(), ets(), qfq(), hfsc(), netem(), netem_child()]
    scenarios += [cake(), cake_acks(), sfq(), sfq_headdrop(), red_chance(), multiq()]
    scenarios += [hfsc_rt(), hfsc_ul(), pie(), fq_pie()]
    scenarios += [pie_chance("pie", 0), pie_chance("fq_pie", handle("2:1"))]
    for name, words in [("", ""), ("_ecn", "ecn"), ("_head", "ecn headdrop"), ("_hard", "ecn harddrop")]:
        scenarios.append(sfq_red(f"sfq_red{name}", words))
    for name, words in [("", ""), ("_ecn", "ecn"), ("_nodrop", "ecn nodrop"), ("_hard", "ecn harddrop")]:
        scenarios.append(red(f"red{name}", words))
    for name in ("srchost", "dsthost", "hosts", "dual-srchost", "dual-dsthost", "triple-isolate"):
        scenarios.append(cake_hosts(name))
    # Those that are named, or all.
    names = sys.argv[2:]
    scenarios = [one for one in scenarios if one.device in names or not names]
    with tempfile.TemporaryDirectory() as temporary:
        sender = os.path.join(temporary, "sender")
        subprocess.run(["gcc", "-static", "-O1", "-o", sender, HERE + "/send.c"], check=True)
        commands = os.path.join(temporary, "commands")
        with open(commands, "w") as file:
            for scenario in scenarios:
                scenario.lines.append(f"! echo == of {scenario.device}")
                file.write("\n".join(scenario.lines) + "\n")
        script = os.path.join(temporary, "script")
        with open(script, "w") as file:
            file.write("".join(f"mod {module}\n" for module in MODULES))
            # What tc looks up in a file.
            file.write("mkdir -p /etc/iproute2\n")
            file.write("mkdir -p /lib/tc\necho '-8192 0 8192' >/lib/tc/three.dist\n")
            file.write("export TC_LIB_DIR=/lib/tc\n")
            file.write("printf '1 cmp\\n3 u32\\n4 meta\\n' >/etc/iproute2/ematch_map\n")
            file.write("echo $(uname -sr), $(tc7 -V)\n/sender < /commands 2>&1\n")
        first, script = program[0], [script]
        console = subprocess.run(
            [first, *script, *program[1:]],
            env={**os.environ, "ADD": f"{sender} {commands}"},
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        ).stdout.splitlines()
    version = next(line for line in console if line.startswith("Linux "))
    lines = []
    for line in console[console.index(version) + 1 :]:
        if line.startswith("== of "):
            timed = next(one.timed for one in scenarios if one.device == line[6:])
            write(folder, version, line[6:], lines, timed)
            lines = []
        elif not line.startswith("! echo == of"):
            lines.append(line)


main()
