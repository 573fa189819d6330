/* Reading, writing, and the ends of a connection. */
#include "parity.h"

CASE(reads_take_what_is_there)
{
	struct trio all = trio();
	char buffer[32] = {0};
	T(write(all.client, "abcdefghij", 10));
	EXPECT(all.server, POLLIN | POLLOUT);
	T(read(all.server, buffer, 1));
	T(read(all.server, buffer, 3));
	say_bytes("then", buffer, 3);
	T(recv(all.server, buffer, 0, 0));
	T(recv(all.server, buffer, 2, MSG_PEEK));
	say_bytes("peeked", buffer, 2);
	T(recv(all.server, buffer, 32, MSG_PEEK));
	T(recv(all.server, buffer, 32, 0));
	say_bytes("taken", buffer, 6);
	T(recv(all.server, buffer, 32, MSG_DONTWAIT));
	T(recv(all.server, buffer, 32, MSG_DONTWAIT | MSG_PEEK));
	EXPECT(all.server, POLLOUT);
}

CASE(waitall_waits_for_all)
{
	struct trio all = trio();
	char buffer[32] = {0};
	T(write(all.client, "half", 4));
	pid_t child = fork();
	if (child == 0) {
		usleep(50000);
		_exit(write(all.client, "+half", 5) == 5 ? 0 : 1);
	}
	T(recv(all.server, buffer, 9, MSG_WAITALL));
	say_bytes("server", buffer, 9);
	reap(child);
	T(write(all.client, "less", 4));
	T(shutdown(all.client, SHUT_WR));
	T(recv(all.server, buffer, 9, MSG_WAITALL));
	T(recv(all.server, buffer, 9, MSG_WAITALL));
}

CASE(trunc_discards_bytes)
{
	struct trio all = trio();
	char buffer[32] = "untouched";
	T(write(all.client, "abcdefghij", 10));
	await(all.server, POLLIN);
	T(recv(all.server, buffer, 4, MSG_TRUNC));
	say_bytes("buffer", buffer, 9);
	T(recv(all.server, NULL, 2, MSG_TRUNC));
	T(recv(all.server, buffer, 32, 0));
	say_bytes("rest", buffer, 4);
}

CASE(a_nonblocking_read_of_nothing_is_eagain)
{
	struct trio all = trio();
	char byte;
	T(set_nonblocking(all.server, 1));
	T(read(all.server, &byte, 1));
	T(set_nonblocking(all.server, 0));
	struct timeval limit = {.tv_usec = 60000};
	T(setsockopt(all.server, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit));
	struct timespec start;
	now(&start);
	T(read(all.server, &byte, 1));
	say("waited: %d", elapsed_ms(&start) >= 55);
	struct timeval back = {0};
	socklen_t length = sizeof back;
	T(getsockopt(all.server, SOL_SOCKET, SO_RCVTIMEO, &back, &length));
	say("%ld s %s, %u bytes", (long)back.tv_sec, back.tv_usec >= 60000 ? "60 ms" : "less", length);
}

CASE(a_client_that_stops_sending_can_still_be_answered)
{
	struct trio all = trio();
	char buffer[32];
	T(write(all.client, "last words", 10));
	T(shutdown(all.client, SHUT_WR));
	EXPECT(all.server, POLLIN | POLLOUT | POLLRDHUP);
	T(read(all.server, buffer, 32));
	EXPECT(all.server, POLLIN | POLLOUT | POLLRDHUP);
	T(read(all.server, buffer, 32));
	T(read(all.server, buffer, 32));
	T(recv(all.server, buffer, 32, MSG_PEEK));
	T(write(all.server, "answer", 6));
	T(read_all(all.client, buffer, 6));
	say_bytes("client", buffer, 6);
	T(shutdown(all.server, SHUT_WR));
	EXPECT(all.server, POLLIN | POLLOUT | POLLHUP | POLLRDHUP);
	T(read(all.client, buffer, 32));
}

CASE(a_server_that_stops_sending_can_still_be_told)
{
	struct trio all = trio();
	char buffer[32];
	catch_signal(SIGPIPE, 0);
	T(write(all.server, "all I have", 10));
	T(shutdown(all.server, SHUT_WR));
	T(write(all.server, "more", 4));
	say("signals: %d", signals_caught());
	T(send(all.server, "more", 4, MSG_NOSIGNAL));
	say("signals: %d", signals_caught());
	T(read_all(all.client, buffer, 10));
	T(read(all.client, buffer, 10));
	T(write(all.client, "still talking", 13));
	EXPECT(all.server, POLLIN | POLLOUT);
	T(read(all.server, buffer, 32));
	T(shutdown(all.server, SHUT_WR));
	T(close(all.client));
	EXPECT(all.server, POLLIN | POLLOUT | POLLHUP | POLLRDHUP);
	T(read(all.server, buffer, 32));
	T(shutdown(all.server, SHUT_RDWR));
}

CASE(shutdown_of_reading_ends_reads)
{
	struct trio all = trio();
	char buffer[32];
	T(write(all.client, "before", 6));
	await(all.server, POLLIN);
	T(shutdown(all.server, SHUT_RD));
	EXPECT(all.server, POLLIN | POLLOUT | POLLRDHUP);
	T(read(all.server, buffer, 32));
	T(read(all.server, buffer, 32));
	T(write(all.server, "ok", 2));
	T(read_all(all.client, buffer, 2));
}

CASE(shutdown_of_both_ends_both)
{
	struct trio all = trio();
	char buffer[32];
	catch_signal(SIGPIPE, 0);
	T(shutdown(all.server, SHUT_RDWR));
	T(read(all.client, buffer, 32));
	T(read(all.server, buffer, 32));
	T(write(all.server, "x", 1));
	say("signals: %d", signals_caught());
	EXPECT(all.server, POLLIN | POLLOUT | POLLHUP | POLLRDHUP);
}

CASE(shutdown_refuses_what_the_kernel_refuses)
{
	struct trio all = trio();
	int fresh = FD(socket(AF_INET, SOCK_STREAM, 0));
	T(shutdown(fresh, SHUT_WR));
	T(shutdown(fresh, SHUT_RDWR));
	T(shutdown(all.server, 7));
	T(shutdown(all.server, -1));
	T(shutdown(-1, SHUT_WR));
	T(shutdown(0, SHUT_WR));
}

CASE(a_reset_is_reported_once)
{
	struct trio all = trio();
	char buffer[32];
	catch_signal(SIGPIPE, 0);
	reset(all.client);
	EXPECT(all.server, POLLIN | POLLOUT | POLLERR | POLLHUP | POLLRDHUP);
	T(read(all.server, buffer, 32));
	T(read(all.server, buffer, 32));
	EXPECT(all.server, POLLIN | POLLOUT | POLLHUP | POLLRDHUP);
	T(write(all.server, "x", 1));
	say("signals: %d", signals_caught());
	say_names("after a reset", all.server);
}

CASE(a_reset_may_be_met_by_a_write)
{
	struct trio all = trio();
	char buffer[32];
	catch_signal(SIGPIPE, 0);
	reset(all.client);
	EXPECT(all.server, POLLIN | POLLOUT | POLLERR | POLLHUP | POLLRDHUP);
	T(write(all.server, "x", 1));
	say("signals: %d", signals_caught());
	T(write(all.server, "x", 1));
	say("signals: %d", signals_caught());
	T(send(all.server, "x", 1, MSG_NOSIGNAL));
	say("signals: %d", signals_caught());
	T(read(all.server, buffer, 32));
}

CASE(so_error_takes_the_reset)
{
	struct trio all = trio();
	char buffer[32];
	int error = 77;
	socklen_t length = sizeof error;
	T(getsockopt(all.server, SOL_SOCKET, SO_ERROR, &error, &length));
	say("%d", error);
	reset(all.client);
	EXPECT(all.server, POLLIN | POLLOUT | POLLERR | POLLHUP | POLLRDHUP);
	T(getsockopt(all.server, SOL_SOCKET, SO_ERROR, &error, &length));
	say("%s", strerrorname_np(error));
	T(getsockopt(all.server, SOL_SOCKET, SO_ERROR, &error, &length));
	say("%d", error);
	T(read(all.server, buffer, 32));
	EXPECT(all.server, POLLIN | POLLOUT | POLLHUP | POLLRDHUP);
}

CASE(a_reset_loses_what_was_not_read)
{
	struct trio all = trio();
	char buffer[32];
	T(write(all.client, "never read", 10));
	await(all.server, POLLIN);
	reset(all.client);
	EXPECT(all.server, POLLIN | POLLOUT | POLLERR | POLLHUP | POLLRDHUP);
	T(read(all.server, buffer, 32));
	T(read(all.server, buffer, 32));
}

CASE(closing_with_linger_zero_resets_the_client)
{
	struct trio all = trio();
	char buffer[32];
	reset(all.server);
	EXPECT(all.client, POLLIN | POLLOUT | POLLERR | POLLHUP | POLLRDHUP);
	T(read(all.client, buffer, 32));
}

CASE(closing_with_unread_bytes_resets_the_client)
{
	struct trio all = trio();
	char buffer[32];
	T(write(all.client, "unread", 6));
	await(all.server, POLLIN);
	T(close(all.server));
	EXPECT(all.client, POLLIN | POLLOUT | POLLERR | POLLHUP | POLLRDHUP);
	T(read(all.client, buffer, 32));
}

CASE(closing_delivers_what_was_written)
{
	struct trio all = trio();
	static char big[300000], got[300000];
	memset(big, 'x', sizeof big);
	pid_t child = fork();
	if (child == 0) {
		close(all.client);
		ssize_t done = write(all.server, big, sizeof big);
		_exit(done == sizeof big ? 0 : 1);
	}
	T(close(all.server));
	T(read_all(all.client, got, sizeof got));
	T(memcmp(big, got, sizeof big));
	reap(child);
	T(read(all.client, got, 10));
}

CASE(writing_to_a_client_that_closed_ends_in_a_reset)
{
	struct trio all = trio();
	catch_signal(SIGPIPE, 0);
	T(close(all.client));
	EXPECT(all.server, POLLIN | POLLOUT | POLLRDHUP);
	T(write(all.server, "into the void", 13));
	EXPECT(all.server, POLLIN | POLLOUT | POLLERR | POLLHUP | POLLRDHUP);
	T(write(all.server, "x", 1));
	say("signals: %d", signals_caught());
}

CASE(a_full_connection_is_writable_again_when_drained)
{
	struct trio all = trio();
	static char block[65536];
	long written = 0;
	struct epoll_event event = {.events = EPOLLOUT | EPOLLIN};
	int set = epoll_create1(0), full = 0;
	T(set_nonblocking(all.server, 1));
	T(epoll_ctl(set, EPOLL_CTL_ADD, all.server, &event));
	/* What is on its way may still free room: full is when nothing more is taken for a while. */
	do {
		ssize_t taken;
		while ((taken = write(all.server, block, sizeof block)) > 0)
			written += taken;
		full = errno;
	} while (epoll_wait(set, &event, 1, 100) == 1);
	say("%s", strerrorname_np(full));
	T(take_away(all.client, written) == written);
	T(epoll_wait(set, &event, 1, 5000));
	say("%s", events_text(event.events));
	T(write(all.server, "x", 1));
	T(read(all.client, block, sizeof block));
}

CASE(a_blocking_write_waits_for_room)
{
	struct trio all = trio();
	static char big[8000000];
	for (size_t i = 0; i < sizeof big; i++)
		big[i] = (char)(i * 31 + i / 4096);
	pid_t child = fork();
	if (child == 0) {
		static char got[8000000];
		close(all.server);
		usleep(30000);
		long taken = read_all(all.client, got, sizeof got);
		_exit(taken == sizeof got && !memcmp(big, got, sizeof got) ? 0 : 1);
	}
	T(write(all.server, big, sizeof big));
	T(close(all.server));
	reap(child);
}

CASE(a_write_obeys_the_send_timeout)
{
	struct trio all = trio();
	static char block[65536];
	struct timeval limit = {.tv_usec = 80000};
	T(setsockopt(all.server, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit));
	while (write(all.server, block, sizeof block) > 0)
		;
	say("%s", strerrorname_np(errno));
	struct timespec start;
	now(&start);
	while (write(all.server, block, sizeof block) > 0)
		now(&start);
	say("%s, waited: %d", strerrorname_np(errno), elapsed_ms(&start) >= 75);
}

CASE(vectors_are_gathered_and_scattered)
{
	struct trio all = trio();
	char a[4] = "", b[4] = "", c[32] = "";
	struct iovec out[3] = {{"one", 3}, {"", 0}, {"two", 3}};
	struct iovec in[3] = {{a, 2}, {b, 3}, {c, 32}};
	T(writev(all.client, out, 3));
	await(all.server, POLLIN);
	T(readv(all.server, in, 3));
	say_bytes("a", a, 2), say_bytes("b", b, 3), say_bytes("c", c, 1);
	T(writev(all.server, out, 3));
	T(read_all(all.client, c, 6));
	say_bytes("client", c, 6);
	T(writev(all.server, out, 0));
	/* Volatile, or the compiler objects. */
	volatile int count = -1;
	T(writev(all.server, out, count));
	T(readv(all.server, in, count));
	static struct iovec many[1025];
	count = 1025;
	T(writev(all.server, many, count));
	count = 1024;
	T(writev(all.server, many, count));
}

CASE(empty_parts_without_an_address_are_left_out)
{
	struct trio all = trio();
	char a[4] = "", b[4] = "";
	struct iovec out[5] = {{NULL, 0}, {"one", 3}, {NULL, 0}, {"two", 3}, {NULL, 0}};
	struct iovec in[5] = {{NULL, 0}, {a, 3}, {NULL, 0}, {b, 3}, {NULL, 0}};
	T(writev(all.client, out, 5));
	await(all.server, POLLIN);
	T(readv(all.server, in, 5));
	say_bytes("a", a, 3), say_bytes("b", b, 3);
	T(writev(all.server, out, 5));
	T(read_all(all.client, a, 3));
	T(read_all(all.client, b, 3));
	say_bytes("a", a, 3), say_bytes("b", b, 3);
	struct msghdr sent = {.msg_iov = out, .msg_iovlen = 5};
	T(sendmsg(all.server, &sent, 0));
	T(writev(all.server, out, 1));
}

CASE(messages_carry_vectors_and_no_address)
{
	struct trio all = trio();
	char a[4] = "", b[32] = "", name[64], control[64];
	struct iovec out[2] = {{"one", 3}, {"two", 3}}, in[2] = {{a, 2}, {b, 32}};
	struct msghdr sent = {.msg_iov = out, .msg_iovlen = 2};
	struct msghdr got = {.msg_iov = in, .msg_iovlen = 2, .msg_name = name, .msg_namelen = sizeof name,
			     .msg_control = control, .msg_controllen = sizeof control, .msg_flags = 0x55};
	T(sendmsg(all.client, &sent, MSG_NOSIGNAL));
	await(all.server, POLLIN);
	T(recvmsg(all.server, &got, MSG_PEEK));
	T(recvmsg(all.server, &got, 0));
	say("name %u control %zu flags %x", got.msg_namelen, got.msg_controllen, got.msg_flags);
	say_bytes("b", b, 4);
	T(sendmsg(all.server, &sent, 0));
	T(read_all(all.client, b, 6));
	T(recvmsg(all.server, &got, MSG_DONTWAIT));
	struct mmsghdr many[2] = {{.msg_hdr = sent}, {.msg_hdr = sent}};
	T(sendmmsg(all.server, many, 2, 0));
	say("%u %u", many[0].msg_len, many[1].msg_len);
	T(read_all(all.client, b, 12));
	T(write(all.client, "xyz", 3));
	await(all.server, POLLIN);
	struct iovec one[2] = {{a, 1}, {b, 1}};
	struct mmsghdr few[2] = {{.msg_hdr = {.msg_iov = &one[0], .msg_iovlen = 1}},
				 {.msg_hdr = {.msg_iov = &one[1], .msg_iovlen = 1}}};
	T(recvmmsg(all.server, few, 2, MSG_DONTWAIT, NULL));
	say("%c%c", a[0], b[0]);
}

CASE(recvfrom_has_no_address_and_sendto_needs_none)
{
	struct trio all = trio();
	struct sockaddr_in name = {.sin_family = 99}, elsewhere = v4("127.0.0.1", 9);
	socklen_t length = sizeof name;
	char buffer[8];
	T(write(all.client, "x", 1));
	await(all.server, POLLIN);
	T(recvfrom(all.server, buffer, 8, 0, (void *)&name, &length));
	say("family %d, %u bytes", name.sin_family, length);
	T(sendto(all.server, "y", 1, 0, NULL, 0));
	T(sendto(all.server, "z", 1, 0, (void *)&elsewhere, sizeof elsewhere));
	T(read_all(all.client, buffer, 2));
}

CASE(nothing_may_be_read_and_written)
{
	struct trio all = trio();
	char byte;
	T(write(all.server, "", 0));
	T(send(all.server, "", 0, 0));
	T(set_nonblocking(all.server, 1));
	T(read(all.server, &byte, 0));
	EXPECT(all.client, POLLOUT);
	T(close(all.client));
	EXPECT(all.server, POLLIN | POLLOUT | POLLRDHUP);
	T(read(all.server, &byte, 0));
	T(read(all.server, &byte, 1));
}

CASE(data_calls_need_a_connection)
{
	int fd = listener(), fresh = FD(socket(AF_INET, SOCK_STREAM, 0)), bound = FD(socket(AF_INET, SOCK_STREAM, 0));
	char byte = 0;
	T(bind_v4(bound, "127.0.0.1", 0));
	catch_signal(SIGPIPE, 0);
	int fds[] = {fd, fresh, bound};
	for (int i = 0; i < 3; i++) {
		T(read(fds[i], &byte, 1));
		T(recv(fds[i], &byte, 1, MSG_DONTWAIT));
		T(write(fds[i], &byte, 1));
		say("signals: %d", signals_caught());
		T(send(fds[i], &byte, 1, MSG_NOSIGNAL));
		say("signals: %d", signals_caught());
		say_names("fd", fds[i]);
	}
}

CASE(a_socket_has_no_position)
{
	struct trio all = trio();
	struct stat about;
	char byte;
	int fds[] = {all.listening, all.server};
	for (int i = 0; i < 2; i++) {
		T(lseek(fds[i], 0, SEEK_CUR));
		T(pread(fds[i], &byte, 1, 0));
		T(pwrite(fds[i], &byte, 1, 0));
		T(fstat(fds[i], &about));
		T(S_ISSOCK(about.st_mode));
		T(ftruncate(fds[i], 0));
		T(fsync(fds[i]));
	}
}

CASE(a_closed_descriptor_is_bad)
{
	struct trio all = trio();
	char byte = 0;
	int fds[] = {all.listening, all.server};
	for (int i = 0; i < 2; i++) {
		T(close(fds[i]));
		T(close(fds[i]));
		T(read(fds[i], &byte, 1));
		T(write(fds[i], &byte, 1));
		T(listen(fds[i], 1));
		T(fcntl(fds[i], F_GETFL));
		FD(dup(fds[i]));
		EXPECT(fds[i], POLLNVAL);
	}
}

CASE(a_large_answer_arrives_whole)
{
	struct trio all = trio();
	static char big[5000000], got[5000000];
	unsigned state = 1;
	for (size_t i = 0; i < sizeof big; i++)
		big[i] = (char)((state = state * 1664525 + 1013904223) >> 24);
	pid_t child = fork();
	if (child == 0) {
		close(all.server);
		for (size_t done = 0; done < sizeof big;) {
			ssize_t taken = write(all.client, big + done, sizeof big - done);
			if (taken <= 0)
				_exit(1);
			done += (size_t)taken;
		}
		_exit(0);
	}
	T(read_all(all.server, got, sizeof got));
	T(memcmp(big, got, sizeof big));
	reap(child);
}
