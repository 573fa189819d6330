/* Numbers whose file was closed without a call of close: they serve their next file, and nothing else. */
#include "parity.h"

#include <spawn.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>

extern char **environ;

/* Past libc: what io_uring, or a runtime with system calls of its own, does. */
static long past_libc(long number, long first)
{
#if defined(__x86_64__)
	long result;
	__asm__ volatile("syscall" : "=a"(result) : "a"(number), "D"(first) : "rcx", "r11", "memory");
	return result;
#elif defined(__aarch64__)
	register long x8 __asm__("x8") = number;
	register long x0 __asm__("x0") = first;
	__asm__ volatile("svc #0" : "+r"(x0) : "r"(x8) : "memory");
	return x0;
#endif
}

/* A connection that lives on in a copy, with bytes waiting, whose number was closed by `close_it`. */
static int closed_number(struct trio *all, int *copy, long (*close_it)(int))
{
	*all = trio();
	*copy = dup(all->server);
	int number = all->server;
	/* The lowest free number is to be this one. */
	T(write(all->client, "old", 3));
	EXPECT(*copy, POLLIN | POLLOUT);
	T(close_it(number));
	return number;
}

/* The next file has its own bytes, and the connection keeps its own. */
static void check(struct trio *all, int copy, int number)
{
	char bytes[8] = "abcdefg";
	T(read(number, bytes, 3));
	say_bytes("of the next file", bytes, 3);
	T(write(number, "new", 3));
	T(close(number));
	T(read(copy, bytes, 8));
	say_bytes("of the connection", bytes, 3);
	T(write(copy, "y", 1));
	T(read_all(all->client, bytes, 1));
	say_bytes("at the client", bytes, 1);
	T(poll(&(struct pollfd){.fd = all->client, .events = POLLIN}, 1, 10));
}

static long by_number(int fd) { return syscall(SYS_close, fd); }
static long by_instruction(int fd) { return past_libc(SYS_close, fd); }
static long by_range_number(int fd) { return syscall(SYS_close_range, fd, fd, 0); }

CASE(a_number_closed_by_syscall_serves_the_next_file)
{
	struct trio all;
	int copy, number = closed_number(&all, &copy, by_number);
	T(open("/dev/zero", O_RDWR) == number);
	check(&all, copy, number);
}

CASE(a_number_closed_by_a_range_of_syscall_serves_the_next_file)
{
	struct trio all;
	int copy, number = closed_number(&all, &copy, by_range_number);
	T(openat(AT_FDCWD, "/dev/zero", O_RDWR) == number);
	check(&all, copy, number);
}

CASE(a_number_closed_past_libc_serves_the_next_open)
{
	struct trio all;
	int copy, number = closed_number(&all, &copy, by_instruction);
	T(open("/dev/zero", O_RDWR) == number);
	check(&all, copy, number);
}

CASE(a_number_closed_past_libc_serves_the_next_stream)
{
	struct trio all;
	int copy, number = closed_number(&all, &copy, by_instruction);
	FILE *stream = fopen("/dev/zero", "r+");
	T(fileno(stream) == number);
	check(&all, copy, number);
}

CASE(a_number_closed_past_libc_serves_the_next_socket)
{
	struct trio all;
	int pair[2], copy, number = closed_number(&all, &copy, by_instruction);
	T(socketpair(AF_UNIX, SOCK_STREAM, 0, pair));
	T(pair[0] == number);
	T(write(pair[1], "own", 3));
	check(&all, copy, number);
}

CASE(a_number_closed_past_libc_serves_every_kind_of_file)
{
	char bytes[8];
	for (int kind = 0; kind < 8; kind++) {
		struct trio all;
		int pair[2] = {-1, -1}, copy, number = closed_number(&all, &copy, by_instruction), made = -1;
		char name[] = "/tmp/mqttshim-parity-XXXXXX";
		switch (kind) {
		case 0: made = pipe(pair) ? -1 : pair[0]; break;
		case 1: made = pipe2(pair, O_NONBLOCK) ? -1 : pair[0]; break;
		case 2: made = eventfd(0, EFD_NONBLOCK); break;
		case 3: made = epoll_create1(0); break;
		case 4: made = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK); break;
		case 5: made = memfd_create("parity", 0); break;
		case 6: made = mkstemp(name); unlink(name); break;
		case 7: made = (int)syscall(SYS_eventfd2, 0, EFD_NONBLOCK); break;
		}
		say("kind %d: %s", kind, made == number ? "the number" : "another number");
		if (kind == 0)
			T(fcntl(made, F_SETFL, O_NONBLOCK));
		T(read(made, bytes, 8));
		T(read(copy, bytes, 8));
		close(made);
		close(pair[1]);
		close(copy);
		close_trio(&all);
	}
}

CASE(closefrom_closes_connections_and_listeners)
{
	struct trio all = trio();
	int kept = fcntl(all.client, F_DUPFD, 0);
	int lowest = dup2(all.client, 3);
	T(lowest == 3);
	closefrom(4);
	T(fcntl(all.server, F_GETFD));
	T(fcntl(all.listening, F_GETFD));
	(void)kept;
	EXPECT(3, POLLIN | POLLOUT | POLLRDHUP);
	T(open("/dev/zero", O_RDONLY) == 4);
	char byte = 'x';
	T(read(4, &byte, 1));
	T(byte);
}

CASE(calls_by_number_reach_the_socket)
{
	struct trio all = trio();
	char bytes[16];
	T(syscall(SYS_write, all.server, "one", 3));
	T(syscall(SYS_sendto, all.server, "two", 3, MSG_NOSIGNAL, NULL, 0));
	T(read_all(all.client, bytes, 6));
	say_bytes("sent", bytes, 6);
	T(write(all.client, "answer", 6));
	EXPECT(all.server, POLLIN | POLLOUT);
	T(syscall(SYS_recvfrom, all.server, bytes, 2, MSG_PEEK, NULL, NULL));
	T(syscall(SYS_read, all.server, bytes, 16));
	say_bytes("read", bytes, 6);
	T(syscall(SYS_recvfrom, all.server, bytes, 2, MSG_DONTWAIT, NULL, NULL));
	int copy = (int)syscall(SYS_dup3, all.server, 50, O_CLOEXEC);
	T(copy);
	T(syscall(SYS_close, all.server));
	T(syscall(SYS_close, all.server));
	T(syscall(SYS_write, copy, "x", 1));
	T(syscall(SYS_shutdown, copy, SHUT_WR));
	T(read_all(all.client, bytes, 1));
	T(read(all.client, bytes, 1));
	T(syscall(SYS_close, copy));
	guest();
	EXPECT(all.listening, POLLIN);
	FD((int)syscall(SYS_accept4, all.listening, NULL, NULL, SOCK_NONBLOCK));
}

CASE(a_spawned_child_that_closes_takes_nothing_from_its_parent)
{
	struct trio all = trio();
	char byte;
	posix_spawn_file_actions_t actions;
	posix_spawn_file_actions_init(&actions);
	posix_spawn_file_actions_addclose(&actions, all.server);
	posix_spawn_file_actions_adddup2(&actions, all.listening, 60);
	posix_spawn_file_actions_addopen(&actions, all.listening, "/dev/null", O_RDONLY, 0);
	pid_t child;
	T(posix_spawn(&child, "/bin/true", &actions, NULL, (char *[]){"true", NULL}, environ));
	reap(child);
	T(write(all.client, "x", 1));
	await(all.server, POLLIN);
	T(read(all.server, &byte, 1));
	guest();
	EXPECT(all.listening, POLLIN);
	FD(accept(all.listening, NULL, NULL));
}

CASE(a_daemon_leaves_its_standard_input_behind)
{
	struct trio all = trio();
	char byte = 'x';
	int said[2];
	T(pipe(said));
	pid_t child = fork();
	if (child == 0) {
		T(dup2(all.server, 0));
		close(all.server);
		int kept = dup(1);
		/* daemon(3) exits in this process, and its child goes on. */
		if (daemon(1, 0))
			_exit(1);
		long taken = read(0, &byte, 1), written = write(0, "y", 1);
		dprintf(kept, "in the daemon: %ld, %ld\n", taken, written);
		_exit(0);
	}
	/* Until the daemon has ended: what the two print has an order. */
	close(said[1]);
	T(read(said[0], &byte, 1));
	reap(child);
	T(write(all.client, "old", 3));
	T(close(all.server));
	EXPECT(all.client, POLLIN | POLLOUT | POLLERR | POLLHUP | POLLRDHUP);
	T(read(all.client, &byte, 1));
}
