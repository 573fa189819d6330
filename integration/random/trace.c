/* The trace: a line a step, appended whole, so that the lines of both processes stay in their order. */
#include "world.h"

#include <stdarg.h>

static int trace_fd = -1;
static char line[4096];
static size_t used;

void trace_to(const char *path)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
	/* Out of the way of the descriptors that programs make. */
	trace_fd = fcntl(fd, F_DUPFD_CLOEXEC, 900);
	close(fd);
	if (trace_fd < 0) {
		perror(path);
		exit(2);
	}
}

void trace_flush(void)
{
	if (!used)
		return;
	line[used++] = '\n';
	if (write(trace_fd, line, used) != (ssize_t)used)
		_exit(6);
	used = 0;
}

void begin_trace(int number, const char *step)
{
	trace_flush();
	if (number < 0)
		say("%s", step);
	else
		say("%3d %s:", number, step);
}

void say(const char *format, ...)
{
	va_list arguments;
	va_start(arguments, format);
	int length = vsnprintf(line + used, sizeof line - used - 1, format, arguments);
	va_end(arguments);
	used += (size_t)length;
	if (used > sizeof line - 2)
		used = sizeof line - 2;
}

const char *errno_text(int error)
{
	const char *name = strerrorname_np(error);
	return name ? name : "?";
}

void say_error(int error) { say(" %s", errno_text(error)); }

void say_result(long result)
{
	int error = errno;
	if (result < 0)
		say_error(error);
	else
		say(" = %ld", result);
	int signals = signals_caught();
	if (signals)
		say(" +%d SIGPIPE", signals);
	errno = error;
}

void say_skipped(const char *why) { say(" skipped, %s", why); }

void say_bytes(const void *bytes, long length)
{
	const unsigned char *byte = bytes;
	unsigned hash = 2166136261u;
	for (long i = 0; i < length; i++)
		hash = (hash ^ byte[i]) * 16777619u;
	say(" %ld bytes %08x", length, hash);
}

void say_events(unsigned events)
{
	static const struct {
		unsigned bit;
		const char *name;
	} names[] = {{POLLIN, "IN"}, {POLLPRI, "PRI"}, {POLLOUT, "OUT"}, {POLLERR, "ERR"},
		     {POLLHUP, "HUP"}, {POLLNVAL, "NVAL"}, {POLLRDHUP, "RDHUP"}};
	const char *before = " ";
	for (size_t i = 0; i < sizeof names / sizeof *names; i++)
		if (events & names[i].bit) {
			say("%s%s", before, names[i].name);
			before = "|";
		}
	if (!events)
		say(" nothing");
}

void say_address(const struct sockaddr *address, socklen_t length)
{
	char ip[INET6_ADDRSTRLEN] = "?";
	int port = 0;
	if (address->sa_family == AF_INET) {
		const struct sockaddr_in *in = (const void *)address;
		inet_ntop(AF_INET, &in->sin_addr, ip, sizeof ip);
		port = ntohs(in->sin_port);
	} else if (address->sa_family == AF_INET6) {
		const struct sockaddr_in6 *in = (const void *)address;
		inet_ntop(AF_INET6, &in->sin6_addr, ip, sizeof ip);
		port = ntohs(in->sin6_port);
	}
	const char *name = port == 0 ? "0" : port == listen_port ? "PORT" : port == connect_port ? "ELSEWHERE" : "ephemeral";
	say(" %s %s %s %u", address->sa_family == AF_INET6 ? "v6" : "v4", ip, name, length);
}

int is(const char *word, const char *other) { return word && !strcmp(word, other); }
