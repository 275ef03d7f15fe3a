#!/bin/sh
# A home's uplink of 20 Mb/s with one cake: calls go first, every host gets its share, and uploads
# add little delay.
#
# expect: root rate 18..20mbit
# expect: call sojourn p99 < 10ms
# expect: call loss = 0
# expect: many rate 8..11mbit
# expect: one rate 8..11mbit
# expect: one sojourn p50 < 30ms
# generate: name=call,rate=200kbit,size=200,dscp=46,src=10.0.0.3,for=20s
# generate: name=many,tcp=8,rtt=30ms,src=10.0.0.1,for=20s
# generate: name=one,tcp=1,rtt=30ms,src=10.0.0.2,for=20s
set -e
tc qdisc add dev "${DEV:-eth0}" root cake bandwidth 20mbit diffserv4 dual-srchost ethernet
