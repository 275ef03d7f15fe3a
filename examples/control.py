#!/usr/bin/env python3
"""Lists the links of a running Softnet. Usage: control.py SOCKET"""
import os, socket, struct, sys

server = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
server.connect(sys.argv[1])
# RTM_GETLINK with NLM_F_REQUEST and NLM_F_DUMP, and an empty struct ifinfomsg.
server.send(struct.pack("=IHHII16x", 32, 18, 0x301, 1, 0))
kind = None
while kind != 3:  # NLMSG_DONE
    datagram = server.recv(256 * 1024) or sys.exit("the daemon has ended")
    while datagram:
        length, kind = struct.unpack_from("=IH", datagram)
        message, datagram = datagram[16:length], datagram[length + 3 & ~3:]
        if kind in (2, 3):  # NLMSG_ERROR, NLMSG_DONE
            error, = struct.unpack_from("=i", message)
            if error:
                sys.exit(os.strerror(-error))
        if kind == 16:  # RTM_NEWLINK
            index, = struct.unpack_from("=4xi", message)
            attributes = message[16:]
            while attributes:
                length, attribute = struct.unpack_from("=HH", attributes)
                if attribute == 3:  # IFLA_IFNAME
                    print(index, attributes[4:length - 1].decode())
                attributes = attributes[length + 3 & ~3:]
