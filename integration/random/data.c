/* Steps that move bytes at the program's end. */
#include "world.h"

unsigned char pattern[TRANSFER_MAX + 4096];
static unsigned char buffer[TRANSFER_MAX];

static int flag_of(const char *word)
{
	static const struct {
		const char *word;
		int flag;
	} flags[] = {{"-", 0}, {"peek", MSG_PEEK}, {"dontwait", MSG_DONTWAIT}, {"waitall", MSG_WAITALL},
		     {"trunc", MSG_TRUNC}, {"nosignal", MSG_NOSIGNAL}};
	for (size_t i = 0; i < sizeof flags / sizeof *flags; i++)
		if (is(word, flags[i].word))
			return flags[i].flag;
	return 0;
}

/* Three parts, the second of which is empty. */
static void in_parts(struct iovec parts[3], unsigned char *bytes, long length)
{
	parts[0] = (struct iovec){bytes, (size_t)(length / 3)};
	parts[1] = (struct iovec){bytes + length / 3, 0};
	parts[2] = (struct iovec){bytes + length / 3, (size_t)(length - length / 3)};
}

static long receive(const char *call, int fd, unsigned char *into, long length, int flags, struct msghdr *header)
{
	struct iovec parts[3];
	in_parts(parts, into, length);
	*header = (struct msghdr){.msg_iov = parts, .msg_iovlen = 3};
	if (is(call, "read"))
		return read(fd, into, (size_t)length);
	if (is(call, "readv"))
		return readv(fd, parts, 3);
	if (is(call, "recvfrom"))
		return recvfrom(fd, into, (size_t)length, flags, NULL, NULL);
	if (is(call, "recvmsg"))
		return recvmsg(fd, header, flags);
	if (is(call, "recvmmsg")) {
		struct mmsghdr many = {.msg_hdr = *header};
		int result = recvmmsg(fd, &many, 1, flags, NULL);
		*header = many.msg_hdr;
		return result < 0 ? result : (long)many.msg_len;
	}
	return recv(fd, into, (size_t)length, flags);
}

static long transmit(const char *call, int fd, unsigned char *from, long length, int flags)
{
	struct iovec parts[3];
	in_parts(parts, from, length);
	struct msghdr header = {.msg_iov = parts, .msg_iovlen = 3};
	if (is(call, "write"))
		return write(fd, from, (size_t)length);
	if (is(call, "writev"))
		return writev(fd, parts, 3);
	if (is(call, "sendto"))
		return sendto(fd, from, (size_t)length, flags, NULL, 0);
	if (is(call, "sendmsg"))
		return sendmsg(fd, &header, flags);
	if (is(call, "sendmmsg")) {
		struct mmsghdr many = {.msg_hdr = header};
		int result = sendmmsg(fd, &many, 1, flags);
		return result < 0 ? result : (long)many.msg_len;
	}
	if (is(call, "sendfile")) {
		int file = memfd_create("bytes", MFD_CLOEXEC);
		long result = write(file, from, (size_t)length) == length ? 0 : -1;
		off_t start = 0;
		result = sendfile(fd, file, &start, (size_t)length);
		int error = errno;
		close(file);
		errno = error;
		return result;
	}
	return send(fd, from, (size_t)length, flags);
}

static int takes_flags(const char *call)
{
	return !(is(call, "read") || is(call, "readv") || is(call, "write") || is(call, "writev") || is(call, "sendfile"));
}

/* read S CALL N FLAG */
static void take(int slot, char **words)
{
	int fd = fd_of(slot), flags = takes_flags(words[2]) ? flag_of(words[4]) : 0;
	long length = atol(words[3]) % (TRANSFER_MAX + 1);
	struct file *file = file_of(slot);
	unsigned state = state_of_slot(slot);
	int never_waits = flags & MSG_DONTWAIT || is_nonblocking(fd) || has_timeout(fd, SO_RCVTIMEO);
	int is_over = state & (POLLHUP | POLLERR | POLLRDHUP) || (file && file->kind != CONNECTION);
	int has_enough = state & POLLIN && (!(flags & MSG_WAITALL) || waiting_bytes(fd) >= length);
	if (!never_waits && !is_over && !has_enough) {
		say_skipped("it would wait");
		return;
	}
	struct msghdr header;
	memset(buffer, 0, (size_t)length);
	long result = receive(words[2], fd, buffer, length, flags, &header);
	int error = errno;
	if (result >= 0)
		say_bytes(buffer, flags & MSG_TRUNC ? 0 : result);
	errno = error;
	say_result(result);
	if (is(words[2], "recvmsg") && result >= 0)
		say(" name %u control %zu flags %x", header.msg_namelen, header.msg_controllen, header.msg_flags);
	struct link *link = link_of(slot);
	if (result > 0 && link && !(flags & MSG_PEEK))
		link->up_taken += result;
}

/* Whether so many more bytes may wait for the client without anybody taking them. */
static int may_fly(struct link *link, long length)
{
	return !link || link->client < 0 || link->down_sent - link->down_taken + length <= FLIGHT_MAX;
}

/* write S CALL N FLAG */
static void give(int slot, char **words)
{
	int fd = fd_of(slot), flags = takes_flags(words[2]) ? flag_of(words[4]) : 0;
	long length = atol(words[3]) % (FLIGHT_MAX + 1);
	struct link *link = link_of(slot);
	if (!may_fly(link, length)) {
		say_skipped("too much is under way");
		return;
	}
	unsigned char *from = pattern + (link ? link->down_sent % 4096 : 0);
	long result = transmit(words[2], fd, from, length, flags);
	say_result(result);
	if (result > 0 && link)
		link->down_sent += result;
	soil(BY_PROGRAM);
}

struct transfer {
	int fd;
	long length, done;
	unsigned char *bytes;
};

static void *client_writes(void *argument)
{
	struct transfer *it = argument;
	while (it->done < it->length) {
		long sent = send(it->fd, it->bytes + it->done, (size_t)(it->length - it->done), MSG_NOSIGNAL);
		if (sent <= 0)
			break;
		it->done += sent;
	}
	return NULL;
}

static void *client_reads(void *argument)
{
	struct transfer *it = argument;
	while (it->done < it->length) {
		struct pollfd watched = {.fd = it->fd, .events = POLLIN};
		if (poll(&watched, 1, PATIENCE_MS) != 1)
			break;
		long taken = recv(it->fd, it->bytes + it->done, (size_t)(it->length - it->done), 0);
		if (taken <= 0)
			break;
		it->done += taken;
	}
	return NULL;
}

/* Whether both ends are there, and neither direction is over. */
static int is_whole(int slot)
{
	struct link *link = link_of(slot);
	if (me || !link || link->client < 0 || file_of(slot)->cannot_be_read)
		return 0;
	unsigned over = POLLRDHUP | POLLHUP | POLLERR;
	return !(state_of_slot(slot) & over) && !(state_of(world->clients[link->client].fd) & over);
}

static int await(int fd, int events)
{
	struct pollfd watched = {.fd = fd, .events = (short)events};
	return poll(&watched, 1, PATIENCE_MS) == 1;
}

/* bulk_up S CALL N: the client sends N bytes while the program reads what there is */
static void take_much(int slot, char **words)
{
	if (!is_whole(slot)) {
		say_skipped("not connected");
		return;
	}
	struct link *link = link_of(slot);
	long wanted = atol(words[3]) % (TRANSFER_MAX + 1), done = 0, total = wanted + link->up_sent - link->up_taken;
	struct transfer sent = {.fd = world->clients[link->client].fd, .length = wanted, .bytes = pattern};
	pthread_t thread;
	pthread_create(&thread, NULL, client_writes, &sent);
	while (done < total && total <= TRANSFER_MAX) {
		struct msghdr header;
		long taken = 0;
		if (await(fd_of(slot), POLLIN))
			taken = receive(words[2], fd_of(slot), buffer + done, total - done, 0, &header);
		if (taken == 0 || (taken < 0 && errno != EAGAIN))
			break;
		done += taken > 0 ? taken : 0;
	}
	say_bytes(buffer, done);
	if (done < total)
		say_result(-1);
	if (total > TRANSFER_MAX)
		_exit(9);
	pthread_join(thread, NULL);
	link->up_sent += sent.done;
	link->up_taken += done;
	soil(BY_CLIENT);
}

/* bulk_down S CALL N: the client reads while the program sends N bytes */
static void give_much(int slot, char **words)
{
	if (!is_whole(slot)) {
		say_skipped("not connected");
		return;
	}
	struct link *link = link_of(slot);
	long wanted = atol(words[3]) % (TRANSFER_MAX - FLIGHT_MAX + 1), done = 0;
	struct transfer got = {.fd = world->clients[link->client].fd, .bytes = buffer};
	got.length = wanted + link->down_sent - link->down_taken;
	int may_fall_short = is_nonblocking(fd_of(slot)) || has_timeout(fd_of(slot), SO_SNDTIMEO), calls = 0;
	pthread_t thread;
	pthread_create(&thread, NULL, client_reads, &got);
	while (done < wanted) {
		long sent = await(fd_of(slot), POLLOUT) ? transmit(words[2], fd_of(slot), pattern + done, wanted - done, 0) : -1;
		calls++;
		if (sent < 0 && errno != EAGAIN)
			break;
		done += sent > 0 ? sent : 0;
	}
	say(" %ld sent", done);
	if (!may_fall_short && !is(words[2], "sendfile"))
		say(" in %d calls", calls);
	if (done < wanted)
		got.length = 0;
	pthread_join(thread, NULL);
	say_bytes(buffer, got.done);
	link->down_sent += done;
	link->down_taken += got.done;
	/* Whether it was full at times, so that there is an edge where it is not any more, is open; and there is room again. */
	world->must_swallow[0] = world->must_swallow[1] = 1;
	soil(BY_PROGRAM);
	settle();
	swallow_edges();
}

/* fill S: the program sends until nothing more is taken, then the client reads all of it */
static void fill(int slot)
{
	if (!is_whole(slot)) {
		say_skipped("not connected");
		return;
	}
	struct link *link = link_of(slot);
	int fd = fd_of(slot), client = world->clients[link->client].fd, error = 0;
	long before = link->down_sent;
	do {
		long sent;
		while ((sent = send(fd, pattern, 65536, MSG_DONTWAIT)) > 0)
			link->down_sent += sent;
		error = errno;
		struct pollfd watched = {.fd = fd, .events = POLLOUT};
		/* What is on its way may still free room. */
		if (poll(&watched, 1, 30) != 1)
			break;
	} while (error == EAGAIN);
	say(" %s,", errno_text(error));
	say_events(state_of_slot(slot));
	while (link->down_taken < link->down_sent && await(client, POLLIN)) {
		long taken = recv(client, buffer, sizeof buffer, 0);
		if (taken <= 0)
			break;
		link->down_taken += taken;
	}
	say(", %s,", link->down_taken == link->down_sent ? "drained" : "not drained");
	/* How much it was is open, what comes next is not. */
	link->down_taken -= link->down_sent - before;
	link->down_sent = before;
	await(fd, POLLOUT);
	say_events(state_of_slot(slot));
	soil(BY_CLIENT);
}

/* state S */
static void show(int slot)
{
	struct file *file = file_of(slot);
	say_events(state_of_slot(slot));
	if (file && file->kind == CONNECTION)
		say(", %ld there", waiting_bytes(fd_of(slot)));
}

int data_step(char **words, int count)
{
	if (count < 2)
		return 0;
	int slot = atoi(words[1]) % SLOTS;
	if (is(words[0], "read") && count == 5)
		take(slot, words);
	else if (is(words[0], "write") && count == 5)
		give(slot, words);
	else if (is(words[0], "bulk_up") && count == 4)
		take_much(slot, words);
	else if (is(words[0], "bulk_down") && count == 4)
		give_much(slot, words);
	else if (is(words[0], "fill") && count == 2)
		fill(slot);
	else if (is(words[0], "state") && count == 2)
		show(slot);
	else
		return 0;
	return 1;
}
