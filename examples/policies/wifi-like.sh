#!/bin/sh
# A link like a busy wireless network: 20 ms and queueing delay, jitter, 1 % lost in bursts.
#
# expect: probe sojourn mean 20..60ms
# expect: probe loss 0.2%..3%
# expect: cubic rate > 1mbit
# expect: bbr rate > 10mbit
# generate: name=probe,rate=1mbit,size=500,for=30s
# generate: name=cubic,tcp=1,rtt=10ms,for=30s
# generate: name=bbr,tcp=1,cc=bbr,rtt=10ms,for=30s
set -e
tc qdisc add dev "${DEV:-eth0}" root netem delay 20ms 3ms 25% loss gemodel 0.5% 40% rate 30mbit \
  limit 1000
