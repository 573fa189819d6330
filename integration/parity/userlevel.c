/* An epoll set that only its own program waits for: what may be kept at user level, and every way out of it. Nobody polls
 * the connections here before the set was asked, or they would be the wire's from the start. */
#include "parity.h"

#include <sys/eventfd.h>

/* A set with one connection, which has been told of and read once. */
static int set_of(struct trio *all, unsigned events)
{
	char byte;
	int set = FD(epoll_create1(0));
	T(watch(set, EPOLL_CTL_ADD, all->server, events, 1));
	T(write(all->client, "x", 1));
	look("first", set, 5000);
	T(read(all->server, &byte, 1));
	return set;
}

CASE(readiness_lasts_until_everything_is_read)
{
	struct trio all = trio();
	char buffer[4];
	int set = set_of(&all, EPOLLIN);
	look("nothing", set, 0);
	T(write(all.client, "abcdef", 6));
	for (int i = 0; i < 3; i++) {
		look("level", set, 5000);
		T(read(all.server, buffer, 2));
	}
	look("empty", set, 0);
	look("empty after a while", set, 20);
}

CASE(a_wait_sleeps_until_something_comes)
{
	struct trio all = trio();
	struct timespec start;
	char byte;
	int set = set_of(&all, EPOLLIN);
	for (int i = 0; i < 20; i++) {
		pid_t child = fork();
		if (child == 0) {
			usleep(3000);
			_exit(write(all.client, "x", 1) != 1);
		}
		now(&start);
		look("woken", set, 5000);
		say("%d", elapsed_ms(&start) < 4000);
		T(read(all.server, &byte, 1));
		reap(child);
	}
	now(&start);
	look("time is up", set, 50);
	say("%d", elapsed_ms(&start) >= 49);
}

CASE(interest_may_change_before_and_after_arrival)
{
	struct trio all = trio();
	char byte;
	int set = set_of(&all, EPOLLIN);
	T(watch(set, EPOLL_CTL_ADD, all.server, EPOLLIN, 1));
	T(watch(set, EPOLL_CTL_MOD, all.server, EPOLLIN | EPOLLOUT, 2));
	look("writable", set, 0);
	T(watch(set, EPOLL_CTL_MOD, all.server, 0, 3));
	T(write(all.client, "x", 1));
	look("deaf", set, 50);
	T(watch(set, EPOLL_CTL_MOD, all.server, EPOLLIN | EPOLLOUT, 4));
	look("both", set, 5000);
	T(watch(set, EPOLL_CTL_MOD, all.server, EPOLLIN, 5));
	look("one", set, 5000);
	T(read(all.server, &byte, 1));
	T(watch(set, EPOLL_CTL_DEL, all.server, 0, 0));
	T(watch(set, EPOLL_CTL_DEL, all.server, 0, 0));
	T(watch(set, EPOLL_CTL_MOD, all.server, EPOLLIN, 1));
	T(write(all.client, "x", 1));
	look("gone", set, 50);
	T(watch(set, EPOLL_CTL_ADD, all.server, EPOLLIN | EPOLLRDNORM, 6));
	look("back", set, 5000);
}

CASE(many_registrations_may_change_between_two_waits)
{
	enum { COUNT = 80 };
	struct epoll_event got[COUNT];
	int listening = listener(), set = FD(epoll_create1(0)), client[COUNT], server[COUNT];
	for (int i = 0; i < COUNT; i++) {
		server[i] = served(listening, &client[i]);
		if (watch(set, EPOLL_CTL_ADD, server[i], EPOLLIN, i) != 0)
			say("no");
	}
	for (int i = 0; i < COUNT; i++)
		if (watch(set, EPOLL_CTL_MOD, server[i], i % 3 ? EPOLLOUT : EPOLLIN, i) != 0)
			say("no");
	int count = epoll_wait(set, got, COUNT, 5000), sum = 0;
	for (int i = 0; i < count; i++)
		sum += got[i].data.u32;
	say("%d writable, %d", count, sum);
	for (int i = 0; i < COUNT; i++) {
		if (watch(set, EPOLL_CTL_MOD, server[i], EPOLLIN, i) != 0 || write(client[i], "x", 1) != 1)
			say("no");
	}
	struct timespec start;
	now(&start);
	for (count = 0; count < COUNT && elapsed_ms(&start) < 10000;)
		count = epoll_wait(set, got, COUNT, 5000);
	say("%d readable", count);
	for (int i = 0; i < COUNT; i++) {
		close(server[i]);
		close(client[i]);
	}
}

CASE(everybody_has_a_turn_where_there_is_room_for_one)
{
	struct trio all = trio();
	int other_client, other = served(all.listening, &other_client);
	struct epoll_event got;
	int set = set_of(&all, EPOLLIN), pipes[2];
	T(pipe(pipes));
	T(watch(set, EPOLL_CTL_ADD, other, EPOLLIN, 2));
	T(watch(set, EPOLL_CTL_ADD, pipes[0], EPOLLIN, 3));
	T(write(pipes[1], "p", 1));
	T(write(all.client, "x", 1));
	T(write(other_client, "x", 1));
	int seen = 0;
	struct timespec start;
	now(&start);
	while (seen != 14 && elapsed_ms(&start) < 5000)
		if (epoll_wait(set, &got, 1, 5000) == 1)
			seen |= 1 << got.data.u32;
	say("%d", seen);
	/* Nobody reads: each comes round again within as many turns as there are. */
	seen = 0;
	for (int i = 0; i < 6; i++)
		if (epoll_wait(set, &got, 1, 5000) == 1)
			seen |= 1 << got.data.u32;
	say("%d", seen);
}

CASE(ends_and_errors_come_with_what_can_be_read)
{
	struct trio all = trio();
	char buffer[4];
	int set = set_of(&all, EPOLLIN | EPOLLRDHUP);
	T(write(all.client, "bye", 3));
	T(shutdown(all.client, SHUT_WR));
	int events = 0;
	struct epoll_event got;
	/* The bytes may come before the end: docs/testing.md. */
	while (!(events & EPOLLRDHUP) && epoll_wait(set, &got, 1, 5000) == 1)
		events = got.events;
	say("%s", events_text(events));
	T(read(all.server, buffer, 4));
	T(read(all.server, buffer, 4));
	look("still", set, 5000);
	reset(all.client);
	T(close(all.client));
	struct timespec start;
	now(&start);
	while (!(got.events & EPOLLERR) && elapsed_ms(&start) < 5000)
		epoll_wait(set, &got, 1, 5000);
	say("%s", events_text(got.events));
}

CASE(a_connection_of_the_set_can_be_polled_selected_and_waited_for)
{
	struct trio all = trio();
	char byte;
	fd_set in;
	int set = set_of(&all, EPOLLIN);
	T(write(all.client, "x", 1));
	look("set", set, 5000);
	EXPECT(all.server, POLLIN | POLLOUT);
	T(read(all.server, &byte, 1));
	look("read", set, 0);
	FD_ZERO(&in);
	FD_SET(all.server, &in);
	T(write(all.client, "y", 1));
	T(select(all.server + 1, &in, NULL, NULL, NULL));
	look("after select", set, 5000);
	T(read(all.server, &byte, 1));

	int other_client, other = served(all.listening, &other_client);
	T(watch(set, EPOLL_CTL_ADD, other, EPOLLIN, 2));
	T(write(other_client, "x", 1));
	look("other", set, 5000);
	T(read(other, &byte, 1));
	pid_t child = fork();
	if (child == 0) {
		usleep(20000);
		_exit(write(other_client, "z", 1) != 1);
	}
	T(read(other, &byte, 1));
	reap(child);
	look("after a blocking read", set, 0);
}

CASE(poll_finds_at_once_what_the_set_was_told)
{
	struct trio all = trio();
	int set = set_of(&all, EPOLLIN);
	T(write(all.client, "x", 1));
	look("set", set, 5000);
	struct pollfd one = {.fd = all.server, .events = POLLIN};
	T(poll(&one, 1, 0));
	say("%d", one.revents);
}

CASE(a_set_can_be_polled_and_nested)
{
	struct trio all = trio();
	char byte;
	int set = set_of(&all, EPOLLIN), outer = FD(epoll_create1(0));
	struct pollfd one = {.fd = set, .events = POLLIN};
	T(poll(&one, 1, 0));
	T(write(all.client, "x", 1));
	T(poll(&one, 1, 5000));
	look("polled", set, 5000);
	T(read(all.server, &byte, 1));

	struct trio more = {.listening = all.listening};
	more.server = served(all.listening, &more.client);
	int inner = set_of(&more, EPOLLIN);
	T(watch(outer, EPOLL_CTL_ADD, inner, EPOLLIN, 7));
	look("outer", outer, 0);
	T(write(more.client, "x", 1));
	look("outer", outer, 5000);
	look("inner", inner, 5000);
}

CASE(a_copy_of_a_set_is_the_set)
{
	struct trio all = trio();
	char byte;
	int set = set_of(&all, EPOLLIN), copy = FD(dup(set));
	T(write(all.client, "x", 1));
	look("copy", copy, 5000);
	T(close(set));
	look("copy", copy, 5000);
	T(read(all.server, &byte, 1));
	look("copy", copy, 0);
	T(write(all.client, "x", 1));
	look("copy", copy, 5000);
}

CASE(a_set_that_is_closed_gives_its_connections_to_the_next)
{
	struct trio all = trio();
	char byte;
	int set = set_of(&all, EPOLLIN);
	T(write(all.client, "x", 1));
	look("first set", set, 5000);
	T(close(set));
	int next = FD(epoll_create1(0));
	T(watch(next, EPOLL_CTL_ADD, all.server, EPOLLIN, 2));
	look("next set", next, 5000);
	T(read(all.server, &byte, 1));
	look("next set", next, 0);
	T(write(all.client, "x", 1));
	look("next set", next, 5000);
	int third = FD(epoll_create1(0));
	T(watch(third, EPOLL_CTL_ADD, all.server, EPOLLIN, 3));
	look("third set", third, 5000);
	look("next set", next, 5000);
}

CASE(a_copy_of_a_connection_keeps_its_registration)
{
	struct trio all = trio();
	int set = set_of(&all, EPOLLIN), copy = FD(dup(all.server));
	T(close(all.server));
	T(write(all.client, "x", 1));
	look("closed number", set, 5000);
	T(close(copy));
	look("gone", set, 20);
}

CASE(a_forked_child_and_its_parent_see_the_same_set)
{
	struct trio all = trio();
	char byte;
	int set = set_of(&all, EPOLLIN);
	T(write(all.client, "x", 1));
	look("before", set, 5000);
	pid_t child = fork();
	if (child == 0) {
		look("child", set, 5000);
		T(read(all.server, &byte, 1));
		look("child", set, 0);
		fflush(stdout);
		_exit(0);
	}
	reap(child);
	look("parent", set, 0);
	T(write(all.client, "y", 1));
	look("parent", set, 5000);
	T(read(all.server, &byte, 1));
	struct trio more = {.listening = all.listening};
	more.server = served(all.listening, &more.client);
	T(watch(set, EPOLL_CTL_ADD, more.server, EPOLLIN, 2));
	T(write(more.client, "z", 1));
	look("a new one", set, 5000);
}

struct waiter {
	int set, found;
};

static void *wait_in_thread(void *argument)
{
	struct waiter *waiter = argument;
	struct epoll_event got;
	waiter->found = epoll_wait(waiter->set, &got, 1, 5000);
	return NULL;
}

CASE(a_thread_that_waits_hears_of_what_another_registers)
{
	struct trio all = trio();
	char byte;
	int set = set_of(&all, EPOLLIN);
	T(watch(set, EPOLL_CTL_DEL, all.server, 0, 0));
	T(write(all.client, "x", 1));
	for (int round = 0; round < 3; round++) {
		pthread_t thread;
		struct waiter waiter = {.set = set};
		T(pthread_create(&thread, NULL, wait_in_thread, &waiter));
		usleep(20000);
		if (round == 0)
			T(watch(set, EPOLL_CTL_ADD, all.server, EPOLLIN, 1));
		else if (round == 1)
			T(watch(set, EPOLL_CTL_MOD, all.server, EPOLLOUT, 1));
		else
			T(watch(set, EPOLL_CTL_MOD, all.server, EPOLLIN, 1));
		T(pthread_join(thread, NULL));
		say("%d", waiter.found);
		if (round < 2)
			T(watch(set, EPOLL_CTL_MOD, all.server, 0, 1));
	}
	T(read(all.server, &byte, 1));
}

CASE(two_threads_wait_for_one_set)
{
	struct trio all = trio();
	int set = set_of(&all, EPOLLIN);
	pthread_t threads[2];
	struct waiter waiters[2] = {{.set = set}, {.set = set}};
	for (int i = 0; i < 2; i++)
		T(pthread_create(&threads[i], NULL, wait_in_thread, &waiters[i]));
	usleep(20000);
	T(write(all.client, "x", 1));
	for (int i = 0; i < 2; i++)
		T(pthread_join(threads[i], NULL));
	/* Level-triggered: nobody reads, so both are told. */
	say("%d %d", waiters[0].found, waiters[1].found);
}

static void *write_later(void *argument)
{
	usleep(30000);
	if (write(*(int *)argument, "x", 1) != 1)
		say("no");
	return NULL;
}

CASE(a_signal_ends_a_wait_and_the_next_goes_on)
{
	struct trio all = trio();
	struct epoll_event got;
	int set = set_of(&all, EPOLLIN);
	catch_signal(SIGALRM, SA_RESTART);
	struct itimerval soon = {.it_value.tv_usec = 20000};
	T(setitimer(ITIMER_REAL, &soon, NULL));
	T(epoll_wait(set, &got, 1, 5000));
	say("%d", signals_caught());
	sigset_t blocked;
	sigemptyset(&blocked);
	sigaddset(&blocked, SIGALRM);
	T(setitimer(ITIMER_REAL, &soon, NULL));
	T(epoll_pwait(set, &got, 1, 60, &blocked));
	say("%d", signals_caught());
	pthread_t thread;
	T(pthread_create(&thread, NULL, write_later, &all.client));
	T(epoll_wait(set, &got, 1, 5000));
	T(pthread_join(thread, NULL));
}

CASE(a_wait_of_nanoseconds_is_a_wait)
{
	struct trio all = trio();
	struct epoll_event got;
	struct timespec start, limit = {.tv_nsec = 30000000};
	int set = set_of(&all, EPOLLIN);
	now(&start);
	T(epoll_pwait2(set, &got, 1, &limit, NULL));
	say("%d", elapsed_ms(&start) >= 29);
	T(write(all.client, "x", 1));
	T(epoll_pwait2(set, &got, 1, NULL, NULL));
	T(epoll_wait(set, &got, 0, 0));
	volatile int less = -1;
	T(epoll_wait(set, &got, less, 0));
}

CASE(registrations_that_only_the_kernel_can_keep_are_kept)
{
	struct trio all = trio();
	char byte;
	int set = set_of(&all, EPOLLIN);
	T(watch(set, EPOLL_CTL_MOD, all.server, EPOLLIN | EPOLLONESHOT, 1));
	T(write(all.client, "x", 1));
	look("once", set, 5000);
	look("not twice", set, 20);
	T(watch(set, EPOLL_CTL_MOD, all.server, EPOLLIN | EPOLLONESHOT, 1));
	look("armed again", set, 5000);
	T(read(all.server, &byte, 1));
	T(watch(set, EPOLL_CTL_MOD, all.server, EPOLLIN | EPOLLET, 1));
	T(write(all.client, "y", 1));
	look("edge", set, 5000);
	look("no edge", set, 20);
	T(write(all.client, "z", 1));
	look("another", set, 5000);
}
