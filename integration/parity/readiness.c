/* poll, select, epoll and waiting: what tells a program that there is something to do. */
#include "parity.h"

#include <sys/eventfd.h>

/* Waits for the end of the stream. A card may tell of an arrival just before it: docs/conformance.md. */
static void look_for_end(const char *what, int set)
{
	struct epoll_event got;
	do {
		if (epoll_wait(set, &got, 1, 5000) != 1) {
			say("%s: none", what);
			return;
		}
	} while (!(got.events & EPOLLRDHUP));
	say("%s: %d %s", what, (int)got.data.u32, events_text(got.events));
}

CASE(poll_tells_every_state)
{
	struct trio all = trio();
	char buffer[8];
	EXPECT(all.listening, 0);
	EXPECT(all.server, POLLOUT);
	int second = guest();
	EXPECT(all.listening, POLLIN);
	T(write(all.client, "x", 1));
	EXPECT(all.server, POLLIN | POLLOUT);
	T(read(all.server, buffer, 8));
	EXPECT(all.server, POLLOUT);
	T(close(all.client));
	EXPECT(all.server, POLLIN | POLLOUT | POLLRDHUP);
	T(close(second));
}

CASE(poll_on_a_fresh_socket_hangs_up)
{
	int fd = FD(socket(AF_INET, SOCK_STREAM, 0));
	EXPECT(fd, POLLOUT | POLLHUP);
	T(bind_v4(fd, "127.0.0.1", listen_port));
	EXPECT(fd, POLLOUT | POLLHUP);
	T(listen(fd, 1));
	EXPECT(fd, 0);
}

CASE(select_tells_the_same_as_poll)
{
	struct trio all = trio();
	fd_set in, out, except;
	for (int round = 0; round < 3; round++) {
		struct timeval limit = {.tv_usec = 20000};
		FD_ZERO(&in);
		FD_ZERO(&out);
		FD_ZERO(&except);
		FD_SET(all.server, &in);
		FD_SET(all.listening, &in);
		FD_SET(all.server, &out);
		FD_SET(all.server, &except);
		T(select(64, &in, &out, &except, &limit));
		say("%d %d %d %d", FD_ISSET(all.server, &in), FD_ISSET(all.listening, &in), FD_ISSET(all.server, &out),
		    FD_ISSET(all.server, &except));
		if (round == 0) {
			T(write(all.client, "x", 1));
			EXPECT(all.server, POLLIN | POLLOUT);
		} else if (round == 1) {
			reset(all.client);
			EXPECT(all.server, POLLIN | POLLOUT | POLLERR | POLLHUP | POLLRDHUP);
		}
	}
}

CASE(level_triggered_epoll_repeats_itself)
{
	struct trio all = trio();
	int set = epoll_create1(0);
	char buffer[8];
	T(watch(set, EPOLL_CTL_ADD, all.server, EPOLLIN | EPOLLRDHUP, 1));
	T(watch(set, EPOLL_CTL_ADD, all.listening, EPOLLIN, 2));
	look("idle", set, 0);
	T(write(all.client, "ab", 2));
	look("data", set, 5000);
	look("data still", set, 0);
	T(read(all.server, buffer, 1));
	look("one left", set, 0);
	T(read(all.server, buffer, 1));
	look("empty", set, 0);
	T(watch(set, EPOLL_CTL_MOD, all.server, EPOLLIN | EPOLLOUT, 3));
	look("writable", set, 0);
	T(watch(set, EPOLL_CTL_MOD, all.server, EPOLLIN | EPOLLRDHUP, 4));
	T(close(all.client));
	look_for_end("end", set);
	T(read(all.server, buffer, 1));
	look("end still", set, 0);
	T(close(all.server));
	look("closed", set, 0);
}

CASE(edge_triggered_epoll_tells_every_arrival_once)
{
	struct trio all = trio();
	int set = epoll_create1(0);
	char buffer[8];
	T(watch(set, EPOLL_CTL_ADD, all.server, EPOLLIN | EPOLLRDHUP | EPOLLET, 1));
	look("idle", set, 0);
	for (int round = 0; round < 3; round++) {
		T(write(all.client, "x", 1));
		look("arrival", set, 5000);
		look("no second edge", set, 50);
	}
	T(read(all.server, buffer, 8));
	look("drained", set, 50);
	T(write(all.client, "x", 1));
	look("arrival", set, 5000);
	T(shutdown(all.client, SHUT_WR));
	look_for_end("end", set);
	look("no second edge", set, 50);
}

CASE(edge_triggered_epoll_tells_of_room)
{
	struct trio all = trio();
	int set = epoll_create1(0);
	static char block[65536];
	long written = 0;
	T(set_nonblocking(all.server, 1));
	T(watch(set, EPOLL_CTL_ADD, all.server, EPOLLOUT | EPOLLET, 1));
	look("at first", set, 0);
	look("no second edge", set, 50);
	/* Room may come while the client's own buffer fills: write until nothing more is told. */
	struct epoll_event event;
	do {
		ssize_t taken;
		while ((taken = write(all.server, block, sizeof block)) > 0)
			written += taken;
	} while (epoll_wait(set, &event, 1, 100) == 1);
	T(take_away(all.client, written) == written);
	look("room", set, 5000);
}

CASE(a_oneshot_registration_must_be_armed_again)
{
	struct trio all = trio();
	int set = epoll_create1(0);
	char buffer[8];
	T(watch(set, EPOLL_CTL_ADD, all.server, EPOLLIN | EPOLLONESHOT, 1));
	T(write(all.client, "x", 1));
	look("first", set, 5000);
	T(write(all.client, "y", 1));
	look("disarmed", set, 50);
	T(watch(set, EPOLL_CTL_MOD, all.server, EPOLLIN | EPOLLONESHOT, 2));
	look("armed", set, 5000);
	T(read(all.server, buffer, 8));
	T(watch(set, EPOLL_CTL_MOD, all.server, EPOLLIN | EPOLLONESHOT, 3));
	look("empty", set, 50);
}

CASE(a_registration_before_bind_works)
{
	int set = epoll_create1(0), on = 1;
	int fd = FD(socket(AF_INET, SOCK_STREAM, 0));
	T(watch(set, EPOLL_CTL_ADD, fd, EPOLLIN, 7));
	T(setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on));
	T(bind_v4(fd, "127.0.0.1", listen_port));
	T(watch(set, EPOLL_CTL_MOD, fd, EPOLLIN, 8));
	T(listen(fd, 10));
	look("idle", set, 0);
	guest();
	look("a connection", set, 5000);
	FD(accept(fd, NULL, NULL));
	look("accepted", set, 0);
	T(watch(set, EPOLL_CTL_ADD, fd, EPOLLIN, 9));
	T(watch(set, EPOLL_CTL_DEL, fd, 0, 0));
	T(watch(set, EPOLL_CTL_DEL, fd, 0, 0));
	guest();
	await(fd, POLLIN);
	look("unregistered", set, 0);
}

CASE(epoll_ctl_refuses_what_the_kernel_refuses)
{
	struct trio all = trio();
	int set = epoll_create1(0);
	T(watch(set, EPOLL_CTL_MOD, all.server, EPOLLIN, 1));
	T(watch(set, EPOLL_CTL_DEL, all.server, EPOLLIN, 1));
	T(watch(set, EPOLL_CTL_ADD, all.server, EPOLLIN, 1));
	T(watch(set, EPOLL_CTL_ADD, all.server, EPOLLIN, 1));
	T(watch(set, 99, all.server, EPOLLIN, 1));
	T(watch(set, EPOLL_CTL_ADD, set, EPOLLIN, 1));
	T(watch(set, EPOLL_CTL_ADD, -1, EPOLLIN, 1));
	T(watch(all.server, EPOLL_CTL_ADD, all.listening, EPOLLIN, 1));
}

CASE(an_epoll_set_inside_another_wakes_it)
{
	struct trio all = trio();
	int inner = epoll_create1(0), outer = epoll_create1(0);
	char buffer[8];
	T(watch(inner, EPOLL_CTL_ADD, all.server, EPOLLIN, 1));
	T(watch(outer, EPOLL_CTL_ADD, inner, EPOLLIN, 2));
	look("idle", outer, 0);
	T(write(all.client, "x", 1));
	look("outer", outer, 5000);
	look("inner", inner, 0);
	T(read(all.server, buffer, 8));
	look("outer", outer, 0);
}

CASE(a_socket_may_be_in_two_epoll_sets)
{
	struct trio all = trio();
	int one = epoll_create1(0), two = epoll_create1(0), copy = dup(all.server);
	T(watch(one, EPOLL_CTL_ADD, all.server, EPOLLIN, 1));
	T(watch(two, EPOLL_CTL_ADD, all.server, EPOLLIN, 2));
	T(watch(one, EPOLL_CTL_ADD, copy, EPOLLIN, 3));
	T(write(all.client, "x", 1));
	EXPECT(all.server, POLLIN | POLLOUT);
	look("two", two, 0);
	T(close(copy));
	T(epoll_wait(one, &(struct epoll_event){0}, 1, 0) >= 1);
}

CASE(waiting_mixes_with_other_descriptors)
{
	struct trio all = trio();
	int set = epoll_create1(0), event = eventfd(0, 0), ends[2];
	T(pipe(ends));
	T(watch(set, EPOLL_CTL_ADD, all.server, EPOLLIN, 1));
	T(watch(set, EPOLL_CTL_ADD, event, EPOLLIN, 2));
	T(watch(set, EPOLL_CTL_ADD, ends[0], EPOLLIN, 3));
	T(write(ends[1], "x", 1));
	look("pipe", set, 5000);
	T(read(ends[0], &(char){0}, 1));
	T(eventfd_write(event, 1));
	look("event", set, 5000);
	T(eventfd_read(event, &(eventfd_t){0}));
	T(write(all.client, "x", 1));
	look("socket", set, 5000);
}

static void *read_one(void *argument)
{
	char byte;
	long result = read(*(int *)argument, &byte, 1);
	return (void *)(result < 0 ? -(long)errno : result);
}

static void *accept_one(void *argument)
{
	long result = accept(*(int *)argument, NULL, NULL);
	return (void *)(result < 0 ? -(long)errno : 1);
}

static void join(const char *what, pthread_t thread)
{
	void *result;
	pthread_join(thread, &result);
	say("%s: %s", what, (long)result < 0 ? strerrorname_np((int)-(long)result) : (long)result ? "1" : "0");
}

CASE(shutdown_wakes_a_thread_that_reads)
{
	struct trio all = trio();
	pthread_t thread;
	pthread_create(&thread, NULL, read_one, &all.server);
	usleep(50000);
	T(shutdown(all.server, SHUT_RDWR));
	join("read", thread);
}

CASE(shutdown_wakes_a_thread_that_accepts)
{
	int fd = listener();
	pthread_t thread;
	pthread_create(&thread, NULL, accept_one, &fd);
	usleep(50000);
	T(shutdown(fd, SHUT_RDWR));
	join("accept", thread);
	FD(accept(fd, NULL, NULL));
	until_refused();
	EXPECT(fd, POLLOUT | POLLHUP);
}

CASE(two_threads_read_every_byte_once)
{
	struct trio all = trio();
	pthread_t threads[2];
	for (int i = 0; i < 2; i++)
		pthread_create(&threads[i], NULL, read_one, &all.server);
	usleep(20000);
	T(write(all.client, "ab", 2));
	join("one", threads[0]);
	join("two", threads[1]);
	T(recv(all.server, &(char){0}, 1, MSG_DONTWAIT));
}

CASE(a_signal_interrupts_a_read_without_restart)
{
	struct trio all = trio();
	char byte;
	catch_signal(SIGUSR1, 0);
	pthread_t other = signal_then(write_x, &all.client);
	T(read(all.server, &byte, 1));
	say("signals: %d", signals_caught());
	T(read(all.server, &byte, 1));
	pthread_join(other, NULL);
}

CASE(a_signal_does_not_end_a_read_with_restart)
{
	struct trio all = trio();
	char byte;
	catch_signal(SIGUSR1, SA_RESTART);
	pthread_t other = signal_then(write_x, &all.client);
	T(read(all.server, &byte, 1));
	say("signals: %d", signals_caught());
	pthread_join(other, NULL);
}

CASE(a_signal_interrupts_accept_and_poll)
{
	int fd = listener();
	struct pollfd watched = {.fd = fd, .events = POLLIN};
	catch_signal(SIGUSR1, 0);
	pthread_t other = signal_waits();
	FD(accept(fd, NULL, NULL));
	end_signals(other);
	catch_signal(SIGUSR1, SA_RESTART);
	other = signal_waits();
	T(poll(&watched, 1, -1));
	end_signals(other);
}

CASE(cancelling_a_thread_that_reads_harms_nobody)
{
	struct trio all = trio();
	pthread_t thread;
	void *result;
	char byte;
	pthread_create(&thread, NULL, read_one, &all.server);
	usleep(50000);
	T(pthread_cancel(thread));
	pthread_join(thread, &result);
	say("cancelled: %d", result == PTHREAD_CANCELED);
	T(write(all.client, "x", 1));
	T(read(all.server, &byte, 1));
}
