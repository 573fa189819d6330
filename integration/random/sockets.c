/* Steps that make, name, copy and end sockets. */
#include "world.h"

static int number(const char *word) { return atoi(word) % SLOTS; }

static socklen_t loopback(struct sockaddr_storage *storage, int is_v6, int is_any, int port)
{
	memset(storage, 0, sizeof *storage);
	if (is_v6) {
		struct sockaddr_in6 *address = (void *)storage;
		/* Any: the clients come over IPv4. */
		*address = (struct sockaddr_in6){.sin6_family = AF_INET6, .sin6_port = htons((uint16_t)port)};
		return sizeof *address;
	}
	struct sockaddr_in *address = (void *)storage;
	*address = (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
	address->sin_addr.s_addr = is_any ? htonl(INADDR_ANY) : inet_addr(getenv("TEST_HOST") ?: "127.0.0.1");
	return sizeof *address;
}

static int is_v6(int fd)
{
	int domain = AF_INET;
	socklen_t length = sizeof domain;
	getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &length);
	return domain == AF_INET6;
}

/* socket S v4|v6 wait|nowait */
static void make(char **words)
{
	int slot = number(words[1]), on = 1;
	if (file_of(slot)) {
		say_skipped("taken");
		return;
	}
	int type = SOCK_STREAM | (is(words[3], "nowait") ? SOCK_NONBLOCK : 0);
	int fd = socket(is(words[2], "v6") ? AF_INET6 : AF_INET, type, 0);
	say(" %s", fd < 0 ? errno_text(errno) : "made");
	if (fd < 0)
		return;
	/* Or connections that programs before left behind would decide whether this one can be bound. */
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
	name_slot(slot, fd, add_file(FRESH));
}

/* bind S own|any|zero */
static void name(char **words)
{
	int slot = number(words[1]), fd = fd_of(slot);
	struct sockaddr_storage address;
	struct file *file = file_of(slot);
	/* A connection that is over may be bound again, which nobody does. */
	if (file && (file->kind == SPENT || file->kind == CONNECTION || is_shared(slot))) {
		say_skipped("spent or shared");
		return;
	}
	socklen_t length = loopback(&address, is_v6(fd), is(words[2], "any"), is(words[2], "zero") ? 0 : listen_port);
	int result = bind(fd, (void *)&address, length);
	say_result(result);
	if (result == 0 && file->kind == FRESH) {
		file->kind = BOUND;
		file->is_named = !is(words[2], "zero");
	}
}

/* listen S N */
static void start_listening(char **words)
{
	int slot = number(words[1]), fd = fd_of(slot);
	struct file *file = file_of(slot);
	/* docs/conformance.md: what becomes a socket of the card's does so in one process. */
	if (file && (file->kind == SPENT || (file->kind != LISTENER && is_shared(slot)))) {
		say_skipped("spent or shared");
		return;
	}
	int result = listen(fd, atoi(words[2]));
	say_result(result);
	if (result == 0 && file) {
		file->kind = LISTENER;
		file->port = local_port(fd);
	}
}

static struct link *link_from(const struct sockaddr_storage *peer)
{
	int port = ntohs(peer->ss_family == AF_INET6 ? ((const struct sockaddr_in6 *)peer)->sin6_port
						     : ((const struct sockaddr_in *)peer)->sin_port);
	for (int i = world->link_count - 1; i >= 0; i--)
		if (world->links[i].port == port)
			return &world->links[i];
	return NULL;
}

/* accept D S plain|nowait|cloexec */
static void take(char **words)
{
	int target = number(words[1]), slot = number(words[2]), fd = fd_of(slot);
	struct file *listener = file_of(slot);
	if (file_of(target)) {
		say_skipped("taken");
		return;
	}
	int is_idle = !(state_of_slot(slot) & (POLLIN | POLLHUP | POLLERR));
	if (listener && listener->kind == LISTENER && is_idle && !is_nonblocking(fd) && !has_timeout(fd, SO_RCVTIMEO)) {
		say_skipped("it would wait");
		return;
	}
	int flags = is(words[3], "nowait") ? SOCK_NONBLOCK : is(words[3], "cloexec") ? SOCK_CLOEXEC : 0;
	struct sockaddr_storage peer = {0};
	socklen_t length = sizeof peer;
	int taken = flags ? accept4(fd, (void *)&peer, &length, flags) : accept(fd, (void *)&peer, &length);
	note_accepted(taken, &peer, length, target, listener);
}

static void show_timeout(const char *name, int fd, int option)
{
	struct timeval limit = {0};
	socklen_t length = sizeof limit;
	if (getsockopt(fd, SOL_SOCKET, option, &limit, &length) == 0)
		say(" %s %ld", name, (long)(limit.tv_sec * 1000000 + limit.tv_usec));
}

/* Says what accept returned, and puts the connection into the slot `target`. */
void note_accepted(int taken, const struct sockaddr_storage *peer, socklen_t length, int target, struct file *listener)
{
	if (taken < 0) {
		say_error(errno);
		return;
	}
	say_address((const void *)peer, length);
	show_timeout("receive", taken, SO_RCVTIMEO);
	show_timeout("send", taken, SO_SNDTIMEO);
	int file = add_file(CONNECTION);
	struct link *link = link_from(peer);
	if (link) {
		world->files[file].link = (int)(link - world->links);
		link->file = file;
	}
	if (listener)
		listener->waiting--;
	name_slot(target, taken, file);
	/* Its wire is on its way to the card. */
	soil(BY_PROGRAM);
}

/* connect S */
static void reach(char **words)
{
	int slot = number(words[1]), fd = fd_of(slot), client = 0;
	struct file *file = file_of(slot);
	while (client < CLIENTS && world->clients[client].fd >= 0)
		client++;
	if (client == CLIENTS || (file && (file->kind == BOUND || file->kind == SPENT)) || (file && is_v6(fd)) || is_shared(slot)) {
		say_skipped("not now");
		return;
	}
	struct sockaddr_storage address;
	socklen_t length = loopback(&address, 0, 0, connect_port);
	int result = connect(fd, (void *)&address, length);
	say_result(result);
	if (!file || file->kind != FRESH)
		return;
	if (result < 0 && errno == EINPROGRESS) {
		struct pollfd watched = {.fd = fd, .events = POLLOUT};
		poll(&watched, 1, PATIENCE_MS);
		int error = 0;
		socklen_t size = sizeof error;
		getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size);
		say(", then %s", error ? errno_text(error) : "connected");
		result = error ? -1 : 0;
	}
	/* What a socket that was refused is good for is not the same: docs/conformance.md. */
	file->kind = CONNECTION;
	if (result < 0)
		spend(file);
	else
		world->wanted_peer = (int)(file - world->files);
}

/* The other end of a connection to elsewhere becomes a client. */
void accept_peer(void)
{
	int client = 0, file = world->wanted_peer;
	if (file < 0)
		return;
	world->wanted_peer = -1;
	while (world->clients[client].fd >= 0)
		client++;
	struct pollfd watched = {.fd = world->elsewhere, .events = POLLIN};
	poll(&watched, 1, PATIENCE_MS);
	int fd = accept4(world->elsewhere, NULL, NULL, SOCK_CLOEXEC), on = 1;
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
	int link = add_link(client, 0);
	world->links[link].file = file;
	world->files[file].link = link;
	world->clients[client] = (struct client){.fd = fd, .link = link};
}

void open_elsewhere(void)
{
	struct sockaddr_storage address;
	int on = 1, fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	socklen_t length = loopback(&address, 0, 0, connect_port);
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
	if (bind(fd, (void *)&address, length) || listen(fd, 10)) {
		perror("elsewhere");
		_exit(2);
	}
	world->elsewhere = fcntl(fd, F_DUPFD_CLOEXEC, 940);
	close(fd);
}

/* shutdown S rd|wr|rdwr */
static void end(char **words)
{
	int slot = number(words[1]), fd = fd_of(slot);
	struct file *file = file_of(slot);
	int how = is(words[2], "rd") ? SHUT_RD : is(words[2], "wr") ? SHUT_WR : SHUT_RDWR;
	/* docs/conformance.md: a socket that is not connected yet remembers it. */
	if (file && (file->kind == FRESH || file->kind == BOUND)) {
		say_skipped("not connected");
		return;
	}
	/* docs/conformance.md: another process' descriptor goes on listening. */
	if (file && file->kind == LISTENER && how != SHUT_WR && is_shared(slot)) {
		say_skipped("it is shared");
		return;
	}
	int result = shutdown(fd, how);
	say_result(result);
	/* ENOTCONN is an edge on the kernel, too. */
	world->must_swallow[0] = world->must_swallow[1] = 1;
	if (result < 0 || !file)
		return;
	if (file->kind == LISTENER) {
		if (how != SHUT_WR)
			unlisten(file);
		soil(BY_PROGRAM);
		return;
	}
	file->cannot_be_read |= how != SHUT_WR;
	file->cannot_be_written |= how != SHUT_RD;
	/* An edge of the acknowledgement of the FIN, which comes when it comes. */
	if (how != SHUT_RD)
		forget_edges(file);
	soil(BY_PROGRAM);
}

/* close S */
static void let_go(char **words)
{
	int slot = number(words[1]);
	int result = close(fd_of(slot));
	drop_slot(slot);
	say_result(result);
	soil(BY_PROGRAM);
}

/* dup|dupfd|dup2|dup3 D S */
static void copy(char **words)
{
	int target = number(words[1]), slot = number(words[2]), fd = -1;
	int from = fd_of(slot), file = world->processes[me].slot_file[slot];
	if (file_of(target) && (is(words[0], "dup") || is(words[0], "dupfd"))) {
		say_skipped("taken");
		return;
	}
	if (is(words[0], "dup") || !file_of(target))
		fd = dup(from);
	else if (is(words[0], "dupfd"))
		fd = fcntl(from, F_DUPFD_CLOEXEC, 50);
	else
		fd = is(words[0], "dup3") ? dup3(from, fd_of(target), O_CLOEXEC) : dup2(from, fd_of(target));
	say(" %s", fd < 0 ? errno_text(errno) : "copied");
	if (fd < 0 || (target == slot && file >= 0))
		return;
	drop_slot(target);
	name_slot(target, fd, file);
	soil(BY_PROGRAM);
}

/* file S: a descriptor that is no socket */
static void open_file(char **words)
{
	int slot = number(words[1]);
	if (file_of(slot)) {
		say_skipped("taken");
		return;
	}
	int fd = open("/dev/zero", O_RDWR);
	say(" %s", fd < 0 ? errno_text(errno) : "opened");
	if (fd >= 0)
		name_slot(slot, fd, add_file(PLAIN));
}

/* mode S fcntl|ioctl wait|nowait */
static void set_mode(char **words)
{
	int fd = fd_of(number(words[1])), on = is(words[3], "nowait"), result;
	if (is(words[2], "ioctl")) {
		result = ioctl(fd, FIONBIO, &on);
	} else {
		int flags = fcntl(fd, F_GETFL);
		if (flags >= 0)
			say(" %s", flags & O_NONBLOCK ? "was nowait" : "was wait");
		result = fcntl(fd, F_SETFL, on ? flags | O_NONBLOCK : flags & ~O_NONBLOCK);
	}
	say_result(result);
}

/* flags S: and the time-outs, in microseconds */
static void show_flags(char **words)
{
	int fd = fd_of(number(words[1])), flags = fcntl(fd, F_GETFL);
	if (flags < 0) {
		say_error(errno);
		return;
	}
	say(" %s%s fd %d", flags & O_NONBLOCK ? "nowait" : "wait", (flags & O_ACCMODE) == O_RDWR ? "" : " not rdwr",
	    fcntl(fd, F_GETFD));
	show_timeout("receive", fd, SO_RCVTIMEO);
	show_timeout("send", fd, SO_SNDTIMEO);
}

/* name S; peer S */
static void show_name(char **words)
{
	int slot = number(words[1]), fd = fd_of(slot);
	struct sockaddr_storage address = {0};
	socklen_t length = sizeof address;
	int result = is(words[0], "name") ? getsockname(fd, (void *)&address, &length)
					  : getpeername(fd, (void *)&address, &length);
	if (result < 0)
		say_error(errno);
	else
		say_address((void *)&address, length);
}

int socket_step(char **words, int count)
{
	static const struct {
		const char *verb;
		int words;
		void (*run)(char **words);
	} steps[] = {{"socket", 4, make}, {"bind", 3, name}, {"listen", 3, start_listening},
		     {"accept", 4, take}, {"connect", 2, reach}, {"shutdown", 3, end}, {"close", 2, let_go},
		     {"dup", 3, copy}, {"dupfd", 3, copy}, {"dup2", 3, copy}, {"dup3", 3, copy},
		     {"file", 2, open_file}, {"mode", 4, set_mode}, {"flags", 2, show_flags},
		     {"name", 2, show_name}, {"peer", 2, show_name}};
	for (size_t i = 0; i < sizeof steps / sizeof *steps; i++)
		if (is(words[0], steps[i].verb) && count == steps[i].words) {
			steps[i].run(words);
			return 1;
		}
	return 0;
}
