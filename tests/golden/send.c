#define _GNU_SOURCE
// Runs in the virtual machine: sends frames through a device's qdisc and says in which order they
// leave it. Commands on standard input, one a line:
//   DEVICE                   from now on
//   send PRIORITY MARK HEX   a frame; its last two bytes are its number
//   tagged BYTES MARK HEX    a frame without the tags behind its addresses, so many bytes; filters
//                            give it these tags by the mark, so that the kernel knows of them
//   burst COUNT PRIORITY MARK HEX
//                            so many, with numbers from that on; prints an x for each that was
//                            dropped, a point for each other, and before it the time in microseconds
//   out                      prints the numbers of the frames that left since the last time, those
//                            that are marked with a star, and when each left, in microseconds
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
#include <time.h>

static int is_marked(const unsigned char *frame) {
  return frame[12] == 8 && !frame[13] && (frame[15] & 3) == 3;
}

// When the kernel saw the frame of a message leave, in microseconds.
static long long time_of(struct msghdr *message) {
  struct cmsghdr *part = CMSG_FIRSTHDR(message);
  struct timespec time = {0};
  if (part && part->cmsg_type == SCM_TIMESTAMPNS) memcpy(&time, CMSG_DATA(part), sizeof time);
  return time.tv_sec * 1000000LL + time.tv_nsec / 1000;
}

static int packet_socket(const char *device, int protocol) {
  int fd = socket(AF_PACKET, SOCK_RAW, htons(protocol));
  struct sockaddr_ll to = {.sll_family = AF_PACKET, .sll_protocol = htons(protocol)};
  to.sll_ifindex = if_nametoindex(device);
  int large = 1 << 24, on = 1;
  setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &large, sizeof large);
  setsockopt(fd, SOL_SOCKET, SO_SNDBUFFORCE, &large, sizeof large);
  setsockopt(fd, SOL_SOCKET, SO_TIMESTAMPNS, &on, sizeof on);
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
    unsigned priority, mark, tags, count, byte;
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
    } else if (sscanf(line, "burst %u %u %u %n", &count, &priority, &mark, &hex) == 3) {
      int len = 0;
      for (const char *at = line + hex; sscanf(at, "%2x", &byte) == 1; at += 2) frame[len++] = byte;
      unsigned number = frame[len - 2] << 8 | frame[len - 1];
      setsockopt(sender, SOL_SOCKET, SO_PRIORITY, &priority, sizeof priority);
      setsockopt(sender, SOL_SOCKET, SO_MARK, &mark, sizeof mark);
      struct timespec now;
      clock_gettime(CLOCK_REALTIME, &now);
      printf("at %lld\noutcomes ", now.tv_sec * 1000000LL + now.tv_nsec / 1000);
      while (count) {
        static unsigned char frames[64][2048];
        struct iovec data[64];
        struct mmsghdr messages[64] = {0};
        int some = count < 64 ? count : 64;
        count -= some;
        for (int n = 0; n < some; n++, number++) {
          memcpy(frames[n], frame, len);
          frames[n][len - 2] = number >> 8;
          frames[n][len - 1] = number;
          data[n] = (struct iovec){frames[n], len};
          messages[n].msg_hdr = (struct msghdr){.msg_iov = &data[n], .msg_iovlen = 1};
        }
        for (int done = 0; done < some;) {
          int sent = sendmmsg(sender, messages + done, some - done, 0);
          for (int n = 0; n < sent; n++) putchar('.');
          done += sent < 0 ? 0 : sent;
          // It ends at the one that is dropped.
          if (done < some) putchar('x'), done++;
        }
      }
      puts("");
    } else if (!strcmp(line, "out")) {
      struct pollfd readable = {.fd = capture, .events = POLLIN};
      while (poll(&readable, 1, 300) > 0) {
        char control[256];
        struct iovec data = {frame, sizeof frame};
        struct msghdr message = {.msg_iov = &data, .msg_iovlen = 1};
        message.msg_control = control;
        message.msg_controllen = sizeof control;
        int len = recvmsg(capture, &message, 0);
        const char *star = is_marked(frame) ? "*" : "";
        printf("left %u%s %lld\n", frame[len - 2] << 8 | frame[len - 1], star, time_of(&message));
      }
    } else {
      sender = packet_socket(line, 0);
      capture = packet_socket(line, ETH_P_ALL);
    }
    fflush(stdout);
  }
  return 0;
}
