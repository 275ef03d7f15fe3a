#!/bin/sh
# Strict priority, with its price: urgent packets never wait, and others may starve.
#
# expect: urgent sojourn p99 < 2ms
# expect: urgent loss = 0
# expect: rest rate < 3mbit
# generate: name=urgent,rate=8mbit,size=1000,prio=6,for=10s
# generate: name=rest,tcp=4,rtt=20ms,for=10s
# link: 10mbit
set -e
tc qdisc add dev "${DEV:-eth0}" root handle 1: prio bands 3 priomap 2 2 2 2 2 2 0 0 2 2 2 2 2 2 2 2
tc qdisc add dev "${DEV:-eth0}" parent 1:1 pfifo limit 100
tc qdisc add dev "${DEV:-eth0}" parent 1:3 fq_codel
