#!/usr/bin/env python3
"""Writes control.commands: what tc, ip and bridge are asked, systematically.

Usage: control_commands.py >control.commands

Each section starts without links of its own and leaves none.
"""

ADD = "ip link add d0 numtxqueues {} type dummy"
# Kind: options that are taken, options that are refused.
CLASSLESS = {
    "pfifo": (["limit 10", "limit 0", "limit 4294967295"], ["limit x", "limit -1", "bands 2"]),
    "pfifo_head_drop": (["limit 7", "limit 1000"], ["limit 1x"]),
    "fq": (
        [
            "limit 300",
            "flow_limit 7",
            "quantum 3028",
            "initial_quantum 30280",
            "maxrate 10mbit",
            "low_rate_threshold 1mbit",
            "refill_delay 20ms",
            "orphan_mask 255",
            "nopacing",
            "pacing",
            "buckets 256",
            "timer_slack 20us",
            "ce_threshold 2ms",
            "horizon 3s",
            "horizon_cap",
            "limit 100 flow_limit 10 quantum 1514 maxrate 1gbit nopacing",
        ],
        ["buckets 0", "buckets 524288", "quantum 0", "limit x", "initial_quantum 4294967295"],
    ),
    "codel": (
        ["limit 100", "target 10ms", "interval 50ms", "ecn", "noecn", "ce_threshold 1ms"],
        ["target x", "limit 1 foo", "limit -3"],
    ),
    "fq_codel": (
        [
            "limit 1000",
            "target 2ms",
            "interval 20ms",
            "quantum 300",
            "noecn",
            "ecn",
            "memory_limit 1mb",
            "ce_threshold 3ms",
            "drop_batch 16",
            "limit 100 target 1ms interval 10ms quantum 1000 memory_limit 100kb",
        ],
        ["flows 0", "flows 4294967295", "flows 16", "quantum 0", "drop_batch x", "target"],
    ),
    "tbf": (
        [
            "rate 1mbit burst 10kb limit 30kb",
            "rate 1mbit burst 10kb latency 50ms",
            "rate 10mbit burst 10kb limit 30kb peakrate 20mbit mtu 1600",
            "rate 40gbit burst 10mb limit 30mb",
            "rate 1mbit burst 10kb/8 limit 30kb mpu 64 overhead 4",
            "rate 1mbit burst 10kb limit 30kb linklayer atm",
            "rate 8bit burst 1600 limit 30kb",
        ],
        [
            "rate 1mbit",
            "burst 10kb limit 30kb",
            "rate 1mbit burst 10kb limit 30kb peakrate 1kbit mtu 1600",
            "rate 1mbit burst 10kb limit 30kb peakrate 20mbit",
            "rate x burst 1 limit 1",
            "rate 1mbit burst 10kb limit 30kb latency 1ms",
        ],
    ),
    "prio": (
        ["bands 4", "priomap 0 1 2 0 1 2 0 1 2 0 1 2 0 1 2 0", "bands 16", "bands 2 priomap 1 1 0"],
        ["bands 1", "bands 17", "priomap 3", "bands 2", "foo"],
    ),
}
# What each must have.
NEEDS = {"tbf": "rate 1mbit burst 10kb limit 30kb"}


def section(name, *commands, queues=1, tear=("d0",)):
    print(f"== {name}")
    if queues:
        print(ADD.format(queues))
        print("ip link set d0 txqueuelen 1000")
    for command in commands:
        print(command)
    for link in tear:
        print(f"ip link del {link}")


def shows(*forms, dev="d0", of="qdisc"):
    return [f"tc {form} {of} show dev {dev}".replace("  ", " ") for form in forms]


def classless(kind):
    good, bad = CLASSLESS[kind]
    needs = NEEDS.get(kind, "")
    qdisc = "tc qdisc {} dev d0 {} " + kind + " {}"
    commands = [qdisc.format("add", "root", needs).strip(), *shows("", "-j", "-s", "-d", "-s -j")]
    for options in good:
        commands += [qdisc.format("change", "root", options), *shows("-d")]
    for options in bad:
        commands += [qdisc.format("change", "root", options)]
    for options in bad:
        commands += [qdisc.format("replace", "root handle 7:", options)]
    commands += [*shows("", "-d -j"), "tc qdisc del dev d0 root"]
    for options in good:
        commands += [qdisc.format("replace", "root handle 5:", options), *shows("-j")]
    section(f"{kind} options", *commands)


def roots(kind):
    needs = NEEDS.get(kind, "")
    section(
        f"{kind} root",
        f"tc qdisc add dev d0 root handle 1: {kind} {needs}".strip(),
        f"tc qdisc add dev d0 root handle 1: {kind} {needs}".strip(),
        f"tc qdisc add dev d0 root handle 2: {kind} {needs}".strip(),
        f"tc qdisc change dev d0 root handle 2: {kind} {needs}".strip(),
        f"tc qdisc replace dev d0 root handle 1: {kind} {needs}".strip(),
        f"tc qdisc replace dev d0 root handle 2: {kind} {needs}".strip(),
        *shows("", "-j"),
        "tc qdisc change dev d0 handle 3: " + kind,
        f"tc qdisc change dev d0 handle 2: {'bfifo' if kind != 'bfifo' else 'pfifo'}",
        f"tc qdisc link dev d0 root handle 2: {kind}",
        "tc qdisc del dev d0 root handle 3:",
        f"tc qdisc del dev d0 root {'bfifo' if kind != 'bfifo' else 'pfifo'}",
        "tc qdisc del dev d0 parent 9:1",
        "tc qdisc del dev d0 handle 2:",
        "tc qdisc del dev d0 root handle 2:",
        "tc qdisc del dev d0 root",
        *shows("-j"),
        f"tc qdisc add dev d0 root handle 1:1 {kind} {needs}".strip(),
        f"tc qdisc add dev d0 parent 1:1 {kind} {needs}".strip(),
        f"tc qdisc add dev nowhere root {kind} {needs}".strip(),
        f"tc qdisc change dev d0 root {kind} {needs}".strip(),
        f"tc qdisc add dev d0 root estimator 1s 8s {kind} {needs}".strip(),
        f"tc qdisc replace dev d0 root stab overhead 4 mpu 64 {kind} {needs}".strip(),
        *shows("", "-j"),
        f"tc class add dev d0 parent 1: classid 1:1 {kind}",
        "tc class show dev d0",
        "tc qdisc replace dev d0 root handle ffff: " + f"{kind} {needs}".strip(),
        *shows(""),
    )


def below(kind):
    needs = NEEDS.get(kind, "")
    section(
        f"prio {kind} below prio",
        "tc qdisc add dev d0 root handle 1: prio",
        f"tc qdisc add dev d0 parent 1:1 handle 10: {kind} {needs}".strip(),
        f"tc qdisc add dev d0 parent 1:2 {kind} {needs}".strip(),
        f"tc qdisc add dev d0 parent 1:4 {kind} {needs}".strip(),
        f"tc qdisc add dev d0 parent 1:1 handle 11: {kind} {needs}".strip(),
        f"tc qdisc replace dev d0 parent 1:1 handle 11: {kind} {needs}".strip(),
        f"tc qdisc add dev d0 parent 1:3 handle 11: {kind} {needs}".strip(),
        f"tc qdisc add dev d0 parent 1:3 handle 1: {kind} {needs}".strip(),
        *shows("", "-j"),
        *shows("", "-j", "-s", of="class"),
        f"tc qdisc change dev d0 parent 1:1 {kind} {needs}".strip(),
        "tc qdisc del dev d0 parent 1:1 handle 10:",
        "tc qdisc del dev d0 parent 1:1 handle 11:",
        "tc qdisc del dev d0 parent 1:3",
        *shows("-j"),
        *shows("", of="class"),
    )


def htb():
    add = "tc class add dev d0 parent 1: classid "
    section(
        "htb classes",
        "tc qdisc add dev d0 root handle 1: htb default 20 r2q 20",
        *shows("", "-j", "-s", "-d"),
        "tc class add dev d0 parent 1: classid 1:1 htb rate 10mbit",
        "tc class add dev d0 parent 1:1 classid 1:10 htb rate 1mbit ceil 5mbit prio 1",
        "tc class add dev d0 parent 1:1 classid 1:20 htb rate 2mbit burst 20k cburst 30k",
        "tc class add dev d0 parent 1:1 classid 1:20 htb rate 2mbit",
        "tc class add dev d0 parent 1:1 classid 1:30 htb rate 2mbit quantum 3000 prio 7",
        "tc class add dev d0 parent 1:1 classid 1:31 htb rate 2mbit prio 8",
        "tc class add dev d0 parent 1:1 classid 1:40 htb rate 40gbit ceil 100gbit",
        "tc class add dev d0 parent 1:1 classid 1:50 htb rate 1mbit mpu 64 overhead 4",
        "tc class add dev d0 parent 1:1 classid 1:51 htb rate 1mbit linklayer atm",
        "tc class add dev d0 parent 1:1 classid 1:52 estimator 1s 8s htb rate 8kbit",
        *shows("", "-j", "-d", "-s", "-s -d -j", of="class"),
        "tc class show dev d0 parent 1:1",
        "tc class show dev d0 classid 1:10",
        "tc class show dev d0 parent 1:",
        "tc class show dev d0 root",
        "tc class change dev d0 parent 1:1 classid 1:10 htb rate 2mbit ceil 6mbit",
        "tc class change dev d0 classid 1:10 htb rate 3mbit",
        "tc class replace dev d0 parent 1:1 classid 1:10 htb rate 3mbit prio 2",
        "tc class replace dev d0 parent 1:1 classid 1:60 htb rate 3mbit",
        "tc class change dev d0 parent 1:1 classid 1:99 htb rate 3mbit",
        "tc class change dev d0 parent 1:10 classid 1:20 htb rate 3mbit",
        *shows("", of="class"),
        add + "1:70 htb ceil 1mbit",
        add + "1:70 htb rate 0",
        add + "1:70 htb rate 1mbit foo",
        add + "2:70 htb rate 1mbit",
        "tc class add dev d0 parent 1:77 classid 1:70 htb rate 1mbit",
        "tc class add dev d0 parent 2: classid 2:70 htb rate 1mbit",
        "tc class add dev d0 classid 1:70 htb rate 1mbit",
        "tc class add dev d0 parent 1: htb rate 1mbit",
        add + "1:70 hfsc rate 1mbit",
        add + "1:70 prio",
        "tc class del dev d0 classid 1:1",
        "tc class del dev d0 classid 1:99",
        "tc class del dev d0 classid 1:60",
        "tc class del dev d0 parent 1:1 classid 1:52",
        "tc qdisc add dev d0 parent 1:10 handle 10: fq_codel",
        "tc qdisc add dev d0 parent 1:20 handle 20: pfifo limit 5",
        "tc qdisc add dev d0 parent 1:1 handle 30: pfifo",
        "tc class add dev d0 parent 1:10 classid 1:11 htb rate 100kbit",
        *shows("", "-j"),
        *shows("", of="class"),
        "tc qdisc del dev d0 parent 1:20",
        "tc qdisc del dev d0 parent 1:20",
        "tc qdisc replace dev d0 parent 1:20 bfifo limit 3000",
        "tc class del dev d0 classid 1:20",
        "tc qdisc change dev d0 root handle 1: htb default 30",
        "tc qdisc change dev d0 root htb",
        "tc qdisc replace dev d0 root handle 1: htb default 1",
        *shows("-j"),
        *shows("-j", of="class"),
        "tc qdisc del dev d0 root",
        "tc class show dev d0",
        "tc qdisc add dev d0 root handle 1: htb default x",
        "tc qdisc add dev d0 root handle 1: htb r2q 0",
        "tc qdisc add dev d0 root handle 1: htb direct_qlen 7",
        *shows("", "-d -j"),
        "tc qdisc del dev d0 root",
        "tc qdisc add dev d0 root handle 1: htb offload",
    )
    section(
        "htb deep",
        "tc qdisc add dev d0 root handle 1: htb",
        *[
            f"tc class add dev d0 parent 1:{level if level else ''} classid 1:{level + 1} "
            "htb rate 1mbit quantum 2000"
            for level in range(9)
        ],
        *shows("", "-s", of="class"),
    )


def queues():
    section(
        "mq four",
        "tc qdisc add dev d0 root handle 1: mq",
        *shows("", "-j"),
        *shows("", "-j", "-s", of="class"),
        "tc qdisc replace dev d0 parent 1:1 handle 10: pfifo limit 5",
        "tc qdisc replace dev d0 parent 1:5 handle 11: pfifo limit 5",
        "tc qdisc add dev d0 parent 1:2 handle 12: fq_codel",
        "tc qdisc replace dev d0 parent 1:2 handle 12: fq_codel limit 50",
        *shows(""),
        *shows("", of="class"),
        "tc class add dev d0 parent 1: classid 1:9 mq",
        "tc class del dev d0 classid 1:1",
        "tc qdisc change dev d0 root handle 1: mq",
        "tc qdisc add dev d0 root handle 1: mq",
        "tc qdisc del dev d0 parent 1:1",
        *shows(""),
        "tc qdisc del dev d0 root",
        *shows(""),
        queues=4,
    )
    section("mq one", "tc qdisc add dev d0 root handle 1: mq", *shows(""))
    section(
        "mq below",
        "tc qdisc add dev d0 root handle 1: prio",
        "tc qdisc add dev d0 parent 1:1 mq",
        "tc qdisc add dev d0 parent 1:1 mqprio",
        *shows(""),
        queues=4,
    )
    mqprio = "tc qdisc add dev d0 root handle 1: mqprio "
    section(
        "mqprio four",
        mqprio + "num_tc 2 map 0 1 0 1 queues 2@0 2@2 hw 0",
        *shows("", "-j"),
        *shows("", "-j", of="class"),
        "tc qdisc replace dev d0 parent 1:1 handle 10: pfifo limit 5",
        "tc qdisc replace dev d0 parent 1:ffe0 handle 11: pfifo limit 5",
        *shows(""),
        "tc qdisc change dev d0 root handle 1: mqprio num_tc 1 map 0 queues 4@0 hw 0",
        "tc qdisc add dev d0 parent 1:1 mqprio num_tc 1 map 0 queues 4@0 hw 0",
        "tc qdisc del dev d0 root",
        mqprio + "num_tc 17 map 0 queues 4@0 hw 0",
        mqprio + "num_tc 2 map 0 2 queues 2@0 2@2 hw 0",
        mqprio + "num_tc 2 map 0 1 queues 2@0 2@1 hw 0",
        mqprio + "num_tc 2 map 0 1 queues 2@0 3@2 hw 0",
        mqprio + "num_tc 2 map 0 1 queues 2@0 0@2 hw 0",
        mqprio + "num_tc 2 map 0 1 queues 2@0 2@2 hw 1",
        mqprio + "num_tc 3 map 0 1 2 queues 1@0 1@1 2@2 hw 0",
        *shows("-j"),
        queues=4,
    )
    section("mqprio one", mqprio + "num_tc 1 map 0 queues 1@0 hw 0", *shows(""))


def unknown():
    section(
        "tc refusals",
        "tc qdisc add dev d0 root nonsense",
        "tc qdisc add dev d0 root handle 1: noqueue",
        *shows(""),
        "tc qdisc del dev d0 root",
        "tc qdisc del dev d0 root",
        "tc qdisc del dev d0 handle 1:",
        "tc qdisc add dev d0 root handle 10000: pfifo",
        "tc qdisc add dev d0 handle 1: pfifo",
        "tc qdisc change dev d0 root handle 1: pfifo",
        "tc qdisc replace dev d0 parent 2:3 pfifo",
        "tc qdisc show dev nowhere",
        "tc qdisc show dev d0 handle 1:",
        "tc qdisc show dev d0 root",
        "tc qdisc get dev d0 root",
        "tc class add dev d0 parent 1: classid 1:1 htb rate 1mbit",
        "tc class del dev d0 classid 1:1",
        "tc class show dev nowhere",
        "tc class show dev d0",
        "tc qdisc add dev d0 root handle 1: pfifo_fast",
        "tc class add dev d0 parent 1: classid 1:1 htb rate 1mbit",
        "tc class del dev d0 classid 1:1",
        *shows("", "-j", "-s"),
        "tc qdisc replace dev d0 root handle 1: pfifo_fast",
        "tc qdisc replace dev d0 root prio",
        "tc qdisc replace dev d0 root pfifo",
        "tc qdisc replace dev d0 root handle 1: htb",
        "tc qdisc replace dev d0 root handle 1: pfifo",
        "tc qdisc change dev d0 root pfifo limit 3",
        "tc qdisc change dev d0 root bfifo limit 3",
        "tc qdisc change dev d0 root handle 1: bfifo limit 3",
        *shows("-j"),
    )
    section(
        "tbf deep",
        "tc qdisc add dev d0 root handle 1: tbf rate 1mbit burst 10kb limit 30kb",
        "tc class show dev d0",
        "tc qdisc add dev d0 parent 1:1 handle 10: prio",
        "tc qdisc add dev d0 parent 10:1 handle 20: pfifo",
        "tc qdisc add dev d0 parent 10:2 handle 30: htb",
        "tc class add dev d0 parent 30: classid 30:1 htb rate 1mbit",
        "tc qdisc add dev d0 parent 30:1 handle 1: pfifo",
        "tc qdisc add dev d0 parent 30:1 handle 40: pfifo",
        *shows("", "-j"),
        *shows("", of="class"),
        "tc class del dev d0 classid 30:1",
        "tc qdisc del dev d0 parent 10:2",
        "tc qdisc replace dev d0 parent 1:1 handle 10: prio bands 2",
        *shows(""),
        "tc class del dev d0 classid 10:1",
        "tc class add dev d0 parent 10: classid 10:5 prio",
        "tc qdisc del dev d0 root",
        *shows("", of="class"),
    )
    section(
        "pfifo stab",
        "tc qdisc add dev d0 root handle 1: stab overhead 24 linklayer ethernet pfifo",
        *shows("", "-d", "-j"),
        "tc qdisc replace dev d0 root handle 1: stab linklayer atm overhead 10 mtu 2048 pfifo",
        *shows("", "-j"),
        "tc qdisc change dev d0 root handle 1: stab overhead 0 pfifo limit 3",
        *shows(""),
        "tc qdisc replace dev d0 root handle 1: pfifo limit 3",
        *shows(""),
        "tc qdisc add dev d0 root handle 2: stab mtu 0 tsize 0 overhead 1 pfifo",
        "tc qdisc replace dev d0 root handle 2: stab tsize 100000 mtu 10 linklayer atm pfifo",
    )


def filters():
    filter = "tc filter {} dev d0 parent 1: "
    add = filter.format("add")
    start = "tc qdisc add dev d0 root handle 1: prio"
    show = ["tc filter show dev d0 parent 1:", "tc -j filter show dev d0 parent 1:"]
    for kind, good, bad in [
        (
            "flower",
            [
                "flower flowid 1:1",
                "flower dst_ip 10.0.0.0/8 classid 1:2",
                "flower src_ip 10.0.0.1 ip_proto tcp dst_port 80 classid 1:2",
                "flower ip_proto udp src_port 100-200 classid 1:2",
                "flower dst_mac 02:00:00:00:00:01 src_mac 02:00:00:00:00:02/24 classid 1:1",
                "flower ip_tos 16/252 ip_ttl 64 classid 1:1",
                "flower skip_hw classid 1:1 action drop",
            ],
            ["flower dst_ip x", "flower dst_port 80", "flower skip_sw skip_hw"],
        ),
        (
            "u32",
            [
                "u32 match ip dst 10.0.0.1 flowid 1:1",
                "u32 match ip protocol 17 0xff match ip dport 53 0xffff flowid 1:2",
                "u32 match u32 0 0 flowid 1:1",
                "u32 match u16 0x0800 0xffff at -2 flowid 1:2",
                "u32 match mark 1 0xff flowid 1:3 action pass",
            ],
            ["u32 match ip dst x", "u32 link 9: flowid 1:1", "u32 ht 900: match u32 0 0"],
        ),
        (
            "basic",
            [
                "basic classid 1:1",
                "basic match 'meta(priority eq 6)' classid 1:2",
                "basic match 'cmp(u8 at 9 layer network eq 17)' classid 1:2",
                "basic match 'not u32(u32 0 0 at 0) and meta(fwmark mask 1 eq 1)' classid 1:2",
                "basic classid 1:3 action drop",
            ],
            ["basic match 'x(1)'", "basic match 'cmp(u8 at 0'", "basic foo"],
        ),
        (
            "matchall",
            ["matchall classid 1:1", "matchall skip_hw classid 1:2 action pass"],
            ["matchall foo", "matchall skip_sw classid 1:1", "matchall skip_sw skip_hw"],
        ),
        ("fw", ["fw classid 1:1", "fw classid 1:2 action drop"], ["fw foo", "fw classid x"]),
    ]:
        commands = [start]
        for prio, options in enumerate(good, 10):
            handle = "handle 6 " if kind == "fw" else ""
            commands += [f"{add}protocol ip prio {prio} {handle}{options}"]
        commands += [*show, "tc -s filter show dev d0 parent 1:", "tc filter show dev d0"]
        for options in bad:
            commands += [f"{add}protocol ip prio 90 {options}"]
        one = good[0]
        handle = "handle 800::801 " if kind == "u32" else "handle 7 "
        commands += [
            f"{add}protocol ip prio 50 {handle}{one}",
            f"{add}protocol ip prio 50 {handle}{one}",
            f"{filter.format('replace')}protocol ip prio 50 {handle}{one}",
            f"{filter.format('change')}protocol ip prio 50 {handle}{one}",
            f"{filter.format('change')}protocol ip prio 51 {handle}{one}",
            f"{filter.format('get')}protocol ip prio 50 {handle}{kind}",
            f"{filter.format('get')}protocol ip prio 50 handle 9 {kind}",
            f"{filter.format('get')}protocol ip prio 52 {handle}{kind}",
            f"{add}protocol ipv6 prio 50 {one}",
            f"{add}protocol ip prio 50 {'fw' if kind != 'fw' else 'matchall'} classid 1:1",
            f"{add}protocol all {handle}{one}",
            f"{add}protocol 802.1q {handle}{one}",
            *show,
            f"{filter.format('del')}protocol ip prio 50 {handle}{kind}",
            f"{filter.format('del')}protocol ip prio 50 {handle}{kind}",
            f"{filter.format('del')}protocol ip prio 10",
            f"{filter.format('del')}prio 11",
            f"{filter.format('del')}protocol ip prio 99",
            *show[:1],
            f"{add}chain 3 protocol ip prio 1 {handle}{one}",
            "tc filter show dev d0 parent 1: chain 3",
            "tc chain show dev d0 parent 1:",
            filter.format("del").strip(),
            *show[:1],
        ]
        section(f"{kind} prio filters", *commands)
    section(
        "matchall prio chains",
        start,
        "tc chain add dev d0 parent 1: chain 5",
        "tc chain add dev d0 parent 1: chain 5",
        f"{add}prio 1 matchall action goto chain 5",
        f"{add}chain 5 prio 1 matchall classid 1:2",
        "tc chain show dev d0 parent 1:",
        "tc -j chain show dev d0 parent 1:",
        *show,
        "tc chain del dev d0 parent 1: chain 5",
        "tc chain del dev d0 parent 1: chain 6",
        "tc filter del dev d0 parent 1: chain 5",
        *show,
        "tc filter add dev d0 parent 9: prio 1 matchall",
        "tc filter add dev d0 prio 1 matchall classid 1:1",
        "tc filter show dev d0 parent 9:",
        "tc filter add dev nowhere parent 1: matchall",
        f"{add}prio 1 nonsense",
        f"{add}prio 0 handle 1 matchall",
        f"{add}protocol ip prio 65536 matchall",
    )


def links():
    link = "ip -o link show d0"
    section(
        "ip links",
        link,
        "ip -j link show d0",
        "ip link add d0 type dummy",
        "ip link add d1 type nonsense",
        "ip link add abcdefghijklmnop type dummy",
        "ip link add 'a b' type dummy",
        "ip link add a/b type dummy",
        "ip link set d0 mtu 1400",
        "ip link set d0 mtu x",
        "ip link set d0 txqueuelen 77",
        "ip link set d0 address 02:00:00:00:00:07",
        "ip link set d0 address 01:00:00:00:00:07",
        "ip link set d0 address 02:00",
        "ip link set d0 alias one",
        "ip link set d0 group 5",
        link,
        "ip -j link show d0",
        "ip link set d0 up",
        link,
        "ip -j link show d0",
        "ip -s link show d0",
        "ip -s -j link show d0",
        "ip -br link show d0",
        "ip link set d0 name d2",
        "ip link show d0",
        "ip -o link show d2",
        "ip link set d0 down",
        "ip link set d2 down",
        "ip link set d2 name d0",
        "ip link add d1 type dummy",
        "ip link set d0 name d1",
        "ip link set d1 up",
        "ip -br link show group 5",
        "ip link set group 5 up",
        "ip link set d0 alias ''",
        "ip link set d0 master d1",
        "ip link set d0 nomaster",
        "ip link set nowhere up",
        "ip link del nowhere",
        "ip link show type dummy",
        "ip link show dev d0 up",
        "ip link set d1 mtu 10",
        link,
        tear=("d0", "d1", "d1"),
    )
    section(
        "ip queues",
        link,
        "ip link add d1 numtxqueues 0 type dummy",
        "ip link add d1 numtxqueues 5000 type dummy",
        "ip link add d1 numtxqueues 2 numrxqueues 2 txqueuelen 5 mtu 1200 type dummy",
        "ip -o link show d1",
        queues=4,
        tear=("d0", "d1"),
    )


def bridges():
    section(
        "bridge ports",
        "ip link add br0 type bridge",
        "ip link add d1 type dummy",
        "ip link set d0 address 02:00:00:00:00:0a",
        "ip link set d1 address 02:00:00:00:00:0b",
        "ip link set br0 address 02:00:00:00:00:0c",
        "ip link set d0 master br0",
        "ip link set d1 master br0",
        "ip link set d0 up",
        "ip link set d1 up",
        "ip link set br0 up",
        "ip link set d0 master nowhere",
        "ip link set br0 master br0",
        "ip link add br0 type bridge",
        "ip -br link show master br0",
        "ip link set d0 type bridge_slave isolated on learning off flood off",
        "bridge link show dev d0",
        "bridge -d link show dev d0",
        "bridge link set dev d0 isolated off learning on flood on",
        "bridge link set dev d0 nonsense on",
        "bridge link set dev nowhere learning on",
        "bridge fdb add 02:00:00:00:01:01 dev d0 master static",
        "bridge fdb add 02:00:00:00:01:01 dev d0 master static",
        "bridge fdb add 02:00:00:00:01:02 dev d1 master dynamic",
        "bridge fdb add 02:00:00:00:01:03 dev d1 master permanent",
        "bridge fdb add 01:00:00:00:01:04 dev d1 master static",
        "bridge fdb add 00:00:00:00:00:00 dev d1 master static",
        "bridge fdb replace 02:00:00:00:01:01 dev d1 master static",
        "bridge fdb show br br0 dev d1",
        "bridge -j fdb show br br0 dev d1",
        "bridge fdb get 02:00:00:00:01:01 br br0",
        "bridge fdb get 02:00:00:00:01:09 br br0",
        "bridge fdb del 02:00:00:00:01:01 dev d0 master",
        "bridge fdb del 02:00:00:00:01:01 dev d1 master",
        "bridge fdb del 02:00:00:00:01:01 dev d1 master",
        "bridge fdb show br br0 dev d1",
        "ip link set br0 type bridge ageing_time 1000",
        "ip link set br0 type bridge vlan_filtering 1",
        "bridge vlan show",
        "bridge vlan add dev d0 vid 10 pvid untagged",
        "bridge vlan add dev d0 vid 20-22",
        "bridge vlan add dev d0 vid 4095",
        "bridge vlan add dev d0 vid 0",
        "bridge vlan add dev nowhere vid 5",
        "bridge vlan show dev d0",
        "bridge -j vlan show dev d0",
        "bridge vlan del dev d0 vid 21",
        "bridge vlan del dev d0 vid 1",
        "bridge vlan del dev d0 vid 99",
        "bridge vlan show dev d0",
        "bridge fdb add 02:00:00:00:01:05 dev d0 master static vlan 10",
        "bridge fdb add 02:00:00:00:01:05 dev d0 master static vlan 11",
        "bridge fdb show br br0 dev d0",
        "ip link set d1 nomaster",
        "bridge vlan show dev d1",
        "bridge fdb show br br0 dev d1",
        "ip link set d1 nomaster",
        tear=("d0", "d1", "br0", "br0"),
    )


for kind in CLASSLESS:
    classless(kind)
for kind in ("pfifo", "fq", "tbf", "prio"):
    roots(kind)
for kind in ("pfifo", "tbf"):
    below(kind)
htb()
queues()
unknown()
filters()
links()
bridges()
