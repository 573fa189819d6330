/* Steps in which a thread, or the kid, waits for what the parent then does.
 *
 *     blocked CALL S|E S by WAKE...
 *
 * CALL is read, waitall, accept, poll, select or epoll; the second slot is the socket whose readiness ends the wait. WAKE is
 * `write N`, `shut`, `close`, `reset`, `connect K`, `shutdown` or `signal`. */
#include "world.h"

#define WORDS_BEFORE_WAKE 5
#define READ_BYTES 2000

struct call {
	const char *name;
	int slot, set, fd, result, error, target;
	unsigned events;
	unsigned char bytes[READ_BYTES];
	struct epoll_event found[8];
	struct sockaddr_storage peer;
	socklen_t length;
	volatile pid_t thread;
	volatile int is_over;
};

static struct call call;

static void make_call(void)
{
	struct pollfd watched = {.fd = call.fd, .events = POLLIN | POLLRDHUP};
	fd_set in;
	FD_ZERO(&in);
	FD_SET(call.fd, &in);
	if (is(call.name, "read"))
		call.result = (int)recv(call.fd, call.bytes, READ_BYTES, 0);
	else if (is(call.name, "waitall"))
		call.result = (int)recv(call.fd, call.bytes, READ_BYTES, MSG_WAITALL);
	else if (is(call.name, "accept"))
		call.result = accept(call.fd, (void *)&call.peer, &call.length);
	else if (is(call.name, "poll"))
		call.result = poll(&watched, 1, -1);
	else if (is(call.name, "select"))
		call.result = select(call.fd + 1, &in, NULL, NULL, NULL);
	else
		call.result = epoll_wait(set_fd(call.set), call.found, 8, -1);
	call.error = errno;
	call.events = (unsigned short)watched.revents;
}

static void *call_in_thread(void *unused)
{
	call.thread = gettid();
	make_call();
	call.is_over = 1;
	return unused;
}

static void say_outcome(void)
{
	struct link *link = link_of(call.slot);
	int is_read = is(call.name, "read") || is(call.name, "waitall");
	errno = call.error;
	if (is(call.name, "accept")) {
		note_accepted(call.result, &call.peer, call.length, call.target, file_of(call.slot));
	} else if (call.result < 0) {
		say_error(call.error);
	} else if (is_read) {
		say_bytes(call.bytes, call.result);
		if (link)
			link->up_taken += call.result;
	} else if (is(call.name, "epoll")) {
		say_found(call.found, call.result);
	} else {
		say(" = %d", call.result);
		say_events(call.events);
	}
}

int is_asleep(pid_t process, pid_t thread)
{
	char path[60], text[200];
	snprintf(path, sizeof path, "/proc/%d/task/%d/stat", process, thread);
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	long length = read(fd, text, sizeof text - 1);
	close(fd);
	text[length > 0 ? length : 0] = 0;
	const char *state = strrchr(text, ')');
	return state && state[1] && state[2] == 'S';
}

/* Why the call would not wait, or could not be woken; NULL if all is well. */
static const char *objection(char **words, char **wake)
{
	struct file *file = file_of(call.slot);
	struct link *link = link_of(call.slot);
	int is_set = is(call.name, "epoll"), is_accept = is(call.name, "accept");
	int is_read = is(call.name, "read") || is(call.name, "waitall");
	if (!file || (file->kind != CONNECTION && file->kind != LISTENER))
		return "no socket";
	if ((is_read && file->kind != CONNECTION) || (is_accept && file->kind != LISTENER))
		return "another kind of socket";
	if ((is_read || is_accept) && (is_nonblocking(call.fd) || has_timeout(call.fd, SO_RCVTIMEO)))
		return "it would not wait";
	if (state_of_slot(call.slot) & (POLLIN | POLLRDHUP | POLLHUP | POLLERR))
		return "it is ready";
	if (is_accept && (call.target = free_slot()) < 0)
		return "no room";
	int instance = world->processes[me].set_instance[call.set], own = world->processes[me].slot_file[call.slot];
	if (is_set && (instance < 0 || world->watched[instance][call.slot] != own))
		return "not watched";
	if (is(wake[0], "signal"))
		return NULL;
	/* docs/conformance.md: the parent may find the error in poll once more. */
	if (me && is_read && is(wake[0], "reset"))
		return "it is not alone";
	if (is(wake[0], "connect"))
		return file->kind == LISTENER && world->clients[atoi(wake[1]) % CLIENTS].fd < 0 ? NULL : "no such client";
	if (is(wake[0], "shutdown"))
		return me || !(is_read || is_accept) || (is_accept && is_shared(call.slot)) ? "it is not alone" : NULL;
	if (is(words[0], "write") && link && link->up_sent - link->up_taken + READ_BYTES > FLIGHT_MAX)
		return "too much is under way";
	/* An end is told of in more than one way, in turn: docs/conformance.md. */
	if (!is_read && !is(wake[0], "write"))
		return "open";
	return file->kind == CONNECTION && link && link->client >= 0 ? NULL : "no client";
}

static void client_wakes(const char *verb, const char *argument)
{
	char client[12];
	struct link *link = link_of(call.slot);
	if (!link || link->client < 0)
		return;
	snprintf(client, sizeof client, "%d", link->client);
	char *act[] = {(char *)verb, client, (char *)argument};
	client_acts(act, 3);
}

static void wake_up(char **wake, int count)
{
	const char *argument = count > 1 ? wake[1] : "wr";
	if (is(wake[0], "connect"))
		client_connects(atoi(argument) % CLIENTS, call.slot);
	else if (is(wake[0], "shutdown")) {
		struct file *file = file_of(call.slot);
		say_result(shutdown(call.fd, SHUT_RDWR));
		world->must_swallow[0] = world->must_swallow[1] = 1;
		if (file->kind == LISTENER) {
			unlisten(file);
			world->has_ghost = 1;
		} else {
			file->cannot_be_read = file->cannot_be_written = 1;
			forget_edges(file);
		}
		soil(BY_PROGRAM);
	} else if (is(call.name, "waitall") && is(wake[0], "write")) {
		char half[12];
		snprintf(half, sizeof half, "%d", READ_BYTES / 2);
		client_wakes("write", half);
		/* No settling: the first half is taken while the call goes on. */
		pause_shortly();
		client_wakes("write", half);
	} else
		client_wakes(wake[0], argument);
}

/* A signal may come before the call: again, until one ends it. */
static void signal_until(int (*is_over)(void), pid_t process, pthread_t thread)
{
	for (long start = now_ms(); !is_over() && now_ms() - start < PATIENCE_MS;) {
		if (process)
			kill(process, SIGUSR1);
		else
			pthread_kill(thread, SIGUSR1);
		for (int i = 0; i < 25 && !is_over(); i++)
			pause_shortly();
	}
}

static int thread_is_over(void) { return call.is_over; }
static int kid_is_over(void) { return !world->kid_calls; }

static void prepare(char **words)
{
	memset(&call, 0, sizeof call);
	call.name = words[1];
	call.set = atoi(words[2]) % SETS;
	call.slot = atoi(words[3]) % SLOTS;
	call.fd = fd_of(call.slot);
	call.length = sizeof call.peer;
}

/* docs/conformance.md: who is told of a reset at once may find it in poll once more. */
static void take_late_error(void)
{
	int error;
	socklen_t length = sizeof error;
	if (call.result >= 0 || !file_of(call.slot) || file_of(call.slot)->kind != CONNECTION || me)
		return;
	settle();
	getsockopt(call.fd, SOL_SOCKET, SO_ERROR, &error, &length);
}

int blocking_step(char **words, int count)
{
	if (!is(words[0], "blocked") || count <= WORDS_BEFORE_WAKE)
		return 0;
	char **wake = words + WORDS_BEFORE_WAKE;
	prepare(words);
	const char *why = objection(words, wake);
	if (!why && is(call.name, "epoll")) {
		int count = epoll_wait(set_fd(call.set), call.found, 8, 0);
		if (count > 0 && say_found(call.found, count))
			why = "something is ready";
	}
	if (why) {
		say_skipped(why);
		return 1;
	}
	if (me) {
		world->kid_calls = 1;
		make_call();
		world->kid_calls = 0;
		while (!world->is_woken)
			pause_shortly();
		say_outcome();
		return 1;
	}
	pthread_t thread;
	pthread_create(&thread, NULL, call_in_thread, NULL);
	long start = now_ms();
	while (!call.is_over && !(call.thread && is_asleep(getpid(), call.thread)) && now_ms() - start < PATIENCE_MS)
		pause_shortly();
	if (is(wake[0], "signal"))
		signal_until(thread_is_over, 0, thread);
	else
		wake_up(wake, count - WORDS_BEFORE_WAKE);
	for (start = now_ms(); !call.is_over; pause_shortly())
		if (now_ms() - start > PATIENCE_MS) {
			say(" STUCK");
			trace_flush();
			_exit(10);
		}
	pthread_join(thread, NULL);
	say_outcome();
	take_late_error();
	return 1;
}

/* The kid sees its own slots; the parent finds what it needs in the world. */
int wakes_kid(char **words, int count)
{
	char **wake = words + WORDS_BEFORE_WAKE;
	if (!world->kid_calls)
		return 0;
	long start = now_ms();
	while (world->kid_calls && !is_asleep(world->kid, world->kid) && now_ms() - start < PATIENCE_MS)
		pause_shortly();
	me = 1;
	prepare(words);
	me = 0;
	if (is(wake[0], "signal")) {
		signal_until(kid_is_over, world->kid, 0);
	} else {
		me = 1;
		wake_up(wake, count - WORDS_BEFORE_WAKE);
		me = 0;
	}
	world->is_woken = 1;
	return 1;
}
