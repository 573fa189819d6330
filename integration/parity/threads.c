/* Threads: small stacks, many at once, cancelled ones. */
#include "parity.h"

#include <sys/mman.h>

static void *serve_small(void *argument)
{
	char buffer[64];
	long moved = 0, taken;
	int fd = accept(*(int *)argument, NULL, NULL);
	while ((taken = read(fd, buffer, sizeof buffer)) > 0)
		moved += write(fd, buffer, (size_t)taken);
	close(fd);
	return (void *)moved;
}

static void serve_on_stack(size_t bytes)
{
	int fd = listener();
	pthread_attr_t attributes;
	pthread_t thread;
	void *stack = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), *moved;
	pthread_attr_init(&attributes);
	T(pthread_attr_setstack(&attributes, stack, bytes));
	T(pthread_create(&thread, &attributes, serve_small, &fd));
	int client = guest();
	char block[1000] = "", got[1000];
	for (int i = 0; i < 10; i++) {
		T(write(client, block, sizeof block));
		T(read_all(client, got, sizeof got));
	}
	T(shutdown(client, SHUT_WR));
	pthread_join(thread, &moved);
	say("%ld moved", (long)moved);
}

CASE(a_thread_with_16_kib_of_stack_serves) { serve_on_stack(16384); }
CASE(a_thread_with_64_kib_of_stack_serves) { serve_on_stack(65536); }

static void *open_small(void *unused)
{
	(void)unused;
	int fd = listener(), client, server = served(fd, &client);
	long done = write(client, "x", 1) == 1 && read(server, &(char){0}, 1) == 1;
	close(fd);
	return (void *)done;
}

CASE(a_thread_with_64_kib_of_stack_opens_a_listener)
{
	pthread_attr_t attributes;
	pthread_t thread;
	void *done;
	pthread_attr_init(&attributes);
	T(pthread_attr_setstacksize(&attributes, 65536));
	T(pthread_create(&thread, &attributes, open_small, NULL));
	pthread_join(thread, &done);
	say("%ld", (long)done);
}

static void *answer_many(void *argument)
{
	for (int i = 0; i < 10; i++) {
		int server = accept(*(int *)argument, NULL, NULL);
		char byte;
		if (read(server, &byte, 1) == 1 && write(server, &byte, 1) == 1)
			close(server);
	}
	return NULL;
}

static void *ask_many(void *unused)
{
	(void)unused;
	long answered = 0;
	for (int i = 0; i < 10; i++) {
		int client = guest();
		char byte = 'q';
		if (write(client, &byte, 1) == 1)
			answered += read_all(client, &byte, 1) == 1;
		close(client);
	}
	return (void *)answered;
}

CASE(threads_accept_and_answer_side_by_side)
{
	int fd = listener();
	pthread_t servers[4], clients[4];
	long answered = 0;
	for (int i = 0; i < 4; i++)
		pthread_create(&servers[i], NULL, answer_many, &fd);
	for (int i = 0; i < 4; i++)
		pthread_create(&clients[i], NULL, ask_many, NULL);
	for (int i = 0; i < 4; i++) {
		void *count;
		pthread_join(clients[i], &count);
		answered += (long)count;
	}
	for (int i = 0; i < 4; i++)
		pthread_join(servers[i], NULL);
	say("%ld answered", answered);
}

static void *write_lines(void *argument)
{
	char line[32];
	for (int i = 0; i < 200; i++) {
		int length = snprintf(line, sizeof line, "line %d of one thread\n", i);
		if (write(*(int *)argument, line, (size_t)length) != length)
			return (void *)1;
	}
	return NULL;
}

CASE(small_writes_of_threads_do_not_mix)
{
	struct trio all = trio();
	pthread_t threads[4];
	for (int i = 0; i < 4; i++)
		pthread_create(&threads[i], NULL, write_lines, &all.server);
	for (int i = 0; i < 4; i++)
		pthread_join(threads[i], NULL);
	T(shutdown(all.server, SHUT_WR));
	FILE *lines = fdopen(all.client, "r");
	char line[64];
	int whole = 0, at;
	while (fgets(line, sizeof line, lines))
		whole += sscanf(line, "line %d of one thread", &at) == 1 && strstr(line, "of one thread\n") != NULL;
	say("%d whole lines", whole);
}

static void *cancelled(void *argument)
{
	struct pollfd watched = {.fd = *(int *)argument, .events = POLLIN};
	poll(&watched, 1, -1);
	return NULL;
}

static void *cancelled_accept(void *argument) { return (void *)(long)accept(*(int *)argument, NULL, NULL); }
static void *cancelled_write(void *argument)
{
	static char block[1 << 20];
	for (;;)
		if (write(*(int *)argument, block, sizeof block) < 0)
			return NULL;
}

CASE(cancelled_threads_harm_nobody)
{
	struct trio all = trio();
	void *(*runs[])(void *) = {cancelled, cancelled_accept, cancelled_write};
	int *fds[] = {&all.server, &all.listening, &all.server};
	for (int i = 0; i < 3; i++) {
		pthread_t thread;
		void *result;
		pthread_create(&thread, NULL, runs[i], fds[i]);
		usleep(30000);
		T(pthread_cancel(thread));
		pthread_join(thread, &result);
		say("cancelled: %d", result == PTHREAD_CANCELED);
	}
	int client;
	FD(served(all.listening, &client));
	T(write(all.client, "x", 1));
	T(recv(all.server, &(char){0}, 1, 0));
}
