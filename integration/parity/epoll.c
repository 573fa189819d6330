/* epoll in depth: edges, one shots, exclusive and nested sets, and when registrations are made. */
#include "parity.h"

CASE(an_edge_comes_for_every_arrival_while_others_wait_unread)
{
	struct trio all = trio();
	int set = epoll_create1(0);
	char buffer[8];
	T(watch(set, EPOLL_CTL_ADD, all.server, EPOLLIN | EPOLLET, 1));
	for (int i = 0; i < 5; i++) {
		T(write(all.client, "ab", 2));
		look("arrival", set, 5000);
		T(read(all.server, buffer, 1));
		look("half read", set, 20);
	}
	T(read(all.server, buffer, 8));
	T(read(all.server, buffer, 0));
	look("read", set, 20);
}

CASE(an_edge_registered_late_tells_what_is_there)
{
	struct trio all = trio();
	int set = epoll_create1(0);
	T(write(all.client, "x", 1));
	EXPECT(all.server, POLLIN | POLLOUT);
	T(watch(set, EPOLL_CTL_ADD, all.server, EPOLLIN | EPOLLET, 1));
	look("added", set, 0);
	look("again", set, 20);
	T(watch(set, EPOLL_CTL_MOD, all.server, EPOLLIN | EPOLLET, 2));
	look("changed", set, 0);
	look("again", set, 20);
	T(write(all.client, "y", 1));
	look("arrival", set, 5000);
}

CASE(an_edge_for_both_directions_names_both)
{
	struct trio all = trio();
	int set = epoll_create1(0);
	T(watch(set, EPOLL_CTL_ADD, all.server, EPOLLIN | EPOLLOUT | EPOLLET, 1));
	look("at first", set, 0);
	T(write(all.client, "x", 1));
	look("arrival", set, 5000);
	look("again", set, 20);
}

CASE(an_edge_on_a_listener_comes_for_every_client)
{
	int fd = listener(), set = epoll_create1(0);
	T(watch(set, EPOLL_CTL_ADD, fd, EPOLLIN | EPOLLET, 1));
	for (int i = 0; i < 3; i++) {
		guest();
		look("a client", set, 5000);
		look("again", set, 20);
	}
	FD(accept(fd, NULL, NULL));
	look("one accepted", set, 20);
	guest();
	look("a client", set, 5000);
	T(set_nonblocking(fd, 1));
	for (int i = 0; i < 4; i++)
		FD(accept(fd, NULL, NULL));
	guest();
	look("a client", set, 5000);
}

CASE(a_level_on_a_listener_stays_until_all_are_accepted)
{
	int fd = listener(), set = epoll_create1(0);
	T(watch(set, EPOLL_CTL_ADD, fd, EPOLLIN, 1));
	guest();
	guest();
	look("clients", set, 5000);
	FD(accept(fd, NULL, NULL));
	await(fd, POLLIN);
	look("one left", set, 0);
	FD(accept(fd, NULL, NULL));
	look("none left", set, 0);
}

CASE(a_oneshot_on_a_listener_is_armed_again_and_again)
{
	int fd = listener(), set = epoll_create1(0);
	T(watch(set, EPOLL_CTL_ADD, fd, EPOLLIN | EPOLLONESHOT, 1));
	for (int i = 0; i < 3; i++) {
		guest();
		look("armed", set, 5000);
		guest();
		look("fired", set, 20);
		T(watch(set, EPOLL_CTL_MOD, fd, EPOLLIN | EPOLLONESHOT, (unsigned)i + 2));
		look("armed again", set, 0);
		FD(accept(fd, NULL, NULL));
		FD(accept(fd, NULL, NULL));
		T(watch(set, EPOLL_CTL_MOD, fd, EPOLLIN | EPOLLONESHOT, (unsigned)i + 2));
		look("none left", set, 0);
	}
}

CASE(an_edge_and_one_shot_together)
{
	struct trio all = trio();
	int set = epoll_create1(0);
	char buffer[8];
	T(watch(set, EPOLL_CTL_ADD, all.server, EPOLLIN | EPOLLET | EPOLLONESHOT, 1));
	T(write(all.client, "x", 1));
	look("fired", set, 5000);
	T(write(all.client, "y", 1));
	look("disarmed", set, 20);
	T(read(all.server, buffer, 8));
	T(watch(set, EPOLL_CTL_MOD, all.server, EPOLLIN | EPOLLET | EPOLLONESHOT, 2));
	look("armed, empty", set, 20);
	T(write(all.client, "z", 1));
	look("fired", set, 5000);
}

CASE(a_oneshot_is_quiet_at_the_clients_end)
{
	struct trio all = trio();
	int set = epoll_create1(0);
	T(watch(set, EPOLL_CTL_ADD, all.server, EPOLLIN | EPOLLONESHOT, 1));
	T(write(all.client, "x", 1));
	look("fired", set, 5000);
	T(close(all.client));
	EXPECT(all.server, POLLIN | POLLOUT | POLLRDHUP);
	look("disarmed", set, 20);
	T(watch(set, EPOLL_CTL_MOD, all.server, EPOLLRDHUP | EPOLLONESHOT, 2));
	look("armed", set, 0);
}

CASE(exclusive_registrations_mind_their_rules)
{
	struct trio all = trio();
	int set = epoll_create1(0), other = epoll_create1(0);
	T(watch(set, EPOLL_CTL_ADD, all.listening, EPOLLIN | EPOLLEXCLUSIVE, 1));
	T(watch(set, EPOLL_CTL_MOD, all.listening, EPOLLIN, 1));
	T(watch(set, EPOLL_CTL_ADD, all.server, EPOLLIN | EPOLLEXCLUSIVE | EPOLLONESHOT, 1));
	T(watch(set, EPOLL_CTL_ADD, all.server, EPOLLIN | EPOLLRDHUP | EPOLLEXCLUSIVE, 1));
	T(watch(set, EPOLL_CTL_MOD, all.server, EPOLLIN | EPOLLEXCLUSIVE, 1));
	T(watch(set, EPOLL_CTL_ADD, other, EPOLLIN | EPOLLEXCLUSIVE, 1));
	T(watch(set, EPOLL_CTL_DEL, all.listening, 0, 0));
	T(watch(set, EPOLL_CTL_ADD, all.listening, EPOLLIN | EPOLLEXCLUSIVE, 3));
	guest();
	look("a client", set, 5000);
}

CASE(exclusive_waiters_all_serve)
{
	int fd = listener();
	set_nonblocking(fd, 1);
	pid_t workers[3];
	for (int i = 0; i < 3; i++)
		if ((workers[i] = fork()) == 0) {
			int set = epoll_create1(0);
			struct epoll_event event;
			if (watch(set, EPOLL_CTL_ADD, fd, EPOLLIN | EPOLLEXCLUSIVE, 1))
				_exit(1);
			for (;;) {
				if (epoll_wait(set, &event, 1, -1) != 1)
					continue;
				int server = accept(fd, NULL, NULL);
				if (server >= 0 && write(server, "x", 1) == 1)
					close(server);
			}
		}
	int answered = 0;
	char byte;
	for (int i = 0; i < 30; i++) {
		int client = guest();
		answered += read_all(client, &byte, 1) == 1;
		close(client);
	}
	say("%d answered", answered);
	for (int i = 0; i < 3; i++) {
		kill(workers[i], SIGKILL);
		reap(workers[i]);
	}
}

CASE(what_is_watched_may_change_with_data_there)
{
	struct trio all = trio();
	int set = epoll_create1(0);
	T(watch(set, EPOLL_CTL_ADD, all.server, 0, 1));
	T(write(all.client, "x", 1));
	EXPECT(all.server, POLLIN | POLLOUT);
	look("nothing asked", set, 0);
	T(watch(set, EPOLL_CTL_MOD, all.server, EPOLLOUT, 2));
	look("room", set, 0);
	T(watch(set, EPOLL_CTL_MOD, all.server, EPOLLIN, 3));
	look("data", set, 0);
	T(watch(set, EPOLL_CTL_MOD, all.server, EPOLLPRI, 4));
	look("urgent", set, 0);
	T(watch(set, EPOLL_CTL_DEL, all.server, 0, 0));
	look("nothing", set, 0);
	T(watch(set, EPOLL_CTL_ADD, all.server, EPOLLIN | EPOLLOUT | EPOLLPRI | EPOLLRDHUP, 5));
	look("all", set, 0);
}

CASE(errors_and_hang_ups_are_told_unasked)
{
	int fd = listener(), set = epoll_create1(0), client;
	int first = served(fd, &client);
	T(watch(set, EPOLL_CTL_ADD, first, 0, 1));
	reset(client);
	EXPECT(first, POLLIN | POLLOUT | POLLERR | POLLHUP | POLLRDHUP);
	look("reset", set, 5000);
	T(recv(first, &(char){0}, 1, 0));
	look("told", set, 0);
	T(close(first));
	int second = served(fd, &client);
	T(watch(set, EPOLL_CTL_ADD, second, 0, 2));
	T(shutdown(second, SHUT_WR));
	T(close(client));
	EXPECT(second, POLLIN | POLLOUT | POLLHUP | POLLRDHUP);
	look("both ended", set, 5000);
}

CASE(names_of_readiness_come_in_pairs)
{
	struct trio all = trio();
	int set = epoll_create1(0);
	struct epoll_event got;
	T(watch(set, EPOLL_CTL_ADD, all.server, EPOLLRDNORM | EPOLLRDBAND | EPOLLWRNORM | EPOLLMSG, 1));
	T(epoll_wait(set, &got, 1, 0));
	say("%x", got.events);
	T(write(all.client, "x", 1));
	EXPECT(all.server, POLLIN | POLLOUT);
	T(epoll_wait(set, &got, 1, 0));
	say("%x", got.events);
	struct pollfd watched = {.fd = all.server, .events = POLLRDNORM | POLLWRNORM | POLLRDBAND | POLLMSG};
	T(poll(&watched, 1, 0));
	say("%x", (unsigned)watched.revents);
	watched.events = 0;
	T(poll(&watched, 1, 0));
	watched.fd = all.listening;
	watched.events = POLLRDNORM | POLLIN;
	guest();
	T(poll(&watched, 1, 5000));
	say("%x", (unsigned)watched.revents);
}

CASE(sets_may_be_nested_deeply)
{
	struct trio all = trio();
	int sets[7];
	char byte;
	for (int i = 0; i < 7; i++)
		sets[i] = epoll_create1(0);
	T(watch(sets[0], EPOLL_CTL_ADD, all.server, EPOLLIN, 1));
	for (int i = 1; i < 7; i++)
		say("level %d: %d", i, watch(sets[i], EPOLL_CTL_ADD, sets[i - 1], EPOLLIN, 2));
	T(watch(sets[0], EPOLL_CTL_ADD, sets[3], EPOLLIN, 3));
	T(write(all.client, "x", 1));
	look("outer", sets[3], 5000);
	struct pollfd watched = {.fd = sets[2], .events = POLLIN};
	T(poll(&watched, 1, 0));
	T(read(all.server, &byte, 1));
	T(poll(&watched, 1, 0));
	look("outer", sets[3], 0);
}

CASE(an_edge_reaches_an_outer_set)
{
	struct trio all = trio();
	int inner = epoll_create1(0), outer = epoll_create1(0);
	T(watch(inner, EPOLL_CTL_ADD, all.server, EPOLLIN | EPOLLET, 1));
	T(watch(outer, EPOLL_CTL_ADD, inner, EPOLLIN | EPOLLET, 2));
	T(write(all.client, "x", 1));
	look("outer", outer, 5000);
	look("outer again", outer, 20);
	look("inner", inner, 0);
	T(write(all.client, "y", 1));
	look("outer", outer, 5000);
	look("inner", inner, 0);
}

CASE(a_set_may_be_polled_and_selected)
{
	struct trio all = trio();
	int set = epoll_create1(0);
	struct pollfd watched = {.fd = set, .events = POLLIN | POLLOUT};
	fd_set in;
	FD_ZERO(&in);
	FD_SET(set, &in);
	T(watch(set, EPOLL_CTL_ADD, all.server, EPOLLIN, 1));
	T(poll(&watched, 1, 0));
	T(write(all.client, "x", 1));
	T(poll(&watched, 1, 5000));
	say("%s", events_text((unsigned)watched.revents));
	T(select(set + 1, &in, NULL, NULL, NULL));
	T(recv(all.server, &(char){0}, 1, 0));
	T(poll(&watched, 1, 0));
	T(read(set, &(char){0}, 1));
	T(write(set, "x", 1));
}

CASE(a_set_that_is_copied_is_one_set)
{
	struct trio all = trio();
	int set = epoll_create1(0), copy = FD(dup(set));
	T(watch(copy, EPOLL_CTL_ADD, all.server, EPOLLIN, 1));
	T(write(all.client, "x", 1));
	look("set", set, 5000);
	look("copy", copy, 0);
	T(close(set));
	look("copy", copy, 0);
	T(watch(copy, EPOLL_CTL_MOD, all.server, EPOLLOUT, 2));
	look("copy", copy, 0);
	T(watch(copy, EPOLL_CTL_DEL, all.server, 0, 0));
	look("copy", copy, 0);
}

CASE(a_set_is_shared_with_a_forked_child)
{
	struct trio all = trio();
	int set = epoll_create1(0);
	T(watch(set, EPOLL_CTL_ADD, all.server, EPOLLIN, 1));
	pid_t child = fork();
	if (child == 0) {
		struct epoll_event event = {0};
		int count = epoll_wait(set, &event, 1, 5000);
		char byte;
		if (count != 1 || event.data.u32 != 1 || read(all.server, &byte, 1) != 1)
			_exit(1);
		/* What a child registers is the parent's, too. */
		_exit(watch(set, EPOLL_CTL_ADD, all.listening, EPOLLIN, 2) ? 2 : 0);
	}
	T(write(all.client, "x", 1));
	reap(child);
	look("read by the child", set, 0);
	guest();
	look("a client", set, 5000);
	T(watch(set, EPOLL_CTL_ADD, all.listening, EPOLLIN, 3));
}

CASE(a_copied_descriptor_keeps_its_registration)
{
	struct trio all = trio();
	int set = epoll_create1(0), copy = FD(dup(all.server));
	T(watch(set, EPOLL_CTL_ADD, all.server, EPOLLIN, 1));
	T(close(all.server));
	T(write(all.client, "x", 1));
	look("by a number that is gone", set, 5000);
	T(watch(set, EPOLL_CTL_MOD, copy, EPOLLIN, 2));
	T(watch(set, EPOLL_CTL_DEL, copy, 0, 0));
	T(read(copy, &(char){0}, 1));
	T(write(all.client, "y", 1));
	await(copy, POLLIN);
	T(close(copy));
	look("gone", set, 20);
}

CASE(a_number_used_again_is_not_registered)
{
	struct trio all = trio();
	int set = epoll_create1(0), number = all.server, client;
	T(watch(set, EPOLL_CTL_ADD, all.server, EPOLLIN, 1));
	T(close(all.server));
	int again = served(all.listening, &client);
	T(again == number);
	T(write(client, "x", 1));
	await(again, POLLIN);
	look("not registered", set, 20);
	T(watch(set, EPOLL_CTL_MOD, again, EPOLLIN, 2));
	T(watch(set, EPOLL_CTL_ADD, again, EPOLLIN, 3));
	look("registered", set, 5000);
}

CASE(many_events_come_in_portions)
{
	int fd = listener(), set = epoll_create1(0), servers[10], clients[10], seen[10] = {0};
	for (int i = 0; i < 10; i++) {
		servers[i] = served(fd, &clients[i]);
		T(watch(set, EPOLL_CTL_ADD, servers[i], EPOLLIN, (unsigned)i));
		T(write(clients[i], "x", 1));
		await(servers[i], POLLIN);
	}
	/* Level-triggered readiness takes turns, so nobody starves. */
	for (int round = 0; round < 5; round++) {
		struct epoll_event got[3];
		int count = epoll_wait(set, got, 3, 0);
		for (int i = 0; i < count; i++)
			seen[got[i].data.u32]++;
	}
	for (int i = 0; i < 10; i++)
		say("%d: %s", i, seen[i] ? "seen" : "starved");
}

CASE(registrations_before_bind_keep_edges_and_one_shots)
{
	int set = epoll_create1(0), other = epoll_create1(0), on = 1;
	int fd = FD(socket(AF_INET, SOCK_STREAM, 0));
	T(watch(set, EPOLL_CTL_ADD, fd, EPOLLIN | EPOLLET, 1));
	T(watch(other, EPOLL_CTL_ADD, fd, EPOLLIN | EPOLLONESHOT, 2));
	T(setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on));
	look("fresh", set, 0);
	T(watch(other, EPOLL_CTL_MOD, fd, EPOLLIN | EPOLLONESHOT, 2));
	T(bind_v4(fd, "127.0.0.1", listen_port));
	T(listen(fd, 5));
	for (int i = 0; i < 2; i++) {
		guest();
		look("edge", set, 5000);
	}
	await(fd, POLLIN);
	T(watch(other, EPOLL_CTL_MOD, fd, EPOLLIN | EPOLLONESHOT, 3));
	look("one shot", other, 5000);
	look("one shot", other, 0);
}

CASE(a_registration_between_bind_and_listen_works)
{
	int set = epoll_create1(0), on = 1;
	int fd = FD(socket(AF_INET, SOCK_STREAM, 0));
	T(setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on));
	T(bind_v4(fd, "127.0.0.1", listen_port));
	T(watch(set, EPOLL_CTL_ADD, fd, EPOLLIN, 1));
	T(watch(set, EPOLL_CTL_DEL, fd, 0, 0));
	T(watch(set, EPOLL_CTL_ADD, fd, EPOLLIN, 2));
	T(listen(fd, 5));
	look("idle", set, 0);
	guest();
	look("a client", set, 5000);
	T(watch(set, EPOLL_CTL_DEL, fd, 0, 0));
	look("none", set, 0);
}

CASE(a_set_closed_before_listen_is_forgotten)
{
	int set = epoll_create1(0), fd = FD(socket(AF_INET, SOCK_STREAM, 0)), on = 1, number = set;
	T(watch(set, EPOLL_CTL_ADD, fd, EPOLLIN, 1));
	T(close(set));
	T(epoll_create1(0) == number);
	T(setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on));
	T(bind_v4(fd, "127.0.0.1", listen_port));
	T(listen(fd, 5));
	guest();
	await(fd, POLLIN);
	look("another set", number, 20);
}

CASE(an_accepted_connection_registers_at_once)
{
	int fd = listener(), set = epoll_create1(0), client = guest();
	T(write(client, "early", 5));
	await(fd, POLLIN);
	usleep(5000);
	int server = FD(accept(fd, NULL, NULL));
	T(watch(set, EPOLL_CTL_ADD, server, EPOLLIN | EPOLLET | EPOLLRDHUP, 1));
	look("early", set, 5000);
	T(close(client));
	struct epoll_event got = {0};
	while (epoll_wait(set, &got, 1, 5000) == 1 && !(got.events & EPOLLRDHUP))
		;
	say("%s", events_text(got.events));
}

CASE(a_wakeup_flag_is_taken)
{
	struct trio all = trio();
	int set = epoll_create1(0);
	T(watch(set, EPOLL_CTL_ADD, all.server, EPOLLIN | EPOLLWAKEUP, 1));
	T(write(all.client, "x", 1));
	look("data", set, 5000);
}

static void read_it(void *fd) { recv(*(int *)fd, &(char){0}, 1, 0); }

CASE(another_thread_may_read_what_a_set_told)
{
	struct trio all = trio();
	int set = epoll_create1(0);
	T(watch(set, EPOLL_CTL_ADD, all.server, EPOLLIN, 1));
	for (int i = 0; i < 3; i++) {
		T(write(all.client, "x", 1));
		look("told", set, 5000);
		pthread_join(after_ms(0, read_it, &all.server), NULL);
		look("read elsewhere", set, 0);
	}
}

struct registration {
	int set, fd;
};

static void register_it(void *argument)
{
	struct registration *it = argument;
	watch(it->set, EPOLL_CTL_ADD, it->fd, EPOLLIN, 5);
}

CASE(a_registration_wakes_whoever_waits_already)
{
	struct trio all = trio();
	struct registration it = {epoll_create1(0), all.server};
	T(write(all.client, "x", 1));
	EXPECT(all.server, POLLIN | POLLOUT);
	pthread_t thread = after_ms(20, register_it, &it);
	look("told", it.set, 5000);
	pthread_join(thread, NULL);
}

static void *wait_for_edge(void *argument)
{
	struct epoll_event got;
	return (void *)(long)epoll_wait(*(int *)argument, &got, 1, 200);
}

CASE(an_edge_is_told_to_one_waiter)
{
	struct trio all = trio();
	int set = epoll_create1(0);
	pthread_t threads[3];
	T(watch(set, EPOLL_CTL_ADD, all.server, EPOLLIN | EPOLLET, 1));
	for (int i = 0; i < 3; i++)
		pthread_create(&threads[i], NULL, wait_for_edge, &set);
	usleep(30000);
	T(write(all.client, "x", 1));
	long told = 0;
	for (int i = 0; i < 3; i++) {
		void *result;
		pthread_join(threads[i], &result);
		told += (long)result;
	}
	say("%ld told", told);
}

static const unsigned kinds[] = {EPOLLIN, EPOLLIN | EPOLLOUT, EPOLLIN | EPOLLRDHUP | EPOLLET, EPOLLIN | EPOLLOUT | EPOLLONESHOT};

CASE(a_listener_that_is_shut_down_keeps_its_registrations)
{
	for (int kind = 0; kind < 4; kind++) {
		int fd = listener(), set = epoll_create1(0);
		T(watch(set, EPOLL_CTL_ADD, fd, kinds[kind], 1));
		look("listens", set, 0);
		T(shutdown(fd, SHUT_RDWR));
		look("shut down", set, 20);
		look("again", set, 20);
		T(watch(set, EPOLL_CTL_ADD, fd, EPOLLIN, 2));
		T(listen(fd, 5));
		look("listens again", set, 20);
		int client = guest();
		look("a client", set, kind == 3 ? 50 : 5000);
		T(watch(set, EPOLL_CTL_MOD, fd, EPOLLIN, 3));
		look("changed", set, 5000);
		T(watch(set, EPOLL_CTL_DEL, fd, 0, 0));
		close(client);
		close(fd);
		close(set);
	}
}

CASE(a_registration_made_before_listen_is_the_same_after)
{
	for (int kind = 0; kind < 4; kind++)
		for (int looks = 0; looks < 2; looks++) {
			int fd = socket(AF_INET, SOCK_STREAM, 0), set = epoll_create1(0);
			setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &(int){1}, sizeof(int));
			T(watch(set, EPOLL_CTL_ADD, fd, kinds[kind], 1));
			if (looks)
				look("fresh", set, 0);
			T(bind_v4(fd, "127.0.0.1", listen_port));
			if (looks)
				look("bound", set, 0);
			T(listen(fd, 5));
			look("listens", set, 20);
			int client = guest();
			look("a client", set, kind == 3 && looks ? 50 : 5000);
			T(watch(set, EPOLL_CTL_MOD, fd, EPOLLIN | EPOLLOUT, 2));
			look("changed", set, 5000);
			close(client);
			close(fd);
			close(set);
		}
}

CASE(a_registration_made_before_connect_is_the_same_after)
{
	int elsewhere = socket(AF_INET, SOCK_STREAM, 0);
	setsockopt(elsewhere, SOL_SOCKET, SO_REUSEADDR, &(int){1}, sizeof(int));
	T(bind_v4(elsewhere, "127.0.0.1", connect_port));
	T(listen(elsewhere, 9));
	for (int kind = 0; kind < 4; kind++)
		for (int looks = 0; looks < 2; looks++) {
			int fd = socket(AF_INET, SOCK_STREAM, 0), set = epoll_create1(0);
			T(watch(set, EPOLL_CTL_ADD, fd, kinds[kind], 1));
			if (looks)
				look("fresh", set, 0);
			T(connect_v4(fd, connect_port));
			look("connected", set, 20);
			look("again", set, 20);
			int server = accept(elsewhere, NULL, NULL);
			T(write(server, "x", 1));
			await(fd, POLLIN);
			look("bytes", set, kind == 3 ? 50 : 5000);
			close(server);
			close(fd);
			close(set);
		}
}
