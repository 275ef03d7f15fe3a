#!/bin/sh
# Three classes by DSCP on 100 Mb/s: expedited forwarding goes first up to 10 Mb/s and no further,
# assured forwarding has 60 Mb/s, the rest shares what is left.
#
# expect: ef rate < 11mbit
# expect: ef sojourn p50 < 25ms
# expect: af rate 55..90mbit
# expect: be rate > 9mbit
# expect: root rate 90..100mbit
# generate: name=ef,rate=20mbit,size=500,dscp=46,for=10s
# generate: name=af,tcp=4,rtt=20ms,dscp=26,for=10s
# generate: name=be,tcp=4,rtt=20ms,for=10s
set -e
tc qdisc add dev "${DEV:-eth0}" root handle 1: htb default 30
tc class add dev "${DEV:-eth0}" parent 1: classid 1:1 htb rate 100mbit burst 64k
tc class add dev "${DEV:-eth0}" parent 1:1 classid 1:10 htb rate 10mbit ceil 10mbit prio 0 burst 16k
tc class add dev "${DEV:-eth0}" parent 1:1 classid 1:20 htb rate 60mbit ceil 100mbit prio 1 burst 64k
tc class add dev "${DEV:-eth0}" parent 1:1 classid 1:30 htb rate 10mbit ceil 100mbit prio 1 burst 64k
tc qdisc add dev "${DEV:-eth0}" parent 1:10 pfifo limit 50
tc qdisc add dev "${DEV:-eth0}" parent 1:20 fq_codel
tc qdisc add dev "${DEV:-eth0}" parent 1:30 fq_codel
tc filter add dev "${DEV:-eth0}" parent 1: protocol ip prio 1 flower ip_tos 0xb8/0xfc classid 1:10
tc filter add dev "${DEV:-eth0}" parent 1: protocol ip prio 2 flower ip_tos 0x68/0xfc classid 1:20
