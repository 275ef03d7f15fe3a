// Runs in the virtual machine: sends frames through a device's qdisc and says in which order they
// leave it. Commands on standard input, one a line:
//   DEVICE                   from now on
//   send PRIORITY MARK HEX   a frame; its last two bytes are its number
//   tagged BYTES MARK HEX    a frame without the tags behind its addresses, so many bytes; filters
//                            give it these tags by the mark, so that the kernel knows of them
//   out                      prints the numbers of the frames that left since the last time
//   ! COMMAND                prints and runs a command
#include <arpa/inet.h>
#include <linux/if_packet.h>
#include <net/ethernet.h>
#include <net/if.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

static int packet_socket(const char *device, int protocol) {
  int fd = socket(AF_PACKET, SOCK_RAW, htons(protocol));
  struct sockaddr_ll to = {.sll_family = AF_PACKET, .sll_protocol = htons(protocol)};
  to.sll_ifindex = if_nametoindex(device);
  int large = 1 << 24;
  setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &large, sizeof large);
  setsockopt(fd, SOL_SOCKET, SO_SNDBUFFORCE, &large, sizeof large);
  if (fd < 0 || bind(fd, (struct sockaddr *)&to, sizeof to)) {
    perror(device);
    exit(1);
  }
  return fd;
}

int main(void) {
  static char line[65536];
  static unsigned char frame[32768];
  int sender = -1, capture = -1;
  while (fgets(line, sizeof line, stdin)) {
    line[strcspn(line, "\n")] = 0;
    unsigned priority, mark, tags, byte;
    int hex;
    puts(line);
    fflush(stdout);
    if (line[0] == '!') {
      if (system(line + 2)) puts("failed");
    } else if (sscanf(line, "send %u %u %n", &priority, &mark, &hex) == 2 ||
               sscanf(line, "tagged %u %u %n", &tags, &mark, &hex) == 2) {
      int len = 0;
      for (const char *at = line + hex; sscanf(at, "%2x", &byte) == 1; at += 2) frame[len++] = byte;
      if (line[0] == 't') {
        len -= tags;
        memmove(frame + 12, frame + 12 + tags, len - 12);
        priority = 0;
      }
      setsockopt(sender, SOL_SOCKET, SO_PRIORITY, &priority, sizeof priority);
      setsockopt(sender, SOL_SOCKET, SO_MARK, &mark, sizeof mark);
      // A packet that the qdisc drops is an error here.
      if (send(sender, frame, len, 0) < 0) puts("dropped");
    } else if (!strcmp(line, "out")) {
      struct pollfd readable = {.fd = capture, .events = POLLIN};
      while (poll(&readable, 1, 300) > 0) {
        int len = recv(capture, frame, sizeof frame, 0);
        printf("left %u\n", frame[len - 2] << 8 | frame[len - 1]);
      }
    } else {
      sender = packet_socket(line, 0);
      capture = packet_socket(line, ETH_P_ALL);
    }
    fflush(stdout);
  }
  return 0;
}
