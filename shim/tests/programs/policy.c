// A server that opens files and loads libraries as it is told: a line of standard input each, answered by a line of what came
// of it. "listen" comes once; whatever comes before it happens without a session.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

// glibc's headers declare them for constant flags only.
int __open_2(const char *, int);
int __open64_2(const char *, int);
int __openat_2(int, const char *, int);
int __openat64_2(int, const char *, int);

static int listener = -1;

static int listening(void) {
    struct sockaddr_in any = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof any;
    listener = socket(AF_INET, SOCK_STREAM, 0);
    if (bind(listener, (struct sockaddr *)&any, length) != 0 || listen(listener, 5) != 0) return -1;
    return getsockname(listener, (struct sockaddr *)&any, &length) == 0 ? ntohs(any.sin_port) : -1;
}

// What a descriptor came to: "ok", or the error.
static const char *fd_outcome(int fd) {
    if (fd < 0) return strerror(errno);
    close(fd);
    return "ok";
}

static const char *stream_outcome(FILE *file) {
    if (file == NULL) return strerror(errno);
    fclose(file);
    return "ok";
}

static const char *handle_outcome(void *handle) { return handle != NULL ? "ok" : "not loaded"; }

static FILE *reopened(const char *path, const char *mode, int is_64) {
    FILE *file = fopen("/dev/null", "w");
    return is_64 ? freopen64(path, mode, file) : freopen(path, mode, file);
}

static const char *forked(const char *path) {
    pid_t child = fork();
    if (child == 0) _exit(open(path, O_RDONLY) >= 0 ? 0 : 1);
    int status;
    waitpid(child, &status, 0);
    return status == 0 ? "ok" : "failed";
}

static const char *run(const char *how, const char *path) {
    int r = O_RDONLY;
#define IS(name) (strcmp(how, name) == 0)
    if (IS("open")) return fd_outcome(open(path, r));
    if (IS("open64")) return fd_outcome(open64(path, r));
    if (IS("openat")) return fd_outcome(openat(AT_FDCWD, path, r));
    if (IS("openat64")) return fd_outcome(openat64(AT_FDCWD, path, r));
    if (IS("__open_2")) return fd_outcome(__open_2(path, r));
    if (IS("__open64_2")) return fd_outcome(__open64_2(path, r));
    if (IS("__openat_2")) return fd_outcome(__openat_2(AT_FDCWD, path, r));
    if (IS("__openat64_2")) return fd_outcome(__openat64_2(AT_FDCWD, path, r));
    if (IS("syscall")) return fd_outcome(syscall(SYS_openat, AT_FDCWD, path, r));
    if (IS("fopen")) return stream_outcome(fopen(path, "r"));
    if (IS("fopen64")) return stream_outcome(fopen64(path, "re"));
    if (IS("freopen")) return stream_outcome(reopened(path, "r", 0));
    if (IS("freopen64")) return stream_outcome(reopened(path, "r", 1));
    if (IS("read and write")) return fd_outcome(open(path, O_RDWR));
    if (IS("fork")) return forked(path);
    if (IS("write")) return fd_outcome(open(path, O_WRONLY | O_CREAT | O_APPEND, 0600));
    if (IS("creat")) return fd_outcome(creat(path, 0600));
    if (IS("append")) return stream_outcome(fopen(path, "at"));
    if (IS("rewrite")) return stream_outcome(fopen(path, "w+"));
    if (IS("nowhere")) return fd_outcome(open((const char *)8, r));
    if (IS("accept")) return fd_outcome(accept(listener, NULL, NULL));
    if (IS("dlopen")) return handle_outcome(dlopen(path, RTLD_NOW));
    if (IS("dlmopen")) return handle_outcome(dlmopen(LM_ID_NEWLM, path, RTLD_NOW));
    if (IS("loaded")) return handle_outcome(dlopen(path, RTLD_NOW | RTLD_NOLOAD));
    if (IS("itself")) return handle_outcome(dlopen(NULL, RTLD_NOW));
    if (IS("open and close")) {
        void *handle = dlopen(path, RTLD_NOW);
        return handle != NULL && dlclose(handle) == 0 ? "ok" : "failed";
    }
    return "what?";
}

int main(void) {
    char line[4096];
    setvbuf(stdout, NULL, _IOLBF, 0);
    while (fgets(line, sizeof line, stdin) != NULL) {
        line[strcspn(line, "\n")] = 0;
        char *path = strchr(line, ':');
        if (strcmp(line, "listen") == 0) printf("%d\n", listening());
        else if (path == NULL) puts("what?");
        else {
            *path++ = 0;
            puts(run(line, path));
        }
    }
    return 0;
}
