/* Blocking calls: signals with and without SA_RESTART, time-outs, and other threads that end the wait. */
#include "parity.h"

#include <sys/sendfile.h>

enum call { READ, RECV, RECVFROM, RECVMSG, READV, RECVMMSG, PREADV2, WAITALL, READERS };

static long read_by(enum call call, int fd)
{
	char bytes[2];
	struct iovec part = {bytes, 1}, pair = {bytes, 2};
	struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
	struct mmsghdr many = {.msg_hdr = message};
	switch (call) {
	case READ: return read(fd, bytes, 1);
	case RECV: return recv(fd, bytes, 1, 0);
	case RECVFROM: return recvfrom(fd, bytes, 1, 0, NULL, NULL);
	case RECVMSG: return recvmsg(fd, &message, 0);
	case READV: return readv(fd, &pair, 1);
	case RECVMMSG: return recvmmsg(fd, &many, 1, 0, NULL);
	case PREADV2: return preadv2(fd, &part, 1, -1, 0);
	default: return recv(fd, bytes, 1, MSG_WAITALL);
	}
}

static void said(int call, long result)
{
	say("call %d: %ld %s, signals %d", call, result, result < 0 ? strerrorname_np(errno) : "-", signals_caught());
}

/* The same once the other thread has done what it is to do. */
static void said_after(int call, long result, pthread_t other)
{
	int error = errno;
	pthread_join(other, NULL);
	errno = error;
	said(call, result);
}

static void interrupt_readers(int flags, const struct timeval *limit)
{
	struct trio all = trio();
	catch_signal(SIGUSR1, flags);
	if (limit)
		T(setsockopt(all.server, SOL_SOCKET, SO_RCVTIMEO, limit, sizeof *limit));
	for (enum call call = READ; call < READERS; call++) {
		pthread_t other = signal_then(write_x, &all.client);
		long result = read_by(call, all.server);
		said_after(call, result, other);
		EXPECT(all.server, result < 0 ? POLLIN | POLLOUT : POLLOUT);
		recv(all.server, &(char){0}, 1, MSG_DONTWAIT);
	}
}

CASE(a_signal_ends_every_kind_of_read) { interrupt_readers(0, NULL); }
CASE(a_restarting_signal_ends_no_kind_of_read) { interrupt_readers(SA_RESTART, NULL); }
CASE(a_signal_ends_a_read_with_a_time_limit) { interrupt_readers(SA_RESTART, &(struct timeval){.tv_sec = 9}); }

/* As long as something comes; what was lost comes again within its time. */
static void drain_slowly(void *argument)
{
	static char block[65536];
	struct pollfd watched = {.fd = *(int *)argument, .events = POLLIN};
	while (poll(&watched, 1, 500) == 1 && read(watched.fd, block, sizeof block) > 0)
		;
}

static long write_by(int call, int fd)
{
	static char block[1024];
	struct iovec part = {block, sizeof block};
	struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
	struct mmsghdr many = {.msg_hdr = message};
	switch (call) {
	case 0: return write(fd, block, sizeof block);
	case 1: return send(fd, block, sizeof block, 0);
	case 2: return sendmsg(fd, &message, 0);
	case 3: return writev(fd, &part, 1);
	default: return sendmmsg(fd, &many, 1, 0);
	}
}

static void interrupt_writers(int flags, const struct timeval *limit)
{
	int fd = listener(), client;
	catch_signal(SIGUSR1, flags);
	for (int call = 0; call < 5; call++) {
		int server = served(fd, &client);
		fill(server, client);
		if (limit)
			T(setsockopt(server, SOL_SOCKET, SO_SNDTIMEO, limit, sizeof *limit));
		pthread_t other = signal_then(drain_slowly, &client);
		long result = write_by(call, server);
		said_after(call, result, other);
		close(server);
		close(client);
	}
}

CASE(a_signal_ends_every_kind_of_write) { interrupt_writers(0, NULL); }
CASE(a_restarting_signal_ends_no_kind_of_write) { interrupt_writers(SA_RESTART, NULL); }
CASE(a_signal_ends_a_write_with_a_time_limit) { interrupt_writers(SA_RESTART, &(struct timeval){.tv_sec = 9}); }

CASE(a_signal_in_the_middle_of_a_write_tells_how_much_went)
{
	struct trio all = trio();
	static char big[32 << 20];
	catch_signal(SIGUSR1, SA_RESTART);
	pthread_t signal = signal_waits();
	long taken = write(all.server, big, sizeof big);
	end_signals(signal);
	say("some went: %d", taken > 0 && taken < (long)sizeof big);
}

static void connect_guest(void *unused)
{
	(void)unused;
	guest();
}

static void interrupt_accept(int flags, const struct timeval *limit)
{
	int fd = listener();
	catch_signal(SIGUSR1, flags);
	if (limit)
		T(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, limit, sizeof *limit));
	for (int call = 0; call < 2; call++) {
		pthread_t other = signal_then(connect_guest, NULL);
		int accepted = call ? accept4(fd, NULL, NULL, SOCK_CLOEXEC) : accept(fd, NULL, NULL);
		said_after(call, accepted < 0 ? -1 : 1, other);
		EXPECT(fd, accepted < 0 ? POLLIN : 0);
		if (accepted < 0)
			FD(accept(fd, NULL, NULL));
	}
}

CASE(a_signal_ends_accept) { interrupt_accept(0, NULL); }
CASE(a_restarting_signal_does_not_end_accept) { interrupt_accept(SA_RESTART, NULL); }
CASE(a_signal_ends_accept_with_a_time_limit) { interrupt_accept(SA_RESTART, &(struct timeval){.tv_sec = 9}); }

static long wait_by(int call, int fd)
{
	struct pollfd watched = {.fd = fd, .events = POLLIN};
	struct timespec limit = {.tv_sec = 5};
	struct timeval short_limit = {.tv_sec = 5};
	struct epoll_event event = {.events = EPOLLIN};
	fd_set in;
	int set = epoll_create1(EPOLL_CLOEXEC);
	epoll_ctl(set, EPOLL_CTL_ADD, fd, &event);
	FD_ZERO(&in);
	FD_SET(fd, &in);
	switch (call) {
	case 0: return poll(&watched, 1, 5000);
	case 1: return ppoll(&watched, 1, &limit, NULL);
	case 2: return select(fd + 1, &in, NULL, NULL, &short_limit);
	case 3: return pselect(fd + 1, &in, NULL, NULL, &limit, NULL);
	case 4: return epoll_wait(set, &event, 1, 5000);
	case 5: return epoll_pwait(set, &event, 1, 5000, NULL);
	default: return epoll_pwait2(set, &event, 1, &limit, NULL);
	}
}

static void interrupt_waits(int flags)
{
	struct trio all = trio();
	catch_signal(SIGUSR1, flags);
	for (int call = 0; call < 7; call++) {
		pthread_t other = signal_then(write_x, &all.client);
		said_after(call, wait_by(call, all.server), other);
		EXPECT(all.server, POLLIN | POLLOUT);
		T(read(all.server, &(char){0}, 1));
	}
}

CASE(a_signal_ends_every_kind_of_wait) { interrupt_waits(0); }
CASE(a_restarting_signal_ends_every_kind_of_wait) { interrupt_waits(SA_RESTART); }

CASE(a_signal_mask_holds_during_a_wait)
{
	struct trio all = trio();
	sigset_t usr1, none;
	struct epoll_event event = {.events = EPOLLIN};
	struct timespec limit = {.tv_nsec = 30000000};
	struct pollfd watched = {.fd = all.server, .events = POLLIN};
	fd_set in;
	int set = epoll_create1(0);
	T(epoll_ctl(set, EPOLL_CTL_ADD, all.server, &event));
	sigemptyset(&none);
	sigemptyset(&usr1);
	sigaddset(&usr1, SIGUSR1);
	catch_signal(SIGUSR1, 0);
	FD_ZERO(&in);
	FD_SET(all.server, &in);
	/* Blocked during the wait: it goes on. Blocked outside, open inside: it ends. */
	raise(SIGUSR1);
	say("signals %d", signals_caught());
	pthread_sigmask(SIG_BLOCK, &usr1, NULL);
	for (int call = 0; call < 4; call++) {
		kill(getpid(), SIGUSR1);
		struct timespec *timeout = &limit;
		long open = call == 0 ? ppoll(&watched, 1, timeout, &none) : call == 1 ? pselect(all.server + 1, &in, NULL, NULL, timeout, &none)
			  : call == 2 ? epoll_pwait(set, &event, 1, 30, &none) : epoll_pwait2(set, &event, 1, timeout, &none);
		said(call, open);
		FD_ZERO(&in);
		FD_SET(all.server, &in);
	}
	pthread_sigmask(SIG_UNBLOCK, &usr1, NULL);
	for (int call = 0; call < 3; call++) {
		pthread_t signal = signal_waits();
		long shut = call == 0 ? ppoll(&watched, 1, &limit, &usr1) : call == 1 ? epoll_pwait(set, &event, 1, 30, &usr1)
			  : epoll_pwait2(set, &event, 1, &limit, &usr1);
		end_signals(signal);
		said(call, shut);
	}
}

CASE(waits_time_out_with_nothing_to_tell)
{
	struct trio all = trio();
	struct epoll_event event = {.events = EPOLLIN};
	struct pollfd watched = {.fd = all.server, .events = POLLIN};
	int set = epoll_create1(0);
	T(epoll_ctl(set, EPOLL_CTL_ADD, all.server, &event));
	struct timespec start, limit = {.tv_nsec = 25000000}, zero = {0};
	for (int call = 0; call < 8; call++) {
		now(&start);
		struct timeval some = {.tv_usec = 25000};
		fd_set in;
		FD_ZERO(&in);
		FD_SET(all.server, &in);
		long result = 0;
		switch (call) {
		case 0: result = poll(&watched, 1, 25); break;
		case 1: result = ppoll(&watched, 1, &limit, NULL); break;
		case 2: result = select(all.server + 1, &in, NULL, NULL, &some); break;
		case 3: result = pselect(all.server + 1, &in, NULL, NULL, &limit, NULL); break;
		case 4: result = epoll_wait(set, &event, 1, 25); break;
		case 5: result = epoll_pwait2(set, &event, 1, &limit, NULL); break;
		case 6: result = epoll_pwait2(set, &event, 1, &zero, NULL); break;
		default: result = poll(&watched, 1, 0); break;
		}
		say("%ld, waited: %d", result, elapsed_ms(&start) >= 25);
	}
}

CASE(waits_refuse_what_the_kernel_refuses)
{
	struct trio all = trio();
	struct epoll_event events[2] = {{.events = EPOLLIN}};
	struct timespec bad = {.tv_nsec = 1000000000}, negative = {.tv_sec = -1};
	struct pollfd watched = {.fd = all.server, .events = POLLIN};
	fd_set in;
	int set = epoll_create1(0);
	volatile int none = 0, less = -1;
	T(epoll_ctl(set, EPOLL_CTL_ADD, all.server, events));
	T(epoll_wait(set, events, none, 0));
	T(epoll_wait(set, events, less, 0));
	T(epoll_wait(all.server, events, 1, 0));
	T(epoll_wait(-1, events, 1, 0));
	struct epoll_event *volatile nowhere = NULL;
	T(write(all.client, "x", 1));
	EXPECT(all.server, POLLIN | POLLOUT);
	T(epoll_wait(set, nowhere, 1, 0));
	T(read(all.server, &(char){0}, 1));
	T(epoll_pwait2(set, events, 1, &bad, NULL));
	T(epoll_pwait2(set, events, 1, &negative, NULL));
	T(ppoll(&watched, 1, &bad, NULL));
	T(ppoll(&watched, 1, &negative, NULL));
	FD_ZERO(&in);
	FD_SET(all.server, &in);
	T(pselect(all.server + 1, &in, NULL, NULL, &bad, NULL));
	T(select(less, &in, NULL, NULL, &(struct timeval){0}));
	watched.fd = all.client + 9;
	T(poll(&watched, 1, 0));
	say("%s", events_text((unsigned)watched.revents));
	FD_SET(all.client + 9, &in);
	T(select(all.client + 10, &in, NULL, NULL, &(struct timeval){0}));
	watched.fd = -1;
	T(poll(&watched, 1, 0));
	T(poll(NULL, 0, 0));
}

CASE(a_storm_of_signals_loses_no_byte)
{
	struct trio all = trio();
	static char big[3000000], got[3000000];
	for (size_t i = 0; i < sizeof big; i++)
		big[i] = (char)(i * 7 + i / 1000);
	pid_t child = fork();
	if (child == 0) {
		close(all.server);
		if (write_all(all.client, big, sizeof big) != sizeof big)
			_exit(1);
		_exit(read_all(all.client, got, sizeof got) == sizeof got && !memcmp(big, got, sizeof got) ? 0 : 2);
	}
	catch_signal(SIGPROF, 0);
	catch_signal(SIGVTALRM, SA_RESTART);
	timer_t timer;
	struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGPROF};
	struct itimerspec every = {.it_interval.tv_nsec = 1000000, .it_value.tv_nsec = 1000000};
	T(timer_create(CLOCK_MONOTONIC, &event, &timer));
	T(timer_settime(timer, 0, &every, NULL));
	long done = 0;
	while (done < (long)sizeof got) {
		long taken = read(all.server, got + done, sizeof got - (size_t)done);
		if (taken < 0 && errno == EINTR)
			continue;
		if (taken <= 0)
			break;
		done += taken;
	}
	say("%ld read, same: %d", done, !memcmp(big, got, sizeof got));
	for (done = 0; done < (long)sizeof got;) {
		long taken = write(all.server, got + done, sizeof got - (size_t)done);
		if (taken < 0 && errno == EINTR)
			continue;
		if (taken <= 0)
			break;
		done += taken;
	}
	say("%ld written", done);
	timer_delete(timer);
	reap(child);
}

CASE(a_storm_of_signals_loses_no_connection)
{
	int fd = listener();
	catch_signal(SIGPROF, 0);
	timer_t timer;
	struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGPROF};
	struct itimerspec every = {.it_interval.tv_nsec = 700000, .it_value.tv_nsec = 700000};
	pid_t child = fork();
	if (child == 0) {
		close(fd);
		char byte;
		int answered = 0;
		for (int i = 0; i < 50; i++) {
			int client = guest();
			answered += read_all(client, &byte, 1) == 1;
			close(client);
		}
		_exit(answered);
	}
	T(timer_create(CLOCK_MONOTONIC, &event, &timer));
	T(timer_settime(timer, 0, &every, NULL));
	int accepted = 0;
	while (accepted < 50) {
		int server = accept(fd, NULL, NULL);
		if (server < 0 && errno == EINTR)
			continue;
		if (server < 0)
			break;
		accepted++;
		while (write(server, "x", 1) < 0 && errno == EINTR)
			;
		close(server);
	}
	timer_delete(timer);
	say("%d accepted", accepted);
	reap(child);
}

static void close_it(void *fd) { close(*(int *)fd); }

static void end_it(void *fd) { shutdown(*(int *)fd, SHUT_RDWR); }
static void end_reads(void *fd) { shutdown(*(int *)fd, SHUT_RD); }
static void end_writes(void *fd) { shutdown(*(int *)fd, SHUT_WR); }
static void reset_it(void *fd) { reset(*(int *)fd); }

CASE(a_shutdown_ends_every_kind_of_read)
{
	int fd = listener(), client;
	for (enum call call = READ; call < READERS; call++) {
		int server = served(fd, &client);
		pthread_t ender = after_ms(10, call % 2 ? end_it : end_reads, &server);
		said(call, read_by(call, server));
		pthread_join(ender, NULL);
		close(server);
	}
}

CASE(a_shutdown_of_writing_ends_no_read)
{
	struct trio all = trio();
	pthread_t ender = after_ms(10, end_writes, &all.server), writer = after_ms(30, write_x, &all.client);
	T(read(all.server, &(char){0}, 1));
	pthread_join(ender, NULL);
	pthread_join(writer, NULL);
}

CASE(a_shutdown_ends_every_kind_of_write)
{
	int fd = listener(), client;
	catch_signal(SIGPIPE, 0);
	for (int call = 0; call < 5; call++) {
		int server = served(fd, &client);
		fill(server, client);
		pthread_t ender = after_ms(20, call % 2 ? end_it : end_writes, &server);
		said(call, write_by(call, server));
		pthread_join(ender, NULL);
		close(server);
		close(client);
	}
}

CASE(a_reset_ends_every_kind_of_read)
{
	int fd = listener(), client;
	for (enum call call = READ; call < READERS; call++) {
		int server = served(fd, &client);
		pthread_t ender = after_ms(10, reset_it, &client);
		said(call, read_by(call, server));
		pthread_join(ender, NULL);
		close(server);
	}
}

CASE(a_reset_ends_every_kind_of_write)
{
	int fd = listener(), client;
	catch_signal(SIGPIPE, 0);
	for (int call = 0; call < 5; call++) {
		int server = served(fd, &client);
		fill(server, client);
		pthread_t ender = after_ms(20, reset_it, &client);
		/* With an error, or with what the reset made room for. */
		say("call %d ends: %d", call, write_by(call, server) != 0);
		pthread_join(ender, NULL);
		close(server);
	}
}

CASE(a_shutdown_ends_every_kind_of_wait)
{
	int fd = listener(), client;
	for (int call = 0; call < 7; call++) {
		int server = served(fd, &client);
		pthread_t ender = after_ms(10, end_it, &server);
		said(call, wait_by(call, server));
		pthread_join(ender, NULL);
		close(server);
	}
}

CASE(a_shutdown_of_a_listener_ends_every_kind_of_wait)
{
	for (int call = 0; call < 4; call++) {
		int fd = listener();
		pthread_t ender = after_ms(10, end_it, &fd);
		said(call, wait_by(call, fd));
		pthread_join(ender, NULL);
		close(fd);
	}
}

CASE(closing_a_watched_descriptor_wakes_nobody)
{
	struct trio all = trio();
	struct epoll_event event = {.events = EPOLLIN | EPOLLRDHUP};
	int set = epoll_create1(0);
	T(epoll_ctl(set, EPOLL_CTL_ADD, all.server, &event));
	pthread_t closer = after_ms(10, close_it, &all.server);
	T(epoll_wait(set, &event, 1, 50));
	pthread_join(closer, NULL);
	EXPECT(all.client, POLLIN | POLLOUT | POLLRDHUP);
}

CASE(a_file_is_sent_though_signals_come)
{
	struct trio all = trio();
	static char block[1 << 20];
	char path[] = "/tmp/parityXXXXXX";
	int file = mkstemp(path);
	unlink(path);
	for (int i = 0; i < 16; i++)
		if (write(file, block, sizeof block) != sizeof block)
			say("no room for the file");
	catch_signal(SIGUSR1, SA_RESTART);
	pthread_t signal = signal_waits();
	off_t offset = 0;
	long sent = sendfile(all.server, file, &offset, 16 << 20);
	end_signals(signal);
	say("some went: %d, offset fits: %d", sent > 0 && sent < 16 << 20, offset == sent);
}

CASE(a_recv_of_nothing_waits_once)
{
	struct trio all = trio();
	struct timeval limit = {.tv_usec = 30000};
	struct timespec start;
	T(setsockopt(all.server, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit));
	now(&start);
	T(recv(all.server, NULL, 0, 0));
	T(recv(all.server, NULL, 0, MSG_WAITALL));
	T(recv(all.server, NULL, 0, MSG_PEEK));
	say("waited: %d", elapsed_ms(&start) >= 85);
	T(recv(all.server, NULL, 0, MSG_DONTWAIT));
	limit.tv_usec = 0;
	T(setsockopt(all.server, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit));
	for (int flags = 0; flags < 2; flags++) {
		catch_signal(SIGUSR1, flags ? SA_RESTART : 0);
		pthread_t signal = signal_waits();
		T(recv(all.server, NULL, 0, 0));
		end_signals(signal);
	}
	pthread_t other = after_ms(20, write_x, &all.client);
	T(recv(all.server, NULL, 0, 0));
	pthread_join(other, NULL);
	T(recv(all.server, &(char){0}, 1, 0));
	T(set_nonblocking(all.server, 1));
	T(recv(all.server, NULL, 0, 0));
	T(shutdown(all.client, SHUT_WR));
	EXPECT(all.server, POLLIN | POLLOUT | POLLRDHUP);
	T(recv(all.server, NULL, 0, 0));
}
