/* What is known of the program's files, and how what is under way arrives. */
#include "world.h"

struct world *world;
int me;
static int sync_client = -1, sync_server = -1;

void make_world(void)
{
	world = mmap(NULL, sizeof *world, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (world == MAP_FAILED)
		exit(2);
	for (size_t i = 0; i < sizeof pattern; i++)
		pattern[i] = (unsigned char)(i * 31 + i / 251);
}

void clear_world(void)
{
	memset(world, 0, sizeof *world);
	memset(world->processes, -1, sizeof world->processes);
	memset(world->watched, -1, sizeof world->watched);
	for (int i = 0; i < CLIENTS; i++)
		world->clients[i].fd = world->clients[i].link = -1;
	world->wanted_peer = world->elsewhere = -1;
}

long now_ms(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

void pause_shortly(void) { usleep(200); }

/* An empty slot has a number that is never open. */
int fd_of(int slot)
{
	int fd = world->processes[me].slot_fd[slot];
	return fd >= 0 ? fd : 800 + slot;
}

struct file *file_of(int slot)
{
	int file = world->processes[me].slot_file[slot];
	return file >= 0 ? &world->files[file] : NULL;
}

struct link *link_of(int slot)
{
	struct file *file = file_of(slot);
	return file && file->link >= 0 ? &world->links[file->link] : NULL;
}

int is_shared(int slot)
{
	int file = world->processes[me].slot_file[slot];
	for (int other = 0; other < SLOTS && file >= 0; other++)
		if (world->processes[!me].slot_file[other] == file)
			return 1;
	return file >= 0 && world->files[file].registered & 1 << !me;
}

int free_slot(void)
{
	for (int slot = 0; slot < SLOTS; slot++)
		if (!file_of(slot))
			return slot;
	return -1;
}

int add_file(enum kind kind)
{
	if (world->file_count == FILES_MAX)
		_exit(7);
	world->files[world->file_count] = (struct file){.kind = kind, .link = -1};
	return world->file_count++;
}

int add_link(int client, int port)
{
	if (world->link_count == LINKS_MAX)
		_exit(7);
	world->links[world->link_count] = (struct link){.client = client, .file = -1, .port = port};
	return world->link_count++;
}

void name_slot(int slot, int fd, int file)
{
	world->processes[me].slot_fd[slot] = fd;
	world->processes[me].slot_file[slot] = file;
	world->files[file].references++;
}

/* The slot's descriptor is closed, or about to be replaced. */
void drop_slot(int slot)
{
	struct file *file = file_of(slot);
	if (file && --file->references == 0 && file->link >= 0)
		world->links[file->link].file = -1;
	world->processes[me].slot_fd[slot] = world->processes[me].slot_file[slot] = -1;
}

int local_port(int fd)
{
	struct sockaddr_storage name = {0};
	socklen_t length = sizeof name;
	if (getsockname(fd, (void *)&name, &length))
		return 0;
	return ntohs(name.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&name)->sin6_port
						: ((struct sockaddr_in *)&name)->sin_port);
}

unsigned state_of(int fd)
{
	struct pollfd watched = {.fd = fd, .events = POLLIN | POLLPRI | POLLOUT | POLLRDHUP};
	poll(&watched, 1, 0);
	return (unsigned short)watched.revents;
}

unsigned state_of_slot(int slot) { return state_of(fd_of(slot)); }

long waiting_bytes(int fd)
{
	int bytes = 0;
	return ioctl(fd, FIONREAD, &bytes) < 0 ? -1 : bytes;
}

int has_timeout(int fd, int option)
{
	struct timeval limit = {0};
	socklen_t length = sizeof limit;
	return getsockopt(fd, SOL_SOCKET, option, &limit, &length) == 0 && (limit.tv_sec || limit.tv_usec);
}

int is_nonblocking(int fd)
{
	int flags = fcntl(fd, F_GETFL);
	return flags < 0 || flags & O_NONBLOCK;
}

static void connect_sync(int port)
{
	int on = 1, listening = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
	address.sin_addr.s_addr = inet_addr(getenv("TEST_HOST") ?: "127.0.0.1");
	setsockopt(listening, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
	sync_client = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (bind(listening, (void *)&address, sizeof address) || listen(listening, 1) ||
	    connect(sync_client, (void *)&address, sizeof address) ||
	    (sync_server = accept(listening, NULL, NULL)) < 0) {
		perror("the connection that settles");
		exit(2);
	}
	setsockopt(sync_client, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
	setsockopt(sync_server, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
	close(listening);
}

/* A connection of our own on the same card, out of the way of the program's numbers. */
void open_sync(int port)
{
	connect_sync(port);
	int client = fcntl(sync_client, F_DUPFD_CLOEXEC, 910), server = fcntl(sync_server, F_DUPFD_CLOEXEC, 920);
	close(sync_client);
	close(sync_server);
	sync_client = client;
	sync_server = server;
}

void close_sync(void)
{
	close(sync_client);
	close(sync_server);
}

/* There and back. What the program did before is done by the card before the answer is, since its calls keep their order;
 * what clients did before is in the hands of the card before the question. Twice, for what the card passes on only in the
 * round after. */
static void round_trips(void)
{
	char byte = 0;
	for (int i = 0; i < 2; i++)
		if (write(sync_client, &byte, 1) != 1 || read(sync_server, &byte, 1) != 1 ||
		    write(sync_server, &byte, 1) != 1 || read(sync_client, &byte, 1) != 1)
			_exit(8);
}

/* Whether so many bytes are there, or the end of the stream, behind which nothing comes. */
static int has(int fd, long bytes)
{
	return waiting_bytes(fd) >= bytes || state_of(fd) & (POLLRDHUP | POLLHUP | POLLERR | POLLNVAL);
}

/* Bytes that are known to come, in either direction: large ones take the card several rounds. */
static int has_arrived(const struct link *link)
{
	if (link->is_odd)
		return 1;
	if (link->client >= 0 && !has(world->clients[link->client].fd, link->down_sent - link->down_taken))
		return 0;
	for (int slot = 0; slot < SLOTS; slot++)
		if (file_of(slot) && link->file >= 0 && file_of(slot) == &world->files[link->file])
			return file_of(slot)->cannot_be_read || has(fd_of(slot), link->up_sent - link->up_taken);
	return 1;
}

void settle(void)
{
	int who = me;
	if (world->dirt == CLEAN)
		return;
	/* Also when the parent acts on behalf of its kid: the descriptors looked at are its own. */
	me = 0;
	round_trips();
	long start = now_ms();
	for (int i = 0; i < world->link_count; i++)
		while (!has_arrived(&world->links[i])) {
			if (now_ms() - start > 1000) {
				fprintf(stderr, "link %d did not settle before %s: %ld %ld %ld %ld\n", i, world->steps[0], world->links[i].up_sent, world->links[i].up_taken, world->links[i].down_sent, world->links[i].down_taken);
				world->links[i].is_odd = 1;
				break;
			}
			pause_shortly();
		}
	round_trips();
	world->dirt = CLEAN;
	me = who;
}

void soil(enum dirt by) { world->dirt = by; }
