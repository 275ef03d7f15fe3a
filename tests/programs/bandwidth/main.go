// Calls of the CNI bandwidth plugin: an ifb, ingress, mirred, tbf.
package main

import (
	"fmt"
	"net"
	"os"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

func check(what string, err error) {
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", what, err)
		os.Exit(1)
	}
}

func tbf(link netlink.Link) {
	qdisc := &netlink.Tbf{
		QdiscAttrs: netlink.QdiscAttrs{
			LinkIndex: link.Attrs().Index,
			Handle:    netlink.MakeHandle(1, 0),
			Parent:    netlink.HANDLE_ROOT,
		},
		Limit:  uint32(250000),
		Rate:   uint64(1250000),
		Buffer: uint32(312500),
	}
	check("tbf", netlink.QdiscAdd(qdisc))
}

func main() {
	host, err := netlink.LinkByName("host0")
	check("host0", err)
	tbf(host)
	ifb := &netlink.Ifb{LinkAttrs: netlink.LinkAttrs{
		Name: "bwp0", Flags: net.FlagUp, MTU: host.Attrs().MTU, TxQLen: 1000,
	}}
	check("ifb", netlink.LinkAdd(ifb))
	link, err := netlink.LinkByName("bwp0")
	check("bwp0", err)
	check("up", netlink.LinkSetUp(link))
	ingress := &netlink.Ingress{QdiscAttrs: netlink.QdiscAttrs{
		LinkIndex: host.Attrs().Index,
		Handle:    netlink.MakeHandle(0xffff, 0),
		Parent:    netlink.HANDLE_INGRESS,
	}}
	check("ingress", netlink.QdiscAdd(ingress))
	filter := &netlink.U32{
		FilterAttrs: netlink.FilterAttrs{
			LinkIndex: host.Attrs().Index,
			Parent:    ingress.Handle,
			Priority:  1,
			Protocol:  unix.ETH_P_ALL,
		},
		ClassId:    netlink.MakeHandle(1, 1),
		RedirIndex: link.Attrs().Index,
		Actions:    []netlink.Action{netlink.NewMirredAction(link.Attrs().Index)},
	}
	check("filter", netlink.FilterAdd(filter))
	tbf(link)
	qdiscs, err := netlink.QdiscList(host)
	check("list", err)
	for _, q := range qdiscs {
		fmt.Println(q.Type(), q.Attrs().Handle>>16)
	}
	filters, err := netlink.FilterList(host, ingress.Handle)
	check("filters", err)
	fmt.Println(len(filters), "filter")
	ifs, err := net.Interfaces()
	check("interfaces", err)
	for _, i := range ifs {
		fmt.Println(i.Name, i.MTU)
	}
}
