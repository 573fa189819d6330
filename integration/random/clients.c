/* What the clients do: plain TCP sockets of the kernel's, in the parent. */
#include "world.h"

static unsigned char buffer[FLIGHT_MAX];

static struct client *client_at(const char *word) { return &world->clients[atoi(word) % CLIENTS]; }

static void loopback(struct sockaddr_in *address, int port)
{
	*address = (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
	address->sin_addr.s_addr = inet_addr(getenv("TEST_HOST") ?: "127.0.0.1");
}

/* To the listener at the slot, or where one may be. */
void client_connects(int index, int slot)
{
	struct client *client = &world->clients[index];
	struct file *listener = file_of(slot);
	struct sockaddr_in address;
	int on = 1;
	if (listener && listener->kind != LISTENER)
		listener = NULL;
	/* Whoever listens at the port is the one that is waited for. */
	for (int i = 0; i < world->file_count && !listener; i++)
		if (world->files[i].kind == LISTENER && world->files[i].references && world->files[i].port == listen_port)
			listener = &world->files[i];
	if (client->fd >= 0 || (listener && listener->waiting >= WAITING_MAX) || (!listener && world->has_ghost)) {
		say_skipped("not now");
		return;
	}
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	/* Out of the way: the program's numbers must not depend on the clients'. */
	client->fd = fcntl(fd, F_DUPFD_CLOEXEC, 950);
	close(fd);
	loopback(&address, listener ? listener->port : listen_port);
	int result = connect(client->fd, (void *)&address, sizeof address);
	say_result(result);
	if (result < 0) {
		close(client->fd);
		client->fd = -1;
		return;
	}
	setsockopt(client->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
	client->link = add_link(index, local_port(client->fd));
	if (listener)
		listener->waiting++;
	soil(BY_CLIENT);
}

/* docs/conformance.md: who reads no more is not told of what comes. */
static void end_for(const struct link *link)
{
	if (link->file >= 0 && world->files[link->file].cannot_be_read)
		world->must_swallow[0] = world->must_swallow[1] = 1;
}

static int is_mute(const struct link *link)
{
	const struct file *file = link->file >= 0 ? &world->files[link->file] : NULL;
	return file && file->cannot_be_read && file->cannot_be_written;
}

static void gives(struct client *client, long length)
{
	struct link *link = &world->links[client->link];
	if (link->up_sent - link->up_taken + length > FLIGHT_MAX) {
		say_skipped("too much is under way");
		return;
	}
	/* docs/conformance.md: a reset after both ends were shut is told by calls, not by poll. */
	if (is_mute(link)) {
		say_skipped("nobody is there");
		return;
	}
	long sent = send(client->fd, pattern + link->up_sent % 4096, (size_t)length, MSG_NOSIGNAL | MSG_DONTWAIT);
	say_result(sent);
	link->up_sent += sent > 0 ? sent : 0;
	end_for(link);
	soil(BY_CLIENT);
}

static void takes(struct client *client, long length)
{
	struct link *link = &world->links[client->link];
	long done = 0, taken = 1;
	if (length > FLIGHT_MAX)
		length = FLIGHT_MAX;
	while (done < length && taken > 0) {
		taken = recv(client->fd, buffer + done, (size_t)(length - done), MSG_DONTWAIT);
		done += taken > 0 ? taken : 0;
	}
	int error = errno;
	say_bytes(buffer, done);
	if (done < length)
		say(" then %s", taken == 0 ? "the end" : errno_text(error));
	link->down_taken += done;
	soil(BY_CLIENT);
}

static void leaves(struct client *client, int is_reset)
{
	if (is_mute(&world->links[client->link]) && (is_reset || waiting_bytes(client->fd) > 0)) {
		say_skipped("nobody is there");
		return;
	}
	if (is_reset) {
		struct linger linger = {.l_onoff = 1, .l_linger = 0};
		setsockopt(client->fd, SOL_SOCKET, SO_LINGER, &linger, sizeof linger);
	}
	close(client->fd);
	end_for(&world->links[client->link]);
	world->links[client->link].client = -1;
	world->links[client->link].is_odd |= is_reset;
	client->fd = client->link = -1;
	soil(BY_CLIENT);
}

/* client connect K S | write K N | read K N | shut K wr|rdwr | close K | reset K | state K */
int client_step(char **words, int count)
{
	if (!is(words[0], "client") || count < 3 || me)
		return 0;
	struct client *client = client_at(words[2]);
	if (is(words[1], "connect")) {
		client_connects((int)(client - world->clients), atoi(words[3]) % SLOTS);
		return 1;
	}
	if (client->fd < 0)
		say_skipped("not connected");
	else if (is(words[1], "state"))
		say_events(state_of(client->fd)), say(", %ld there", waiting_bytes(client->fd));
	else if (is(words[1], "read"))
		takes(client, atol(words[3]));
	else
		client_acts(words + 1, count - 1);
	return 1;
}

void client_acts(char **words, int count)
{
	struct client *client = client_at(words[1]);
	if (client->fd < 0)
		return;
	if (is(words[0], "write") && count > 2)
		gives(client, atol(words[2]));
	else if (is(words[0], "shut") && count > 2) {
		say_result(shutdown(client->fd, is(words[2], "wr") ? SHUT_WR : SHUT_RDWR));
		end_for(&world->links[client->link]);
		soil(BY_CLIENT);
	} else if (is(words[0], "close"))
		leaves(client, 0);
	else if (is(words[0], "reset"))
		leaves(client, 1);
}
