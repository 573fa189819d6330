/* A small TCP server for one client, which says what its calls return: `server write|read PORT`.
 *
 * write: writes blocks of 1,000 bytes until told to stop by a signal, and says after each how much it has written.
 * read:  reads until the connection ends, and says how. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

int main(int argc, char **argv)
{
	if (argc != 3)
		return 2;
	int on = 1, fd = socket(AF_INET, SOCK_STREAM, 0);
	struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((unsigned short)atoi(argv[2]))};
	setvbuf(stdout, NULL, _IOLBF, 0);
	address.sin_addr.s_addr = inet_addr(getenv("TEST_HOST") ?: "127.0.0.1");
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
	if (bind(fd, (void *)&address, sizeof address) || listen(fd, 10)) {
		printf("no listener: %s\n", strerrorname_np(errno));
		return 1;
	}
	puts("listening");
	int server = accept(fd, NULL, NULL);
	static char block[1000];
	if (!strcmp(argv[1], "write")) {
		for (long written = 0;;) {
			ssize_t taken = write(server, block, sizeof block);
			if (taken < 0)
				break;
			written += taken;
			printf("written %ld\n", written);
		}
	} else {
		ssize_t taken;
		while ((taken = read(server, block, sizeof block)) > 0)
			printf("read %zd\n", taken);
		printf("end %s\n", taken < 0 ? strerrorname_np(errno) : "of stream");
	}
	/* The end of the connection must be its peer's doing. */
	for (;;)
		pause();
}
