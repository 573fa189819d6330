/* A server of the classic kind: one listener, N processes that accept on it: `prefork accept|epoll PORT N`.
 *
 * Each serves one client at a time: says its process id, echoes, and waits for the client to leave. A client that ends badly is
 * no reason to stop. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <signal.h>
#include <unistd.h>

static int next_client(int listener, int epoll)
{
	for (;;) {
		struct epoll_event event;
		if (epoll >= 0 && epoll_wait(epoll, &event, 1, -1) < 0 && errno != EINTR)
			return -1;
		int client = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
		if (client >= 0)
			return client;
		if (errno != EAGAIN && errno != EINTR && errno != ECONNABORTED)
			return -1;
	}
}

static void serve(int client)
{
	char text[64];
	int length = snprintf(text, sizeof text, "%d\n", getpid());
	while (length > 0 && write(client, text, (size_t)length) == length)
		length = (int)read(client, text, sizeof text);
	close(client);
}

static int work(int listener, int with_epoll)
{
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	int epoll = -1;
	if (with_epoll) {
		struct epoll_event event = {.events = EPOLLIN};
		epoll = epoll_create1(EPOLL_CLOEXEC);
		fcntl(listener, F_SETFL, O_NONBLOCK);
		if (epoll_ctl(epoll, EPOLL_CTL_ADD, listener, &event))
			return 1;
	}
	for (int client; (client = next_client(listener, epoll)) >= 0;)
		serve(client);
	printf("worker %d: %s\n", getpid(), strerrorname_np(errno));
	return 1;
}

int main(int argc, char **argv)
{
	if (argc != 4)
		return 2;
	int on = 1, listener = socket(AF_INET, SOCK_STREAM, 0);
	struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((unsigned short)atoi(argv[2]))};
	setvbuf(stdout, NULL, _IOLBF, 0);
	signal(SIGPIPE, SIG_IGN);
	address.sin_addr.s_addr = inet_addr(getenv("TEST_HOST") ?: "127.0.0.1");
	setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
	if (bind(listener, (void *)&address, sizeof address) || listen(listener, 100)) {
		printf("no listener: %s\n", strerrorname_np(errno));
		return 1;
	}
	for (int worker = 0; worker < atoi(argv[3]); worker++)
		if (fork() == 0)
			return work(listener, !strcmp(argv[1], "epoll"));
	puts("listening");
	for (;;)
		pause();
}
