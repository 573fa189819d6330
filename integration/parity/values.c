/* Every socket option there is: what it says at first, what it takes, and what an accepted connection inherits. */
#include "parity.h"

#include <linux/sockios.h>
#include <netinet/ip.h>

/* Values that are a matter of chance, of the machine, or of the path: only whether they are told is compared. */
static int is_chance(int level, int name)
{
	if (level == SOL_SOCKET)
		return name == SO_COOKIE || name == SO_INCOMING_CPU || name == SO_MEMINFO || name == SO_INCOMING_NAPI_ID ||
		       name == 71 /* SO_NETNS_COOKIE */;
	if (level == IPPROTO_TCP)
		return name == TCP_INFO || name == TCP_CC_INFO || name == TCP_TIMESTAMP || name == TCP_WINDOW_CLAMP;
	return 0;
}

static void get(const char *what, int fd, int level, int name)
{
	unsigned char value[512];
	socklen_t length = sizeof value;
	memset(value, 0, sizeof value);
	int result = getsockopt(fd, level, name, value, &length);
	printf("%s %d/%d: ", what, level, name);
	if (result)
		printf("%s\n", strerrorname_np(errno));
	else if (is_chance(level, name))
		printf("told\n");
	else {
		printf("%u bytes", length);
		for (unsigned i = 0; i < length && i < 24; i++)
			printf(" %02x", value[i]);
		printf("\n");
	}
}

static void set_number(const char *what, int fd, int level, int name, int value)
{
	int result = setsockopt(fd, level, name, &value, sizeof value);
	say("%s set %d/%d %d: %s", what, level, name, value, result ? strerrorname_np(errno) : "ok");
}

/* Whether an option may be asked of a connection and of a listener alike. */
static void get_all(int level, int first, int last)
{
	struct trio all = trio();
	for (int name = first; name <= last; name++) {
		get("listener", all.listening, level, name);
		get("connection", all.server, level, name);
	}
	close_trio(&all);
	until_refused();
}

CASE(every_socket_option_is_told)
{
	get_all(SOL_SOCKET, 1, 90);
}

CASE(every_tcp_option_is_told)
{
	/* Between them is TCP_ZEROCOPY_RECEIVE: docs/conformance.md. */
	get_all(IPPROTO_TCP, 1, 34);
	get_all(IPPROTO_TCP, 36, 50);
}

CASE(every_ip_option_is_told)
{
	get_all(IPPROTO_IP, 1, 50);
}

CASE(every_level_is_told)
{
	struct trio all = trio();
	for (int level = 0; level < 300; level++) {
		if (level == SOL_SOCKET || level == IPPROTO_TCP || level == IPPROTO_IP)
			continue;
		get("listener", all.listening, level, 1);
		get("connection", all.server, level, 1);
		set_number("connection", all.server, level, 1, 1);
	}
}

static int listener6(int only)
{
	int fd = socket(AF_INET6, SOCK_STREAM, 0), on = 1;
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
	setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &only, sizeof only);
	T(bind_v6(fd, "::", listen_port));
	T(listen(fd, 5));
	return fd;
}

static int served6(int fd, int *client)
{
	*client = socket(AF_INET6, SOCK_STREAM, 0);
	T(connect_v6(*client, "::1", listen_port));
	await(fd, POLLIN);
	return FD(accept(fd, NULL, NULL));
}

CASE(every_ipv6_option_is_told)
{
	int fd = listener6(0), client, server = served6(fd, &client);
	for (int name = 1; name <= 82; name++) {
		/* Those are netfilter's tables. */
		if ((name >= 64 && name <= 69 && name != IPV6_RECVTCLASS && name != IPV6_TCLASS) || name == 80)
			continue;
		get("listener", fd, IPPROTO_IPV6, name);
		get("connection", server, IPPROTO_IPV6, name);
	}
}

CASE(ip_options_of_an_ipv6_socket)
{
	int fd = listener6(0), client, server = served(fd, &client);
	for (int name = 1; name <= 25; name++) {
		get("listener", fd, IPPROTO_IP, name);
		get("connection", server, IPPROTO_IP, name);
	}
}

CASE(ipv6_options_of_an_ipv4_socket)
{
	struct trio all = trio();
	for (int name = 1; name <= 82; name++) {
		get("connection", all.server, IPPROTO_IPV6, name);
		set_number("connection", all.server, IPPROTO_IPV6, name, 1);
	}
}

struct number {
	int level, name;
	int values[7];
};

static const struct number numbers[] = {
	{SOL_SOCKET, SO_REUSEADDR, {1, 0, -1, 7, 2147483647, 1, 0}},
	{SOL_SOCKET, SO_REUSEPORT, {1, 0, -1, 7, 2147483647, 1, 0}},
	{SOL_SOCKET, SO_KEEPALIVE, {1, 0, -1, 7, 2147483647, 1, 0}},
	{SOL_SOCKET, SO_BROADCAST, {1, 0, -1, 7, 2147483647, 1, 0}},
	{SOL_SOCKET, SO_OOBINLINE, {1, 0, -1, 7, 2147483647, 1, 0}},
	{SOL_SOCKET, SO_DONTROUTE, {1, 0, -1, 7, 2147483647, 1, 0}},
	{SOL_SOCKET, SO_RCVLOWAT, {1, 0, 5, 1, 1000, 7, 1}},
	{SOL_SOCKET, SO_PRIORITY, {0, 1, 6, 3, 2, 5, 4}},
	{SOL_SOCKET, SO_TIMESTAMP, {1, 0, -1, 7, 2147483647, 1, 0}},
	{SOL_SOCKET, SO_TIMESTAMPNS, {1, 0, -1, 7, 2147483647, 1, 0}},
	{SOL_SOCKET, SO_NO_CHECK, {1, 0, 1, 0, 1, 0, 0}},
	{SOL_SOCKET, SO_PASSCRED, {1, 0, 1, 0, 1, 0, 0}},
	{SOL_SOCKET, SO_RXQ_OVFL, {1, 0, 1, 0, 1, 0, 0}},
	{SOL_SOCKET, SO_SELECT_ERR_QUEUE, {1, 0, 1, 0, 1, 0, 0}},
	{SOL_SOCKET, SO_ZEROCOPY, {0, 2, -1, 0, 0, 0, 0}},
	{SOL_SOCKET, SO_SNDLOWAT, {1, 0, -1, 7, 2147483647, 1, 0}},
	{SOL_SOCKET, SO_BUSY_POLL, {0, -1, 0, 0, 0, 0, 0}},
};

static const struct number tcp_numbers[] = {
	{IPPROTO_TCP, TCP_NODELAY, {1, 0, -1, 7, 2147483647, 1, 0}},
	{IPPROTO_TCP, TCP_MAXSEG, {0, 1, 87, 88, 1000, 32767, 40000}},
	{IPPROTO_TCP, TCP_CORK, {1, 0, -1, 7, 2147483647, 1, 0}},
	{IPPROTO_TCP, TCP_KEEPIDLE, {1, 0, -1, 32767, 32768, 7, 100}},
	{IPPROTO_TCP, TCP_KEEPINTVL, {1, 0, -1, 32767, 32768, 7, 100}},
	{IPPROTO_TCP, TCP_KEEPCNT, {1, 0, -1, 127, 128, 7, 9}},
	{IPPROTO_TCP, TCP_SYNCNT, {1, 0, -1, 127, 128, 7, 6}},
	{IPPROTO_TCP, TCP_LINGER2, {1, 0, -1, 60, 121, 100000, 30}},
	{IPPROTO_TCP, TCP_DEFER_ACCEPT, {1, 0, -1, 5, 100, 7, 0}},
	{IPPROTO_TCP, TCP_WINDOW_CLAMP, {100000, 0, 65535, 1, 0, -1, 100000}},
	{IPPROTO_TCP, TCP_QUICKACK, {1, 0, 2, 7, 1, 1, 1}},
	{IPPROTO_TCP, TCP_USER_TIMEOUT, {1, 0, -1, 60000, 2147483647, 7, 0}},
	{IPPROTO_TCP, TCP_FASTOPEN, {5, 0, -1, 1000, 1, 7, 0}},
	{IPPROTO_TCP, TCP_NOTSENT_LOWAT, {1, 0, -1, 16384, 2147483647, 7, 0}},
	{IPPROTO_TCP, TCP_INQ, {1, 0, -1, 2, 1, 0, 0}},
	{IPPROTO_TCP, TCP_THIN_LINEAR_TIMEOUTS, {1, 0, -1, 2, 1, 0, 0}},
	{IPPROTO_TCP, TCP_THIN_DUPACK, {1, 0, -1, 2, 1, 0, 0}},
	{IPPROTO_TCP, TCP_SAVE_SYN, {1, 0, -1, 2, 1, 0, 0}},
	{IPPROTO_TCP, TCP_TX_DELAY, {0, -1, 0, 0, 0, 0, 0}},
	{IPPROTO_TCP, TCP_FASTOPEN_CONNECT, {1, 0, -1, 2, 1, 0, 0}},
	{IPPROTO_TCP, TCP_FASTOPEN_NO_COOKIE, {1, 0, -1, 2, 1, 0, 0}},
};

static const struct number ip_numbers[] = {
	{IPPROTO_IP, IP_TOS, {0x10, 0, 0x08, 255, 256, -1, 0x02}},
	{IPPROTO_IP, IP_TTL, {1, 0, 255, 256, -1, 64, 33}},
	{IPPROTO_IP, IP_MTU_DISCOVER, {0, 1, 2, 3, 5, 6, -1}},
	{IPPROTO_IP, IP_RECVTOS, {1, 0, -1, 7, 255, 256, 0}},
	{IPPROTO_IP, IP_RECVTTL, {1, 0, -1, 7, 255, 256, 0}},
	{IPPROTO_IP, IP_PKTINFO, {1, 0, -1, 7, 255, 256, 0}},
	{IPPROTO_IP, IP_RECVERR, {1, 0, -1, 7, 255, 256, 0}},
	{IPPROTO_IP, IP_MINTTL, {1, 0, 255, 256, -1, 7, 0}},
	{IPPROTO_IP, IP_FREEBIND, {1, 0, -1, 7, 255, 256, 0}},
	{IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, {1, 0, -1, 7, 255, 256, 0}},
	{IPPROTO_IP, IP_HDRINCL, {1, 0, -1, 7, 255, 256, 0}},
	{IPPROTO_IP, IP_MULTICAST_TTL, {1, 0, -1, 7, 255, 256, 0}},
	{IPPROTO_IP, IP_MULTICAST_LOOP, {1, 0, -1, 7, 255, 256, 0}},
};

static const struct number ipv6_numbers[] = {
	{IPPROTO_IPV6, IPV6_V6ONLY, {1, 0, -1, 7, 255, 256, 0}},
	{IPPROTO_IPV6, IPV6_UNICAST_HOPS, {1, 0, -1, 7, 255, 256, -2}},
	{IPPROTO_IPV6, IPV6_TCLASS, {0x10, 0, -1, 7, 255, 256, -2}},
	{IPPROTO_IPV6, IPV6_MTU_DISCOVER, {0, 1, 2, 3, 5, 6, -1}},
	{IPPROTO_IPV6, IPV6_RECVTCLASS, {1, 0, -1, 7, 255, 256, 0}},
	{IPPROTO_IPV6, IPV6_RECVPKTINFO, {1, 0, -1, 7, 255, 256, 0}},
	{IPPROTO_IPV6, IPV6_RECVHOPLIMIT, {1, 0, -1, 7, 255, 256, 0}},
	{IPPROTO_IPV6, IPV6_RECVERR, {1, 0, -1, 7, 255, 256, 0}},
	{IPPROTO_IPV6, IPV6_MULTICAST_HOPS, {1, 0, -1, 7, 255, 256, 0}},
	{IPPROTO_IPV6, IPV6_DONTFRAG, {1, 0, -1, 7, 255, 256, 0}},
	{IPPROTO_IPV6, IPV6_FREEBIND, {1, 0, -1, 7, 255, 256, 0}},
};

static void try_numbers(const char *what, int fd, const struct number *list, size_t count)
{
	for (size_t i = 0; i < count; i++)
		for (int k = 0; k < 7; k++) {
			set_number(what, fd, list[i].level, list[i].name, list[i].values[k]);
			get(what, fd, list[i].level, list[i].name);
		}
}
#define TRY(what, fd, list) try_numbers(what, fd, list, sizeof list / sizeof *list)

CASE(values_of_socket_options_on_a_listener) { TRY("listener", listener(), numbers); }
CASE(values_of_socket_options_on_a_connection) { TRY("connection", trio().server, numbers); }
CASE(values_of_tcp_options_on_a_listener) { TRY("listener", listener(), tcp_numbers); }
CASE(values_of_tcp_options_on_a_connection) { TRY("connection", trio().server, tcp_numbers); }
CASE(values_of_ip_options_on_a_listener) { TRY("listener", listener(), ip_numbers); }
CASE(values_of_ip_options_on_a_connection) { TRY("connection", trio().server, ip_numbers); }

CASE(values_of_ipv6_options_on_a_listener) { TRY("listener", listener6(0), ipv6_numbers); }

CASE(values_of_ipv6_options_on_a_connection)
{
	int client;
	TRY("connection", served6(listener6(1), &client), ipv6_numbers);
}

static void inherit(const struct number *list, size_t count, int fd, int (*serve)(int, int *))
{
	int client;
	for (size_t i = 0; i < count; i++)
		set_number("listener", fd, list[i].level, list[i].name, list[i].values[0]);
	int server = serve(fd, &client);
	for (size_t i = 0; i < count; i++)
		get("accepted", server, list[i].level, list[i].name);
	/* What is set later is for those who come later. */
	for (size_t i = 0; i < count; i++)
		set_number("listener", fd, list[i].level, list[i].name, list[i].values[1]);
	int second = serve(fd, &client);
	for (size_t i = 0; i < count; i++) {
		get("accepted", server, list[i].level, list[i].name);
		get("second", second, list[i].level, list[i].name);
	}
}
#define INHERIT(list, fd, serve) inherit(list, sizeof list / sizeof *list, fd, serve)

CASE(an_accepted_connection_inherits_socket_options) { INHERIT(numbers, listener(), served); }

CASE(an_accepted_connection_inherits_tcp_options)
{
	/* Without the last few: a deferred accept waits for bytes. */
	struct number few[sizeof tcp_numbers / sizeof *tcp_numbers];
	size_t count = 0;
	for (size_t i = 0; i < sizeof tcp_numbers / sizeof *tcp_numbers; i++)
		if (tcp_numbers[i].name != TCP_DEFER_ACCEPT && tcp_numbers[i].name != TCP_MAXSEG)
			few[count++] = tcp_numbers[i];
	inherit(few, count, listener(), served);
}

CASE(an_accepted_connection_inherits_ip_options) { INHERIT(ip_numbers, listener(), served); }
CASE(an_accepted_connection_inherits_ipv6_options) { INHERIT(ipv6_numbers, listener6(0), served6); }

static void try_lengths(const char *what, int fd)
{
	static const int options[][2] = {{SOL_SOCKET, SO_KEEPALIVE}, {SOL_SOCKET, SO_LINGER},      {SOL_SOCKET, SO_RCVBUF},
					 {SOL_SOCKET, SO_RCVTIMEO},  {SOL_SOCKET, SO_TYPE},        {SOL_SOCKET, SO_ERROR},
					 {IPPROTO_TCP, TCP_NODELAY}, {IPPROTO_TCP, TCP_KEEPIDLE}, {IPPROTO_TCP, TCP_CONGESTION},
					 {IPPROTO_IP, IP_TOS},       {IPPROTO_IP, IP_TTL},         {SOL_SOCKET, SO_PEERCRED},
					 {SOL_SOCKET, SO_BINDTODEVICE}, {SOL_SOCKET, SO_ACCEPTCONN}};
	static const socklen_t lengths[] = {0, 1, 2, 3, 4, 5, 7, 8, 15, 16, 17, 200};
	for (size_t i = 0; i < sizeof options / sizeof *options; i++)
		for (size_t k = 0; k < sizeof lengths / sizeof *lengths; k++) {
			unsigned char value[256];
			memset(value, 0xee, sizeof value);
			socklen_t length = lengths[k];
			int result = getsockopt(fd, options[i][0], options[i][1], value, &length);
			printf("%s get %d/%d room %u: %s, %u bytes", what, options[i][0], options[i][1], lengths[k],
			       result ? strerrorname_np(errno) : "ok", length);
			for (int at = 0; at < 18; at++)
				printf(" %02x", value[at]);
			printf("\n");
			memset(value, 0, sizeof value);
			value[0] = 1;
			result = setsockopt(fd, options[i][0], options[i][1], value, lengths[k]);
			say("%s set %d/%d length %u: %s", what, options[i][0], options[i][1], lengths[k],
			    result ? strerrorname_np(errno) : "ok");
		}
}

CASE(odd_lengths_of_options_on_a_listener) { try_lengths("listener", listener()); }
CASE(odd_lengths_of_options_on_a_connection) { try_lengths("connection", trio().server); }

CASE(buffer_sizes_are_doubled_and_bounded)
{
	struct trio all = trio();
	int fds[] = {all.listening, all.server}, sizes[] = {0, 1, 2000, 30000, 200000, 2147483647, -1};
	for (int i = 0; i < 2; i++)
		for (int k = 0; k < 7; k++) {
			set_number("it", fds[i], SOL_SOCKET, SO_RCVBUF, sizes[k]);
			get("it", fds[i], SOL_SOCKET, SO_RCVBUF);
			set_number("it", fds[i], SOL_SOCKET, SO_SNDBUF, sizes[k]);
			get("it", fds[i], SOL_SOCKET, SO_SNDBUF);
		}
}

CASE(timeouts_are_told_as_they_were_set)
{
	struct trio all = trio();
	int fds[] = {all.listening, all.server, FD(socket(AF_INET, SOCK_STREAM, 0))};
	struct timeval times[] = {{0, 0}, {5, 250000}, {0, 1}, {-1, 0}, {0, 1000000}, {0, -1}, {1000000, 0}};
	int names[] = {SO_RCVTIMEO, SO_SNDTIMEO};
	for (int i = 0; i < 3; i++)
		for (int k = 0; k < 7; k++)
			for (int n = 0; n < 2; n++) {
				T(setsockopt(fds[i], SOL_SOCKET, names[n], &times[k], sizeof times[k]));
				get("it", fds[i], SOL_SOCKET, names[n]);
			}
	T(setsockopt(fds[1], SOL_SOCKET, SO_RCVTIMEO, &times[1], 4));
	T(setsockopt(fds[1], SOL_SOCKET, SO_RCVTIMEO, &times[1], 15));
}

CASE(linger_is_bounded_and_inherited)
{
	struct trio all = trio();
	struct linger values[] = {{1, 0}, {1, 5}, {0, 9}, {7, -1}, {-1, 100000}, {1, 2147483647}, {0, 0}};
	int fds[] = {all.listening, all.server}, client;
	for (int i = 0; i < 2; i++)
		for (int k = 0; k < 7; k++) {
			T(setsockopt(fds[i], SOL_SOCKET, SO_LINGER, &values[k], sizeof values[k]));
			get("it", fds[i], SOL_SOCKET, SO_LINGER);
		}
	T(setsockopt(all.listening, SOL_SOCKET, SO_LINGER, &values[1], sizeof values[1]));
	get("accepted", served(all.listening, &client), SOL_SOCKET, SO_LINGER);
}

CASE(a_cookie_is_one_sockets_own)
{
	struct trio all = trio();
	unsigned long a = 0, b = 0, again = 0;
	socklen_t length = 8;
	T(getsockopt(all.server, SOL_SOCKET, SO_COOKIE, &a, &length));
	T(getsockopt(all.server, SOL_SOCKET, SO_COOKIE, &again, &length));
	T(getsockopt(all.listening, SOL_SOCKET, SO_COOKIE, &b, &length));
	say("%d %d %u", a == again, a == b, length);
	length = 4;
	T(getsockopt(all.server, SOL_SOCKET, SO_COOKIE, &a, &length));
}

CASE(a_device_may_be_asked_for_and_bound_to)
{
	struct trio all = trio();
	int fds[] = {all.listening, all.server}, fresh = FD(socket(AF_INET, SOCK_STREAM, 0)), client;
	for (int i = 0; i < 2; i++) {
		get("it", fds[i], SOL_SOCKET, SO_BINDTODEVICE);
		T(setsockopt(fds[i], SOL_SOCKET, SO_BINDTODEVICE, "nonesuch", 8));
		T(setsockopt(fds[i], SOL_SOCKET, SO_BINDTODEVICE, "", 0));
	}
	T(close(all.listening));
	until_refused();
	T(setsockopt(fresh, SOL_SOCKET, SO_BINDTODEVICE, "lo", 3));
	T(setsockopt(fresh, SOL_SOCKET, SO_REUSEADDR, &(int){1}, 4));
	get("fresh", fresh, SOL_SOCKET, SO_BINDTODEVICE);
	T(bind_v4(fresh, "127.0.0.1", listen_port));
	T(listen(fresh, 5));
	get("listening", fresh, SOL_SOCKET, SO_BINDTODEVICE);
	int server = served(fresh, &client);
	get("accepted", server, SOL_SOCKET, SO_BINDTODEVICE);
}

CASE(a_deferred_accept_waits_for_the_first_bytes)
{
	int fd = listener(), seconds = 5;
	T(setsockopt(fd, IPPROTO_TCP, TCP_DEFER_ACCEPT, &seconds, sizeof seconds));
	int client = guest();
	struct pollfd watched = {.fd = fd, .events = POLLIN};
	T(poll(&watched, 1, 60));
	T(write(client, "x", 1));
	T(poll(&watched, 1, 5000));
	int server = FD(accept(fd, NULL, NULL));
	EXPECT(server, POLLIN | POLLOUT);
	T(recv(server, &(char){0}, 1, MSG_DONTWAIT));
}

CASE(a_congestion_control_is_chosen_by_name)
{
	struct trio all = trio();
	int fds[] = {all.listening, all.server};
	for (int i = 0; i < 2; i++) {
		T(setsockopt(fds[i], IPPROTO_TCP, TCP_CONGESTION, "reno", 4));
		get("it", fds[i], IPPROTO_TCP, TCP_CONGESTION);
		T(setsockopt(fds[i], IPPROTO_TCP, TCP_CONGESTION, "nonesuch", 8));
		T(setsockopt(fds[i], IPPROTO_TCP, TCP_CONGESTION, "", 0));
	}
	int client, server = served(all.listening, &client);
	get("accepted", server, IPPROTO_TCP, TCP_CONGESTION);
}

CASE(tcp_info_follows_the_connection)
{
	struct trio all = trio();
	struct tcp_info info;
	socklen_t length;
	for (int i = 0; i < 4; i++) {
		length = sizeof info;
		memset(&info, 0, sizeof info);
		T(getsockopt(all.server, IPPROTO_TCP, TCP_INFO, &info, &length));
		say("state %d, retransmits %d, lost %u, unacked %d, mss %d", info.tcpi_state, info.tcpi_retransmits, info.tcpi_lost,
		    info.tcpi_unacked > 0, info.tcpi_snd_mss > 0);
		if (i == 0)
			T(shutdown(all.client, SHUT_WR)), EXPECT(all.server, POLLIN | POLLOUT | POLLRDHUP);
		if (i == 1)
			T(shutdown(all.server, SHUT_WR)), EXPECT(all.client, POLLIN | POLLOUT | POLLHUP | POLLRDHUP);
		if (i == 2)
			EXPECT(all.server, POLLIN | POLLOUT | POLLHUP | POLLRDHUP);
	}
}

CASE(requests_of_an_interface_work_on_any_socket)
{
	struct trio all = trio();
	int fds[] = {all.listening, all.server}, value = -1;
	for (int i = 0; i < 2; i++) {
		T(ioctl(fds[i], SIOCGSTAMP_OLD, &(char[64]){0}));
		T(ioctl(fds[i], TCGETS, &(char[64]){0}));
		T(ioctl(fds[i], TIOCGWINSZ, &(char[64]){0}));
		T(ioctl(fds[i], 0x8933 /* SIOCGIFINDEX */, &(char[64]){"lo"}));
		T(ioctl(fds[i], FIOGETOWN, &value));
		T(ioctl(fds[i], SIOCGPGRP, &value));
		T(ioctl(fds[i], FIOASYNC, &(int){0}));
		T(ioctl(fds[i], 0x5401, &value));
		T(ioctl(fds[i], 0, &value));
		T(ioctl(fds[i], SIOCOUTQNSD, &value));
		T(isatty(fds[i]));
		T(ioctl(fds[i], FIOCLEX));
		T(fcntl(fds[i], F_GETFD));
		T(ioctl(fds[i], FIONCLEX));
		T(fcntl(fds[i], F_GETFD));
	}
}
