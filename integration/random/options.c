/* Steps that set and get socket options. */
#include "world.h"

#include <netinet/ip.h>

#define OPTION(level, name) {#name, level, name}
/* Not here: what changes when bytes arrive (TCP_CORK, TCP_DEFER_ACCEPT, SO_RCVLOWAT), or how many fit. */
static const struct option {
	const char *text;
	int level, name;
} options[] = {
	OPTION(SOL_SOCKET, SO_KEEPALIVE),    OPTION(SOL_SOCKET, SO_OOBINLINE),	 OPTION(SOL_SOCKET, SO_PRIORITY),
	OPTION(SOL_SOCKET, SO_BROADCAST),    OPTION(IPPROTO_TCP, TCP_NODELAY),
	OPTION(IPPROTO_TCP, TCP_KEEPIDLE),   OPTION(IPPROTO_TCP, TCP_KEEPINTVL), OPTION(IPPROTO_TCP, TCP_KEEPCNT),
	OPTION(IPPROTO_TCP, TCP_SYNCNT),     OPTION(IPPROTO_IP, IP_TOS),	 OPTION(IPPROTO_IP, IP_TTL),
	OPTION(IPPROTO_TCP, TCP_USER_TIMEOUT), OPTION(SOL_SOCKET, SO_REUSEPORT), OPTION(SOL_SOCKET, SO_TYPE),
	OPTION(SOL_SOCKET, SO_PROTOCOL),     OPTION(SOL_SOCKET, SO_DOMAIN),	 OPTION(SOL_SOCKET, SO_ACCEPTCONN),
	OPTION(SOL_SOCKET, SO_REUSEADDR),
};

static const struct option *find(const char *text)
{
	for (size_t i = 0; i < sizeof options / sizeof *options; i++)
		if (is(text, options[i].text))
			return &options[i];
	return NULL;
}

/* set S NAME VALUE */
static void set(int fd, char **words)
{
	const struct option *option = find(words[2]);
	int value = atoi(words[3]);
	/* More is for the privileged. */
	if (option && option->name == SO_PRIORITY && option->level == SOL_SOCKET)
		value %= 7;
	if (!option || option->name == SO_REUSEADDR)
		say_skipped("not to be set");
	else
		say_result(setsockopt(fd, option->level, option->name, &value, sizeof value));
}

/* get S NAME */
static void get(int fd, char **words, int is_spent)
{
	const struct option *option = find(words[2]);
	int value = -77;
	socklen_t length = sizeof value;
	/* docs/conformance.md: what stopped listening is a fresh socket. */
	if (!option || is_spent) {
		say_skipped("unknown");
		return;
	}
	int result = getsockopt(fd, option->level, option->name, &value, &length);
	if (result < 0)
		say_error(errno);
	else
		say(" %d, %u bytes", value, length);
}

/* timeout S receive|send MS: 0 or longer than nothing, shorter than patience */
static void limit(int fd, char **words)
{
	struct timeval limit = {.tv_usec = atoi(words[3]) * 1000};
	int option = is(words[2], "send") ? SO_SNDTIMEO : SO_RCVTIMEO;
	say_result(setsockopt(fd, SOL_SOCKET, option, &limit, sizeof limit));
}

/* linger S off|reset */
static void linger(int fd, char **words)
{
	struct linger linger = {.l_onoff = is(words[2], "reset"), .l_linger = 0}, back = {0};
	socklen_t length = sizeof back;
	say_result(setsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, sizeof linger));
	if (getsockopt(fd, SOL_SOCKET, SO_LINGER, &back, &length) == 0)
		say(", %d %d", back.l_onoff, back.l_linger);
}

/* error S */
static void take_error(int fd)
{
	int error = 0;
	socklen_t length = sizeof error;
	if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length) < 0)
		say_error(errno);
	else
		say(" %s", error ? errno_text(error) : "none");
}

/* tcpstate S */
static void tcp_state(int fd)
{
	struct tcp_info info;
	socklen_t length = sizeof info;
	if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &length) < 0)
		say_error(errno);
	else
		/* Whether the client has acknowledged a FIN already is open: FIN_WAIT1 or FIN_WAIT2. */
		say(" %d", info.tcpi_state == TCP_FIN_WAIT2 ? TCP_FIN_WAIT1 : info.tcpi_state);
}

int option_step(char **words, int count)
{
	if (count < 2)
		return 0;
	int fd = fd_of(atoi(words[1]) % SLOTS);
	struct file *file = file_of(atoi(words[1]) % SLOTS);
	if (is(words[0], "set") && count == 4)
		set(fd, words);
	else if (is(words[0], "get") && count == 3)
		get(fd, words, file && file->kind == SPENT);
	else if (is(words[0], "timeout") && count == 4)
		limit(fd, words);
	else if (is(words[0], "linger") && count == 3)
		linger(fd, words);
	else if (is(words[0], "error") && count == 2)
		take_error(fd);
	else if (is(words[0], "tcpstate") && count == 2)
		tcp_state(fd);
	else
		return 0;
	return 1;
}
