/* Echoes 10,000 times to one client and says how often it allocated meanwhile: `echo PORT`, with allocations.so loaded first. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dlfcn.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#define WARM_UP 100
#define ROUNDS 10000

int main(int argc, char **argv)
{
	long (*allocations)(void);
	*(void **)&allocations = dlsym(RTLD_DEFAULT, "allocations");
	if (argc != 2 || !allocations)
		return 2;
	int on = 1, fd = socket(AF_INET, SOCK_STREAM, 0);
	struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((unsigned short)atoi(argv[1]))};
	address.sin_addr.s_addr = inet_addr(getenv("TEST_HOST") ?: "127.0.0.1");
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
	if (bind(fd, (void *)&address, sizeof address) || listen(fd, 10))
		return 3;
	int server = accept(fd, NULL, NULL);
	char bytes[512];
	long before = 0;
	for (int round = 0; round < WARM_UP + ROUNDS; round++) {
		if (round == WARM_UP)
			before = allocations();
		ssize_t taken = read(server, bytes, sizeof bytes);
		if (taken <= 0 || write(server, bytes, (size_t)taken) != taken)
			return 4;
	}
	printf("%ld allocations\n", allocations() - before);
	return 0;
}
