/* Pointers that lead nowhere: EFAULT, and when it is found out. */
#include "parity.h"

CASE(pointers_to_nowhere_are_efault_on_data)
{
	struct trio all = trio();
	char *volatile nowhere[] = {NULL, (char *)1, (char *)-8, (char *)0x8000000000000000};
	for (int i = 0; i < 4; i++) {
		char *bad = nowhere[i];
		struct iovec part = {bad, 4};
		struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
		say("pointer %d, nothing there", i);
		T(recv(all.server, bad, 4, MSG_DONTWAIT));
		T(write(all.server, bad, 4));
		T(send(all.server, bad, 4, MSG_NOSIGNAL));
		T(writev(all.server, &part, 1));
		T(sendmsg(all.server, &message, 0));
		T(write(all.client, "abcd", 4));
		EXPECT(all.server, POLLIN | POLLOUT);
		T(read(all.server, bad, 4));
		T(recv(all.server, bad, 4, 0));
		T(recv(all.server, bad, 4, MSG_PEEK));
		T(readv(all.server, &part, 1));
		T(recvmsg(all.server, &message, 0));
		char buffer[4];
		T(read(all.server, buffer, 4));
		say_bytes("still", buffer, 4);
	}
	EXPECT(all.client, POLLOUT);
}

CASE(pointers_to_nowhere_are_efault_on_vectors)
{
	struct trio all = trio();
	void *volatile nowhere[] = {NULL, (void *)1, (void *)-8};
	T(write(all.client, "abcd", 4));
	EXPECT(all.server, POLLIN | POLLOUT);
	for (int i = 0; i < 3; i++) {
		void *bad = nowhere[i];
		struct msghdr message = {.msg_iov = bad, .msg_iovlen = 1};
		T(readv(all.server, bad, 1));
		T(writev(all.server, bad, 1));
		T(recvmsg(all.server, bad, 0));
		T(sendmsg(all.server, bad, 0));
		T(recvmsg(all.server, &message, 0));
		T(sendmsg(all.server, &message, 0));
		T(recvmmsg(all.server, bad, 1, 0, NULL));
		T(sendmmsg(all.server, bad, 1, 0));
		T(recvmmsg(all.server, bad, 0, 0, NULL));
		T(sendmmsg(all.server, bad, 0, 0));
	}
	T(recv(all.server, (char[8]){0}, 8, 0));
}

CASE(pointers_to_nowhere_are_efault_on_names_and_options)
{
	struct trio all = trio();
	void *volatile nowhere[] = {NULL, (void *)1, (void *)-8};
	int fds[] = {all.server, all.listening}, value = 1;
	for (int i = 0; i < 3; i++)
		for (int k = 0; k < 2; k++) {
			void *bad = nowhere[i];
			socklen_t length = 16;
			struct sockaddr_in name;
			T(getsockname(fds[k], bad, &length));
			T(getsockname(fds[k], (void *)&name, bad));
			T(getpeername(fds[k], bad, &length));
			T(getpeername(fds[k], (void *)&name, bad));
			length = sizeof value;
			T(setsockopt(fds[k], SOL_SOCKET, SO_KEEPALIVE, bad, sizeof value));
			T(setsockopt(fds[k], IPPROTO_TCP, TCP_NODELAY, bad, sizeof value));
			T(getsockopt(fds[k], SOL_SOCKET, SO_KEEPALIVE, bad, &length));
			T(getsockopt(fds[k], SOL_SOCKET, SO_TYPE, bad, &length));
			T(getsockopt(fds[k], IPPROTO_TCP, TCP_NODELAY, bad, &length));
			T(getsockopt(fds[k], SOL_SOCKET, SO_KEEPALIVE, &value, bad));
			T(ioctl(fds[k], FIONBIO, bad));
			if (fds[k] == all.server) {
				T(ioctl(fds[k], FIONREAD, bad));
				T(ioctl(fds[k], SIOCATMARK, bad));
			}
			T(connect(fds[k], bad, 16));
			T(bind(fds[k], bad, 16));
		}
}

CASE(pointers_to_nowhere_cost_accept_its_connection)
{
	int fd = listener();
	void *volatile nowhere[] = {NULL, (void *)1, (void *)-8};
	struct sockaddr_in name;
	for (int i = 0; i < 3; i++) {
		socklen_t length = sizeof name;
		int client = guest();
		await(fd, POLLIN);
		FD(accept(fd, i ? nowhere[i] : (void *)&name, i ? &length : nowhere[0]));
		EXPECT(client, POLLIN | POLLOUT | POLLRDHUP);
		client = guest();
		await(fd, POLLIN);
		FD(accept(fd, (void *)&name, nowhere[i]));
		EXPECT(client, POLLIN | POLLOUT | POLLRDHUP);
	}
	EXPECT(fd, 0);
}

CASE(a_vector_with_a_bad_part_moves_nothing)
{
	struct trio all = trio();
	char good[4] = "", rest[8] = "";
	struct iovec in[2] = {{good, 2}, {(void *)1, 4}}, out[2] = {{"ab", 2}, {(void *)1, 4}};
	T(write(all.client, "abcdef", 6));
	EXPECT(all.server, POLLIN | POLLOUT);
	T(readv(all.server, in, 2));
	T(read(all.server, rest, 8));
	say_bytes("rest", rest, 6);
	T(writev(all.server, out, 2));
	EXPECT(all.client, POLLOUT);
}
