/* Socket options and requests. */
#include "parity.h"

#include <linux/sockios.h>
#include <netinet/ip.h>
#include <sys/sendfile.h>

struct option {
	const char *text;
	int level, name, value;
};
#define OPTION(level, name, value) {#name, level, name, value}

static const struct option both[] = {
	OPTION(SOL_SOCKET, SO_REUSEADDR, 1),     OPTION(SOL_SOCKET, SO_REUSEPORT, 1),
	OPTION(SOL_SOCKET, SO_KEEPALIVE, 1),     OPTION(SOL_SOCKET, SO_RCVBUF, 20000),
	OPTION(SOL_SOCKET, SO_SNDBUF, 30000),    OPTION(SOL_SOCKET, SO_RCVLOWAT, 1),
	OPTION(SOL_SOCKET, SO_PRIORITY, 3),      OPTION(SOL_SOCKET, SO_OOBINLINE, 1),
	OPTION(SOL_SOCKET, SO_BROADCAST, 1),     OPTION(SOL_SOCKET, SO_TIMESTAMP, 1),
	OPTION(IPPROTO_TCP, TCP_NODELAY, 1),     OPTION(IPPROTO_TCP, TCP_CORK, 1),
	OPTION(IPPROTO_TCP, TCP_KEEPIDLE, 77),   OPTION(IPPROTO_TCP, TCP_KEEPINTVL, 11),
	OPTION(IPPROTO_TCP, TCP_KEEPCNT, 4),     OPTION(IPPROTO_TCP, TCP_USER_TIMEOUT, 9000),
	OPTION(IPPROTO_TCP, TCP_QUICKACK, 1),    OPTION(IPPROTO_TCP, TCP_DEFER_ACCEPT, 0),
	OPTION(IPPROTO_TCP, TCP_SYNCNT, 5),      OPTION(IPPROTO_IP, IP_TOS, IPTOS_LOWDELAY),
	OPTION(IPPROTO_IP, IP_TTL, 33),
};
static const struct option refused[] = {
	OPTION(SOL_SOCKET, SO_TYPE, 1),          OPTION(SOL_SOCKET, SO_ERROR, 1),
	OPTION(SOL_SOCKET, SO_ACCEPTCONN, 1),    OPTION(SOL_SOCKET, SO_PROTOCOL, 1),
	OPTION(SOL_SOCKET, 9999, 1),             OPTION(IPPROTO_TCP, 9999, 1),
	OPTION(IPPROTO_IP, 9999, 1),             OPTION(999, 1, 1),
	OPTION(IPPROTO_TCP, TCP_KEEPIDLE, -1),   OPTION(IPPROTO_TCP, TCP_KEEPIDLE, 99999),
	OPTION(IPPROTO_IP, IP_TTL, 999),         OPTION(IPPROTO_TCP, TCP_KEEPCNT, 0),
};

static void show(const char *what, int fd, const struct option *option)
{
	int value = -77;
	socklen_t length = sizeof value;
	int result = getsockopt(fd, option->level, option->name, &value, &length);
	say("%s get %s: %d %s %d, %u bytes", what, option->text, result, result ? strerrorname_np(errno) : "-", value, length);
}

static void set(const char *what, int fd, const struct option *option)
{
	int result = setsockopt(fd, option->level, option->name, &option->value, sizeof option->value);
	say("%s set %s %d: %s", what, option->text, option->value, result ? strerrorname_np(errno) : "ok");
}

CASE(options_of_a_connection_are_set_and_told)
{
	struct trio all = trio();
	for (size_t i = 0; i < sizeof both / sizeof *both; i++) {
		set("connection", all.server, &both[i]);
		show("connection", all.server, &both[i]);
	}
}

CASE(options_of_a_listener_are_set_and_told)
{
	int fd = listener();
	for (size_t i = 0; i < sizeof both / sizeof *both; i++) {
		set("listener", fd, &both[i]);
		show("listener", fd, &both[i]);
	}
}

CASE(options_set_before_bind_reach_the_connection)
{
	int fd = FD(socket(AF_INET, SOCK_STREAM, 0)), client;
	for (size_t i = 0; i < sizeof both / sizeof *both; i++) {
		set("fresh", fd, &both[i]);
		show("fresh", fd, &both[i]);
	}
	T(bind_v4(fd, "127.0.0.1", listen_port));
	for (size_t i = 0; i < sizeof both / sizeof *both; i++)
		show("bound", fd, &both[i]);
	T(listen(fd, 10));
	for (size_t i = 0; i < sizeof both / sizeof *both; i++)
		show("listening", fd, &both[i]);
	int server = served(fd, &client);
	for (size_t i = 0; i < sizeof both / sizeof *both; i++)
		show("accepted", server, &both[i]);
}

CASE(options_set_between_bind_and_listen_count)
{
	int fd = FD(socket(AF_INET, SOCK_STREAM, 0)), on = 1, client;
	T(setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on));
	T(bind_v4(fd, "127.0.0.1", listen_port));
	T(setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on));
	T(setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on));
	T(listen(fd, 10));
	int server = served(fd, &client);
	struct option options[] = {OPTION(IPPROTO_TCP, TCP_NODELAY, 1), OPTION(SOL_SOCKET, SO_KEEPALIVE, 1)};
	show("accepted", server, &options[0]);
	show("accepted", server, &options[1]);
}

CASE(what_cannot_be_set_is_refused_alike)
{
	struct trio all = trio();
	for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
		set("connection", all.server, &refused[i]);
		set("listener", all.listening, &refused[i]);
		show("connection", all.server, &refused[i]);
		show("listener", all.listening, &refused[i]);
	}
}

CASE(a_socket_tells_what_it_is)
{
	struct trio all = trio();
	int fds[] = {all.listening, all.server, FD(socket(AF_INET6, SOCK_STREAM, 0))};
	struct option options[] = {OPTION(SOL_SOCKET, SO_TYPE, 0), OPTION(SOL_SOCKET, SO_PROTOCOL, 0),
				   OPTION(SOL_SOCKET, SO_DOMAIN, 0), OPTION(SOL_SOCKET, SO_ACCEPTCONN, 0),
				   OPTION(SOL_SOCKET, SO_ERROR, 0)};
	for (int i = 0; i < 3; i++)
		for (int k = 0; k < 5; k++)
			show("it", fds[i], &options[k]);
}

CASE(option_lengths_are_minded)
{
	struct trio all = trio();
	unsigned char value[64];
	int fds[] = {all.listening, all.server}, on = 1;
	socklen_t rooms[] = {0, 1, 3, 4, 5, 64};
	for (int i = 0; i < 2; i++) {
		for (int k = 0; k < 6; k++) {
			memset(value, 0xee, sizeof value);
			socklen_t length = rooms[k];
			T(getsockopt(fds[i], SOL_SOCKET, SO_TYPE, value, &length));
			say("room %u: %u bytes, %02x %02x", rooms[k], length, value[0], value[4]);
			length = rooms[k];
			T(getsockopt(fds[i], IPPROTO_TCP, TCP_NODELAY, value, &length));
			say("room %u: %u bytes", rooms[k], length);
			T(setsockopt(fds[i], IPPROTO_TCP, TCP_NODELAY, &on, rooms[k] > 4 ? 4 : rooms[k]));
			T(setsockopt(fds[i], SOL_SOCKET, SO_KEEPALIVE, &on, rooms[k] > 4 ? 4 : rooms[k]));
		}
		socklen_t negative = (socklen_t)-1;
		T(getsockopt(fds[i], SOL_SOCKET, SO_TYPE, value, &negative));
		T(getsockopt(fds[i], IPPROTO_TCP, TCP_NODELAY, value, &negative));
		T(setsockopt(fds[i], IPPROTO_TCP, TCP_NODELAY, &on, (socklen_t)-1));
	}
}

CASE(linger_is_told_as_it_was_set)
{
	struct trio all = trio();
	struct linger linger = {.l_onoff = 1, .l_linger = 9};
	socklen_t length = sizeof linger;
	T(setsockopt(all.server, SOL_SOCKET, SO_LINGER, &linger, sizeof linger));
	memset(&linger, 0, sizeof linger);
	T(getsockopt(all.server, SOL_SOCKET, SO_LINGER, &linger, &length));
	say("%d %d %u", linger.l_onoff, linger.l_linger, length);
	T(setsockopt(all.server, SOL_SOCKET, SO_LINGER, &linger, 4));
}

CASE(tcp_info_tells_the_state)
{
	struct trio all = trio();
	struct tcp_info info;
	int fds[] = {all.listening, all.server};
	for (int i = 0; i < 2; i++) {
		socklen_t length = sizeof info;
		memset(&info, 0, sizeof info);
		T(getsockopt(fds[i], IPPROTO_TCP, TCP_INFO, &info, &length));
		say("state %d, %u bytes", info.tcpi_state, length);
		length = 1;
		T(getsockopt(fds[i], IPPROTO_TCP, TCP_INFO, &info, &length));
		say("%u bytes", length);
	}
	char name[16] = "";
	socklen_t length = sizeof name;
	T(getsockopt(all.server, IPPROTO_TCP, TCP_CONGESTION, name, &length));
	say("%s, %u bytes", name, length);
}

CASE(fionread_counts_what_waits)
{
	struct trio all = trio();
	int count = -1;
	char buffer[8];
	T(ioctl(all.server, FIONREAD, &count));
	say("%d", count);
	T(write(all.client, "abcde", 5));
	EXPECT(all.server, POLLIN | POLLOUT);
	T(ioctl(all.server, FIONREAD, &count));
	say("%d", count);
	T(read(all.server, buffer, 2));
	T(ioctl(all.server, FIONREAD, &count));
	say("%d", count);
	T(ioctl(all.listening, FIONREAD, &count));
	T(ioctl(all.server, SIOCATMARK, &count));
	say("%d", count);
	T(ioctl(all.server, SIOCOUTQ, &count));
	say("%d", count);
	T(ioctl(all.server, 0x12345, &count));
}

CASE(fionbio_sets_the_mode)
{
	struct trio all = trio();
	int on = 1, off = 0;
	char byte;
	int fds[] = {all.listening, all.server};
	for (int i = 0; i < 2; i++) {
		T(ioctl(fds[i], FIONBIO, &on));
		T(!!(fcntl(fds[i], F_GETFL) & O_NONBLOCK));
	}
	T(read(all.server, &byte, 1));
	FD(accept(all.listening, NULL, NULL));
	T(ioctl(all.server, FIONBIO, &off));
	T(!!(fcntl(all.server, F_GETFL) & O_NONBLOCK));
}

CASE(a_mode_set_before_listen_stays)
{
	int fd = FD(socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0)), on = 1;
	struct timeval limit = {.tv_sec = 3}, back = {0};
	socklen_t length = sizeof back;
	T(setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on));
	T(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit));
	T(bind_v4(fd, "127.0.0.1", listen_port));
	T(listen(fd, 10));
	T(!!(fcntl(fd, F_GETFL) & O_NONBLOCK));
	T(fcntl(fd, F_GETFD));
	FD(accept(fd, NULL, NULL));
	T(getsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &back, &length));
	say("%ld s", (long)back.tv_sec);
	int client, server = served(fd, &client);
	T(getsockopt(server, SOL_SOCKET, SO_RCVTIMEO, &back, &length));
	say("%ld s", (long)back.tv_sec);
}

CASE(a_file_is_sent_whole)
{
	struct trio all = trio();
	char path[] = "/tmp/parityXXXXXX", got[16] = "";
	int file = mkstemp(path);
	unlink(path);
	T(write(file, "0123456789", 10));
	T(lseek(file, 0, SEEK_SET));
	T(sendfile(all.server, file, NULL, 4));
	T(lseek(file, 0, SEEK_CUR));
	off_t offset = 6;
	T(sendfile(all.server, file, &offset, 100));
	say("offset %ld", (long)offset);
	T(sendfile(all.server, file, &offset, 100));
	T(read_all(all.client, got, 8));
	say_bytes("client", got, 8);
	T(sendfile(file, all.server, NULL, 4));
}
