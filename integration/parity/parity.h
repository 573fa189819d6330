/* What the parity cases share.
 *
 * A case is a function that makes calls and prints what they return. It runs twice, on the kernel's sockets and on the
 * card's, and both traces must be the same text. So nothing is printed that may differ by right: no descriptor numbers,
 * no addresses of memory, no ephemeral ports, no times.
 *
 * A listener at PORT and at port 0, and a connect to CONNECT_PORT, are the card's when there is one; all other sockets
 * are the kernel's. The client's end of a connection is therefore a true TCP client.
 *
 * Arrival takes time: EXPECT waits for a state before a case goes on, on both sides alike. */
#ifndef PARITY_H
#define PARITY_H

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
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

extern int listen_port;
extern int connect_port;

void register_case(const char *name, void (*run)(void));

#define CASE(name)                                                                          \
	static void name(void);                                                             \
	__attribute__((constructor)) static void register_##name(void) { register_case(#name, name); } \
	static void name(void)

/* Prints `call = result ERRNO` and returns the result. */
#define T(call) (errno = 0, trace(#call, (long)(call)))
/* The same for a call that returns a descriptor, whose number does not matter. */
#define FD(call) (errno = 0, trace_fd(#call, (call)))
/* Waits until the descriptor's state is `expected`, of POLLIN, POLLPRI, POLLOUT, POLLRDHUP, POLLHUP, POLLERR; prints it. */
#define EXPECT(fd, expected) expect(#fd, (fd), (expected))

long trace(const char *call, long result);
int trace_fd(const char *call, int result);
void say(const char *format, ...) __attribute__((format(printf, 1, 2)));
void expect(const char *name, int fd, int expected);
const char *events_text(unsigned events);
/* Waits up to five seconds for one of `events`; prints nothing. */
int await(int fd, int events);
/* Prints an address; ports are named, not numbered. */
void say_address(const char *what, const struct sockaddr *address, socklen_t length);
void say_names(const char *what, int fd);
void say_bytes(const char *what, const void *bytes, long length);
long elapsed_ms(const struct timespec *start);
void now(struct timespec *start);

struct sockaddr_in v4(const char *ip, int port);
struct sockaddr_in6 v6(const char *ip, int port);
int bind_v4(int fd, const char *ip, int port);
int bind_v6(int fd, const char *ip, int port);
int connect_v4(int fd, int port);
int connect_v6(int fd, const char *ip, int port);

/* A listener on 127.0.0.1 at the card's port. */
int listener(void);
/* A client's connection to it, through the kernel. */
int guest(void);
/* Tries until the port refuses, and says so: a close reaches the card a moment after the call. */
void until_refused(void);
/* Both ends of a connection: the accepted one, and the client's in `client`. */
int served(int listening, int *client);
/* A listener, an accepted connection and its client at once. */
struct trio {
	int listening, server, client;
};
struct trio trio(void);
void close_trio(struct trio *all);
/* Reads exactly `length` bytes or fails. */
long read_all(int fd, void *buffer, long length);
/* Writes all of it, unless that fails; how much went. */
long write_all(int fd, const void *bytes, long length);
/* Reads so many bytes away; how many came. */
long take_away(int fd, long length);
/* Lowers the limit so that the next descriptor, which is returned, would be too many. */
int leave_no_descriptors(struct rlimit *old);
/* epoll_ctl for a descriptor that is called `data`. */
int watch(int set, int operation, int fd, unsigned events, unsigned data);
/* One look at an epoll set; prints what it says in the order of the names: which comes first is open. */
void look(const char *what, int set, int timeout_ms);
int set_nonblocking(int fd, int on);
/* Resets the connection when closed. */
void reset(int fd);
/* Signals caught since the last call. */
int signals_caught(void);
void catch_signal(int number, int flags);
/* Has another thread, which takes no signals, do something later. */
pthread_t after_ms(int wait_ms, void (*act)(void *), void *argument);
/* One byte to the descriptor that is pointed to; for `after_ms`. */
void write_x(void *fd);
/* SIGUSR1 for the calling thread once it waits in the kernel; and, once that has had its effect and it waits again, `act`. */
pthread_t signal_then(void (*act)(void *), void *argument);
/* SIGUSR1 for the calling thread whenever it waits in the kernel, until `end_signals`, which says whether any were caught. A
 * signal may come in between two waits of one call, and end none: docs/conformance.md. */
pthread_t signal_waits(void);
void end_signals(pthread_t thread);
/* Writes until nothing more is taken, with buffers of a fixed size. */
void fill(int fd, int client);
/* Waits for a child, prints how it ended. */
void reap(pid_t child);

#endif
