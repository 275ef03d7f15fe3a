"""Programs that use NETLINK_ROUTE sockets in every way the preload library has a function for.

python3 client.py CASE [ARGUMENT]: ends with 0 if all was as with the kernel.
"""

import ctypes
import errno
import os
import select
import socket
import struct
import subprocess
import sys
import time

SOL_NETLINK = 270
ADD_MEMBERSHIP, CAP_ACK, EXT_ACK = 1, 10, 11
SO_DOMAIN, SO_PROTOCOL = 39, 38
ACKED, LARGE, HANG_UP, OVERRUN = 0x402, 0x400, 0x401, 0x403
HEADER = struct.Struct("=IHHII")
libc = ctypes.CDLL(None, use_errno=True)


def route(kind=socket.SOCK_RAW):
    return socket.socket(socket.AF_NETLINK, kind, socket.NETLINK_ROUTE)


def request(kind, flags=5, seq=1, payload=b""):
    return HEADER.pack(16 + len(payload), kind, flags, seq, 0) + payload


def check_ack(data):
    length, kind, _, seq, _ = HEADER.unpack_from(data)
    (code,) = struct.unpack_from("=i", data, 16)
    assert (length, kind, code) == (len(data), 2, 0), data
    return seq


def ask(s, seq=1):
    s.send(request(ACKED, seq=seq))
    assert check_ack(s.recv(4096)) == seq


def fails(number, call, *arguments):
    try:
        call(*arguments)
    except OSError as error:
        assert error.errno == number, error
    else:
        raise AssertionError(f"{call} did not fail")


def names():
    """Addresses and options are those of a netlink socket."""
    s = route(socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
    assert s.getsockopt(socket.SOL_SOCKET, SO_DOMAIN) == socket.AF_NETLINK
    assert s.getsockopt(socket.SOL_SOCKET, SO_PROTOCOL) == socket.NETLINK_ROUTE
    assert s.getsockopt(socket.SOL_SOCKET, socket.SO_TYPE) == socket.SOCK_DGRAM
    assert s.getsockname() == (0, 0)
    s.bind((0, 0))
    assert s.getsockname() == (os.getpid(), 0), s.getsockname()
    assert s.getpeername() == (0, 0)
    s.connect((0, 0))
    # The process's id is taken: another number.
    second = route()
    second.bind((0, 0))
    assert second.getsockname()[0] not in (0, os.getpid())
    ask(second)
    # A port that the program wants, taken and free again.
    third = route()
    third.bind((4242, 0))
    assert third.getsockname() == (4242, 0)
    fails(errno.EADDRINUSE, route().bind, (4242, 0))
    fails(errno.EINVAL, third.bind, (4243, 0))
    third.bind((4242, 0))
    third.close()
    again = route()
    again.bind((4242, 0))
    ask(again)
    # Nobody but the daemon can be written to.
    fails(errno.EPERM, s.connect, (4242, 0))
    fails(errno.EPERM, s.sendto, request(ACKED), (4242, 0))
    fails(errno.EPERM, s.sendto, request(ACKED), (0, 1))
    # The program's room for a name is kept to.
    name, size = (ctypes.c_ubyte * 12)(*[0xAA] * 12), ctypes.c_uint(6)
    assert libc.getsockname(s.fileno(), name, ctypes.byref(size)) == 0
    assert size.value == 12 and bytes(name[6:]) == b"\xaa" * 6
    assert struct.unpack("=HH", bytes(name[:4])) == (socket.AF_NETLINK, 0)


def others():
    """Other sockets are left alone."""
    s = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_USERSOCK)
    s.bind((0, 0))
    assert s.getsockname()[0] != 0
    s.setsockopt(SOL_NETLINK, EXT_ACK, 1)
    a, b = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    a.sendmsg([b"abc"])
    assert b.recvfrom(2) == (b"ab", None)
    a.close()
    assert b.recv(10) == b""
    listener = socket.create_server(("127.0.0.1", 0))
    client = socket.create_connection(listener.getsockname())
    server, address = listener.accept()
    assert address == client.getsockname() and client.getpeername() == listener.getsockname()
    server.sendall(b"x" * 100)
    assert client.recv(100, socket.MSG_WAITALL) == b"x" * 100
    assert client.getsockopt(socket.SOL_SOCKET, SO_DOMAIN) == socket.AF_INET
    fails(errno.EPROTONOSUPPORT, socket.socket, socket.AF_NETLINK, socket.SOCK_RAW, 99)
    fails(errno.ESOCKTNOSUPPORT, route, socket.SOCK_STREAM)


def messages():
    """Whole messages, cut messages, lengths and senders."""
    s = route()
    s.sendto(request(LARGE), (0, 0))
    peek = s.recvmsg(20, 0, socket.MSG_PEEK)
    assert (len(peek[0]), peek[2], peek[3]) == (20, socket.MSG_TRUNC, (0, 0)), peek
    # The length of a message before there is memory for it.
    libc.recv.restype = ctypes.c_ssize_t
    assert libc.recv(s.fileno(), None, 0, socket.MSG_PEEK | socket.MSG_TRUNC) == 3000
    assert libc.recv(s.fileno(), None, 0, socket.MSG_PEEK) == 0
    data, sender = s.recvfrom(4000)
    assert (len(data), sender) == (3000, (0, 0))
    # A cut message is gone.
    s.sendmsg([request(LARGE)[:7], request(LARGE)[7:]], [], 0, (0, 0))
    assert len(s.recv(100)) == 100
    fails(errno.EAGAIN, s.recv, 100, socket.MSG_DONTWAIT)
    buffers = [bytearray(16), bytearray(4), bytearray(10)]
    s.send(request(ACKED))
    size, control, flags, sender = s.recvmsg_into(buffers)
    assert (size, control, flags, sender) == (30, [], socket.MSG_TRUNC, (0, 0))
    # Several requests in one datagram.
    s.send(b"".join(request(ACKED, seq=n) for n in range(5)))
    assert [check_ack(s.recv(4096)) for _ in range(5)] == list(range(5))
    # Events were lost: an error, once.
    s.send(request(OVERRUN) + request(ACKED, seq=6))
    fails(errno.ENOBUFS, s.recv, 100)
    assert check_ack(s.recv(100)) == 6
    s.send(request(OVERRUN) + request(ACKED, seq=7))
    assert libc.recv(s.fileno(), None, 0, socket.MSG_PEEK | socket.MSG_TRUNC) == 16
    fails(errno.ENOBUFS, s.recv, 100, socket.MSG_PEEK)
    assert check_ack(s.recv(100)) == 7
    # The functions of programs that are built with checks.
    s.send(request(ACKED, seq=8) + request(ACKED, seq=9))
    buffer = ctypes.create_string_buffer(100)
    name, size = ctypes.create_string_buffer(12), ctypes.c_uint(12)
    assert libc.__recv_chk(s.fileno(), buffer, 100, 100, 0) == 36
    assert check_ack(buffer.raw[:36]) == 8
    size_of_name = ctypes.byref(size)
    assert libc.__recvfrom_chk(s.fileno(), buffer, 100, 100, 0, name, size_of_name) == 36
    assert check_ack(buffer.raw[:36]) == 9
    assert (size.value, name.raw[0]) == (12, socket.AF_NETLINK)


class Iovec(ctypes.Structure):
    _fields_ = [("base", ctypes.c_void_p), ("len", ctypes.c_size_t)]


class Msghdr(ctypes.Structure):
    _fields_ = [
        ("name", ctypes.c_void_p), ("namelen", ctypes.c_uint), ("iov", ctypes.POINTER(Iovec)),
        ("iovlen", ctypes.c_size_t), ("control", ctypes.c_void_p),
        ("controllen", ctypes.c_size_t), ("flags", ctypes.c_int),
    ]


class Mmsghdr(ctypes.Structure):
    _fields_ = [("hdr", Msghdr), ("len", ctypes.c_uint)]


def many():
    """sendmmsg and recvmmsg."""
    s = route()
    count = 4
    buffers = [ctypes.create_string_buffer(request(ACKED, seq=n), 100) for n in range(count)]
    names = [ctypes.create_string_buffer(12) for _ in range(count)]
    vector = (Mmsghdr * count)()
    parts = (Iovec * count)()
    for n in range(count):
        parts[n] = Iovec(ctypes.addressof(buffers[n]), 16)
        vector[n].hdr.iov = ctypes.pointer(parts[n])
        vector[n].hdr.iovlen = 1
    assert libc.sendmmsg(s.fileno(), vector, count, 0) == count
    assert [m.len for m in vector] == [16] * count
    for n in range(count):
        parts[n].len = 100
        vector[n].hdr.name = ctypes.addressof(names[n])
        vector[n].hdr.namelen = 12
    assert libc.recvmmsg(s.fileno(), vector, count, 0, None) == count
    for n in range(count):
        assert (vector[n].len, vector[n].hdr.namelen) == (36, 12)
        assert check_ack(buffers[n].raw[:36]) == n
        assert names[n].raw[:8] == struct.pack("=HHI", socket.AF_NETLINK, 0, 0)
    # It waits for the first alone.
    ask(s)
    s.send(request(ACKED, seq=77))
    assert libc.recvmmsg(s.fileno(), vector, count, 0x10000, None) == 1
    assert check_ack(buffers[0].raw[:36]) == 77
    # None is there.
    assert libc.recvmmsg(s.fileno(), vector, count, socket.MSG_DONTWAIT, None) == -1
    assert ctypes.get_errno() == errno.EAGAIN
    # The time is over after the first.
    s.send(request(ACKED, seq=1) + request(ACKED, seq=2))
    time_left = (ctypes.c_long * 2)(0, 0)
    assert libc.recvmmsg(s.fileno(), vector, count, 0, time_left) == 1
    assert list(time_left) == [0, 0]
    assert check_ack(s.recv(100)) == 2


def processes():
    """dup, fork, exec, a passed socket."""
    s = route(socket.SOCK_RAW | socket.SOCK_CLOEXEC)
    s.bind((0, 0))
    port = s.getsockname()
    copy = s.dup()
    s.close()
    ask(copy, 1)
    os.dup2(copy.fileno(), 100, inheritable=True)
    child = os.fork()
    if child == 0:
        assert copy.getsockname() == port
        ask(copy, 2)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    code = [sys.executable, __file__, "inherited", str(port[0])]
    subprocess.run(code, check=True, pass_fds=[100])
    a, b = socket.socketpair()
    socket.send_fds(a, [b"x"], [copy.fileno()])
    (fd,) = socket.recv_fds(b, 1, 1)[1]
    passed = socket.socket(fileno=fd)
    assert (passed.family, passed.getsockname()) == (socket.AF_NETLINK, port)
    ask(passed, 4)


def inherited(port):
    s = socket.socket(fileno=100)
    assert (s.family, s.getsockname()) == (socket.AF_NETLINK, (int(port), 0))
    ask(s, 3)
    # Without the descriptors that Python closes: the library is found by its name.
    ask(route(), 4)


def options():
    """Options set before and after the socket has a port."""
    s = route()
    s.setsockopt(SOL_NETLINK, EXT_ACK, 1)
    assert s.getsockopt(SOL_NETLINK, EXT_ACK) == 1
    assert s.getsockopt(SOL_NETLINK, CAP_ACK) == 0
    s.bind((5001, 0b101))
    s.setsockopt(SOL_NETLINK, CAP_ACK, 1)
    s.setsockopt(SOL_NETLINK, EXT_ACK, 0)
    assert s.getsockopt(SOL_NETLINK, CAP_ACK) == 1
    assert s.getsockopt(SOL_NETLINK, EXT_ACK) == 0
    s.setsockopt(SOL_NETLINK, ADD_MEMBERSHIP, 33)
    fails(errno.ENOPROTOOPT, s.setsockopt, SOL_NETLINK, 13, 1)
    fails(errno.ENOPROTOOPT, s.getsockopt, SOL_NETLINK, 13)
    s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
    assert s.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) == 2 * 65536


def nonblocking():
    """A socket that does not block."""
    s = route(socket.SOCK_RAW | socket.SOCK_NONBLOCK)
    assert not os.get_blocking(s.fileno())
    fails(errno.EAGAIN, s.recv, 100)
    s.send(request(ACKED))
    while True:
        try:
            return check_ack(s.recv(100))
        except BlockingIOError:
            time.sleep(0.001)


def watched():
    """A socket that does not block, at which an event loop looks before it is bound."""
    s = route(socket.SOCK_RAW | socket.SOCK_NONBLOCK)
    loop = select.epoll()
    loop.register(s.fileno(), select.EPOLLIN)
    loop.poll(0)
    fails(errno.EAGAIN, s.recvfrom, 100)
    assert s.getsockname() == (0, 0), s.getsockname()
    port = os.getpid() + (20 << 22)
    s.bind((port, 1))
    assert s.getsockname() == (port, 0), s.getsockname()
    return s, loop


def loop():
    """An event loop looks at the same socket once that is bound."""
    s, loop = watched()
    s.send(request(ACKED, seq=3))
    heard = loop.poll(60)
    assert [fd for fd, _ in heard] == [s.fileno()], heard
    assert check_ack(s.recv(100)) == 3


def hear():
    """An event loop hears of a link that comes and goes."""
    s, loop = watched()
    print("ready", flush=True)
    kinds = []
    while kinds[-1:] != [17]:
        assert loop.poll(60), kinds
        kinds.append(HEADER.unpack_from(s.recv(65536))[1])
    assert 16 in kinds, kinds


def end():
    """The daemon goes away: an error, no signal, no empty message for ever."""
    s = route()
    s.send(request(HANG_UP))
    fails(errno.ECONNRESET, s.recv, 100)
    fails(errno.EPIPE, s.send, request(ACKED))


def hold(port):
    """A port that another program may want, until the input ends."""
    s = route()
    s.bind((int(port), 0))
    s.send(request(1))
    check_ack(s.recv(100))
    print("held", flush=True)
    sys.stdin.read()


def taken():
    """A program in another network namespace has this one's process id as its port."""
    s = route(socket.SOCK_RAW | socket.SOCK_NONBLOCK)
    s.setsockopt(SOL_NETLINK, EXT_ACK, 1)
    fails(errno.EADDRINUSE, s.bind, (os.getpid(), 0))
    s.bind((0, 0))
    assert s.getsockname()[0] not in (0, os.getpid()), s.getsockname()
    assert not os.get_blocking(s.fileno()) and not s.get_inheritable()
    assert s.getsockopt(SOL_NETLINK, EXT_ACK) == 1
    s.setblocking(True)
    s.send(request(1, seq=5))
    assert check_ack(s.recv(100)) == 5


def no_index(number, name):
    ctypes.set_errno(0)
    assert libc.if_nametoindex(name) == 0 and ctypes.get_errno() == number, ctypes.get_errno()


def unreachable():
    """Nobody listens (any more): never the host's kernel."""
    s = route()
    fails(errno.ENOENT, s.bind, (0, 0))
    fails(errno.ENOENT, s.send, request(ACKED))
    no_index(errno.ENOENT, b"lo")


def untold():
    """The variable with the daemon's path is gone: never the host's kernel."""
    fails(errno.ECONNREFUSED, route().bind, (0, 0))


def interfaces(name, index):
    """The C library's names and indices."""
    assert socket.if_nametoindex(name) == int(index)
    assert socket.if_indextoname(int(index)) == name
    no_index(errno.ENODEV, b"lo")
    no_index(errno.ENODEV, b"a-name-that-is-too-long")
    no_index(errno.ENODEV, b"")
    fails(errno.ENXIO, socket.if_indextoname, 1)


globals()[sys.argv[1]](*sys.argv[2:])
