/* Makes every call that the trace knows, with success and without, on the card's sockets and on others: `calls PORT FOLDER`.
 *
 * Run natively under strace and preloaded with MQTTSHIM_TRACE, both must write the same lines. So nothing here may come out
 * one way or another: sizes are small, arrival is waited for, and no call is ended by a signal. The calls of interest
 * lie between close(-100) and close(-101). */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/select.h>
#include <sys/sendfile.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* Volatile, lest the compiler sees what is wrong with them. */
static void *volatile nowhere = (void *)8;
static volatile int minus_one = -1;
static struct iovec parts_too_many[5000];

/* What the compiler makes of calls whose buffers or flags it has looked at. */
ssize_t __read_chk(int, void *, size_t, size_t);
ssize_t __recv_chk(int, void *, size_t, size_t, int);
ssize_t __recvfrom_chk(int, void *, size_t, size_t, int, struct sockaddr *, socklen_t *);
int __open_2(const char *, int);
int __open64_2(const char *, int);
int __openat_2(int, const char *, int);
int __openat64_2(int, const char *, int);
int __dprintf_chk(int, int, const char *, ...);
int __poll_chk(struct pollfd *, nfds_t, int, size_t);
int __ppoll_chk(struct pollfd *, nfds_t, const struct timespec *, const sigset_t *, size_t);

static struct sockaddr_in address;
static const socklen_t length = sizeof address;

static void pause_briefly(void)
{
	struct timespec moment = {.tv_nsec = 2000000};
	nanosleep(&moment, NULL);
}

static int client(void)
{
	int fd = socket(AF_INET, SOCK_STREAM, IPPROTO_TCP);
	connect(fd, (void *)&address, length);
	return fd;
}

static void make_sockets(void)
{
	int pair[2];
	close(socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, IPPROTO_UDP));
	close(socket(AF_UNIX, SOCK_SEQPACKET, 0));
	close(socket(AF_NETLINK, SOCK_RAW, 0));
	socket(AF_INET, SOCK_STREAM, IPPROTO_ICMP);
	socket(99, 77, 5);
	socket(AF_INET, SOCK_STREAM | 0x100000, 0);
	socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair);
	close(pair[0]);
	close(pair[1]);
	socketpair(AF_INET, SOCK_STREAM, 0, pair);
	socketpair(AF_UNIX, SOCK_STREAM, 0, nowhere);
}

static void set_options(int fd)
{
	int on = 1, got = 0;
	socklen_t room = sizeof got;
	struct linger linger = {.l_onoff = 1, .l_linger = 3};
	struct timeval time = {.tv_sec = 5};
	char bytes[64];

	setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
	setsockopt(fd, SOL_TCP, TCP_NODELAY, &on, sizeof on);
	setsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, sizeof linger);
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &time, sizeof time);
	setsockopt(fd, SOL_IPV6, IPV6_V6ONLY, &on, sizeof on);
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, 2);
	setsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, 4);
	setsockopt(fd, SOL_SOCKET, 999, &on, sizeof on);
	setsockopt(fd, 999, 7, &on, sizeof on);
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, NULL, 0);
	getsockopt(fd, SOL_SOCKET, SO_TYPE, &got, &room);
	getsockopt(fd, SOL_SOCKET, SO_ERROR, &got, &room);
	getsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &got, &room);
	getsockopt(fd, SOL_TCP, TCP_NODELAY, &got, &room);
	room = 2;
	getsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, bytes, &room);
	room = sizeof bytes;
	getsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, bytes, &room);
	room = sizeof bytes;
	getsockopt(fd, SOL_SOCKET, SO_LINGER, bytes, &room);
	room = sizeof bytes;
	getsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, bytes, &room);
	room = sizeof bytes;
	getsockopt(fd, SOL_TCP, 999, bytes, &room);
	getsockopt(fd, SOL_SOCKET, SO_TYPE, &got, NULL);
	linger.l_onoff = 0;
	setsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, sizeof linger);
	memset(&time, 0, sizeof time);
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &time, sizeof time);
}

/* `short_room` must leave a port out that the kernel picked. */
static void name(int fd, socklen_t short_room)
{
	struct sockaddr_storage found;
	socklen_t room = sizeof found;
	getsockname(fd, (void *)&found, &room);
	room = short_room;
	getsockname(fd, (void *)&found, &room);
	room = sizeof found;
	getpeername(fd, (void *)&found, &room);
	getpeername(fd, NULL, NULL);
}

static int listen_there(int port)
{
	int on = 1, fd = socket(AF_INET, SOCK_STREAM, 0);
	int other = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, IPPROTO_TCP);
	struct sockaddr_in6 six = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT};

	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
	address.sin_family = AF_INET;
	address.sin_port = htons((unsigned short)port);
	address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	bind(fd, (void *)&address, 7);
	bind(fd, (void *)&address, length);
	bind(fd, (void *)&address, length);
	listen(fd, 16);
	bind(other, (void *)&address, length);
	bind(other, (void *)&six, sizeof six);
	bind(other, NULL, length);
	bind(-1, (void *)&address, length);
	listen(-1, 5);
	close(other);
	set_options(fd);
	name(fd, 5);
	return fd;
}

static void use_names_of_others(const char *folder)
{
	struct sockaddr_un local = {.sun_family = AF_UNIX};
	struct sockaddr_in6 six = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT};
	int fd = socket(AF_UNIX, SOCK_STREAM, 0);

	snprintf(local.sun_path, sizeof local.sun_path, "%s/local", folder);
	bind(fd, (void *)&local, sizeof local);
	listen(fd, 3);
	name(fd, 5);
	close(fd);
	fd = socket(AF_UNIX, SOCK_DGRAM, 0);
	memcpy(local.sun_path, "\0abstract\1", 10);
	bind(fd, (void *)&local, 2 + 10);
	connect(fd, (void *)&local, 2 + 10);
	close(fd);
	fd = socket(AF_INET6, SOCK_DGRAM, 0);
	bind(fd, (void *)&six, sizeof six);
	six.sin6_port = htons(9);
	connect(fd, (void *)&six, sizeof six);
	name(fd, 2);
	close(fd);
}

static void read_and_write(int server, int guest)
{
	char bytes[100] = "", other[100] = "";
	struct iovec parts[2] = {{bytes, 3}, {other, 40}};

	write(guest, "\0\1MQTT\177\"\\\n8", 12);
	read(server, bytes, 6);
	read(server, bytes, sizeof bytes);
	memset(bytes, 'x', sizeof bytes);
	write(guest, bytes, 50);
	recv(server, bytes, 50, MSG_WAITALL);
	recv(server, bytes, sizeof bytes, MSG_DONTWAIT);
	recvfrom(server, bytes, sizeof bytes, MSG_DONTWAIT | MSG_PEEK, NULL, NULL);
	send(guest, "hello", 5, MSG_NOSIGNAL | MSG_MORE);
	sendto(guest, " world", 6, 0, (void *)&address, length);
	readv(server, parts, 2);
	writev(server, parts, 2);
	recv(guest, other, 43, MSG_WAITALL);
	write(guest, "abcdefgh", 8);
	preadv2(server, parts, 2, -1, 0);
	preadv2(server, parts, 2, -1, RWF_NOWAIT);
	preadv2(server, parts, 2, 5, 0);
	pwritev2(server, parts, 1, -1, 0);
	pwritev2(server, parts, 1, 7, 0);
	recv(guest, other, 3, MSG_WAITALL);
	readv(server, parts_too_many, minus_one);
	readv(0, nowhere, 1);
	writev(server, parts_too_many, 5000);
	write(server, NULL, 0);
	read(server, bytes, 0);
	write(-1, "x", 1);
	read(-1, bytes, 1);
	recv(-1, bytes, 1, 0);
	send(-1, "x", 1, 0x1000000);
}

static void exchange_messages(int server, int guest)
{
	char one[10], two[10];
	struct sockaddr_storage from = {.ss_family = AF_UNSPEC};
	struct iovec parts[2] = {{one, 4}, {two, 10}};
	struct msghdr message = {.msg_iov = parts, .msg_iovlen = 2};
	struct mmsghdr many[2] = {{.msg_hdr = {.msg_iov = parts, .msg_iovlen = 1}},
				  {.msg_hdr = {.msg_iov = parts + 1, .msg_iovlen = 1}}};
	struct timespec time = {.tv_sec = 1};

	memcpy(one, "abcdefghij", 10);
	memcpy(two, "0123456789", 10);
	sendmsg(guest, &message, MSG_NOSIGNAL);
	message.msg_name = &from;
	message.msg_namelen = sizeof from;
	recvmsg(server, &message, MSG_WAITALL);
	message.msg_namelen = sizeof from;
	recvmsg(server, &message, MSG_DONTWAIT);
	sendmsg(-1, &message, 0);
	recvmsg(server, NULL, 0);
	sendmmsg(server, many, 2, 0);
	recvmmsg(guest, many, 2, MSG_WAITALL, &time);
	sendmmsg(guest, many, 2, MSG_NOSIGNAL);
	recvmmsg(server, many, 2, MSG_WAITALL, NULL);
	time.tv_sec = 2;
	time.tv_nsec = 0;
	recvmmsg(server, many, 2, MSG_DONTWAIT, &time);
	sendmmsg(-1, many, 2, 0);
	recvmmsg(-1, many, 2, 0, NULL);
}

static void pass_descriptors(void)
{
	int pair[2], carried[2];
	char byte = 'f', room[CMSG_SPACE(sizeof carried)];
	struct iovec part = {&byte, 1};
	struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof room};
	struct cmsghdr *control = CMSG_FIRSTHDR(&message);

	socketpair(AF_UNIX, SOCK_DGRAM, 0, pair);
	memset(room, 0, sizeof room);
	control->cmsg_level = SOL_SOCKET;
	control->cmsg_type = SCM_RIGHTS;
	control->cmsg_len = CMSG_LEN(sizeof carried);
	memcpy(CMSG_DATA(control), pair, sizeof pair);
	sendmsg(pair[0], &message, 0);
	recvmsg(pair[1], &message, MSG_CMSG_CLOEXEC);
	memcpy(carried, CMSG_DATA(control), sizeof carried);
	for (int at = 0; at < 2; at++) {
		close(carried[at]);
		close(pair[at]);
	}
}

static void copy_files(int server, int guest)
{
	char bytes[32];
	int pipes[2];
	off_t at = 2;
	int file = memfd_create("copied", 0);

	write(file, "0123456789", 10);
	sendfile(server, file, &at, 5);
	sendfile(server, file, NULL, 5);
	sendfile(server, -1, NULL, 5);
	sendfile(server, server, NULL, 5);
	recv(guest, bytes, 5, MSG_WAITALL);
	socketpair(AF_UNIX, SOCK_STREAM, 0, pipes);
	at = 2;
	sendfile(pipes[0], file, &at, 5);
	sendfile(pipes[0], file, &at, 50);
	splice(file, &at, pipes[0], NULL, 5, SPLICE_F_MOVE | SPLICE_F_MORE);
	splice(-1, NULL, pipes[0], NULL, 5, 0);
	close(pipes[0]);
	close(pipes[1]);
	close(file);
}

static void command(int server)
{
	int value = 0;
	struct flock lock = {.l_type = F_RDLCK, .l_whence = SEEK_SET, .l_start = 1, .l_len = 2};
	int file = memfd_create("locked", MFD_ALLOW_SEALING);

	fcntl(server, F_GETFD);
	fcntl(server, F_SETFD, FD_CLOEXEC);
	fcntl(server, F_GETFD);
	fcntl(server, F_GETFL);
	fcntl(server, F_SETFL, O_RDWR | O_NONBLOCK);
	fcntl(server, F_GETFL);
	fcntl(server, F_SETFL, O_RDWR);
	close(fcntl(server, F_DUPFD, 50));
	close(fcntl(server, F_DUPFD_CLOEXEC, 60));
	fcntl(server, 4242, 7);
	fcntl(-1, F_GETFL);
	fcntl(-1, F_SETFL, O_WRONLY | O_APPEND | 0x40000000);
	fcntl(file, F_SETLK, &lock);
	fcntl(file, F_GETLK, &lock);
	fcntl(file, F_OFD_SETLKW, nowhere);
	fcntl(file, F_ADD_SEALS, F_SEAL_GROW | F_SEAL_SHRINK);
	fcntl(file, F_GET_SEALS);
	fcntl(file, F_GETOWN);
	fcntl(file, F_GETSIG);
	fcntl(file, F_SETSIG, 29);
	fcntl(file, F_GETSIG);
	close(file);
	ioctl(server, FIONBIO, &value);
	ioctl(server, FIONREAD, &value);
	ioctl(-1, TIOCOUTQ, &value);
	ioctl(server, FIOASYNC, &value);
	ioctl(server, FIONREAD, NULL);
	ioctl(server, 0x5499, 17);
	ioctl(server, 0xc0185477, &value);
	ioctl(-1, FIONBIO, &value);
	ioctl(-1, TCGETS, nowhere);
}

static void watch(int server)
{
	struct epoll_event event = {.events = EPOLLIN | EPOLLRDHUP | EPOLLET, .data.u64 = 0x100000007};
	int set = epoll_create1(EPOLL_CLOEXEC);

	epoll_ctl(set, EPOLL_CTL_ADD, server, &event);
	epoll_ctl(set, EPOLL_CTL_ADD, server, &event);
	event.events = EPOLLOUT | EPOLLONESHOT;
	epoll_ctl(set, EPOLL_CTL_MOD, server, &event);
	epoll_ctl(set, EPOLL_CTL_DEL, server, NULL);
	epoll_ctl(set, EPOLL_CTL_DEL, server, &event);
	epoll_ctl(set, 77, server, &event);
	epoll_ctl(set, EPOLL_CTL_ADD, -1, NULL);
	close(set);
}

static void poll_and_select(int server)
{
	struct pollfd watched[2] = {{.fd = -1, .events = POLLIN}, {.fd = server, .events = POLLIN | POLLOUT | POLLRDHUP}};
	struct timespec time = {.tv_sec = 3, .tv_nsec = 5};
	struct timeval span = {.tv_sec = 2, .tv_usec = 7}, moment = {.tv_usec = 1};
	sigset_t mask;
	fd_set in, out;

	sigfillset(&mask);
	poll(watched, 2, 1000);
	ppoll(watched, 2, &time, &mask);
	ppoll(watched + 1, 1, NULL, NULL);
	__poll_chk(watched, 2, -1, sizeof watched);
	__ppoll_chk(watched, 2, &time, NULL, sizeof watched);
	watched[1].events = POLLPRI;
	poll(watched, 2, 0);
	poll(NULL, 0, 1);
	FD_ZERO(&in);
	FD_ZERO(&out);
	FD_SET(server, &in);
	FD_SET(server, &out);
	select(server + 1, &in, &out, NULL, &span);
	FD_ZERO(&in);
	FD_SET(server, &in);
	FD_SET(server, &out);
	pselect(server + 1, &in, &out, NULL, &time, &mask);
	pselect(server + 1, NULL, &out, NULL, NULL, NULL);
	select(0, NULL, NULL, NULL, &moment);
	select(-1, NULL, &out, NULL, NULL);
}

static void wait_for_events(int server, int guest)
{
	struct epoll_event event = {.events = EPOLLIN, .data.u64 = 0x100000007}, events[4];
	struct timespec time = {.tv_sec = 3, .tv_nsec = 5};
	sigset_t mask;
	char byte;
	int set = epoll_create1(0), other = epoll_create(3);

	sigemptyset(&mask);
	memset(events, 0, sizeof events);
	epoll_ctl(set, EPOLL_CTL_ADD, server, &event);
	epoll_wait(set, events, 4, 0);
	write(guest, "!", 1);
	epoll_wait(set, events, 4, -1);
	epoll_pwait(set, events, 4, 1000, &mask);
	epoll_pwait(set, events, 4, 1000, NULL);
	epoll_pwait2(set, events, 4, &time, &mask);
	epoll_pwait2(set, events, 4, NULL, NULL);
	read(server, &byte, 1);
	epoll_wait(set, events, 4, 1);
	epoll_wait(other, events, 4, 0);
	epoll_wait(-1, events, 4, 5);
	epoll_wait(set, events, 0, 5);
	close(set);
	close(other);
}

static void copy_descriptors(int server)
{
	int copy = dup(server);

	dup2(server, copy);
	dup2(server, server);
	dup3(server, copy, O_CLOEXEC);
	dup3(server, server, 0);
	dup(-1);
	dup2(-1, copy);
	close(copy);
	close(copy);
	dup2(0, 70);
	dup2(0, 72);
	close_range(70, 80, 0);
	close_range(80, 70, 0);
	close_range(500, 501, CLOSE_RANGE_CLOEXEC);
	close_range(500, 501, 0x40);
}

static void open_files(const char *folder)
{
	char path[200], name[200], nowhere_at_all[200];
	int pair[2];
	sigset_t mask;

	snprintf(path, sizeof path, "%s/a file whose name is longer than a string is shown\001", folder);
	snprintf(nowhere_at_all, sizeof nowhere_at_all, "%s/nowhere/at/all", folder);
	close(open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0640));
	close(open64(path, O_WRONLY | O_TRUNC | O_APPEND | O_NONBLOCK));
	close(open(folder, O_RDWR | O_TMPFILE, 0600));
	close(openat(AT_FDCWD, folder, O_RDONLY | O_DIRECTORY | O_PATH));
	close(openat64(AT_FDCWD, path, O_SYNC | O_NOFOLLOW));
	close(__open_2(path, O_RDONLY));
	close(__open64_2(path, O_RDONLY));
	close(__openat_2(AT_FDCWD, path, O_RDONLY));
	close(__openat64_2(AT_FDCWD, path, O_RDONLY));
	close(creat(path, 0600));
	close(creat64(path, 0));
	openat(99, "x", O_RDONLY);
	open(nowhere_at_all, O_RDONLY);
	open(nowhere, O_RDONLY);
	creat(nowhere_at_all, 0600);
	snprintf(name, sizeof name, "%s/temporaryXXXXXX", folder);
	close(mkstemp(name));
	snprintf(name, sizeof name, "%s/temporaryXXXXXX", folder);
	close(mkstemp64(name));
	snprintf(name, sizeof name, "%s/temporaryXXXXXX", folder);
	close(mkostemp(name, O_CLOEXEC));
	snprintf(name, sizeof name, "%s/temporaryXXXXXX", folder);
	close(mkostemp64(name, O_APPEND));
	close(eventfd(3, EFD_CLOEXEC | EFD_SEMAPHORE));
	eventfd(0, 0x40);
	close(epoll_create(5));
	epoll_create(0);
	epoll_create1(1);
	close(timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK));
	timerfd_create(77, 0);
	close(inotify_init());
	close(inotify_init1(IN_NONBLOCK | IN_CLOEXEC));
	inotify_init1(0x40);
	memfd_create("n", 0x404);
	sigemptyset(&mask);
	sigaddset(&mask, SIGINT);
	sigaddset(&mask, 40);
	close(signalfd(-1, &mask, SFD_CLOEXEC));
	sigfillset(&mask);
	signalfd(-1, &mask, 0x40);
	pipe(pair);
	write(pair[1], "pipe", 4);
	splice(pair[0], NULL, pair[1], NULL, 1, SPLICE_F_NONBLOCK);
	closefrom(pair[1]);
	close(pair[0]);
	pipe2(pair, O_NONBLOCK | O_CLOEXEC);
	pipe2(nowhere, 0);
	closefrom(pair[0]);
}

/* Without buffers: what stdio does when it likes is not compared. */
static void use_streams(int server, int guest, const char *folder)
{
	char path[200], bytes[8];
	struct iovec part = {bytes, 1};
	off64_t at = 0;
	snprintf(path, sizeof path, "%s/stream", folder);
	FILE *stream = fopen(path, "w+ex");
	fclose(stream);
	stream = fopen64(path, "a");
	fclose(stream);
	fopen(path, "wx");
	stream = fdopen(open(path, O_RDWR), "r");
	fclose(stream);
	int file = open(path, O_RDWR);
	dprintf(file, "%d and %s", 1, "two");
	__dprintf_chk(file, 1, "!");
	sendfile64(server, file, &at, 3);
	close(file);
	recv(guest, bytes, 3, MSG_WAITALL);
	write(guest, "abcde", 5);
	__read_chk(server, bytes, 1, sizeof bytes);
	__recv_chk(server, bytes, 1, sizeof bytes, MSG_WAITALL);
	__recvfrom_chk(server, bytes, 1, sizeof bytes, 0, NULL, NULL);
	preadv64v2(server, &part, 1, -1, 0);
	pwritev64v2(server, &part, 1, -1, 0);
	syscall(SYS_read, server, bytes, 1);
	fcntl64(server, F_GETFL);
	recv(guest, bytes, 1, MSG_WAITALL);
}

static int shared_listener;

/* The connection is there already: a blocked accept of the kernel's has its number before it waits, ours after. */
static void *accept_in_thread(void *nothing)
{
	struct sockaddr_in peer;
	socklen_t room = sizeof peer;
	(void)nothing;
	int fd = accept(shared_listener, (void *)&peer, &room);
	char bytes[4];
	read(fd, bytes, 4);
	close(fd);
	return NULL;
}

static void use_threads(int listening)
{
	pthread_t thread;
	shared_listener = listening;
	int fd = client();
	pthread_create(&thread, NULL, accept_in_thread, NULL);
	pause_briefly();
	write(fd, "four", 4);
	pthread_join(thread, NULL);
	close(fd);
}

static void use_child(int listening)
{
	pid_t child = fork();
	if (child == 0) {
		int fd = client(), server = accept4(listening, NULL, NULL, SOCK_CLOEXEC);
		write(server, "child", 5);
		shutdown(server, SHUT_WR);
		shutdown(server, 9);
		close(server);
		close(fd);
		_exit(0);
	}
	waitpid(child, NULL, 0);
}

static void accept_and_end(int listening, const char *folder)
{
	struct sockaddr_in peer;
	socklen_t room = sizeof peer;
	char bytes[8];

	fcntl(listening, F_SETFL, O_RDWR | O_NONBLOCK);
	accept(listening, NULL, NULL);
	accept(listening, (void *)&peer, &room);
	accept4(listening, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	accept4(listening, NULL, NULL, 0x20);
	fcntl(listening, F_SETFL, O_RDWR);
	accept(-1, NULL, NULL);
	int guest = client(), server = accept4(listening, (void *)&peer, &room, SOCK_CLOEXEC);
	name(server, 5);
	set_options(server);
	read_and_write(server, guest);
	exchange_messages(server, guest);
	copy_files(server, guest);
	use_streams(server, guest, folder);
	command(server);
	watch(server);
	poll_and_select(server);
	wait_for_events(server, guest);
	copy_descriptors(server);
	connect(server, (void *)&address, length);
	listen(server, 1);
	shutdown(guest, SHUT_WR);
	read(server, bytes, sizeof bytes);
	shutdown(server, SHUT_RDWR);
	shutdown(-1, SHUT_RD);
	close(server);
	close(guest);
}

int main(int argc, char **argv)
{
	if (argc != 3)
		return 2;
	close(-100);
	make_sockets();
	open_files(argv[2]);
	int listening = listen_there(atoi(argv[1]));
	use_names_of_others(argv[2]);
	pass_descriptors();
	accept_and_end(listening, argv[2]);
	use_threads(listening);
	use_child(listening);
	close(listening);
	connect(-1, (void *)&address, length);
	close(-101);
	return 0;
}
