// A server with one scenario a run. It runs twice: on the kernel's sockets and on the card's; every check must hold on both.
//
// usage: server SCENARIO [PORT]. Prints the port it listens on, then does what the scenario says, then prints "ok".

#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
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
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHECK(condition)                                                                              \
    do {                                                                                              \
        if (!(condition)) {                                                                           \
            int seen = errno;                                                                         \
            fprintf(stderr, "line %d: %s (errno %d: %s)\n", __LINE__, #condition, seen, strerror(seen)); \
            _exit(1);                                                                                 \
        }                                                                                             \
    } while (0)
#define SAME(left, right)                                                                             \
    do {                                                                                              \
        long seen_left = (left), seen_right = (right);                                                \
        if (seen_left != seen_right) fprintf(stderr, "%#lx, not %#lx\n", seen_left, seen_right);       \
        CHECK(seen_left == seen_right);                                                               \
    } while (0)
#define FAILS(call, expected) CHECK((errno = 0, (call) == -1) && errno == (expected))

// Another server's, for scenarios that connect.
static int extra_port;

static struct sockaddr_in loopback(int port) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port)};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return address;
}

static int bound(int port) {
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(fd >= 0);
    int one = 1;
    CHECK(setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one) == 0);
    struct sockaddr_in address = loopback(port);
    CHECK(bind(fd, (void *)&address, sizeof address) == 0);
    return fd;
}

static int port_of(int fd) {
    struct sockaddr_in address;
    socklen_t length = sizeof address;
    CHECK(getsockname(fd, (void *)&address, &length) == 0);
    CHECK(length == sizeof address && address.sin_family == AF_INET);
    CHECK(address.sin_addr.s_addr == htonl(INADDR_LOOPBACK));
    return ntohs(address.sin_port);
}

static void announce(int fd) {
    printf("%d\n", port_of(fd));
    fflush(stdout);
}

static int listening(void) {
    int fd = bound(0);
    CHECK(listen(fd, 16) == 0);
    announce(fd);
    return fd;
}

static int accepted(int listener) {
    int fd = accept(listener, NULL, NULL);
    CHECK(fd >= 0);
    return fd;
}

static void nonblocking(int fd) { CHECK(fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK) == 0); }

// Waits for POLLERR. Nothing else is asked for; a hang-up may show a moment before the error does.
static void wait_for_error(struct pollfd *watched) {
    watched->events = 0;
    do {
        CHECK(poll(watched, 1, 10000) == 1);
    } while (watched->revents == POLLHUP);
    SAME(watched->revents, POLLERR | POLLHUP);
}

// Copies what comes back to where it came from until it ends.
static void echo(int fd) {
    static char buffer[65536];
    for (;;) {
        ssize_t got = read(fd, buffer, sizeof buffer);
        CHECK(got >= 0);
        if (got == 0) return;
        for (ssize_t sent = 0; sent < got;) {
            ssize_t now = write(fd, buffer + sent, got - sent);
            CHECK(now > 0);
            sent += now;
        }
    }
}

static void scenario_echo(void) {
    int listener = listening();
    struct sockaddr_in peer, again, local;
    socklen_t length = sizeof peer;
    int fd = accept(listener, (void *)&peer, &length);
    CHECK(fd >= 0 && length == sizeof peer && peer.sin_addr.s_addr == htonl(INADDR_LOOPBACK));
    length = sizeof again;
    CHECK(getpeername(fd, (void *)&again, &length) == 0 && memcmp(&peer, &again, sizeof peer) == 0);
    length = sizeof local;
    CHECK(getsockname(fd, (void *)&local, &length) == 0 && ntohs(local.sin_port) == port_of(listener));
    // A short buffer gets the beginning and the full length.
    char small[8] = {[4] = 77, 77, 77, 77};
    length = 4;
    CHECK(getpeername(fd, (void *)small, &length) == 0 && length == sizeof peer && small[4] == 77);
    CHECK(memcmp(small, &peer, 4) == 0);
    FAILS(getpeername(listener, (void *)&again, &length), ENOTCONN);
    CHECK(fcntl(fd, F_GETFL) == O_RDWR);
    echo(fd);
    CHECK(close(fd) == 0);
    FAILS(close(fd), EBADF);
    CHECK(close(listener) == 0);
}

static void scenario_epoll(void) {
    // The registration is made before the socket is bound, as some programs do.
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    int set = epoll_create1(0);
    struct epoll_event event = {.events = EPOLLIN, .data.u64 = 0x1234567890abcdef};
    CHECK(epoll_ctl(set, EPOLL_CTL_ADD, listener, &event) == 0);
    struct sockaddr_in address = loopback(0);
    CHECK(bind(listener, (void *)&address, sizeof address) == 0);
    enum { LISTENER = 1 << 20 };
    event.data.u64 = LISTENER;
    CHECK(epoll_ctl(set, EPOLL_CTL_MOD, listener, &event) == 0);
    CHECK(listen(listener, 5) == 0);
    CHECK(fcntl(listener, F_GETFL) == (O_RDWR | O_NONBLOCK));
    CHECK(fcntl(listener, F_GETFD) == FD_CLOEXEC);
    FAILS(epoll_ctl(set, EPOLL_CTL_ADD, listener, &event), EEXIST);
    FAILS(accept(listener, NULL, NULL), EAGAIN);
    announce(listener);
    int clients = 0, ended = 0;
    while (ended < 3) {
        struct epoll_event seen[4];
        int count = epoll_wait(set, seen, 4, 10000);
        CHECK(count > 0);
        for (int at = 0; at < count; at++) {
            if (seen[at].data.u64 == LISTENER) {
                int fd;
                while ((fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK)) >= 0) {
                    struct epoll_event client = {.events = EPOLLIN, .data.fd = fd};
                    CHECK(epoll_ctl(set, EPOLL_CTL_ADD, fd, &client) == 0);
                    clients++;
                }
                CHECK(errno == EAGAIN);
                continue;
            }
            int fd = seen[at].data.fd;
            char byte;
            // One byte an event: what is left must be reported again.
            ssize_t got = read(fd, &byte, 1);
            CHECK(got >= 0);
            if (got == 0) {
                CHECK(close(fd) == 0);
                ended++;
            } else {
                CHECK(write(fd, &byte, 1) == 1);
            }
        }
    }
    CHECK(clients == 3);
    FAILS(accept(listener, NULL, NULL), EAGAIN);
}

static void scenario_edge(void) {
    int listener = listening();
    int fd = accepted(listener);
    nonblocking(fd);
    int set = epoll_create1(0);
    struct epoll_event event = {.events = EPOLLIN | EPOLLET, .data.fd = fd};
    CHECK(epoll_ctl(set, EPOLL_CTL_ADD, fd, &event) == 0);
    // Each of three arrivals is an edge, though nothing is read in between.
    for (int arrival = 0; arrival < 3; arrival++) {
        do {
            CHECK(epoll_wait(set, &event, 1, 10000) == 1);
        } while (!(event.events & EPOLLIN));
        CHECK(write(fd, "n", 1) == 1);
    }
    char buffer[16];
    CHECK(read(fd, buffer, sizeof buffer) == 3);
    FAILS(read(fd, buffer, sizeof buffer), EAGAIN);
}

static void scenario_flags(void) {
    int listener = listening();
    int fd = accepted(listener);
    char buffer[64] = {0};
    CHECK(recv(fd, buffer, 6, MSG_WAITALL) == 6 && memcmp(buffer, "abcdef", 6) == 0);
    CHECK(recv(fd, buffer, 2, MSG_PEEK) == 2 && memcmp(buffer, "gh", 2) == 0);
    // All of it has arrived by now or arrives soon: "ghijklmnop".
    int ready = 0;
    while (ready < 10) CHECK(ioctl(fd, FIONREAD, &ready) == 0);
    CHECK(recv(fd, NULL, 3, MSG_TRUNC) == 3);
    struct iovec parts[2] = {{buffer, 2}, {buffer + 10, 3}};
    CHECK(readv(fd, parts, 2) == 5 && memcmp(buffer, "jk", 2) == 0 && memcmp(buffer + 10, "lmn", 3) == 0);
    struct msghdr message = {.msg_iov = parts, .msg_iovlen = 1, .msg_control = buffer, .msg_controllen = 20};
    struct sockaddr_in from;
    message.msg_name = &from;
    message.msg_namelen = sizeof from;
    CHECK(recvmsg(fd, &message, 0) == 2 && memcmp(buffer, "op", 2) == 0);
    CHECK(message.msg_namelen == 0 && message.msg_controllen == 0 && message.msg_flags == 0);
    FAILS(recv(fd, buffer, 1, MSG_DONTWAIT), EAGAIN);
    FAILS(recv(fd, buffer, 1, MSG_DONTWAIT | MSG_PEEK), EAGAIN);
    CHECK(read(fd, buffer, 0) == 0 && write(fd, buffer, 0) == 0);
    FAILS(pread(fd, buffer, 1, 0), ESPIPE);
    FAILS(pwrite(fd, buffer, 1, 0), ESPIPE);
    FAILS(lseek(fd, 0, SEEK_CUR), ESPIPE);
    static struct iovec too_many[1025];
    volatile int fewer_than_none = -1;
    FAILS(readv(fd, too_many, fewer_than_none), EINVAL);
    FAILS(writev(fd, too_many, 1025), EINVAL);
    message.msg_iov = too_many;
    message.msg_iovlen = 1025;
    FAILS(sendmsg(fd, &message, 0), EMSGSIZE);
    struct timeval limit = {.tv_usec = 50000}, seen;
    socklen_t length = sizeof seen;
    CHECK(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit) == 0);
    CHECK(getsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &seen, &length) == 0 && length == sizeof seen);
    FAILS(read(fd, buffer, 1), EAGAIN);
    socklen_t addressed = sizeof from;
    CHECK(write(fd, "more", 4) == 4);
    CHECK(recvfrom(fd, buffer, 4, MSG_WAITALL, (void *)&from, &addressed) == 4 && addressed == 0);
    struct mmsghdr many[3] = {{{.msg_iov = parts, .msg_iovlen = 1}}, {{.msg_iov = parts + 1, .msg_iovlen = 1}}};
    memcpy(buffer, "xy", 2);
    memcpy(buffer + 10, "zzz", 3);
    CHECK(sendmmsg(fd, many, 2, 0) == 2 && many[0].msg_len == 2 && many[1].msg_len == 3);
    CHECK(recvmmsg(fd, many, 2, 0, NULL) == 2 && many[0].msg_len == 2 && many[1].msg_len == 3);
    CHECK(shutdown(fd, SHUT_WR) == 0);
    FAILS(send(fd, "x", 1, MSG_NOSIGNAL), EPIPE);
    FAILS(shutdown(fd, 9), EINVAL);
    CHECK(recv(fd, buffer, sizeof buffer, 0) == 0 && recv(fd, buffer, sizeof buffer, 0) == 0);
}

static void scenario_options(void) {
    int fd = socket(AF_INET, SOCK_STREAM, 0), one = 1, value, kept = 20000;
    struct linger linger = {1, 3}, got;
    CHECK(setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof one) == 0);
    CHECK(setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &kept, sizeof kept) == 0);
    CHECK(setsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, sizeof linger) == 0);
    struct sockaddr_in address = loopback(0);
    CHECK(bind(fd, (void *)&address, sizeof address) == 0);
    FAILS(bind(fd, (void *)&address, sizeof address), EINVAL);
    CHECK(setsockopt(fd, SOL_TCP, TCP_NODELAY, &one, sizeof one) == 0);
    socklen_t length = sizeof value;
    CHECK(getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &value, &length) == 0 && value == 0);
    CHECK(listen(fd, 3) == 0 && listen(fd, 5) == 0);
    CHECK(getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &value, &length) == 0 && value == 1);
    FAILS(read(fd, &value, 1), ENOTCONN);
    announce(fd);
    int client = accepted(fd);
    CHECK(getsockopt(client, SOL_SOCKET, SO_TYPE, &value, &length) == 0 && value == SOCK_STREAM);
    CHECK(getsockopt(client, SOL_SOCKET, SO_DOMAIN, &value, &length) == 0 && value == AF_INET);
    CHECK(getsockopt(client, SOL_SOCKET, SO_PROTOCOL, &value, &length) == 0 && value == IPPROTO_TCP);
    CHECK(getsockopt(client, SOL_SOCKET, SO_ERROR, &value, &length) == 0 && value == 0);
    CHECK(getsockopt(client, SOL_SOCKET, SO_KEEPALIVE, &value, &length) == 0 && value == 1);
    CHECK(getsockopt(client, SOL_SOCKET, SO_RCVBUF, &value, &length) == 0 && value == 40000);
    CHECK(getsockopt(client, SOL_TCP, TCP_NODELAY, &value, &length) == 0 && value == 1);
    length = sizeof got;
    CHECK(getsockopt(client, SOL_SOCKET, SO_LINGER, &got, &length) == 0 && got.l_linger == 3);
    length = sizeof value;
    FAILS(setsockopt(client, SOL_IPV6, IPV6_V6ONLY, &one, sizeof one), ENOPROTOOPT);
    FAILS(setsockopt(client, SOL_TCP, 9999, &one, sizeof one), ENOPROTOOPT);
    FAILS(getsockopt(client, SOL_TCP, 9999, &value, &length), ENOPROTOOPT);
    volatile socklen_t negative = -1;
    FAILS(setsockopt(client, SOL_TCP, TCP_NODELAY, &one, negative), EINVAL);
    FAILS(setsockopt(client, SOL_TCP, TCP_NODELAY, &one, 1), EINVAL);
    char flag = 9;
    length = 1;
    CHECK(getsockopt(client, SOL_TCP, TCP_NODELAY, &flag, &length) == 0 && length == 1 && flag == 1);
    struct tcp_info info;
    length = sizeof info;
    CHECK(getsockopt(client, SOL_TCP, TCP_INFO, &info, &length) == 0 && info.tcpi_state == 1);
}

static void scenario_reset(void) {
    int fd = accepted(listening());
    signal(SIGPIPE, SIG_IGN);
    char byte;
    CHECK(read(fd, &byte, 1) == 1);
    CHECK(write(fd, "g", 1) == 1);
    struct pollfd watched = {fd, 0, 0};
    wait_for_error(&watched);
    watched.events = POLLIN;
    CHECK(poll(&watched, 1, 0) == 1 && watched.revents == (POLLIN | POLLERR | POLLHUP));
    FAILS(read(fd, &byte, 1), ECONNRESET);
    CHECK(read(fd, &byte, 1) == 0);
    FAILS(write(fd, "x", 1), EPIPE);
    struct sockaddr_in peer;
    socklen_t length = sizeof peer;
    FAILS(getpeername(fd, (void *)&peer, &length), ENOTCONN);
}

static volatile sig_atomic_t pipes;
static void on_pipe(int signal) { pipes += signal == SIGPIPE; }

static void scenario_sigpipe(void) {
    int fd = accepted(listening());
    signal(SIGPIPE, on_pipe);
    CHECK(shutdown(fd, SHUT_WR) == 0);
    FAILS(write(fd, "x", 1), EPIPE);
    CHECK(pipes == 1);
    FAILS(send(fd, "x", 1, MSG_NOSIGNAL), EPIPE);
    CHECK(pipes == 1);
}

static volatile sig_atomic_t alarms;
static void on_alarm(int signal) { alarms += signal == SIGALRM; }

static void scenario_signals(void) {
    int fd = accepted(listening());
    struct itimerval soon = {.it_value.tv_usec = 50000};
    struct sigaction action = {.sa_handler = on_alarm};
    char byte;
    // Without SA_RESTART a blocking read is interrupted, with it, it goes on.
    CHECK(sigaction(SIGALRM, &action, NULL) == 0);
    CHECK(setitimer(ITIMER_REAL, &soon, NULL) == 0);
    FAILS(read(fd, &byte, 1), EINTR);
    action.sa_flags = SA_RESTART;
    CHECK(sigaction(SIGALRM, &action, NULL) == 0);
    CHECK(setitimer(ITIMER_REAL, &soon, NULL) == 0);
    CHECK(write(fd, "?", 1) == 1);
    CHECK(read(fd, &byte, 1) == 1 && alarms == 2);
}

enum { LARGE = 8 * 1024 * 1024 };

static void fill(char *bytes, size_t length, size_t from) {
    for (size_t at = 0; at < length; at++) bytes[at] = (char)(((from + at) * 31) >> 3);
}

static void scenario_bulk(void) {
    int fd = accepted(listening());
    static char bytes[LARGE];
    fill(bytes, LARGE, 0);
    CHECK(write(fd, bytes, LARGE) == LARGE);
}

static void scenario_backpressure(void) {
    int fd = accepted(listening());
    nonblocking(fd);
    static char bytes[LARGE];
    fill(bytes, LARGE, 0);
    int refusals = 0, told = 0;
    for (size_t sent = 0; sent < LARGE;) {
        ssize_t now = write(fd, bytes + sent, LARGE - sent);
        if (now < 0) {
            CHECK(errno == EAGAIN);
            refusals++;
            struct pollfd watched = {fd, POLLOUT, 0};
            // The first refusals may be over at once: there was room further on.
            if (!told && poll(&watched, 1, 0) == 0) {
                puts("blocked");
                fflush(stdout);
                told = 1;
            }
            CHECK(poll(&watched, 1, 10000) == 1 && watched.revents == POLLOUT);
        } else {
            sent += now;
        }
    }
    CHECK(refusals > 0 && told);
    CHECK(close(fd) == 0);
}

static void scenario_in_use(void) {
    int first = bound(0);
    CHECK(listen(first, 1) == 0);
    int second = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in address = loopback(port_of(first));
    FAILS(bind(second, (void *)&address, sizeof address), EADDRINUSE);
    CHECK(close(first) == 0);
    // A closed listener's port is free at once.
    int tries = 0;
    int one = 1;
    CHECK(setsockopt(second, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one) == 0);
    while (bind(second, (void *)&address, sizeof address) != 0) {
        CHECK(errno == EADDRINUSE && tries++ < 1000);
        usleep(1000);
    }
    CHECK(listen(second, 1) == 0);
    announce(second);
    echo(accepted(second));
}

static void scenario_dup(void) {
    int listener = listening();
    int copy = dup(listener), fd = accepted(copy);
    CHECK(close(listener) == 0);
    int high = fcntl(fd, F_DUPFD_CLOEXEC, 100);
    CHECK(high >= 100 && fcntl(high, F_GETFD) == FD_CLOEXEC);
    CHECK(dup2(fd, 50) == 50 && dup3(high, 60, O_CLOEXEC) == 60 && dup2(50, 50) == 50);
    FAILS(dup3(50, 50, 0), EINVAL);
    FAILS(dup2(999, 50), EBADF);
    CHECK(close(fd) == 0 && close(high) == 0 && close(50) == 0);
    echo(60);
    CHECK(close(60) == 0);
    // The listener still works, by its copy.
    echo(accepted(copy));
}

static void scenario_dup_before_listen(void) {
    int fd = bound(0), copy = dup(fd);
    CHECK(listen(fd, 5) == 0);
    CHECK(port_of(copy) == port_of(fd));
    announce(fd);
    CHECK(close(fd) == 0);
    echo(accepted(copy));
}

static void scenario_fork(void) {
    int listener = listening();
    int fd = accepted(listener);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        // The child serves the connection made before it, and one of its own.
        echo(fd);
        CHECK(close(fd) == 0);
        echo(accepted(listener));
        _exit(0);
    }
    CHECK(close(fd) == 0);
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    echo(accepted(listener));
}

static void scenario_fork_before_listen(void) {
    int fd = bound(0);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child > 0) {
        int status;
        CHECK(close(fd) == 0);
        CHECK(waitpid(child, &status, 0) == child && status == 0);
        return;
    }
    CHECK(listen(fd, 5) == 0);
    announce(fd);
    echo(accepted(fd));
    puts("ok");
    fflush(stdout);
    _exit(0);
}

static void scenario_vfork(void) {
    int listener = listening();
    int fd = accepted(listener);
    pid_t child = vfork();
    CHECK(child >= 0);
    if (child == 0) {
        // What programs do before exec: it must not be noted in the parent, whose memory this is.
        close(fd);
        dup2(2, listener);
        close_range(3, 100, 0);
        execl("/bin/true", "true", NULL);
        _exit(1);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    echo(fd);
    CHECK(close(fd) == 0);
    echo(accepted(listener));
}

static void scenario_close_range(void) {
    int first = listening();
    CHECK(accepted(first) >= 0);
    CHECK(close_range(3, ~0U, 0) == 0);
    FAILS(fcntl(first, F_GETFD), EBADF);
    for (int fd = 3; fd < 2000; fd++) close(fd);
    int second = listening();
    CHECK(second == 3);
    echo(accepted(second));
}

static void scenario_sendfile(void) {
    int fd = accepted(listening());
    FILE *file = tmpfile();
    static char bytes[300000];
    fill(bytes, sizeof bytes, 0);
    CHECK(fwrite(bytes, 1, sizeof bytes, file) == sizeof bytes && fflush(file) == 0);
    int source = fileno(file);
    off_t offset = 0;
    CHECK(sendfile(fd, source, &offset, 100000) == 100000 && offset == 100000);
    CHECK(lseek(source, 100000, SEEK_SET) == 100000);
    CHECK(sendfile(fd, source, NULL, 1000000) == 200000 && lseek(source, 0, SEEK_CUR) == 300000);
    CHECK(sendfile(fd, source, NULL, 1000) == 0);
    FAILS(sendfile(source, fd, NULL, 10), EINVAL);
}

static void scenario_descriptors(void) {
    int listener = listening();
    nonblocking(listener);
    struct pollfd watched = {listener, POLLIN, 0};
    CHECK(poll(&watched, 1, 10000) == 1);
    struct rlimit limit, none = {.rlim_cur = listener + 1};
    CHECK(getrlimit(RLIMIT_NOFILE, &limit) == 0);
    none.rlim_max = limit.rlim_max;
    CHECK(setrlimit(RLIMIT_NOFILE, &none) == 0);
    FAILS(accept(listener, NULL, NULL), EMFILE);
    CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0);
    // It is still queued.
    CHECK(poll(&watched, 1, 0) == 1);
    int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    CHECK(fd == listener + 1);
    CHECK(fcntl(fd, F_GETFL) == (O_RDWR | O_NONBLOCK) && fcntl(fd, F_GETFD) == FD_CLOEXEC);
    FAILS(accept4(listener, NULL, NULL, 1), EINVAL);
    socklen_t length = -1;
    struct sockaddr_in peer;
    FAILS(accept(listener, (void *)&peer, &length), EAGAIN);
    CHECK(fcntl(fd, F_SETFL, 0) == 0);
    echo(fd);
}

static void scenario_shutdown_listener(void) {
    int listener = listening();
    echo(accepted(listener));
    CHECK(shutdown(listener, SHUT_RDWR) == 0);
    FAILS(accept(listener, NULL, NULL), EINVAL);
    FAILS(shutdown(listener, SHUT_RDWR), ENOTCONN);
    CHECK(close(listener) == 0);
}

static void scenario_dual_stack(void) {
    int fd = socket(AF_INET6, SOCK_STREAM, 0), zero = 0;
    CHECK(setsockopt(fd, SOL_IPV6, IPV6_V6ONLY, &zero, sizeof zero) == 0);
    struct sockaddr_in6 address = {.sin6_family = AF_INET6};
    CHECK(bind(fd, (void *)&address, sizeof address) == 0 && listen(fd, 5) == 0);
    struct sockaddr_in6 peer;
    socklen_t length = sizeof address;
    CHECK(getsockname(fd, (void *)&address, &length) == 0 && length == sizeof address);
    printf("%d\n", ntohs(address.sin6_port));
    fflush(stdout);
    length = sizeof peer;
    int client = accept(fd, (void *)&peer, &length);
    CHECK(client >= 0 && length == sizeof peer && peer.sin6_family == AF_INET6);
    CHECK(IN6_IS_ADDR_V4MAPPED(&peer.sin6_addr) && peer.sin6_addr.s6_addr[12] == 127);
    echo(client);
}

// Serves until a client says q. Level-triggered, one read an event: what a broker does.
static void scenario_serve(void) {
    int listener = listening();
    nonblocking(listener);
    int set = epoll_create1(EPOLL_CLOEXEC);
    struct epoll_event event = {.events = EPOLLIN, .data.fd = listener};
    CHECK(epoll_ctl(set, EPOLL_CTL_ADD, listener, &event) == 0);
    for (;;) {
        CHECK(epoll_wait(set, &event, 1, -1) == 1);
        int fd = event.data.fd;
        if (fd == listener) {
            fd = accept(listener, NULL, NULL);
            CHECK(fd >= 0 || errno == EAGAIN);
            if (fd < 0) continue;
            nonblocking(fd);
            event.data.fd = fd;
            event.events = EPOLLIN;
            CHECK(epoll_ctl(set, EPOLL_CTL_ADD, fd, &event) == 0);
            continue;
        }
        char buffer[1024];
        ssize_t got = read(fd, buffer, sizeof buffer);
        if (got > 0 && buffer[0] == 'q') return;
        if (got > 0) {
            CHECK(write(fd, buffer, got) == got);
        } else if (got == 0 || errno != EAGAIN) {
            printf("%s\n", got == 0 ? "end" : strerrorname_np(errno));
            fflush(stdout);
            CHECK(close(fd) == 0);
        }
    }
}

// What a listener was given while it listened shows on each connection it accepts, until one says q.
static void scenario_late_options(void) {
    int listener = bound(0), idle = 77;
    CHECK(listen(listener, 16) == 0);
    struct timeval limit = {.tv_sec = 3};
    CHECK(setsockopt(listener, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof idle) == 0);
    CHECK(setsockopt(listener, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit) == 0);
    announce(listener);
    char said = 0;
    while (said != 'q') {
        int fd = accept(listener, NULL, NULL), seen = 0;
        CHECK(fd >= 0 || errno == EAGAIN);
        if (fd < 0) continue;
        socklen_t length = sizeof seen, size = sizeof limit;
        CHECK(getsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &seen, &length) == 0);
        CHECK(getsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, &size) == 0);
        printf("idle %d, receives %ld s\n", seen, (long)limit.tv_sec);
        fflush(stdout);
        CHECK(read(fd, &said, 1) >= 0);
        CHECK(close(fd) == 0);
    }
}

static void scenario_stale(void) {
    int fd = accepted(listening());
    // stdio closes behind everybody's back, and the number comes back as a file.
    CHECK(fclose(fdopen(fd, "r")) == 0);
    CHECK(open("/proc/self/exe", O_RDONLY) == fd);
    char magic[4];
    CHECK(read(fd, magic, 4) == 4 && memcmp(magic, "\177ELF", 4) == 0);
    CHECK(lseek(fd, 0, SEEK_CUR) == 4);
}

static int shared;
static void *blocked_reader(void *unused) {
    char byte;
    return read(shared, &byte, 1) > 0 ? &shared : unused;
}

static void *blocked_acceptor(void *unused) {
    return accept(shared, NULL, NULL) >= 0 ? &shared : unused;
}

static void *echoing(void *unused) {
    // The buffer is static: the stack is the smallest a thread can have.
    echo(shared);
    return unused;
}

static void scenario_small_stack(void) {
    shared = accepted(listening());
    pthread_t thread;
    pthread_attr_t attributes;
    CHECK(pthread_attr_init(&attributes) == 0);
    CHECK(pthread_attr_setstacksize(&attributes, PTHREAD_STACK_MIN) == 0);
    CHECK(pthread_create(&thread, &attributes, echoing, NULL) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
    CHECK(close(shared) == 0);
}

static void scenario_threads(void) {
    int listener = listening();
    int fd = accepted(listener);
    pthread_t thread;
    void *outcome;
    // A blocking read is a cancellation point.
    shared = fd;
    CHECK(pthread_create(&thread, NULL, blocked_reader, NULL) == 0);
    usleep(20000);
    CHECK(pthread_cancel(thread) == 0);
    CHECK(pthread_join(thread, &outcome) == 0 && outcome == PTHREAD_CANCELED);
    echo(fd);
    CHECK(close(fd) == 0);
    // So is accept; and the listener works afterwards, for two threads at once.
    shared = listener;
    CHECK(pthread_create(&thread, NULL, blocked_acceptor, NULL) == 0);
    usleep(20000);
    CHECK(pthread_cancel(thread) == 0);
    CHECK(pthread_join(thread, &outcome) == 0 && outcome == PTHREAD_CANCELED);
    pthread_t pair[2];
    for (int at = 0; at < 2; at++) CHECK(pthread_create(&pair[at], NULL, blocked_acceptor, NULL) == 0);
    puts("accepting");
    fflush(stdout);
    for (int at = 0; at < 2; at++) CHECK(pthread_join(pair[at], &outcome) == 0 && outcome == &shared);
}

// Listeners and connections that stay outside the card: the port after the scenario's name is a server's.
static void scenario_outside(void) {
    int served = listening();
    int one = socket(AF_UNIX, SOCK_STREAM, 0), two = socket(AF_UNIX, SOCK_STREAM, 0);
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    CHECK(bind(one, (void *)&name, sizeof(sa_family_t)) == 0 && listen(one, 1) == 0);
    CHECK(bind(two, (void *)&name, sizeof(sa_family_t)) == 0 && listen(two, 1) == 0);
    int bridge = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in address = loopback(extra_port);
    CHECK(connect(bridge, (void *)&address, sizeof address) == 0);
    int copy = dup(bridge);
    CHECK(close(one) == 0 && close(bridge) == 0 && close(copy) == 0);
    echo(accepted(served));
}

static void scenario_connect(void) {
    announce(bound(0));
    struct sockaddr_in address = loopback(extra_port), peer, nobody = loopback(1);
    socklen_t length = sizeof peer;
    char bytes[5];
    // Blocking.
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(connect(fd, (void *)&address, sizeof address) == 0);
    FAILS(connect(fd, (void *)&address, sizeof address), EISCONN);
    CHECK(getpeername(fd, (void *)&peer, &length) == 0 && peer.sin_port == address.sin_port);
    CHECK(port_of(fd) > 0);
    CHECK(write(fd, "hello", 5) == 5 && recv(fd, bytes, 5, MSG_WAITALL) == 5);
    CHECK(memcmp(bytes, "hello", 5) == 0 && close(fd) == 0);
    // Non-blocking, watched before it begins.
    fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    int set = epoll_create1(0), error;
    struct epoll_event event = {.events = EPOLLOUT, .data.u32 = 9};
    CHECK(epoll_ctl(set, EPOLL_CTL_ADD, fd, &event) == 0);
    int outcome = connect(fd, (void *)&address, sizeof address);
    CHECK(outcome == 0 || errno == EINPROGRESS);
    do {
        CHECK(epoll_wait(set, &event, 1, 10000) == 1 && event.data.u32 == 9);
    } while (event.events & EPOLLHUP);
    CHECK(event.events == EPOLLOUT);
    length = sizeof error;
    CHECK(getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length) == 0 && error == 0);
    CHECK(write(fd, "again", 5) == 5);
    struct pollfd watched = {fd, POLLIN, 0};
    CHECK(poll(&watched, 1, 10000) == 1 && recv(fd, bytes, 5, MSG_WAITALL) == 5);
    CHECK(memcmp(bytes, "again", 5) == 0);
    CHECK(connect(fd, (void *)&address, sizeof address) == 0 || errno == EISCONN);
    FAILS(connect(fd, (void *)&address, sizeof address), EISCONN);
    CHECK(close(fd) == 0);
    // Refused, then once more to where somebody is.
    fd = socket(AF_INET, SOCK_STREAM, 0);
    FAILS(connect(fd, (void *)&nobody, sizeof nobody), ECONNREFUSED);
    CHECK(connect(fd, (void *)&address, sizeof address) == 0);
    CHECK(close(fd) == 0);
    fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    FAILS(connect(fd, (void *)&nobody, sizeof nobody), EINPROGRESS);
    watched = (struct pollfd){fd, 0, 0};
    wait_for_error(&watched);
    CHECK(getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length) == 0 && error == ECONNREFUSED);
    CHECK(getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length) == 0 && error == 0);
    CHECK(close(fd) == 0);
}

// Reads and writes on a connection; a library loaded before us counts what they allocate.
static void scenario_allocations(void) {
    long (*allocations)(void) = dlsym(RTLD_DEFAULT, "allocations");
    CHECK(allocations != NULL);
    int fd = accepted(listening());
    static char buffer[4096];
    long before = 0;
    for (int round = 0; round < 2000; round++) {
        if (round == 100) before = allocations();
        ssize_t got = read(fd, buffer, 1 + round % sizeof buffer);
        CHECK(got > 0);
        struct iovec part = {buffer, got};
        CHECK(round % 2 ? write(fd, buffer, got) == got : writev(fd, &part, 1) == got);
        errno = 0;
        CHECK(recv(fd, buffer, 1, MSG_PEEK | MSG_DONTWAIT) >= 0 || errno == EAGAIN);
    }
    long after = allocations();
    if (after != before) fprintf(stderr, "%ld allocations\n", after - before);
    CHECK(after == before);
}

static const struct {
    const char *name;
    void (*run)(void);
} SCENARIOS[] = {
#define SCENARIO(name) {#name, scenario_##name}
    SCENARIO(echo), SCENARIO(epoll), SCENARIO(edge), SCENARIO(flags), SCENARIO(options),
    SCENARIO(reset), SCENARIO(sigpipe), SCENARIO(signals), SCENARIO(bulk), SCENARIO(backpressure),
    SCENARIO(in_use), SCENARIO(dup), SCENARIO(dup_before_listen), SCENARIO(fork),
    SCENARIO(fork_before_listen), SCENARIO(vfork), SCENARIO(close_range), SCENARIO(sendfile),
    SCENARIO(descriptors), SCENARIO(shutdown_listener), SCENARIO(dual_stack), SCENARIO(serve),
    SCENARIO(late_options),
    SCENARIO(stale), SCENARIO(threads), SCENARIO(small_stack), SCENARIO(outside), SCENARIO(connect), SCENARIO(allocations),
};

int main(int count, char **arguments) {
    CHECK(count >= 2);
    if (count > 2) extra_port = atoi(arguments[2]);
    alarm(60);
    for (size_t at = 0; at < sizeof SCENARIOS / sizeof *SCENARIOS; at++) {
        if (strcmp(SCENARIOS[at].name, arguments[1]) == 0) {
            SCENARIOS[at].run();
            puts("ok");
            return 0;
        }
    }
    fprintf(stderr, "no scenario %s\n", arguments[1]);
    return 2;
}
