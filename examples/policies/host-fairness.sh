#!/bin/sh
# Four hosts share 40 Mb/s equally, however many connections each has.
#
# expect: greedy rate 9..11mbit
# expect: a rate 9..11mbit
# expect: b rate 9..11mbit
# expect: c rate 9..11mbit
# expect: root rate > 37mbit
# generate: name=greedy,tcp=16,rtt=20ms,src=10.0.0.1,for=20s
# generate: name=a,tcp=1,rtt=20ms,src=10.0.0.2,for=20s
# generate: name=b,tcp=1,rtt=20ms,src=10.0.0.3,for=20s
# generate: name=c,tcp=2,rtt=20ms,src=10.0.0.4,for=20s
set -e
tc qdisc add dev "${DEV:-eth0}" root handle 1: tbf rate 40mbit burst 32k latency 1s
tc qdisc add dev "${DEV:-eth0}" parent 1:1 handle 10: cake unlimited dual-srchost
