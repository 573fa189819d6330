/* Copies of a descriptor: dup, fork, users. */
#include "parity.h"

CASE(a_duplicate_keeps_the_connection_until_the_last_close)
{
	struct trio all = trio();
	char buffer[8];
	int copy = FD(dup(all.server));
	T(close(all.server));
	EXPECT(all.client, POLLOUT);
	T(write(all.client, "x", 1));
	await(copy, POLLIN);
	T(read(copy, buffer, 8));
	T(write(copy, "y", 1));
	T(read_all(all.client, buffer, 1));
	say_names("copy", copy);
	T(close(copy));
	EXPECT(all.client, POLLIN | POLLOUT | POLLRDHUP);
	T(read(all.client, buffer, 8));
}

CASE(duplicates_share_mode_and_bytes_but_not_flags)
{
	struct trio all = trio();
	char byte;
	int copy = FD(dup(all.server)), third = FD(fcntl(all.server, F_DUPFD, 100));
	int closing = FD(fcntl(all.server, F_DUPFD_CLOEXEC, 100));
	T(third >= 100);
	T(closing > third);
	T(fcntl(copy, F_GETFD));
	T(fcntl(closing, F_GETFD));
	T(set_nonblocking(copy, 1));
	T(!!(fcntl(all.server, F_GETFL) & O_NONBLOCK));
	T(read(closing, &byte, 1));
	T(write(all.client, "ab", 2));
	EXPECT(third, POLLIN | POLLOUT);
	T(read(third, &byte, 1));
	T(read(all.server, &byte, 1));
	T(read(copy, &byte, 1));
	T(fcntl(all.server, F_SETFD, FD_CLOEXEC));
	T(fcntl(all.server, F_GETFD));
	T(fcntl(copy, F_GETFD));
}

CASE(dup2_replaces_what_was_there)
{
	struct trio all = trio(), other = {.listening = all.listening};
	char buffer[8];
	other.server = served(all.listening, &other.client);
	T(dup2(all.server, other.server) == other.server);
	EXPECT(other.client, POLLIN | POLLOUT | POLLRDHUP);
	T(write(all.client, "x", 1));
	await(other.server, POLLIN);
	T(read(other.server, buffer, 8));
	T(dup2(all.server, all.server) == all.server);
	T(dup3(all.server, all.server, 0));
	int plain = open("/dev/null", O_RDWR);
	T(dup3(all.server, plain, O_CLOEXEC) == plain);
	T(fcntl(plain, F_GETFD));
	T(write(plain, "y", 1));
	T(read_all(all.client, buffer, 1));
	T(dup2(-1, plain));
	T(dup2(open("/dev/null", O_RDWR), plain) == plain);
	T(read(plain, buffer, 8));
	T(close(other.server));
	EXPECT(all.client, POLLOUT);
	T(close(all.server));
	EXPECT(all.client, POLLIN | POLLOUT | POLLRDHUP);
}

CASE(dup2_over_a_listener_closes_it)
{
	int fd = listener();
	T(dup2(open("/dev/null", O_RDWR), fd) == fd);
	until_refused();
}

CASE(a_duplicate_made_before_listen_listens_too)
{
	int fd = FD(socket(AF_INET, SOCK_STREAM, 0)), on = 1;
	int early = FD(dup(fd));
	T(setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on));
	T(bind_v4(fd, "127.0.0.1", listen_port));
	int late = FD(dup(fd));
	T(listen(late, 10));
	guest();
	EXPECT(early, POLLIN);
	FD(accept(early, NULL, NULL));
	guest();
	EXPECT(fd, POLLIN);
	FD(accept(fd, NULL, NULL));
	T(close(fd));
	T(close(late));
	guest();
	EXPECT(early, POLLIN);
	FD(accept(early, NULL, NULL));
	T(close(early));
	until_refused();
}

CASE(a_number_is_free_for_another_file)
{
	struct trio all = trio();
	int number = all.server;
	T(close(all.server));
	T(open("/dev/zero", O_RDONLY) == number);
	char bytes[4] = "abc";
	T(read(number, bytes, 4));
	say_bytes("zeroes", bytes, 4);
	T(write(number, "x", 1));
	T(close(number));
	T(socket(AF_INET, SOCK_DGRAM, 0) == number);
	T(recv(number, bytes, 4, MSG_DONTWAIT));
}

CASE(a_forked_child_serves_while_the_parent_waits)
{
	int fd = listener();
	pid_t child = fork();
	if (child == 0) {
		int server = accept(fd, NULL, NULL);
		char byte = 0;
		_exit(server >= 0 && read(server, &byte, 1) == 1 && write(server, "y", 1) == 1 ? byte : 1);
	}
	int client = guest();
	char byte;
	T(write(client, "x", 1));
	T(read_all(client, &byte, 1));
	reap(child);
	T(read(client, &byte, 1));
	int second, server = served(fd, &second);
	T(write(second, "z", 1));
	await(server, POLLIN);
	T(read(server, &byte, 1));
}

CASE(a_child_forked_before_bind_listens_itself)
{
	int fd = FD(socket(AF_INET, SOCK_STREAM, 0)), on = 1, ready[2];
	T(setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on));
	T(pipe(ready));
	pid_t child = fork();
	if (child == 0) {
		if (bind_v4(fd, "127.0.0.1", listen_port) || listen(fd, 5) || write(ready[1], "!", 1) != 1)
			_exit(1);
		int server = accept(fd, NULL, NULL);
		_exit(write(server, "hello", 5) == 5 ? 0 : 2);
	}
	char buffer[8];
	T(read(ready[0], buffer, 1));
	int client = guest();
	T(read_all(client, buffer, 5));
	reap(child);
	T(close(fd));
}

CASE(a_daemon_that_forks_twice_serves)
{
	int ready[2];
	T(pipe(ready));
	pid_t child = fork();
	if (child == 0) {
		setsid();
		if (fork() > 0)
			_exit(0);
		int fd = listener(), client = -1;
		if (write(ready[1], "!", 1) != 1)
			_exit(1);
		(void)client;
		int server = accept(fd, NULL, NULL);
		_exit(write(server, "hello", 5) == 5 ? 0 : 2);
	}
	char buffer[8];
	reap(child);
	T(close(ready[1]));
	T(read(ready[0], buffer, 1));
	int client = guest();
	T(read_all(client, buffer, 5));
	T(read(client, buffer, 1));
}

CASE(a_child_that_closes_takes_nothing_from_its_parent)
{
	struct trio all = trio();
	char byte;
	pid_t child = fork();
	if (child == 0) {
		close(all.server);
		close(all.listening);
		close(all.client);
		_exit(0);
	}
	reap(child);
	EXPECT(all.client, POLLOUT);
	T(write(all.client, "x", 1));
	await(all.server, POLLIN);
	T(read(all.server, &byte, 1));
	int client, server = served(all.listening, &client);
	T(write(server, "y", 1));
	T(read_all(client, &byte, 1));
}

CASE(a_connection_lives_on_in_the_child)
{
	struct trio all = trio();
	char buffer[8];
	int go[2];
	T(pipe(go));
	pid_t child = fork();
	if (child == 0) {
		close(all.client);
		char byte;
		if (read(go[0], &byte, 1) != 1)
			_exit(1);
		_exit(write(all.server, "from the child", 14) == 14 ? 0 : 2);
	}
	T(close(all.server));
	EXPECT(all.client, POLLOUT);
	T(write(go[1], "!", 1));
	char text[16];
	T(read_all(all.client, text, 14));
	say_bytes("client", text, 14);
	reap(child);
	T(read(all.client, buffer, 8));
}

CASE(parent_and_child_share_one_stream)
{
	struct trio all = trio();
	char buffer[8];
	T(write(all.client, "ab", 2));
	EXPECT(all.server, POLLIN | POLLOUT);
	T(read(all.server, buffer, 1));
	pid_t child = fork();
	if (child == 0) {
		char byte = 0;
		long taken = read(all.server, &byte, 1);
		_exit(taken == 1 && byte == 'b' && write(all.server, "1", 1) == 1 ? 0 : 1);
	}
	reap(child);
	T(recv(all.server, buffer, 8, MSG_DONTWAIT));
	T(write(all.server, "2", 1));
	T(read_all(all.client, buffer, 2));
	say_bytes("client", buffer, 2);
}

CASE(a_killed_child_ends_its_connection)
{
	int fd = listener(), ready[2];
	T(pipe(ready));
	pid_t child = fork();
	if (child == 0) {
		int server = accept(fd, NULL, NULL);
		if (write(server, "before", 6) != 6 || write(ready[1], "!", 1) != 1)
			_exit(1);
		for (;;)
			pause();
	}
	int client = guest();
	char buffer[8];
	T(read(ready[0], buffer, 1));
	T(kill(child, SIGKILL));
	reap(child);
	T(read_all(client, buffer, 6));
	T(read(client, buffer, 1));
}

CASE(another_user_serves_as_before)
{
	int fd = listener(), client;
	if (getuid() == 0 && (setgid(65534) || setuid(65534)))
		say("cannot give up root");
	int server = served(fd, &client);
	char byte;
	T(write(client, "x", 1));
	await(server, POLLIN);
	T(read(server, &byte, 1));
	T(close(fd));
	fd = listener();
	server = served(fd, &client);
	say_names("as another user", server);
}

CASE(many_threads_accept_every_connection_once)
{
	int fd = listener();
	pid_t child = fork();
	if (child == 0) {
		close(fd);
		int fds[40];
		for (int i = 0; i < 40; i++)
			fds[i] = guest();
		char byte;
		int answered = 0;
		for (int i = 0; i < 40; i++)
			answered += read_all(fds[i], &byte, 1) == 1;
		_exit(answered);
	}
	pid_t workers[4];
	for (int i = 0; i < 4; i++)
		if ((workers[i] = fork()) == 0)
			for (;;) {
				int server = accept(fd, NULL, NULL);
				if (server < 0 || write(server, "x", 1) != 1)
					_exit(1);
			}
	reap(child);
	for (int i = 0; i < 4; i++) {
		kill(workers[i], SIGKILL);
		reap(workers[i]);
	}
}
