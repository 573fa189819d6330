/* What the interpreter of random socket programs shares.
 *
 * A program is lines of text, a step each. It runs twice, on the kernel's sockets and on the card's, and both traces must be
 * the same text. Three kinds of care make that so, and all else that differs is a fault:
 *
 * - nothing is printed that may differ by right: no numbers of descriptors, no ephemeral ports, no times;
 * - `settle` lets everything that is under way arrive before a step looks;
 * - a step that would wait for ever, or whose outcome is open on the kernel too, is skipped, which is printed as well.
 *
 * Any sequence of steps is a program: what a step finds decides what it does. So leaving steps out makes a smaller program.
 *
 * Two processes run the steps, in turn: the parent, and a kid it may fork (steps that begin with `k`). What both must know
 * is in `world`, which they share. */
#ifndef WORLD_H
#define WORLD_H

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
#include <sys/mman.h>
#include <sys/select.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define SLOTS 8
#define CLIENTS 4
#define SETS 2
#define FILES_MAX 200
#define INSTANCES_MAX 60
#define LINKS_MAX 100
#define STEPS_MAX 400
#define LINE_BYTES 100
/* Connections that wait to be accepted, for one listener. Every backlog is larger. */
#define WAITING_MAX 3
/* Bytes under way in one direction that every buffer holds, here and there. */
#define FLIGHT_MAX 48000
#define TRANSFER_MAX 300000
#define PATIENCE_MS 5000

/* One open file of the program's, whatever descriptors refer to it. */
enum kind { FRESH, BOUND, LISTENER, CONNECTION, SPENT, PLAIN };
struct file {
	enum kind kind;
	int references;
	int link; /* of a connection; -1 */
	int port; /* of a listener */
	int waiting;
	int is_named; /* The program chose the port. */
	int registered; /* A bit for each process that told an epoll set of it after the fork. */
	int is_replaced; /* Another file came to its descriptors when it listened no more, or was refused. */
	int cannot_be_read, cannot_be_written; /* shut */
};
/* One TCP connection between a client and the program. */
struct link {
	int client; /* -1: closed */
	int file;   /* -1: not accepted yet, or closed */
	int port;   /* of the client's end */
	int is_odd; /* Something ended that makes the counts below meaningless. */
	long up_sent, up_taken, down_sent, down_taken;
};
struct client {
	int fd, link;
};
struct process {
	int slot_fd[SLOTS], slot_file[SLOTS], set_fd[SETS], set_instance[SETS];
};
enum dirt { CLEAN, BY_CLIENT, BY_PROGRAM };
struct world {
	struct process processes[2];
	struct file files[FILES_MAX];
	struct link links[LINKS_MAX];
	struct client clients[CLIENTS];
	int file_count, link_count, instance_count;
	/* The file an epoll instance watches for reading under a slot's name, for as long as it is known to; -1. */
	int watched[INSTANCES_MAX][SLOTS];
	/* Whether that is edge-triggered. */
	int is_edge[INSTANCES_MAX][SLOTS];
	enum dirt dirt;
	int wanted_peer; /* the file of a connection whose other end is to be accepted; -1 */
	int elsewhere;   /* the kernel's listener for outgoing connections; -1 */
	pid_t kid;
	int has_ghost;       /* A listener that ended with a process: docs/conformance.md. */
	int must_swallow[2]; /* By process: edges of a shutdown of the program's own, docs/conformance.md. */
	volatile int kid_calls; /* The kid is about to make a call that may wait. */
	volatile int is_woken;  /* The parent has done what ends that. */
	char steps[STEPS_MAX][LINE_BYTES];
	int step_count;
};

extern struct world *world;
/* Who runs: 0 the parent, 1 the kid. */
extern int me;
extern int listen_port, connect_port;
extern unsigned char pattern[TRANSFER_MAX + 4096];

/* trace.c */
void trace_to(const char *path);
void trace_flush(void);
/* The step that runs, for the traces of it. */
void begin_trace(int number, const char *step);
void say(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* ` = result`, or its error's name, and SIGPIPEs caught meanwhile. */
void say_result(long result);
void say_error(int error);
void say_skipped(const char *why);
/* A length and what the bytes are. */
void say_bytes(const void *bytes, long length);
void say_events(unsigned events);
void say_address(const struct sockaddr *address, socklen_t length);
const char *errno_text(int error);
/* Compares words. */
int is(const char *word, const char *other);

/* world.c */
void make_world(void);
void clear_world(void);
int fd_of(int slot);
struct file *file_of(int slot);
struct link *link_of(int slot);
int take_slot(int slot, int fd, int file);
void drop_slot(int slot);
int add_file(enum kind kind);
void name_slot(int slot, int fd, int file);
int add_link(int client, int port);
int local_port(int fd);
long now_ms(void);
/* What poll says of the descriptor now. */
unsigned state_of(int fd);
unsigned state_of_slot(int slot);
long waiting_bytes(int fd);
int has_timeout(int fd, int option);
int is_nonblocking(int fd);
/* What is under way arrives. */
void settle(void);
void open_sync(int port);
void close_sync(void);
void soil(enum dirt by);
void open_elsewhere(void);

/* Steps: each gets its words, the first of which is the verb; 0 if it does not know the verb. */
int socket_step(char **words, int count);
int option_step(char **words, int count);
int data_step(char **words, int count);
int client_step(char **words, int count);
int waiting_step(char **words, int count);
int blocking_step(char **words, int count);
/* The parent's part of a step in which its kid waits: wakes it once it does. 0 if the kid does not. */
int wakes_kid(char **words, int count);
void client_acts(char **words, int count);
void client_connects(int client, int slot);
void accept_peer(void);
int set_fd(int set);
/* Takes a file out of the epoll sets that watch it for edges. */
void forget_edges(const struct file *file);
/* It was refused: docs/conformance.md. */
void spend(struct file *file);
/* It listens no more. It is what it was before, if the program chose the port; else docs/conformance.md. */
void unlisten(struct file *file);
/* Takes what only one of both tells, if there is such. */
void swallow_edges(void);
/* What a look at an epoll set found, in the order of the names; how many that were. */
int say_found(struct epoll_event *found, int count);
/* Whether the other process has a descriptor of this file too, or watches it under one it closed. */
int is_shared(int slot);
/* The slot for another descriptor; -1. */
int free_slot(void);
void note_accepted(int taken, const struct sockaddr_storage *peer, socklen_t length, int target, struct file *listener);
int signals_caught(void);
/* Whether a thread or process waits in the kernel. */
int is_asleep(pid_t process, pid_t thread);
void pause_shortly(void);

#endif
