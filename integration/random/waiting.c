/* Steps that ask what is ready. */
#include "world.h"

#define FOUND_MAX 32
/* Names of the sets that are watched by others, above those of slots. */
#define NAME_OF_SET 100

int set_fd(int set)
{
	int fd = world->processes[me].set_fd[set];
	return fd >= 0 ? fd : 790 + set;
}

static int *watched_in(int set)
{
	int instance = world->processes[me].set_instance[set];
	return instance >= 0 ? world->watched[instance] : NULL;
}

/* epoll E */
static void make(int set)
{
	struct process *process = &world->processes[me];
	if (world->kid || process->set_fd[set] >= 0 || world->instance_count == INSTANCES_MAX) {
		say_skipped("taken");
		return;
	}
	int fd = epoll_create1(EPOLL_CLOEXEC);
	say(" %s", fd < 0 ? errno_text(errno) : "made");
	/* Above the slots': a set is not one of the program's sockets. */
	process->set_fd[set] = fcntl(fd, F_DUPFD_CLOEXEC, 60);
	close(fd);
	process->set_instance[set] = world->instance_count++;
}

/* eclose E */
static void drop(int set)
{
	if (world->kid) {
		say_skipped("it is shared");
		return;
	}
	say_result(close(set_fd(set)));
	world->processes[me].set_fd[set] = world->processes[me].set_instance[set] = -1;
}

static unsigned events_of(const char *words)
{
	unsigned events = 0;
	events |= strstr(words, "in") ? EPOLLIN : 0u;
	events |= strstr(words, "out") ? EPOLLOUT : 0u;
	events |= strstr(words, "rdhup") ? EPOLLRDHUP : 0u;
	events |= strstr(words, "et") ? EPOLLET : 0u;
	events |= strstr(words, "once") ? EPOLLONESHOT : 0u;
	return events;
}

/* ctl E add|mod|del S EVENTS */
static void control(int set, char **words)
{
	int slot = atoi(words[3]) % SLOTS, file = world->processes[me].slot_file[slot], *watched = watched_in(set);
	int operation = is(words[2], "add") ? EPOLL_CTL_ADD : is(words[2], "mod") ? EPOLL_CTL_MOD : EPOLL_CTL_DEL;
	struct epoll_event event = {.events = events_of(words[4])};
	event.data.u32 = (unsigned)slot | (unsigned)(file + 1) << 8;
	/* The acknowledgement of its FIN is an edge on the kernel, and comes when it comes. */
	if (file >= 0 && world->files[file].cannot_be_written)
		event.events &= ~(unsigned)EPOLLET;
	int result = epoll_ctl(set_fd(set), operation, fd_of(slot), &event);
	say_result(result);
	if (result == 0 && file >= 0 && world->kid)
		world->files[file].registered |= 1 << me;
	if (result == 0 && watched)
		world->is_edge[world->processes[me].set_instance[set]][slot] = !!(event.events & EPOLLET);
	if (result == 0 && watched)
		watched[slot] = event.events & EPOLLIN && !(event.events & EPOLLONESHOT) && !is(words[2], "del") ? file : -1;
}

/* nest E INNER */
static void nest(int set, int inner)
{
	struct epoll_event event = {.events = EPOLLIN, .data.u32 = (unsigned)(NAME_OF_SET + inner)};
	say_result(epoll_ctl(set_fd(set), EPOLL_CTL_ADD, set_fd(inner), &event));
}

static int by_name(const void *a, const void *b)
{
	const struct epoll_event *one = a, *other = b;
	return (int)one->data.u32 - (int)other->data.u32;
}

int say_found(struct epoll_event *found, int count)
{
	int told = 0;
	qsort(found, (size_t)count, sizeof *found, by_name);
	for (int i = 0; i < count; i++) {
		int slot = (int)(found[i].data.u32 & 255), file = (int)(found[i].data.u32 >> 8) - 1;
		/* docs/conformance.md: a registration under a number that was closed, of what stopped listening or was refused. */
		if (file >= 0 && world->files[file].is_replaced && world->processes[me].slot_file[slot] != file)
			continue;
		say(" [%d", slot);
		say_events(found[i].events);
		say("]");
		told++;
	}
	say(" %d ready", told);
	return told;
}

void forget_edges(const struct file *file)
{
	for (int set = 0; set < SETS; set++)
		for (int slot = 0; slot < SLOTS; slot++) {
			int instance = world->processes[me].set_instance[set];
			if (instance < 0 || file_of(slot) != file || !world->is_edge[instance][slot])
				continue;
			epoll_ctl(set_fd(set), EPOLL_CTL_DEL, fd_of(slot), NULL);
			world->watched[instance][slot] = -1;
			world->is_edge[instance][slot] = 0;
		}
}

void spend(struct file *file)
{
	file->kind = SPENT;
	file->is_replaced = 1;
}

void unlisten(struct file *file)
{
	file->kind = file->is_named ? BOUND : SPENT;
	file->is_replaced = 1;
	file->waiting = file->port = 0;
}

void swallow_edges(void)
{
	struct epoll_event found[FOUND_MAX];
	if (!world->must_swallow[me])
		return;
	world->must_swallow[me] = 0;
	for (int set = 0; set < SETS; set++)
		epoll_wait(set_fd(set), found, FOUND_MAX, 0);
}

/* wait E MS */
static void look(int set, int limit)
{
	struct epoll_event found[FOUND_MAX];
	int count = epoll_wait(set_fd(set), found, FOUND_MAX, limit);
	if (count < 0)
		say_error(errno);
	else
		say_found(found, count);
}

/* poll MS S S2 EVENTS */
static void ask(char **words)
{
	int slots[2] = {atoi(words[2]) % SLOTS, atoi(words[3]) % SLOTS};
	struct pollfd watched[2];
	for (int i = 0; i < 2; i++) {
		unsigned events = events_of(words[4]) & (POLLIN | POLLOUT | POLLRDHUP);
		watched[i] = (struct pollfd){.fd = fd_of(slots[i]), .events = (short)events};
	}
	int result = poll(watched, 2, atoi(words[1]));
	say_result(result);
	for (int i = 0; i < 2; i++)
		say_events((unsigned short)watched[i].revents);
}

/* select MS S S2 */
static void choose(char **words)
{
	fd_set in, out, except;
	FD_ZERO(&in);
	FD_ZERO(&out);
	FD_ZERO(&except);
	int slots[2] = {atoi(words[2]) % SLOTS, atoi(words[3]) % SLOTS};
	for (int i = 0; i < 2; i++) {
		FD_SET(fd_of(slots[i]), &in);
		FD_SET(fd_of(slots[i]), &except);
		FD_SET(fd_of(slots[i]), &out);
	}
	struct timeval limit = {.tv_usec = atoi(words[1]) * 1000};
	int result = select(1000, &in, &out, &except, &limit);
	say_result(result);
	for (int i = 0; i < 2 && result >= 0; i++)
		say(" %d%d%d", !!FD_ISSET(fd_of(slots[i]), &in), !!FD_ISSET(fd_of(slots[i]), &out),
		    !!FD_ISSET(fd_of(slots[i]), &except));
}

int waiting_step(char **words, int count)
{
	if (is(words[0], "poll") && count == 5) {
		ask(words);
		return 1;
	}
	if (is(words[0], "select") && count == 4) {
		choose(words);
		return 1;
	}
	if (count < 2)
		return 0;
	int set = atoi(words[1]) % SETS;
	if (is(words[0], "epoll") && count == 2)
		make(set);
	else if (is(words[0], "eclose") && count == 2)
		drop(set);
	else if (is(words[0], "ctl") && count == 5)
		control(set, words);
	else if (is(words[0], "nest") && count == 3)
		nest(set, atoi(words[2]) % SETS);
	else if (is(words[0], "wait") && count == 3)
		look(set, atoi(words[2]));
	else
		return 0;
	return 1;
}
