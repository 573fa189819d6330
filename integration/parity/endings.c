/* What random programs (integration/random) found: the ends of a connection, and what still works behind them. */
#include "parity.h"

static int value_of(int fd, int level, int name)
{
	int value = -1;
	socklen_t length = sizeof value;
	T(getsockopt(fd, level, name, &value, &length));
	return value;
}

CASE(options_outlive_the_connection)
{
	struct trio all = trio();
	int on = 1;
	reset(all.client);
	EXPECT(all.server, POLLIN | POLLOUT | POLLERR | POLLHUP | POLLRDHUP);
	T(setsockopt(all.server, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on));
	say("keepalive %d", value_of(all.server, SOL_SOCKET, SO_KEEPALIVE));
	struct linger linger = {.l_onoff = 1};
	T(setsockopt(all.server, SOL_SOCKET, SO_LINGER, &linger, sizeof linger));
	struct tcp_info info;
	socklen_t length = sizeof info;
	T(getsockopt(all.server, IPPROTO_TCP, TCP_INFO, &info, &length));
	say("state %d", info.tcpi_state);
}

CASE(bytes_after_both_ends_were_shut_reset_the_connection)
{
	struct trio all = trio();
	char byte;
	T(shutdown(all.server, SHUT_RDWR));
	say_names("shut", all.server);
	EXPECT(all.client, POLLIN | POLLOUT | POLLRDHUP);
	T(write(all.client, "late", 4));
	EXPECT(all.client, POLLIN | POLLOUT | POLLERR | POLLHUP | POLLRDHUP);
	/* The client sees the reset first, perhaps; until then there is an end. */
	struct timespec start;
	now(&start);
	long taken = 0;
	while (taken == 0 && elapsed_ms(&start) < 5000)
		taken = read(all.server, &byte, 1);
	say("%s", strerrorname_np(errno));
	T(read(all.server, &byte, 1));
}

CASE(bytes_after_shutdown_of_reading_can_still_be_read)
{
	struct trio all = trio();
	char buffer[32];
	T(shutdown(all.server, SHUT_RD));
	T(write(all.client, "late", 4));
	struct timespec start;
	now(&start);
	long taken = 0;
	while (taken == 0 && elapsed_ms(&start) < 5000)
		taken = read(all.server, buffer, sizeof buffer);
	say("%ld", taken);
	T(read(all.server, buffer, sizeof buffer));
	T(write(all.server, "answer", 6));
	T(read_all(all.client, buffer, 6));
	say("keepalive %d", value_of(all.server, SOL_SOCKET, SO_KEEPALIVE));
}

CASE(an_error_waits_behind_what_was_read)
{
	for (int flags = MSG_WAITALL;; flags = MSG_TRUNC) {
		int client, fd = listener(), server = served(fd, &client);
		char buffer[32];
		T(write(client, "some", 4));
		await(server, POLLIN);
		reset(client);
		EXPECT(server, POLLIN | POLLOUT | POLLERR | POLLHUP | POLLRDHUP);
		T(recv(server, buffer, 32, flags));
		T(recv(server, buffer, 32, 0));
		T(recv(server, buffer, 32, 0));
		close(server);
		close(fd);
		if (flags == MSG_TRUNC)
			break;
	}
}

CASE(recvmmsg_looks_for_an_error_first)
{
	struct trio all = trio();
	char byte;
	struct iovec part = {&byte, 1};
	struct mmsghdr message = {.msg_hdr = {.msg_iov = &part, .msg_iovlen = 1}};
	T(write(all.client, "some", 4));
	await(all.server, POLLIN);
	reset(all.client);
	EXPECT(all.server, POLLIN | POLLOUT | POLLERR | POLLHUP | POLLRDHUP);
	T(recvmmsg(all.server, &message, 1, 0, NULL));
	T(recvmmsg(all.server, &message, 1, 0, NULL));
}

CASE(vectors_of_nothing_ask_nobody)
{
	struct trio all = trio();
	struct iovec nothing[2] = {{"", 0}, {"", 0}};
	char byte;
	catch_signal(SIGPIPE, 0);
	T(shutdown(all.server, SHUT_WR));
	T(writev(all.server, nothing, 2));
	say("signals: %d", signals_caught());
	T(write(all.server, "", 0));
	say("signals: %d", signals_caught());
	T(readv(all.server, nothing, 2));
	T(read(all.listening, &byte, 0));
	T(shutdown(all.listening, SHUT_WR));
}

CASE(a_timeout_set_through_a_duplicate_is_inherited)
{
	int fd = listener(), copy = FD(dup(fd)), client;
	struct timeval limit = {.tv_usec = 30000}, back = {0};
	socklen_t length = sizeof back;
	T(setsockopt(copy, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit));
	int server = served(fd, &client);
	T(getsockopt(server, SOL_SOCKET, SO_SNDTIMEO, &back, &length));
	say("%d", back.tv_usec >= 30000);
}

CASE(a_connect_through_a_duplicate_counts_for_both)
{
	int elsewhere = socket(AF_INET, SOCK_STREAM, 0), on = 1;
	setsockopt(elsewhere, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
	T(bind_v4(elsewhere, "127.0.0.1", connect_port));
	T(listen(elsewhere, 1));
	int fd = FD(socket(AF_INET, SOCK_STREAM, 0)), copy = FD(dup(fd));
	T(connect_v4(copy, connect_port));
	T(connect_v4(fd, connect_port));
	T(connect_v4(copy, connect_port));
}

CASE(shutdown_settles_a_connect_that_nobody_asked_again)
{
	int elsewhere = socket(AF_INET, SOCK_STREAM, 0), on = 1;
	setsockopt(elsewhere, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
	T(bind_v4(elsewhere, "127.0.0.1", connect_port));
	T(listen(elsewhere, 1));
	int fd = FD(socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0));
	T(connect_v4(fd, connect_port));
	await(fd, POLLOUT);
	T(shutdown(fd, SHUT_RDWR));
	T(connect_v4(fd, connect_port));
}
