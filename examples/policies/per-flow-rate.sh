#!/bin/sh
# fq paces each flow to 5 Mb/s at most, and no flow makes another wait. Packets have no departure
# times of their own here: senders that set them (SO_TXTIME) are not simulated.
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
