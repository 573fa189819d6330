/* A broker of many threads and its clients, for ThreadSanitizer: `threads PORT`.
 *
 * Two threads accept, each connection has a thread that reads, every line goes to every connection from whichever thread read
 * it, a thread waits in epoll for all of them, and others copy, look at and close descriptors that are in use. Clients are
 * threads too; they count what arrives. ThreadSanitizer judges the rest. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#define CLIENTS 6
#define LINES 150
#define LINE 40
#define VISITORS 2
#define VISITS 40
#define GUESTS_MAX 512

/* What rustc's instrumented code calls and gcc's runtime does not have; memcpy and its like are intercepted. */
void *__tsan_memcpy(void *to, const void *from, size_t count) { return memcpy(to, from, count); }
void *__tsan_memmove(void *to, const void *from, size_t count) { return memmove(to, from, count); }
void *__tsan_memset(void *to, int byte, size_t count) { return memset(to, byte, count); }

static int port, listening, set;
static pthread_mutex_t guests_lock = PTHREAD_MUTEX_INITIALIZER;
static int guests[GUESTS_MAX], guest_count;
static int is_over;

static void fail(const char *what)
{
	perror(what);
	exit(1);
}

static void all(int fd, const char *bytes, size_t length, int is_reading)
{
	while (length > 0) {
		ssize_t moved = is_reading ? recv(fd, (char *)bytes, length, 0) : send(fd, bytes, length, MSG_NOSIGNAL);
		if (moved <= 0)
			fail(is_reading ? "a client reads" : "a client writes");
		bytes += moved;
		length -= (size_t)moved;
	}
}

/* A line of a client to all connections that stay, one write each: short enough to go whole or not at all. */
static void to_all(const char *line)
{
	pthread_mutex_lock(&guests_lock);
	for (int i = 0; i < guest_count; i++) {
		struct iovec parts[] = {{(void *)line, 7}, {(void *)(line + 7), LINE - 7}};
		if (writev(guests[i], parts, 2) != LINE)
			fail("writev");
	}
	pthread_mutex_unlock(&guests_lock);
}

static void *serve(void *argument)
{
	int fd = (int)(long)argument, stays = 0;
	char line[LINE];
	size_t filled = 0;
	for (;;) {
		ssize_t taken = read(fd, line + filled, LINE - filled);
		if (taken <= 0)
			break;
		filled += (size_t)taken;
		if (filled < LINE)
			continue;
		filled = 0;
		if (line[0] == 's') {
			stays = 1;
			pthread_mutex_lock(&guests_lock);
			guests[guest_count++] = fd;
			pthread_mutex_unlock(&guests_lock);
			if (write(fd, line, LINE) != LINE)
				fail("write");
		} else if (line[0] == 'v') {
			if (send(fd, line, LINE, MSG_NOSIGNAL) != LINE && errno != EPIPE && errno != ECONNRESET)
				fail("send");
		} else {
			to_all(line);
		}
	}
	if (stays) {
		pthread_mutex_lock(&guests_lock);
		for (int i = 0; i < guest_count; i++)
			if (guests[i] == fd)
				guests[i] = guests[--guest_count];
		pthread_mutex_unlock(&guests_lock);
	}
	epoll_ctl(set, EPOLL_CTL_DEL, fd, NULL);
	close(fd);
	return NULL;
}

static void *accept_all(void *unused)
{
	for (;;) {
		struct sockaddr_in peer;
		socklen_t length = sizeof peer;
		int fd = accept4(listening, (void *)&peer, &length, SOCK_CLOEXEC);
		if (fd < 0 || __atomic_load_n(&is_over, __ATOMIC_SEQ_CST)) {
			if (fd >= 0)
				close(fd);
			return unused;
		}
		struct epoll_event event = {.events = EPOLLIN | EPOLLET, .data.fd = fd};
		epoll_ctl(set, EPOLL_CTL_ADD, fd, &event);
		pthread_t thread;
		if (pthread_create(&thread, NULL, serve, (void *)(long)fd))
			fail("pthread_create");
		pthread_detach(thread);
	}
}

/* Waits for all, and looks at what is ready, while other threads use and close it. */
static void *look(void *unused)
{
	while (!__atomic_load_n(&is_over, __ATOMIC_SEQ_CST)) {
		struct epoll_event events[16];
		int count = epoll_wait(set, events, 16, 20), waiting;
		for (int i = 0; i < count; i++) {
			struct sockaddr_in name;
			socklen_t length = sizeof name;
			ioctl(events[i].data.fd, FIONREAD, &waiting);
			getpeername(events[i].data.fd, (void *)&name, &length);
			length = sizeof waiting;
			getsockopt(events[i].data.fd, SOL_SOCKET, SO_ERROR, &waiting, &length);
		}
	}
	return unused;
}

/* Copies of connections come and go. */
static void *copy(void *unused)
{
	while (!__atomic_load_n(&is_over, __ATOMIC_SEQ_CST)) {
		pthread_mutex_lock(&guests_lock);
		int fd = guest_count ? dup(guests[0]) : -1;
		pthread_mutex_unlock(&guests_lock);
		if (fd >= 0) {
			char byte;
			recv(fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
			close(fd);
		}
		usleep(500);
	}
	return unused;
}

static int connected(void)
{
	struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
	address.sin_addr.s_addr = inet_addr(getenv("TEST_HOST") ?: "127.0.0.1");
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (connect(fd, (void *)&address, sizeof address))
		fail("connect");
	return fd;
}

static pthread_barrier_t everybody_stays;

static void *client(void *argument)
{
	int fd = connected();
	char line[LINE + 1];
	snprintf(line, sizeof line, "s%-*ld", LINE - 1, (long)argument);
	all(fd, line, LINE, 0);
	all(fd, line, LINE, 1);
	pthread_barrier_wait(&everybody_stays);
	for (int i = 0; i < LINES; i++) {
		snprintf(line, sizeof line, "l%-*d", LINE - 1, i);
		all(fd, line, LINE, 0);
	}
	for (int i = 0; i < LINES * CLIENTS; i++) {
		all(fd, line, LINE, 1);
		if (line[0] != 'l')
			fail("a line");
	}
	/* Nobody leaves before all have everything, or a write of the broker would fail. */
	pthread_barrier_wait(&everybody_stays);
	close(fd);
	return NULL;
}

static void *visit(void *unused)
{
	for (int i = 0; i < VISITS; i++) {
		int fd = connected();
		char line[LINE + 1];
		snprintf(line, sizeof line, "v%-*d", LINE - 1, i);
		all(fd, line, LINE, 0);
		if (i % 3) {
			all(fd, line, LINE, 1);
		} else {
			struct linger linger = {1, 0};
			setsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, sizeof linger);
		}
		close(fd);
	}
	return unused;
}

int main(int argc, char **argv)
{
	pthread_t broker[4], clients[CLIENTS], visitors[VISITORS];
	int on = 1;
	if (argc != 2)
		return 2;
	port = atoi(argv[1]);
	alarm(300);
	pthread_barrier_init(&everybody_stays, NULL, CLIENTS);
	set = epoll_create1(EPOLL_CLOEXEC);
	listening = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	setsockopt(listening, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
	struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
	if (bind(listening, (void *)&address, sizeof address) || listen(listening, 100))
		fail("listen");
	void *(*parts[])(void *) = {accept_all, accept_all, look, copy};
	for (int i = 0; i < 4; i++)
		pthread_create(&broker[i], NULL, parts[i], NULL);
	for (long i = 0; i < CLIENTS; i++)
		pthread_create(&clients[i], NULL, client, (void *)i);
	for (int i = 0; i < VISITORS; i++)
		pthread_create(&visitors[i], NULL, visit, NULL);
	for (int i = 0; i < CLIENTS; i++)
		pthread_join(clients[i], NULL);
	for (int i = 0; i < VISITORS; i++)
		pthread_join(visitors[i], NULL);
	__atomic_store_n(&is_over, 1, __ATOMIC_SEQ_CST);
	for (int i = 0; i < 2; i++)
		close(connected());
	for (int i = 0; i < 4; i++)
		pthread_join(broker[i], NULL);
	puts("every line arrived");
	return 0;
}
