/* Connections and listeners in programs that did not make them: exec and SCM_RIGHTS. */
#include "parity.h"

#include <poll.h>
#include <spawn.h>
#include <sys/syscall.h>

/* What this program does when it was executed by one of its own cases: PARITY_HEIR names the part, and a descriptor. */
static void accept_one(int fd);
static void echo(int fd);
static void receive_and_echo(int fd);
static void poll_and_echo(int fd);
static void receive_poll_and_echo(int fd);
static void receive_set_and_echo(int fd);

__attribute__((constructor)) static void be_an_heir(void)
{
	const char *part = getenv("PARITY_HEIR");
	if (!part)
		return;
	int fd = atoi(getenv("PARITY_DESCRIPTOR"));
	alarm(20);
	if (!strcmp(part, "accept"))
		accept_one(fd);
	else if (!strcmp(part, "echo"))
		echo(fd);
	else if (!strcmp(part, "receive"))
		receive_and_echo(fd);
	else if (!strcmp(part, "poll"))
		poll_and_echo(fd);
	else if (!strcmp(part, "receive and poll"))
		receive_poll_and_echo(fd);
	_exit(7);
}

static pid_t heir(const char *part, int fd)
{
	pid_t child = fork();
	if (child)
		return child;
	char number[12];
	snprintf(number, sizeof number, "%d", fd);
	setenv("PARITY_HEIR", part, 1);
	setenv("PARITY_DESCRIPTOR", number, 1);
	execl("/proc/self/exe", "heir", NULL);
	_exit(8);
}

/* The same without a copy of this process's memory in between. */
static pid_t spawned_heir(const char *part, int fd)
{
	pid_t child = -1;
	char number[12], *arguments[] = {"heir", NULL};
	snprintf(number, sizeof number, "%d", fd);
	setenv("PARITY_HEIR", part, 1);
	setenv("PARITY_DESCRIPTOR", number, 1);
	T(posix_spawn(&child, "/proc/self/exe", NULL, NULL, arguments, environ));
	unsetenv("PARITY_HEIR");
	return child;
}

static void echo(int fd)
{
	char buffer[256];
	long taken;
	while ((taken = read(fd, buffer, sizeof buffer)) > 0)
		if (write(fd, buffer, (size_t)taken) != taken)
			_exit(3);
	_exit(taken < 0 ? 4 : 0);
}

static void accept_one(int fd)
{
	struct sockaddr_in own = {0};
	socklen_t length = sizeof own;
	int on = 0;
	if (getsockname(fd, (void *)&own, &length) || !own.sin_port)
		_exit(5);
	length = sizeof on;
	if (getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &on, &length) || !on)
		_exit(6);
	echo(accept(fd, NULL, NULL));
}

static void hand_over(int channel, int fd)
{
	char byte = 'd', space[CMSG_SPACE(sizeof fd)] = {0};
	struct iovec part = {&byte, 1};
	struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = space, .msg_controllen = sizeof space};
	struct cmsghdr *control = CMSG_FIRSTHDR(&message);
	control->cmsg_level = SOL_SOCKET;
	control->cmsg_type = SCM_RIGHTS;
	control->cmsg_len = CMSG_LEN(sizeof fd);
	memcpy(CMSG_DATA(control), &fd, sizeof fd);
	/* Not traced: more than one process may write the trace by now. */
	if (sendmsg(channel, &message, 0) != 1)
		_exit(9);
}

static int received(int channel)
{
	char byte, space[CMSG_SPACE(sizeof(int))];
	int fd = -1;
	struct iovec part = {&byte, 1};
	struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = space, .msg_controllen = sizeof space};
	if (recvmsg(channel, &message, 0) == 1)
		memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof fd);
	return fd;
}

static void receive_and_echo(int fd)
{
	int taken = received(fd);
	close(fd);
	echo(taken);
}

/* Readiness is asked of the kernel, past every library. */
static void poll_and_echo(int fd)
{
	for (;;) {
		char byte;
		struct pollfd one = {.fd = fd, .events = POLLIN};
		struct timespec limit = {.tv_sec = 5};
		if (syscall(SYS_ppoll, &one, 1, &limit, NULL, 0) != 1)
			_exit(10);
		long taken = read(fd, &byte, 1);
		if (taken <= 0)
			_exit(taken < 0 ? 4 : 0);
		if (write(fd, &byte, 1) != 1)
			_exit(3);
	}
}

static void receive_poll_and_echo(int fd)
{
	int taken = received(fd);
	close(fd);
	poll_and_echo(taken);
}

static void receive_set_and_echo(int fd)
{
	int set = received(fd), taken = received(fd);
	close(fd);
	for (;;) {
		char byte;
		struct epoll_event got;
		if (epoll_wait(set, &got, 1, 5000) != 1 || got.data.u32 != 1)
			_exit(10);
		long count = read(taken, &byte, 1);
		if (count <= 0)
			_exit(count < 0 ? 4 : 0);
		if (write(taken, &byte, 1) != 1)
			_exit(3);
	}
}

/* A set whose one connection has been told of and read, and then got bytes that nobody read. */
static int set_with_news(struct trio *all, struct epoll_event *event)
{
	char byte;
	int set = FD(epoll_create1(EPOLL_CLOEXEC));
	*event = (struct epoll_event){.events = EPOLLIN, .data.u32 = 1};
	T(epoll_ctl(set, EPOLL_CTL_ADD, all->server, event));
	T(write(all->client, "x", 1));
	T(epoll_wait(set, event, 1, 5000));
	T(read(all->server, &byte, 1));
	T(write(all->client, "early", 5));
	T(epoll_wait(set, event, 1, 5000));
	return set;
}

static void hear_early(int client)
{
	char buffer[5];
	T(read_all(client, buffer, 5));
	say_bytes("early", buffer, 5);
}

/* The client is answered by whoever holds the connection, and hears when that one is done. */
static void talk(int client)
{
	char buffer[16];
	for (int round = 0; round < 3; round++) {
		T(write(client, "hello", 5));
		T(read_all(client, buffer, 5));
		say_bytes("back", buffer, 5);
	}
	T(shutdown(client, SHUT_WR));
	T(read(client, buffer, 1));
}

CASE(a_program_served_by_inetd_talks_on_its_standard_streams)
{
	struct trio all = trio();
	pid_t child = fork();
	if (child == 0) {
		dup2(all.server, 0);
		dup2(all.server, 1);
		for (int fd = 3; fd < 100; fd++)
			close(fd);
		execlp("cat", "cat", NULL);
		_exit(8);
	}
	T(close(all.server));
	talk(all.client);
	reap(child);
}

CASE(a_connection_is_served_by_the_program_that_inherits_it)
{
	struct trio all = trio();
	char buffer[8];
	T(write(all.client, "early", 5));
	EXPECT(all.server, POLLIN | POLLOUT);
	pid_t child = heir("echo", all.server);
	T(close(all.server));
	T(read_all(all.client, buffer, 5));
	talk(all.client);
	reap(child);
}

CASE(a_listener_is_served_by_the_program_that_inherits_it)
{
	int fd = listener();
	pid_t children[] = {heir("accept", fd), heir("accept", fd)};
	for (int i = 0; i < 2; i++) {
		int client = guest();
		talk(client);
		close(client);
	}
	reap(children[0]);
	reap(children[1]);
	/* Like a supervisor that starts its worker anew: the listener is still here. */
	pid_t child = heir("accept", fd);
	talk(guest());
	reap(child);
	T(close(fd));
	until_refused();
}

CASE(a_connection_may_be_sent_to_a_forked_child)
{
	int pair[2];
	T(socketpair(AF_UNIX, SOCK_STREAM, 0, pair));
	pid_t child = fork();
	if (child == 0) {
		close(pair[1]);
		receive_and_echo(pair[0]);
	}
	struct trio all = trio();
	hand_over(pair[1], all.server);
	T(close(all.server));
	talk(all.client);
	reap(child);
}

CASE(a_connection_may_be_sent_to_another_program)
{
	int pair[2];
	T(socketpair(AF_UNIX, SOCK_STREAM, 0, pair));
	pid_t child = heir("receive", pair[0]);
	close(pair[0]);
	struct trio all = trio();
	hand_over(pair[1], all.server);
	T(close(all.server));
	talk(all.client);
	reap(child);
}

CASE(a_copy_outlives_exec_fork_and_sending)
{
	struct trio all = trio();
	int pair[2], copy = FD(dup(all.server));
	char buffer[8];
	T(close(all.server));
	T(socketpair(AF_UNIX, SOCK_STREAM, 0, pair));
	pid_t middle = fork();
	if (middle == 0) {
		pid_t last = heir("receive", pair[0]);
		close(pair[0]);
		close(all.client);
		hand_over(pair[1], copy);
		close(copy);
		int status = 0;
		waitpid(last, &status, 0);
		_exit(WEXITSTATUS(status));
	}
	close(pair[0]);
	T(write(all.client, "early", 5));
	T(read_all(all.client, buffer, 5));
	T(close(copy));
	talk(all.client);
	reap(middle);
}

CASE(an_unrelated_pair_of_sockets_stays_what_it_is)
{
	int pair[2], small = 1;
	char buffer[8];
	T(socketpair(AF_UNIX, SOCK_STREAM, 0, pair));
	T(setsockopt(pair[0], SOL_SOCKET, SO_SNDBUF, &small, sizeof small));
	pid_t child = heir("echo", pair[0]);
	close(pair[0]);
	T(write(pair[1], "x", 1));
	T(read_all(pair[1], buffer, 1));
	T(shutdown(pair[1], SHUT_WR));
	T(read(pair[1], buffer, 1));
	reap(child);
}

CASE(a_connection_in_an_epoll_set_is_told_of_in_the_program_that_inherits_it)
{
	struct trio all = trio();
	struct epoll_event event;
	int set = set_with_news(&all, &event);
	pid_t child = heir("poll", all.server);
	hear_early(all.client);
	T(close(all.server));
	talk(all.client);
	reap(child);
	T(close(set));
}

CASE(a_connection_in_an_epoll_set_is_told_of_in_a_program_that_was_spawned)
{
	struct trio all = trio();
	struct epoll_event event;
	int set = set_with_news(&all, &event);
	pid_t child = spawned_heir("poll", all.server);
	hear_early(all.client);
	/* It is in the set still, and changing it there takes nothing from the heir. */
	T(epoll_ctl(set, EPOLL_CTL_MOD, all.server, &event));
	T(write(all.client, "again", 5));
	hear_early(all.client);
	T(close(all.server));
	talk(all.client);
	reap(child);
	T(close(set));
}

CASE(a_connection_in_an_epoll_set_is_told_of_where_it_is_sent)
{
	int pair[2];
	T(socketpair(AF_UNIX, SOCK_STREAM, 0, pair));
	pid_t child = heir("receive and poll", pair[0]);
	close(pair[0]);
	struct trio all = trio();
	struct epoll_event event;
	int set = set_with_news(&all, &event);
	hand_over(pair[1], all.server);
	hear_early(all.client);
	T(epoll_ctl(set, EPOLL_CTL_MOD, all.server, &event));
	T(write(all.client, "again", 5));
	hear_early(all.client);
	T(close(all.server));
	talk(all.client);
	reap(child);
	T(close(set));
}

CASE(an_epoll_set_may_be_sent_with_its_connection)
{
	int pair[2];
	T(socketpair(AF_UNIX, SOCK_STREAM, 0, pair));
	pid_t child = fork();
	if (child == 0) {
		close(pair[1]);
		receive_set_and_echo(pair[0]);
	}
	struct trio all = trio();
	struct epoll_event event;
	int set = set_with_news(&all, &event);
	hand_over(pair[1], set);
	hand_over(pair[1], all.server);
	hear_early(all.client);
	T(close(all.server));
	talk(all.client);
	reap(child);
	T(close(set));
}
