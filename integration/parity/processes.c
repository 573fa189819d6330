/* Children of every kind, other users and roots, and descriptors that are closed in bulk or run out. */
#include "parity.h"

#include <spawn.h>
#include <sys/syscall.h>

extern char **environ;

/* What a program started from here does with its standard input: runs /bin/sh -c. */
static pid_t shell(const char *script, int in, int out, int close_one)
{
	posix_spawn_file_actions_t actions;
	pid_t child = -1;
	char *arguments[] = {"sh", "-c", (char *)script, NULL};
	posix_spawn_file_actions_init(&actions);
	if (in >= 0)
		posix_spawn_file_actions_adddup2(&actions, in, 0);
	if (out >= 0)
		posix_spawn_file_actions_adddup2(&actions, out, 1);
	if (close_one >= 0)
		posix_spawn_file_actions_addclose(&actions, close_one);
	int error = posix_spawn(&child, "/bin/sh", &actions, NULL, arguments, environ);
	say("spawn: %s", error ? strerrorname_np(error) : "ok");
	posix_spawn_file_actions_destroy(&actions);
	return child;
}

CASE(a_spawned_child_takes_nothing_from_its_parent)
{
	struct trio all = trio();
	char byte;
	reap(shell("exit 3", -1, -1, all.server));
	T(write(all.client, "x", 1));
	T(read(all.server, &byte, 1));
	T(write(all.server, "y", 1));
	T(read_all(all.client, &byte, 1));
	int client, server = served(all.listening, &client);
	T(close(server));
	T(read(client, &byte, 1));
}

CASE(a_vforked_child_that_closes_everything_takes_nothing)
{
	struct trio all = trio();
	char byte;
	pid_t child = vfork();
	if (child == 0) {
		close(all.server);
		close(all.listening);
		close(all.client);
		_exit(7);
	}
	reap(child);
	T(write(all.client, "x", 1));
	T(read(all.server, &byte, 1));
	T(close(all.server));
	T(read(all.client, &byte, 1));
	int client;
	FD(served(all.listening, &client));
}

CASE(a_vforked_child_that_execs_leaves_its_parent_all)
{
	struct trio all = trio();
	char byte;
	T(fcntl(all.server, F_SETFD, FD_CLOEXEC));
	pid_t child = vfork();
	if (child == 0) {
		dup2(all.client, 0);
		execl("/bin/true", "true", NULL);
		_exit(1);
	}
	reap(child);
	T(write(all.client, "x", 1));
	T(read(all.server, &byte, 1));
	T(fcntl(0, F_GETFD) >= 0);
}

CASE(system_and_popen_run_beside_a_server)
{
	struct trio all = trio();
	char line[16] = "", byte;
	T(system("exit 5") >> 8);
	FILE *pipe = popen("echo hello", "r");
	say("popen: %s", pipe && fgets(line, sizeof line, pipe) ? line : "nothing\n");
	T(pclose(pipe));
	T(write(all.client, "x", 1));
	T(read(all.server, &byte, 1));
	T(close(all.server));
	T(read(all.client, &byte, 1));
}

CASE(an_exec_closes_what_is_to_be_closed)
{
	struct trio all = trio();
	char byte;
	pid_t child = fork();
	if (child == 0) {
		close(all.client);
		close(all.listening);
		fcntl(all.server, F_SETFD, FD_CLOEXEC);
		execl("/bin/sh", "sh", "-c", "read x; exit 4", NULL);
		_exit(1);
	}
	T(close(all.server));
	reap(child);
	T(read(all.client, &byte, 1));
}

CASE(an_exec_keeps_what_is_to_be_kept)
{
	struct trio all = trio();
	char byte;
	int hold[2];
	T(pipe(hold));
	pid_t child = fork();
	if (child == 0) {
		close(all.client);
		close(hold[1]);
		dup2(hold[0], 0);
		execl("/bin/sh", "sh", "-c", "read x; exit 4", NULL);
		_exit(1);
	}
	T(close(all.server));
	T(poll(&(struct pollfd){.fd = all.client, .events = POLLIN | POLLRDHUP}, 1, 60));
	T(close(hold[1]));
	reap(child);
	T(read(all.client, &byte, 1));
}

CASE(raw_clone_makes_a_child_that_serves)
{
	struct trio all = trio();
	char byte;
	pid_t child = (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
	if (child == 0) {
		close(all.client);
		_exit(write(all.server, "raw", 3) == 3 ? 0 : 1);
	}
	reap(child);
	char text[4];
	T(read_all(all.client, text, 3));
	T(close(all.server));
	T(read(all.client, &byte, 1));
}

CASE(a_child_writes_what_its_parent_reads)
{
	struct trio all = trio();
	char text[8] = "";
	pid_t child = fork();
	if (child == 0) {
		char byte;
		close(all.listening);
		for (int i = 0; i < 100; i++)
			if (write(all.server, "y", 1) != 1 || read_all(all.client, &byte, 1) != 1)
				_exit(1);
		_exit(write(all.client, "done", 4) == 4 ? 0 : 2);
	}
	T(read_all(all.server, text, 4));
	say_bytes("parent", text, 4);
	reap(child);
}

CASE(many_children_serve_one_connection_each)
{
	int fd = listener(), clients[8];
	pid_t children[8];
	for (int i = 0; i < 8; i++) {
		int server = served(fd, &clients[i]);
		if ((children[i] = fork()) == 0) {
			char byte = 0;
			close(fd);
			for (int k = 0; k <= i; k++)
				close(clients[k]);
			_exit(read_all(server, &byte, 1) == 1 && write(server, &byte, 1) == 1 ? 0 : 1);
		}
		close(server);
	}
	for (int i = 0; i < 8; i++) {
		char byte = (char)('a' + i);
		T(write(clients[i], &byte, 1));
		T(read_all(clients[i], &byte, 1));
		say("%c", byte);
		reap(children[i]);
		T(read(clients[i], &byte, 1));
	}
}

CASE(parent_and_child_both_accept)
{
	int fd = listener(), from_parent = 0;
	set_nonblocking(fd, 1);
	pid_t child = fork();
	if (child == 0) {
		int count = 0;
		for (;;) {
			struct pollfd watched = {.fd = fd, .events = POLLIN};
			if (poll(&watched, 1, 300) != 1)
				_exit(count > 0 ? 1 : 0);
			int server = accept(fd, NULL, NULL);
			if (server >= 0 && write(server, "c", 1) == 1)
				close(server), count++;
		}
	}
	int clients[20];
	for (int i = 0; i < 20; i++) {
		clients[i] = guest();
		int server = accept(fd, NULL, NULL);
		if (server >= 0 && write(server, "p", 1) == 1)
			close(server), from_parent++;
	}
	int answered = 0;
	char byte;
	for (int i = 0; i < 20; i++) {
		int server;
		while (await(clients[i], POLLIN) == 0 && (server = accept(fd, NULL, NULL)) >= 0)
			close(server);
		answered += read(clients[i], &byte, 1) == 1;
	}
	say("%d answered", answered);
	int status;
	waitpid(child, &status, 0);
	say("child ended: %d", WIFEXITED(status));
	T(poll(&(struct pollfd){.fd = fd, .events = POLLIN}, 1, 0));
}

CASE(a_child_that_crashes_ends_only_its_own)
{
	int fd = listener(), mine, theirs, server = served(fd, &mine);
	char byte;
	pid_t child = fork();
	if (child == 0) {
		close(server);
		int own = accept(fd, NULL, NULL);
		if (write(own, "x", 1) == 1)
			raise(SIGSEGV);
		_exit(1);
	}
	theirs = guest();
	T(read_all(theirs, &byte, 1));
	reap(child);
	T(read(theirs, &byte, 1));
	T(write(server, "y", 1));
	T(read_all(mine, &byte, 1));
	EXPECT(mine, POLLOUT);
}

CASE(an_orphan_serves_on)
{
	int ready[2], done[2];
	char text[8];
	T(pipe(ready));
	T(pipe(done));
	pid_t child = fork();
	if (child == 0) {
		int fd = listener();
		if (fork() == 0) {
			close(done[1]);
			int server = accept(fd, NULL, NULL);
			char byte;
			if (write(ready[1], "!", 1) == 1 && read(done[0], &byte, 1) == 0 && write(server, "orphan", 6) == 6)
				_exit(0);
			_exit(1);
		}
		int client = guest();
		/* The client's end is lost, too; only the orphan's connection stays. */
		(void)client;
		if (read(ready[0], text, 1) != 1)
			_exit(1);
		_exit(0);
	}
	close(done[0]);
	reap(child);
	T(close(done[1]));
	until_refused();
}

CASE(daemon_serves_with_what_was_opened_before)
{
	int fd = listener(), ready[2];
	char text[8];
	T(pipe(ready));
	pid_t child = fork();
	if (child == 0) {
		if (daemon(0, 0))
			_exit(1);
		int server = accept(fd, NULL, NULL);
		_exit(write(server, "daemon", 6) == 6 ? 0 : 2);
	}
	reap(child);
	int client = guest();
	T(read_all(client, text, 6));
	T(read(client, text, 1));
}

CASE(another_root_serves_as_before)
{
	int fd = listener(), client;
	char byte;
	if (getuid() == 0) {
		if (mkdir("/tmp/parity-root", 0755) && errno != EEXIST)
			say("no root");
		if (chroot("/tmp/parity-root") || chdir("/"))
			say("cannot leave: %s", strerrorname_np(errno));
	}
	int server = served(fd, &client);
	T(write(client, "x", 1));
	T(read(server, &byte, 1));
	T(close(server));
	T(close(fd));
	until_refused();
	fd = listener();
	server = served(fd, &client);
	T(write(server, "y", 1));
	T(read_all(client, &byte, 1));
}

CASE(close_range_closes_the_cards_too)
{
	struct trio all = trio();
	char byte;
	int copy = FD(dup(all.server)), high = FD(fcntl(all.listening, F_DUPFD, 200));
	T(close_range((unsigned)all.server, (unsigned)all.server, 0));
	T(read(all.server, &byte, 1));
	T(close_range(200, ~0U, 0));
	T(fcntl(high, F_GETFD));
	T(write(copy, "x", 1));
	T(read_all(all.client, &byte, 1));
	T(close_range(5, 4, 0));
	T(close_range((unsigned)copy, (unsigned)copy, 99));
	T(close_range((unsigned)copy, (unsigned)copy, CLOSE_RANGE_CLOEXEC));
	T(fcntl(copy, F_GETFD));
	T(close_range((unsigned)copy, (unsigned)copy, CLOSE_RANGE_UNSHARE));
	T(read(all.client, &byte, 1));
	int client;
	FD(served(all.listening, &client));
}

CASE(closefrom_leaves_what_is_below)
{
	struct trio all = trio();
	char byte;
	int low = all.server, high = FD(fcntl(all.listening, F_DUPFD, 300));
	closefrom(300);
	T(fcntl(high, F_GETFD));
	T(write(all.client, "x", 1));
	T(read(low, &byte, 1));
	int kept = dup2(all.client, 400);
	closefrom(all.listening);
	T(fcntl(kept, F_GETFD));
	T(fcntl(low, F_GETFD));
	until_refused();
	int fd = listener(), client;
	FD(served(fd, &client));
}

CASE(a_spare_descriptor_gives_room_to_refuse)
{
	/* mosquitto's way: when accept finds no descriptor, the spare one is closed, the client taken and dropped. */
	int fd = listener(), spare = open("/dev/null", O_RDONLY), client = guest();
	struct rlimit old;
	char byte;
	await(fd, POLLIN);
	leave_no_descriptors(&old);
	for (int i = 0; i < 3; i++) {
		FD(accept(fd, NULL, NULL));
		T(close(spare));
		int server = FD(accept(fd, NULL, NULL));
		T(close(server));
		spare = FD(open("/dev/null", O_RDONLY));
		T(read(client, &byte, 1));
		T(setrlimit(RLIMIT_NOFILE, &old));
		close(client);
		client = guest();
		await(fd, POLLIN);
		leave_no_descriptors(&old);
	}
}

CASE(without_descriptors_every_call_says_so)
{
	struct trio all = trio();
	struct rlimit old;
	int fresh = FD(socket(AF_INET, SOCK_STREAM, 0));
	int highest = leave_no_descriptors(&old);
	FD(socket(AF_INET, SOCK_STREAM, 0));
	FD(dup(all.server));
	FD(fcntl(all.server, F_DUPFD, 0));
	FD(fcntl(all.server, F_DUPFD, highest));
	FD(dup2(all.server, highest));
	FD(dup3(all.server, highest, O_CLOEXEC));
	FD(epoll_create1(0));
	T(write(all.client, "x", 1));
	T(recv(all.server, &(char){0}, 1, 0));
	T(write(all.server, "y", 1));
	T(shutdown(all.server, SHUT_WR));
	T(close(fresh));
	T(setrlimit(RLIMIT_NOFILE, &old));
	FD(dup(all.server));
}

CASE(high_numbers_serve_as_well)
{
	struct trio all = trio();
	struct rlimit limit;
	char byte;
	getrlimit(RLIMIT_NOFILE, &limit);
	limit.rlim_cur = limit.rlim_max < 70000 ? limit.rlim_max : 70000;
	T(setrlimit(RLIMIT_NOFILE, &limit));
	int high = (int)limit.rlim_cur - 1;
	T(dup2(all.server, high) == high);
	T(close(all.server));
	T(write(all.client, "x", 1));
	EXPECT(high, POLLIN | POLLOUT);
	T(read(high, &byte, 1));
	T(write(high, "y", 1));
	T(read_all(all.client, &byte, 1));
	T(dup2(all.listening, high) == high);
	T(read(all.client, &byte, 1));
	T(close(all.listening));
	int client;
	FD(served(high, &client));
}

CASE(a_chain_of_copies_is_one_socket)
{
	struct trio all = trio();
	int fds[6] = {all.server};
	char byte;
	fds[1] = FD(dup(fds[0]));
	fds[2] = FD(fcntl(fds[1], F_DUPFD, 50));
	fds[3] = FD(dup2(fds[2], 60));
	fds[4] = FD(dup3(fds[3], 61, O_CLOEXEC));
	fds[5] = FD(fcntl(fds[4], F_DUPFD_CLOEXEC, 0));
	for (int i = 0; i < 6; i++) {
		T(write(all.client, "x", 1));
		EXPECT(fds[i], POLLIN | POLLOUT);
		T(read(fds[i], &byte, 1));
		T(close(fds[i]));
		if (i < 5)
			EXPECT(all.client, POLLOUT);
	}
	T(read(all.client, &byte, 1));
}

CASE(copies_are_refused_as_the_kernel_refuses)
{
	struct trio all = trio();
	FD(dup2(all.server, -1));
	FD(dup3(all.server, all.server, 0));
	FD(dup3(all.server, 77, 0x7777));
	FD(dup2(999, all.server));
	FD(fcntl(all.server, F_DUPFD, -1));
	FD(dup(-1));
	T(fcntl(all.server, 9999));
	T(fcntl(-1, F_GETFL));
	T(write(all.client, "x", 1));
	T(recv(all.server, &(char){0}, 1, 0));
}

CASE(shared_modes_are_shared_with_a_child)
{
	struct trio all = trio();
	pid_t child = fork();
	if (child == 0)
		_exit(set_nonblocking(all.server, 1) || set_nonblocking(all.listening, 1));
	reap(child);
	T(!!(fcntl(all.server, F_GETFL) & O_NONBLOCK));
	T(read(all.server, &(char){0}, 1));
	FD(accept(all.listening, NULL, NULL));
}

CASE(a_child_changes_the_users_of_its_own)
{
	int fd = listener(), client;
	char byte;
	pid_t child = fork();
	if (child == 0) {
		if (getuid() == 0 && (setgid(65534) || setuid(65534)))
			_exit(1);
		int server = accept(fd, NULL, NULL);
		int on = 1;
		if (setsockopt(server, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on))
			_exit(2);
		_exit(write(server, "x", 1) == 1 ? 0 : 3);
	}
	client = guest();
	T(read_all(client, &byte, 1));
	reap(child);
	FD(served(fd, &client));
}
