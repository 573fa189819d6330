/* stdio on a socket: streams, dprintf, and what becomes of the number below. */
#include "parity.h"

#include <stdarg.h>

CASE(a_stream_on_a_socket_reads_and_writes)
{
	struct trio all = trio();
	char line[100];
	FILE *stream = fdopen(all.server, "r+");
	T(stream != NULL);
	T(fileno(stream) == all.server);
	T(write(all.client, "one\ntwo\nthr", 11));
	T(fgets(line, sizeof line, stream) == line);
	say_bytes("line", line, (long)strlen(line));
	T(fgets(line, sizeof line, stream) == line);
	say_bytes("line", line, (long)strlen(line));
	T(fgetc(stream) == 't');
	T(ungetc('T', stream) == 'T');
	T(write(all.client, "ee\n", 3));
	T(fgets(line, sizeof line, stream) == line);
	say_bytes("line", line, (long)strlen(line));
	T(fprintf(stream, "%d and %.2f", 42, 2.5));
	T(poll(&(struct pollfd){.fd = all.client, .events = POLLIN}, 1, 20));
	T(fflush(stream));
	T(read_all(all.client, line, 11));
	say_bytes("answer", line, 11);
	T(shutdown(all.client, SHUT_WR));
	T(fgetc(stream));
	T(!!feof(stream));
	T(ferror(stream));
	T(fputs("bye", stream) >= 0);
	T(fclose(stream));
	T(read_all(all.client, line, 3));
	T(read(all.client, line, 1));
	T(fcntl(all.server, F_GETFD));
}

CASE(fdopen_refuses_what_the_kernel_refuses)
{
	struct trio all = trio();
	T(fdopen(all.server, "x") != NULL);
	T(fdopen(all.server, "") != NULL);
	T(fdopen(all.server, "+r") != NULL);
	T(fdopen(-1, "r") != NULL);
	T(!!(fcntl(all.server, F_GETFL) & O_APPEND));
	FILE *stream = fdopen(all.server, "ab");
	T(stream != NULL);
	T(!!(fcntl(all.server, F_GETFL) & O_APPEND));
	T(fseek(stream, 0, SEEK_SET));
	T(ftell(stream));
	T(fgetc(stream));
	T(!!ferror(stream));
	clearerr(stream);
	T(fputc('x', stream));
	T(fclose(stream));
	T(fdopen(all.server, "r") != NULL);
	stream = fdopen(all.client, "r");
	T(fputc('x', stream));
	T(fgetc(stream));
	T(fgetc(stream));
	T(fclose(stream));
}

CASE(buffers_of_a_stream_are_as_they_are_set)
{
	struct trio all = trio();
	char bytes[10];
	FILE *stream = fdopen(all.server, "w");
	T(setvbuf(stream, NULL, _IOLBF, 0));
	T(fputs("half", stream) >= 0);
	T(poll(&(struct pollfd){.fd = all.client, .events = POLLIN}, 1, 20));
	T(fputs("line\n", stream) >= 0);
	T(read_all(all.client, bytes, 9));
	T(setvbuf(stream, NULL, _IONBF, 0));
	T(fputc('x', stream));
	T(read_all(all.client, bytes, 1));
	T(fclose(stream));
}

CASE(two_streams_read_and_write_one_socket)
{
	struct trio all = trio();
	char line[20];
	FILE *in = fdopen(all.server, "r"), *out = fdopen(FD(dup(all.server)), "w");
	for (int round = 0; round < 3; round++) {
		dprintf(all.client, "round %d\n", round);
		T(fgets(line, sizeof line, in) == line);
		T(fputs(line, out) >= 0);
		T(fflush(out));
		T(read_all(all.client, line, 8));
		say_bytes("back", line, 8);
	}
	T(fclose(in));
	T(fputs("last", out) >= 0);
	T(fclose(out));
	T(read_all(all.client, line, 4));
	T(read(all.client, line, 1));
}

static void *drain(void *argument)
{
	static char bytes[65536];
	int fd = *(int *)argument;
	long sum = 0, taken;
	while ((taken = read(fd, bytes, sizeof bytes)) > 0)
		sum += taken;
	return (void *)sum;
}

CASE(a_stream_writes_more_than_any_buffer_holds)
{
	struct trio all = trio();
	pthread_t thread;
	void *sum;
	static char block[100000];
	pthread_create(&thread, NULL, drain, &all.client);
	FILE *stream = fdopen(all.server, "w");
	for (int i = 0; i < 30; i++)
		T(fwrite(block, 1, sizeof block, stream));
	T(fclose(stream));
	pthread_join(thread, &sum);
	say("%ld bytes", (long)sum);
}

CASE(a_stream_tells_of_a_write_that_fails)
{
	struct trio all = trio();
	signal(SIGPIPE, SIG_IGN);
	FILE *stream = fdopen(all.server, "r+");
	reset(all.client);
	EXPECT(all.server, POLLIN | POLLOUT | POLLERR | POLLHUP | POLLRDHUP);
	T(fgetc(stream));
	T(ferror(stream) != 0);
	clearerr(stream);
	T(fputs("lost", stream) >= 0);
	T(fflush(stream));
	T(ferror(stream) != 0);
	T(fputs("lost", stream) >= 0);
	T(fclose(stream));
	T(fcntl(all.server, F_GETFD));
}

CASE(a_stream_in_nonblocking_mode_says_eagain)
{
	struct trio all = trio();
	set_nonblocking(all.server, 1);
	FILE *stream = fdopen(all.server, "r");
	T(fgetc(stream));
	T(ferror(stream) != 0);
	T(feof(stream));
	clearerr(stream);
	T(write(all.client, "x", 1));
	await(all.server, POLLIN);
	T(fgetc(stream) == 'x');
	T(fclose(stream));
}

CASE(a_stream_is_reopened_on_a_file)
{
	struct trio all = trio();
	char byte;
	int number = all.server;
	FILE *stream = fdopen(all.server, "r+");
	T(fputs("flushed", stream) >= 0);
	FILE *again = freopen("/dev/zero", "r", stream);
	T(again == stream);
	T(fileno(again) == number);
	char bytes[8] = "abc";
	T(read_all(all.client, bytes, 7));
	say_bytes("flushed", bytes, 7);
	T(read(all.client, &byte, 1));
	T(fgetc(again));
	T(read(number, &byte, 1));
	T(byte);
	T(fclose(again));
	T(fcntl(number, F_GETFD));
}

static int print_list(int fd, const char *format, ...) __attribute__((format(printf, 2, 3)));
static int print_list(int fd, const char *format, ...)
{
	va_list list;
	va_start(list, format);
	int written = vdprintf(fd, format, list);
	va_end(list);
	return written;
}

CASE(dprintf_takes_arguments_of_every_kind)
{
	struct trio all = trio();
	char text[400];
	int length = T(dprintf(all.server, "plain"));
	T(read_all(all.client, text, length));
	length = T(dprintf(all.server, "%d %s %ld %c %u %x %o %lld|", 1, "two", 3L, '4', 5U, 6, 7, 8LL));
	T(read_all(all.client, text, length));
	say_bytes("words", text, length);
	length = T(dprintf(all.server, "%f %g %e %.1f %.1f %.1f %.1f %.1f %.1f %.1f %d|", 1.5, 2.5, 3.5, 4.0, 5.0,
			   6.0, 7.0, 8.0, 9.0, 10.0, 11));
	T(read_all(all.client, text, length));
	say_bytes("numbers", text, length);
	length = T(dprintf(all.server, "%d %.1f %s %d %.1f %s %d %d %d %d %Lf|", 1, 2.0, "3", 4, 5.0, "6", 7, 8, 9, 10,
			   (long double)11));
	T(read_all(all.client, text, length));
	say_bytes("mixed", text, length);
	length = T(print_list(all.server, "%s-%.3f-%d", "list", 0.125, -1));
	T(read_all(all.client, text, length));
	say_bytes("list", text, length);
	T(dprintf(-1, "%d", 1));
	int file = open("/dev/null", O_WRONLY);
	T(dprintf(file, "%d %f %s", 1, 2.0, "3"));
	signal(SIGPIPE, SIG_IGN);
	T(shutdown(all.server, SHUT_WR));
	T(dprintf(all.server, "%d", 1));
	T(close(all.server));
	T(dprintf(all.server, "%d", 1));
}

CASE(a_stream_below_which_a_socket_was_put_takes_it_along)
{
	struct trio all = trio();
	char bytes[4] = "abc";
	FILE *stream = fopen("/dev/null", "r");
	int number = fileno(stream);
	T(dup2(all.server, number) == number);
	T(close(all.server));
	T(write(all.client, "old", 3));
	EXPECT(number, POLLIN | POLLOUT);
	T(fclose(stream));
	EXPECT(all.client, POLLIN | POLLOUT | POLLERR | POLLHUP | POLLRDHUP);
	close(all.listening);
	int again = open("/dev/zero", O_RDONLY);
	while (again < number)
		again = open("/dev/zero", O_RDONLY);
	T(again == number);
	T(read(number, bytes, 3));
	say_bytes("zeroes", bytes, 3);
}
