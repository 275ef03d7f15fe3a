/*
 * Preloaded into tc: prints the netlink messages that it sends and receives, in hexadecimal. The
 * variable OPTIONS, in hexadecimal, replaces the payload of TCA_OPTIONS.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <linux/rtnetlink.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

static void print(char mark, const struct msghdr *message, ssize_t length)
{
	printf("\n@%c ", mark);
	for (size_t i = 0; i < message->msg_iovlen && length > 0; i++) {
		const unsigned char *at = message->msg_iov[i].iov_base;
		for (size_t n = message->msg_iov[i].iov_len; n > 0 && length > 0; n--, length--)
			printf("%02x", *at++);
	}
	printf("\n");
	fflush(stdout);
}

/* The options are the last attribute that tc puts. */
static void replace_options(struct msghdr *message, const char *options)
{
	static _Alignas(8) char copy[4096];
	static struct iovec vector;
	struct nlmsghdr *header = message->msg_iov[0].iov_base;
	int left = header->nlmsg_len - NLMSG_LENGTH(sizeof(struct tcmsg));
	struct rtattr *attr;

	if (header->nlmsg_type != RTM_NEWQDISC && header->nlmsg_type != RTM_NEWTCLASS)
		return;
	memcpy(copy, header, header->nlmsg_len);
	header = (struct nlmsghdr *)copy;
	attr = (struct rtattr *)(copy + NLMSG_LENGTH(sizeof(struct tcmsg)));
	while (RTA_OK(attr, left) && (attr->rta_type & NLA_TYPE_MASK) != TCA_OPTIONS)
		attr = RTA_NEXT(attr, left);
	/* The type keeps its flags. */
	unsigned short type = RTA_OK(attr, left) ? attr->rta_type : TCA_OPTIONS;
	char *to = RTA_DATA(attr);
	for (const char *at = options; at[0] && at[1]; at += 2)
		sscanf(at, "%2hhx", (unsigned char *)to++);
	attr->rta_type = type;
	attr->rta_len = to - (char *)attr;
	header->nlmsg_len = NLMSG_ALIGN(to - copy);
	vector = (struct iovec){ copy, header->nlmsg_len };
	message->msg_iov = &vector;
	message->msg_iovlen = 1;
}

ssize_t sendmsg(int fd, const struct msghdr *message, int flags)
{
	ssize_t (*next)(int, const struct msghdr *, int) = dlsym(RTLD_NEXT, "sendmsg");
	const char *options = getenv("OPTIONS");
	struct msghdr copy = *message;
	if (options)
		replace_options(&copy, options);
	ssize_t length = next(fd, &copy, flags);
	print('>', &copy, length);
	return length;
}

ssize_t recvmsg(int fd, struct msghdr *message, int flags)
{
	ssize_t (*next)(int, struct msghdr *, int) = dlsym(RTLD_NEXT, "recvmsg");
	ssize_t length = next(fd, message, flags);
	if (!(flags & MSG_PEEK))
		print('<', message, length);
	return length;
}
