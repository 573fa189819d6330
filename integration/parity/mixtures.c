/* The card's descriptors beside the kernel's in one epoll set, poll or select. */
#include "parity.h"

#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <sys/timerfd.h>

CASE(the_cards_and_the_kernels_take_turns)
{
	struct trio all = trio();
	int set = epoll_create1(0), ends[2], seen[3] = {0};
	T(pipe(ends));
	T(write(ends[1], "x", 1));
	T(write(all.client, "x", 1));
	EXPECT(all.server, POLLIN | POLLOUT);
	int event = eventfd(1, 0);
	T(watch(set, EPOLL_CTL_ADD, all.server, EPOLLIN, 0));
	T(watch(set, EPOLL_CTL_ADD, ends[0], EPOLLIN, 1));
	T(watch(set, EPOLL_CTL_ADD, event, EPOLLIN, 2));
	for (int i = 0; i < 6; i++) {
		struct epoll_event got;
		if (epoll_wait(set, &got, 1, 0) == 1)
			seen[got.data.u32]++;
	}
	say("%s %s %s", seen[0] ? "seen" : "starved", seen[1] ? "seen" : "starved", seen[2] ? "seen" : "starved");
	look("all", set, 0);
}

CASE(timers_signals_and_datagrams_wait_beside_the_card)
{
	struct trio all = trio();
	int set = epoll_create1(0), timer = timerfd_create(CLOCK_MONOTONIC, 0);
	sigset_t usr2;
	struct itimerspec soon = {.it_value.tv_nsec = 10000000};
	sigemptyset(&usr2);
	sigaddset(&usr2, SIGUSR2);
	sigprocmask(SIG_BLOCK, &usr2, NULL);
	int signals = signalfd(-1, &usr2, 0), datagrams = socket(AF_INET, SOCK_DGRAM, 0);
	struct sockaddr_in own = v4("127.0.0.1", 0);
	socklen_t length = sizeof own;
	T(bind(datagrams, (void *)&own, sizeof own));
	getsockname(datagrams, (void *)&own, &length);
	T(watch(set, EPOLL_CTL_ADD, all.server, EPOLLIN, 1));
	T(watch(set, EPOLL_CTL_ADD, timer, EPOLLIN, 2));
	T(watch(set, EPOLL_CTL_ADD, signals, EPOLLIN, 3));
	T(watch(set, EPOLL_CTL_ADD, datagrams, EPOLLIN, 4));
	T(timerfd_settime(timer, 0, &soon, NULL));
	look("timer", set, 5000);
	unsigned long ticks;
	T(read(timer, &ticks, 8));
	kill(getpid(), SIGUSR2);
	look("signal", set, 5000);
	struct signalfd_siginfo info;
	T(read(signals, &info, sizeof info));
	T(sendto(datagrams, "d", 1, 0, (void *)&own, sizeof own));
	look("datagram", set, 5000);
	T(write(all.client, "x", 1));
	EXPECT(all.server, POLLIN | POLLOUT);
	look("both", set, 0);
}

CASE(poll_and_select_mix_with_other_descriptors)
{
	struct trio all = trio();
	int ends[2], event = eventfd(0, 0);
	T(pipe(ends));
	struct pollfd watched[] = {{.fd = all.server, .events = POLLIN}, {.fd = ends[0], .events = POLLIN},
				   {.fd = event, .events = POLLIN | POLLOUT}, {.fd = all.listening, .events = POLLIN},
				   {.fd = -1, .events = POLLIN}, {.fd = all.client, .events = POLLOUT}, {.fd = 60, .events = POLLIN}};
	for (int round = 0; round < 4; round++) {
		T(poll(watched, 7, 0));
		for (int i = 0; i < 7; i++)
			say("  %d %s", i, events_text((unsigned)watched[i].revents));
		if (round == 0)
			T(write(ends[1], "x", 1));
		else if (round == 1)
			T(write(all.client, "x", 1)), await(all.server, POLLIN);
		else
			guest(), await(all.listening, POLLIN);
	}
	fd_set in, out;
	FD_ZERO(&in);
	FD_ZERO(&out);
	FD_SET(all.server, &in);
	FD_SET(ends[0], &in);
	FD_SET(event, &in);
	FD_SET(all.listening, &in);
	FD_SET(event, &out);
	FD_SET(all.server, &out);
	T(select(64, &in, &out, NULL, &(struct timeval){0}));
	say("%d %d %d %d %d %d", FD_ISSET(all.server, &in), FD_ISSET(ends[0], &in), FD_ISSET(event, &in),
	    FD_ISSET(all.listening, &in), FD_ISSET(event, &out), FD_ISSET(all.server, &out));
}

CASE(one_descriptor_twice_in_a_poll)
{
	struct trio all = trio();
	T(write(all.client, "x", 1));
	EXPECT(all.server, POLLIN | POLLOUT);
	struct pollfd watched[] = {{.fd = all.server, .events = POLLIN}, {.fd = all.server, .events = POLLOUT},
				   {.fd = all.server, .events = 0}, {.fd = dup(all.server), .events = POLLIN | POLLRDHUP}};
	T(poll(watched, 4, 0));
	for (int i = 0; i < 4; i++)
		say("%s", events_text((unsigned)watched[i].revents));
}
