/* A server that leaves a child behind: `linger listener|connection|nothing PORT`.
 *
 * It accepts one client, forks, and says the child's id. The child keeps what the first argument says and closes the rest; both
 * then wait for a signal. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

int main(int argc, char **argv)
{
	if (argc != 3)
		return 2;
	int on = 1, listener = socket(AF_INET, SOCK_STREAM, 0);
	struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((unsigned short)atoi(argv[2]))};
	setvbuf(stdout, NULL, _IOLBF, 0);
	address.sin_addr.s_addr = inet_addr(getenv("TEST_HOST") ?: "127.0.0.1");
	setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
	if (bind(listener, (void *)&address, sizeof address) || listen(listener, 10)) {
		printf("no listener: %s\n", strerrorname_np(errno));
		return 1;
	}
	puts("listening");
	int client = accept(listener, NULL, NULL);
	pid_t child = fork();
	if (child == 0) {
		if (strcmp(argv[1], "listener"))
			close(listener);
		if (strcmp(argv[1], "connection"))
			close(client);
		printf("child %d\n", getpid());
	}
	for (;;)
		pause();
}
