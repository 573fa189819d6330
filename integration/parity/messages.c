/* Flags, vectors, messages, and control data of the read and write family. */
#include "parity.h"

#include <limits.h>

static const struct {
	const char *name;
	int bit;
} flags[] = {{"OOB", MSG_OOB},           {"PEEK", MSG_PEEK},         {"DONTROUTE", MSG_DONTROUTE}, {"CTRUNC", MSG_CTRUNC},
	     {"PROXY", MSG_PROXY},       {"TRUNC", MSG_TRUNC},       {"EOR", MSG_EOR},             {"WAITALL", MSG_WAITALL},
	     {"FIN", MSG_FIN},           {"SYN", MSG_SYN},           {"CONFIRM", MSG_CONFIRM},     {"RST", MSG_RST},
	     {"ERRQUEUE", MSG_ERRQUEUE}, {"NOSIGNAL", MSG_NOSIGNAL}, {"MORE", MSG_MORE},           {"WAITFORONE", MSG_WAITFORONE},
	     {"ZEROCOPY", MSG_ZEROCOPY}, {"FASTOPEN", MSG_FASTOPEN}, {"CMSG_CLOEXEC", MSG_CMSG_CLOEXEC},
	     {"20000", 0x20000},         {"80000", 0x80000}};
#define FLAGS (int)(sizeof flags / sizeof *flags)

static void said(const char *what, const char *flag, long result)
{
	say("%s %s: %ld %s", what, flag, result, result < 0 ? strerrorname_np(errno) : "-");
}

CASE(every_flag_of_recv_with_nothing_there)
{
	struct trio all = trio();
	char buffer[8];
	for (int i = 0; i < FLAGS; i++)
		said("recv", flags[i].name, recv(all.server, buffer, 4, MSG_DONTWAIT | flags[i].bit));
}

CASE(every_flag_of_recv_with_bytes_there)
{
	struct trio all = trio();
	for (int i = 0; i < FLAGS; i++) {
		char buffer[8] = "untouch";
		T(write(all.client, "abcd", 4));
		EXPECT(all.server, POLLIN | POLLOUT);
		said("recv", flags[i].name, recv(all.server, buffer, 4, MSG_DONTWAIT | flags[i].bit));
		say_bytes("buffer", buffer, 4);
		say("left: %ld", (long)recv(all.server, buffer, 8, MSG_DONTWAIT));
	}
}

CASE(every_flag_of_recvmsg_and_what_it_says_back)
{
	struct trio all = trio();
	for (int i = 0; i < FLAGS; i++) {
		char buffer[8], name[32], control[64];
		struct iovec part = {buffer, 4};
		struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_name = name, .msg_namelen = sizeof name,
					 .msg_control = control, .msg_controllen = sizeof control, .msg_flags = 0x7777};
		T(write(all.client, "abcd", 4));
		EXPECT(all.server, POLLIN | POLLOUT);
		said("recvmsg", flags[i].name, recvmsg(all.server, &message, MSG_DONTWAIT | flags[i].bit));
		say("name %u control %zu flags %x", message.msg_namelen, message.msg_controllen, message.msg_flags);
		say("left: %ld", (long)recv(all.server, buffer, 8, MSG_DONTWAIT));
	}
}

CASE(every_flag_of_recvmsg_at_the_end)
{
	struct trio all = trio();
	T(shutdown(all.client, SHUT_WR));
	EXPECT(all.server, POLLIN | POLLOUT | POLLRDHUP);
	for (int i = 0; i < FLAGS; i++) {
		char buffer[8];
		struct iovec part = {buffer, 4};
		struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_flags = 0x7777};
		said("recvmsg", flags[i].name, recvmsg(all.server, &message, MSG_DONTWAIT | flags[i].bit));
		say("flags %x", message.msg_flags);
	}
}

CASE(every_flag_of_send)
{
	struct trio all = trio();
	char buffer[64];
	long sent = 0;
	for (int i = 1; i < FLAGS; i++) {
		long taken = send(all.server, "x", 1, MSG_DONTWAIT | MSG_NOSIGNAL | flags[i].bit);
		said("send", flags[i].name, taken);
		sent += taken > 0;
	}
	T(read_all(all.client, buffer, sent) == sent);
	EXPECT(all.client, POLLOUT);
}

CASE(every_flag_of_sendmsg)
{
	struct trio all = trio();
	char buffer[64];
	long sent = 0;
	struct iovec part = {"x", 1};
	struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
	for (int i = 1; i < FLAGS; i++) {
		long taken = sendmsg(all.server, &message, MSG_DONTWAIT | MSG_NOSIGNAL | flags[i].bit);
		said("sendmsg", flags[i].name, taken);
		sent += taken > 0;
	}
	T(read_all(all.client, buffer, sent) == sent);
}

CASE(recv_of_nothing_waits_as_recv_of_something)
{
	struct trio all = trio();
	char byte;
	T(recv(all.server, &byte, 0, MSG_DONTWAIT));
	T(read(all.server, &byte, 0));
	T(write(all.client, "ab", 2));
	EXPECT(all.server, POLLIN | POLLOUT);
	T(recv(all.server, &byte, 0, MSG_DONTWAIT));
	T(recv(all.server, &byte, 0, MSG_PEEK));
	T(recv(all.server, &byte, 0, MSG_TRUNC));
	T(recv(all.server, &byte, 1, 0));
	T(read(all.server, &byte, 1));
	T(shutdown(all.client, SHUT_WR));
	EXPECT(all.server, POLLIN | POLLOUT | POLLRDHUP);
	T(recv(all.server, &byte, 0, MSG_DONTWAIT));
}

CASE(peek_and_waitall_wait_for_all)
{
	struct trio all = trio();
	char buffer[8] = {0};
	T(write(all.client, "a", 1));
	EXPECT(all.server, POLLIN | POLLOUT);
	pthread_t thread = after_ms(40, write_x, &all.client);
	T(recv(all.server, buffer, 2, MSG_PEEK | MSG_WAITALL));
	say_bytes("peeked", buffer, 2);
	pthread_join(thread, NULL);
	T(recv(all.server, buffer, 8, MSG_PEEK | MSG_WAITALL | MSG_DONTWAIT));
	struct timeval limit = {.tv_usec = 30000};
	T(setsockopt(all.server, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit));
	T(recv(all.server, buffer, 5, MSG_PEEK | MSG_WAITALL));
	T(shutdown(all.client, SHUT_WR));
	T(recv(all.server, buffer, 5, MSG_PEEK | MSG_WAITALL));
	T(recv(all.server, buffer, 5, MSG_WAITALL));
}

CASE(waitall_gives_what_came_when_its_time_is_up)
{
	struct trio all = trio();
	char buffer[8] = {0};
	struct timeval limit = {.tv_usec = 40000};
	T(setsockopt(all.server, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit));
	T(write(all.client, "abc", 3));
	EXPECT(all.server, POLLIN | POLLOUT);
	T(recv(all.server, buffer, 8, MSG_WAITALL));
	say_bytes("got", buffer, 3);
	T(recv(all.server, buffer, 8, MSG_WAITALL));
	catch_signal(SIGUSR1, SA_RESTART);
	limit.tv_usec = 0;
	T(setsockopt(all.server, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit));
	T(write(all.client, "de", 2));
	EXPECT(all.server, POLLIN | POLLOUT);
	pthread_t thread = signal_waits();
	T(recv(all.server, buffer, 8, MSG_WAITALL));
	end_signals(thread);
}

CASE(waitall_gives_what_came_before_a_reset)
{
	struct trio all = trio();
	char buffer[8] = {0};
	T(write(all.client, "abc", 3));
	EXPECT(all.server, POLLIN | POLLOUT);
	reset(all.client);
	EXPECT(all.server, POLLIN | POLLOUT | POLLERR | POLLHUP | POLLRDHUP);
	T(recv(all.server, buffer, 8, MSG_WAITALL));
	T(recv(all.server, buffer, 8, MSG_WAITALL));
}

CASE(trunc_and_peek_together_count)
{
	struct trio all = trio();
	static char big[10000];
	T(write(all.client, big, 10000));
	int there = 0;
	while (there < 10000)
		ioctl(all.server, FIONREAD, &there);
	T(recv(all.server, NULL, 3000, MSG_PEEK | MSG_TRUNC));
	T(recv(all.server, NULL, 20000, MSG_PEEK | MSG_TRUNC));
	T(recv(all.server, NULL, 3000, MSG_TRUNC));
	T(recv(all.server, NULL, 20000, MSG_TRUNC | MSG_DONTWAIT));
	T(recv(all.server, NULL, 20000, MSG_TRUNC | MSG_DONTWAIT));
}

CASE(more_is_held_back_and_then_sent)
{
	struct trio all = trio();
	char buffer[16];
	T(send(all.server, "one", 3, MSG_MORE));
	T(send(all.server, "two", 3, 0));
	T(read_all(all.client, buffer, 6));
	T(send(all.server, "three", 5, MSG_MORE));
	T(shutdown(all.server, SHUT_WR));
	T(read_all(all.client, buffer, 5));
	say_bytes("client", buffer, 5);
}

CASE(a_cork_holds_back_until_it_is_pulled)
{
	struct trio all = trio();
	char buffer[16];
	int on = 1, off = 0;
	T(setsockopt(all.server, IPPROTO_TCP, TCP_CORK, &on, sizeof on));
	T(write(all.server, "one", 3));
	T(write(all.server, "two", 3));
	T(setsockopt(all.server, IPPROTO_TCP, TCP_CORK, &off, sizeof off));
	T(read_all(all.client, buffer, 6));
	say_bytes("client", buffer, 6);
	T(setsockopt(all.server, IPPROTO_TCP, TCP_CORK, &on, sizeof on));
	T(write(all.server, "end", 3));
	T(close(all.server));
	T(read_all(all.client, buffer, 3));
	T(read(all.client, buffer, 1));
}

CASE(vectors_may_be_empty_or_too_many)
{
	struct trio all = trio();
	char byte;
	static struct iovec parts[1026];
	volatile int counts[] = {0, 1, 1023, 1024, 1025, -1, INT_MIN};
	for (int i = 0; i < 1026; i++)
		parts[i] = (struct iovec){&byte, 0};
	T(set_nonblocking(all.server, 1));
	for (int i = 0; i < 7; i++) {
		say("%d parts", counts[i]);
		T(readv(all.server, parts, counts[i]));
		T(writev(all.server, parts, counts[i]));
		T(preadv(all.server, parts, counts[i], 0));
		T(pwritev(all.server, parts, counts[i], 0));
		T(preadv2(all.server, parts, counts[i], -1, 0));
		T(pwritev2(all.server, parts, counts[i], -1, 0));
	}
	T(readv(all.server, NULL, 0));
	T(writev(all.server, NULL, 0));
	T(close(all.client));
	EXPECT(all.server, POLLIN | POLLOUT | POLLRDHUP);
	T(readv(all.server, parts, 3));
}

CASE(messages_may_have_no_parts_or_too_many)
{
	struct trio all = trio();
	char byte;
	static struct iovec parts[1026];
	size_t counts[] = {0, 1, 1024, 1025, (size_t)-1};
	for (int i = 0; i < 1026; i++)
		parts[i] = (struct iovec){&byte, 0};
	for (int i = 0; i < 5; i++) {
		struct msghdr message = {.msg_iov = parts, .msg_iovlen = counts[i], .msg_flags = 0x7777};
		struct mmsghdr many = {.msg_hdr = message, .msg_len = 77};
		say("%zd parts", (ssize_t)counts[i]);
		T(recvmsg(all.server, &message, MSG_DONTWAIT));
		say("flags %x", message.msg_flags);
		T(sendmsg(all.server, &message, MSG_DONTWAIT));
		T(recvmmsg(all.server, &many, 1, MSG_DONTWAIT, NULL));
		T(sendmmsg(all.server, &many, 1, MSG_DONTWAIT));
		say("length %u", many.msg_len);
	}
	T(write(all.client, "x", 1));
	EXPECT(all.server, POLLIN | POLLOUT);
	struct msghdr message = {.msg_flags = 0x7777};
	T(recvmsg(all.server, &message, MSG_DONTWAIT));
	T(recv(all.server, &byte, 1, MSG_DONTWAIT));
}

CASE(lengths_beyond_what_a_call_can_return)
{
	struct trio all = trio();
	char byte[2];
	struct iovec much[2] = {{byte, SSIZE_MAX}, {byte, 1}}, negative[1] = {{byte, (size_t)-1}};
	struct msghdr message = {.msg_iov = much, .msg_iovlen = 2};
	T(readv(all.server, much, 2));
	T(writev(all.server, much, 2));
	T(readv(all.server, negative, 1));
	T(writev(all.server, negative, 1));
	T(recvmsg(all.server, &message, MSG_DONTWAIT));
	T(sendmsg(all.server, &message, MSG_DONTWAIT));
	T(write(all.client, "ab", 2));
	EXPECT(all.server, POLLIN | POLLOUT);
	volatile size_t huge = (size_t)SSIZE_MAX;
	T(read(all.server, byte, huge));
	T(close(all.client));
	EXPECT(all.server, POLLIN | POLLOUT | POLLRDHUP);
	T(read(all.server, byte, huge + 1));
}

CASE(recvfrom_minds_its_address_arguments)
{
	struct trio all = trio();
	struct sockaddr_in name = {.sin_family = 99};
	char buffer[8];
	socklen_t lengths[] = {0, 4, 16, 128, (socklen_t)-1};
	for (int i = 0; i < 5; i++) {
		socklen_t length = lengths[i];
		T(write(all.client, "x", 1));
		EXPECT(all.server, POLLIN | POLLOUT);
		T(recvfrom(all.server, buffer, 8, 0, (void *)&name, &length));
		say("family %d, length %d", name.sin_family, (int)length);
		T(recv(all.server, buffer, 8, MSG_DONTWAIT));
	}
	socklen_t length = 16;
	T(write(all.client, "x", 1));
	EXPECT(all.server, POLLIN | POLLOUT);
	T(recvfrom(all.server, buffer, 8, 0, NULL, &length));
	say("length %u", length);
	T(recvfrom(all.server, buffer, 8, MSG_DONTWAIT, (void *)&name, NULL));
}

CASE(sendto_and_sendmsg_mind_their_names)
{
	struct trio all = trio();
	struct sockaddr_in name = v4("127.0.0.1", 9);
	struct iovec part = {"x", 1};
	struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_name = &name};
	char buffer[16];
	unsigned lengths[] = {0, 4, 16, 128, 129, (unsigned)-1};
	for (int i = 0; i < 6; i++) {
		T(sendto(all.server, "x", 1, 0, (void *)&name, lengths[i]));
		message.msg_namelen = lengths[i];
		T(sendmsg(all.server, &message, 0));
	}
	T(sendto(all.server, "x", 1, 0, (void *)1, 16));
	T(sendto(all.server, "x", 1, 0, (void *)1, 0));
	shutdown(all.server, SHUT_WR);
	long got = read_all(all.client, buffer, 16);
	say("%ld came", got);
}

CASE(recvmsg_minds_its_name_length)
{
	struct trio all = trio();
	char buffer[8], name[200];
	int lengths[] = {0, 4, 128, 129, -1};
	struct iovec part = {buffer, 1};
	T(write(all.client, "abcdefgh", 8));
	EXPECT(all.server, POLLIN | POLLOUT);
	for (int i = 0; i < 5; i++) {
		struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_name = name, .msg_namelen = (socklen_t)lengths[i]};
		T(recvmsg(all.server, &message, 0));
		say("length %d", (int)message.msg_namelen);
	}
	struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_name = NULL, .msg_namelen = 16};
	T(recvmsg(all.server, &message, 0));
	say("length %d", (int)message.msg_namelen);
	T(recv(all.server, buffer, 8, MSG_DONTWAIT));
}

CASE(control_data_that_is_sent_is_checked)
{
	struct trio all = trio();
	static const struct {
		int level, type;
		unsigned length;
	} kinds[] = {{SOL_SOCKET, SCM_RIGHTS, 20},  {SOL_SOCKET, 2, 28}, {SOL_SOCKET, 99, 20}, {IPPROTO_IP, IP_TTL, 20},
		     {IPPROTO_TCP, 1, 20},          {SOL_SOCKET, SCM_RIGHTS, 3}, {SOL_SOCKET, SCM_RIGHTS, 500}, {SOL_SOCKET, SCM_RIGHTS, 16}};
	char buffer[16];
	struct iovec part = {"x", 1};
	int came = 0;
	for (int i = 0; i < 8; i++) {
		_Alignas(8) char control[64] = {0};
		struct cmsghdr *header = (void *)control;
		struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = 64};
		*header = (struct cmsghdr){.cmsg_len = kinds[i].length, .cmsg_level = kinds[i].level, .cmsg_type = kinds[i].type};
		if (kinds[i].length < 64)
			message.msg_controllen = CMSG_ALIGN(kinds[i].length);
		came += T(sendmsg(all.server, &message, 0)) == 1;
	}
	struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = NULL, .msg_controllen = 64};
	came += T(sendmsg(all.server, &message, 0)) == 1;
	message.msg_control = (void *)1;
	came += T(sendmsg(all.server, &message, 0)) == 1;
	message.msg_controllen = 8;
	came += T(sendmsg(all.server, &message, 0)) == 1;
	T(read_all(all.client, buffer, came) == came);
	EXPECT(all.client, POLLOUT);
}

CASE(recvmmsg_takes_what_there_is)
{
	struct trio all = trio();
	char a[4], b[4], c[4];
	struct iovec parts[3] = {{a, 2}, {b, 2}, {c, 2}};
	struct mmsghdr many[3];
	T(write(all.client, "abcde", 5));
	EXPECT(all.server, POLLIN | POLLOUT);
	for (int round = 0; round < 4; round++) {
		for (int i = 0; i < 3; i++)
			many[i] = (struct mmsghdr){.msg_hdr = {.msg_iov = &parts[i], .msg_iovlen = 1}, .msg_len = 77};
		struct timespec limit = {.tv_nsec = 20000000};
		switch (round) {
		case 0: T(recvmmsg(all.server, many, 3, MSG_DONTWAIT, NULL)); break;
		case 1: T(recvmmsg(all.server, many, 3, MSG_DONTWAIT, &limit)); break;
		case 2:
			T(write(all.client, "fg", 2));
			T(recvmmsg(all.server, many, 3, MSG_WAITFORONE, NULL));
			break;
		default:
			T(shutdown(all.client, SHUT_WR));
			EXPECT(all.server, POLLIN | POLLOUT | POLLRDHUP);
			T(recvmmsg(all.server, many, 3, 0, NULL));
		}
		say("%u %u %u", many[0].msg_len, many[1].msg_len, many[2].msg_len);
	}
	struct timespec bad = {.tv_nsec = 1000000000}, negative = {.tv_sec = -1};
	T(recvmmsg(all.server, many, 3, 0, &bad));
	T(recvmmsg(all.server, many, 3, 0, &negative));
}

CASE(recvmmsg_looks_at_its_time_after_each_message)
{
	struct trio all = trio();
	char a[4], b[4];
	struct iovec parts[2] = {{a, 2}, {b, 2}};
	struct mmsghdr many[2] = {{.msg_hdr = {.msg_iov = &parts[0], .msg_iovlen = 1}},
				  {.msg_hdr = {.msg_iov = &parts[1], .msg_iovlen = 1}}};
	struct timespec limit = {.tv_nsec = 1000000};
	pthread_t thread = after_ms(30, write_x, &all.client);
	T(recvmmsg(all.server, many, 2, 0, &limit));
	say("length %u, time left %ld", many[0].msg_len, (long)(limit.tv_sec + limit.tv_nsec));
	pthread_join(thread, NULL);
}

CASE(sendmmsg_sends_until_one_fails)
{
	struct trio all = trio();
	char buffer[16];
	struct iovec parts[3] = {{"ab", 2}, {"cd", 2}, {NULL, 3}};
	struct mmsghdr many[3];
	for (int i = 0; i < 3; i++)
		many[i] = (struct mmsghdr){.msg_hdr = {.msg_iov = &parts[i], .msg_iovlen = 1}, .msg_len = 77};
	T(sendmmsg(all.server, many, 3, 0));
	say("%u %u %u", many[0].msg_len, many[1].msg_len, many[2].msg_len);
	T(sendmmsg(all.server, many + 2, 1, 0));
	T(sendmmsg(all.server, many, 0, 0));
	T(read_all(all.client, buffer, 4));
	T(shutdown(all.server, SHUT_WR));
	T(sendmmsg(all.server, many, 2, MSG_NOSIGNAL));
}

CASE(a_partial_write_tells_how_much)
{
	struct trio all = trio();
	static char big[16 << 20];
	T(set_nonblocking(all.server, 1));
	long taken = send(all.server, big, sizeof big, 0);
	say("partial: %d", taken > 0 && taken < (long)sizeof big);
	struct iovec parts[3] = {{big, 100}, {big, 8 << 20}, {big, 8 << 20}};
	struct msghdr message = {.msg_iov = parts, .msg_iovlen = 3};
	int client, server = served(all.listening, &client);
	T(set_nonblocking(server, 1));
	taken = writev(server, parts, 3);
	say("partial: %d", taken > 100 && taken < (long)sizeof big);
	server = served(all.listening, &client);
	taken = sendmsg(server, &message, MSG_DONTWAIT);
	say("partial: %d", taken > 100 && taken < (long)sizeof big);
	fill(all.server, all.client);
	EXPECT(all.server, 0);
}

CASE(zerocopy_needs_its_option)
{
	struct trio all = trio();
	int on = 1, value = -1;
	socklen_t length = sizeof value;
	char buffer[16];
	T(getsockopt(all.server, SOL_SOCKET, SO_ZEROCOPY, &value, &length));
	say("%d", value);
	T(send(all.server, "one", 3, MSG_ZEROCOPY));
	T(read_all(all.client, buffer, 3));
	T(setsockopt(all.client, SOL_SOCKET, SO_ZEROCOPY, &on, sizeof on));
	T(recv(all.server, buffer, 8, MSG_ERRQUEUE));
}

CASE(urgent_data_is_asked_for_in_vain)
{
	struct trio all = trio();
	char byte;
	int mark = -1, on = 1;
	T(recv(all.server, &byte, 1, MSG_OOB));
	T(ioctl(all.server, SIOCATMARK, &mark));
	say("%d", mark);
	T(setsockopt(all.server, SOL_SOCKET, SO_OOBINLINE, &on, sizeof on));
	T(recv(all.server, &byte, 1, MSG_OOB));
	T(recv(all.server, &byte, 1, MSG_OOB | MSG_PEEK));
}
