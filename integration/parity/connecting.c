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
