/* bind, listen, accept: where a socket becomes a server's. */
#include "parity.h"

CASE(a_listener_on_any_address_serves_a_client)
{
	int client, fd = FD(socket(AF_INET, SOCK_STREAM, 0));
	int on = 1;
	T(setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on));
	say_names("before bind", fd);
	T(bind_v4(fd, "0.0.0.0", listen_port));
	say_names("after bind", fd);
	T(listen(fd, 10));
	say_names("after listen", fd);
	EXPECT(fd, 0);
	int server = served(fd, &client);
	say_names("accepted", server);
	EXPECT(server, POLLOUT);
	T(write(client, "hello", 5));
	EXPECT(server, POLLIN | POLLOUT);
	char buffer[16];
	T(read(server, buffer, sizeof buffer));
	T(write(server, "world!", 6));
	T(read_all(client, buffer, 6));
	say_bytes("client", buffer, 6);
	T(close(server));
	T(read(client, buffer, sizeof buffer));
	T(close(fd));
}

CASE(a_listener_on_one_address_serves_that_address)
{
	int fd = listener(), client;
	say_names("listener", fd);
	int server = served(fd, &client);
	say_names("accepted", server);
	int other = socket(AF_INET, SOCK_STREAM, 0);
	struct sockaddr_in elsewhere = v4("127.0.0.2", listen_port);
	T(connect(other, (void *)&elsewhere, sizeof elsewhere));
}

CASE(an_ipv6_listener_serves_an_ipv6_client)
{
	int fd = FD(socket(AF_INET6, SOCK_STREAM, 0)), on = 1;
	T(setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on));
	T(bind_v6(fd, "::1", listen_port));
	T(listen(fd, 10));
	say_names("listener", fd);
	int client = socket(AF_INET6, SOCK_STREAM, 0);
	T(connect_v6(client, "::1", listen_port));
	EXPECT(fd, POLLIN);
	struct sockaddr_storage peer;
	socklen_t length = sizeof peer;
	int server = FD(accept(fd, (void *)&peer, &length));
	say_address("peer", (void *)&peer, length);
	say_names("accepted", server);
}

CASE(a_dual_stack_listener_shows_mapped_addresses)
{
	int fd = FD(socket(AF_INET6, SOCK_STREAM, 0)), on = 1, off = 0, client;
	T(setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on));
	T(setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off));
	T(bind_v6(fd, "::", listen_port));
	T(listen(fd, 10));
	int server = served(fd, &client);
	say_names("IPv4 client", server);
	int client6 = socket(AF_INET6, SOCK_STREAM, 0);
	T(connect_v6(client6, "::1", listen_port));
	EXPECT(fd, POLLIN);
	int server6 = FD(accept(fd, NULL, NULL));
	say_names("IPv6 client", server6);
	int four = FD(socket(AF_INET, SOCK_STREAM, 0));
	T(bind_v4(four, "0.0.0.0", listen_port));
}

CASE(an_ipv6_only_listener_leaves_ipv4_to_others)
{
	int fd = FD(socket(AF_INET6, SOCK_STREAM, 0)), on = 1, client;
	T(setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on));
	T(setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof on));
	T(bind_v6(fd, "::", listen_port));
	T(listen(fd, 10));
	int refused = socket(AF_INET, SOCK_STREAM, 0);
	T(connect_v4(refused, listen_port));
	int four = FD(socket(AF_INET, SOCK_STREAM, 0));
	T(setsockopt(four, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on));
	T(bind_v4(four, "0.0.0.0", listen_port));
	T(listen(four, 10));
	int server = served(four, &client);
	say_names("accepted", server);
	EXPECT(fd, 0);
}

CASE(a_listener_may_be_bound_to_a_mapped_address)
{
	int fd = FD(socket(AF_INET6, SOCK_STREAM, 0)), on = 1, client;
	T(setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on));
	T(bind_v6(fd, "::ffff:127.0.0.1", listen_port));
	T(listen(fd, 10));
	say_names("listener", fd);
	int server = served(fd, &client);
	say_names("accepted", server);
}

CASE(port_zero_is_answered_at_bind)
{
	int fd = FD(socket(AF_INET, SOCK_STREAM, 0));
	T(bind_v4(fd, "127.0.0.1", 0));
	say_names("after bind", fd);
	struct sockaddr_in own;
	socklen_t length = sizeof own;
	T(getsockname(fd, (void *)&own, &length));
	T(listen(fd, 10));
	int client = socket(AF_INET, SOCK_STREAM, 0);
	T(connect(client, (void *)&own, sizeof own));
	EXPECT(fd, POLLIN);
	FD(accept(fd, NULL, NULL));
}

CASE(listening_unbound_takes_a_port)
{
	int fd = FD(socket(AF_INET, SOCK_STREAM, 0));
	T(listen(fd, 10));
	say_names("listener", fd);
}

CASE(a_taken_port_fails_at_bind)
{
	int fd = listener(), on = 1;
	int second = FD(socket(AF_INET, SOCK_STREAM, 0));
	T(bind_v4(second, "127.0.0.1", listen_port));
	T(setsockopt(second, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on));
	T(bind_v4(second, "127.0.0.1", listen_port));
	T(bind_v4(second, "0.0.0.0", listen_port));
	T(bind_v4(second, "127.0.0.2", listen_port));
	T(close(fd));
}

CASE(two_bound_sockets_with_reuseaddr_collide_at_listen)
{
	int first = FD(socket(AF_INET, SOCK_STREAM, 0)), second = FD(socket(AF_INET, SOCK_STREAM, 0)), on = 1;
	T(setsockopt(first, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on));
	T(setsockopt(second, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on));
	T(bind_v4(first, "127.0.0.1", listen_port));
	T(bind_v4(second, "127.0.0.1", listen_port));
	T(listen(first, 1));
	T(listen(second, 1));
}

CASE(reuseport_is_shared_by_one_user)
{
	int first = FD(socket(AF_INET, SOCK_STREAM, 0)), second = FD(socket(AF_INET, SOCK_STREAM, 0)), on = 1;
	T(setsockopt(first, SOL_SOCKET, SO_REUSEPORT, &on, sizeof on));
	T(bind_v4(first, "127.0.0.1", listen_port));
	T(bind_v4(second, "127.0.0.1", listen_port));
	T(setsockopt(second, SOL_SOCKET, SO_REUSEPORT, &on, sizeof on));
	T(bind_v4(second, "127.0.0.1", listen_port));
	T(listen(first, 10));
	T(listen(second, 10));
	int seen = 0;
	for (int i = 0; i < 20; i++) {
		guest();
		struct pollfd both[2] = {{.fd = first, .events = POLLIN}, {.fd = second, .events = POLLIN}};
		poll(both, 2, 5000);
		for (int k = 0; k < 2; k++)
			if (both[k].revents & POLLIN)
				seen += accept(both[k].fd, NULL, NULL) >= 0;
	}
	say("%d served", seen);
}

CASE(a_closed_listener_frees_its_port_at_once)
{
	int fd = listener();
	T(close(fd));
	int again = FD(socket(AF_INET, SOCK_STREAM, 0));
	T(bind_v4(again, "127.0.0.1", listen_port));
	T(listen(again, 1));
	T(close(again));
	until_refused();
}

CASE(a_bound_socket_that_is_closed_frees_its_port_at_once)
{
	for (int i = 0; i < 3; i++) {
		int fd = FD(socket(AF_INET, SOCK_STREAM, 0));
		T(bind_v4(fd, "127.0.0.1", listen_port));
		T(close(fd));
	}
}

CASE(bind_refuses_what_the_kernel_refuses)
{
	int fd = FD(socket(AF_INET, SOCK_STREAM, 0)), six = FD(socket(AF_INET6, SOCK_STREAM, 0));
	struct sockaddr_in address = v4("127.0.0.1", listen_port);
	struct sockaddr_in6 address6 = v6("::1", listen_port);
	T(bind(fd, (void *)&address, 4));
	T(bind(fd, (void *)&address, sizeof(struct sockaddr_storage) + 1));
	T(bind(fd, NULL, sizeof address));
	T(bind(fd, (void *)&address6, sizeof address6));
	T(bind(six, (void *)&address, sizeof address));
	T(bind_v4(fd, "192.0.2.77", listen_port));
	T(bind_v6(six, "2001:db8::77", listen_port));
	T(bind(-1, (void *)&address, sizeof address));
	T(bind_v4(fd, "127.0.0.1", listen_port));
	T(bind_v4(fd, "127.0.0.1", listen_port));
	T(bind_v4(fd, "127.0.0.1", 0));
	T(listen(fd, 1));
	T(bind_v4(fd, "127.0.0.1", 0));
}

CASE(listen_may_be_called_again)
{
	int fd = listener(), client;
	T(listen(fd, 5));
	T(listen(fd, 0));
	T(listen(fd, -1));
	int server = served(fd, &client);
	T(listen(server, 5));
	EXPECT(fd, 0);
}

CASE(accept_reports_no_connection_as_eagain)
{
	int fd = listener(), client;
	T(set_nonblocking(fd, 1));
	FD(accept(fd, NULL, NULL));
	FD(accept4(fd, NULL, NULL, SOCK_CLOEXEC));
	int server = served(fd, &client);
	T(fcntl(server, F_GETFL) & O_NONBLOCK);
	FD(accept(fd, NULL, NULL));
}

CASE(accept4_sets_the_flags_it_is_given)
{
	int fd = listener();
	int flags[] = {0, SOCK_NONBLOCK, SOCK_CLOEXEC, SOCK_NONBLOCK | SOCK_CLOEXEC};
	for (int i = 0; i < 4; i++) {
		guest();
		await(fd, POLLIN);
		int server = FD(accept4(fd, NULL, NULL, flags[i]));
		T(!!(fcntl(server, F_GETFL) & O_NONBLOCK));
		T(fcntl(server, F_GETFD));
		T((fcntl(server, F_GETFL) & O_ACCMODE) == O_RDWR);
	}
	guest();
	await(fd, POLLIN);
	FD(accept4(fd, NULL, NULL, 1));
	FD(accept4(fd, NULL, NULL, 0));
}

CASE(accept_writes_as_much_of_the_address_as_fits)
{
	int fd = listener();
	socklen_t rooms[] = {0, 2, 4, 8, 16, 100};
	for (int i = 0; i < 6; i++) {
		unsigned char name[128];
		socklen_t length = rooms[i];
		memset(name, 0xee, sizeof name);
		guest();
		await(fd, POLLIN);
		FD(accept(fd, (void *)name, &length));
		int touched = 0;
		for (int k = 0; k < 128; k++)
			touched += name[k] != 0xee && k >= (int)rooms[i];
		say("room %u: length %u, %d bytes too many, family %d", rooms[i], length, touched, name[0]);
	}
	struct sockaddr_in name;
	socklen_t negative = (socklen_t)-1;
	guest();
	await(fd, POLLIN);
	FD(accept(fd, (void *)&name, &negative));
}

CASE(names_are_truncated_as_the_kernel_truncates)
{
	struct trio all = trio();
	socklen_t rooms[] = {0, 1, 2, 7, 16, 28, 128};
	int fds[] = {all.listening, all.server};
	for (int i = 0; i < 7; i++)
		for (int k = 0; k < 2; k++) {
			unsigned char name[256];
			socklen_t length = rooms[i];
			memset(name, 0xee, sizeof name);
			T(getsockname(fds[k], (void *)name, &length));
			say("length %u, next byte %02x", length, name[rooms[i]]);
			length = rooms[i];
			T(getpeername(fds[k], (void *)name, &length));
			say("length %u", length);
		}
	struct sockaddr_in name;
	socklen_t negative = (socklen_t)-5;
	T(getsockname(all.server, (void *)&name, &negative));
	T(getpeername(all.server, (void *)&name, &negative));
}

CASE(the_peer_is_the_client_itself)
{
	struct trio all = trio();
	struct sockaddr_in client, peer;
	socklen_t length = sizeof client;
	T(getsockname(all.client, (void *)&client, &length));
	length = sizeof peer;
	T(getpeername(all.server, (void *)&peer, &length));
	T(memcmp(&client, &peer, sizeof client));
	T(close(all.client));
	EXPECT(all.server, POLLIN | POLLOUT | POLLRDHUP);
	say_names("after the client's FIN", all.server);
}

CASE(accept_waits_for_a_connection)
{
	int fd = listener();
	pid_t child = fork();
	if (child == 0) {
		usleep(50000);
		guest();
		_exit(0);
	}
	FD(accept(fd, NULL, NULL));
	reap(child);
}

CASE(accept_obeys_the_receive_timeout)
{
	int fd = listener();
	struct timeval limit = {.tv_usec = 60000};
	T(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit));
	struct timespec start;
	now(&start);
	FD(accept(fd, NULL, NULL));
	say("waited: %d", elapsed_ms(&start) >= 55);
	guest();
	FD(accept(fd, NULL, NULL));
}

CASE(connections_are_accepted_in_their_order)
{
	int fd = listener(), clients[8];
	for (int i = 0; i < 8; i++) {
		clients[i] = guest();
		dprintf(clients[i], "%d", i);
	}
	for (int i = 0; i < 8; i++) {
		char digit = 0;
		await(fd, POLLIN);
		int server = FD(accept(fd, NULL, NULL));
		T(read(server, &digit, 1));
		say("%c", digit);
	}
	EXPECT(fd, 0);
}

CASE(a_client_that_left_is_accepted_all_the_same)
{
	int fd = listener(), client = guest();
	T(write(client, "bye", 3));
	T(close(client));
	await(fd, POLLIN);
	int server = FD(accept(fd, NULL, NULL));
	EXPECT(server, POLLIN | POLLOUT | POLLRDHUP);
	char buffer[8];
	T(read(server, buffer, sizeof buffer));
	T(read(server, buffer, sizeof buffer));
}

CASE(a_client_that_reset_is_accepted_all_the_same)
{
	int fd = listener(), client = guest();
	await(fd, POLLIN);
	reset(client);
	usleep(20000);
	int server = FD(accept(fd, NULL, NULL));
	EXPECT(server, POLLIN | POLLOUT | POLLERR | POLLHUP | POLLRDHUP);
	char buffer[8];
	T(read(server, buffer, sizeof buffer));
	T(read(server, buffer, sizeof buffer));
}

CASE(closing_a_listener_resets_who_waits)
{
	int fd = listener(), client = guest();
	char byte;
	await(fd, POLLIN);
	T(close(fd));
	EXPECT(client, POLLIN | POLLOUT | POLLERR | POLLHUP | POLLRDHUP);
	T(read(client, &byte, 1));
}

CASE(accept_needs_a_listener)
{
	struct trio all = trio();
	int fresh = FD(socket(AF_INET, SOCK_STREAM, 0));
	FD(accept(fresh, NULL, NULL));
	FD(accept(all.server, NULL, NULL));
	FD(accept(-1, NULL, NULL));
	FD(accept(0, NULL, NULL));
	int bound = FD(socket(AF_INET, SOCK_STREAM, 0));
	T(bind_v4(bound, "127.0.0.1", 0));
	FD(accept(bound, NULL, NULL));
}

CASE(without_descriptors_accept_keeps_the_connection)
{
	int fd = listener(), client = guest();
	struct rlimit old;
	await(fd, POLLIN);
	T(write(client, "still here", 10));
	leave_no_descriptors(&old);
	FD(accept(fd, NULL, NULL));
	FD(accept(fd, NULL, NULL));
	EXPECT(fd, POLLIN);
	T(setrlimit(RLIMIT_NOFILE, &old));
	int server = FD(accept(fd, NULL, NULL));
	char buffer[16];
	T(read_all(server, buffer, 10));
	say_bytes("server", buffer, 10);
}

static int try_connect(int fd)
{
	struct pollfd watched = {.fd = fd, .events = POLLOUT};
	set_nonblocking(fd, 1);
	connect_v4(fd, listen_port);
	return poll(&watched, 1, 60) == 1 && !(watched.revents & (POLLERR | POLLHUP));
}

CASE(a_backlog_that_is_full_keeps_clients_waiting)
{
	int fd = FD(socket(AF_INET, SOCK_STREAM, 0)), on = 1, connected = 0;
	T(setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on));
	T(bind_v4(fd, "127.0.0.1", listen_port));
	T(listen(fd, 1));
	for (int i = 0; i < 2; i++)
		connected += try_connect(socket(AF_INET, SOCK_STREAM, 0));
	say("%d connected", connected);
	EXPECT(fd, POLLIN);
	FD(accept(fd, NULL, NULL));
	FD(accept(fd, NULL, NULL));
	int client;
	FD(served(fd, &client));
}

CASE(many_wait_in_a_long_backlog)
{
	int fd = listener(), clients[60], accepted = 0;
	char byte;
	for (int i = 0; i < 60; i++) {
		clients[i] = guest();
		if (i % 3 == 0)
			reset(clients[i]);
		else if (i % 3 == 1 && write(clients[i], "x", 1) != 1)
			say("not written");
	}
	set_nonblocking(fd, 1);
	int whole = 0, resets = 0;
	while (accepted < 60 && await(fd, POLLIN)) {
		int server = accept(fd, NULL, NULL);
		if (server < 0)
			continue;
		accepted++;
		set_nonblocking(server, 1);
		poll(&(struct pollfd){.fd = server, .events = POLLIN}, 1, 30);
		long taken = read(server, &byte, 1);
		whole += taken == 1;
		resets += taken < 0 && errno == ECONNRESET;
		close(server);
	}
	say("%d accepted, %d spoke, %d reset", accepted, whole, resets);
	FD(accept(fd, NULL, NULL));
}

CASE(a_client_that_reset_is_told_by_every_way_of_accepting)
{
	int fd = listener();
	for (int i = 0; i < 3; i++) {
		int client = guest();
		await(fd, POLLIN);
		if (i == 1)
			T(write(client, "last", 4));
		reset(client);
		usleep(10000);
		struct sockaddr_in peer;
		socklen_t length = sizeof peer;
		int server = FD(accept4(fd, (void *)&peer, &length, SOCK_NONBLOCK));
		say("family %d, %u bytes", peer.sin_family, length);
		EXPECT(server, POLLIN | POLLOUT | POLLERR | POLLHUP | POLLRDHUP);
		say_names("reset", server);
		if (i == 2)
			T(setsockopt(server, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int)));
		T(send(server, "x", 1, MSG_NOSIGNAL));
		T(recv(server, (char[8]){0}, 8, 0));
		close(server);
	}
}

CASE(an_accepted_connection_may_outlive_its_listener)
{
	struct trio all = trio();
	char buffer[8];
	T(close(all.listening));
	until_refused();
	T(write(all.client, "still", 5));
	T(read_all(all.server, buffer, 5));
	T(write(all.server, "here", 4));
	T(read_all(all.client, buffer, 4));
	say_names("it", all.server);
	int fd = listener(), client;
	FD(served(fd, &client));
}

CASE(a_port_in_use_by_connections_needs_reuseaddr)
{
	struct trio all = trio();
	int again = FD(socket(AF_INET, SOCK_STREAM, 0)), on = 1;
	T(close(all.listening));
	until_refused();
	T(bind_v4(again, "127.0.0.1", listen_port));
	T(setsockopt(again, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on));
	T(bind_v4(again, "127.0.0.1", listen_port));
	T(listen(again, 5));
}

CASE(two_addresses_of_one_port_are_two_listeners)
{
	int one = FD(socket(AF_INET, SOCK_STREAM, 0)), two = FD(socket(AF_INET, SOCK_STREAM, 0));
	T(bind_v4(one, "127.0.0.1", listen_port));
	T(bind_v4(two, "127.0.0.2", listen_port));
	T(listen(one, 5));
	T(listen(two, 5));
	int client = socket(AF_INET, SOCK_STREAM, 0);
	struct sockaddr_in second = v4("127.0.0.2", listen_port);
	T(connect(client, (void *)&second, sizeof second));
	EXPECT(two, POLLIN);
	EXPECT(one, 0);
	int server = FD(accept(two, NULL, NULL));
	say_names("accepted", server);
}

CASE(ports_below_the_first_free_one_are_roots)
{
	int fd = FD(socket(AF_INET, SOCK_STREAM, 0));
	if (getuid() == 0 && (setgid(65534) || setuid(65534)))
		say("cannot give up root");
	T(bind_v4(fd, "127.0.0.1", 1));
	T(bind_v4(fd, "127.0.0.1", 1023));
	T(bind_v4(fd, "127.0.0.1", listen_port));
}

CASE(names_of_sockets_that_are_none)
{
	int datagram = FD(socket(AF_INET, SOCK_DGRAM, 0)), ends[2];
	T(pipe(ends));
	T(listen(datagram, 1));
	FD(accept(datagram, NULL, NULL));
	T(listen(ends[0], 1));
	FD(accept(ends[0], NULL, NULL));
	say_names("pipe", ends[0]);
	T(shutdown(ends[0], SHUT_RD));
	T(setsockopt(ends[0], SOL_SOCKET, SO_REUSEADDR, &(int){1}, sizeof(int)));
	T(recv(ends[0], &(char){0}, 1, 0));
	T(send(ends[1], "x", 1, 0));
}

CASE(sockets_are_made_as_the_kernel_makes_them)
{
	FD(socket(AF_INET, SOCK_STREAM, IPPROTO_UDP));
	FD(socket(AF_INET, 99, 0));
	FD(socket(999, SOCK_STREAM, 0));
	FD(socket(AF_INET, SOCK_STREAM | 0x100000, 0));
	int fd = FD(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, IPPROTO_TCP));
	T(fcntl(fd, F_GETFD));
	T(!!(fcntl(fd, F_GETFL) & O_NONBLOCK));
	int pair[2];
	T(socketpair(AF_INET, SOCK_STREAM, 0, pair));
	T(socketpair(AF_UNIX, SOCK_STREAM, 0, pair));
}

CASE(lingering_waits_until_all_was_sent)
{
	struct trio all = trio();
	static char block[200000], got[200000];
	struct linger linger = {.l_onoff = 1, .l_linger = 5};
	T(setsockopt(all.server, SOL_SOCKET, SO_LINGER, &linger, sizeof linger));
	pid_t child = fork();
	if (child == 0) {
		close(all.server);
		usleep(20000);
		long taken = read_all(all.client, got, sizeof got);
		_exit(taken == sizeof got && read(all.client, got, 1) == 0 ? 0 : 1);
	}
	T(write(all.server, block, sizeof block));
	T(close(all.server));
	reap(child);
}
