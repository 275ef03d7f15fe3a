#!/bin/sh
# What a guest sends is policed to 10 Mb/s where it leaves, at the root: nothing is queued, what is
# over is dropped, and connections find their rate by that. Other traffic is not touched.
#
# expect: guest rate < 10.5mbit
# expect: guest sojourn max < 1ms
# expect: guest drops > 0
# expect: other rate > 19.5mbit
# expect: other loss = 0
# generate: name=guest,tcp=4,rtt=20ms,src=10.0.0.9,for=10s
# generate: name=other,rate=20mbit,src=10.0.0.1,for=10s
# link: 1gbit
set -e
tc qdisc add dev "${DEV:-eth0}" root handle 1: prio
tc filter add dev "${DEV:-eth0}" parent 1: protocol ip prio 1 flower src_ip 10.0.0.9 \
  action police rate 10mbit burst 64k conform-exceed drop/pass
