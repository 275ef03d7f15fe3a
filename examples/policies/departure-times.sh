#!/bin/sh
# Senders are paced by fq: each flow has 5 Mb/s at most, no flow makes another wait.
#
# expect: first rate 4.7..5.1mbit
# expect: second rate 4.7..5.1mbit
# expect: small sojourn p99 < 1ms
# expect: small loss = 0
# generate: name=first,tcp=1,rtt=20ms,for=10s
# generate: name=second,tcp=1,rtt=20ms,for=10s
# generate: name=small,rate=500kbit,size=200,for=10s
# link: 100mbit
set -e
tc qdisc add dev "${DEV:-eth0}" root fq maxrate 5mbit
