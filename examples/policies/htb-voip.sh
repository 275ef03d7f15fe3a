#!/bin/sh
# An uplink of 50 Mb/s: voice goes first and never starves; web and bulk share the rest two to one
# and borrow from each other.
#
# expect: voip sojourn p99 < 5ms
# expect: voip loss = 0
# expect: root rate 45..51mbit
# expect: 1:20 rate > 25mbit
# generate: name=voip,rate=100kbit,size=200,dscp=46,for=10s
# generate: name=web,tcp=4,rtt=20ms,dport=443,for=10s
# generate: name=bulk,tcp=4,rtt=20ms,dport=873,for=10s
set -e
tc qdisc add dev "${DEV:-eth0}" root handle 1: htb default 30
tc class add dev "${DEV:-eth0}" parent 1: classid 1:1 htb rate 50mbit burst 32k
tc class add dev "${DEV:-eth0}" parent 1:1 classid 1:10 htb rate 1mbit ceil 50mbit prio 0 burst 15k
tc class add dev "${DEV:-eth0}" parent 1:1 classid 1:20 htb rate 32mbit ceil 50mbit prio 1 burst 32k
tc class add dev "${DEV:-eth0}" parent 1:1 classid 1:30 htb rate 16mbit ceil 50mbit prio 1 burst 32k
tc qdisc add dev "${DEV:-eth0}" parent 1:20 fq_codel
tc qdisc add dev "${DEV:-eth0}" parent 1:30 fq_codel
tc filter add dev "${DEV:-eth0}" parent 1: protocol ip prio 1 flower ip_tos 0xb8/0xfc classid 1:10
tc filter add dev "${DEV:-eth0}" parent 1: protocol ip prio 2 flower ip_proto tcp dst_port 443 classid 1:20
