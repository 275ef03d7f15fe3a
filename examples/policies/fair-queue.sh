#!/bin/sh
# A slow link that everybody shares: flows get equal parts, and sparse flows do not wait.
#
# expect: bulk fair > 0.95
# expect: ping sojourn p99 < 15ms
# expect: bulk sojourn p50 < 60ms
# expect: root rate > 9mbit
# generate: name=bulk,tcp=4,rtt=40ms,for=20s
# generate: name=bulk,tcp=4,cc=reno,rtt=40ms,for=20s
# generate: name=ping,rate=20kbit,size=98,for=20s
set -e
tc qdisc add dev "${DEV:-eth0}" root handle 1: tbf rate 10mbit burst 16k latency 1s
tc qdisc add dev "${DEV:-eth0}" parent 1:1 handle 10: fq_codel
