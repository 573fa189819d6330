/* connect to CONNECT_PORT, which a rule gives to the card. The listener there is the kernel's. */
#include "parity.h"

static int listening_elsewhere(void)
{
	int on = 1, fd = socket(AF_INET, SOCK_STREAM, 0);
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
	if (bind_v4(fd, "127.0.0.1", connect_port) || listen(fd, 10))
		say("no listener: %s", strerrorname_np(errno));
	return fd;
}

CASE(a_blocking_connect_ends_connected)
{
	int elsewhere = listening_elsewhere(), fd = FD(socket(AF_INET, SOCK_STREAM, 0));
	char buffer[8];
	T(connect_v4(fd, connect_port));
	say_names("connected", fd);
	EXPECT(fd, POLLOUT);
	int other = FD(accept(elsewhere, NULL, NULL));
	T(write(fd, "hello", 5));
	T(read_all(other, buffer, 5));
	T(write(other, "world", 5));
	EXPECT(fd, POLLIN | POLLOUT);
	T(read(fd, buffer, 8));
	T(connect_v4(fd, connect_port));
	T(listen(fd, 1));
	T(close(fd));
	T(read(other, buffer, 8));
}

CASE(a_nonblocking_connect_is_told_by_poll)
{
	int elsewhere = listening_elsewhere(), fd = FD(socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0)), error = 7;
	socklen_t length = sizeof error;
	T(connect_v4(fd, connect_port));
	EXPECT(fd, POLLOUT);
	T(getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length));
	say("%d", error);
	T(connect_v4(fd, connect_port));
	T(connect_v4(fd, connect_port));
	FD(accept(elsewhere, NULL, NULL));
	say_names("connected", fd);
}

CASE(a_refused_connect_says_so)
{
	int fd = FD(socket(AF_INET, SOCK_STREAM, 0)), on = 1;
	T(connect_v4(fd, connect_port));
	int fds = FD(socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0)), error = 7;
	socklen_t length = sizeof error;
	T(connect_v4(fds, connect_port));
	EXPECT(fds, POLLIN | POLLOUT | POLLERR | POLLHUP | POLLRDHUP);
	T(getsockopt(fds, SOL_SOCKET, SO_ERROR, &error, &length));
	say("%s", strerrorname_np(error));
	T(getsockopt(fds, SOL_SOCKET, SO_ERROR, &error, &length));
	say("%d", error);
	/* The same socket may try again. */
	int elsewhere = listening_elsewhere();
	T(setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on));
	T(connect_v4(fd, connect_port));
	FD(accept(elsewhere, NULL, NULL));
}

CASE(a_refused_nonblocking_connect_is_told_by_the_next_connect)
{
	int fd = FD(socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0));
	T(connect_v4(fd, connect_port));
	EXPECT(fd, POLLIN | POLLOUT | POLLERR | POLLHUP | POLLRDHUP);
	T(connect_v4(fd, connect_port));
	T(read(fd, &(char){0}, 1));
}

CASE(a_bound_client_keeps_its_address)
{
	int elsewhere = listening_elsewhere(), fd = FD(socket(AF_INET, SOCK_STREAM, 0));
	T(bind_v4(fd, "127.0.0.3", 0));
	T(connect_v4(fd, connect_port));
	say_names("connected", fd);
	struct sockaddr_in peer;
	socklen_t length = sizeof peer;
	FD(accept(elsewhere, (void *)&peer, &length));
	say_address("peer", (void *)&peer, length);
}

CASE(connect_refuses_what_the_kernel_refuses)
{
	int fd = listener(), fresh = FD(socket(AF_INET, SOCK_STREAM, 0)), client;
	struct sockaddr_in address = v4("127.0.0.1", connect_port);
	struct sockaddr_in6 address6 = v6("::1", connect_port);
	T(connect(fd, (void *)&address, sizeof address));
	int server = served(fd, &client);
	T(connect(server, (void *)&address, sizeof address));
	T(connect(fresh, (void *)&address, 4));
	T(connect(fresh, (void *)&address6, sizeof address6));
	T(connect(-1, (void *)&address, sizeof address));
	T(connect(fresh, NULL, sizeof address));
}

CASE(epoll_tells_of_a_connect)
{
	int elsewhere = listening_elsewhere(), set = epoll_create1(0);
	int fd = FD(socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0));
	struct epoll_event event = {.events = EPOLLOUT | EPOLLIN | EPOLLET, .data.u32 = 5};
	T(epoll_ctl(set, EPOLL_CTL_ADD, fd, &event));
	T(connect_v4(fd, connect_port));
	struct timespec start;
	now(&start);
	int count = 0;
	do
		count = epoll_wait(set, &event, 1, 1000);
	while (count == 1 && (event.events & EPOLLHUP) && elapsed_ms(&start) < 3000);
	say("%d: %u %s", count, event.data.u32, events_text(event.events));
	int other = FD(accept(elsewhere, NULL, NULL));
	T(write(other, "x", 1));
	T(epoll_wait(set, &event, 1, 5000));
	say("%s", events_text(event.events));
}

CASE(a_second_connect_is_told_to_the_epoll_set_of_the_first)
{
	int set = epoll_create1(0), fd = FD(socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0)), error = 7;
	socklen_t length = sizeof error;
	struct epoll_event event = {.events = EPOLLOUT, .data.u32 = 5};
	T(connect_v4(fd, connect_port));
	T(epoll_ctl(set, EPOLL_CTL_ADD, fd, &event));
	T(epoll_wait(set, &event, 1, 5000));
	T(getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length));
	say("%s", strerrorname_np(error));
	int elsewhere = listening_elsewhere();
	event = (struct epoll_event){.events = EPOLLOUT, .data.u32 = 6};
	T(epoll_ctl(set, EPOLL_CTL_MOD, fd, &event));
	T(connect_v4(fd, connect_port));
	/* The registration stays with the socket, whatever became of its first connect. */
	T(connect_v4(fd, connect_port));
	T(epoll_wait(set, &event, 1, 5000));
	say("%u %s", event.data.u32, events_text(event.events));
	FD(accept(elsewhere, NULL, NULL));
	event.events = EPOLLIN;
	T(epoll_ctl(set, EPOLL_CTL_MOD, fd, &event));
	T(epoll_ctl(set, EPOLL_CTL_DEL, fd, &event));
}

/* Listens at CONNECT_PORT with a queue that is full: further clients wait for an answer. */
static int deaf(void)
{
	int on = 1, fd = socket(AF_INET, SOCK_STREAM, 0);
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
	if (bind_v4(fd, "127.0.0.1", connect_port) || listen(fd, 0))
		say("no listener: %s", strerrorname_np(errno));
	int filler = socket(AF_INET, SOCK_STREAM, 0);
	if (connect_v4(filler, connect_port))
		say("no filler: %s", strerrorname_np(errno));
	return fd;
}

CASE(every_call_on_a_connecting_socket)
{
	deaf();
	int fd = FD(socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0)), number = -1;
	char byte;
	socklen_t length = sizeof number;
	struct tcp_info info = {0};
	T(connect_v4(fd, connect_port));
	T(connect_v4(fd, connect_port));
	EXPECT(fd, 0);
	say_names("connecting", fd);
	T(recv(fd, &byte, 1, 0));
	T(recv(fd, &byte, 1, MSG_PEEK));
	T(send(fd, "x", 1, MSG_NOSIGNAL));
	T(getsockopt(fd, SOL_SOCKET, SO_ERROR, &number, &length));
	say("%d", number);
	T(ioctl(fd, FIONREAD, &number));
	say("%d", number);
	length = sizeof info;
	T(getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &length));
	say("state %d", info.tcpi_state);
	T(setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &number, sizeof number));
	T(listen(fd, 1));
	FD(accept(fd, NULL, NULL));
	T(bind_v4(fd, "127.0.0.1", 0));
	T(close(fd));
}

CASE(a_connecting_socket_may_be_shut_down)
{
	deaf();
	int fd = FD(socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0));
	T(connect_v4(fd, connect_port));
	T(shutdown(fd, SHUT_RDWR));
	T(await(fd, POLLOUT) & POLLHUP);
	T(recv(fd, &(char){0}, 1, 0));
	T(send(fd, "x", 1, MSG_NOSIGNAL));
}

CASE(a_connect_obeys_the_send_timeout)
{
	deaf();
	int fd = FD(socket(AF_INET, SOCK_STREAM, 0));
	struct timeval limit = {.tv_usec = 60000};
	struct timespec start;
	T(setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit));
	now(&start);
	T(connect_v4(fd, connect_port));
	say("waited: %d", elapsed_ms(&start) >= 55);
	T(connect_v4(fd, connect_port));
	EXPECT(fd, 0);
}

CASE(a_signal_ends_a_connect_that_goes_on)
{
	int fd = FD(socket(AF_INET, SOCK_STREAM, 0)), elsewhere = deaf();
	catch_signal(SIGUSR1, 0);
	pthread_t signal = signal_waits();
	T(connect_v4(fd, connect_port));
	end_signals(signal);
	T(set_nonblocking(fd, 1));
	T(connect_v4(fd, connect_port));
	T(!!accept(elsewhere, NULL, NULL));
	/* The next SYN goes out a second later. */
	EXPECT(fd, POLLOUT);
	T(connect_v4(fd, connect_port));
	T(connect_v4(fd, connect_port));
}

static void accept_on(void *elsewhere) { accept(*(int *)elsewhere, NULL, NULL); }

CASE(a_restarting_signal_does_not_end_a_connect)
{
	int fd = FD(socket(AF_INET, SOCK_STREAM, 0)), elsewhere = deaf();
	catch_signal(SIGUSR1, SA_RESTART);
	pthread_t other = signal_then(accept_on, &elsewhere);
	T(connect_v4(fd, connect_port));
	say("signals %d", signals_caught());
	pthread_join(other, NULL);
	EXPECT(fd, POLLOUT);
}

static void shut_it(void *fd) { shutdown(*(int *)fd, SHUT_RDWR); }

CASE(a_shutdown_ends_a_blocked_connect)
{
	int fd = FD(socket(AF_INET, SOCK_STREAM, 0));
	deaf();
	pthread_t thread = after_ms(30, shut_it, &fd);
	T(connect_v4(fd, connect_port));
	pthread_join(thread, NULL);
}

CASE(a_connection_of_its_own_is_as_good_as_an_accepted_one)
{
	int elsewhere = listening_elsewhere(), fd = FD(socket(AF_INET, SOCK_STREAM, 0));
	char buffer[16];
	T(connect_v4(fd, connect_port));
	int other = FD(accept(elsewhere, NULL, NULL));
	T(write(other, "abc", 3));
	EXPECT(fd, POLLIN | POLLOUT);
	T(recv(fd, buffer, 2, MSG_PEEK));
	T(recv(fd, buffer, 16, 0));
	T(shutdown(fd, SHUT_WR));
	T(read(other, buffer, 1));
	T(write(other, "late", 4));
	T(read_all(fd, buffer, 4));
	T(close(other));
	EXPECT(fd, POLLIN | POLLOUT | POLLHUP | POLLRDHUP);
	T(read(fd, buffer, 1));
	T(send(fd, "x", 1, MSG_NOSIGNAL));
}

CASE(a_connection_of_its_own_is_reset)
{
	int elsewhere = listening_elsewhere(), fd = FD(socket(AF_INET, SOCK_STREAM, 0));
	T(connect_v4(fd, connect_port));
	int other = FD(accept(elsewhere, NULL, NULL));
	reset(other);
	EXPECT(fd, POLLIN | POLLOUT | POLLERR | POLLHUP | POLLRDHUP);
	T(recv(fd, &(char){0}, 1, 0));
	say_names("reset", fd);
	T(connect_v4(fd, connect_port));
}

CASE(options_set_before_connect_reach_the_connection)
{
	int elsewhere = listening_elsewhere(), fd = FD(socket(AF_INET, SOCK_STREAM, 0)), on = 1, value;
	struct linger linger = {.l_onoff = 1, .l_linger = 3};
	socklen_t length = sizeof value;
	T(setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on));
	T(setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &(int){77}, sizeof on));
	T(setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on));
	T(setsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, sizeof linger));
	T(setsockopt(fd, IPPROTO_IP, IP_TTL, &(int){44}, sizeof on));
	T(connect_v4(fd, connect_port));
	T(getsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &value, &length));
	say("%d", value);
	T(getsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &value, &length));
	say("%d", value);
	T(getsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &value, &length));
	say("%d", value);
	T(getsockopt(fd, IPPROTO_IP, IP_TTL, &value, &length));
	say("%d", value);
	length = sizeof linger;
	T(getsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, &length));
	say("%d %d", linger.l_onoff, linger.l_linger);
	FD(accept(elsewhere, NULL, NULL));
}

CASE(an_ipv6_socket_connects_to_a_mapped_address)
{
	int elsewhere = listening_elsewhere(), fd = FD(socket(AF_INET6, SOCK_STREAM, 0));
	T(connect_v6(fd, "::ffff:127.0.0.1", connect_port));
	say_names("connected", fd);
	FD(accept(elsewhere, NULL, NULL));
	int refused = FD(socket(AF_INET6, SOCK_STREAM, 0));
	T(connect_v6(refused, "::1", connect_port));
}

CASE(an_unspecified_family_dissolves_a_connect)
{
	int elsewhere = listening_elsewhere(), fd = FD(socket(AF_INET, SOCK_STREAM, 0));
	struct sockaddr none = {.sa_family = AF_UNSPEC};
	T(connect(fd, &none, sizeof none));
	T(connect_v4(fd, connect_port));
	FD(accept(elsewhere, NULL, NULL));
	T(connect(fd, &none, sizeof none));
	EXPECT(fd, POLLOUT | POLLERR | POLLHUP);
	T(connect_v4(fd, connect_port));
	FD(accept(elsewhere, NULL, NULL));
}

CASE(a_bound_socket_may_connect_to_itself)
{
	int fd = FD(socket(AF_INET, SOCK_STREAM, 0));
	char buffer[8];
	T(bind_v4(fd, "127.0.0.1", listen_port));
	T(connect_v4(fd, listen_port));
	say_names("itself", fd);
	T(write(fd, "echo", 4));
	T(read_all(fd, buffer, 4));
	say_bytes("read", buffer, 4);
	T(shutdown(fd, SHUT_WR));
	T(read(fd, buffer, 1));
}

CASE(a_refused_socket_may_listen_and_bind)
{
	int fd = FD(socket(AF_INET, SOCK_STREAM, 0)), on = 1, client;
	T(setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on));
	T(connect_v4(fd, connect_port));
	T(bind_v4(fd, "127.0.0.1", listen_port));
	T(listen(fd, 5));
	FD(served(fd, &client));
}

CASE(edges_tell_of_a_refused_connect)
{
	int set = epoll_create1(0), fd = FD(socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0));
	struct epoll_event event = {.events = EPOLLOUT | EPOLLIN | EPOLLRDHUP | EPOLLET, .data.u32 = 5};
	T(connect_v4(fd, connect_port));
	T(epoll_ctl(set, EPOLL_CTL_ADD, fd, &event));
	int count;
	do
		count = epoll_wait(set, &event, 1, 2000);
	while (count == 1 && !(event.events & EPOLLERR));
	say("%d %s", count, events_text(event.events));
	/* The same may be told once more: the kernel's TCP too says that the state is another, then that there is an error
	 * (tcp_reset, net/ipv4/tcp_input.c). */
	if (epoll_wait(set, &event, 1, 20) == 1 && !(event.events & EPOLLERR))
		say("then %s", events_text(event.events));
	T(epoll_wait(set, &event, 1, 20));
}
