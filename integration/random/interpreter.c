/* Runs random socket programs: `interpreter LISTEN_PORT CONNECT_PORT SYNC_PORT PROGRAMS TRACE`. See world.h. */
#include "world.h"

#include <sys/prctl.h>

#define WORDS_MAX 16
#define SECONDS_MAX 20

int listen_port, connect_port;
static int to_kid = -1, from_kid = -1;
static volatile sig_atomic_t caught;

static void count_signal(int number) { caught += number == SIGPIPE; }

int signals_caught(void)
{
	int count = caught;
	caught = 0;
	return count;
}

static void too_late(int number)
{
	(void)number;
	if (world->kid)
		kill(world->kid, SIGKILL);
	trace_flush();
	_exit(11);
}

static int split(const char *step, char *line, char **words)
{
	int count = 0;
	char *rest = NULL;
	snprintf(line, LINE_BYTES, "%s", step);
	for (char *word = strtok_r(line, " ", &rest); word && count < WORDS_MAX - 1; word = strtok_r(NULL, " ", &rest))
		words[count++] = word;
	words[count] = NULL;
	return count;
}

static void perform(char **words, int count)
{
	if (!socket_step(words, count) && !option_step(words, count) && !data_step(words, count) &&
	    !client_step(words, count) && !waiting_step(words, count) && !blocking_step(words, count))
		say_skipped("unknown");
}

/* The kid's life: the numbers of steps come, an answer goes. */
static void live(int orders, int answers)
{
	int number;
	/* Ready: what is the parent's alone is closed. */
	if (write(answers, "", 1) != 1)
		_exit(8);
	while (read(orders, &number, sizeof number) == sizeof number) {
		char line[LINE_BYTES], *words[WORDS_MAX];
		int count = split(world->steps[number], line, words);
		swallow_edges();
		begin_trace(number, world->steps[number]);
		perform(words + 1, count - 1);
		trace_flush();
		if (write(answers, "", 1) != 1)
			break;
	}
	_exit(0);
}

static void make_kid(void)
{
	int orders[2], answers[2];
	if (world->kid) {
		say_skipped("there is one");
		return;
	}
	if (pipe2(orders, O_CLOEXEC) || pipe2(answers, O_CLOEXEC))
		_exit(2);
	say(" done");
	trace_flush();
	world->processes[1] = world->processes[0];
	for (int slot = 0; slot < SLOTS; slot++)
		if (file_of(slot))
			file_of(slot)->references++;
	pid_t kid = fork();
	if (kid == 0) {
		/* Whatever becomes of the parent. */
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		me = 1;
		close(orders[1]);
		close(answers[0]);
		close_sync();
		close(world->elsewhere);
		for (int i = 0; i < CLIENTS; i++)
			close(world->clients[i].fd);
		live(fcntl(orders[0], F_DUPFD, 930), fcntl(answers[1], F_DUPFD, 930));
	}
	world->kid = kid;
	close(orders[0]);
	close(answers[1]);
	to_kid = fcntl(orders[1], F_DUPFD_CLOEXEC, 930);
	from_kid = fcntl(answers[0], F_DUPFD_CLOEXEC, 930);
	close(orders[1]);
	close(answers[0]);
	char byte;
	if (read(from_kid, &byte, 1) != 1)
		_exit(8);
}

/* Whether the kid alone holds a listener; with clients that wait at it, if asked so. */
static int has_listener(int with_clients)
{
	for (int slot = 0; slot < SLOTS; slot++) {
		int file = world->processes[1].slot_file[slot];
		struct file *it = &world->files[file < 0 ? 0 : file];
		int own = 0;
		for (int other = 0; other < SLOTS; other++)
			own += file >= 0 && world->processes[1].slot_file[other] == file;
		if (own && it->kind == LISTENER && it->references == own && (it->waiting || !with_clients))
			return 1;
	}
	return 0;
}

static void end_kid(int signal)
{
	int status = 0;
	if (!world->kid) {
		say_skipped("there is none");
		return;
	}
	if (signal)
		kill(world->kid, signal);
	close(to_kid);
	close(from_kid);
	waitpid(world->kid, &status, 0);
	say(WIFEXITED(status) ? " exits %d" : " killed by %d", WIFEXITED(status) ? WEXITSTATUS(status) : WTERMSIG(status));
	world->kid = 0;
	world->has_ghost |= has_listener(0);
	me = 1;
	for (int slot = 0; slot < SLOTS; slot++)
		drop_slot(slot);
	me = 0;
	memset(&world->processes[1], -1, sizeof world->processes[1]);
	soil(BY_PROGRAM);
}

static void have_kid_do(int number, char **words, int count)
{
	if (!world->kid || is(words[0], "client")) {
		begin_trace(number, world->steps[number]);
		say_skipped("no kid for it");
		return;
	}
	trace_flush();
	world->kid_calls = world->is_woken = 0;
	if (write(to_kid, &number, sizeof number) != sizeof number)
		_exit(8);
	struct pollfd answer = {.fd = from_kid, .events = POLLIN};
	int is_woken = 0;
	for (long start = now_ms(); poll(&answer, 1, is_woken ? PATIENCE_MS : 0) == 0;) {
		if (is_woken || now_ms() - start > PATIENCE_MS) {
			begin_trace(number, "the kid is STUCK");
			trace_flush();
			kill(world->kid, SIGKILL);
			_exit(10);
		}
		if (is(words[0], "blocked"))
			is_woken = wakes_kid(words, count);
		pause_shortly();
	}
	char byte;
	if (read(from_kid, &byte, 1) != 1) {
		begin_trace(number, "the kid died");
		trace_flush();
		_exit(10);
	}
	soil(BY_PROGRAM);
}

/* Steps after which, and before which, nobody looks at what is under way: the more overtakes, the better. */
static int may_go_ahead(char **words)
{
	static const char *const always[] = {"socket", "dup", "dupfd", "file", "set", "get", "mode", "flags", "epoll"};
	for (size_t i = 0; i < sizeof always / sizeof *always; i++)
		if (is(words[0], always[i]))
			return 1;
	if (world->dirt == BY_CLIENT)
		return is(words[0], "client") && (is(words[1], "write") || is(words[1], "connect"));
	if (is(words[0], "bind") || is(words[0], "listen"))
		return 1;
	/* Credit for what was written comes back a moment later than room would. */
	if (!is(words[0], "write") || !words[1] || !words[2] || !words[3] || atol(words[3]) > 5000)
		return 0;
	struct link *link = link_of(atoi(words[1]) % SLOTS);
	return link && link->client >= 0 && !(state_of(world->clients[link->client].fd) & (POLLRDHUP | POLLHUP));
}

static void run_step(int number)
{
	char line[LINE_BYTES], *words[WORDS_MAX];
	const char *step = world->steps[number];
	int count = split(step, line, words);
	if (count == 0)
		return;
	if (is(words[0], "k")) {
		settle();
		have_kid_do(number, words + 1, count - 1);
		return;
	}
	if (!may_go_ahead(words)) {
		settle();
		swallow_edges();
	}
	begin_trace(number, step);
	if (is(words[0], "fork"))
		make_kid();
	else if (world->kid && has_listener(1) && strstr(words[0], "kid"))
		say_skipped("clients wait for it");
	else if (is(words[0], "kidexit") || is(words[0], "kidkill"))
		end_kid(is(words[0], "kidkill") ? SIGKILL : 0);
	else if (is(words[0], "elsewhere")) {
		int is_open = world->elsewhere >= 0;
		if (is_open && is(words[1], "off"))
			close(world->elsewhere), world->elsewhere = -1;
		else if (!is_open && is(words[1], "on"))
			open_elsewhere();
	} else
		perform(words, count);
}

static void clean_up(void)
{
	settle();
	if (world->kid)
		end_kid(0);
	for (int set = 0; set < SETS; set++)
		close(world->processes[0].set_fd[set]);
	for (int i = 0; i < CLIENTS; i++) {
		struct linger linger = {.l_onoff = 1, .l_linger = 0};
		setsockopt(world->clients[i].fd, SOL_SOCKET, SO_LINGER, &linger, sizeof linger);
		close(world->clients[i].fd);
	}
	for (int slot = 0; slot < SLOTS; slot++) {
		close(world->processes[0].slot_fd[slot]);
		drop_slot(slot);
	}
	if (world->has_ghost) {
		/* Whoever binds finds that nobody holds the listener any more. */
		char text[][8] = {"socket", "0", "v4", "wait", "bind", "own", "close"};
		char *make[] = {text[0], text[1], text[2], text[3], NULL}, *bind[] = {text[4], text[1], text[5], NULL};
		char *end[] = {text[6], text[1], NULL};
		socket_step(make, 4), socket_step(bind, 3), socket_step(end, 2);
	}
	close(world->elsewhere);
	world->link_count = 0;
	soil(BY_PROGRAM);
	settle();
}

static void run_program(const char *title)
{
	begin_trace(-1, title);
	alarm(SECONDS_MAX);
	open_elsewhere();
	for (int number = 0; number < world->step_count; number++) {
		run_step(number);
		accept_peer();
	}
	trace_flush();
	clean_up();
	begin_trace(-1, "end");
	trace_flush();
}

/* A file of programs: `program NAME`, steps, `end`. */
static void run_all(FILE *programs)
{
	char line[LINE_BYTES], title[LINE_BYTES] = "";
	clear_world();
	while (fgets(line, sizeof line, programs)) {
		line[strcspn(line, "\n")] = 0;
		if (!strncmp(line, "program", 7)) {
			clear_world();
			strcpy(title, line);
		} else if (is(line, "end"))
			run_program(title);
		else if (world->step_count < STEPS_MAX)
			strcpy(world->steps[world->step_count++], line);
	}
}

int main(int argc, char **argv)
{
	FILE *programs = argc == 6 ? fopen(argv[4], "re") : NULL;
	if (!programs)
		return 2;
	listen_port = atoi(argv[1]);
	connect_port = atoi(argv[2]);
	struct sigaction count = {.sa_handler = count_signal}, late = {.sa_handler = too_late};
	sigaction(SIGPIPE, &count, NULL);
	sigaction(SIGUSR1, &count, NULL);
	sigaction(SIGALRM, &late, NULL);
	make_world();
	trace_to(argv[5]);
	open_sync(atoi(argv[3]));
	run_all(programs);
	return 0;
}
