#!/bin/sh
# Connections of 20 ms on classes of 10 Mb/s: Reno and Cubic each alone in a plain queue, both in
# one, and four of Cubic in fair queues.
#
# generate: name=reno,tcp=1,cc=reno,rtt=20ms,dscp=8,for=10s
# generate: name=cubic,tcp=1,cc=cubic,rtt=20ms,dscp=16,for=10s
# generate: name=reno-beside,tcp=1,cc=reno,rtt=20ms,dscp=24,for=10s
# generate: name=cubic-beside,tcp=1,cc=cubic,rtt=20ms,dscp=24,for=10s
# generate: name=fair,tcp=4,cc=cubic,rtt=20ms,dscp=32,for=10s
set -e
tc qdisc add dev "${DEV:-eth0}" root handle 1: htb default 10
tc class add dev "${DEV:-eth0}" parent 1: classid 1:10 htb rate 10mbit burst 16k
tc class add dev "${DEV:-eth0}" parent 1: classid 1:20 htb rate 10mbit burst 16k
tc class add dev "${DEV:-eth0}" parent 1: classid 1:30 htb rate 10mbit burst 16k
tc class add dev "${DEV:-eth0}" parent 1: classid 1:40 htb rate 10mbit burst 16k
tc qdisc add dev "${DEV:-eth0}" parent 1:10 pfifo limit 30
tc qdisc add dev "${DEV:-eth0}" parent 1:20 pfifo limit 30
tc qdisc add dev "${DEV:-eth0}" parent 1:30 pfifo limit 30
tc qdisc add dev "${DEV:-eth0}" parent 1:40 fq_codel
tc filter add dev "${DEV:-eth0}" parent 1: protocol ip prio 1 flower ip_tos 0x40/0xfc classid 1:20
tc filter add dev "${DEV:-eth0}" parent 1: protocol ip prio 2 flower ip_tos 0x60/0xfc classid 1:30
tc filter add dev "${DEV:-eth0}" parent 1: protocol ip prio 3 flower ip_tos 0x80/0xfc classid 1:40
