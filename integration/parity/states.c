/* Every call on every state of a socket, from unbound to reset: what each returns, and what poll and TCP_INFO say. */
#include "parity.h"

#include <linux/sockios.h>

static void say_error(int fd)
{
	int error = -1;
	socklen_t length = sizeof error;
	T(getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length));
	say("%s, %u bytes", error > 0 ? strerrorname_np(error) : "no error", length);
}

static void say_state(int fd)
{
	struct tcp_info info = {0};
	socklen_t length = sizeof info;
	T(getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &length));
	say("TCP_INFO state %d", info.tcpi_state);
}

static void receive_all_ways(int fd)
{
	char byte;
	struct iovec part = {&byte, 1};
	struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
	struct mmsghdr many = {.msg_hdr = message};
	struct sockaddr_storage name;
	socklen_t length = sizeof name;
	T(recv(fd, &byte, 1, MSG_DONTWAIT | MSG_PEEK));
	T(recv(fd, &byte, 1, MSG_DONTWAIT));
	T(recvfrom(fd, &byte, 1, MSG_DONTWAIT, (void *)&name, &length));
	T(recvmsg(fd, &message, MSG_DONTWAIT));
	T(recvmmsg(fd, &many, 1, MSG_DONTWAIT, NULL));
	T(recv(fd, &byte, 1, MSG_DONTWAIT | MSG_TRUNC));
	T(recv(fd, &byte, 1, MSG_DONTWAIT | MSG_WAITALL));
	T(recv(fd, &byte, 1, MSG_DONTWAIT | MSG_ERRQUEUE));
}

static void send_all_ways(int fd)
{
	struct iovec part = {"x", 1};
	struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
	struct mmsghdr many = {.msg_hdr = message};
	T(send(fd, "x", 1, MSG_DONTWAIT | MSG_NOSIGNAL));
	T(send(fd, "", 0, MSG_DONTWAIT | MSG_NOSIGNAL));
	T(sendmsg(fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL));
	T(sendmmsg(fd, &many, 1, MSG_DONTWAIT | MSG_NOSIGNAL));
	T(sendto(fd, "x", 1, MSG_DONTWAIT | MSG_NOSIGNAL, NULL, 0));
}

static void ask_everything(int fd)
{
	int number = -7;
	say_names("it", fd);
	T(ioctl(fd, FIONREAD, &number));
	say("FIONREAD %d", number);
	number = -7;
	T(ioctl(fd, SIOCATMARK, &number));
	say("SIOCATMARK %d", number);
	number = -7;
	T(ioctl(fd, SIOCOUTQ, &number));
	T(ioctl(fd, SIOCOUTQNSD, &number));
	T(ioctl(fd, SIOCINQ, &number));
	say_state(fd);
	say_error(fd);
}

static void try_accepts(int fd)
{
	int flags = fcntl(fd, F_GETFL);
	fcntl(fd, F_SETFL, flags | O_NONBLOCK);
	FD(accept(fd, NULL, NULL));
	FD(accept4(fd, NULL, NULL, 1));
	T(shutdown(fd, 3));
	fcntl(fd, F_SETFL, flags);
}

static void try_roles(int fd)
{
	int flags = fcntl(fd, F_GETFL);
	fcntl(fd, F_SETFL, flags | O_NONBLOCK);
	FD(accept(fd, NULL, NULL));
	FD(accept4(fd, NULL, NULL, 1));
	T(bind_v4(fd, "127.0.0.1", 0));
	T(shutdown(fd, 3));
	fcntl(fd, F_SETFL, flags);
}

CASE(every_call_on_an_unbound_socket)
{
	int fd = FD(socket(AF_INET, SOCK_STREAM, 0));
	EXPECT(fd, POLLOUT | POLLHUP);
	ask_everything(fd);
	receive_all_ways(fd);
	send_all_ways(fd);
	T(shutdown(fd, SHUT_RDWR));
	T(shutdown(fd, 3));
}

CASE(every_call_on_a_bound_socket)
{
	int fd = FD(socket(AF_INET, SOCK_STREAM, 0));
	T(bind_v4(fd, "127.0.0.1", listen_port));
	EXPECT(fd, POLLOUT | POLLHUP);
	ask_everything(fd);
	receive_all_ways(fd);
	send_all_ways(fd);
	try_roles(fd);
	T(shutdown(fd, SHUT_RDWR));
	T(listen(fd, 5));
	say_names("after all", fd);
}

CASE(every_call_on_a_listener)
{
	int fd = listener();
	ask_everything(fd);
	receive_all_ways(fd);
	send_all_ways(fd);
	try_roles(fd);
	T(connect_v4(fd, connect_port));
	EXPECT(fd, 0);
}

CASE(every_call_on_a_connection)
{
	struct trio all = trio();
	ask_everything(all.server);
	receive_all_ways(all.server);
	send_all_ways(all.server);
	try_roles(all.server);
	T(listen(all.server, 1));
	T(connect_v4(all.server, connect_port));
	EXPECT(all.server, POLLOUT);
}

CASE(every_call_after_the_clients_end)
{
	struct trio all = trio();
	T(shutdown(all.client, SHUT_WR));
	EXPECT(all.server, POLLIN | POLLOUT | POLLRDHUP);
	ask_everything(all.server);
	receive_all_ways(all.server);
	send_all_ways(all.server);
	try_roles(all.server);
	EXPECT(all.server, POLLIN | POLLOUT | POLLRDHUP);
}

CASE(every_call_after_its_own_end)
{
	struct trio all = trio();
	T(shutdown(all.server, SHUT_WR));
	EXPECT(all.client, POLLIN | POLLOUT | POLLRDHUP);
	EXPECT(all.server, POLLOUT);
	say_names("it", all.server);
	receive_all_ways(all.server);
	send_all_ways(all.server);
	try_roles(all.server);
	say_error(all.server);
	EXPECT(all.server, POLLOUT);
}

CASE(every_call_after_it_reads_no_more)
{
	struct trio all = trio();
	T(shutdown(all.server, SHUT_RD));
	EXPECT(all.server, POLLIN | POLLOUT | POLLRDHUP);
	ask_everything(all.server);
	receive_all_ways(all.server);
	send_all_ways(all.server);
	T(shutdown(all.server, SHUT_RD));
	EXPECT(all.server, POLLIN | POLLOUT | POLLRDHUP);
}

CASE(every_call_after_both_ends)
{
	struct trio all = trio();
	T(shutdown(all.server, SHUT_WR));
	T(shutdown(all.client, SHUT_WR));
	EXPECT(all.server, POLLIN | POLLOUT | POLLHUP | POLLRDHUP);
	ask_everything(all.server);
	receive_all_ways(all.server);
	send_all_ways(all.server);
	try_accepts(all.server);
	T(shutdown(all.server, SHUT_WR));
	T(shutdown(all.server, SHUT_RD));
}

CASE(every_call_after_a_reset_was_told)
{
	struct trio all = trio();
	reset(all.client);
	EXPECT(all.server, POLLIN | POLLOUT | POLLERR | POLLHUP | POLLRDHUP);
	say_error(all.server);
	ask_everything(all.server);
	receive_all_ways(all.server);
	send_all_ways(all.server);
	try_accepts(all.server);
	T(shutdown(all.server, SHUT_RDWR));
	EXPECT(all.server, POLLIN | POLLOUT | POLLHUP | POLLRDHUP);
}

CASE(a_reset_is_told_to_whoever_asks_first)
{
	/* Each call takes the error of a connection of its own. */
	int fd = listener(), client;
	char byte;
	struct iovec part = {&byte, 1};
	struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
	for (int i = 0; i < 7; i++) {
		int server = served(fd, &client);
		reset(client);
		EXPECT(server, POLLIN | POLLOUT | POLLERR | POLLHUP | POLLRDHUP);
		switch (i) {
		case 0: T(recv(server, &byte, 1, MSG_PEEK)); break;
		case 1: T(recvmsg(server, &message, MSG_DONTWAIT)); break;
		case 2: T(readv(server, &part, 1)); break;
		case 3: T(send(server, "x", 1, MSG_NOSIGNAL)); break;
		case 4: T(sendmsg(server, &message, MSG_NOSIGNAL)); break;
		case 5: T(recv(server, &byte, 0, MSG_DONTWAIT)); break;
		default: T(recv(server, &byte, 1, MSG_WAITALL)); break;
		}
		T(recv(server, &byte, 1, MSG_DONTWAIT));
		T(send(server, "x", 1, MSG_NOSIGNAL));
		EXPECT(server, POLLIN | POLLOUT | POLLHUP | POLLRDHUP);
		close(server);
	}
}

CASE(every_call_on_a_listener_that_was_shut_down)
{
	int fd = listener();
	T(shutdown(fd, SHUT_WR));
	EXPECT(fd, 0);
	T(shutdown(fd, SHUT_RD));
	EXPECT(fd, POLLOUT | POLLHUP);
	ask_everything(fd);
	receive_all_ways(fd);
	send_all_ways(fd);
	FD(accept(fd, NULL, NULL));
	T(shutdown(fd, SHUT_RDWR));
}

CASE(a_listener_that_was_shut_down_listens_again)
{
	int fd = listener(), client;
	T(shutdown(fd, SHUT_RDWR));
	until_refused();
	say_names("shut down", fd);
	T(listen(fd, 10));
	say_names("again", fd);
	int server = served(fd, &client);
	say_names("accepted", server);
}

CASE(a_listener_that_was_shut_down_connects)
{
	int fd = listener(), on = 1, elsewhere = socket(AF_INET, SOCK_STREAM, 0);
	setsockopt(elsewhere, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
	T(bind_v4(elsewhere, "127.0.0.1", connect_port));
	T(listen(elsewhere, 5));
	T(shutdown(fd, SHUT_RDWR));
	until_refused();
	T(connect_v4(fd, connect_port));
	say_names("connected", fd);
}

CASE(every_call_on_a_refused_socket)
{
	int fd = FD(socket(AF_INET, SOCK_STREAM, 0));
	T(connect_v4(fd, connect_port));
	say_names("refused", fd);
	EXPECT(fd, POLLOUT | POLLHUP);
	ask_everything(fd);
	receive_all_ways(fd);
	send_all_ways(fd);
	T(shutdown(fd, SHUT_RDWR));
}

CASE(every_call_on_a_number_that_was_closed)
{
	struct trio all = trio();
	int fds[] = {all.listening, all.server};
	for (int i = 0; i < 2; i++) {
		int fd = fds[i];
		T(close(fd));
		receive_all_ways(fd);
		send_all_ways(fd);
		try_roles(fd);
		T(listen(fd, 1));
		T(connect_v4(fd, connect_port));
		T(getsockname(fd, (struct sockaddr *)&(struct sockaddr_in){0}, &(socklen_t){16}));
		T(getpeername(fd, (struct sockaddr *)&(struct sockaddr_in){0}, &(socklen_t){16}));
		say_error(fd);
		T(ioctl(fd, FIONREAD, &(int){0}));
	}
}

CASE(a_client_that_closed_with_data_leaves_it_readable)
{
	struct trio all = trio();
	char buffer[16];
	T(write(all.client, "last", 4));
	T(close(all.client));
	EXPECT(all.server, POLLIN | POLLOUT | POLLRDHUP);
	T(write(all.server, "answer", 6));
	EXPECT(all.server, POLLIN | POLLOUT | POLLERR | POLLHUP | POLLRDHUP);
	T(read(all.server, buffer, sizeof buffer));
	T(read(all.server, buffer, sizeof buffer));
	T(read(all.server, buffer, sizeof buffer));
	T(send(all.server, "x", 1, MSG_NOSIGNAL));
	say_error(all.server);
}

CASE(a_reset_behind_an_end_is_told_to_a_writer)
{
	struct trio all = trio();
	char byte;
	T(shutdown(all.client, SHUT_WR));
	EXPECT(all.server, POLLIN | POLLOUT | POLLRDHUP);
	T(read(all.server, &byte, 1));
	reset(all.client);
	EXPECT(all.server, POLLIN | POLLOUT | POLLERR | POLLHUP | POLLRDHUP);
	T(read(all.server, &byte, 1));
	T(send(all.server, "x", 1, MSG_NOSIGNAL));
	T(send(all.server, "x", 1, MSG_NOSIGNAL));
	say_error(all.server);
}
