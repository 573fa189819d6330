/* What a program does to a descriptor as to any file: splice, positions, locks, owners, and what a socket refuses. */
#include "parity.h"

#include <dirent.h>
#include <sys/file.h>
#include <sys/sendfile.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <sys/xattr.h>

static int file_with(const char *bytes, size_t length)
{
	char path[] = "/tmp/parityXXXXXX";
	int file = mkstemp(path);
	unlink(path);
	if (write(file, bytes, length) != (ssize_t)length)
		say("no room for a file");
	lseek(file, 0, SEEK_SET);
	return file;
}

CASE(splice_moves_from_a_socket_to_a_pipe)
{
	struct trio all = trio();
	int ends[2];
	char buffer[16] = "";
	T(pipe(ends));
	T(write(all.client, "0123456789", 10));
	EXPECT(all.server, POLLIN | POLLOUT);
	T(splice(all.server, NULL, ends[1], NULL, 4, 0));
	T(read(ends[0], buffer, 16));
	say_bytes("pipe", buffer, 4);
	T(splice(all.server, NULL, ends[1], NULL, 100, SPLICE_F_NONBLOCK));
	T(read(ends[0], buffer, 16));
	T(set_nonblocking(all.server, 1));
	T(splice(all.server, NULL, ends[1], NULL, 100, 0));
	T(splice(all.server, NULL, ends[1], NULL, 0, 0));
	T(close(all.client));
	EXPECT(all.server, POLLIN | POLLOUT | POLLRDHUP);
	T(splice(all.server, NULL, ends[1], NULL, 100, 0));
}

CASE(splice_moves_from_a_pipe_to_a_socket)
{
	struct trio all = trio();
	int ends[2];
	char buffer[16] = "";
	T(pipe(ends));
	T(write(ends[1], "0123456789", 10));
	T(splice(ends[0], NULL, all.server, NULL, 4, 0));
	T(read_all(all.client, buffer, 4));
	say_bytes("client", buffer, 4);
	T(splice(ends[0], NULL, all.server, NULL, 100, SPLICE_F_MORE));
	T(read_all(all.client, buffer, 6));
	T(splice(ends[0], NULL, all.server, NULL, 100, SPLICE_F_NONBLOCK));
	T(close(ends[1]));
	T(splice(ends[0], NULL, all.server, NULL, 100, 0));
	EXPECT(all.client, POLLOUT);
}

CASE(splice_waits_for_bytes_of_a_socket)
{
	struct trio all = trio();
	int ends[2];
	T(pipe(ends));
	pthread_t thread = after_ms(30, write_x, &all.client);
	T(splice(all.server, NULL, ends[1], NULL, 100, 0));
	pthread_join(thread, NULL);
	T(read(ends[0], &(char){0}, 1));
}

CASE(splice_refuses_what_the_kernel_refuses)
{
	struct trio all = trio();
	int ends[2], file = file_with("abc", 3);
	loff_t offset = 0;
	catch_signal(SIGPIPE, 0);
	T(pipe(ends));
	T(splice(all.server, NULL, file, NULL, 4, 0));
	T(splice(file, NULL, all.server, NULL, 4, 0));
	T(splice(all.server, NULL, all.client, NULL, 4, 0));
	T(splice(all.server, &offset, ends[1], NULL, 4, 0));
	T(splice(ends[0], NULL, all.server, &offset, 4, 0));
	T(splice(all.server, NULL, ends[0], NULL, 4, 0));
	T(splice(all.server, NULL, -1, NULL, 4, 0));
	T(splice(all.listening, NULL, ends[1], NULL, 4, SPLICE_F_NONBLOCK));
	T(write(ends[1], "x", 1));
	T(splice(ends[0], NULL, all.listening, NULL, 4, SPLICE_F_NONBLOCK));
	T(splice(all.server, NULL, ends[1], NULL, 4, 0xff00));
	T(tee(all.server, ends[1], 4, 0));
	T(tee(ends[0], all.server, 4, 0));
	T(vmsplice(all.server, &(struct iovec){"x", 1}, 1, 0));
}

CASE(splice_through_a_pipe_carries_much)
{
	struct trio all = trio();
	static char big[1 << 20], got[1 << 20];
	int ends[2];
	for (size_t i = 0; i < sizeof big; i++)
		big[i] = (char)(i * 13 + i / 777);
	T(pipe(ends));
	pid_t child = fork();
	if (child == 0) {
		close(all.server);
		if (write_all(all.client, big, sizeof big) != sizeof big)
			_exit(1);
		shutdown(all.client, SHUT_WR);
		_exit(read_all(all.client, got, sizeof got) == sizeof got && !memcmp(big, got, sizeof got) ? 0 : 2);
	}
	/* An echo that never copies: what comes is kept in a file first, or both sides would wait. */
	int file = file_with("", 0);
	long in;
	while ((in = splice(all.server, NULL, ends[1], NULL, 65536, SPLICE_F_MOVE)) > 0)
		while (in > 0)
			in -= splice(ends[0], NULL, file, NULL, (size_t)in, 0);
	off_t offset = 0;
	while (offset < (off_t)sizeof big && sendfile(all.server, file, &offset, sizeof big) > 0)
		;
	say("%ld echoed", (long)offset);
	reap(child);
}

CASE(sendfile_minds_offsets_and_ends)
{
	struct trio all = trio();
	int file = file_with("0123456789", 10), ends[2];
	off_t offset = 20, negative = -1;
	char buffer[16];
	T(pipe(ends));
	T(sendfile(all.server, file, &offset, 5));
	T(sendfile(all.server, file, &negative, 5));
	T(sendfile(all.server, file, NULL, 0));
	T(sendfile(all.server, file, NULL, 3));
	T(lseek(file, 0, SEEK_CUR));
	T(sendfile(all.server, file, NULL, 100));
	T(lseek(file, 0, SEEK_CUR));
	T(sendfile(all.server, file, NULL, 100));
	T(read_all(all.client, buffer, 10));
	say_bytes("client", buffer, 10);
	T(sendfile(all.server, -1, NULL, 5));
	T(sendfile(-1, file, NULL, 5));
	T(sendfile(all.listening, file, &(off_t){0}, 5));
	T(write(ends[1], "pipe", 4));
	T(sendfile(all.server, ends[0], NULL, 4));
	T(sendfile(all.server, all.client, NULL, 4));
	T(shutdown(all.server, SHUT_WR));
	catch_signal(SIGPIPE, 0);
	T(sendfile(all.server, file, &(off_t){0}, 5));
	say("signals %d", signals_caught());
}

CASE(a_large_file_is_sent_to_a_slow_reader)
{
	struct trio all = trio();
	static char big[4 << 20], got[4 << 20];
	for (size_t i = 0; i < sizeof big; i++)
		big[i] = (char)(i * 11 + i / 999);
	int file = file_with(big, sizeof big);
	pid_t child = fork();
	if (child == 0) {
		close(all.server);
		usleep(20000);
		_exit(read_all(all.client, got, sizeof got) == sizeof got && !memcmp(big, got, sizeof got) ? 0 : 1);
	}
	off_t offset = 0;
	long calls = 0;
	while (offset < (off_t)sizeof big && sendfile(all.server, file, &offset, sizeof big) > 0)
		calls++;
	say("%ld sent", (long)offset);
	reap(child);
	T(set_nonblocking(all.server, 1));
	/* Mostly a hole, and more than any number of buffers holds. */
	const off_t whole = 200 << 20;
	T(ftruncate(file, whole));
	offset = 0;
	long sent = sendfile(all.server, file, &offset, (size_t)whole);
	say("partial: %d, offset fits: %d", sent > 0 && sent < whole, sent == offset);
}

CASE(vectors_with_offsets_are_for_files)
{
	struct trio all = trio();
	char byte;
	struct iovec part = {&byte, 1};
	int fds[] = {all.server, all.listening};
	T(write(all.client, "abcd", 4));
	EXPECT(all.server, POLLIN | POLLOUT);
	for (int i = 0; i < 2; i++) {
		T(preadv(fds[i], &part, 1, 0));
		T(pwritev(fds[i], &part, 1, 0));
		T(preadv2(fds[i], &part, 1, 0, 0));
		T(pwritev2(fds[i], &part, 1, 0, 0));
		T(preadv2(fds[i], &part, 1, -1, RWF_NOWAIT));
		T(pwritev2(fds[i], &part, 1, -1, RWF_NOWAIT));
		T(preadv2(fds[i], &part, 1, -1, RWF_HIPRI));
		T(preadv2(fds[i], &part, 1, -1, 0x4000));
		T(pwritev2(fds[i], &part, 1, -1, 0x4000));
		T(pwritev2(fds[i], &part, 1, -1, RWF_APPEND));
		T(pwritev2(fds[i], &part, 1, -1, RWF_DSYNC));
		T(preadv2(fds[i], &part, 1, -2, 0));
	}
	T(recv(all.server, (char[8]){0}, 8, MSG_DONTWAIT));
	T(preadv2(all.server, &part, 1, -1, RWF_NOWAIT));
}

CASE(what_files_do_and_sockets_refuse)
{
	struct trio all = trio();
	int fds[] = {all.server, all.listening}, file = file_with("abc", 3);
	char bytes[8];
	for (int i = 0; i < 2; i++) {
		int fd = fds[i];
		T(lseek(fd, 0, SEEK_SET));
		T(lseek(fd, 5, SEEK_END));
		T(lseek(fd, 0, 99));
		T(pread(fd, bytes, 1, 0));
		T(pwrite(fd, bytes, 1, 0));
		T(pread(fd, bytes, 1, -1));
		T(fsync(fd));
		T(fdatasync(fd));
		T(ftruncate(fd, 0));
		T(fallocate(fd, 0, 0, 10));
		T(posix_fallocate(fd, 0, 10));
		T(posix_fadvise(fd, 0, 0, POSIX_FADV_NORMAL));
		T(readahead(fd, 0, 10));
		T(sync_file_range(fd, 0, 0, 0));
		T(copy_file_range(fd, NULL, file, NULL, 3, 0));
		T(copy_file_range(file, NULL, fd, NULL, 3, 0));
		T(getdents64(fd, bytes, 8));
		T(fchdir(fd));
		T(openat(fd, "x", O_RDONLY));
		T(fcntl(fd, F_GETPIPE_SZ));
		T(fcntl(fd, F_GETLEASE));
		T(fcntl(fd, F_NOTIFY, 0));
		T(fcntl(fd, F_ADD_SEALS, 0));
	}
}

CASE(locks_are_taken_on_sockets_as_on_files)
{
	struct trio all = trio();
	int fds[] = {all.server, all.listening};
	struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
	for (int i = 0; i < 2; i++) {
		T(flock(fds[i], LOCK_EX | LOCK_NB));
		T(flock(fds[i], LOCK_UN));
		T(fcntl(fds[i], F_SETLK, &lock));
		T(fcntl(fds[i], F_GETLK, &lock));
		T(lockf(fds[i], F_TEST, 0));
	}
}

CASE(a_status_says_socket_and_nothing_else)
{
	struct trio all = trio();
	int fds[] = {all.server, all.listening};
	for (int i = 0; i < 2; i++) {
		struct stat about;
		struct statfs system;
		struct statvfs volume;
		struct statx more;
		char path[64], target[64] = "";
		T(fstat(fds[i], &about));
		say("mode %o, links %ld, size %ld, own: %d", about.st_mode, (long)about.st_nlink, (long)about.st_size,
		    about.st_uid == getuid());
		T(fstatfs(fds[i], &system));
		say("type %lx", (unsigned long)system.f_type);
		T(fstatvfs(fds[i], &volume));
		T(statx(fds[i], "", AT_EMPTY_PATH, STATX_TYPE | STATX_MODE, &more));
		say("mode %o", more.stx_mode);
		snprintf(path, sizeof path, "/proc/self/fd/%d", fds[i]);
		T(readlink(path, target, sizeof target) > 0);
		say("%.8s", target);
		T(stat(path, &about));
		say("mode %o", about.st_mode);
		T(open(path, O_RDWR));
		T(fchmod(fds[i], 0600));
		T(fstat(fds[i], &about));
		say("mode %o", about.st_mode);
		T(futimens(fds[i], NULL));
		T(fgetxattr(fds[i], "user.x", target, sizeof target));
		T(isatty(fds[i]));
		T(fpathconf(fds[i], _PC_PIPE_BUF));
	}
}

CASE(modes_of_a_descriptor_are_set_and_told)
{
	struct trio all = trio();
	int fds[] = {all.server, all.listening};
	for (int i = 0; i < 2; i++) {
		say("%x", (unsigned)fcntl(fds[i], F_GETFL));
		T(fcntl(fds[i], F_SETFL, O_NONBLOCK | O_APPEND));
		say("%x", (unsigned)fcntl(fds[i], F_GETFL));
		T(fcntl(fds[i], F_SETFL, O_DIRECT));
		T(fcntl(fds[i], F_SETFL, O_NOATIME));
		T(fcntl(fds[i], F_SETFL, 0));
		say("%x", (unsigned)fcntl(fds[i], F_GETFL));
		T(fcntl(fds[i], F_SETFL, O_RDONLY | O_NONBLOCK));
		T(!!(fcntl(fds[i], F_GETFL) & O_NONBLOCK));
		T(fcntl(fds[i], F_SETFD, 0x55));
		T(fcntl(fds[i], F_GETFD));
	}
}

CASE(owners_of_a_descriptor_are_set_and_told)
{
	struct trio all = trio();
	int fds[] = {all.server, all.listening};
	for (int i = 0; i < 2; i++) {
		struct f_owner_ex owner = {F_OWNER_PID, getpid()};
		T(fcntl(fds[i], F_GETOWN));
		T(fcntl(fds[i], F_SETOWN, getpid()));
		T(fcntl(fds[i], F_GETOWN) == getpid());
		T(fcntl(fds[i], F_SETOWN, 999999999));
		T(fcntl(fds[i], F_SETOWN_EX, &owner));
		T(fcntl(fds[i], F_GETOWN_EX, &owner));
		say("%d %d", owner.type, owner.pid == getpid());
		T(fcntl(fds[i], F_SETSIG, SIGUSR1));
		T(fcntl(fds[i], F_GETSIG));
		T(fcntl(fds[i], F_SETSIG, 999));
		int number = 0;
		T(ioctl(fds[i], FIOGETOWN, &number));
		say("%d", number == getpid());
	}
}

CASE(an_owner_gets_a_signal_at_each_arrival)
{
	struct trio all = trio();
	catch_signal(SIGIO, 0);
	T(fcntl(all.server, F_SETOWN, getpid()));
	T(fcntl(all.server, F_SETFL, O_ASYNC));
	T(!!(fcntl(all.server, F_GETFL) & O_ASYNC));
	T(write(all.client, "x", 1));
	await(all.server, POLLIN);
	usleep(5000);
	say("signalled: %d", signals_caught() > 0);
	T(recv(all.server, &(char){0}, 1, 0));
	T(fcntl(all.server, F_SETFL, 0));
	signals_caught();
	T(write(all.client, "x", 1));
	await(all.server, POLLIN);
	usleep(5000);
	say("signalled: %d", signals_caught() > 0);
}

CASE(a_listeners_owner_gets_a_signal_for_a_client)
{
	int fd = listener(), on = 1;
	catch_signal(SIGIO, SA_RESTART);
	T(fcntl(fd, F_SETOWN, getpid()));
	T(ioctl(fd, FIOASYNC, &on));
	guest();
	await(fd, POLLIN);
	usleep(5000);
	say("signalled: %d", signals_caught() > 0);
}
