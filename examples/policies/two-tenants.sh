#!/bin/sh
# Two tenants behind one port of 50 Mb/s, each with a class of 20 Mb/s: the second may use what the
# first leaves, and returns it at once. (A rate_group limits a tenant who has several ports.)
#
# expect: first rate 18..21mbit
# expect: second rate 27..31mbit
# expect: first loss < 5%
# generate: name=first,rate=20mbit,dport=1,for=10s
# generate: name=second,tcp=8,rtt=10ms,dport=2,for=10s
set -e
tc qdisc add dev "${DEV:-eth0}" root handle 1: htb default 20
tc class add dev "${DEV:-eth0}" parent 1: classid 1:1 htb rate 50mbit burst 32k
tc class add dev "${DEV:-eth0}" parent 1:1 classid 1:10 htb rate 20mbit ceil 21mbit burst 16k
tc class add dev "${DEV:-eth0}" parent 1:1 classid 1:20 htb rate 20mbit ceil 50mbit burst 32k
tc qdisc add dev "${DEV:-eth0}" parent 1:10 pfifo limit 200
tc qdisc add dev "${DEV:-eth0}" parent 1:20 fq_codel
tc filter add dev "${DEV:-eth0}" parent 1: protocol ip prio 1 u32 match ip dport 1 0xffff flowid 1:10
