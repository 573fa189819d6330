/* The runner: `cases PORT CONNECT_PORT CASE`, or `cases --list`. */
#include "parity.h"

#include <stdarg.h>

#define CASES_MAX 500
#define PATIENCE_MS 5000

int listen_port;
int connect_port;

static struct {
	const char *name;
	void (*run)(void);
} cases[CASES_MAX];
static int case_count;

void register_case(const char *name, void (*run)(void))
{
	if (case_count == CASES_MAX)
		abort();
	cases[case_count].name = name;
	cases[case_count++].run = run;
}

static const char *errno_text(int error)
{
	const char *name = strerrorname_np(error);
	return name ? name : "?";
}

long trace(const char *call, long result)
{
	int error = errno;
	if (result < 0)
		printf("%s = %ld %s\n", call, result, errno_text(error));
	else
		printf("%s = %ld\n", call, result);
	errno = error;
	return result;
}

int trace_fd(const char *call, int result)
{
	int error = errno;
	printf("%s = %s\n", call, result < 0 ? errno_text(error) : "a descriptor");
	errno = error;
	return result;
}

void say(const char *format, ...)
{
	va_list arguments;
	va_start(arguments, format);
	vprintf(format, arguments);
	va_end(arguments);
	putchar('\n');
}

const char *events_text(unsigned events)
{
	static char text[4][100];
	static int turn;
	static const struct {
		unsigned bit;
		const char *name;
	} names[] = {{POLLIN, "IN"}, {POLLPRI, "PRI"}, {POLLOUT, "OUT"}, {POLLERR, "ERR"},
		     {POLLHUP, "HUP"}, {POLLNVAL, "NVAL"}, {POLLRDHUP, "RDHUP"}};
	char *out = text[turn++ % 4];
	out[0] = 0;
	for (size_t i = 0; i < sizeof names / sizeof *names; i++)
		if (events & names[i].bit) {
			if (*out)
				strcat(out, "|");
			strcat(out, names[i].name);
		}
	if (!*out)
		strcpy(out, "nothing");
	return out;
}

void now(struct timespec *start) { clock_gettime(CLOCK_MONOTONIC, start); }

long elapsed_ms(const struct timespec *start)
{
	struct timespec end;
	now(&end);
	return (end.tv_sec - start->tv_sec) * 1000 + (end.tv_nsec - start->tv_nsec) / 1000000;
}

void expect(const char *name, int fd, int expected)
{
	struct timespec start;
	struct pollfd watched = {.fd = fd, .events = POLLIN | POLLPRI | POLLOUT | POLLRDHUP};
	int error = errno;
	now(&start);
	do {
		poll(&watched, 1, 0);
		if (watched.revents == expected)
			break;
		usleep(1000);
	} while (elapsed_ms(&start) < PATIENCE_MS);
	printf("%s: %s\n", name, events_text((unsigned)watched.revents));
	errno = error;
}

int await(int fd, int events)
{
	struct pollfd watched = {.fd = fd, .events = (short)events};
	return poll(&watched, 1, PATIENCE_MS) == 1 ? watched.revents : 0;
}

static const char *port_text(int port)
{
	if (port == 0)
		return "0";
	if (port == listen_port)
		return "PORT";
	return port == connect_port ? "CONNECT_PORT" : "ephemeral";
}

void say_address(const char *what, const struct sockaddr *address, socklen_t length)
{
	char ip[INET6_ADDRSTRLEN] = "?";
	if (address->sa_family == AF_INET) {
		const struct sockaddr_in *in = (const void *)address;
		inet_ntop(AF_INET, &in->sin_addr, ip, sizeof ip);
		say("%s: %s:%s, %u bytes", what, ip, port_text(ntohs(in->sin_port)), length);
	} else if (address->sa_family == AF_INET6) {
		const struct sockaddr_in6 *in = (const void *)address;
		inet_ntop(AF_INET6, &in->sin6_addr, ip, sizeof ip);
		say("%s: [%s]:%s scope %u flow %u, %u bytes", what, ip, port_text(ntohs(in->sin6_port)),
		    in->sin6_scope_id, in->sin6_flowinfo, length);
	} else {
		say("%s: family %d, %u bytes", what, address->sa_family, length);
	}
}

void say_names(const char *what, int fd)
{
	struct sockaddr_storage name;
	socklen_t length = sizeof name;
	char text[100];
	memset(&name, 0, sizeof name);
	snprintf(text, sizeof text, "%s itself", what);
	if (getsockname(fd, (void *)&name, &length) < 0)
		say("%s: %s", text, errno_text(errno));
	else
		say_address(text, (void *)&name, length);
	length = sizeof name;
	memset(&name, 0, sizeof name);
	snprintf(text, sizeof text, "%s peer", what);
	if (getpeername(fd, (void *)&name, &length) < 0)
		say("%s: %s", text, errno_text(errno));
	else
		say_address(text, (void *)&name, length);
}

void say_bytes(const char *what, const void *bytes, long length)
{
	const unsigned char *byte = bytes;
	printf("%s: \"", what);
	for (long i = 0; i < length; i++)
		printf(byte[i] >= 32 && byte[i] < 127 ? "%c" : "\\x%02x", byte[i]);
	puts("\"");
}

/* What stands for an address of the loopback: one of the network TEST_HOST is in, or TEST_HOST6. */
static const char *standing_for(const char *ip)
{
	static char text[INET6_ADDRSTRLEN + sizeof "::ffff:"];
	const char *host = getenv("TEST_HOST"), *host6 = getenv("TEST_HOST6"), *dot = host ? strrchr(host, '.') : NULL;
	const char *v4 = strncmp(ip, "::ffff:", 7) ? ip : ip + 7;
	if (host6 && !strcmp(ip, "::1"))
		return host6;
	if (!dot || strncmp(v4, "127.0.0.", 8))
		return ip;
	snprintf(text, sizeof text, "%.*s%.*s%s", (int)(v4 - ip), ip, (int)(dot + 1 - host), host, v4 + 8);
	return text;
}

struct sockaddr_in v4(const char *ip, int port)
{
	struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
	inet_pton(AF_INET, standing_for(ip), &address.sin_addr);
	return address;
}

struct sockaddr_in6 v6(const char *ip, int port)
{
	struct sockaddr_in6 address = {.sin6_family = AF_INET6, .sin6_port = htons((uint16_t)port)};
	inet_pton(AF_INET6, standing_for(ip), &address.sin6_addr);
	return address;
}

int bind_v4(int fd, const char *ip, int port)
{
	struct sockaddr_in address = v4(ip, port);
	return bind(fd, (void *)&address, sizeof address);
}

int bind_v6(int fd, const char *ip, int port)
{
	struct sockaddr_in6 address = v6(ip, port);
	return bind(fd, (void *)&address, sizeof address);
}

int connect_v4(int fd, int port)
{
	struct sockaddr_in address = v4("127.0.0.1", port);
	return connect(fd, (void *)&address, sizeof address);
}

int connect_v6(int fd, const char *ip, int port)
{
	struct sockaddr_in6 address = v6(ip, port);
	return connect(fd, (void *)&address, sizeof address);
}

static void must(int good, const char *what)
{
	if (!good) {
		say("cannot go on: %s: %s", what, errno_text(errno));
		fflush(stdout);
		_exit(3);
	}
}

int listener(void)
{
	int on = 1, fd = socket(AF_INET, SOCK_STREAM, 0);
	must(fd >= 0, "socket");
	must(setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) == 0, "SO_REUSEADDR");
	must(bind_v4(fd, "127.0.0.1", listen_port) == 0, "bind");
	must(listen(fd, 100) == 0, "listen");
	return fd;
}

int guest(void)
{
	int on = 1, fd = socket(AF_INET, SOCK_STREAM, 0);
	must(fd >= 0, "socket of a guest");
	must(connect_v4(fd, listen_port) == 0, "connect of a guest");
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
	return fd;
}

void until_refused(void)
{
	struct timespec start;
	now(&start);
	int error = 0;
	do {
		int fd = socket(AF_INET, SOCK_STREAM, 0);
		error = connect_v4(fd, listen_port) ? errno : 0;
		close(fd);
	} while (error != ECONNREFUSED && elapsed_ms(&start) < PATIENCE_MS);
	say("the port: %s", errno_text(error));
}

int served(int listening, int *client)
{
	*client = guest();
	must(await(listening, POLLIN) & POLLIN, "a connection in the backlog");
	int fd = accept(listening, NULL, NULL);
	must(fd >= 0, "accept");
	return fd;
}

struct trio trio(void)
{
	struct trio all;
	all.listening = listener();
	all.server = served(all.listening, &all.client);
	return all;
}

void close_trio(struct trio *all)
{
	close(all->client);
	close(all->server);
	close(all->listening);
}

long read_all(int fd, void *buffer, long length)
{
	long done = 0;
	while (done < length) {
		if (!await(fd, POLLIN))
			break;
		long taken = read(fd, (char *)buffer + done, (size_t)(length - done));
		if (taken <= 0)
			break;
		done += taken;
	}
	return done;
}

long write_all(int fd, const void *bytes, long length)
{
	long done = 0;
	while (done < length) {
		long taken = write(fd, (const char *)bytes + done, (size_t)(length - done));
		if (taken <= 0)
			break;
		done += taken;
	}
	return done;
}

long take_away(int fd, long length)
{
	static char block[65536];
	long done = 0, taken;
	while (done < length && (taken = read(fd, block, sizeof block)) > 0)
		done += taken;
	return done;
}

int leave_no_descriptors(struct rlimit *old)
{
	getrlimit(RLIMIT_NOFILE, old);
	int next = dup(STDOUT_FILENO);
	close(next);
	struct rlimit none = {.rlim_cur = (rlim_t)next, .rlim_max = old->rlim_max};
	must(setrlimit(RLIMIT_NOFILE, &none) == 0, "setrlimit");
	return next;
}

int watch(int set, int operation, int fd, unsigned events, unsigned data)
{
	struct epoll_event event = {.events = events, .data.u32 = data};
	return epoll_ctl(set, operation, fd, &event);
}

static int by_data(const void *one, const void *other)
{
	const struct epoll_event *left = one, *right = other;
	return left->data.u32 != right->data.u32 ? (left->data.u32 < right->data.u32 ? -1 : 1)
						  : (int)left->events - (int)right->events;
}

void look(const char *what, int set, int timeout_ms)
{
	struct epoll_event got[8];
	int count = epoll_wait(set, got, 8, timeout_ms);
	say("%s: %d", what, count);
	if (count > 0)
		qsort(got, (size_t)count, sizeof *got, by_data);
	for (int i = 0; i < count; i++)
		say("  %u %s", got[i].data.u32, events_text(got[i].events));
}

int set_nonblocking(int fd, int on)
{
	int flags = fcntl(fd, F_GETFL);
	return fcntl(fd, F_SETFL, on ? flags | O_NONBLOCK : flags & ~O_NONBLOCK);
}

void reset(int fd)
{
	struct linger linger = {.l_onoff = 1, .l_linger = 0};
	setsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, sizeof linger);
	close(fd);
}

static volatile sig_atomic_t caught;

static void count_signal(int number)
{
	(void)number;
	caught++;
}

int signals_caught(void)
{
	int count = caught;
	caught = 0;
	return count;
}

void catch_signal(int number, int flags)
{
	struct sigaction action = {.sa_handler = count_signal, .sa_flags = flags};
	sigaction(number, &action, NULL);
}

struct later {
	int after_ms;
	void (*act)(void *);
	void *argument;
};

static void *act_later(void *argument)
{
	struct later *later = argument;
	usleep((useconds_t)later->after_ms * 1000);
	later->act(later->argument);
	return NULL;
}

pthread_t after_ms(int wait_ms, void (*act)(void *), void *argument)
{
	/* Signals are for the thread that waits. */
	sigset_t all, old;
	pthread_t thread;
	struct later *later = malloc(sizeof *later);
	*later = (struct later){wait_ms, act, argument};
	sigfillset(&all);
	pthread_sigmask(SIG_BLOCK, &all, &old);
	pthread_create(&thread, NULL, act_later, later);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	return thread;
}

void write_x(void *fd)
{
	if (write(*(int *)fd, "x", 1) != 1)
		say("x was not written: %s", strerrorname_np(errno));
}

/* A thread that is to be interrupted, and what then happens. */
struct interruption {
	pid_t thread;
	pthread_t handle;
	void (*act)(void *);
	void *argument;
};

/* Whether a thread waits in the kernel; how often it has begun to. */
static int is_waiting(pid_t thread, long *times)
{
	char path[60], line[100], state = 0;
	snprintf(path, sizeof path, "/proc/self/task/%d/status", thread);
	FILE *status = fopen(path, "re");
	while (status && fgets(line, sizeof line, status)) {
		sscanf(line, "State: %c", &state);
		sscanf(line, "voluntary_ctxt_switches: %ld", times);
	}
	if (status)
		fclose(status);
	return state == 'S';
}

/* Until a thread has begun to wait once more than `before` times, and goes on waiting. Returns how often it has begun to. */
static long until_waiting(pid_t thread, long before)
{
	struct timespec start;
	long first = 0, second = 0;
	now(&start);
	do {
		int is_first = is_waiting(thread, &first);
		usleep(10000);
		if (is_first && first > before && is_waiting(thread, &second) && first == second)
			break;
	} while (elapsed_ms(&start) < PATIENCE_MS);
	return second;
}

static volatile int is_enough;

static void interrupt(void *argument)
{
	struct interruption *it = argument;
	long times = until_waiting(it->thread, 0);
	do {
		pthread_kill(it->handle, SIGUSR1);
		times = until_waiting(it->thread, times);
	} while (!it->act && !is_enough);
	if (it->act)
		it->act(it->argument);
	free(it);
}

pthread_t signal_then(void (*act)(void *), void *argument)
{
	struct interruption *it = malloc(sizeof *it);
	*it = (struct interruption){gettid(), pthread_self(), act, argument};
	is_enough = 0;
	return after_ms(0, interrupt, it);
}

pthread_t signal_waits(void) { return signal_then(NULL, NULL); }

void end_signals(pthread_t thread)
{
	int error = errno;
	is_enough = 1;
	pthread_join(thread, NULL);
	say("signals: %s", signals_caught() ? "some" : "none");
	errno = error;
}

void fill(int fd, int client)
{
	static char block[65536];
	/* Buffers of a given size do not grow. */
	int size = 20000;
	setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &size, sizeof size);
	setsockopt(client, SOL_SOCKET, SO_RCVBUF, &size, sizeof size);
	/* What is on its way may still free room: full is when nothing more is taken for a while. */
	for (int quiet = 0; quiet < 25; quiet++) {
		while (send(fd, block, sizeof block, MSG_DONTWAIT | MSG_NOSIGNAL) > 0)
			quiet = 0;
		usleep(10000);
	}
}

void reap(pid_t child)
{
	int status = 0;
	waitpid(child, &status, 0);
	if (WIFEXITED(status))
		say("child exits %d", WEXITSTATUS(status));
	else
		say("child killed by %s", sigabbrev_np(WTERMSIG(status)));
}

static void too_late(int number)
{
	(void)number;
	static const char text[] = "TIMEOUT\n";
	ssize_t written = write(STDOUT_FILENO, text, sizeof text - 1);
	_exit(written > 0 ? 4 : 5);
}

int main(int argc, char **argv)
{
	setvbuf(stdout, NULL, _IOLBF, 0);
	if (argc == 2 && !strcmp(argv[1], "--list")) {
		for (int i = 0; i < case_count; i++)
			puts(cases[i].name);
		return 0;
	}
	if (argc != 4)
		return 2;
	listen_port = atoi(argv[1]);
	connect_port = atoi(argv[2]);
	signal(SIGALRM, too_late);
	alarm(30);
	for (int i = 0; i < case_count; i++)
		if (!strcmp(cases[i].name, argv[3])) {
			cases[i].run();
			return 0;
		}
	return 2;
}
