/* SO_RCVTIMEO, SO_SNDTIMEO and SO_RCVLOWAT: of listeners, of what they accept, and of sockets that connect. */
#include "parity.h"

static const struct timeval none, one = {.tv_sec = 1}, two = {.tv_sec = 2};

static void set(int fd, int option, const struct timeval *limit)
{
	if (setsockopt(fd, SOL_SOCKET, option, limit, sizeof *limit))
		say("refused: %s", strerrorname_np(errno));
}

/* Whole seconds: what is less is told in the kernel's ticks. */
static void say_limits(const char *what, int fd)
{
	struct timeval receive, send;
	socklen_t length = sizeof receive;
	int low = 0;
	getsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &receive, &length);
	getsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &send, &length);
	length = sizeof low;
	getsockopt(fd, SOL_SOCKET, SO_RCVLOWAT, &low, &length);
	say("%s: receives %ld s, sends %ld s, from %d bytes on", what, (long)receive.tv_sec, (long)send.tv_sec, low);
}

static void say_next(const char *what, int listening)
{
	await(listening, POLLIN);
	int server = FD(accept(listening, NULL, NULL));
	say_limits(what, server);
	close(server);
}

CASE(connections_have_the_time_outs_their_listener_has)
{
	int low = 3;
	for (int when = 0; when < 3; when++) {
		int fd = socket(AF_INET, SOCK_STREAM, 0);
		setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &(int){1}, sizeof(int));
		for (int step = 0; step < 3; step++) {
			if (step == 1)
				T(bind_v4(fd, "127.0.0.1", listen_port));
			if (step == 2)
				T(listen(fd, 5));
			if (step == when) {
				set(fd, SO_RCVTIMEO, &one);
				set(fd, SO_SNDTIMEO, &two);
				T(setsockopt(fd, SOL_SOCKET, SO_RCVLOWAT, &low, sizeof low));
			}
		}
		say_limits("listener", fd);
		int client = guest();
		say_next("connection", fd);
		close(client);
		close(fd);
	}
}

CASE(a_connection_has_the_time_outs_its_listener_had_when_it_came)
{
	int fd = listener();
	const struct timeval *limits[] = {&none, &one, &two, &none, &two};
	for (int i = 0; i < 5; i++) {
		set(fd, i % 2 ? SO_SNDTIMEO : SO_RCVTIMEO, limits[i]);
		guest();
		/* The last of the handshake: the connection is there when its client can be told so. */
		usleep(20000);
	}
	set(fd, SO_RCVTIMEO, &two);
	set(fd, SO_SNDTIMEO, &none);
	for (int i = 0; i < 5; i++)
		say_next("connection", fd);
	guest();
	say_next("the latest", fd);
	say_limits("listener", fd);
}

CASE(a_time_out_set_before_listen_and_changed_after_holds_for_who_came_before)
{
	int fd = socket(AF_INET, SOCK_STREAM, 0);
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &(int){1}, sizeof(int));
	set(fd, SO_RCVTIMEO, &one);
	T(bind_v4(fd, "127.0.0.1", listen_port));
	T(listen(fd, 5));
	guest();
	usleep(20000);
	set(fd, SO_RCVTIMEO, &none);
	say_next("before", fd);
	guest();
	say_next("after", fd);
}

CASE(a_client_that_reset_leaves_a_connection_with_time_outs)
{
	int fd = listener(), client = guest();
	set(fd, SO_RCVTIMEO, &one);
	reset(client);
	usleep(20000);
	await(fd, POLLIN);
	int server = FD(accept(fd, NULL, NULL));
	EXPECT(server, POLLIN | POLLOUT | POLLERR | POLLHUP | POLLRDHUP);
	T(read(server, &(char){0}, 1));
	T(read(server, &(char){0}, 1));
}

CASE(a_time_out_set_in_one_process_holds_in_the_other)
{
	int fd = listener();
	pid_t child = fork();
	if (child == 0) {
		set(fd, SO_RCVTIMEO, &one);
		_exit(0);
	}
	reap(child);
	say_limits("listener", fd);
	guest();
	say_next("connection", fd);
	child = fork();
	if (child == 0) {
		say_limits("listener, in the child", fd);
		set(fd, SO_SNDTIMEO, &two);
		guest();
		say_next("connection, in the child", fd);
		_exit(0);
	}
	reap(child);
	guest();
	say_next("connection", fd);
}

CASE(a_time_out_set_in_another_process_before_listen_holds)
{
	int fd = socket(AF_INET, SOCK_STREAM, 0);
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &(int){1}, sizeof(int));
	pid_t child = fork();
	if (child == 0) {
		set(fd, SO_RCVTIMEO, &two);
		_exit(0);
	}
	reap(child);
	T(bind_v4(fd, "127.0.0.1", listen_port));
	T(listen(fd, 5));
	say_limits("listener", fd);
	guest();
	say_next("connection", fd);
}

static void *accept_in_thread(void *listening)
{
	int fd = accept(*(int *)listening, NULL, NULL);
	return (void *)(long)(fd < 0 ? -errno : 1);
}

static const char *outcome(pthread_t thread)
{
	void *result;
	pthread_join(thread, &result);
	return (long)result < 0 ? strerrorname_np((int)-(long)result) : "a descriptor";
}

CASE(whoever_waits_in_accept_keeps_the_time_out_it_began_with)
{
	int fd = listener();
	pthread_t first, second;
	struct timespec start;
	/* Without one. */
	pthread_create(&first, NULL, accept_in_thread, &fd);
	usleep(100000);
	set(fd, SO_RCVTIMEO, &(struct timeval){.tv_usec = 20000});
	usleep(100000);
	guest();
	say("for ever: %s", outcome(first));
	/* With one: the thread that is woken for nothing does not begin anew. */
	set(fd, SO_RCVTIMEO, &(struct timeval){.tv_usec = 500000});
	now(&start);
	pthread_create(&first, NULL, accept_in_thread, &fd);
	pthread_create(&second, NULL, accept_in_thread, &fd);
	usleep(100000);
	set(fd, SO_RCVTIMEO, &(struct timeval){.tv_sec = 9});
	guest();
	const char *one_of_both = outcome(first), *other = outcome(second);
	say("one of both: %d", !strcmp(one_of_both, "EAGAIN") != !strcmp(other, "EAGAIN"));
	say("in its time: %d", elapsed_ms(&start) >= 490 && elapsed_ms(&start) < 5000);
}

static void *read_in_thread(void *fd) { return (void *)(long)(read(*(int *)fd, &(char){0}, 1) < 0 ? -errno : 1); }

CASE(a_read_that_is_woken_for_nothing_ends_in_its_time)
{
	struct trio all = trio();
	pthread_t first, second;
	struct timespec start;
	set(all.server, SO_RCVTIMEO, &(struct timeval){.tv_usec = 900000});
	now(&start);
	pthread_create(&first, NULL, read_in_thread, &all.server);
	pthread_create(&second, NULL, read_in_thread, &all.server);
	usleep(700000);
	T(write(all.client, "x", 1));
	const char *one_of_both = outcome(first), *other = outcome(second);
	say("one of both: %d", !strcmp(one_of_both, "EAGAIN") != !strcmp(other, "EAGAIN"));
	say("in its time: %d", elapsed_ms(&start) >= 890 && elapsed_ms(&start) < 1500);
}

CASE(a_listener_refuses_the_time_outs_the_kernel_refuses)
{
	int fd = listener();
	struct timeval much = {.tv_usec = 1000000};
	set(fd, SO_RCVTIMEO, &one);
	T(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &much, sizeof much));
	T(setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &much, sizeof much));
	T(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &two, 4));
	T(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, NULL, 0));
	T(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, NULL, sizeof two));
	T(setsockopt(fd, SOL_SOCKET, SO_RCVLOWAT, &two, 2));
	say_limits("listener", fd);
	guest();
	say_next("connection", fd);
}

CASE(a_listener_s_time_outs_are_not_those_of_poll)
{
	int fd = listener(), set_fd = epoll_create1(0);
	struct epoll_event event = {.events = EPOLLIN};
	struct timespec start;
	fd_set in;
	set(fd, SO_RCVTIMEO, &(struct timeval){.tv_usec = 20000});
	T(epoll_ctl(set_fd, EPOLL_CTL_ADD, fd, &event));
	for (int call = 0; call < 3; call++) {
		struct pollfd watched = {.fd = fd, .events = POLLIN};
		struct timeval limit = {.tv_usec = 120000};
		FD_ZERO(&in);
		FD_SET(fd, &in);
		now(&start);
		long result = call == 0   ? epoll_wait(set_fd, &event, 1, 120)
			      : call == 1 ? poll(&watched, 1, 120)
					  : select(fd + 1, &in, NULL, NULL, &limit);
		say("call %d: %ld, in its time: %d", call, result, elapsed_ms(&start) >= 110);
	}
	FD(accept(fd, NULL, NULL));
	guest();
	T(epoll_wait(set_fd, &event, 1, 5000));
	FD(accept(fd, NULL, NULL));
}

CASE(a_socket_that_connects_keeps_its_time_outs)
{
	int elsewhere = socket(AF_INET, SOCK_STREAM, 0), fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0), low = 2;
	setsockopt(elsewhere, SOL_SOCKET, SO_REUSEADDR, &(int){1}, sizeof(int));
	T(bind_v4(elsewhere, "127.0.0.1", connect_port));
	T(listen(elsewhere, 1));
	set(fd, SO_RCVTIMEO, &one);
	T(setsockopt(fd, SOL_SOCKET, SO_RCVLOWAT, &low, sizeof low));
	T(connect_v4(fd, connect_port));
	set(fd, SO_SNDTIMEO, &two);
	say_limits("connecting", fd);
	EXPECT(fd, POLLOUT);
	T(connect_v4(fd, connect_port));
	say_limits("connected", fd);
	int refused = socket(AF_INET, SOCK_STREAM, 0);
	close(elsewhere);
	set(refused, SO_SNDTIMEO, &two);
	T(connect_v4(refused, connect_port));
	say_limits("refused", refused);
}

static void say_option(const char *what, int fd, int level, int option)
{
	int value = -1;
	socklen_t length = sizeof value;
	getsockopt(fd, level, option, &value, &length);
	say("%s: %d", what, value);
}

CASE(what_was_set_on_a_listener_stays_when_it_is_shut_down)
{
	int fd = listener(), on = 1, idle = 77;
	T(setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on));
	T(setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof idle));
	set(fd, SO_RCVTIMEO, &one);
	T(shutdown(fd, SHUT_RDWR));
	say_option("keepalive", fd, SOL_SOCKET, SO_KEEPALIVE);
	say_option("idle", fd, IPPROTO_TCP, TCP_KEEPIDLE);
	say_limits("shut down", fd);
	T(listen(fd, 5));
	guest();
	await(fd, POLLIN);
	int server = FD(accept(fd, NULL, NULL));
	say_option("keepalive of a connection", server, SOL_SOCKET, SO_KEEPALIVE);
	say_option("its idle", server, IPPROTO_TCP, TCP_KEEPIDLE);
	say_limits("connection", server);
}
