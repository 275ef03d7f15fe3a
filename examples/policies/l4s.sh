#!/bin/sh
# Scalable senders beside classic ones on 50 Mb/s: scalable packets wait a millisecond, and both get
# their share.
#
# expect: scalable sojourn p99 < 5ms
# expect: classic sojourn p50 < 30ms
# expect: scalable rate 15..35mbit
# expect: classic rate 15..35mbit
# expect: scalable marks > 0
# generate: name=scalable,tcp=1,cc=dctcp,rtt=10ms,for=20s
# generate: name=classic,tcp=1,cc=cubic,ecn=on,rtt=10ms,for=20s
# link: 50mbit
set -e
tc qdisc add dev "${DEV:-eth0}" root dualpi2
