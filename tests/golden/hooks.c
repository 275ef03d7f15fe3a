// Runs in the virtual machine: sends frames into ports and says what comes out of them. A port is a
// veth device; its other end has its name and an x. Commands on standard input, one a line:
//   $ COMMAND     runs it with the shell's /functions, prints it, its output and `= EXIT CODE`
//   > PORT HEX    prints it; a frame comes in at this port
//   <             prints `< PORT HEX` for each frame that went out since the last time, by port
// Other lines are printed.
#include <arpa/inet.h>
#include <linux/if_packet.h>
#include <net/ethernet.h>
#include <net/if.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>

enum { PORTS = 3 };
static int ends[PORTS];
static char buffer[1 << 16];

static int open_end(int port) {
  char name[] = {'p', '0' + port, 'x', 0};
  int fd = socket(AF_PACKET, SOCK_RAW, htons(ETH_P_ALL)), on = 1;
  struct sockaddr_ll to = {.sll_family = AF_PACKET, .sll_protocol = htons(ETH_P_ALL)};
  to.sll_ifindex = if_nametoindex(name);
  setsockopt(fd, SOL_PACKET, PACKET_IGNORE_OUTGOING, &on, sizeof on);
  setsockopt(fd, SOL_PACKET, PACKET_AUXDATA, &on, sizeof on);
  if (fd < 0 || bind(fd, (struct sockaddr *)&to, sizeof to)) {
    perror(name);
    exit(1);
  }
  return fd;
}

// The kernel keeps the outer tag of a frame beside it.
static void print_frame(int port) {
  static unsigned char frame[1 << 16];
  char control[256];
  struct iovec into = {frame, sizeof frame};
  struct msghdr message = {.msg_iov = &into, .msg_iovlen = 1, .msg_control = control};
  message.msg_controllen = sizeof control;
  int len = recvmsg(ends[port], &message, 0), tag = 0;
  for (struct cmsghdr *at = CMSG_FIRSTHDR(&message); at; at = CMSG_NXTHDR(&message, at)) {
    struct tpacket_auxdata *data = (void *)CMSG_DATA(at);
    if (at->cmsg_type != PACKET_AUXDATA || !(data->tp_status & TP_STATUS_VLAN_VALID)) continue;
    tag = data->tp_vlan_tpid << 16 | data->tp_vlan_tci;
  }
  printf("< p%d ", port);
  for (int i = 0; i < len; i++) {
    if (i == 12 && tag) printf("%08x", tag);
    printf("%02x", frame[i]);
  }
  puts("");
}

static void run(const char *command) {
  char full[4096];
  snprintf(full, sizeof full, ". /functions; { %s\n} >/out 2>&1", command);
  int status = system(full);
  FILE *out = fopen("/out", "r");
  while (out && fgets(buffer, sizeof buffer, out)) {
    fputs(buffer, stdout);
    if (!strchr(buffer, '\n')) puts("");
  }
  fclose(out);
  printf("= %d\n", status >> 8);
}

int main(void) {
  static char line[1 << 16];
  static unsigned char frame[1 << 16];
  for (int port = 0; port < PORTS; port++) ends[port] = open_end(port);
  while (fgets(line, sizeof line, stdin)) {
    line[strcspn(line, "\n")] = 0;
    if (line[0] != '<') puts(line);
    fflush(stdout);
    if (line[0] == '$') {
      run(line + 2);
    } else if (line[0] == '>') {
      int len = 0;
      unsigned byte;
      for (char *at = line + 5; sscanf(at, "%2x", &byte) == 1; at += 2) frame[len++] = byte;
      if (send(ends[line[3] - '0'], frame, len, 0) != len) puts("? not sent");
    } else if (line[0] == '<') {
      for (int port = 0; port < PORTS; port++) {
        struct pollfd readable = {.fd = ends[port], .events = POLLIN};
        while (poll(&readable, 1, 100) > 0) print_frame(port);
      }
    }
    fflush(stdout);
  }
  return 0;
}
