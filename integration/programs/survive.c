/* What a trace must live through: `survive storm`, `survive closed FILE`. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#define THREADS 4
#define ROUNDS 300
#define CHILDREN 10

static void on_alarm(int number)
{
	(void)number;
	close(-7);
}

static void *call_on(void *nothing)
{
	for (int round = 0; round < ROUNDS; round++)
		close(-1000);
	return nothing;
}

/* Threads, forks and signals at once. */
static int storm(void)
{
	struct sigaction action = {.sa_handler = on_alarm, .sa_flags = SA_RESTART};
	struct itimerval often = {{0, 500}, {0, 500}}, never = {{0, 0}, {0, 0}};
	pthread_t threads[THREADS];
	pthread_attr_t small;

	sigaction(SIGALRM, &action, NULL);
	setitimer(ITIMER_REAL, &often, NULL);
	pthread_attr_init(&small);
	pthread_attr_setstacksize(&small, 16384);
	for (int at = 0; at < THREADS; at++)
		if (pthread_create(&threads[at], &small, call_on, NULL))
			return 3;
	for (int at = 0; at < CHILDREN; at++) {
		pid_t child = fork();
		if (child == 0) {
			close(-2000);
			_exit(0);
		}
		int status;
		while (waitpid(child, &status, 0) < 0)
			;
		if (status)
			return 4;
	}
	for (int at = 0; at < THREADS; at++)
		pthread_join(threads[at], NULL);
	setitimer(ITIMER_REAL, &never, NULL);
	return 0;
}

/* By an instruction of the program's own, which no library sees. */
static long raw(long number, long first, long second, long third)
{
#if defined(__x86_64__)
	long result;
	__asm__ volatile("syscall"
			 : "=a"(result)
			 : "a"(number), "D"(first), "S"(second), "d"(third)
			 : "rcx", "r11", "memory");
	return result;
#elif defined(__aarch64__)
	register long x8 __asm__("x8") = number, x0 __asm__("x0") = first, x1 __asm__("x1") = second,
		      x2 __asm__("x2") = third;
	__asm__ volatile("svc #0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2) : "memory");
	return x0;
#endif
}

/* Every number is closed behind the library's back, and taken for a file of the program's. */
static int closed(const char *path)
{
	close(-2000);
	raw(SYS_close_range, 3, ~0U, 0);
	int file = (int)raw(SYS_openat, AT_FDCWD, (long)path, O_RDWR | O_CREAT | O_APPEND);
	for (int number = 3; number < 1000; number++)
		if (number != file)
			raw(SYS_dup3, file, number, 0);
	close(-2000);
	for (int number = 3; number < 1000; number++)
		if (number != file && close(number))
			return 5;
	close(-2000);
	return write(file, "precious", 8) == 8 ? 0 : 6;
}

int main(int argc, char **argv)
{
	if (argc == 2 && !strcmp(argv[1], "storm"))
		return storm();
	if (argc == 3 && !strcmp(argv[1], "closed"))
		return closed(argv[2]);
	return 2;
}
