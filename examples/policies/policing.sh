#!/bin/sh
# A guest's traffic is policed to 10 Mb/s as it leaves, at the root: excess packets are dropped, not
# queued, and connections adapt to that. Other traffic is not affected.
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
